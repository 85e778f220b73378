//! Serves the API to the user who runs the cluster, on a Unix socket. That user may do everything.
//! Nobody else may open the socket, and whoever has got it all the same is not answered.

use std::convert::Infallible;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use http::Request;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use kube::client::Body;
use tokio::net::{UnixListener, UnixStream};
use tokio::task::JoinSet;
use tower::Service;

use crate::api::Api;
use crate::host::is_this_user;

/// How long to wait for other connections to end when no more can be accepted.
const ACCEPT_RETRY_INTERVAL: Duration = Duration::from_millis(100);

impl Api {
    /// Serves this user on a socket, for as long as it is polled.
    pub async fn serve_user(&self, listener: UnixListener) -> Infallible {
        let mut connections = JoinSet::new();
        loop {
            let Ok((stream, _)) = listener.accept().await else {
                tokio::time::sleep(ACCEPT_RETRY_INTERVAL).await;
                continue;
            };
            while connections.try_join_next().is_some() {}
            if !stream.peer_cred().is_ok_and(|peer| is_this_user(&peer)) {
                tracing::warn!("another user has opened the socket of this run");
                continue;
            }
            connections.spawn(serve(self.clone(), stream));
        }
    }
}

fn serve(api: Api, stream: UnixStream) -> BoxFuture<'static, ()> {
    let answer = service_fn(move |request: Request<Incoming>| {
        let mut api = api.clone();
        async move {
            let (head, body) = request.into_parts();
            let body = body.collect().await?.to_bytes();
            let Ok(answer) = api.call(Request::from_parts(head, Body::from(body))).await;
            Ok::<_, hyper::Error>(answer)
        }
    });
    let serving = http1::Builder::new()
        .serve_connection(TokioIo::new(stream), answer)
        .with_upgrades();
    // A client that goes away is no error.
    Box::pin(serving.map(drop))
}
