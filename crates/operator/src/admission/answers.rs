//! Answers that nobody has read yet. Strangers need not read theirs, and with HTTP/2 a connection
//! may have many.

use axum::body::{Body, Bytes};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::limits::{Limits, OwnedPermits};
use crate::budget::KIB;
use crate::http::ConnectionPermit;

/// An answer, as it is sent.
pub(super) struct Answer {
    pub code: StatusCode,
    pub kind: &'static str,
    pub body: Vec<u8>,
}

/// The bytes of an answer, until the last of them is sent or their connection is closed.
struct Unread {
    bytes: Vec<u8>,
    _room: OwnedPermits,
    /// Tells by its end that they are gone.
    _gone: oneshot::Sender<()>,
}

impl AsRef<[u8]> for Unread {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// Waits until there is room for an answer, which it has until it is read. A connection on which
/// nobody reads is closed: others wait for the room.
pub(super) async fn bounded(answer: Answer, limits: &Limits, connection: &ConnectionPermit) -> Response {
    let share = limits.answers_of(connection.peer());
    let room = share.acquire_owned(answer.body.len().div_ceil(KIB)).await;
    let (gone, is_gone) = oneshot::channel();
    let (connection, read_timeout) = (connection.downgrade(), limits.read_timeout);
    tokio::spawn(async move {
        if timeout(read_timeout, is_gone).await.is_err() {
            tracing::debug!("nobody has read an answer: its connection is closed");
            connection.close();
        }
    });
    let body = Bytes::from_owner(Unread {
        bytes: answer.body,
        _room: room,
        _gone: gone,
    });
    let kind = [(header::CONTENT_TYPE, answer.kind)];
    (answer.code, kind, Body::from(body)).into_response()
}
