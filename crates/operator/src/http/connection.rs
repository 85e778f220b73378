//! One connection, from its first request to its last.

use std::pin::pin;
use std::time::Duration;

use axum::Router;
use axum::http::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::server::graceful::Watcher;
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite, BufReader};
use tokio_util::sync::CancellationToken;

use super::unauthenticated::Newcomer;
use super::{HEAD_TIMEOUT, Place, Purpose, Upgraded};

/// The largest head of a request: a token has at most 16 KiB. Anybody may send one, and it is kept until it is complete.
const LARGEST_HEAD: usize = 24 * 1024;
/// A peer that is gone without a word does not keep its connection for ever.
const PING_INTERVAL: Duration = Duration::from_secs(30);
const PING_PATIENCE: Duration = Duration::from_secs(20);

/// Serves a connection until it ends, has to make room, or, once the server stops, its request is answered. Why it ended
/// early, if it did.
pub(super) async fn serve<S>(
    stream: BufReader<S>,
    router: Router,
    place: Place,
    purpose: Purpose,
    newcomer: &Newcomer,
    watcher: Watcher,
    shutdown: CancellationToken,
) -> Result<(), String>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let router = TowerToHyperService::new(router);
    let service = service_fn(move |mut request: Request<Incoming>| {
        // Of agents, those who are known are kept, which only the handler can tell.
        if purpose != Purpose::Agents {
            place.keep();
        }
        request.extensions_mut().insert(place.clone());
        router.call(request)
    });
    let stream = Upgraded::new(stream);
    let slow = || Err("it was too slow to ask for anything".to_owned());
    if purpose == Purpose::Webhooks {
        let mut server = auto::Builder::new(TokioExecutor::new());
        server
            .http1()
            .timer(TokioTimer::new())
            .header_read_timeout(HEAD_TIMEOUT);
        server
            .http2()
            .timer(TokioTimer::new())
            .keep_alive_interval(PING_INTERVAL)
            .keep_alive_timeout(PING_PATIENCE);
        let connection = server.serve_connection(stream, service).into_owned();
        return tokio::select! {
            ended = watcher.watch(connection) => ended.map_err(|error| error.to_string()),
            () = newcomer.has_to_leave() => slow(),
        };
    }
    // Not the server that chooses between protocols: it would speak HTTP/2 with whoever wants to, whatever it is told, where
    // connections can be upgraded.
    let mut server = http1::Builder::new();
    server
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .max_buf_size(LARGEST_HEAD)
        // Simple clients say that they have no more to ask before they hear the answer.
        .half_close(purpose == Purpose::Plain);
    let mut connection = pin!(server.serve_connection(stream, service).with_upgrades());
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = newcomer.has_to_leave() => return slow(),
        () = shutdown.cancelled() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    // The server waits for all who hold one.
    drop(watcher);
    ended.map_err(|error| error.to_string())
}
