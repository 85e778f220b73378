//! Decides what to do about the certificates. Pure.

use std::time::Duration;

use jiff::Timestamp;
use rcgen::{KeyPair, PublicKeyData};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::FromDer;

use super::SecretData;

const HOUR: Duration = Duration::from_hours(1);
const DAY: Duration = Duration::from_hours(24);

pub(super) const CA_LIFE: Duration = Duration::from_secs(3650 * DAY.as_secs());
/// How long before its end an authority is replaced.
const CA_RENEW_BEFORE: Duration = Duration::from_secs(365 * DAY.as_secs());
/// A leaf is renewed after two thirds of this.
pub(super) const LEAF_LIFE: Duration = Duration::from_secs(90 * DAY.as_secs());
/// Certificates are valid from this long before they were made, for API servers whose clock is
/// behind.
pub(super) const BACKDATE: Duration = HOUR;
/// How long a new authority is trusted before it is used, and an old one after it was.
pub(super) const OVERLAP: Duration = HOUR;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CertPlan {
    /// Nothing is due before `until`.
    Keep { until: Timestamp },
    /// Make an authority and a leaf: nothing can be kept.
    NewAuthority { why: String },
    /// Make an authority, to be trusted besides the present one. The leaf stays.
    AddAuthority,
    /// Make a leaf, signed by the first authority.
    IssueLeaf { why: String },
    /// Drop all authorities but the first.
    DropOldAuthorities,
}

/// Whether those who call this operator trust the authorities of `ca.crt`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trust {
    /// They do, or will in a moment.
    Written,
    /// Somebody else has to write that, and has not yet.
    Awaited,
}

/// Decides what to do about the certificates of some DNS names.
pub fn plan_certs(existing: Option<&SecretData>, now: Timestamp, names: &[String], trust: Trust) -> CertPlan {
    let Some(existing) = existing.filter(|data| **data != SecretData::default()) else {
        return CertPlan::NewAuthority {
            why: "there are no certificates yet".to_owned(),
        };
    };
    let authorities = match authorities(existing, now) {
        Ok(authorities) => authorities,
        Err(why) => return CertPlan::NewAuthority { why },
    };
    let leaf = match leaf(existing, &authorities, now, names) {
        Ok(leaf) => leaf,
        Err(why) => return CertPlan::IssueLeaf { why },
    };
    let Some(present) = authorities.first() else {
        return CertPlan::NewAuthority {
            why: "ca.crt holds no certificate".to_owned(),
        };
    };
    let end_of_ca = present.not_after - CA_RENEW_BEFORE;
    if now >= end_of_ca {
        return CertPlan::AddAuthority;
    }
    if leaf.signer != 0 {
        // The new authority is not used before everybody trusts it, for as long as there is a leaf.
        let trusted = match trust {
            Trust::Written => present.not_before + BACKDATE + OVERLAP,
            Trust::Awaited => leaf.not_after - OVERLAP,
        };
        return if now < trusted {
            CertPlan::Keep { until: trusted }
        } else {
            CertPlan::IssueLeaf {
                why: "there is a new authority".to_owned(),
            }
        };
    }
    if now >= leaf.renew_at {
        return CertPlan::IssueLeaf {
            why: "two thirds of its life are over".to_owned(),
        };
    }
    let mut until = leaf.renew_at.min(end_of_ca);
    if authorities.len() > 1 {
        // A replica that has not seen the new leaf still serves the old one.
        let loaded = leaf.not_before + BACKDATE + OVERLAP;
        if now >= loaded {
            return CertPlan::DropOldAuthorities;
        }
        until = until.min(loaded);
    }
    CertPlan::Keep { until }
}

struct Authority {
    der: CertificateDer<'static>,
    not_before: Timestamp,
    not_after: Timestamp,
}

struct Leaf {
    not_before: Timestamp,
    not_after: Timestamp,
    renew_at: Timestamp,
    /// The position of the authority that signed it.
    signer: usize,
}

/// Returns the certificates of a PEM text. Text around them is ignored.
pub(super) fn certificates(pem: &str) -> Result<Vec<CertificateDer<'static>>, String> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem.as_bytes()).collect();
    found.map_err(|error| error.to_string())
}

