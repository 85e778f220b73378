//! HTTP: the loop of all the operator's servers, and the server of metrics and probes.

mod connection;
mod idle_tls;
mod unauthenticated;

use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Weak};
use std::time::Duration;

use axum::Router;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::get;
use hyper_util::rt::TokioIo;
use hyper_util::server::graceful::GracefulShutdown;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncWrite, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::budget::{PLAIN_CONNECTIONS, WEBHOOK_CONNECTIONS};
use crate::metrics::{self, Metrics};
pub(crate) use idle_tls::IdleTls;
use unauthenticated::{EvictionQueue, ROOM_TIMEOUT, RequestGuard, Unauthenticated};

pub(crate) const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);
const FIRST_BYTE_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a client may take to send the head of its first request and, with HTTP/1, of the next
/// one.
const HEAD_TIMEOUT: Duration = Duration::from_secs(30);
/// How long an evicted connection may take to close, before the next one is evicted.
const EVICTION_TIMEOUT: Duration = Duration::from_secs(1);
/// How long requests may go on after the shutdown.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(10);
/// How many TLS handshakes are made at once. During it a client takes ten times the memory that it
/// takes afterwards, and all agents come at once when an operator is replaced.
const MAX_HANDSHAKES: usize = 1024;

/// What a server is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Probes and metrics: few clients. A connection has one request, and does not last: anybody
    /// may ask, and nobody shows who it is.
    Plain,
    /// API servers, which ask for many reviews on one connection. It lasts, also between requests,
    /// until it is evicted for another: nobody shows who it is here, either.
    Webhooks,
    /// Every pod that waits, each with one request that lasts. Anybody can reach this server:
    /// connections of others than pods are evicted.
    Agents,
}

impl Purpose {
    /// Returns how many connections are kept at once. More wait in the kernel's queue, unless an
    /// unauthenticated one can be evicted.
    pub(crate) const fn max_connections(self) -> usize {
        match self {
            Self::Plain => PLAIN_CONNECTIONS,
            Self::Webhooks => WEBHOOK_CONNECTIONS,
            Self::Agents => 50_000,
        }
    }
}

/// One of the connections that a server keeps. Every request carries it. After an upgrade, it must
/// be held as long as the connection is used.
#[derive(Clone, Debug)]
pub(crate) struct ConnectionPermit {
    slot: Arc<OwnedSemaphorePermit>,
    peer: IpAddr,
    connection: Arc<Unauthenticated>,
}

impl ConnectionPermit {
    /// The peer is authenticated: its connection does not make room for those of others any more.
    pub(crate) fn keep(&self) {
        self.connection.done.cancel();
    }

    /// Returns the address of the peer.
    pub(crate) fn peer(&self) -> IpAddr {
        self.peer
    }

    /// Waits until the connection is to be closed.
    pub(crate) async fn closing(&self) {
        self.connection.evict.cancelled().await;
    }

    pub(crate) fn downgrade(&self) -> KeptConnection {
        KeptConnection {
            slot: Arc::downgrade(&self.slot),
            connection: Arc::downgrade(&self.connection),
        }
    }

    /// A request is under way until the guard is dropped.
    fn begin_request(&self) -> RequestGuard {
        Unauthenticated::begin_request(&self.connection)
    }
}

#[cfg(test)]
impl ConnectionPermit {
    pub(crate) fn for_tests() -> Self {
        let slot = Arc::new(Semaphore::new(1)).try_acquire_owned();
        Self {
            slot: Arc::new(slot.unwrap()),
            peer: std::net::Ipv4Addr::LOCALHOST.into(),
            connection: Arc::default(),
        }
    }

    pub(crate) fn is_closing(&self) -> bool {
        self.connection.evict.is_cancelled()
    }
}

/// A connection that may be closed by now.
#[derive(Debug)]
pub(crate) struct KeptConnection {
    slot: Weak<OwnedSemaphorePermit>,
    connection: Weak<Unauthenticated>,
}

impl KeptConnection {
    pub(crate) fn is_open(&self) -> bool {
        self.slot.strong_count() > 0
    }

