//! `exec`, over a WebSocket.

mod streams;

use futures::future::TryFutureExt;
use http::header::{self, HeaderValue};
use http::{HeaderMap, Request, StatusCode};
use http_body_util::{Either, Full};
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::handshake::server::create_response;
use tokio_tungstenite::tungstenite::protocol::Role;

use super::Answer;
use super::container_location::ContainerLocation;
use super::query::Query;
use crate::api::Api;
use crate::api::error::StatusError;
use crate::api::semantics::Target;
use crate::api::status;
use streams::StreamOptions;

/// Supported protocols, best first, and whether they can close a single stream.
const PROTOCOLS: [(&str, bool); 2] = [("v5.channel.k8s.io", true), ("v4.channel.k8s.io", false)];

pub(super) fn exec(
    api: &Api,
    target: &Target<'_>,
    name: &str,
    query: &Query,
    head: &http::request::Parts,
) -> Result<Answer, StatusError> {
    let location = ContainerLocation::find(api, target, name, query.container.as_deref())?;
    let (mut answer, ends_streams) = accepted(head)?;
    if !(query.stdin || query.stdout || query.stderr) {
        return Err(status::bad_request(
            "you must specify at least 1 of stdin, stdout, stderr",
        ));
    }
    let connection = head.extensions.get::<OnUpgrade>().cloned();
    let connection = connection
        .ok_or_else(|| status::internal("the connection can't change to WebSocket: use HTTP/1.1"))?;
    let start = location.node.exec(
        location.pod(),
        &location.container,
        query.command.clone(),
        query.tty,
    );
    let start =
        start.ok_or_else(|| status::internal(format!("container not found ({:?})", location.container)))?;
    let wanted = StreamOptions {
        stdin: query.stdin,
        stdout: query.stdout,
        stderr: query.stderr,
        terminal: query.tty,
        ends_streams,
    };
    tokio::spawn(
        async move {
            let connection = TokioIo::new(connection.await?);
            let socket = WebSocketStream::from_raw_socket(connection, Role::Server, None).await;
            streams::serve(socket, wanted, start).await;
            Ok(())
        }
        .inspect_err(
            |error: &hyper::Error| tracing::debug!(%error, "a client did not wait for its connection"),
        ),
    );
    *answer.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    Ok(answer)
}

/// The answer that switches to a WebSocket, and whether a single stream can be closed on it.
fn accepted(head: &http::request::Parts) -> Result<(Answer, bool), StatusError> {
    let upgrade = head.headers.get(header::UPGRADE);
    let Some(upgrade) = upgrade.and_then(|upgrade| upgrade.to_str().ok()) else {
        return Err(status::bad_request("Upgrade request required"));
    };
    if !upgrade.eq_ignore_ascii_case("websocket") {
        return Err(status::bad_request(format!(
            "the embedded cluster does not speak {upgrade}: connect with a WebSocket"
        )));
    }
    let (protocol, ends_streams) = protocol(&head.headers)?;
    let mut request = Request::new(());
    request.method_mut().clone_from(&head.method);
    *request.version_mut() = head.version;
    request.headers_mut().clone_from(&head.headers);
    let answer = create_response(&request).map_err(|error| status::bad_request(error.to_string()))?;
    let mut answer = answer.map(|()| Either::Left(Full::default()));
    answer
        .headers_mut()
        .insert(header::SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static(protocol));
    Ok((answer, ends_streams))
}

fn protocol(headers: &HeaderMap) -> Result<(&'static str, bool), StatusError> {
    let offered = headers.get_all(header::SEC_WEBSOCKET_PROTOCOL);
    let offered: Vec<&str> = offered
        .iter()
        .filter_map(|offer| offer.to_str().ok())
        .flat_map(|offer| offer.split(',').map(str::trim))
        .collect();
    let chosen = PROTOCOLS.into_iter().find(|(name, _)| offered.contains(name));
    chosen.ok_or_else(|| {
        let known = PROTOCOLS.map(|(name, _)| name).join(", ");
        status::bad_request(format!(
            "none of the protocols {offered:?} is spoken here: use one of {known}"
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[rstest::rstest]
    #[case(&["v4.channel.k8s.io, v5.channel.k8s.io"], Some("v5.channel.k8s.io"))]
    #[case(&["channel.k8s.io", "v4.channel.k8s.io"], Some("v4.channel.k8s.io"))]
    #[case(&["channel.k8s.io"], None)]
    #[case(&[], None)]
    fn the_best_protocol_that_both_know_is_spoken(
        #[case] offers: &[&'static str],
        #[case] spoken: Option<&str>,
    ) {
        let mut headers = HeaderMap::new();
        for offer in offers {
            headers.append(header::SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static(offer));
        }
        assert_eq!(protocol(&headers).ok().map(|(name, _)| name), spoken);
    }
}
