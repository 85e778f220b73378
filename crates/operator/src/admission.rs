//! The webhooks: they fill in the defaults of jobs and deny invalid jobs, before they are stored.
//!
//! This is a thin adapter of `trainyard_core::admission`: [`Reviewer`] answers a request without
//! IO, [`serve`] serves it over HTTPS. The operator does not depend on its webhooks: the engine
//! applies the same defaults and rules to the jobs that it finds. Only who may ask for a script is
//! decided here alone, because nobody knows later who has asked.

pub mod access;
mod answers;
mod fill;
mod limits;
mod review;

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::http::StatusCode;
use axum::routing::post;
use axum::{Extension, Router};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::body::Body as _;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

pub use access::Access;
use answers::Answer;
use limits::{BodyRoom, Limits};
use review::BadReview;
pub use review::{Hook, Reviewer};

use crate::certs::ServingCert;
use crate::http::{ConnectionPermit, Purpose, serve_connections};
use crate::metrics::{Metrics, Review};

/// An API server accepts objects of 3 MiB, and a review holds two of them.
const MAX_BODY: usize = 7 * 1024 * 1024;
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
    reviewer: (Reviewer, Access),
    reviews: PendingReviews,
    shutdown: CancellationToken,
) -> Result<(), rustls::Error> {
    let router = router(&metrics, &reviewer, &reviews, &Arc::new(Limits::new()));
    serve_router(listener, certificate, router, shutdown).await
}

async fn serve_router(
    listener: TcpListener,
    certificate: Arc<ServingCert>,
    router: Router,
    shutdown: CancellationToken,
) -> Result<(), rustls::Error> {
    let acceptor = TlsAcceptor::from(Arc::new(certificate.server_config()?));
    serve_connections(
        listener,
        move |stream| acceptor.accept(stream),
        router,
        Purpose::Webhooks,
        shutdown,
    )
    .await;
    Ok(())
}

fn router(
    metrics: &Arc<Metrics>,
    (reviewer, access): &(Reviewer, Access),
    reviews: &PendingReviews,
    limits: &Arc<Limits>,
) -> Router {
    let route = |hook| {
        let (limits, metrics, reviews) = (limits.clone(), metrics.clone(), reviews.clone());
        let (reviewer, access) = (reviewer.clone(), access.clone());
        post(
            move |Extension(connection): Extension<ConnectionPermit>, body: Body| async move {
                reviews.0.send_replace(());
                let (requests, peer) = (limits.requests_of(connection.peer()), connection.peer());
                let _slot = requests.acquire(1).await;
                let (result, answer) = answer((&reviewer, &access), hook, body, (&limits, peer)).await;
                metrics.reviewed(hook.as_str(), result);
                answers::bounded(answer, &limits, &connection).await
            },
        )
    };
    Router::new()
        .route("/mutate", route(Hook::Mutate))
        .route("/validate", route(Hook::Validate))
        .route("/scripts", route(Hook::Script))
}

async fn answer(
    (reviewer, access): (&Reviewer, &Access),
    hook: Hook,
    body: Body,
    (limits, peer): (&Limits, IpAddr),
) -> (Review, Answer) {
    let bad = |(code, sentence): (StatusCode, String)| {
        let kind = "text/plain; charset=utf-8";
        (
            Review::Unreadable,
            Answer {
                code,
                kind,
                body: sentence.into_bytes(),
            },
        )
    };
    let share = limits.bodies_of(peer);
    let mut room = BodyRoom::new(&share);
    let body = match timeout(limits.body_timeout, read(body, &mut room)).await {
        Ok(Ok(body)) => body,
        Ok(Err(refusal)) => return bad(refusal),
        Err(_) => {
            let sentence = "the request took too long to arrive";
            return bad((StatusCode::REQUEST_TIMEOUT, sentence.to_owned()));
        }
    };
    let mut outcome = {
        // It is never closed.
        let _decoder = limits.decoders.acquire().await.ok();
        reviewer.review(hook, &body)
    };
    if hook == Hook::Script && reviewer.reviews_scripts() && matches!(outcome, Ok((Review::Allowed, _))) {
        outcome = check_access(reviewer, access, &body).await.unwrap_or(outcome);
    }
    match outcome {
        Ok((result, body)) => {
            let (code, kind) = (StatusCode::OK, "application/json");
            (result, Answer { code, kind, body })
        }
        Err(error) => bad((StatusCode::BAD_REQUEST, error.sentence())),
    }
}

type Reviewed = Result<(Review, Vec<u8>), BadReview>;

/// Denies a script whose user may not run commands in pods. `None`: the user may, or there is no
/// script.
async fn check_access(reviewer: &Reviewer, access: &Access, body: &[u8]) -> Option<Reviewed> {
    let question = match reviewer.access_review(body) {
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

async fn read(body: Body, room: &mut BodyRoom<'_>) -> Result<Vec<u8>, (StatusCode, String)> {
    // All of it at once, where its length is said: those that have a part each and wait for more
    // would hold up each other.
    let length = body.size_hint().exact().unwrap_or_default();
    room.reserve(usize::try_from(length).unwrap_or(MAX_BODY).min(MAX_BODY))
        .await;
    let mut body = Limited::new(body, MAX_BODY);
    let mut read = Vec::new();
    while let Some(frame) = body.frame().await {
        match frame {
            Ok(frame) => {
                let data = frame.into_data().unwrap_or_default();
                room.take(data.len()).await;
                if read.capacity() - read.len() < data.len() {
                    read.reserve_exact(data.len().max(read.len() / 4));
                }
                read.extend_from_slice(&data);
            }
            Err(error) if error.is::<LengthLimitError>() => {
                let sentence = format!("the request is larger than {MAX_BODY} bytes");
                return Err((StatusCode::PAYLOAD_TOO_LARGE, sentence));
            }
            Err(error) => {
                let sentence = format!("the request could not be read: {error}");
                return Err((StatusCode::BAD_REQUEST, sentence));
            }
        }
    }
    Ok(read)
}

#[cfg(test)]
mod tests;