    /// Returns true if this is the connection of a permit.
    pub(crate) fn is_of(&self, permit: &ConnectionPermit) -> bool {
        self.slot.as_ptr() == Arc::as_ptr(&permit.slot)
    }

    pub(crate) fn close(&self) {
        if let Some(connection) = self.connection.upgrade() {
            connection.evict.cancel();
        }
    }
}

/// A connection after an upgrade.
pub(crate) type Upgraded<S> = TokioIo<BufReader<S>>;

/// Why a server can't start.
#[derive(Debug, thiserror::Error)]
#[error("can't listen on {address}: {source}; choose another address, or stop what has this one")]
pub struct BindError {
    pub address: SocketAddr,
    pub source: std::io::Error,
}

pub async fn bind(address: SocketAddr) -> Result<TcpListener, BindError> {
    TcpListener::bind(address)
        .await
        .map_err(|source| BindError { address, source })
}

/// Answers a probe. The error is a sentence.
pub type Probe = Arc<dyn Fn() -> Result<(), String> + Send + Sync>;

#[derive(Clone)]
pub struct Probes {
    /// Whether the engine is alive. The kubelet restarts the container if it is not.
    pub live: Probe,
    /// Whether the index is complete and the certificate is loaded.
    pub ready: Probe,
}

/// Serves `/metrics`, `/healthz` and `/readyz` until `shutdown`.
pub async fn serve(
    listener: TcpListener,
    metrics: Arc<Metrics>,
    probes: Probes,
    shutdown: CancellationToken,
) {
    serve_connections(listener, plain, router(metrics, probes), Purpose::Plain, shutdown).await;
}

fn router(metrics: Arc<Metrics>, probes: Probes) -> Router {
    let render = move || async move { ([(header::CONTENT_TYPE, metrics::CONTENT_TYPE)], metrics.render()) };
    Router::new()
        .route("/metrics", get(render))
        .route("/healthz", get(move || async move { answer(&probes.live) }))
        .route("/readyz", get(move || async move { answer(&probes.ready) }))
}

fn answer(probe: &Probe) -> impl IntoResponse + use<> {
    match probe() {
        Ok(()) => (StatusCode::OK, "ok\n".to_owned()),
        Err(problem) => (StatusCode::SERVICE_UNAVAILABLE, problem + "\n"),
    }
}

async fn plain(stream: TcpStream) -> std::io::Result<TcpStream> {
    Ok(stream)
}

/// Serves connections until `shutdown`, then lets requests that are under way end.
///
/// When there are as many connections as the purpose allows, an unauthenticated one is evicted for
/// the next, of the address that has the most, so that neither silent nor slow nor polite clients
/// keep others out. `handshake` makes a stream of a connection, in a task of its own: a slow
/// handshake holds up no other connection.
pub(crate) async fn serve_connections<H, F, S>(
    listener: TcpListener,
    handshake: H,
    router: Router,
    purpose: Purpose,
    shutdown: CancellationToken,
) where
    H: Fn(TcpStream) -> F + Clone + Send + 'static,
    F: Future<Output = std::io::Result<S>> + Send + 'static,
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let limit = (purpose, purpose.max_connections());
    serve_some_connections(listener, handshake, router, limit, shutdown).await;
}

