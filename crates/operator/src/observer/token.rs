//! Authenticates callers by the tokens of their service accounts, without a request to anybody.
//!
//! A token is a JSON Web Token, signed by the API server with keys that it publishes. Its claims
//! name the pod that it was made for. The signature is verified with ring, which TLS needs anyway.
//! Crates for such tokens would bring another implementation.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jiff::{SignedDuration, Timestamp};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use trainyard_contract::observer::AUDIENCE;

use super::keys::{Algorithm, KeyError, Keys};

/// How much clocks may differ.
const LEEWAY: SignedDuration = SignedDuration::from_secs(60);
/// In bytes. The token of a service account is much shorter.
const MAX_TOKEN: usize = 16 * 1024;

/// Why a token is rejected. The messages don't show the token.
#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    #[error("that is no token of a service account")]
    Malformed,
    #[error("the token was not signed by this cluster")]
    Signature,
    #[error("the token is not for the audience {AUDIENCE:?}")]
    Audience,
    #[error("the token is not valid now")]
    Time,
    #[error("the token belongs to no pod")]
    NoPod,
    #[error(transparent)]
    Keys(#[from] KeyError),
}

/// The pod that a token belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodIdentity {
    pub namespace: String,
    pub pod: String,
    pub uid: String,
}

#[derive(Deserialize)]
struct Head {
    alg: String,
    #[serde(default)]
    kid: Option<String>,
}

#[derive(Deserialize)]
struct Claims {
    #[serde(default)]
    aud: Audiences,
    exp: i64,
    #[serde(default)]
    nbf: Option<i64>,
    #[serde(default, rename = "kubernetes.io")]
    kubernetes: Option<Kubernetes>,
}

#[derive(Default, Deserialize)]
#[serde(untagged)]
enum Audiences {
    #[default]
    None,
    One(String),
    Many(Vec<String>),
}

impl Audiences {
    fn contains(&self, wanted: &str) -> bool {
        match self {
            Self::None => false,
            Self::One(one) => one == wanted,
            Self::Many(many) => many.iter().any(|one| one == wanted),
        }
    }
}

#[derive(Deserialize)]
struct Kubernetes {
    namespace: String,
    #[serde(default)]
    pod: Option<Pod>,
}

#[derive(Deserialize)]
struct Pod {
    name: String,
    uid: String,
}

struct Parts<'a> {
    head: Head,
    signed: &'a str,
    claims: &'a str,
    signature: Vec<u8>,
}

fn decode(part: &str) -> Result<Vec<u8>, TokenError> {
    URL_SAFE_NO_PAD.decode(part).map_err(|_| TokenError::Malformed)
}

fn read<T: DeserializeOwned>(part: &str) -> Result<T, TokenError> {
    serde_json::from_slice(&decode(part)?).map_err(|_| TokenError::Malformed)
}

fn parts(token: &str) -> Result<Parts<'_>, TokenError> {
    if token.len() > MAX_TOKEN {
        return Err(TokenError::Malformed);
    }
    let (signed, signature) = token.rsplit_once('.').ok_or(TokenError::Malformed)?;
    let (head, claims) = signed.split_once('.').ok_or(TokenError::Malformed)?;
    Ok(Parts {
        head: read(head)?,
        signed,
        claims,
        signature: decode(signature)?,
    })
}

/// Returns the pod of a token that was signed with one of the keys.
pub(super) async fn authenticate(
    token: &str,
    keys: &dyn Keys,
    now: Timestamp,
) -> Result<PodIdentity, TokenError> {
    let parts = parts(token)?;
    // The key must be of this algorithm: the token can't choose another for it.
    let algorithm = Algorithm::named(&parts.head.alg).ok_or(TokenError::Signature)?;
    let known = keys.get(parts.head.kid.as_deref()).await?;
    let verified = known
        .iter()
        .any(|key| key.verifies(algorithm, parts.signed.as_bytes(), &parts.signature));
    if !verified {
        return Err(TokenError::Signature);
    }
    verify(parts.claims, now)
}

/// Returns the pod of a token whose signature is verified.
fn verify(claims: &str, now: Timestamp) -> Result<PodIdentity, TokenError> {
    let claims: Claims = read(claims)?;
    if !claims.aud.contains(AUDIENCE) {
        return Err(TokenError::Audience);
    }
    let stamp = |seconds| Timestamp::from_second(seconds).map_err(|_| TokenError::Malformed);
    let ended = now >= stamp(claims.exp)?;
    let begins = claims.nbf.map(stamp).transpose()?;
    if ended || begins.is_some_and(|begins| now.checked_add(LEEWAY).is_ok_and(|now| now < begins)) {
        return Err(TokenError::Time);
    }
    let kubernetes = claims.kubernetes.ok_or(TokenError::NoPod)?;
    let pod = kubernetes.pod.ok_or(TokenError::NoPod)?;
    Ok(PodIdentity {
        namespace: kubernetes.namespace,
        pod: pod.name,
        uid: pod.uid,
    })
}
