//! Runs the operator: the election, the controllers, the webhooks and the servers.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use trainyard_core::foreign::ForeignKind;

use crate::admission::{self, Access, PendingReviews, Reviewer, access};
use crate::agent;
use crate::certs::{CertConfig, CertManager, ServingCert};
use crate::clock::SystemClock;
use crate::engine::{Config, Engine};
use crate::foreign;
use crate::http::{self, BindError, Probes};
use crate::leader::{Elector, LeaderConfig, LeaderConfigError, Leadership, unique_identity};
use crate::metrics::Metrics;
use crate::observer::{AresObserver, OBSERVER_SERVICE};
use crate::options::{Options, UnknownKind, UnreviewedScripts};

/// After so long without a beat, the engine is stuck.
const PULSE_TIMEOUT: Duration = Duration::from_mins(1);

/// The Service through which the API server calls the webhooks, as the manifests name it.
pub const WEBHOOK_SERVICE: &str = "trainyard-webhook";

/// Why the operator could not run.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The configuration of the election can't work.
    #[error(transparent)]
    Leader(#[from] LeaderConfigError),
    /// A kind of another operator is to be served that is not known.
    #[error(transparent)]
    Kind(#[from] UnknownKind),
    /// Scripts are to be reviewed, and nobody would.
    #[error(transparent)]
    Scripts(#[from] UnreviewedScripts),
    /// An address can't be served.
    #[error(transparent)]
    Bind(#[from] BindError),
}

/// Runs the operator until `shutdown`, and then until the last writes have been answered. `known`
/// are the kinds of other operators that it can serve. The options say which of them it serves.
pub async fn run(
    client: kube::Client,
    options: Options,
    known: &[&'static dyn ForeignKind],
    metrics: Arc<Metrics>,
    shutdown: CancellationToken,
) -> Result<(), Error> {
    let kinds = options.kinds(known)?;
    let scripts = options.scripts()?;
    let namespace = options
        .namespace
        .clone()
        .unwrap_or_else(|| client.default_namespace().to_owned());
    let identity = identity();

    let listener = http::bind(options.http_address).await?;

    let election = options
        .leader_elect
        .then(|| LeaderConfig::new(&namespace, &options.lease_name, &identity));
    let (leadership, elector) = elect(&client, election, &metrics)?;
    // The lease is released when the last write has been answered.
    let release = CancellationToken::new();
    let elector = elector.map(|elector| tokio::spawn(elector.run(release.clone())));

    let config = Config {
        namespaces: options.namespaces(),
        settings: options.settings(),
        concurrency: options.concurrency,
        instance: identity,
        clock: Arc::new(SystemClock),
    };
    // The servers run until the end, so that metrics and probes show how it ends.
    let serving = CancellationToken::new();
    let webhooks = bind_if(options.webhooks, options.webhook_address).await?;
    let observer = bind_if(options.observer, options.observer_address).await?;
    let engine = Engine::new(client.clone(), config, leadership.clone(), metrics.clone());
    serve_ares(options.ares_observer_address, &engine, &serving).await?;
    let certificate = (webhooks.is_some() || observer.is_some()).then(|| {
        let config = cert_config(&namespace, webhooks.is_some(), observer.is_some());
        let certificate = Arc::new(ServingCert::with_metrics(metrics.clone()));
        keep_certificate(&client, config, &leadership, &serving, certificate)
    });
    let reviews = webhooks.zip(certificate.clone()).map(|(listener, certificate)| {
        let reviewer = Reviewer::new(kinds.clone()).with_declarations(engine.index());
        let reviewer = (reviewer.with_scripts(scripts), access::of_server(client.clone()));
        serve_webhooks(listener, certificate, &metrics, reviewer, &serving)
    });
    if let Some((listener, certificate)) = observer.zip(certificate.clone()) {
        let source = agent::AgentSource {
            client,
            namespace,
            image: options.agent_image,
        };
        serve_observer(listener, certificate, &engine, source, &serving);
    }
    let controllers = run_controllers(&engine, kinds, &shutdown);
    let probes = probes(&engine, certificate, shutdown.clone());
    let server = tokio::spawn(http::serve(listener, metrics, probes, serving.clone()));
    let work = async {
        tokio::join!(engine.run(shutdown.clone()), controllers);
        release.cancel();
        if let Some(elector) = elector {
            // It ends also if the API server can't be reached. A panic in it has been reported.
            let _ = elector.await;
        }
    };
    // API servers call this replica until they know that it is stopping.
    let last_reviews = async {
        if let Some(reviews) = reviews {
            shutdown.cancelled().await;
            reviews.wait_until_quiet().await;
        }
    };
    tokio::join!(work, last_reviews);
    serving.cancel();
    let _ = server.await;
    Ok(())
}

/// Makes the leadership, and the elector if there is an election.
fn elect(
    client: &kube::Client,
    election: Option<LeaderConfig>,
    metrics: &Arc<Metrics>,
) -> Result<(Leadership, Option<Elector>), LeaderConfigError> {
    let Some(config) = election else {
        metrics.set_leader(true);
        return Ok((Leadership::always(), None));
    };
    let elector = Elector::new(client.clone(), config)?.with_metrics(metrics.clone());
    Ok((elector.leadership(), Some(elector)))
}

/// Returns a name that no other replica has.
fn identity() -> String {
    let host = ["POD_NAME", "HOSTNAME"]
        .into_iter()
        .find_map(|name| std::env::var(name).ok());
    unique_identity(host.as_deref().unwrap_or("trainyard"))
}

/// Runs the controllers of all kinds but TrainingJobs until `shutdown`.
fn run_controllers(
    engine: &Engine,
    kinds: Vec<&'static dyn ForeignKind>,
    shutdown: &CancellationToken,
) -> impl Future<Output = ()> + use<> {
    let mut controllers: Vec<BoxFuture<'static, ()>> = Vec::new();
    for kind in kinds {
        let controller = foreign::controller(kind, engine.context(), engine.requests());
        controllers.push(Box::pin(controller.run(shutdown.clone())));
    }
    async {
        futures::future::join_all(controllers).await;
    }
}

fn serve_webhooks(
    listener: TcpListener,
    certificate: Arc<ServingCert>,
    metrics: &Arc<Metrics>,
    reviewer: (Reviewer, Access),
    serving: &CancellationToken,
) -> PendingReviews {
    let reviews = PendingReviews::default();
    let (metrics, serving) = (metrics.clone(), serving.clone());
    let serve = admission::serve(listener, certificate, metrics, reviewer, reviews.clone(), serving);
    tokio::spawn(log_failure("webhooks", serve));
    reviews
}

/// Serves the observer, and has pods created with an agent that knows it.
fn serve_observer(
    listener: TcpListener,
    certificate: Arc<ServingCert>,
    engine: &Engine,
    source: agent::AgentSource,
    serving: &CancellationToken,
) {
    let observer = engine.observer(serving.clone());
    let authorities = certificate.authorities();
    tokio::spawn(log_failure("observer", observer.serve(listener, certificate)));
    tokio::spawn(agent::keep_current(engine.settings(), source, authorities));
}

/// Serves AresOperator's observer, if there is an address for it.
async fn serve_ares(
    address: Option<SocketAddr>,
    engine: &Engine,
    serving: &CancellationToken,
) -> Result<(), BindError> {
    let Some(address) = address else { return Ok(()) };
    let listener = http::bind(address).await?;
    tracing::warn!(%address, "AresOperator's observer is served, without TLS and without authentication");
    let observer = AresObserver::new(engine.index(), engine.settings(), Arc::new(SystemClock));
    tokio::spawn(observer.serve(listener, serving.clone()));
    Ok(())
}

async fn bind_if(wanted: bool, address: SocketAddr) -> Result<Option<TcpListener>, BindError> {
    if wanted {
        http::bind(address).await.map(Some)
    } else {
        Ok(None)
    }
}

fn cert_config(namespace: &str, webhooks: bool, observer: bool) -> CertConfig {
    let services = [(webhooks, WEBHOOK_SERVICE), (observer, OBSERVER_SERVICE)];
    let services: Vec<&str> = services
        .into_iter()
        .filter_map(|(served, service)| served.then_some(service))
        .collect();
    CertConfig::new(namespace, &services, webhooks)
}

/// Keeps the certificate of the servers with TLS.
fn keep_certificate(
    client: &kube::Client,
    config: CertConfig,
    leadership: &Leadership,
    shutdown: &CancellationToken,
    certificate: Arc<ServingCert>,
) -> Arc<ServingCert> {
    let manager = CertManager::new(client.clone(), config, leadership.clone(), certificate.clone());
    tokio::spawn(manager.run(shutdown.clone()));
    certificate
}

async fn log_failure(what: &str, serve: impl Future<Output = Result<(), rustls::Error>>) {
    if let Err(error) = serve.await {
        tracing::error!(%error, "the {what} can't be served");
    }
}

fn probes(engine: &Engine, certificate: Option<Arc<ServingCert>>, shutdown: CancellationToken) -> Probes {
    let (index, pulse) = (engine.index(), engine.pulse());
    Probes {
        live: Arc::new(move || match pulse.silent() {
            silent if silent < PULSE_TIMEOUT => Ok(()),
            silent => Err(format!("the engine has not moved for {} s", silent.as_secs())),
        }),
        ready: Arc::new(move || {
            if shutdown.is_cancelled() {
                Err("it is being stopped".to_owned())
            } else if !index.is_listed_since(None) {
                Err("jobs, pods and Services have not been listed yet".to_owned())
            } else if certificate
                .as_ref()
                .is_some_and(|certificate| !certificate.is_loaded())
            {
                Err("there is no certificate to serve with yet".to_owned())
            } else {
                Ok(())
            }
        }),
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use http_body_util::Full;
    use hyper::body::Bytes;
    use kube::client::Body;
    use tokio::time::Instant;

    use super::*;
    use crate::index::Kind;
    use crate::slim::Version;

    #[tokio::test]
    async fn a_replica_is_ready_when_it_has_seen_everything_until_it_is_stopped() {
        let silent = tower::service_fn(|_: ::http::Request<Body>| {
            std::future::pending::<Result<::http::Response<Full<Bytes>>, Infallible>>()
        });
        let engine = Engine::new(
            kube::Client::new(silent, "default"),
            Config::default(),
            Leadership::always(),
            Arc::new(Metrics::new()),
        );
        let shutdown = CancellationToken::new();
        let probes = probes(&engine, None, shutdown.clone());
        assert!((probes.ready)().unwrap_err().contains("listed"));
        for kind in [Kind::Job, Kind::Pod, Kind::Service] {
            engine.index().listing(kind, 0, Version(5));
            engine.index().listed(kind, 0, Version(5), Instant::now());
        }
        assert_eq!((probes.ready)(), Ok(()));
        shutdown.cancel();
        assert!((probes.ready)().unwrap_err().contains("stopped"));
        assert_eq!((probes.live)(), Ok(()));
    }
}
