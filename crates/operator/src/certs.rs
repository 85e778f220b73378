//! The certificates of the webhooks and the observer, which the operator makes and rotates itself.
//!
//! One Secret holds a certificate authority and a leaf signed by it. The leader makes and rotates
//! them. Every replica watches the Secret and serves its leaf (`ServingCert`). The leader also
//! keeps `caBundle` of the webhook configurations equal to `ca.crt` of the Secret, and restores it
//! when an installation is applied anew.
//!
//! `plan_certs` decides what to do, and `carry_out` does it. A new authority is at first only
//! trusted. An hour later, when everybody trusts it, it signs the next leaf. Another hour later,
//! when nobody serves a leaf of the old one, the old one is dropped. So nobody notices a rotation.

mod bundle;
mod issue;
mod manager;
mod own;
mod plan;
mod serving;

use std::collections::BTreeMap;
use std::fmt;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;

use issue::IssueError;
pub(crate) use issue::carry_out;
pub use manager::CertConfig;
pub(crate) use manager::CertManager;
pub(crate) use own::OwnCertificate;
use plan::CertPlan;
pub(crate) use plan::{Trust, plan_certs};
pub(crate) use serving::{LoadError, ServingCert};

/// The content of the Secret, in PEM. Its `Debug` does not show keys.
#[derive(Clone, Default, PartialEq, Eq)]
pub(crate) struct SecretData {
    /// The authorities to trust. The first one signs.
    pub ca_crt: String,
    /// The key of the first authority.
    pub ca_key: String,
    pub tls_crt: String,
    pub tls_key: String,
}

const CA_CRT: &str = "ca.crt";
const CA_KEY: &str = "ca.key";
const TLS_CRT: &str = "tls.crt";
const TLS_KEY: &str = "tls.key";

impl SecretData {
    /// Reads a Secret. What is missing or no text is empty.
    pub(crate) fn of(secret: &Secret) -> Self {
        let text = |key: &str| {
            let bytes = secret.data.as_ref().and_then(|data| data.get(key));
            bytes
                .and_then(|bytes| String::from_utf8(bytes.0.clone()).ok())
                .unwrap_or_default()
        };
        Self {
            ca_crt: text(CA_CRT),
            ca_key: text(CA_KEY),
            tls_crt: text(TLS_CRT),
            tls_key: text(TLS_KEY),
        }
    }

    /// Writes it into a Secret, which keeps its other data.
    pub(crate) fn store(&self, secret: &mut Secret) {
        let data: &mut BTreeMap<_, _> = secret.data.get_or_insert_default();
        for (key, text) in [
            (CA_CRT, &self.ca_crt),
            (CA_KEY, &self.ca_key),
            (TLS_CRT, &self.tls_crt),
            (TLS_KEY, &self.tls_key),
        ] {
            data.insert(key.to_owned(), ByteString(text.clone().into_bytes()));
        }
    }
}

impl fmt::Debug for SecretData {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { ca_crt, tls_crt, .. } = self;
        f.debug_struct("SecretData")
            .field("ca_crt", ca_crt)
            .field("tls_crt", tls_crt)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod fake;
#[cfg(test)]
mod tests;
