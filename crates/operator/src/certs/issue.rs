//! Makes keys and certificates: ECDSA on P-256, which every API server supports.

use std::time::Duration;

use jiff::Timestamp;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair, KeyUsagePurpose, PKCS_ECDSA_P256_SHA256,
};
use rustls::pki_types::CertificateDer;
use time::OffsetDateTime;

use super::SecretData;
use super::plan::{BACKDATE, CA_LIFE, CertPlan, LEAF_LIFE, certificates};

/// Why certificates can't be made.
#[derive(Debug, thiserror::Error)]
pub enum IssueError {
    #[error("a certificate for the webhooks can't be made: {0}")]
    Make(#[from] rcgen::Error),
    #[error("a certificate for the webhooks can't be made: {0} is not a time it could hold; check the clock")]
    Time(Timestamp),
    #[error("the certificates in the Secret can't be read: {0}; delete the Secret to have them made anew")]
    Read(String),
}

/// Carries out a plan for the existing certificates. Returns `None` if there is nothing to do.
pub fn carry_out(
    plan: &CertPlan,
    existing: Option<&SecretData>,
    now: Timestamp,
    names: &[String],
) -> Result<Option<SecretData>, IssueError> {
    let existing = existing.cloned().unwrap_or_default();
    Ok(Some(match plan {
        CertPlan::Keep { .. } => return Ok(None),
        CertPlan::NewAuthority { .. } => {
            let (ca_crt, ca_key) = authority(now)?;
            with_leaf(
                SecretData {
                    ca_crt,
                    ca_key,
                    ..SecretData::default()
                },
                now,
                names,
            )?
        }
        CertPlan::AddAuthority => {
            let (ca_crt, ca_key) = authority(now)?;
            SecretData {
                ca_crt: ca_crt + &existing.ca_crt,
                ca_key,
                ..existing
            }
        }
        CertPlan::IssueLeaf { .. } => with_leaf(existing, now, names)?,
        CertPlan::DropOldAuthorities => {
            let ca_crt = first_pem(&existing.ca_crt).ok_or_else(no_authority)?;
            SecretData { ca_crt, ..existing }
        }
    }))
}

fn authority(now: Timestamp) -> Result<(String, String), IssueError> {
    let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?;
    let mut params = CertificateParams::default();
    // With two authorities of one name, a verifier could not tell which one signed.
    params.distinguished_name = name(&format!("trainyard-webhooks-ca@{}", now.as_second()));
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    set_validity(&mut params, now, CA_LIFE, None)?;
    Ok((params.self_signed(&key)?.pem(), key.serialize_pem()))
}

fn with_leaf(data: SecretData, now: Timestamp, names: &[String]) -> Result<SecretData, IssueError> {
    let authority = first(&data)?;
    let issuer = Issuer::from_ca_cert_der(&authority, KeyPair::from_pem(&data.ca_key)?)?;
    let (_, parsed) = x509_parser::parse_x509_certificate(&authority)
        .map_err(|error| IssueError::Read(error.to_string()))?;
    let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?;
    let mut params = CertificateParams::new(names)?;
    params.distinguished_name = name("trainyard-webhooks");
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    params.use_authority_key_identifier_extension = true;
    set_validity(
        &mut params,
        now,
        LEAF_LIFE,
        Some(parsed.validity().not_after.timestamp()),
    )?;
    let certificate = params.signed_by(&key, &issuer)?;
    Ok(SecretData {
        tls_crt: certificate.pem(),
        tls_key: key.serialize_pem(),
        ..data
    })
}

fn first(data: &SecretData) -> Result<CertificateDer<'static>, IssueError> {
    let mut all = certificates(&data.ca_crt).map_err(IssueError::Read)?;
    if all.is_empty() {
        Err(no_authority())
    } else {
        Ok(all.swap_remove(0))
    }
}

fn no_authority() -> IssueError {
    IssueError::Read("ca.crt holds no certificate".to_owned())
}

/// Returns the first certificate of a PEM text, as text.
fn first_pem(text: &str) -> Option<String> {
    const END: &str = "-----END CERTIFICATE-----";
    let begin = text.find("-----BEGIN CERTIFICATE-----")?;
    let end = begin + text[begin..].find(END)? + END.len();
    Some(format!("{}\n", &text[begin..end]))
}

fn name(common: &str) -> DistinguishedName {
    let mut name = DistinguishedName::new();
    name.push(DnType::CommonName, common);
    name
}

fn set_validity(
    params: &mut CertificateParams,
    now: Timestamp,
    life: Duration,
    at_most: Option<i64>,
) -> Result<(), IssueError> {
    let stamp =
        |at: Timestamp| OffsetDateTime::from_unix_timestamp(at.as_second()).map_err(|_| IssueError::Time(at));
    let end = now.checked_add(life).map_err(|_| IssueError::Time(now))?;
    let end = match at_most.and_then(|seconds| Timestamp::from_second(seconds).ok()) {
        Some(limit) => end.min(limit),
        None => end,
    };
    params.not_before = stamp(now.checked_sub(BACKDATE).map_err(|_| IssueError::Time(now))?)?;
    params.not_after = stamp(end)?;
    Ok(())
}
