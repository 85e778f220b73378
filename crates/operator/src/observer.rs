//! The observer: it tells pods the state of the other roles of their job, the moment it changes.
//!
//! Every replica serves it from its warm index, leader or not, so that jobs start also while no
//! replica leads. A caller shows the token of its pod's service account, made for the audience
//! `trainyard`. It may see the job that owns this pod, and nothing else.
//!
//! | Request | Answer |
//! |---|---|
//! | `GET /v1/jobs/{namespace}/{name}` | The job at this moment, as JSON. |
//! | `GET /v1/jobs/{namespace}/{name}?watch=true` | The same, a line for each change. |
//! | `GET /v1/jobs/{namespace}/{name}/start?role={role}` | Lines that say whether programs of the role may start, until they may or never will. |
//! | `GET /v1/jobs/{namespace}/{name}/hosts` | Lines that say how many pods each role has, and which of them are ready. |
//! | `GET /v1/jobs/{namespace}/{name}/drain` | Lines that say whether the caller is to leave. |
//! | `PUT /v1/jobs/{namespace}/{name}/drain` | Takes how far the caller is with leaving. |
//! | `GET /v1/jobs/{namespace}/{name}/script` | Lines that say which script the caller is to run. |
//! | `PUT /v1/jobs/{namespace}/{name}/script` | Takes how the caller's attempt of a script ended. |
//! | `PUT /v1/jobs/{namespace}/{name}/progress` | Takes the progress that programs of the caller report. |
//!
//! The leader takes reports, because it writes the status, and says which script is to run. Another
//! replica answers 421, and the caller tries another connection, which leads to another replica. So
//! replicas need neither connections to each other nor their addresses. The latest values are lost
//! with a leader, and are reported again.
//!
//! Empty lines show that the server is alive. A caller that wants lines may ask for an upgrade of
//! its connection to `trainyard-lines`, as agents do: then only lines follow the head of the
//! answer.

mod ares;
mod caller;
mod channel;
mod connections;
mod drain;
mod feed;
mod follow;
mod keys;
mod progress;
mod report;
mod script;
mod token;

use std::sync::Arc;

use axum::Router;
use axum::extract::{Path, Query, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, put};
use serde::Deserialize;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use trainyard_contract::observer::{self as paths, StartQuery};

use crate::certs::ServingCert;
use crate::clock::Clock;
use crate::http::{IdleTls, Purpose, serve_connections};
use crate::index::{Index, JobKey};
use crate::leader::Leadership;
use crate::settings::SharedSettings;

pub(crate) use ares::AresObserver;
pub use ares::{ARES_OBSERVER_PORT, ARES_OBSERVER_SERVICE};
use caller::Caller;
use channel::Channel;
use connections::PodConnections;
pub use drain::DrainReports;
use feed::Feeds;
pub(crate) use keys::{ClusterKeys, Keys};
pub use script::Launchers;
use token::{PodIdentity, TokenError};

/// The Service through which pods reach the observer, as the manifests name it.
pub const OBSERVER_SERVICE: &str = "trainyard-observer";

pub(crate) struct Observer {
    index: Arc<Index>,
    feeds: Arc<Feeds>,
    keys: Arc<dyn Keys>,
    clock: Arc<dyn Clock>,
    shutdown: CancellationToken,
    leader: Option<(Leadership, Wake)>,
    connections: PodConnections,
}

/// Has a job reconciled.
pub(crate) type Wake = Arc<dyn Fn(JobKey) + Send + Sync>;

impl Observer {
    /// Makes an observer for callers whose tokens were signed with one of `keys`.
    pub(crate) fn new(
        index: Arc<Index>,
        settings: SharedSettings,
        keys: Arc<dyn Keys>,
        clock: Arc<dyn Clock>,
        shutdown: CancellationToken,
    ) -> Self {
        let feeds = Arc::new(Feeds::new(index.clone(), settings, clock.clone()));
        Self {
            index,
            feeds,
            keys,
            clock,
            shutdown,
            leader: None,
            connections: PodConnections::default(),
        }
    }

    /// Has a job reconciled, if this replica leads.
    fn wake(&self) -> Result<&Wake, ErrorResponse> {
        let leads = |(leader, _): &&(Leadership, Wake)| leader.may_write();
        let leader = self.leader.as_ref().filter(leads);
        leader.map(|(_, wake)| wake).ok_or_else(|| {
            let other = "another replica leads: ask again on another connection".to_owned();
            ErrorResponse(StatusCode::MISDIRECTED_REQUEST, other)
        })
    }

    /// Takes reports while this replica leads.
    #[must_use]
    pub(crate) fn taking_progress(mut self, leadership: Leadership, wake: Wake) -> Self {
        self.leader = Some((leadership, wake));
        self
    }

    /// Serves over TLS until the shutdown, with the loaded certificate.
    pub(crate) async fn serve(
        self,
        listener: TcpListener,
        certificate: Arc<ServingCert>,
    ) -> Result<(), rustls::Error> {
        let mut config = certificate.server_config()?;
        // A connection has one request, which lasts: HTTP/2 would only cost memory.
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        without_sessions(&mut config);
        let config = Arc::new(config);
        let shutdown = self.shutdown.clone();
        serve_connections(
            listener,
            move |stream| IdleTls::accept(config.clone(), stream),
            self.router(),
            Purpose::Agents,
            shutdown,
        )
        .await;
        Ok(())
    }

