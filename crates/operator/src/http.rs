//! Serving HTTP: the loop that all of the operator's servers share, and the one for metrics and probes.

mod connection;
mod idle_tls;
mod unauthenticated;

use std::net::SocketAddr;
use std::sync::Arc;
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

use crate::metrics::{self, Metrics};
pub(crate) use idle_tls::IdleTls;
use unauthenticated::Newcomers;

/// How long a client may take to be let in (TLS).
pub const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a client may take to say its first word.
const SILENCE_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a client may take to send the head of its first request and, with HTTP/1, that of the next one on the same
/// connection.
const HEAD_TIMEOUT: Duration = Duration::from_secs(30);
/// How long a client that has to make room for another may take to leave, before the next one has to.
const ROOM_TIMEOUT: Duration = Duration::from_secs(1);
/// How long requests under way may take once the server is asked to stop.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(10);
/// How many clients are let in at the same time: while keys are agreed on a client takes ten times the local that it
/// takes afterwards, and when an operator is replaced all agents come at once.
const AT_THE_DOOR: usize = 1024;

/// What a server is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Probes and metrics: few clients, none of which needs HTTP/2, whose idle connections could not be told from those
    /// that wait for an answer.
    Plain,
    /// API servers, which ask for many reviews on one connection.
    Webhooks,
    /// Every pod that waits, each with one request that lasts. Who is nobody's pod must make room: anybody can reach it.
    Agents,
}

impl Purpose {
    /// How many connections are kept at a time; more wait in the kernel's queue, unless some that have asked nothing yet
    /// make room.
    pub(crate) const fn most(self) -> usize {
        match self {
            Self::Plain | Self::Webhooks => 512,
            Self::Agents => 50_000,
        }
    }
}

/// A place among the connections that a server keeps. Every request carries it; who goes on with the connection after the
/// answer to an upgrade holds it until the end.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    _slot: Arc<OwnedSemaphorePermit>,
    asked: CancellationToken,
}

impl Place {
    /// From now on it need not make room for others, nor leave because it has not asked for anything.
    pub(crate) fn keep(&self) {
        self.asked.cancel();
    }
}

/// What is left of a connection that another protocol goes on with.
pub(crate) type Upgraded<S> = TokioIo<BufReader<S>>;

/// Why a server can't start.
#[derive(Debug, thiserror::Error)]
#[error("can't listen on {address}: {source}; choose another address, or stop what has this one")]
pub struct BindError {
    /// The address.
    pub address: SocketAddr,
    /// What the system says.
    pub source: std::io::Error,
}

/// Listens on an address; port 0 lets the system choose.
pub async fn bind(address: SocketAddr) -> Result<TcpListener, BindError> {
    TcpListener::bind(address)
        .await
        .map_err(|source| BindError { address, source })
}

/// Answers a probe: well, or what is wrong in a sentence.
pub type Probe = Arc<dyn Fn() -> Result<(), String> + Send + Sync>;

/// What the probes ask.
#[derive(Clone)]
pub struct Probes {
    /// Whether the engine is alive: if not for long, the container is started anew.
    pub live: Probe,
    /// Whether it can serve: the index is complete, certificates are loaded.
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

/// Serves connections until `shutdown`, then lets requests under way end.
///
/// Not more connections are kept at a time than the purpose allows; when one more comes, the one that has asked nothing for the longest time
/// is shown out, so that clients that are silent or slow keep nobody out. `handshake` makes a stream out of a connection, in
/// a task of its own: neither its slowness nor its failure holds up other connections.
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
    serve_some_connections(listener, handshake, router, (purpose, purpose.most()), shutdown).await;
}

/// The same, with so many connections at a time.
pub(crate) async fn serve_some_connections<H, F, S>(
    listener: TcpListener,
    handshake: H,
    router: Router,
    (purpose, most): (Purpose, usize),
    shutdown: CancellationToken,
) where
    H: Fn(TcpStream) -> F + Clone + Send + 'static,
    F: Future<Output = std::io::Result<S>> + Send + 'static,
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let graceful = GracefulShutdown::new();
    let slots = Arc::new(Semaphore::new(most));
    let door = Arc::new(Semaphore::new(AT_THE_DOOR));
    let newcomers = Newcomers::default();
    loop {
        let accepted = tokio::select! {
            () = shutdown.cancelled() => break,
            accepted = accept(&listener, &slots, &newcomers) => accepted,
        };
        let Some((stream, peer, slot)) = accepted else {
            continue;
        };
        let (handshake, router, watcher) = (handshake.clone(), router.clone(), graceful.watcher());
        let (newcomer, door, shutdown) = (newcomers.add(), door.clone(), shutdown.clone());
        tokio::spawn(async move {
            let place = Place {
                _slot: Arc::new(slot),
                asked: newcomer.asked.clone(),
            };
            let stream = tokio::select! {
                stream = Box::pin(first_words(handshake, stream, &door)) => stream,
                () = newcomer.leave.cancelled() => return tracing::debug!(%peer, "a silent client made room for another"),
                () = shutdown.cancelled() => return,
            };
            let stream = match stream {
                Ok(stream) => stream,
                // Port scanners and clients with an old certificate do this all day.
                Err(error) => return tracing::debug!(%peer, %error, "a client did not come to a request"),
            };
            let served = connection::serve(stream, router, place, purpose, &newcomer, watcher, shutdown);
            // In a box, as above: what is not needed yet takes no local, when all agents come at once.
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

/// Lets a client in and waits for its first words, which are kept: the server that is to read them would wait for ever.
async fn first_words<H, F, S>(
    handshake: H,
    stream: TcpStream,
    door: &Semaphore,
) -> std::io::Result<BufReader<S>>
where
    H: Fn(TcpStream) -> F,
    F: Future<Output = std::io::Result<S>>,
    S: AsyncRead + AsyncWrite + Unpin,
{
    // Who says nothing at all does not stand in the door.
    timeout(SILENCE_TIMEOUT, stream.readable()).await??;
    let stream = {
        // Who would have to wait longer than clients do has gone, or will come again. It is never closed; and without a door
        // everybody may come in.
        let _held = timeout(HANDSHAKE_TIMEOUT, door.acquire()).await?;
        timeout(HANDSHAKE_TIMEOUT, handshake(stream)).await??
    };
    let mut stream = BufReader::with_capacity(1024, stream);
    if timeout(SILENCE_TIMEOUT, stream.fill_buf()).await??.is_empty() {
        return Err(std::io::ErrorKind::UnexpectedEof.into());
    }
    Ok(stream)
}

/// The next connection, when there is room for it; none if accepting failed, which concerns that one only.
async fn accept(
    listener: &TcpListener,
    slots: &Arc<Semaphore>,
    newcomers: &Newcomers,
) -> Option<(TcpStream, SocketAddr, OwnedSemaphorePermit)> {
    match listener.accept().await {
        Ok((stream, peer)) => {
            let _ = stream.set_nodelay(true);
            loop {
                if slots.available_permits() == 0 {
                    newcomers.make_room();
                }
                // The one that was to leave may have asked for something at the last moment.
                if let Ok(slot) = timeout(ROOM_TIMEOUT, slots.clone().acquire_owned()).await {
                    return Some((stream, peer, slot.ok()?));
                }
            }
        }
        Err(error) => {
            tracing::warn!(%error, "a connection could not be accepted");
            // Out of file descriptors, most likely: asking again at once would only burn time.
            sleep(Duration::from_millis(100)).await;
            None
        }
    }
}

#[cfg(test)]
mod tests;
