//! Who calls the observer, as far as the head of a request tells.

use std::convert::Infallible;

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use axum::http::{HeaderValue, header};

use crate::http::Place;

/// Somebody who calls, and who they say they are.
pub(super) struct Caller {
    authorization: Option<HeaderValue>,
    place: Option<Place>,
}

impl<S: Sync> FromRequestParts<S> for Caller {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        Ok(Self {
            authorization: parts.headers.get(header::AUTHORIZATION).cloned(),
            place: parts.extensions.get::<Place>().cloned(),
        })
    }
}

impl Caller {
    /// The token that they show.
    pub(super) fn token(&self) -> Option<&str> {
        let (scheme, token) = self.authorization.as_ref()?.to_str().ok()?.split_once(' ')?;
        scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
    }

    /// They are known, and their connection is kept.
    pub(super) fn keep(&self) {
        if let Some(place) = &self.place {
            place.keep();
        }
    }
}
