//! `Framework` objects: the index is given their declarations, and their status says what is wrong
//! with them.
//!
//! Every replica watches them, because its webhooks need them; the leader writes their status. A
//! change wakes the jobs that name the framework: those that run keep the declaration that they
//! were accepted with. Where the operator may not watch them, there are no declared frameworks.

mod store;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use http::Method;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, ObjectMeta, Time};
use kube::Resource;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::Value;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use trainyard_api::declaration::FrameworkDeclaration;
use trainyard_api::{DeclaredFramework, FieldError, FrameworkStatus};
use trainyard_core::bounds;

use crate::act::request::{Answer, Path, request};
use crate::act::{Class, RequestError};
use crate::backoff::Backoff;
use crate::controller::{Context, Controller, Limits, Queue, Reconcile, ReconcileResult, Requeue};
use crate::index::{Index, JobKey, Source};
use crate::listwatch::{Error, Sink, Target, follow};
use crate::metrics::{Kind, Metrics, Outcome, Subject};
use crate::slim::{SlimMeta, Version};
use store::{Declaration, Store};

const LIMITS: Limits = Limits {
    concurrency: 4,
    backoff: Backoff {
        base: Duration::from_millis(100),
        max: Duration::from_mins(1),
    },
    drain_timeout: Duration::ZERO,
};
/// When a status is tried again that could not be written because this replica did not lead.
const LEADERSHIP_CHECK_DELAY: Duration = Duration::from_secs(1);
/// The longest message of a condition that the API server accepts is a little longer.
const MAX_MESSAGE: usize = 32_000;

/// Has a job reconciled.
pub(crate) type Wake = Arc<dyn Fn(JobKey) + Send + Sync>;

/// Keeps the declarations of the index, and writes the status of `Framework` objects.
pub(crate) struct Declarations {
    context: Context,
    store: Arc<Store>,
    wake: Wake,
}

/// Makes the controller of `Framework` objects.
pub(crate) fn controller(context: Context, wake: Wake) -> Arc<Controller<Declarations>> {
    let (leadership, metrics) = (context.leadership.clone(), context.metrics.clone());
    let declarations = Declarations {
        context,
        store: Arc::default(),
        wake,
    };
    Controller::new(declarations, LIMITS, leadership, metrics)
}

impl Reconcile for Declarations {
    type Key = String;

    fn kind(&self) -> Subject {
        Kind::Framework.into()
    }

    fn watch(&self, queue: &Arc<Queue<String>>) -> JoinSet<()> {
        let target = Target {
            kind: Kind::Framework.as_str(),
            path: DeclaredFramework::url_path(&(), None),
            labels: None,
            metadata_only: false,
            page: 100,
        };
        let feeder = Feeder {
            store: self.store.clone(),
            index: self.context.index.clone(),
            queue: queue.clone(),
            wake: self.wake.clone(),
            metrics: self.context.metrics.clone(),
            failure_is_logged: AtomicBool::new(false),
        };
        let client = self.context.client.clone();
        let mut watches = JoinSet::new();
        watches.spawn(async move {
            // Nobody asks for another list.
            let (_resync, asked) = tokio::sync::watch::channel(0);
            follow(client, target, &feeder, asked).await;
        });
        watches
    }

    /// A status that was decided on an old list is refused by the server.
    async fn catch_up(&self, _: Instant) {}

    fn keys(&self) -> Vec<String> {
        self.store.names()
    }

    async fn reconcile(&self, name: &String, term: &CancellationToken) -> ReconcileResult {
        let (outcome, next) = match self.write_status(name, term).await {
            Ok(false) => (Outcome::Quiet, Requeue::Rest),
            Ok(true) => (Outcome::Acted, Requeue::Rest),
            Err(error) => {
                let next = match &error {
                    RequestError::NotLeader => Requeue::At(Instant::now() + LEADERSHIP_CHECK_DELAY),
                    RequestError::Gone => Requeue::Rest,
                    RequestError::Transient(_, asked) => Requeue::Retry(*asked),
                    _ => Requeue::Retry(None),
                };
                tracing::debug!(
                    framework = name,
                    error = error.message(),
                    "its status can't be written"
                );
                (error.outcome(), next)
            }
        };
        ReconcileResult {
            outcome,
            next,
            cost: Duration::ZERO,
        }
    }
}

impl Declarations {
    /// Writes the status of a framework, unless it is there. Returns true if it was written.
    async fn write_status(&self, name: &str, term: &CancellationToken) -> Result<bool, RequestError> {
        let Some(Declaration { object, errors, .. }) = self.store.get(name) else {
            return Ok(false);
        };
        let status = status(&object, &errors, Time(self.context.clock.now()));
        if object.status.as_ref() == Some(&status) || object.metadata.deletion_timestamp.is_some() {
            return Ok(false);
        }
        let path = Path::framework(name).status().by_us();
        // The server takes the status alone of what is sent.
        let sent = DeclaredFramework {
            status: Some(status.clone()),
            ..object.clone()
        };
        let request = request(Method::PUT, &path, Answer::Metadata, Some(&sent))?;
        self.context
            .send::<IgnoredAny>(Class::Status, request, term)
            .await?;
        self.record_change(&object, &status);
        Ok(true)
    }

