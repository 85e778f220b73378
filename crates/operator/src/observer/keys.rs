//! The keys with which the cluster signs tokens. Every API server publishes them.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P384_SHA384_FIXED, RSA_PKCS1_2048_8192_SHA256, RSA_PKCS1_2048_8192_SHA384,
    RSA_PKCS1_2048_8192_SHA512, RsaParameters, RsaPublicKeyComponents, UnparsedPublicKey,
};
use serde::Deserialize;
use tokio::time::{Instant, timeout};

const PATH: &str = "/openid/v1/jwks";
/// How often the keys are read at most when a token names an unknown one. Anybody can make up a
/// name.
const REFETCH_INTERVAL: Duration = Duration::from_secs(5);
/// After this time a key that the cluster does not publish any more is dropped.
const MAX_AGE: Duration = Duration::from_mins(10);
/// Callers wait for the API server's answer, and give up themselves.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);

#[derive(Clone, Debug, thiserror::Error)]
#[error("the keys of the cluster could not be read: {0}")]
pub struct KeyError(String);

/// The algorithm by which a token is signed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Algorithm {
    /// RSA with SHA-256, SHA-384 or SHA-512.
    Rsa(u16),
    /// ECDSA on P-256 with SHA-256, or on P-384 with SHA-384.
    Ecdsa(u16),
}

