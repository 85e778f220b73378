//! The client of the API server: counted, bounded in time, and patient only for a moment.
//!
//! From the outside in, a request passes: [retry](Retry), [counting](CountLayer), a layer of the caller's (tests put
//! faults there), the server's address, credentials, headers, and a pool of HTTP/1.1 connections.
//!
//! # Why not kube's own stack
//!
//! kube's default stack retries 429, 503 and 504 fifteen times, also for writes, waiting up to minutes, and beneath
//! any layer that could be added: requests could not be counted, and a write could leave long after the replica that
//! wanted it had stopped being the leader. Here all tries together wait for less than the margin between the renew
//! deadline and the duration of the lease. See [`Retry`].
//!
//! # Time
//!
//! - Connecting (with TLS) is given up after [`CONNECT_TIMEOUT`].
//! - The head of an answer must come within [`ANSWER_TIMEOUT`]; bodies are not timed, as a watch's lasts.
//! - A peer that is gone without a word is noticed by TCP itself (keep-alive probes, and `TCP_USER_TIMEOUT` for data
//!   that is not acknowledged) in about half a minute: that is what ends a half-open watch.
//! - A peer that is there and silent is noticed by the read timeout, which is longer than any watch (kube asks the
//!   server to end each after 290 s), so that it never ends a healthy one.

mod count;
mod retry;

use std::sync::Arc;
use std::time::Duration;

use http::{Request, Response};
use http_body_util::BodyExt;
use http_body_util::combinators::UnsyncBoxBody;
use hyper::body::Bytes;
use hyper_timeout::TimeoutConnector;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use kube::client::{Body, ConfigExt};
use tower::util::BoxCloneSyncService;
use tower::{BoxError, Layer, Service, ServiceBuilder, ServiceExt};

pub use count::{Count, CountLayer, classify};
pub use retry::Retry;

use crate::metrics::Metrics;

/// How long connecting may take.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// How long the head of an answer may take. The server itself gives up after a minute.
pub const ANSWER_TIMEOUT: Duration = Duration::from_secs(65);
/// How long a connection in use may be silent. Longer than a watch without events.
const READ_TIMEOUT: Duration = Duration::from_secs(330);
/// How long the server may take to accept bytes.
const WRITE_TIMEOUT: Duration = Duration::from_secs(30);
/// How long data may stay unacknowledged, and how long a silent connection goes unprobed (twice).
const TCP_TIMEOUT: Duration = Duration::from_secs(15);

/// The body of an answer.
pub type ResponseBody = UnsyncBoxBody<Bytes, BoxError>;
/// What sends requests: the innermost part of the stack, and what a layer of the caller's wraps.
pub type Transport = BoxCloneSyncService<Request<Body>, Response<ResponseBody>, BoxError>;

/// Why a client can't be made.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// The configuration asks for a proxy.
    #[error(
        "the kubeconfig or HTTPS_PROXY asks for the proxy {0}, which is not supported: unset HTTPS_PROXY or remove \
         proxy-url, or run where the API server can be reached directly"
    )]
    Proxy(http::Uri),
    /// The configuration's certificates or credentials can't be used.
    #[error("the credentials or certificates of the Kubernetes configuration can't be used: {0}")]
    Config(#[from] kube::Error),
}

/// A client for the cluster that `config` describes.
pub fn build(config: kube::Config, metrics: Arc<Metrics>) -> Result<kube::Client, BuildError> {
    build_with_layer(config, metrics, &tower::layer::util::Identity::new())
}

/// As [`build`], with a layer of the caller's beneath counting and retry: what it answers is counted and retried as
/// if the server had said it.
pub fn build_with_layer<L, B>(
    config: kube::Config,
    metrics: Arc<Metrics>,
    layer: &L,
) -> Result<kube::Client, BuildError>
where
    L: Layer<Transport>,
    L::Service: Service<Request<Body>, Response = Response<B>> + Clone + Send + 'static,
    <L::Service as Service<Request<Body>>>::Future: Send + 'static,
    <L::Service as Service<Request<Body>>>::Error: Into<BoxError>,
    B: http_body_util::BodyExt + hyper::body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    let namespace = config.default_namespace.clone();
    Ok(build_on(layer.layer(transport(config)?), namespace, metrics))
}

