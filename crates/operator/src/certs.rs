//! The certificates with which the webhooks are served: made, kept and rotated by the operator itself.
//!
//! One Secret holds a certificate authority and a leaf signed by it. The leader makes and rotates them; every replica
//! follows the Secret and serves what it holds ([`ServingCert`]). The leader also keeps `caBundle` of the webhook
//! configurations equal to `ca.crt` of the Secret, and restores it when an installation is applied anew.
//!
//! What to do is decided by [`desired`], and done by [`carry_out`]. A new authority is first only added to what is
//! trusted; it signs the next leaf an hour later, when everybody trusts it, and the old one is forgotten another hour
//! later, when nobody serves a leaf of its. So that rotation is never noticed.

mod bundle;
mod issue;
mod manager;
mod plan;
mod serving;

use std::collections::BTreeMap;
use std::fmt;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;

pub use issue::{IssueError, carry_out};
pub use manager::{CertConfig, Manager};
pub use plan::{CertPlan, desired};
pub use serving::{LoadError, ServingCert};

/// What the Secret holds, all of it in PEM. Its `Debug` does not show keys.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct SecretData {
    /// The authorities to trust. The first is the one that signs; others are on their way out.
    pub ca_crt: String,
    /// The key of the first authority.
    pub ca_key: String,
    /// The leaf.
    pub tls_crt: String,
    /// The key of the leaf.
    pub tls_key: String,
}

const CA_CRT: &str = "ca.crt";
const CA_KEY: &str = "ca.key";
const TLS_CRT: &str = "tls.crt";
const TLS_KEY: &str = "tls.key";

impl SecretData {
    /// What this Secret holds. What is missing or no text comes out empty.
    pub fn of(secret: &Secret) -> Self {
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

    /// Writes it into a Secret, next to whatever else that holds.
    pub fn store(&self, secret: &mut Secret) {
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