/// As [`serve_connections`], with another number of connections.
pub(crate) async fn serve_some_connections<H, F, S>(
    listener: TcpListener,
    handshake: H,
    router: Router,
    (purpose, max): (Purpose, usize),
    shutdown: CancellationToken,
) where
    H: Fn(TcpStream) -> F + Clone + Send + 'static,
    F: Future<Output = std::io::Result<S>> + Send + 'static,
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let graceful = GracefulShutdown::new();
    let slots = Arc::new(Semaphore::new(max));
    let handshakes = Arc::new(Semaphore::new(MAX_HANDSHAKES));
    let eviction = EvictionQueue::default();
    loop {
        let accepted = tokio::select! {
            () = shutdown.cancelled() => break,
            accepted = accept(&listener, &slots, &eviction) => accepted,
        };
        let Some((stream, peer, slot)) = accepted else {
            continue;
        };
        let (handshake, router, watcher) = (handshake.clone(), router.clone(), graceful.watcher());
        if purpose == Purpose::Agents {
            eviction.make_room(peer.ip()).await;
        }
        let (guard, handshakes, shutdown) = (eviction.add(peer.ip()), handshakes.clone(), shutdown.clone());
        tokio::spawn(async move {
            let permit = ConnectionPermit {
                slot: Arc::new(slot),
                peer: peer.ip().to_canonical(),
                connection: guard.connection(),
            };
            let stream = tokio::select! {
                stream = Box::pin(wait_for_request(handshake, stream, &handshakes)) => stream,
                () = guard.evict.cancelled() => return tracing::debug!(%peer, "a silent client made room for another"),
                () = shutdown.cancelled() => return,
            };
            let stream = match stream {
                Ok(stream) => stream,
                // Port scanners and clients with an old certificate do this often.
                Err(error) => return tracing::debug!(%peer, %error, "a client did not come to a request"),
            };
            let served = connection::serve(stream, router, permit, purpose, &guard, watcher, shutdown);
            // Boxed, as above: it takes no memory before it is needed, when all agents come at
            // once.
            if let Err(error) = Box::pin(served).await {
                tracing::debug!(%peer, error, "a connection ended early");
            }
        });
    }
    drop(listener);
    if timeout(DRAIN_TIMEOUT, graceful.shutdown()).await.is_err() {
        tracing::warn!("some requests were still under way when the server stopped");
    }
}

/// Makes the handshake and waits for the first bytes of a request, which stay in the buffer. The
/// HTTP server would wait for them for ever.
async fn wait_for_request<H, F, S>(
    handshake: H,
    stream: TcpStream,
    handshakes: &Semaphore,
) -> std::io::Result<BufReader<S>>
where
    H: Fn(TcpStream) -> F,
    F: Future<Output = std::io::Result<S>>,
    S: AsyncRead + AsyncWrite + Unpin,
{
    // A client that sends nothing takes no handshake from others.
    timeout(FIRST_BYTE_TIMEOUT, stream.readable()).await??;
    let stream = {
        // A client that waits longer than this has given up. An error would mean that the semaphore
        // is closed, which it never is.
        let _held = timeout(HANDSHAKE_TIMEOUT, handshakes.acquire()).await?;
        timeout(HANDSHAKE_TIMEOUT, handshake(stream)).await??
    };
    let mut stream = BufReader::with_capacity(1024, stream);
    if timeout(FIRST_BYTE_TIMEOUT, stream.fill_buf()).await??.is_empty() {
        return Err(std::io::ErrorKind::UnexpectedEof.into());
    }
    Ok(stream)
}

/// Accepts the next connection, and waits until there is room for it. Returns `None` if that
/// failed, which concerns this connection only.
async fn accept(
    listener: &TcpListener,
    slots: &Arc<Semaphore>,
    eviction: &EvictionQueue,
) -> Option<(TcpStream, SocketAddr, OwnedSemaphorePermit)> {
    match listener.accept().await {
        Ok((stream, peer)) => {
            let _ = stream.set_nodelay(true);
            // Where all addresses have few, they come at once, and soon go.
            let waits = slots.available_permits() == 0 && !eviction.evict_one_of_many();
            let mut patience = if waits { ROOM_TIMEOUT } else { EVICTION_TIMEOUT };
            loop {
                if let Ok(slot) = timeout(patience, slots.clone().acquire_owned()).await {
                    return Some((stream, peer, slot.ok()?));
                }
                eviction.evict_one();
                patience = EVICTION_TIMEOUT;
            }
        }
        Err(error) => {
            tracing::warn!(%error, "a connection could not be accepted");
            // Most likely there are no file descriptors left, nor a moment later.
            sleep(Duration::from_millis(100)).await;
            None
        }
    }
}

#[cfg(test)]
mod tests;