/// A client on top of any service that answers as an API server does, such as one in this process.
pub fn build_on<S, B>(service: S, default_namespace: impl Into<String>, metrics: Arc<Metrics>) -> kube::Client
where
    S: Service<Request<Body>, Response = Response<B>> + Clone + Send + 'static,
    S::Future: Send + 'static,
    S::Error: Into<BoxError>,
    B: hyper::body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    let service = ServiceBuilder::new()
        .layer(tower::retry::RetryLayer::new(Retry::default()))
        .layer(CountLayer::new(metrics))
        .map_err(Into::<BoxError>::into)
        .service(service);
    kube::Client::new(service, default_namespace)
}

fn transport(mut config: kube::Config) -> Result<Transport, BuildError> {
    if let Some(proxy) = config.proxy_url.take() {
        return Err(BuildError::Proxy(proxy));
    }
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    // Requests are small and answers are waited for.
    tcp.set_nodelay(true);
    tcp.set_keepalive(Some(TCP_TIMEOUT));
    tcp.set_keepalive_interval(Some(Duration::from_secs(5)));
    tcp.set_keepalive_retries(Some(3));
    #[cfg(target_os = "linux")]
    tcp.set_tcp_user_timeout(Some(TCP_TIMEOUT * 2));

    let mut connector = TimeoutConnector::new(config.rustls_https_connector_with_connector(tcp)?);
    connector.set_connect_timeout(Some(CONNECT_TIMEOUT));
    connector.set_read_timeout(Some(READ_TIMEOUT));
    connector.set_write_timeout(Some(WRITE_TIMEOUT));
    // Else the time a pooled connection was idle would count as silence of the next answer.
    connector.set_reset_reader_on_write(true);

    let pool = hyper_util::client::legacy::Client::builder(TokioExecutor::new())
        .pool_timer(TokioTimer::new())
        .pool_idle_timeout(Duration::from_mins(1))
        .build::<_, Body>(connector);
    let service = ServiceBuilder::new()
        .map_err(Into::<BoxError>::into)
        .layer_fn(|inner| AnswerTimeout { inner })
        .layer(config.base_uri_layer())
        .option_layer(config.auth_layer()?)
        .layer(config.extra_headers_layer()?)
        .map_err(BoxError::from)
        .service(pool)
        .map_response(|response| response.map(|body| body.map_err(BoxError::from).boxed_unsync()));
    Ok(BoxCloneSyncService::new(service))
}

/// The API server did not begin to answer in time.
#[derive(Debug, thiserror::Error)]
#[error("the API server did not answer within {} s", ANSWER_TIMEOUT.as_secs())]
pub struct NoAnswer;

/// Gives up when the head of an answer does not come in time. Bodies are not timed.
#[derive(Clone, Debug)]
struct AnswerTimeout<S> {
    inner: S,
}

impl<S> Service<Request<Body>> for AnswerTimeout<S>
where
    S: Service<Request<Body>, Error = BoxError>,
    S::Future: Send + 'static,
{
    type Response = S::Response;
    type Error = BoxError;
    type Future = futures::future::BoxFuture<'static, Result<S::Response, BoxError>>;

    fn poll_ready(&mut self, cx: &mut std::task::Context<'_>) -> std::task::Poll<Result<(), BoxError>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let answer = tokio::time::timeout(ANSWER_TIMEOUT, self.inner.call(request));
        Box::pin(async move { answer.await.unwrap_or_else(|_| Err(NoAnswer.into())) })
    }
}

#[cfg(test)]
mod tests;