    fn router(self) -> Router {
        let of_job = |path: fn(&str, &str) -> String| path("{namespace}", "{name}");
        Router::new()
            .route(&of_job(paths::job), get(job))
            .route(&of_job(paths::start), get(start))
            .route(&of_job(paths::hosts), get(hosts))
            .route(&of_job(paths::progress), put(progress::put_progress))
            .route(&of_job(paths::drain), get(drain).put(drain::put_drain))
            .route(
                &of_job(paths::script),
                get(script::get_script).put(script::put_script),
            )
            .with_state(Arc::new(self))
    }

    /// Returns the pod that calls, if it is one of the job.
    async fn authorize(&self, caller: &Caller, key: &JobKey) -> Result<PodIdentity, ErrorResponse> {
        let Some(token) = caller.token() else {
            return Err(ErrorResponse::unknown(&"show the token of your service account"));
        };
        let pod = match token::authenticate(token, &*self.keys, self.clock.now()).await {
            Ok(pod) => pod,
            Err(TokenError::Keys(error)) => return Err(ErrorResponse::later(&error)),
            Err(error) => return Err(ErrorResponse::unknown(&error)),
        };
        if !self.index.is_listed_since(None) {
            return Err(ErrorResponse::later(&"jobs and pods have not been listed yet"));
        }
        let belongs = *pod.namespace == *key.namespace && self.index.has_pod(key, &pod.pod, &pod.uid);
        if belongs {
            if let Some(connection) = caller.connection() {
                self.connections.keep(&pod.uid, connection);
            }
            Ok(pod)
        } else {
            Err(ErrorResponse(
                StatusCode::FORBIDDEN,
                format!("pod {:?} is not one of job {key}", pod.pod),
            ))
        }
    }
}

impl Observer {
    /// Returns the pod that calls, if it takes part in what the job does now. One of a former
    /// attempt may say how it ended, and is told nothing.
    async fn admit(&self, caller: &Caller, key: &JobKey) -> Result<PodIdentity, ErrorResponse> {
        let pod = self.authorize(caller, key).await?;
        if self.index.is_former_pod(key, &pod.pod, &pod.uid) {
            let why = format!(
                "pod {:?} is of a former attempt: all pods of its role start anew",
                pod.pod
            );
            return Err(ErrorResponse(StatusCode::FORBIDDEN, why));
        }
        Ok(pod)
    }
}

/// A client that comes back makes a full handshake: to keep sessions would cost more.
fn without_sessions(config: &mut rustls::ServerConfig) {
    config.session_storage = Arc::new(rustls::server::NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
}

struct ErrorResponse(StatusCode, String);

impl ErrorResponse {
    fn unknown(why: &impl ToString) -> Self {
        Self(StatusCode::UNAUTHORIZED, why.to_string())
    }

    fn later(why: &impl ToString) -> Self {
        Self(StatusCode::SERVICE_UNAVAILABLE, why.to_string())
    }
}

impl IntoResponse for ErrorResponse {
    fn into_response(self) -> Response {
        // Others may need the connection.
        (self.0, [(header::CONNECTION, "close")], self.1 + "\n").into_response()
    }
}

#[derive(Deserialize)]
struct JobPath {
    namespace: String,
    name: String,
}

#[derive(Deserialize)]
struct WatchQuery {
    #[serde(default)]
    watch: bool,
}

async fn job(
    State(observer): State<Arc<Observer>>,
    Path(JobPath { namespace, name }): Path<JobPath>,
    Query(WatchQuery { watch }): Query<WatchQuery>,
    caller: Caller,
    channel: Channel,
) -> Result<Response, ErrorResponse> {
    let key = JobKey::new(&namespace, &name);
    observer.admit(&caller, &key).await?;
    if watch {
        let feed = observer.feeds.follow(&key);
        return Ok(channel.send(follow::changes(feed, observer.shutdown.clone())));
    }
    match observer.feeds.observe_job(&key) {
        Some(job) => Ok(axum::Json(&*job).into_response()),
        None => Err(ErrorResponse(
            StatusCode::NOT_FOUND,
            format!("there is no job {key}"),
        )),
    }
}

async fn start(
    State(observer): State<Arc<Observer>>,
    Path(JobPath { namespace, name }): Path<JobPath>,
    Query(StartQuery { role }): Query<StartQuery>,
    caller: Caller,
    channel: Channel,
) -> Result<Response, ErrorResponse> {
    let key = JobKey::new(&namespace, &name);
    observer.admit(&caller, &key).await?;
    let feed = observer.feeds.follow(&key);
    Ok(channel.send(follow::start(feed, role, observer.shutdown.clone())))
}

async fn hosts(
    State(observer): State<Arc<Observer>>,
    Path(JobPath { namespace, name }): Path<JobPath>,
    caller: Caller,
    channel: Channel,
) -> Result<Response, ErrorResponse> {
    let key = JobKey::new(&namespace, &name);
    observer.admit(&caller, &key).await?;
    let feed = observer.feeds.follow(&key);
    Ok(channel.send(follow::hosts(feed, observer.shutdown.clone())))
}

async fn drain(
    State(observer): State<Arc<Observer>>,
    Path(JobPath { namespace, name }): Path<JobPath>,
    caller: Caller,
    channel: Channel,
) -> Result<Response, ErrorResponse> {
    let key = JobKey::new(&namespace, &name);
    let pod = observer.admit(&caller, &key).await?;
    let feed = observer.feeds.follow(&key);
    Ok(channel.send(follow::drain(feed, pod.pod, observer.shutdown.clone())))
}

#[cfg(test)]
mod tests;