/// Returns when a certificate ends, if it can be read.
pub(super) fn expiry(der: &CertificateDer<'_>) -> Option<Timestamp> {
    let certificate = parse(der).ok()?;
    validity(&certificate).ok().map(|(_, not_after)| not_after)
}

fn parse<'a>(der: &'a CertificateDer<'_>) -> Result<X509Certificate<'a>, String> {
    X509Certificate::from_der(der)
        .map(|(_, certificate)| certificate)
        .map_err(|error| error.to_string())
}

fn validity(certificate: &X509Certificate<'_>) -> Result<(Timestamp, Timestamp), String> {
    let validity = certificate.validity();
    let stamp = |seconds| Timestamp::from_second(seconds).map_err(|error| error.to_string());
    Ok((
        stamp(validity.not_before.timestamp())?,
        stamp(validity.not_after.timestamp())?,
    ))
}

/// Returns true if a key, in PEM, is that of a certificate.
fn belongs(key: &str, certificate: &X509Certificate<'_>) -> bool {
    KeyPair::from_pem(key).is_ok_and(|key| key.subject_public_key_info() == certificate.public_key().raw)
}

fn authorities(data: &SecretData, now: Timestamp) -> Result<Vec<Authority>, String> {
    let ders = certificates(&data.ca_crt).map_err(|error| format!("ca.crt can't be read: {error}"))?;
    let mut found = Vec::new();
    for (position, der) in ders.into_iter().enumerate() {
        let certificate = parse(&der).map_err(|error| format!("ca.crt can't be read: {error}"))?;
        let (not_before, not_after) = validity(&certificate)?;
        if position == 0 {
            if !certificate.is_ca() {
                return Err("ca.crt is no authority".to_owned());
            }
            if !belongs(&data.ca_key, &certificate) {
                return Err("ca.key is not the key of ca.crt".to_owned());
            }
            if now < not_before || now >= not_after {
                return Err("ca.crt is not valid now".to_owned());
            }
        }
        drop(certificate);
        found.push(Authority {
            der,
            not_before,
            not_after,
        });
    }
    if found.is_empty() {
        Err("ca.crt holds no certificate".to_owned())
    } else {
        Ok(found)
    }
}

fn leaf(
    data: &SecretData,
    authorities: &[Authority],
    now: Timestamp,
    names: &[String],
) -> Result<Leaf, String> {
    let ders = certificates(&data.tls_crt).map_err(|error| format!("tls.crt can't be read: {error}"))?;
    let der = ders.first().ok_or("tls.crt holds no certificate")?;
    let certificate = parse(der).map_err(|error| format!("tls.crt can't be read: {error}"))?;
    if !belongs(&data.tls_key, &certificate) {
        return Err("tls.key is not the key of tls.crt".to_owned());
    }
    let (not_before, not_after) = validity(&certificate)?;
    if now < not_before || now >= not_after {
        return Err("tls.crt is not valid now".to_owned());
    }
    let alternatives = certificate.subject_alternative_name().ok().flatten();
    let held: Vec<&str> = alternatives
        .iter()
        .flat_map(|extension| &extension.value.general_names)
        .filter_map(|name| {
            if let GeneralName::DNSName(name) = name {
                Some(*name)
            } else {
                None
            }
        })
        .collect();
    if let Some(missing) = names.iter().find(|name| !held.contains(&name.as_str())) {
        return Err(format!("tls.crt is not for {missing}"));
    }
    let signed_by = |authority: &Authority| {
        let valid = now >= authority.not_before && now < authority.not_after;
        valid
            && parse(&authority.der)
                .is_ok_and(|ca| certificate.verify_signature(Some(ca.public_key())).is_ok())
    };
    let signer = authorities
        .iter()
        .position(signed_by)
        .ok_or("tls.crt is not signed by any authority of ca.crt")?;
    let life = not_after.duration_since(not_before);
    Ok(Leaf {
        not_before,
        not_after,
        renew_at: not_before + life / 3 * 2,
        signer,
    })
}
