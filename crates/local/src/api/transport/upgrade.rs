//! Upgrades of connections.
//!
//! Only hyper can upgrade a connection. So an upgrade request of a client in this process goes
//! through hyper over a connection in memory, and is served as on a socket.

use bytes::Bytes;
use http::{Request, Version, header};
use http_body_util::{BodyExt, Either, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::upgrade::OnUpgrade;
use hyper::{client, server};
use hyper_util::rt::TokioIo;
use tower::BoxError;

use super::{Answer, encode};
use crate::api::Api;

const BUFFER_BYTES: usize = 64 * 1024;

/// Whether a request wants an upgrade and has no connection.
///
/// HTTP/1.0 has no upgrades.
pub(super) fn needs_connection(request: &http::request::Parts) -> bool {
    request.version == Version::HTTP_11
        && request.headers.contains_key(header::UPGRADE)
        && request.extensions.get::<OnUpgrade>().is_none()
}

pub(super) async fn over_memory(api: Api, request: Request<Bytes>) -> Result<Answer, hyper::Error> {
    let (near, far) = tokio::io::duplex(BUFFER_BYTES);
    let answer = service_fn(move |request: Request<Incoming>| {
        let api = api.clone();
        async move {
            let (head, body) = request.into_parts();
            let body = body.collect().await?.to_bytes();
            // It must not be sent over another connection.
            let answer = api.answer(&head, &body);
            Ok::<_, hyper::Error>(answer.unwrap_or_else(|refusal| encode::refusal(&refusal)))
        }
    });
    let serving = server::conn::http1::Builder::new()
        .serve_connection(TokioIo::new(far), answer)
        .with_upgrades();
    tokio::spawn(serving);
    let (mut sender, connection) = client::conn::http1::handshake(TokioIo::new(near)).await?;
    tokio::spawn(connection.with_upgrades());
    let answer = sender.send_request(request.map(Full::new)).await?;
    Ok(answer.map(|body| Either::Right(body.map_err(BoxError::from).boxed_unsync())))
}
