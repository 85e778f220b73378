//! The door for pods: the same API over TLS, for those whose token says who they are, and for what they may.

mod may;
mod who;

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
use hyper_util::rt::TokioIo;
use kube::client::Body;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tower::Service;

use super::super::Api;
use super::super::status::{self, Refusal};
use super::query::Query;
use super::route::{self, Route};
use super::{Answer, encode};
use may::Wish;

/// How long one may take to agree on keys.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// What to do with connections that can't be accepted is to wait until others have gone.
const NO_ROOM: Duration = Duration::from_millis(100);
/// As much as a server takes.
const LONGEST_BODY: usize = 3 << 20;

impl Api {
    /// Serves pods on a socket at this address, for as long as it is polled.
    pub async fn serve_pods(&self, listener: TcpListener, address: Ipv4Addr) -> io::Result<()> {
        let tls = self.shared.authority.server(address).map_err(io::Error::other)?;
        let acceptor = TlsAcceptor::from(tls);
        let mut connections = JoinSet::new();
        loop {
            let Ok((tcp, _)) = listener.accept().await else {
                tokio::time::sleep(NO_ROOM).await;
                continue;
            };
            while connections.try_join_next().is_some() {}
            connections.spawn(serve(self.clone(), acceptor.clone(), tcp));
        }
    }

    async fn let_in(&self, request: Request<Incoming>) -> Result<Answer, Refusal> {
        let (mut head, body) = request.into_parts();
        let caller = who::calls(&self.shared, &head.headers).ok_or_else(status::unauthorized)?;
        // Nobody behind the door needs it.
        head.headers.remove(header::AUTHORIZATION);
        self.permit(&caller, &head)?;
        let body = read(body).await?;
        let request = Request::from_parts(head, Body::from(body));
        let Ok(answer) = self.clone().call(request).await;
        Ok(answer)
    }

    /// Refuses what no role lets the caller do.
    fn permit(&self, caller: &who::Caller, head: &http::request::Parts) -> Result<(), Refusal> {
        let path = route::decoded(head.uri.path());
        let route = Route::read(&self.shared.kinds, &path)?;
        let query = Query::read(head.uri.query().unwrap_or_default())?;
        let resource = match route.subresource {
            Some(subresource) => format!("{}/{subresource}", route.kind.plural),
            None => route.kind.plural.to_string(),
        };
        let verb = verb(&head.method, route.name.is_some(), query.watch);
        // To run a command is more than to look, however the request is made.
        let also = (&*resource == "pods/exec").then_some("create");
        for verb in [verb].into_iter().chain(also) {
            let wish = Wish {
                verb,
                group: &route.kind.group,
                resource: &resource,
                namespace: route.namespace,
                name: route.name,
            };
            if !may::does(&self.shared, caller, &wish) {
                let why = format!(
                    "User {:?} cannot {verb} resource {resource:?} in API group {:?} in the namespace {:?}",
                    caller.to_string(),
                    route.kind.group,
                    route.namespace
                );
                return Err(status::forbidden(
                    &route.kind,
                    route.name.unwrap_or_default(),
                    &why,
                ));
            }
        }
        Ok(())
    }
}

/// All of a body, unless it is longer than any should be.
async fn read(mut body: Incoming) -> Result<Vec<u8>, Refusal> {
    let mut bytes = Vec::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| status::bad_request(format!("the body can't be read: {error}")))?;
        bytes.extend_from_slice(frame.data_ref().map(AsRef::as_ref).unwrap_or_default());
        if bytes.len() > LONGEST_BODY {
            return Err(status::bad_request("the body is too long"));
        }
    }
    Ok(bytes)
}

fn verb(method: &Method, is_named: bool, is_watch: bool) -> &'static str {
    match (method.as_str(), is_named) {
        ("GET" | "HEAD", true) => "get",
        ("GET" | "HEAD", false) if is_watch => "watch",
        ("GET" | "HEAD", false) => "list",
        ("POST", _) => "create",
        ("PUT", _) => "update",
        ("PATCH", _) => "patch",
        ("DELETE", true) => "delete",
        ("DELETE", false) => "deletecollection",
        // No role has it.
        _ => "",
    }
}

async fn serve(api: Api, acceptor: TlsAcceptor, tcp: TcpStream) {
    if let Ok(Ok(stream)) = tokio::time::timeout(HANDSHAKE, acceptor.accept(tcp)).await {
        answer(api, stream).await;
    }
}

/// Answers what comes over a connection. Who has gone does not want to know.
fn answer(api: Api, stream: TlsStream<TcpStream>) -> BoxFuture<'static, ()> {
    let answer = service_fn(move |request| {
        let api = api.clone();
        async move {
            let answer = api.let_in(request).await;
            Ok::<_, Infallible>(answer.unwrap_or_else(|refusal| encode::refusal(&refusal)))
        }
    });
    let serving = http1::Builder::new()
        .serve_connection(TokioIo::new(stream), answer)
        .with_upgrades();
    Box::pin(serving.map(drop))
}
