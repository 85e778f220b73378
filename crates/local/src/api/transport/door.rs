//! The door for pods: the same API over TLS, for those whose token says who they are, and for what they may.

mod may;
mod newcomers;
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
use hyper_util::rt::{TokioIo, TokioTimer};
use kube::client::Body;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tower::Service;

use super::super::Api;
use super::super::error::Refusal;
use super::super::selector;
use super::super::status;
use super::query::Query;
use super::route::{self, Route};
use super::{Answer, discovery, encode};
use may::Wish;
use newcomers::{Known, Newcomers};

/// How long one may take to agree on keys.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// How long the head of a request may take, from the end of the one before or of the handshake.
const HEAD: Duration = Duration::from_secs(30);
/// How long a body may take.
const BODY: Duration = Duration::from_mins(1);
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
        let mut newcomers = Newcomers::default();
        loop {
            let Ok((tcp, _)) = listener.accept().await else {
                tokio::time::sleep(NO_ROOM).await;
                continue;
            };
            while connections.try_join_next().is_some() {}
            let known = Known::default();
            let task = connections.spawn(serve(self.clone(), acceptor.clone(), tcp, known.clone()));
            newcomers.add(task, known);
        }
    }

    async fn let_in(&self, request: Request<Incoming>, known: &Known) -> Result<Answer, Refusal> {
        let (mut head, body) = request.into_parts();
        let caller = who::calls(&self.shared, &head.headers).ok_or_else(status::unauthorized)?;
        known.note();
        // Nobody behind the door needs it.
        head.headers.remove(header::AUTHORIZATION);
        // What is served is no secret to those who are known, as on every cluster.
        if head.method == Method::GET
            && let Some(answer) = discovery::answer(&self.shared, head.uri.path())
        {
            return Ok(answer);
        }
        self.permit(&caller, &head)?;
        let late = |_| status::bad_request("the body did not come in time");
        let body = tokio::time::timeout(BODY, read(body)).await.map_err(late)??;
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
        // Who selects one object by its name asks for that one alone.
        let selected = match (verb, &query.field_selector) {
            ("list" | "watch", Some(fields)) => selector::name_in(fields)?,
            _ => None,
        };
        let name = route.name.or(selected.as_deref());
        // To run a command is more than to look, however the request is made.
        let also = (&*resource == "pods/exec").then_some("create");
        for verb in [verb].into_iter().chain(also) {
            let wish = Wish {
                verb,
                group: &route.kind.group,
                resource: &resource,
                namespace: route.namespace,
                name,
            };
            if !may::does(&self.shared, caller, &wish) {
                let place = match route.namespace {
                    "" => "at the cluster scope".to_owned(),
                    namespace => format!("in the namespace {namespace:?}"),
                };
                let why = format!(
                    "User {:?} cannot {verb} resource {resource:?} in API group {:?} {place}",
                    caller.to_string(),
                    route.kind.group,
                );
                return Err(status::forbidden_to(&route.kind, name, &why));
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
        // To follow one object is more than to look at it once.
        ("GET" | "HEAD", _) if is_watch => "watch",
        ("GET" | "HEAD", true) => "get",
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

async fn serve(api: Api, acceptor: TlsAcceptor, tcp: TcpStream, known: Known) {
    if let Ok(Ok(stream)) = tokio::time::timeout(HANDSHAKE, acceptor.accept(tcp)).await {
        answer(api, stream, known).await;
    }
}

/// Answers what comes over a connection. Who has gone does not want to know.
fn answer(api: Api, stream: TlsStream<TcpStream>, known: Known) -> BoxFuture<'static, ()> {
    let answer = service_fn(move |request| {
        let (api, known) = (api.clone(), known.clone());
        async move {
            let answer = api.let_in(request, &known).await;
            Ok::<_, Infallible>(answer.unwrap_or_else(|refusal| encode::refusal(&refusal)))
        }
    });
    let serving = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD)
        .serve_connection(TokioIo::new(stream), answer)
        .with_upgrades();
    Box::pin(serving.map(drop))
}