impl Algorithm {
    /// Returns the algorithm of a name in the head of a token.
    pub(super) fn named(name: &str) -> Option<Self> {
        Some(match name {
            "RS256" => Self::Rsa(256),
            "RS384" => Self::Rsa(384),
            "RS512" => Self::Rsa(512),
            "ES256" => Self::Ecdsa(256),
            "ES384" => Self::Ecdsa(384),
            _ => return None,
        })
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Key {
    id: Option<String>,
    kind: Kind,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Kind {
    Rsa { n: Vec<u8>, e: Vec<u8> },
    Ecdsa { bits: u16, point: Vec<u8> },
}

impl Key {
    /// Returns true if the message was signed with this key and algorithm.
    pub(super) fn verifies(&self, algorithm: Algorithm, message: &[u8], signature: &[u8]) -> bool {
        match (&self.kind, algorithm) {
            (Kind::Rsa { n, e }, Algorithm::Rsa(bits)) => {
                let parameters: &RsaParameters = match bits {
                    256 => &RSA_PKCS1_2048_8192_SHA256,
                    384 => &RSA_PKCS1_2048_8192_SHA384,
                    _ => &RSA_PKCS1_2048_8192_SHA512,
                };
                RsaPublicKeyComponents { n, e }
                    .verify(parameters, message, signature)
                    .is_ok()
            }
            (Kind::Ecdsa { bits: 256, point }, Algorithm::Ecdsa(256)) => {
                let key = UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, point);
                key.verify(message, signature).is_ok()
            }
            (Kind::Ecdsa { bits: 384, point }, Algorithm::Ecdsa(384)) => {
                let key = UnparsedPublicKey::new(&ECDSA_P384_SHA384_FIXED, point);
                key.verify(message, signature).is_ok()
            }
            _ => false,
        }
    }
}

/// Keys as they are published (RFC 7517).
#[derive(Deserialize)]
struct Published {
    keys: Vec<PublishedKey>,
}

#[derive(Deserialize)]
struct PublishedKey {
    kty: String,
    #[serde(default)]
    kid: Option<String>,
    #[serde(default)]
    crv: Option<String>,
    #[serde(default)]
    n: Option<String>,
    #[serde(default)]
    e: Option<String>,
    #[serde(default)]
    x: Option<String>,
    #[serde(default)]
    y: Option<String>,
}

impl PublishedKey {
    /// Returns `None` for a key of an unknown kind.
    fn read(self) -> Option<Key> {
        let bytes = |text: Option<String>| URL_SAFE_NO_PAD.decode(text?).ok();
        let kind = match (&*self.kty, self.crv.as_deref()) {
            ("RSA", _) => Kind::Rsa {
                n: bytes(self.n)?,
                e: bytes(self.e)?,
            },
            ("EC", Some(curve @ ("P-256" | "P-384"))) => Kind::Ecdsa {
                bits: if curve == "P-256" { 256 } else { 384 },
                // A point that is not compressed.
                point: [vec![4], bytes(self.x)?, bytes(self.y)?].concat(),
            },
            _ => return None,
        };
        Some(Key { id: self.kid, kind })
    }
}

/// Reads keys as they are published.
pub fn read(published: &str) -> Result<Vec<Key>, KeyError> {
    let published: Published =
        serde_json::from_str(published).map_err(|error| KeyError(error.to_string()))?;
    Ok(published
        .keys
        .into_iter()
        .filter_map(PublishedKey::read)
        .collect())
}

/// Whoever knows keys.
pub trait Keys: Send + Sync {
    /// The keys of a name; all, if there is no name.
    fn get(&self, id: Option<&str>) -> BoxFuture<'_, Result<Vec<Key>, KeyError>>;
}

/// The keys of the cluster. They are read when they are first needed, and again when a token names
/// an unknown one.
pub struct ClusterKeys {
    client: kube::Client,
    known: Mutex<KeyCache>,
    /// One task reads the keys, the others wait for it.
    refreshing: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct KeyCache {
    keys: Arc<Vec<Key>>,
    read: Option<Instant>,
    /// When the last attempt began or ended.
    asked: Option<Instant>,
    /// The error, if the last attempt failed.
    failure: Option<KeyError>,
}

struct KeyLookup {
    keys: Vec<Key>,
    /// The keys need not be read again.
    is_fresh: bool,
    /// They are being read, or were a moment ago.
    is_asked: bool,
    failure: Option<KeyError>,
}

impl ClusterKeys {
    pub fn new(client: kube::Client) -> Self {
        Self {
            client,
            known: Mutex::default(),
            refreshing: tokio::sync::Mutex::default(),
        }
    }

    /// Finds the keys of an ID, or all keys.
    fn find(&self, id: Option<&str>) -> KeyLookup {
        let known = self.known.lock();
        let wanted = |key: &&Key| id.is_none_or(|id| key.id.as_deref() == Some(id));
        let keys: Vec<Key> = known.keys.iter().filter(wanted).cloned().collect();
        let within = |since: Option<Instant>, time| since.is_some_and(|since| since.elapsed() < time);
        KeyLookup {
            is_fresh: within(
                known.read,
                if keys.is_empty() {
                    REFETCH_INTERVAL
                } else {
                    MAX_AGE
                },
            ),
            is_asked: within(known.asked, REFETCH_INTERVAL),
            failure: known.failure.clone(),
            keys,
        }
    }

    async fn refresh(&self) -> Result<(), KeyError> {
        self.known.lock().asked = Some(Instant::now());
        let answer = timeout(REQUEST_TIMEOUT, self.fetch()).await;
        let answer = answer.unwrap_or_else(|_| Err(KeyError("the API server does not answer".to_owned())));
        let mut known = self.known.lock();
        let now = Some(Instant::now());
        known.asked = now;
        match answer {
            Ok(keys) => {
                known.keys = Arc::new(keys);
                known.read = now;
                known.failure = None;
                Ok(())
            }
            Err(error) => {
                known.failure = Some(error.clone());
                Err(error)
            }
        }
    }

    async fn fetch(&self) -> Result<Vec<Key>, KeyError> {
        let request = http::Request::get(PATH).body(Vec::new());
        let request = request.map_err(|error| KeyError(error.to_string()))?;
        let text = self.client.request_text(request).await;
        read(&text.map_err(|error| KeyError(error.to_string()))?)
    }
}

impl Keys for ClusterKeys {
    fn get(&self, id: Option<&str>) -> BoxFuture<'_, Result<Vec<Key>, KeyError>> {
        let id = id.map(str::to_owned);
        Box::pin(async move {
            let id = id.as_deref();
            let now = self.find(id);
            // While the keys are read, or can't be, the last ones hold.
            if now.is_fresh || (now.is_asked && !now.keys.is_empty()) {
                return Ok(now.keys);
            }
            let _turn = self.refreshing.lock().await;
            let now = self.find(id);
            if now.is_fresh {
                return Ok(now.keys);
            }
            // Anybody can make up an ID: an API server that is away is not tried again for each.
            let lately = now.failure.filter(|_| now.is_asked);
            let asked = match lately {
                Some(failure) => Err(failure),
                None => self.refresh().await,
            };
            match asked {
                Ok(()) => Ok(self.find(id).keys),
                Err(_) if !now.keys.is_empty() => Ok(now.keys),
                Err(error) => Err(error),
            }
        })
    }
}

#[cfg(test)]
mod tests;
