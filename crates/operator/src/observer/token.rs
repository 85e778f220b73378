//! Who calls: the tokens of service accounts, checked without asking anybody.
//!
//! A token is a JSON Web Token, signed by the API server with keys that it publishes. Its claims name the pod that it was
//! made for. The signature is checked with ring, which is here for TLS already; crates for such tokens would bring
//! another implementation of it all.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jiff::{SignedDuration, Timestamp};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use trainyard_core::agent::AUDIENCE;

use super::keys::{Algorithm, KeyError, Keys};

/// By how much clocks may differ.
const LEEWAY: SignedDuration = SignedDuration::from_secs(60);
/// No token of a service account is nearly as long.
const MAX_TOKEN: usize = 16 * 1024;

/// Why a token is not taken. None of these shows the token.
#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    /// It is no token.
    #[error("that is no token of a service account")]
    Malformed,
    /// It was signed in a way, or with a key, that the cluster does not use.
    #[error("the token was not signed by this cluster")]
    Signature,
    /// It is for somebody else.
    #[error("the token is not for the audience {AUDIENCE:?}")]
    Audience,
    /// It has ended, or has not begun.
    #[error("the token is not valid now")]
    Time,
    /// It belongs to no pod.
    #[error("the token belongs to no pod")]
    NoPod,
    /// The keys of the cluster could not be had.
    #[error(transparent)]
    Keys(#[from] KeyError),
}

/// The pod that a token belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub pod: String,
    /// Its UID.
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

/// The parts of a token.
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

/// Who holds a token that was signed with one of some keys.
pub(super) async fn holder(token: &str, keys: &dyn Keys, now: Timestamp) -> Result<Holder, TokenError> {
    let parts = parts(token)?;
    // The algorithm is that of the key, never that which the token asks for.
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

/// Who holds a token with these claims, whose signature is right.
fn verify(claims: &str, now: Timestamp) -> Result<Holder, TokenError> {
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
    Ok(Holder {
        namespace: kubernetes.namespace,
        pod: pod.name,
        uid: pod.uid,
    })
}
