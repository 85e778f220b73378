//! Serves what AresOperator's observer serves, for programs that were written for that one.
//!
//! | Request | Answer |
//! |---|---|
//! | `GET /cache/ping` | `"pong"` |
//! | `GET /cache/keys/{namespace}.{job}` | The roles of the job: `{"worker":{"phase":"Running","running":true,"ips":["10.0.0.1"]}}`. |
//!
//! It has neither authentication nor TLS, because those programs use none. Therefore it is served
//! only on request, on an address of its own. Every replica serves it from its warm index, leader
//! or not.

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use serde::Serialize;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use trainyard_core::observe::ares;

use super::feed::Feeds;
use crate::clock::Clock;
use crate::http::{Purpose, serve_connections};
use crate::index::{Index, JobKey};
use crate::settings::SharedSettings;

/// The Service through which programs reach it, as AresOperator and our manifests name it.
pub const ARES_OBSERVER_SERVICE: &str = "ares-observer";
/// The port at which an installation serves it.
pub const ARES_OBSERVER_PORT: u16 = 8081;

pub(crate) struct AresObserver {
    index: Arc<Index>,
    feeds: Feeds,
}

impl AresObserver {
    pub(crate) fn new(index: Arc<Index>, settings: SharedSettings, clock: Arc<dyn Clock>) -> Self {
        let feeds = Feeds::new(index.clone(), settings, clock);
        Self { index, feeds }
    }

    /// Serves until the shutdown.
    pub(crate) async fn serve(self, listener: TcpListener, shutdown: CancellationToken) {
        let plain = |stream| std::future::ready(std::io::Result::Ok(stream));
        serve_connections(listener, plain, self.router(), Purpose::Plain, shutdown).await;
    }

    pub(super) fn router(self) -> Router {
        Router::new()
            .route("/cache/ping", get(|| async { Json("pong") }))
            .route("/cache/keys/{key}", get(job))
            .fallback(|| async {
                ErrorResponse::new(&UNKNOWN, "ask for /cache/ping or /cache/keys/{namespace}.{job}")
            })
            .with_state(Arc::new(self))
    }
}

async fn job(State(observer): State<Arc<AresObserver>>, Path(key): Path<String>) -> Response {
    let Some((namespace, name)) = ares::job_of(&key) else {
        let why = format!("{key:?} is no job: give its namespace, a dot, and its name");
        return ErrorResponse::new(&INVALID, why).into_response();
    };
    if !observer.index.is_listed_since(None) {
        return ErrorResponse::new(&LATER, "jobs and pods have not been listed yet: ask again")
            .into_response();
    }
    let key = JobKey::new(namespace, name);
    match observer.feeds.observe_job(&key) {
        Some(seen) => Json(ares::roles(&seen)).into_response(),
        None => ErrorResponse::new(
            &UNKNOWN,
            format!("there is no job {key} where this operator looks"),
        )
        .into_response(),
    }
}

/// The status of an error, and its code and name in AresOperator's API.
struct ErrorKind(StatusCode, &'static str, &'static str);

const INVALID: ErrorKind = ErrorKind(StatusCode::BAD_REQUEST, "230400", "InvalidParam");
const UNKNOWN: ErrorKind = ErrorKind(StatusCode::NOT_FOUND, "230404", "NotFound");
const LATER: ErrorKind = ErrorKind(StatusCode::SERVICE_UNAVAILABLE, "230503", "Unavailable");

#[derive(Serialize)]
struct ErrorResponse {
    #[serde(skip)]
    status: StatusCode,
    code: &'static str,
    message: &'static str,
    error: String,
}

impl ErrorResponse {
    fn new(kind: &ErrorKind, why: impl Into<String>) -> Self {
        let ErrorKind(status, code, message) = *kind;
        let error = why.into();
        Self {
            status,
            code,
            message,
            error,
        }
    }
}

impl IntoResponse for ErrorResponse {
    fn into_response(self) -> Response {
        (self.status, Json(self)).into_response()
    }
}
