//! Whom the agent trusts: the authorities it is given, and nobody else.

use std::sync::Arc;

use rustls::client::Resumption;
use rustls::crypto::ring;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};

/// Why authorities can't be used.
#[derive(Debug, thiserror::Error)]
pub enum TrustError {
    /// There is none.
    #[error("must hold certificates as PEM, and holds none")]
    Empty,
    /// One of them can't be read.
    #[error("must hold certificates as PEM; number {number} of them can't be used: {reason}")]
    Certificate {
        /// Which one, from 1.
        number: usize,
        /// What is wrong with it.
        reason: String,
    },
    /// The library does not take the settings.
    #[error("can't be used: {0}")]
    Protocol(rustls::Error),
}

/// A configuration for clients that trust these authorities, written as PEM, and no others.
pub fn authorities(pem: &str) -> Result<Arc<ClientConfig>, TrustError> {
    let mut roots = RootCertStore::empty();
    for (index, certificate) in CertificateDer::pem_slice_iter(pem.as_bytes()).enumerate() {
        let unusable = |reason| TrustError::Certificate {
            number: index + 1,
            reason,
        };
        let certificate = certificate.map_err(|error| unusable(error.to_string()))?;
        roots
            .add(certificate)
            .map_err(|error| unusable(error.to_string()))?;
    }
    if roots.is_empty() {
        return Err(TrustError::Empty);
    }
    let mut config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(TrustError::Protocol)?
        .with_root_certificates(roots)
        .with_no_client_auth();
    // Sessions would take memory, and the next connection most likely leads to another replica.
    config.resumption = Resumption::disabled();
    Ok(Arc::new(config))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn authority() -> String {
        rcgen::generate_simple_self_signed(vec!["x".to_owned()])
            .unwrap()
            .cert
            .pem()
    }

    fn problem(pem: &str) -> String {
        authorities(pem).unwrap_err().to_string()
    }

    #[test]
    fn takes_several_and_text_between_them() {
        authorities(&authority()).unwrap();
        authorities(&format!("old\n{}\nnew\n{}", authority(), authority())).unwrap();
    }

    #[test]
    fn says_what_is_wrong() {
        let none = "must hold certificates as PEM, and holds none";
        assert_eq!([problem(""), problem("MIIB")], [none, none]);
        let second = authority() + "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        assert!(
            problem(&second).contains("number 2 of them can't be used"),
            "{}",
            problem(&second)
        );
        let cut_off = &authority()[..100];
        assert!(
            problem(cut_off).contains("number 1 of them can't be used"),
            "{}",
            problem(cut_off)
        );
    }
}
