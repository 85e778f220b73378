//! Serving HTTP: the loop that all of the operator's servers share, and the one for metrics and probes.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::get;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncWrite, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::metrics::{self, Metrics};

/// How long a client may take to be let in (TLS).
pub const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a client may take to say its first word.
const SILENCE_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a client of HTTP/1 may take to send the head of a request, also the next one on the same connection.
const HEAD_TIMEOUT: Duration = Duration::from_secs(30);
/// How long requests under way may take once the server is asked to stop.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(10);
/// How many connections a server keeps at a time; more wait in the kernel's queue, unless silent ones make room.
pub(crate) const FEW_CLIENTS: usize = 512;
/// The same for a server to which every pod that waits is connected.
pub(crate) const ALL_AGENTS: usize = 50_000;

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
    serve_connections(listener, plain, router(metrics, probes), FEW_CLIENTS, shutdown).await;
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
/// At most `most` connections are kept at a time; when one more comes, the one that has said nothing for the longest time is
/// shown out, so that silent clients keep nobody out. `handshake` makes a stream out of a connection, in a task of its own:
/// neither its slowness nor its failure holds up other connections.
pub(crate) async fn serve_connections<H, F, S>(
    listener: TcpListener,
    handshake: H,
    router: Router,
    most: usize,
    shutdown: CancellationToken,
) where
    H: Fn(TcpStream) -> F + Clone + Send + 'static,
    F: Future<Output = std::io::Result<S>> + Send + 'static,
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let graceful = GracefulShutdown::new();
    let slots = Arc::new(Semaphore::new(most));
    let silent = Silent::default();
    loop {
        let accepted = tokio::select! {
            () = shutdown.cancelled() => break,
            accepted = accept(&listener, &slots, &silent) => accepted,
        };
        let Some((stream, peer, slot)) = accepted else {
            continue;
        };
        let (handshake, router, watcher) = (handshake.clone(), router.clone(), graceful.watcher());
        let (leave, shutdown) = (silent.add(), shutdown.clone());
        tokio::spawn(async move {
            let _slot = slot;
            let stream = tokio::select! {
                stream = first_words(handshake, stream) => stream,
                () = leave.cancelled() => return tracing::debug!(%peer, "a silent client made room for another"),
                () = shutdown.cancelled() => return,
            };
            // It is not silent any more.
            leave.cancel();
            let stream = match stream {
                Ok(stream) => stream,
                // Port scanners and clients with an old certificate do this all day.
                Err(error) => return tracing::debug!(%peer, %error, "a client did not come to a request"),
            };
            let mut server = auto::Builder::new(TokioExecutor::new());
            server
                .http1()
                .timer(TokioTimer::new())
                .header_read_timeout(HEAD_TIMEOUT);
            // A peer that is gone without a word does not keep its connection for ever.
            let (interval, patience) = (Duration::from_secs(30), Duration::from_secs(20));
            server
                .http2()
                .timer(TokioTimer::new())
                .keep_alive_interval(interval)
                .keep_alive_timeout(patience);
            let connection = server.serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
            if let Err(error) = watcher.watch(connection.into_owned()).await {
                tracing::debug!(%peer, %error, "a connection ended early");
            }
        });
    }
    drop(listener);
    if timeout(DRAIN_TIMEOUT, graceful.shutdown()).await.is_err() {
        tracing::warn!("some requests were still under way when the server stopped");
    }
}

/// Lets a client in and waits for its first words, which are kept: the server that is to read them would wait for ever.
async fn first_words<H, F, S>(handshake: H, stream: TcpStream) -> std::io::Result<BufReader<S>>
where
    H: Fn(TcpStream) -> F,
    F: Future<Output = std::io::Result<S>>,
    S: AsyncRead + AsyncWrite + Unpin,
{
    let stream = timeout(HANDSHAKE_TIMEOUT, handshake(stream)).await??;
    let mut stream = BufReader::with_capacity(1024, stream);
    if timeout(SILENCE_TIMEOUT, stream.fill_buf()).await??.is_empty() {
        return Err(std::io::ErrorKind::UnexpectedEof.into());
    }
    Ok(stream)
}

/// Connections that have said nothing yet, the oldest first. Each leaves when its token is cancelled; that of one that has
/// spoken, or is gone, is cancelled already.
#[derive(Default)]
struct Silent(Mutex<VecDeque<CancellationToken>>);

impl Silent {
    fn add(&self) -> CancellationToken {
        let token = CancellationToken::new();
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|token| !token.is_cancelled());
        all.push_back(token.clone());
        token
    }

    /// Shows the oldest out.
    fn make_room(&self) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|token| !token.is_cancelled());
        if let Some(oldest) = all.pop_front() {
            oldest.cancel();
        }
    }
}