    /// Records an event if a declaration has become valid, or other things are wrong with it than
    /// before.
    fn record_change(&self, object: &DeclaredFramework, status: &FrameworkStatus) {
        let before = object.status.as_ref();
        let before = before.and_then(|status| status.conditions.first());
        let Some(condition) = status.conditions.first() else {
            return;
        };
        let is_known =
            |before: &Condition| (&before.reason, &before.message) == (&condition.reason, &condition.message);
        if !before.is_some_and(is_known) {
            let now = self.context.clock.now();
            let recorder = &self.context.recorder;
            recorder.record_framework(&object.metadata, condition, now);
        }
    }
}

/// The status of a declaration. The time of its condition changes only with the condition.
fn status(object: &DeclaredFramework, errors: &[FieldError], now: Time) -> FrameworkStatus {
    let lines: Vec<String> = errors.iter().map(ToString::to_string).collect();
    let (word, reason, mut message) = match &*lines {
        [] => (
            "True",
            "Valid",
            "Jobs can name it in spec.framework.name.".to_owned(),
        ),
        lines => ("False", "Invalid", lines.join("\n")),
    };
    let end = message
        .char_indices()
        .map(|(at, _)| at)
        .find(|at| *at >= MAX_MESSAGE);
    message.truncate(end.unwrap_or(message.len()));
    let old = object
        .status
        .as_ref()
        .and_then(|status| status.conditions.first());
    let since = old
        .filter(|old| old.status == word)
        .map(|old| old.last_transition_time.clone());
    FrameworkStatus {
        observed_generation: object.metadata.generation,
        conditions: vec![Condition {
            type_: "Ready".to_owned(),
            status: word.to_owned(),
            reason: reason.to_owned(),
            message,
            last_transition_time: since.unwrap_or(now),
            observed_generation: object.metadata.generation,
        }],
    }
}

/// What is read of a `Framework` whose spec can't be.
#[derive(Deserialize)]
struct Unreadable {
    metadata: ObjectMeta,
    #[serde(default)]
    status: Value,
}

impl Unreadable {
    fn into_object(self) -> DeclaredFramework {
        DeclaredFramework {
            metadata: self.metadata,
            spec: FrameworkDeclaration::default(),
            status: serde_json::from_value(self.status).unwrap_or_default(),
        }
    }
}

/// Decodes a framework that is not too large, without what nobody here reads.
fn decode(json: &str) -> Result<DeclaredFramework, FieldError> {
    if let Some(excess) = bounds::excess(json) {
        return Err(FieldError::new(excess.path, excess.message));
    }
    let object = bounds::decode(json).and_then(serde_json::from_value);
    object.map_err(|error| FieldError::new("spec", format!("it can't be read: {error}")))
}

/// Feeds `Framework` objects into the store and the index.
struct Feeder {
    store: Arc<Store>,
    index: Arc<Index>,
    queue: Arc<Queue<String>>,
    wake: Wake,
    metrics: Arc<Metrics>,
    failure_is_logged: AtomicBool,
}

impl Feeder {
    fn wake_jobs(&self, framework: &str) {
        for key in self.index.keys_of_framework(framework) {
            (self.wake)(key);
        }
    }

    fn remove(&self, name: &str) {
        self.store.remove(name);
        self.index.remove_declaration(name);
        self.wake_jobs(name);
    }
}

impl Sink for Feeder {
    fn listing(&self, _: Version) {
        self.store.begin_list();
    }

    fn object(&self, json: &str, _: Source) -> Result<Version, serde_json::Error> {
        let SlimMeta { metadata } = serde_json::from_str(json)?;
        let name = metadata.name.to_string();
        match decode(json) {
            Ok(object) => {
                if self.store.is_new(&name, &object) {
                    let errors = self.index.declare(&object);
                    self.store.put(&name, object, Some(errors));
                    self.wake_jobs(&name);
                } else {
                    self.store.put(&name, object, None);
                }
                self.queue.add(name);
            }
            Err(error) => {
                // Its definition is not ours, or newer than this operator.
                let object = bounds::decode_small(json).and_then(serde_json::from_value);
                let object = object.map(Unreadable::into_object)?;
                if self.store.put_unreadable(&name, object, error.clone()) {
                    tracing::warn!(framework = name, %error, "a Framework can't be read");
                    self.index.declare_unreadable(&name, error);
                    self.wake_jobs(&name);
                }
                self.queue.add(name);
            }
        }
        Ok(metadata.resource_version)
    }

    fn gone(&self, json: &str) -> Result<Version, serde_json::Error> {
        let SlimMeta { metadata } = serde_json::from_str(json)?;
        self.remove(&metadata.name);
        Ok(metadata.resource_version)
    }

    fn listed(&self, _: Version, _: Instant) {
        for name in self.store.end_list() {
            self.remove(&name);
        }
        self.index.set_declarations_known(true);
        if self.failure_is_logged.swap(false, Ordering::Relaxed) {
            tracing::info!("Frameworks are watched");
        }
    }

    fn bookmark(&self, _: Version) {}

    fn refused(&self) {
        self.index.set_declarations_known(false);
    }

    fn interrupted(&self, error: Option<&Error>) {
        self.metrics.watch_restarted(Kind::Framework);
        let Some(error) = error else { return };
        let first = !self.failure_is_logged.swap(true, Ordering::Relaxed);
        match error.code() {
            Some(403 | 404) if first => tracing::warn!(
                %error,
                "Frameworks may not be watched, so that jobs can name those that are built in only: apply the output of \
                 `trainyard install`"
            ),
            _ if first => {
                tracing::warn!(%error, "the watch of Frameworks was interrupted and is tried again");
            }
            _ => tracing::debug!(%error, "the watch of Frameworks was interrupted and is tried again"),
        }
    }
}

#[cfg(test)]
mod tests;
