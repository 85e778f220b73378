//! Tokens of service accounts, signed by this cluster.

use std::sync::OnceLock;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::digest::{SHA256, digest};
use ring::rand::SystemRandom;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair, UnparsedPublicKey,
};
use serde::Serialize;
use serde_json::{Value, json};

/// The issuer of tokens, and their default audience.
pub(crate) const ISSUER: &str = "https://kubernetes.default.svc.cluster.local";

pub(crate) const KEYS_PATH: &str = "/openid/v1/jwks";

#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error(
    "no key for tokens could be made, or it could not sign: does this machine have a source of randomness?"
)]
pub(crate) struct Unsigned;

/// The key of one cluster, generated when it is first needed.
///
/// It does not come from the [`Environment`](crate::env::Environment), whose seed may be known.
#[derive(Default)]
pub(crate) struct Signer(OnceLock<Option<Key>>);

struct Key {
    pair: EcdsaKeyPair,
    id: String,
    random: SystemRandom,
}

impl Key {
    fn make() -> Option<Self> {
        let algorithm = &ECDSA_P256_SHA256_FIXED_SIGNING;
        let random = SystemRandom::new();
        let made = EcdsaKeyPair::generate_pkcs8(algorithm, &random).ok()?;
        let pair = EcdsaKeyPair::from_pkcs8(algorithm, made.as_ref(), &random).ok()?;
        let id = URL_SAFE_NO_PAD.encode(digest(&SHA256, pair.public_key().as_ref()));
        Some(Self { pair, id, random })
    }
}

impl Signer {
    fn key(&self) -> Result<&Key, Unsigned> {
        self.0.get_or_init(Key::make).as_ref().ok_or(Unsigned)
    }

    pub(crate) fn sign(&self, claims: &impl Serialize) -> Result<String, Unsigned> {
        let key = self.key()?;
        let head = json!({"alg": "ES256", "kid": key.id});
        let claims = serde_json::to_vec(claims).map_err(|_| Unsigned)?;
        let signed = format!(
            "{}.{}",
            URL_SAFE_NO_PAD.encode(head.to_string()),
            URL_SAFE_NO_PAD.encode(claims)
        );
        let signature = key
            .pair
            .sign(&key.random, signed.as_bytes())
            .map_err(|_| Unsigned)?;
        Ok(format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature)))
    }

    /// The claims of a token, if its signature is valid.
    pub(crate) fn verify(&self, token: &str) -> Option<Vec<u8>> {
        let key = self.key().ok()?;
        let (signed, signature) = token.rsplit_once('.')?;
        let signature = URL_SAFE_NO_PAD.decode(signature).ok()?;
        UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, key.pair.public_key())
            .verify(signed.as_bytes(), &signature)
            .ok()?;
        let (_, claims) = signed.split_once('.')?;
        URL_SAFE_NO_PAD.decode(claims).ok()
    }

    /// The public key as a JSON Web Key Set.
    pub(crate) fn published(&self) -> Result<Value, Unsigned> {
        let key = self.key()?;
        // A byte for the format, then both coordinates.
        let point = key.pair.public_key().as_ref().get(1..).unwrap_or_default();
        let (x, y) = point.split_at(point.len() / 2);
        Ok(json!({"keys": [{
            "use": "sig", "kty": "EC", "crv": "P-256", "alg": "ES256", "kid": key.id,
            "x": URL_SAFE_NO_PAD.encode(x), "y": URL_SAFE_NO_PAD.encode(y),
        }]}))
    }
}
