//! Serves one connection.

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

use super::unauthenticated::Unauthenticated;
use super::{ConnectionPermit, HEAD_TIMEOUT, Purpose, Upgraded};
use crate::budget::{KIB, WEBHOOK_HEAD, WEBHOOK_STREAMS, WEBHOOK_WINDOW};

/// The head of a request is kept until it is complete, and anybody may send one. It has one token,
/// of one or two KiB.
const MAX_HEAD: usize = 8 * KIB;
/// What may arrive of one request before anybody reads it. Much less than of all on its connection,
/// so that one which nobody reads holds up no other.
const STREAM_WINDOW: usize = 32 * KIB;
/// Pings find peers that are gone.
const PING_INTERVAL: Duration = Duration::from_secs(30);
const PING_TIMEOUT: Duration = Duration::from_secs(20);

/// Serves a connection until it ends or is evicted or, after the shutdown, its request is answered.
/// The error says why it ended early.
pub(super) async fn serve<S>(
    stream: BufReader<S>,
    router: Router,
    permit: ConnectionPermit,
    purpose: Purpose,
    unauthenticated: &Unauthenticated,
    watcher: Watcher,
    shutdown: CancellationToken,
) -> Result<(), String>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let router = TowerToHyperService::new(router);
    let service = service_fn(move |mut request: Request<Incoming>| {
        let under_way = permit.begin_request();
        request.extensions_mut().insert(permit.clone());
        let answer = router.call(request);
        async move {
            let answer = answer.await;
            drop(under_way);
            answer
        }
    });
    let stream = Upgraded::new(stream);
    let evicted = || Err("it took too long, or made room for another".to_owned());
    if purpose == Purpose::Webhooks {
        let mut server = auto::Builder::new(TokioExecutor::new());
        server
            .http1()
            .timer(TokioTimer::new())
            .max_buf_size(2 * MAX_HEAD)
            .header_read_timeout(HEAD_TIMEOUT);
        server
            .http2()
            .max_concurrent_streams(number(WEBHOOK_STREAMS))
            .max_header_list_size(number(WEBHOOK_HEAD))
            .initial_stream_window_size(number(STREAM_WINDOW))
            .initial_connection_window_size(number(WEBHOOK_WINDOW))
            .timer(TokioTimer::new())
            .keep_alive_interval(PING_INTERVAL)
            .keep_alive_timeout(PING_TIMEOUT);
        let connection = server.serve_connection(stream, service).into_owned();
        return tokio::select! {
            ended = watcher.watch(connection) => ended.map_err(|error| error.to_string()),
            () = unauthenticated.evicted(purpose) => evicted(),
        };
    }
    // `auto` would speak HTTP/2 with every client that wants to, where connections can be upgraded.
    let mut server = http1::Builder::new();
    server
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .max_buf_size(MAX_HEAD)
        .keep_alive(purpose != Purpose::Plain)
        // Simple clients close their side before they read the answer.
        .half_close(purpose == Purpose::Plain);
    let mut connection = pin!(server.serve_connection(stream, service).with_upgrades());
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = unauthenticated.evicted(purpose) => return evicted(),
        () = shutdown.cancelled() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    // The server waits for all watchers.
    drop(watcher);
    ended.map_err(|error| error.to_string())
}

/// A bound as HTTP/2 takes it.
fn number(bound: usize) -> u32 {
    u32::try_from(bound).unwrap_or(u32::MAX)
}
