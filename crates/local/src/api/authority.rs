//! The certificate authority of the cluster.

use std::net::Ipv4Addr;
use std::sync::{Arc, OnceLock};

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose};
use rustls::ServerConfig;
use rustls::crypto::ring;
use rustls::pki_types::PrivateKeyDer;

/// It signs one certificate, that of the pod listener, and ends with the process.
#[derive(Default)]
pub(crate) struct Authority(OnceLock<Option<SigningKey>>);

struct SigningKey {
    certificate: String,
    issuer: Issuer<'static, KeyPair>,
}

/// Why the API can't be served to pods.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NoServer {
    #[error("there is no authority to sign for it")]
    Authority,
    #[error("no certificate can be made: {0}")]
    Certificate(#[from] rcgen::Error),
    #[error("the certificate can't be used: {0}")]
    Tls(#[from] rustls::Error),
    #[error("its key can't be used: {0}")]
    Key(&'static str),
}

impl Authority {
    fn signing_key(&self) -> Option<&SigningKey> {
        let signing_key = self.0.get_or_init(|| {
            let signing_key = make();
            if let Err(error) = &signing_key {
                tracing::warn!(%error, "pods have no authority to trust: its certificate could not be made");
            }
            signing_key.ok()
        });
        signing_key.as_ref()
    }

    /// Its certificate; None if it could not be made.
    pub(crate) fn certificate(&self) -> Option<&str> {
        self.signing_key().map(|signing_key| &*signing_key.certificate)
    }

    /// The TLS configuration of a server at this address.
    pub(crate) fn server(&self, address: Ipv4Addr) -> Result<Arc<ServerConfig>, NoServer> {
        let signing_key = self.signing_key().ok_or(NoServer::Authority)?;
        let key = KeyPair::generate()?;
        let names = ["kubernetes.default.svc".to_owned(), address.to_string()];
        let certificate = CertificateParams::new(names)?.signed_by(&key, &signing_key.issuer)?;
        let key = PrivateKeyDer::try_from(key.serialize_der()).map_err(NoServer::Key)?;
        let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(vec![certificate.der().clone()], key)?;
        Ok(Arc::new(config))
    }
}

fn make() -> Result<SigningKey, rcgen::Error> {
    let key = KeyPair::generate()?;
    let mut parameters = CertificateParams::default();
    parameters
        .distinguished_name
        .push(DnType::CommonName, "trainyard-embedded");
    parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    parameters.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    let certificate = parameters.self_signed(&key)?.pem();
    Ok(SigningKey {
        certificate,
        issuer: Issuer::new(parameters, key),
    })
}
