//! The certificate that is served. It can be replaced while connections are open.

use std::sync::Arc;

use parking_lot::RwLock;
use rustls::ServerConfig;
use rustls::crypto::ring;
use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::pem::PemObject;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use tokio::sync::watch;

use super::SecretData;
use super::plan::{certificates, expiry};
use crate::metrics::Metrics;

/// Why a certificate can't be served. The messages don't show a key.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    #[error("tls.crt can't be read: {0}")]
    Certificate(String),
    #[error("tls.key can't be read")]
    Key,
    #[error("tls.crt and tls.key can't be used together: {0}")]
    Pair(#[from] rustls::Error),
}

/// Holds the certificate that is served. Handshakes fail until there is one.
#[derive(Debug, Default)]
pub struct ServingCert {
    current: RwLock<Option<Arc<CertifiedKey>>>,
    authorities: watch::Sender<Option<String>>,
    metrics: Option<Arc<Metrics>>,
}

impl ServingCert {
    /// Sets the metric that tells when the certificate ends.
    pub fn with_metrics(metrics: Arc<Metrics>) -> Self {
        Self {
            metrics: Some(metrics),
            ..Self::default()
        }
    }

    /// Serves this certificate from now on. Open connections keep theirs. On an error nothing
    /// changes.
    pub fn load(&self, data: &SecretData) -> Result<(), LoadError> {
        let chain = certificates(&data.tls_crt).map_err(LoadError::Certificate)?;
        if chain.is_empty() {
            return Err(LoadError::Certificate("it holds no certificate".to_owned()));
        }
        // The reason is left out: it may quote the key.
        let key = PrivateKeyDer::from_pem_slice(data.tls_key.as_bytes()).map_err(|_| LoadError::Key)?;
        let end = chain.first().and_then(expiry);
        let pair = CertifiedKey::from_der(chain, key, &ring::default_provider())?;
        *self.current.write() = Some(Arc::new(pair));
        if let (Some(metrics), Some(end)) = (&self.metrics, end) {
            metrics.set_certificate_expiry(end.as_second());
        }
        self.authorities.send_replace(Some(data.ca_crt.clone()));
        Ok(())
    }

    /// Returns the authorities that clients must trust, in PEM. There are none before there is a
    /// certificate.
    pub fn authorities(&self) -> watch::Receiver<Option<String>> {
        self.authorities.subscribe()
    }

    /// Returns true if there is a certificate. A replica without one is not ready.
    pub fn is_loaded(&self) -> bool {
        self.current().is_some()
    }

    fn current(&self) -> Option<Arc<CertifiedKey>> {
        self.current.read().clone()
    }

    /// Returns the configuration of a server of HTTP/2 and HTTP/1.1 that serves the certificate.
    pub fn server_config(self: Arc<Self>) -> Result<ServerConfig, rustls::Error> {
        let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_cert_resolver(self);
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(config)
    }
}

impl ResolvesServerCert for ServingCert {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.current()
    }
}
