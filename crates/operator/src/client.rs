//! The client of the API server: its requests are counted, limited in time and seldom retried.
//!
//! A request passes, from the outside in: the retries, the counter, a layer of the caller's (tests
//! put faults there), the server's address, credentials, headers, and a pool of HTTP/1.1
//! connections.
//!
//! # Why not kube's own stack
//!
//! kube's default stack retries 429, 503 and 504 fifteen times, also for writes, for up to minutes,
//! and beneath any layer that could be added. So requests could not be counted, and a write could
//! be sent long after its replica had stopped being the leader. Here all retries together wait for
//! less than the margin between the renew deadline and the duration of the lease.
//!
//! # Timeouts
//!
//! - Connecting, with TLS, may take 10 s.
//! - The head of an answer must come within 65 s. Bodies have no timeout: a watch's lasts.
//! - TCP notices a peer that is gone in about half a minute, by keep-alive probes and by
//!   `TCP_USER_TIMEOUT` for data that is not acknowledged. That ends a half-open watch.
//! - The read timeout notices a peer that is silent. It is longer than any watch (kube asks the
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

use count::CountLayer;
use retry::Retry;

use crate::metrics::Metrics;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// The server itself gives up after a minute.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(65);
/// Longer than a watch without events.
const READ_TIMEOUT: Duration = Duration::from_secs(330);
const WRITE_TIMEOUT: Duration = Duration::from_secs(30);
/// When a silent connection is probed. Data may stay unacknowledged for twice as long.
const TCP_TIMEOUT: Duration = Duration::from_secs(15);

/// The body of an answer.
pub type ResponseBody = UnsyncBoxBody<Bytes, BoxError>;
/// Sends requests: the innermost part of the stack, which a layer of the caller's wraps.
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

/// Makes a client for the cluster that `config` describes.
pub fn build(config: kube::Config, metrics: Arc<Metrics>) -> Result<kube::Client, BuildError> {
    build_with_layer(config, metrics, &tower::layer::util::Identity::new())
}

/// As [`build`], with a layer beneath the retries and the counter: its answers are counted and
/// retried as if the server had sent them.
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

/// Makes a client of any service that answers as an API server does.
fn build_on<S, B>(service: S, default_namespace: impl Into<String>, metrics: Arc<Metrics>) -> kube::Client
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
    // Requests are small, and their answers are waited for.
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
    // Otherwise the idle time of a pooled connection would count for the next answer.
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
struct NoAnswer;

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
