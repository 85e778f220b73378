//! Serves the API to pods over TLS: authenticates them by their tokens, and authorizes what they do
//! by roles.

mod authenticate;
mod authorize;
mod unauthenticated;

use std::convert::Infallible;
use std::io;
use std::net::Ipv4Addr;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use http::{Method, Request, header};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use kube::client::Body;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tower::Service;

use super::query::Query;
use super::route::{self, Route};
use super::{Answer, discovery, encode};
use crate::api::Api;
use crate::api::error::StatusError;
use crate::api::selector;
use crate::api::status;
use authenticate::{Caller, authenticate};
use authorize::{RequestAttributes, is_allowed};
use unauthenticated::{Authenticated, UnauthenticatedConnections};

/// How long a TLS handshake may take.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// How long the head of a request may take, from the end of the one before or of the handshake.
const HEAD_TIMEOUT: Duration = Duration::from_secs(30);
/// How long a body may take.
const BODY_TIMEOUT: Duration = Duration::from_mins(1);
/// How long to wait for other connections to end when no more can be accepted.
const ACCEPT_RETRY_INTERVAL: Duration = Duration::from_millis(100);
/// The same limit as that of other API servers.
const MAX_BODY_BYTES: usize = 3 << 20;

impl Api {
    /// Serves pods on a socket at this address, for as long as it is polled.
    pub async fn serve_pods(&self, listener: TcpListener, address: Ipv4Addr) -> io::Result<()> {
        let tls = self.shared.authority.server(address).map_err(io::Error::other)?;
        let acceptor = TlsAcceptor::from(tls);
        let mut connections = JoinSet::new();
        let mut unauthenticated = UnauthenticatedConnections::default();
        loop {
            let Ok((tcp, _)) = listener.accept().await else {
                tokio::time::sleep(ACCEPT_RETRY_INTERVAL).await;
                continue;
            };
            while connections.try_join_next().is_some() {}
            let authenticated = Authenticated::default();
            let task = connections.spawn(serve(self.clone(), acceptor.clone(), tcp, authenticated.clone()));
            unauthenticated.add(task, authenticated);
        }
    }

    async fn handle(
        &self,
        request: Request<Incoming>,
        authenticated: &Authenticated,
    ) -> Result<Answer, StatusError> {
        let (mut head, body) = request.into_parts();
        let caller = authenticate(&self.shared, &head.headers).ok_or_else(status::unauthorized)?;
        authenticated.set();
        // It is not needed any more.
        head.headers.remove(header::AUTHORIZATION);
        // Everyone who is authenticated may use discovery, as on every cluster.
        if head.method == Method::GET
            && let Some(answer) = discovery::answer(&self.shared, head.uri.path())
        {
            return Ok(answer);
        }
        self.authorize(&caller, &head)?;
        let late = |_| status::bad_request("the body did not come in time");
        let body = tokio::time::timeout(BODY_TIMEOUT, read(body))
            .await
            .map_err(late)??;
        let request = Request::from_parts(head, Body::from(body));
        let Ok(answer) = self.clone().call(request).await;
        Ok(answer)
    }

    /// Refuses what no role allows the caller.
    fn authorize(&self, caller: &Caller, head: &http::request::Parts) -> Result<(), StatusError> {
        let path = route::decoded(head.uri.path());
        let route = Route::read(&self.shared.kinds, &path)?;
        let query = Query::read(head.uri.query().unwrap_or_default())?;
        let resource = match route.subresource {
            Some(subresource) => format!("{}/{subresource}", route.kind.plural),
            None => route.kind.plural.to_string(),
        };
        let verb = verb(&head.method, route.name.is_some(), query.watch);
        // A field selector for a name limits the request to that object.
        let selected = match (verb, &query.field_selector) {
            ("list" | "watch", Some(fields)) => selector::name_in(fields)?,
            _ => None,
        };
        let name = route.name.or(selected.as_deref());
        // exec is also allowed by `create`, whatever the method.
        let also = (&*resource == "pods/exec").then_some("create");
        for verb in [verb].into_iter().chain(also) {
            let request = RequestAttributes {
                verb,
                group: &route.kind.group,
                resource: &resource,
                namespace: route.namespace,
                name,
            };
            if !is_allowed(&self.shared, caller, &request) {
                let scope = match route.namespace {
                    "" => "at the cluster scope".to_owned(),
                    namespace => format!("in the namespace {namespace:?}"),
                };
                let why = format!(
                    "User {:?} cannot {verb} resource {resource:?} in API group {:?} {scope}",
                    caller.to_string(),
                    route.kind.group,
                );
                return Err(status::forbidden_to(&route.kind, name, &why));
            }
        }
        Ok(())
    }
}

async fn read(mut body: Incoming) -> Result<Vec<u8>, StatusError> {
    let mut bytes = Vec::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| status::bad_request(format!("the body can't be read: {error}")))?;
        bytes.extend_from_slice(frame.data_ref().map(AsRef::as_ref).unwrap_or_default());
        if bytes.len() > MAX_BODY_BYTES {
            return Err(status::bad_request("the body is too long"));
        }
    }
    Ok(bytes)
}

fn verb(method: &Method, is_named: bool, is_watch: bool) -> &'static str {
    match (method.as_str(), is_named) {
        // A watch of one object is a watch, not a get.
        ("GET" | "HEAD", _) if is_watch => "watch",
        ("GET" | "HEAD", true) => "get",
        ("GET" | "HEAD", false) => "list",
        ("POST", _) => "create",
        ("PUT", _) => "update",
        ("PATCH", _) => "patch",
        ("DELETE", true) => "delete",
        ("DELETE", false) => "deletecollection",
        _ => "",
    }
}

async fn serve(api: Api, acceptor: TlsAcceptor, tcp: TcpStream, authenticated: Authenticated) {
    if let Ok(Ok(stream)) = tokio::time::timeout(HANDSHAKE_TIMEOUT, acceptor.accept(tcp)).await {
        answer(api, stream, authenticated).await;
    }
}

fn answer(api: Api, stream: TlsStream<TcpStream>, authenticated: Authenticated) -> BoxFuture<'static, ()> {
    let answer = service_fn(move |request| {
        let (api, authenticated) = (api.clone(), authenticated.clone());
        async move {
            let answer = api.handle(request, &authenticated).await;
            Ok::<_, Infallible>(answer.unwrap_or_else(|refusal| encode::refusal(&refusal)))
        }
    });
    let serving = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .serve_connection(TokioIo::new(stream), answer)
        .with_upgrades();
    Box::pin(serving.map(drop))
}