/// The next connection, when there is room for it; none if accepting failed, which concerns that one only.
async fn accept(
    listener: &TcpListener,
    slots: &Arc<Semaphore>,
    silent: &Silent,
) -> Option<(TcpStream, SocketAddr, OwnedSemaphorePermit)> {
    match listener.accept().await {
        Ok((stream, peer)) => {
            let _ = stream.set_nodelay(true);
            if slots.available_permits() == 0 {
                silent.make_room();
            }
            let slot = slots.clone().acquire_owned().await.ok()?;
            Some((stream, peer, slot))
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
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    async fn fetch(address: SocketAddr, path: &str) -> String {
        let mut stream = TcpStream::connect(address).await.unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer
    }

    #[tokio::test]
    async fn serves_metrics_and_probes_until_told_to_stop() {
        let listener = bind(([127, 0, 0, 1], 0).into()).await.unwrap();
        let address = listener.local_addr().unwrap();
        let metrics = Arc::new(Metrics::new());
        metrics.set_queue_depth(3);
        let synced = Arc::new(AtomicBool::new(false));
        let ready = {
            let synced = synced.clone();
            move || {
                synced
                    .load(Ordering::SeqCst)
                    .then_some(())
                    .ok_or_else(|| "waiting for pods".to_owned())
            }
        };
        let probes = Probes {
            live: Arc::new(|| Ok(())),
            ready: Arc::new(ready),
        };
        let shutdown = CancellationToken::new();
        let server = tokio::spawn(serve(listener, metrics, probes, shutdown.clone()));

        let text = fetch(address, "/metrics").await;
        assert!(
            text.contains("trainyard_queue_depth 3\n") && text.contains(metrics::CONTENT_TYPE),
            "{text}"
        );
        assert!(fetch(address, "/healthz").await.starts_with("HTTP/1.1 200"));
        let unready = fetch(address, "/readyz").await;
        assert!(
            unready.starts_with("HTTP/1.1 503") && unready.ends_with("waiting for pods\n"),
            "{unready}"
        );
        synced.store(true, Ordering::SeqCst);
        assert!(fetch(address, "/readyz").await.starts_with("HTTP/1.1 200"));
        assert!(fetch(address, "/other").await.starts_with("HTTP/1.1 404"));

        // A connection that is open and idle does not hold up the end.
        let _idle = TcpStream::connect(address).await.unwrap();
        shutdown.cancel();
        server.await.unwrap();
        assert!(TcpStream::connect(address).await.is_err());
    }

    #[tokio::test]
    async fn silent_clients_keep_no_probe_out() {
        let listener = bind(([127, 0, 0, 1], 0).into()).await.unwrap();
        let address = listener.local_addr().unwrap();
        let probes = Probes {
            live: Arc::new(|| Ok(())),
            ready: Arc::new(|| Ok(())),
        };
        let shutdown = CancellationToken::new();
        tokio::spawn(serve(
            listener,
            Arc::new(Metrics::new()),
            probes,
            shutdown.clone(),
        ));
        let mut silent = Vec::new();
        for _ in 0..FEW_CLIENTS {
            silent.push(TcpStream::connect(address).await.unwrap());
        }
        for _ in 0..3 {
            let answer = timeout(Duration::from_secs(5), fetch(address, "/healthz")).await;
            assert!(answer.unwrap().starts_with("HTTP/1.1 200"));
        }
        // The first to come are the first to go; one that is still there is served.
        assert_eq!(silent[0].read(&mut [0]).await.unwrap(), 0);
        let last = silent.last_mut().unwrap();
        last.write_all(b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n")
            .await
            .unwrap();
        assert!(last.read(&mut [0]).await.unwrap() > 0);
        shutdown.cancel();
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_says_nothing_is_shown_out() {
        let listener = bind(([127, 0, 0, 1], 0).into()).await.unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (stream, _) = listener.accept().await.unwrap();
        let error = first_words(plain, stream).await.unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::TimedOut);
        assert_eq!(client.read(&mut [0]).await.unwrap(), 0);
    }

    #[tokio::test]
    async fn an_address_in_use_is_named() {
        let first = bind(([127, 0, 0, 1], 0).into()).await.unwrap();
        let address = first.local_addr().unwrap();
        let error = bind(address).await.unwrap_err().to_string();
        assert!(
            error.contains(&address.to_string()) && error.contains("in use"),
            "{error}"
        );
    }
}
