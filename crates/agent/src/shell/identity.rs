//! Who may speak with whom: those who have the identity of the job, and nobody else.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::client::Resumption;
use rustls::crypto::ring::cipher_suite::TLS13_AES_128_GCM_SHA256;
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::server::WebPkiClientVerifier;
use rustls::version::TLS13;
use rustls::{AlertDescription, CertificateError, ClientConfig, RootCertStore, ServerConfig};
use trainyard_contract::directories::identity::names::{AUTHORITY, CERTIFICATE, KEY};
use trainyard_contract::shell::{ATTEMPT_PROTOCOL, CERTIFICATE_NAME};

/// Why there is no identity.
#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    /// A file can't be read.
    #[error(
        "can't read {path}: {source}; the identity of the job must be mounted where TRAINYARD_IDENTITY says"
    )]
    Read {
        /// Its path.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A file holds something else.
    #[error("{path} must be {what} as PEM: {reason}")]
    File {
        /// Its path.
        path: PathBuf,
        /// What it must hold.
        what: &'static str,
        /// What is wrong with it.
        reason: String,
    },
    /// The library does not take the parts together.
    #[error("the identity in {directory} can't be used: {reason}")]
    Whole {
        /// Where it is.
        directory: PathBuf,
        /// Why not.
        reason: String,
    },
}

/// The certificate that all pods of a job share, and the authority that has signed it.
#[derive(Debug)]
pub struct Identity {
    directory: PathBuf,
    authority: Arc<RootCertStore>,
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
    /// How often all pods of the job have started anew together.
    attempt: u32,
}

impl Identity {
    /// As it lies in a directory, `ca.crt`, `tls.crt` and `tls.key`, for a pod of an attempt.
    pub fn read(directory: &Path, attempt: u32) -> Result<Self, IdentityError> {
        let mut authority = RootCertStore::empty();
        for certificate in certificates(&directory.join(AUTHORITY))? {
            authority.add(certificate).map_err(|error| IdentityError::File {
                path: directory.join(AUTHORITY),
                what: "certificates of authorities",
                reason: error.to_string(),
            })?;
        }
        let path = directory.join(KEY);
        let key = PrivateKeyDer::from_pem_slice(&read(&path)?).map_err(|error| IdentityError::File {
            path,
            what: "a private key",
            reason: error.to_string(),
        })?;
        Ok(Self {
            directory: directory.to_owned(),
            authority: Arc::new(authority),
            chain: certificates(&directory.join(CERTIFICATE))?,
            key,
            attempt,
        })
    }

    /// The protocols that this side speaks. Agents of former releases name none, and speak with
    /// every attempt.
    fn protocols(&self) -> Vec<Vec<u8>> {
        vec![format!("{ATTEMPT_PROTOCOL}{}", self.attempt).into_bytes()]
    }

    /// For a side that is connected to. It refuses whoever has no certificate of this job, or is of
    /// another attempt of it.
    pub fn server(self) -> Result<Arc<ServerConfig>, IdentityError> {
        let protocols = self.protocols();
        let whole = |reason: String| IdentityError::Whole {
            directory: self.directory.clone(),
            reason,
        };
        let verifier = WebPkiClientVerifier::builder_with_provider(self.authority, provider())
            .build()
            .map_err(|error| whole(error.to_string()))?;
        let mut config = ServerConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&TLS13])
            .map_err(|error| whole(error.to_string()))?
            .with_client_cert_verifier(verifier)
            .with_single_cert(self.chain, self.key)
            .map_err(|error| whole(error.to_string()))?;
        config.alpn_protocols = protocols;
        // Nobody comes back to a former session.
        config.send_tls13_tickets = 0;
        Ok(Arc::new(config))
    }

    /// For a side that connects.
    pub fn client(self) -> Result<Arc<ClientConfig>, IdentityError> {
        let protocols = self.protocols();
        let whole = |error: rustls::Error| IdentityError::Whole {
            directory: self.directory.clone(),
            reason: error.to_string(),
        };
        let mut config = ClientConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&TLS13])
            .map_err(whole)?
            .with_root_certificates(self.authority)
            .with_client_auth_cert(self.chain, self.key)
            .map_err(whole)?;
        config.alpn_protocols = protocols;
        config.resumption = Resumption::disabled();
        Ok(Arc::new(config))
    }
}

/// For whom the certificate of the other side must be.
pub(super) fn server_name() -> io::Result<ServerName<'static>> {
    ServerName::try_from(CERTIFICATE_NAME).map_err(io::Error::other)
}

/// Whether the other side is not of this job: its certificate is of another one, or of a former one
/// of the same name; or it is of another attempt. A certificate of this job that is not valid at
/// this time is what this side has, too.
pub(super) fn is_of_another_job(error: &rustls::Error) -> bool {
    use CertificateError::{Expired, ExpiredContext, NotValidYet, NotValidYetContext};
    match error {
        rustls::Error::AlertReceived(AlertDescription::NoApplicationProtocol) => true,
        rustls::Error::InvalidCertificate(problem) => !matches!(
            problem,
            Expired | ExpiredContext { .. } | NotValidYet | NotValidYetContext { .. }
        ),
        _ => false,
    }
}

/// What a failure of TLS means here, said of the other side.
pub(super) fn explain(error: &rustls::Error) -> String {
    use AlertDescription as Alert;
    match error {
        rustls::Error::InvalidCertificate(problem) => {
            format!("its certificate is not of this job ({problem})")
        }
        rustls::Error::NoApplicationProtocol | rustls::Error::AlertReceived(Alert::NoApplicationProtocol) => {
            "it is of another attempt of this job: all pods have started anew together since one of the two was \
             made"
                .to_owned()
        }
        rustls::Error::NoCertificatesPresented => "it has shown no certificate of this job".to_owned(),
        rustls::Error::AlertReceived(
            alert @ (Alert::UnknownCA
            | Alert::BadCertificate
            | Alert::CertificateUnknown
            | Alert::CertificateExpired
            | Alert::CertificateRequired
            | Alert::UnsupportedCertificate
            | Alert::DecryptError
            | Alert::AccessDenied),
        ) => format!("it does not take the certificate of this side for one of its job ({alert:?})"),
        other => format!("it does not speak as the remote shell does ({other})"),
    }
}

/// As the library has it, but for the order of suites: the first that a client names is taken, and
/// to agree on keys costs least with the hash that processors know.
fn provider() -> Arc<CryptoProvider> {
    let mut provider = ring::default_provider();
    let first = TLS13_AES_128_GCM_SHA256.suite();
    provider.cipher_suites.sort_by_key(|suite| suite.suite() != first);
    Arc::new(provider)
}

fn read(path: &Path) -> Result<Vec<u8>, IdentityError> {
    fs::read(path).map_err(|source| IdentityError::Read {
        path: path.to_owned(),
        source,
    })
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, IdentityError> {
    let unusable = |reason: String| IdentityError::File {
        path: path.to_owned(),
        what: "certificates",
        reason,
    };
    let text = read(path)?;
    let all: Vec<CertificateDer<'static>> = CertificateDer::pem_slice_iter(&text)
        .collect::<Result<_, _>>()
        .map_err(|error| unusable(error.to_string()))?;
    if all.is_empty() {
        return Err(unusable("it holds none".to_owned()));
    }
    Ok(all)
}
