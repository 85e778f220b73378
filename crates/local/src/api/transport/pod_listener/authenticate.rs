//! Authenticates requests by the tokens of service accounts.

use std::fmt;

use http::{HeaderMap, header};
use serde::Deserialize;

use crate::api::Shared;
use crate::api::store::key;
use crate::api::tokens::ISSUER;

/// A service account.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Caller {
    pub(super) namespace: String,
    pub(super) account: String,
}

impl fmt::Display for Caller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "system:serviceaccount:{}:{}", self.namespace, self.account)
    }
}

impl Caller {
    /// Whether it belongs to a group of users. Service accounts belong to a few, always.
    pub(super) fn is_in(&self, group: &str) -> bool {
        let accounts = "system:serviceaccounts";
        let of_namespace = || group.strip_prefix(accounts)?.strip_prefix(':');
        group == "system:authenticated" || group == accounts || of_namespace() == Some(&self.namespace)
    }
}

/// What a token says.
#[derive(Deserialize)]
struct Claims {
    iss: String,
    aud: Vec<String>,
    exp: i64,
    nbf: i64,
    #[serde(rename = "kubernetes.io")]
    holder: Holder,
}

#[derive(Deserialize)]
struct Holder {
    namespace: String,
    serviceaccount: Named,
    pod: Option<Named>,
    secret: Option<Named>,
}

#[derive(Deserialize)]
struct Named {
    name: String,
    uid: String,
}

/// The service account whose valid token is in the headers, if there is one.
pub(super) fn authenticate(shared: &Shared, headers: &HeaderMap) -> Option<Caller> {
    let given = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    let (scheme, token) = given.split_once(' ')?;
    let token = Some(token.trim()).filter(|_| scheme.eq_ignore_ascii_case("Bearer"))?;
    let claims: Claims = serde_json::from_slice(&shared.signer.verify(token)?).ok()?;
    let now = shared.environment.now().as_second();
    let is_for_us = claims.iss == ISSUER && claims.aud.iter().any(|audience| audience == ISSUER);
    if !is_for_us || now < claims.nbf || now >= claims.exp {
        return None;
    }
    let Holder {
        namespace,
        serviceaccount,
        pod,
        secret,
    } = claims.holder;
    // A token is invalid when the object that it is bound to is gone.
    let exists = |plural: &str, named: &Named| {
        let kind = shared.kinds.get("v1", plural);
        let found = kind.and_then(|kind| shared.store.get(kind.table, &key(&namespace, &named.name)));
        found.is_some_and(|found| *found.head.uid == *named.uid)
    };
    let is_alive = exists("serviceaccounts", &serviceaccount)
        && pod.is_none_or(|pod| exists("pods", &pod))
        && secret.is_none_or(|secret| exists("secrets", &secret));
    is_alive.then_some(Caller {
        namespace,
        account: serviceaccount.name,
    })
}
