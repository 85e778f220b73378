//! The observer of an engine.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use trainyard_core::view::{Agent, ObserverEndpoint};

use super::Engine;
use crate::certs::{LoadError, OwnCertificate, ServingCert};
use crate::clock::Clock;
use crate::observer::{ClusterKeys, Observer};

/// How often the certificate of an observer without other replicas is replaced: long before its
/// end.
const RENEW_INTERVAL: Duration = Duration::from_hours(30 * 24);

/// Why an observer can't be served.
#[derive(Debug, thiserror::Error)]
pub enum ObserverError {
    /// It has no address that pods could be told.
    #[error("its address can't be read: {0}")]
    Address(#[from] io::Error),
    /// There is no certificate for it.
    #[error("{0}")]
    Certificate(String),
}

impl From<LoadError> for ObserverError {
    fn from(error: LoadError) -> Self {
        Self::Certificate(error.to_string())
    }
}

impl Engine {
    /// Makes the observer, which tells what this engine knows until `shutdown`.
    pub(crate) fn observer(&self, shutdown: CancellationToken) -> Observer {
        let wake = self.wake();
        let context = self.context();
        let keys = Arc::new(ClusterKeys::new(context.client));
        Observer::new(context.index, context.settings, keys, context.clock, shutdown)
            .taking_progress(context.leadership, wake)
    }

    /// Serves the observer of an operator without other replicas until `shutdown`, and has pods
    /// created with an agent that knows it. Pods reach it by the IP address of the listener.
    ///
    /// Its certificate is signed by an authority of this process, which no Secret has. Without an
    /// agent, nobody would ask, and nothing is served.
    pub fn serve_observer(
        &self,
        listener: TcpListener,
        shutdown: CancellationToken,
    ) -> Result<(), ObserverError> {
        let settings = self.settings();
        let Some(agent) = settings.now().agent.clone() else {
            return Ok(());
        };
        let address = listener.local_addr()?;
        let clock = self.context().clock;
        let own = own_certificate(address, &*clock)?;
        let certificate = Arc::new(ServingCert::default());
        certificate.load(own.data())?;
        settings.set_agent(Some(Agent {
            observer: Some(ObserverEndpoint {
                address: format!("https://{address}"),
                authority: own.data().ca_crt.clone(),
            }),
            ..agent
        }));
        let observer = self.observer(shutdown.clone());
        tokio::spawn(renew(own, certificate.clone(), clock, shutdown));
        tokio::spawn(async move {
            if let Err(error) = observer.serve(listener, certificate).await {
                tracing::error!(%error, "the observer can't be served");
            }
        });
        Ok(())
    }
}

fn own_certificate(address: SocketAddr, clock: &dyn Clock) -> Result<OwnCertificate, ObserverError> {
    let names = vec![address.ip().to_string()];
    OwnCertificate::issue(names, clock.now()).map_err(|error| ObserverError::Certificate(error.to_string()))
}

/// Replaces the certificate from time to time. Pods go on trusting its authority.
async fn renew(
    mut own: OwnCertificate,
    certificate: Arc<ServingCert>,
    clock: Arc<dyn Clock>,
    shutdown: CancellationToken,
) {
    loop {
        tokio::select! {
            () = shutdown.cancelled() => return,
            () = sleep(RENEW_INTERVAL) => {}
        }
        let renewed = own.renew(clock.now()).map_err(|error| error.to_string());
        let loaded = renewed.and_then(|()| certificate.load(own.data()).map_err(|error| error.to_string()));
        if let Err(error) = loaded {
            tracing::warn!(error, "the observer's certificate could not be replaced");
        }
    }
}
