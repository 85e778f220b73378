//! The observer: tells pods what became of the other roles of their job, the moment it happens.
//!
//! Every replica serves it from its warm index, leader or not, so that a job whose leader has just died starts all the
//! same. A caller shows the token of its pod's service account, made for the audience `trainyard`; what it may see is
//! the job that owns this very pod, and nothing else.
//!
//! | Request | Answer |
//! |---|---|
//! | `GET /v1/jobs/{namespace}/{name}` | The job at this moment, as JSON. |
//! | `GET /v1/jobs/{namespace}/{name}?watch=true` | The same, a line for each change. |
//! | `GET /v1/jobs/{namespace}/{name}/start?role={role}` | Lines that say whether programs of the role may start, until they may, or never will. |
//! | `GET /v1/jobs/{namespace}/{name}/hosts` | Lines that say how many pods each role has, and which of them are ready. |
//! | `PUT /v1/jobs/{namespace}/{name}/progress` | Takes what programs of the caller say of their progress. |
//!
//! Progress is taken by the replica that leads, which writes the status: another answers 421, and the caller asks again on another
//! connection, which leads to another replica. That needs neither a connection between replicas nor their addresses, and
//! what was taken is where it is written. A leader that dies takes the latest values with it, and they are said again.
//!
//! Empty lines are signs of life. Who asks for lines may ask for an upgrade of its connection to `trainyard-lines`, as agents
//! do: then nothing follows the head of the answer but lines.

mod ares;
mod caller;
mod channel;
mod feed;
mod follow;
mod keys;
mod progress;
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

use crate::certs::ServingCert;
use crate::clock::Clock;
use crate::http::{IdleTls, Purpose, serve_connections};
use crate::index::{Index, JobKey};
use crate::leader::Leadership;
use crate::settings::SharedSettings;

pub use ares::{ARES_OBSERVER_PORT, ARES_OBSERVER_SERVICE, AresObserver};
use caller::Caller;
use channel::Channel;
use feed::Feeds;
pub use keys::{ClusterKeys, KeyError, Keys};
pub use token::{Holder, TokenError};

/// The Service through which pods reach the observer, as the manifests name it.
pub const OBSERVER_SERVICE: &str = "trainyard-observer";

/// What the observer looks at.
pub struct Observer {
    index: Arc<Index>,
    feeds: Arc<Feeds>,
    keys: Arc<dyn Keys>,
    clock: Arc<dyn Clock>,
    shutdown: CancellationToken,
    leader: Option<(Leadership, Wake)>,
}

/// Has a job looked at.
pub type Wake = Arc<dyn Fn(JobKey) + Send + Sync>;

impl Observer {
    /// An observer of what an index knows, for those whose tokens were signed with some keys.
    pub fn new(
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
        }
    }

    /// The same, which takes progress while it leads.
    #[must_use]
    pub fn taking_progress(mut self, leadership: Leadership, wake: Wake) -> Self {
        self.leader = Some((leadership, wake));
        self
    }

    /// Serves over TLS until the shutdown, with whatever certificate is loaded.
    pub async fn serve(
        self,
        listener: TcpListener,
        certificate: Arc<ServingCert>,
    ) -> Result<(), rustls::Error> {
        let mut config = certificate.server_config()?;
        // One request a connection, which lasts: HTTP/2 would only cost local.
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        // A client that comes back makes its keys anew; remembering each would cost more than that.
        config.session_storage = Arc::new(rustls::server::NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
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
        Router::new()
            .route("/v1/jobs/{namespace}/{name}", get(job))
            .route("/v1/jobs/{namespace}/{name}/start", get(start))
            .route("/v1/jobs/{namespace}/{name}/hosts", get(hosts))
            .route("/v1/jobs/{namespace}/{name}/progress", put(progress::take))
            .with_state(Arc::new(self))
    }

    /// The pod of a job that calls.
    async fn admit(&self, caller: &Caller, key: &JobKey) -> Result<Holder, Refused> {
        let Some(token) = caller.token() else {
            return Err(Refused::unknown(&"show the token of your service account"));
        };
        let holder = match token::holder(token, &*self.keys, self.clock.now()).await {
            Ok(holder) => holder,
            Err(TokenError::Keys(error)) => return Err(Refused::later(&error)),
            Err(error) => return Err(Refused::unknown(&error)),
        };
        if !self.index.is_listed_since(None) {
            return Err(Refused::later(&"jobs and pods have not been listed yet"));
        }
        let belongs =
            *holder.namespace == *key.namespace && self.index.has_pod(key, &holder.pod, &holder.uid);
        if belongs {
            caller.keep();
            Ok(holder)
        } else {
            Err(Refused(
                StatusCode::FORBIDDEN,
                format!("pod {:?} is not one of job {key}", holder.pod),
            ))
        }
    }
}

/// Why somebody is not told anything.
struct Refused(StatusCode, String);

impl Refused {
    fn unknown(why: &impl ToString) -> Self {
        Self(StatusCode::UNAUTHORIZED, why.to_string())
    }

    fn later(why: &impl ToString) -> Self {
        Self(StatusCode::SERVICE_UNAVAILABLE, why.to_string())
    }
}

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        // Who is not known has no use for the connection, and others may have.
        (self.0, [(header::CONNECTION, "close")], self.1 + "\n").into_response()
    }
}

#[derive(Deserialize)]
struct Named {
    namespace: String,
    name: String,
}

#[derive(Deserialize)]
struct Wanted {
    #[serde(default)]
    watch: bool,
}

#[derive(Deserialize)]
struct Starting {
    role: String,
}

async fn job(
    State(observer): State<Arc<Observer>>,
    Path(Named { namespace, name }): Path<Named>,
    Query(Wanted { watch }): Query<Wanted>,
    caller: Caller,
    channel: Channel,
) -> Response {
    let key = JobKey::new(&namespace, &name);
    if let Err(refused) = observer.admit(&caller, &key).await {
        return refused.into_response();
    }
    if watch {
        return channel.send(follow::changes(
            observer.feeds.follow(&key),
            observer.shutdown.clone(),
        ));
    }
    match observer.feeds.look(&key) {
        Some(seen) => axum::Json(&*seen).into_response(),
        None => Refused(StatusCode::NOT_FOUND, format!("there is no job {key}")).into_response(),
    }
}

async fn start(
    State(observer): State<Arc<Observer>>,
    Path(Named { namespace, name }): Path<Named>,
    Query(Starting { role }): Query<Starting>,
    caller: Caller,
    channel: Channel,
) -> Response {
    let key = JobKey::new(&namespace, &name);
    match observer.admit(&caller, &key).await {
        Ok(_) => channel.send(follow::start(
            observer.feeds.follow(&key),
            role,
            observer.shutdown.clone(),
        )),
        Err(refused) => refused.into_response(),
    }
}

async fn hosts(
    State(observer): State<Arc<Observer>>,
    Path(Named { namespace, name }): Path<Named>,
    caller: Caller,
    channel: Channel,
) -> Response {
    let key = JobKey::new(&namespace, &name);
    match observer.admit(&caller, &key).await {
        Ok(_) => channel.send(follow::hosts(
            observer.feeds.follow(&key),
            observer.shutdown.clone(),
        )),
        Err(refused) => refused.into_response(),
    }
}

#[cfg(test)]
mod tests;
