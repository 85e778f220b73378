//! The webhooks: they fill in the defaults of jobs and deny invalid jobs, before they are stored.
//!
//! This is a thin adapter of `trainyard_core::admission`: [`Reviewer`] answers a request without
//! IO, [`serve`] serves it over HTTPS. The operator does not depend on its webhooks: the engine
//! applies the same defaults and rules to the jobs that it finds. Only who may ask for a script is
//! decided here alone, because nobody knows later who has asked.

pub mod access;
mod fill;
mod review;

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::body::Bytes;
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, watch};
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

pub use access::Access;
use review::BadReview;
pub use review::{Hook, Reviewer};

use crate::certs::ServingCert;
use crate::http::{Purpose, serve_connections};
use crate::metrics::{Metrics, Review};

/// An API server accepts objects of 3 MiB, and a review holds two of them.
const MAX_BODY: usize = 7 * 1024 * 1024;
/// How long a request may take to arrive. An API server waits for a webhook for at most 30 s.
const BODY_TIMEOUT: Duration = Duration::from_secs(10);
/// How many requests are read and answered at once, which bounds the memory that they take.
const MAX_REQUESTS: usize = 32;
/// After so long without a request, all API servers know that this replica is stopping.
const QUIET_PERIOD: Duration = Duration::from_secs(2);
/// How long that is waited for.
const QUIET_TIMEOUT: Duration = Duration::from_secs(5);

/// Tells when the webhooks are not called any more.
#[derive(Clone, Debug, Default)]
pub struct PendingReviews(Arc<watch::Sender<()>>);

impl PendingReviews {
    /// Waits until there has been no request for a while, but not for ever.
    pub async fn wait_until_quiet(&self) {
        let mut asked = self.0.subscribe();
        let quiet = async { while timeout(QUIET_PERIOD, asked.changed()).await.is_ok() {} };
        let _ = timeout(QUIET_TIMEOUT, quiet).await;
    }
}

/// Serves `POST /mutate`, `POST /validate` and `POST /scripts` over TLS until `shutdown`, with the
/// loaded certificate. `access` knows what users may do.
pub async fn serve(
    listener: TcpListener,
    certificate: Arc<ServingCert>,
    metrics: Arc<Metrics>,
    (reviewer, access): (Reviewer, Access),
    reviews: PendingReviews,
    shutdown: CancellationToken,
) -> Result<(), rustls::Error> {
    let acceptor = TlsAcceptor::from(Arc::new(certificate.server_config()?));
    serve_connections(
        listener,
        move |stream| acceptor.accept(stream),
        router(&metrics, (&reviewer, &access), &reviews),
        Purpose::Webhooks,
        shutdown,
    )
    .await;
    Ok(())
}

fn router(
    metrics: &Arc<Metrics>,
    (reviewer, access): (&Reviewer, &Access),
    reviews: &PendingReviews,
) -> Router {
    let slots = Arc::new(Semaphore::new(MAX_REQUESTS));
    let route = |hook| {
        let (slots, metrics, reviews) = (slots.clone(), metrics.clone(), reviews.clone());
        let (reviewer, access) = (reviewer.clone(), access.clone());
        post(move |body: Body| async move {
            reviews.0.send_replace(());
            let Ok(_slot) = slots.acquire().await else {
                return StatusCode::SERVICE_UNAVAILABLE.into_response();
            };
            let (result, answer) = answer(&reviewer, &access, hook, body).await;
            metrics.reviewed(hook.as_str(), result);
            answer
        })
    };
    Router::new()
        .route("/mutate", route(Hook::Mutate))
        .route("/validate", route(Hook::Validate))
        .route("/scripts", route(Hook::Script))
}

async fn answer(reviewer: &Reviewer, access: &Access, hook: Hook, body: Body) -> (Review, Response) {
    let bad = |refusal: (StatusCode, String)| (Review::Unreadable, refusal.into_response());
    let body = match timeout(BODY_TIMEOUT, read(body)).await {
        Ok(Ok(body)) => body,
        Ok(Err(refusal)) => return bad(refusal),
        Err(_) => {
            let sentence = "the request took too long to arrive";
            return bad((StatusCode::REQUEST_TIMEOUT, sentence.to_owned()));
        }
    };
    let mut reviewed = reviewer.review(hook, &body);
    if hook == Hook::Script && reviewer.reviews_scripts() && matches!(reviewed, Ok((Review::Allowed, _))) {
        reviewed = check_access(access, &body).await.unwrap_or(reviewed);
    }
    match reviewed {
        Ok((result, answer)) => {
            let kind = [(header::CONTENT_TYPE, "application/json")];
            (result, (kind, answer).into_response())
        }
        Err(error) => bad((StatusCode::BAD_REQUEST, error.to_string())),
    }
}

type Reviewed = Result<(Review, Vec<u8>), BadReview>;

/// Denies a script whose user may not run commands in pods. `None`: the user may, or there is no
/// script.
async fn check_access(access: &Access, body: &[u8]) -> Option<Reviewed> {
    let question = match review::script::access_review(body) {
        Ok(question) => question?,
        Err(error) => return Some(Err(error)),
    };
    let why = match access(question).await {
        Ok(true) => return None,
        Ok(false) => {
            "who asks for a script needs the right to create pods/exec in this namespace, and you do not have it: ask \
             for it, or leave script out"
                .to_owned()
        }
        Err(error) => format!("nobody knows whether you may create pods/exec in this namespace: {error}; try again"),
    };
    let denied = review::script::forbid(body, &why);
    Some(denied.map(|answer| (Review::Denied, answer)))
}

async fn read(body: Body) -> Result<Bytes, (StatusCode, String)> {
    match Limited::new(body, MAX_BODY).collect().await {
        Ok(body) => Ok(body.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => Err((
            StatusCode::PAYLOAD_TOO_LARGE,
            format!("the request is larger than {MAX_BODY} bytes"),
        )),
        Err(error) => Err((
            StatusCode::BAD_REQUEST,
            format!("the request could not be read: {error}"),
        )),
    }
}

#[cfg(test)]
mod tests;
