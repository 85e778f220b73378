//! The layer that injects the faults.

use std::task::{Context, Poll};
use std::time::Duration;

use futures::future::BoxFuture;
use futures::{StreamExt, TryStreamExt};
use http::{Request, Response, StatusCode, header};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, BodyStream, Full, StreamBody};
use hyper::body::Bytes;
use serde_json::json;
use tower::{BoxError, Layer, Service};

use super::{Call, Effect, Faults};

/// The body of an answer.
pub type FaultyBody = UnsyncBoxBody<Bytes, BoxError>;

/// A service that faults happen to.
#[derive(Clone, Debug)]
pub struct Faulty<S> {
    inner: S,
    faults: Faults,
}

impl<S> Layer<S> for Faults {
    type Service = Faulty<S>;

    fn layer(&self, inner: S) -> Faulty<S> {
        Faulty {
            inner,
            faults: self.clone(),
        }
    }
}

impl<S, A, B> Service<Request<A>> for Faulty<S>
where
    S: Service<Request<A>, Response = Response<B>> + Clone + Send + 'static,
    S::Future: Send + 'static,
    S::Error: Into<BoxError>,
    A: Send + 'static,
    B: hyper::body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    type Response = Response<FaultyBody>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Self::Response, BoxError>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(cx).map_err(Into::into)
    }

    fn call(&mut self, request: Request<A>) -> Self::Future {
        // The instance that was polled ready must be used; a clone replaces it.
        let clone = self.inner.clone();
        let mut inner = std::mem::replace(&mut self.inner, clone);
        let faults = self.faults.clone();
        let call = Call::parse(request.method(), request.uri());
        Box::pin(async move {
            let effect = faults.apply_rules(&call);
            match effect {
                Some(Effect::CrashBefore) => {
                    faults.crash();
                    return std::future::pending().await;
                }
                Some(Effect::Answer { code, retry_after }) => return Ok(answer(code, retry_after)),
                Some(Effect::Gone) => return Ok(gone()),
                Some(Effect::Refuse) => return Err(refused()),
                Some(Effect::Delay(time)) => tokio::time::sleep(time).await,
                Some(Effect::Dead) => return std::future::pending().await,
                Some(Effect::CrashAfter | Effect::LoseAnswer | Effect::SlowAnswer(_)) | None => {}
            }
            let in_flight = faults.in_flight(&call);
            let response = inner.call(request).await.map_err(Into::into);
            drop(in_flight);
            match effect {
                Some(Effect::CrashAfter) => {
                    faults.crash();
                    std::future::pending().await
                }
                Some(Effect::LoseAnswer) => response.and_then(|_| Err(lost())),
                Some(Effect::SlowAnswer(time)) => Ok(slow(response?, time)),
                _ => Ok(response?.map(boxed)),
            }
        })
    }
}

fn boxed<B>(body: B) -> FaultyBody
where
    B: hyper::body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    body.map_err(Into::into).boxed_unsync()
}

fn slow<B>(response: Response<B>, time: Duration) -> Response<FaultyBody>
where
    B: hyper::body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    response.map(|body| {
        let frames = BodyStream::new(boxed(body)).then(move |frame| async move {
            tokio::time::sleep(time).await;
            frame
        });
        BodyExt::boxed_unsync(StreamBody::new(frames.into_stream()))
    })
}

fn refused() -> BoxError {
    std::io::Error::new(
        std::io::ErrorKind::ConnectionRefused,
        "connection refused (a fault of the test)",
    )
    .into()
}

fn lost() -> BoxError {
    std::io::Error::new(
        std::io::ErrorKind::ConnectionReset,
        "connection reset before the answer (a fault of the test)",
    )
    .into()
}

fn answer(code: u16, retry_after: Option<u64>) -> Response<FaultyBody> {
    let status = StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut response = Response::new(full(&status_object(status.as_u16())));
    *response.status_mut() = status;
    response.headers_mut().insert(
        header::CONTENT_TYPE,
        header::HeaderValue::from_static("application/json"),
    );
    if let Some(seconds) = retry_after {
        response.headers_mut().insert(header::RETRY_AFTER, seconds.into());
    }
    response
}

/// What a server says within a watch that asked for a version it no longer has.
fn gone() -> Response<FaultyBody> {
    Response::new(full(&json!({"type": "ERROR", "object": status_object(410)})))
}

fn status_object(code: u16) -> serde_json::Value {
    let reason = match code {
        409 => "Conflict",
        410 => "Expired",
        429 => "TooManyRequests",
        500 => "InternalError",
        503 => "ServiceUnavailable",
        504 => "Timeout",
        _ => "Unknown",
    };
    json!({
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": "a fault of the test",
        "reason": reason,
        "code": code,
    })
}

fn full(value: &serde_json::Value) -> FaultyBody {
    boxed(Full::new(Bytes::from(format!("{value}\n"))))
}
