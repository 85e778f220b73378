//! Makes the credentials by which the pods of one job authenticate each other. They are made once
//! and written into a Secret. They are kept nowhere else: not in memory, not in a log.

mod ssh;

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::ByteString;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair, KeyUsagePurpose, PKCS_ECDSA_P256_SHA256,
};
use time::OffsetDateTime;
use trainyard_contract::directories::identity::names::{AUTHORITY, CERTIFICATE, KEY};
use trainyard_contract::shell::CERTIFICATE_NAME;
use trainyard_core::model::Identity;

const DAY: Duration = Duration::from_hours(24);
/// A certificate is valid from this long before it was made, for nodes whose clock is behind.
const BACKDATE: Duration = DAY;
/// Longer than any job lives: certificates are not renewed.
const LIFE: Duration = Duration::from_hours(10 * 365 * 24);

/// Why credentials can't be made.
#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    /// The certificate can't be made or signed.
    #[error("the job's certificate can't be made: {0}")]
    Make(#[from] rcgen::Error),
    /// The system gives no random numbers.
    #[error("the job's key can't be made: the system gives no random numbers")]
    Random,
    /// A time is out of range.
    #[error(
        "the job's certificate can't be made: {0} is not a time it could hold; check the operator's clock"
    )]
    Time(Timestamp),
}

/// Makes the content of a job's Secret.
pub fn make(identity: Identity, now: Timestamp) -> Result<BTreeMap<String, ByteString>, IdentityError> {
    match identity {
        Identity::Certificate => certificate(now),
        Identity::SshKey => {
            let (private, public) = ssh::make().map_err(|_| IdentityError::Random)?;
            Ok(content([("ssh-privatekey", private), ("ssh-publickey", public)]))
        }
    }
}

fn content<const N: usize>(content: [(&str, String); N]) -> BTreeMap<String, ByteString> {
    content
        .map(|(name, text)| (name.to_owned(), ByteString(text.into_bytes())))
        .into()
}

/// Makes a certificate and the authority that signs it. The authority's key is dropped: it signs
/// nothing else.
fn certificate(now: Timestamp) -> Result<BTreeMap<String, ByteString>, IdentityError> {
    let authority_key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?;
    let mut params = params(Vec::new(), "trainyard-job-ca", now)?;
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    let authority = params.self_signed(&authority_key)?.pem();
    let issuer = Issuer::new(params, authority_key);

    let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?;
    let mut params = self::params(vec![CERTIFICATE_NAME.to_owned()], "trainyard-job", now)?;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![
        ExtendedKeyUsagePurpose::ServerAuth,
        ExtendedKeyUsagePurpose::ClientAuth,
    ];
    params.use_authority_key_identifier_extension = true;
    let leaf = params.signed_by(&key, &issuer)?.pem();
    Ok(content([
        (AUTHORITY, authority),
        (CERTIFICATE, leaf),
        (KEY, key.serialize_pem()),
    ]))
}

fn params(names: Vec<String>, common: &str, now: Timestamp) -> Result<CertificateParams, IdentityError> {
    let stamp = |at: Timestamp| {
        OffsetDateTime::from_unix_timestamp(at.as_second()).map_err(|_| IdentityError::Time(at))
    };
    let begin = now.checked_sub(BACKDATE).map_err(|_| IdentityError::Time(now))?;
    let end = begin.checked_add(LIFE).map_err(|_| IdentityError::Time(now))?;
    let mut params = CertificateParams::new(names)?;
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, common);
    params.not_before = stamp(begin)?;
    params.not_after = stamp(end)?;
    Ok(params)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use rustls::client::WebPkiServerVerifier;
    use rustls::client::danger::ServerCertVerifier;
    use rustls::pki_types::pem::PemObject;
    use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
    use rustls::server::WebPkiClientVerifier;
    use rustls::{RootCertStore, ServerConfig};

    use super::*;

    fn made() -> BTreeMap<String, ByteString> {
        make(Identity::Certificate, "2026-01-02T03:04:05Z".parse().unwrap()).unwrap()
    }

    fn certificate(content: &BTreeMap<String, ByteString>, name: &str) -> CertificateDer<'static> {
        CertificateDer::from_pem_slice(&content[name].0).unwrap()
    }

    fn roots(content: &BTreeMap<String, ByteString>) -> Arc<RootCertStore> {
        let mut roots = RootCertStore::empty();
        roots.add(certificate(content, "ca.crt")).unwrap();
        Arc::new(roots)
    }

    /// Whether the leaf of one is good for a server and for a client, to those who trust the
    /// authority of another.
    fn is_trusted(
        leaf: &BTreeMap<String, ByteString>,
        trusted: &BTreeMap<String, ByteString>,
        at: &str,
    ) -> bool {
        let at: Timestamp = at.parse().unwrap();
        let now = UnixTime::since_unix_epoch(Duration::from_secs(at.as_second().unsigned_abs()));
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let leaf = certificate(leaf, "tls.crt");
        let server = WebPkiServerVerifier::builder_with_provider(roots(trusted), provider.clone())
            .build()
            .unwrap();
        let name = ServerName::try_from(CERTIFICATE_NAME).unwrap();
        let client = WebPkiClientVerifier::builder_with_provider(roots(trusted), provider)
            .build()
            .unwrap();
        let server = server.verify_server_cert(&leaf, &[], &name, &[], now).is_ok();
        assert_eq!(server, client.verify_client_cert(&leaf, &[], now).is_ok());
        server
    }

    #[test]
    fn a_certificate_is_for_servers_and_clients_of_one_job_for_ten_years() {
        let (one, other) = (made(), made());
        assert_eq!(one.keys().collect::<Vec<_>>(), ["ca.crt", "tls.crt", "tls.key"]);
        assert!(is_trusted(&one, &one, "2026-01-02T03:04:05Z"));
        assert!(
            is_trusted(&one, &one, "2026-01-01T12:00:00Z"),
            "a clock that is behind"
        );
        assert!(is_trusted(&one, &one, "2035-12-01T00:00:00Z"));
        assert!(!is_trusted(&one, &one, "2036-12-01T00:00:00Z"));
        assert!(
            !is_trusted(&one, &other, "2026-01-02T03:04:05Z"),
            "of another job"
        );
        let key = PrivateKeyDer::from_pem_slice(&one["tls.key"].0).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth();
        config
            .with_single_cert(vec![certificate(&one, "tls.crt")], key)
            .unwrap();
    }

    #[test]
    fn a_clock_that_is_far_off_is_told() {
        let said = make(Identity::Certificate, Timestamp::MAX)
            .unwrap_err()
            .to_string();
        assert!(said.contains("check the operator's clock"), "{said}");
    }
}
