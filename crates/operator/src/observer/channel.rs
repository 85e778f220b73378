//! How lines reach who follows a job.
//!
//! Whoever can, asks for an upgrade of its connection to [`LINES`]: after the answer there is nothing but lines, and this side keeps
//! the connection and its keys, where an answer of HTTP would keep buffers for requests that never come. Others get the lines as the body of
//! an answer.

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

use super::follow::Line;
use crate::http::{IdleTls, Place, Upgraded};

/// What a connection is upgraded to: lines from this side, nothing from the other.
const LINES: &str = "trainyard-lines";
/// How long the other side may take to hear that it is over.
const GOODBYE: Duration = Duration::from_secs(1);

/// The way back to who asks.
pub(super) struct Channel(Option<(OnUpgrade, Place)>);

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
                .zip(parts.extensions.get::<Place>().cloned()),
        ))
    }
}

impl Channel {
    /// Sends lines until there are no more, or nobody hears them.
    pub(super) fn send(self, lines: impl Stream<Item = Line> + Send + 'static) -> Response {
        let Some((upgrade, place)) = self.0 else {
            let kind = [(header::CONTENT_TYPE, "application/x-ndjson")];
            return (kind, Body::from_stream(lines)).into_response();
        };
        // In boxes: what is moved into a task takes its place twice and more for as long as the task lives.
        let lines = Box::pin(lines);
        tokio::spawn(async move {
            let _place = place;
            match connection(upgrade).await {
                Ok(connection) => carry(connection, lines).await,
                Err(problem) => tracing::debug!(problem, "a client did not go on to lines"),
            }
        });
        let head = [(header::CONNECTION, "upgrade"), (header::UPGRADE, LINES)];
        (StatusCode::SWITCHING_PROTOCOLS, head).into_response()
    }
}

/// What is below HTTP, without the buffers around it: the client has said all that it had to say.
async fn connection(upgrade: OnUpgrade) -> Result<Box<IdleTls>, String> {
    let upgraded = upgrade.await.map_err(|error| error.to_string())?;
    let parts = upgraded
        .downcast::<Upgraded<IdleTls>>()
        .map_err(|_| "it is no connection of the observer")?;
    Ok(Box::new(parts.io.into_inner().into_inner()))
}

async fn carry<C>(mut connection: Box<C>, mut lines: impl Stream<Item = Line> + Unpin)
where
    C: AsyncRead + AsyncWrite + Unpin,
{
    let mut word = [0];
    loop {
        let line = tokio::select! {
            line = lines.next() => line,
            // Gone, or one that does not know what it has asked for.
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
    // Who is gone need not be told.
    let _ = timeout(GOODBYE, connection.shutdown()).await;
}
