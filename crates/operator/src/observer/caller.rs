//! The caller of the observer, by the head of its request.

use std::convert::Infallible;

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use axum::http::{HeaderValue, header};

use crate::http::ConnectionPermit;

pub(super) struct Caller {
    authorization: Option<HeaderValue>,
    permit: Option<ConnectionPermit>,
}

impl<S: Sync> FromRequestParts<S> for Caller {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        Ok(Self {
            authorization: parts.headers.get(header::AUTHORIZATION).cloned(),
            permit: parts.extensions.get::<ConnectionPermit>().cloned(),
        })
    }
}

impl Caller {
    /// Returns the bearer token.
    pub(super) fn token(&self) -> Option<&str> {
        let (scheme, token) = self.authorization.as_ref()?.to_str().ok()?.split_once(' ')?;
        scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
    }

    /// Returns the caller's connection, if it has come by one.
    pub(super) fn connection(&self) -> Option<&ConnectionPermit> {
        self.permit.as_ref()
    }
}
