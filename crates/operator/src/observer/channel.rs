//! Sends lines to a follower of a job.
//!
//! Agents ask for an upgrade of their connection to [`LINES`]: only lines follow the answer, and
//! the server keeps nothing but the TLS connection. With HTTP it would keep buffers for requests
//! that never come. Other callers get the lines as the body of an answer.

use std::convert::Infallible;
use std::time::Duration;

use axum::body::Body;
use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use futures::{Stream, StreamExt};
use hyper::upgrade::OnUpgrade;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::timeout;
use trainyard_contract::observer::{LINES, LINES_TYPE};

use super::follow::Line;
use crate::http::{ConnectionPermit, IdleTls, Upgraded};

const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// Where the lines are sent: into an upgraded connection, or into the body of an answer.
pub(super) struct Channel(Option<(OnUpgrade, ConnectionPermit)>);

impl<S: Sync> FromRequestParts<S> for Channel {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        let wanted = parts.headers.get(header::UPGRADE);
        if wanted.is_none_or(|protocol| !protocol.as_bytes().eq_ignore_ascii_case(LINES.as_bytes())) {
            return Ok(Self(None));
        }
        Ok(Self(
            parts
                .extensions
                .remove::<OnUpgrade>()
                .zip(parts.extensions.get::<ConnectionPermit>().cloned()),
        ))
    }
}

impl Channel {
    /// Sends lines until there are no more, or the client is gone.
    pub(super) fn send(self, lines: impl Stream<Item = Line> + Send + 'static) -> Response {
        let Some((upgrade, permit)) = self.0 else {
            let kind = [(header::CONTENT_TYPE, LINES_TYPE)];
            return (kind, Body::from_stream(lines)).into_response();
        };
        // Boxed: what is moved into a task takes twice its size while the task lives.
        let lines = Box::pin(lines);
        tokio::spawn(async move {
            let send = async {
                match connection(upgrade).await {
                    Ok(connection) => send_lines(connection, lines).await,
                    Err(problem) => tracing::debug!(problem, "a client did not go on to lines"),
                }
            };
            tokio::select! {
                () = permit.closing() => tracing::debug!("a pod has too many connections"),
                () = send => {}
            }
        });
        let head = [(header::CONNECTION, "upgrade"), (header::UPGRADE, LINES)];
        (StatusCode::SWITCHING_PROTOCOLS, head).into_response()
    }
}

/// Returns the connection below HTTP, without its buffers: the client sends nothing more.
async fn connection(upgrade: OnUpgrade) -> Result<Box<IdleTls>, String> {
    let upgraded = upgrade.await.map_err(|error| error.to_string())?;
    let parts = upgraded
        .downcast::<Upgraded<IdleTls>>()
        .map_err(|_| "it is no connection of the observer")?;
    Ok(Box::new(parts.io.into_inner().into_inner()))
}

async fn send_lines<C>(mut connection: Box<C>, mut lines: impl Stream<Item = Line> + Unpin)
where
    C: AsyncRead + AsyncWrite + Unpin,
{
    let mut word = [0];
    loop {
        let line = tokio::select! {
            line = lines.next() => line,
            // The client is gone, or does not know the protocol.
            _ = connection.read(&mut word) => return,
        };
        let Some(Ok(line)) = line else { break };
        let said = async {
            connection.write_all(&line).await?;
            connection.flush().await
        };
        if said.await.is_err() {
            return;
        }
    }
    let _ = timeout(CLOSE_TIMEOUT, connection.shutdown()).await;
}
