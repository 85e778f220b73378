//! Kinds of other operators: each object owns an object of ours of its name and gets its status.
//!
//! For example, the MPIJob `ns/pi` of mpi-operator owns the TrainingJob `ns/pi`, its child, and the
//! ScaleIn `ns/less` of et-operator the ScaleIn `ns/less` of ours.
//!
//! Each kind has a controller beside that of TrainingJobs, which knows nothing of it. It reads
//! TrainingJobs from the engine's index and requests from their store, writes them as any user
//! would, and writes the status of its own objects. A [`ForeignKind`] decides what should be done.
//! An object that is as it should be costs no request. Every write names what it was decided on:
//! the server refuses it if that has changed.

mod config;
mod feed;
mod store;
mod write;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use trainyard_core::foreign::{
    Child, ChildAction, ChildKind, ForeignKind, ForeignPlan, ForeignView, Obstacle,
};

use crate::act::{RequestError, Result};
use crate::backoff::Backoff;
use crate::controller::{Context, Controller, Limits, Queue, Reconcile, ReconcileResult, Requeue};
use crate::index::{JobKey, Lookup};
use crate::listwatch::{Target, follow};
use crate::metrics::{Foreign, Outcome, Subject};
use crate::scale_requests::Store as Requests;
use feed::Feeder;
use store::{Entry, Store};

const LIMITS: Limits = Limits {
    concurrency: 32,
    backoff: Backoff {
        base: Duration::from_millis(100),
        max: Duration::from_mins(1),
    },
    drain_timeout: Duration::ZERO,
};
/// How long the index may take to show a child that was created.
const CHILD_SEEN_TIMEOUT: Duration = Duration::from_secs(10);
/// The least delay to a time that the plan asks for.
const MIN_DELAY: Duration = Duration::from_millis(100);
/// When an object is reconciled again that could not be written because this replica did not lead.
const LEADERSHIP_CHECK_DELAY: Duration = Duration::from_secs(1);
/// How long a status that can wait does so. Most jobs whose images are there run by then, so that
/// the first status tells it; of others, users see within a second how many pods run.
const STATUS_DELAY: Duration = Duration::from_secs(1);
/// How often a starting replica checks whether the engine has listed all jobs.
const WARM_UP_INTERVAL: Duration = Duration::from_millis(50);

/// Reconciles the objects of one kind.
pub(crate) struct ForeignReconciler {
    kind: &'static dyn ForeignKind,
    context: Context,
    store: Arc<Store>,
    /// Where the children of requests are found.
    requests: Arc<Requests>,
    /// Notified of every list.
    listed: Arc<Notify>,
}

/// Makes the controller of a kind.
pub(crate) fn controller(
    kind: &'static dyn ForeignKind,
    context: Context,
    requests: Arc<Requests>,
) -> Arc<Controller<ForeignReconciler>> {
    let (leadership, metrics) = (context.leadership.clone(), context.metrics.clone());
    let scopes = context.namespaces.len().max(1);
    let reconciler = ForeignReconciler {
        kind,
        context,
        store: Arc::new(Store::new(scopes)),
        requests,
        listed: Arc::default(),
    };
    Controller::new(reconciler, LIMITS, leadership, metrics)
}

impl Reconcile for ForeignReconciler {
    type Key = JobKey;

    fn kind(&self) -> Subject {
        Foreign::new(self.kind).into()
    }

    fn watch(&self, queue: &Arc<Queue<JobKey>>) -> JoinSet<()> {
        let mut watches = self.watch_objects(queue);
        let mut changes = match self.kind.child_kind() {
            ChildKind::Job => self.context.index.listen(),
            ChildKind::Request(kind) => self.requests.listen(kind),
        };
        let (store, queue) = (self.store.clone(), queue.clone());
        watches.spawn(async move {
            while let Some(key) = changes.recv().await {
                if store.contains(&key) {
                    queue.add(key);
                }
            }
        });
        watches
    }

    /// Waits for the first lists alone: a decision on an old list is refused by the server. But
    /// without any list, children would be created that exist.
    async fn catch_up(&self, _: Instant) {
        while !self.store.is_listed() {
            self.listed.notified().await;
        }
        let has_children = || match self.kind.child_kind() {
            ChildKind::Job => true,
            ChildKind::Request(_) => self.requests.is_listed(),
        };
        while !self.context.index.is_listed_since(None) || !has_children() {
            tokio::time::sleep(WARM_UP_INTERVAL).await;
        }
    }

    fn keys(&self) -> Vec<JobKey> {
        self.store.keys()
    }

    async fn reconcile(&self, key: &JobKey, term: &CancellationToken) -> ReconcileResult {
        let mut outcome = Outcome::Quiet;
        let next = self.reconcile_once(key, term, &mut outcome).await;
        ReconcileResult {
            outcome,
            next,
            cost: Duration::ZERO,
        }
    }
}

impl ForeignReconciler {
    fn watch_objects(&self, queue: &Arc<Queue<JobKey>>) -> JoinSet<()> {
        let scopes: Vec<Option<&str>> = match &*self.context.namespaces {
            [] => vec![None],
            some => some.iter().map(|name| Some(name.as_str())).collect(),
        };
        let mut watches = JoinSet::new();
        for (scope, namespace) in scopes.into_iter().enumerate() {
            let target = Target {
                kind: self.kind.flag(),
                path: write::collection(self.kind, namespace),
                labels: None,
                metadata_only: false,
                page: 500,
            };
            let feeder = Feeder {
                kind: self.kind,
                scope,
                store: self.store.clone(),
                queue: queue.clone(),
                listed: self.listed.clone(),
                metrics: self.context.metrics.clone(),
                failure_is_logged: AtomicBool::new(false),
            };
            let client = self.context.client.clone();
            watches.spawn(async move {
                // Nobody asks for another list.
                let (_resync, asked) = tokio::sync::watch::channel(0);
                follow(client, target, &feeder, asked).await;
            });
        }
        watches
    }

    async fn reconcile_once(&self, key: &JobKey, term: &CancellationToken, outcome: &mut Outcome) -> Requeue {
        let Some(entry) = self.store.get(key).filter(|entry| !entry.local.deleted) else {
            return Requeue::Rest;
        };
        let mut plan = self.plan(key, &entry);
        let next = match self.child(key, &entry, &mut plan, term, outcome).await {
            Ok(at) => at.map_or(Requeue::Rest, Requeue::At),
            Err(error) => {
                *outcome = error.outcome();
                match error {
                    RequestError::NotLeader => return not_leading(),
                    RequestError::NamespaceEnds => return Requeue::Rest,
                    _ => {}
                }
                let obstacle = match &error {
                    RequestError::Refused(words) => Some(Arc::new(Obstacle::Refused(words.clone()))),
                    RequestError::NameTaken => Some(Arc::new(Obstacle::Taken(config_name(&plan)))),
                    _ => entry.local.obstacle.clone(),
                };
                if obstacle != entry.local.obstacle {
                    tracing::warn!(kind = self.kind.flag(), object = %key, error = error.message(),
                        "its TrainingJob can't be written; it is tried again, more and more seldom");
                    self.store
                        .remember(key, &entry.uid, |local| local.obstacle = obstacle);
                    // The status says at once what the server has said.
                    if let Some(entry) = self.store.get(key) {
                        plan = self.plan(key, &entry);
                    }
                }
                Requeue::Retry(match error {
                    RequestError::Transient(_, asked) => asked,
                    _ => None,
                })
            }
        };
        let error = match self.conclude(key, &entry, plan, term, outcome).await {
            Ok(at) => {
                return match (next, at) {
                    (Requeue::Rest, Some(at)) => Requeue::At(at),
                    (Requeue::At(one), Some(at)) => Requeue::At(one.min(at)),
                    (next, _) => next,
                };
            }
            Err(error) => error,
        };
        *outcome = error.outcome();
        match error {
            RequestError::NotLeader => not_leading(),
            RequestError::NamespaceEnds | RequestError::Gone => Requeue::Rest,
            RequestError::Transient(_, asked) => Requeue::Retry(asked),
            error => {
                tracing::debug!(kind = self.kind.flag(), object = %key, error = error.message(), "a write failed");
                Requeue::Retry(None)
            }
        }
    }

    fn plan(&self, key: &JobKey, entry: &Entry) -> ForeignPlan {
        let request = match self.kind.child_kind() {
            ChildKind::Job => None,
            ChildKind::Request(kind) => self.requests.get(kind, key),
        };
        let job = match (self.kind.child_kind(), &request) {
            (ChildKind::Job, _) => Some(key.clone()),
            (ChildKind::Request(_), request) => {
                let spec = request.as_ref().and_then(|request| request.spec.as_ref().ok());
                spec.map(|spec| JobKey::new(&key.namespace, &spec.job))
            }
        };
        let known = job.and_then(|job| self.context.index.get(&job));
        let child = match (&request, &known) {
            (Some(request), known) => Child::Request {
                request,
                job: match known {
                    Some(Lookup::Job(known)) => Some(&*known.job),
                    _ => None,
                },
            },
            (None, None) => Child::None,
            (None, Some(Lookup::Job(known))) => Child::Job {
                job: &known.job,
                pods: &known.pods,
            },
            (None, Some(Lookup::Malformed(malformed, _))) => {
                Child::Malformed(&malformed.metadata, &malformed.error)
            }
        };
        let view = ForeignView {
            object: &entry.object,
            child,
            obstacle: entry.local.obstacle.as_deref(),
            other_writer: entry.other_writer.as_deref(),
            settings: &self.context.settings.now(),
            now: self.context.clock.now(),
        };
        match &entry.excess {
            Some(excess) => self.kind.refuse(&view, excess),
            None => self.kind.plan(&view),
        }
    }

    /// Writes the child, and records the notes of the plan as events. Returns when to look again.
    async fn child(
        &self,
        key: &JobKey,
        entry: &Entry,
        plan: &mut ForeignPlan,
        term: &CancellationToken,
        outcome: &mut Outcome,
    ) -> Result<Option<Instant>> {
        let action = std::mem::take(&mut plan.child);
        match &action {
            ChildAction::Leave => return Ok(None),
            ChildAction::Replace(job) => {
                self.configure(key, entry, plan.config.as_deref(), term).await?;
                self.replace(key, job, term).await?;
                *outcome = Outcome::Acted;
                self.store
                    .remember(key, &entry.uid, |local| local.obstacle = None);
                self.note(entry, &plan.notes);
                return Ok(None);
            }
            ChildAction::Create(_) | ChildAction::CreateRequest(_) => {}
        }
        let now = Instant::now();
        // The child will be seen.
        let seen_by = entry.local.created.map(|created| created + CHILD_SEEN_TIMEOUT);
        if let Some(seen_by) = seen_by.filter(|seen_by| *seen_by > now) {
            *outcome = Outcome::Waiting;
            return Ok(Some(seen_by));
        }
        self.configure(key, entry, plan.config.as_deref(), term).await?;
        match &action {
            ChildAction::CreateRequest(request) => self.create_request(key, request, term).await?,
            ChildAction::Create(job) => self.create(key, job, term).await?,
            ChildAction::Leave | ChildAction::Replace(_) => {}
        }
        *outcome = Outcome::Acted;
        self.store.remember(key, &entry.uid, |local| {
            local.created = Some(now);
            local.obstacle = None;
        });
        self.note(entry, &plan.notes);
        Ok(Some(now + CHILD_SEEN_TIMEOUT))
    }

    /// Writes owners and the status, or deletes the object. Returns when to look again.
    async fn conclude(
        &self,
        key: &JobKey,
        entry: &Entry,
        plan: ForeignPlan,
        term: &CancellationToken,
        outcome: &mut Outcome,
    ) -> Result<Option<Instant>> {
        if !plan.owners.is_empty() {
            // The version that the status would name is another then.
            self.add_owners(key, entry, &plan.owners, term).await?;
            *outcome = Outcome::Acted;
            return Ok(Some(Instant::now()));
        }
        let status_due = self.postpone_status(key, entry, &plan);
        let written = match plan.status.filter(|_| status_due.is_none()) {
            Some(status) => self.write_status(key, entry, status, term).await?,
            None => false,
        };
        if written {
            *outcome = Outcome::Acted;
        }
        if plan.delete && written {
            // The write has changed the version that the deletion would name.
            return Ok(Some(Instant::now()));
        }
        if plan.delete {
            self.delete(key, entry, term).await?;
            *outcome = Outcome::Acted;
            self.store.remember(key, &entry.uid, |local| local.deleted = true);
            return Ok(None);
        }
        let wake_at = plan.wake_at.map(|at| {
            let away = Duration::try_from(at.duration_since(self.context.clock.now()));
            Instant::now() + away.unwrap_or_default().max(MIN_DELAY)
        });
        Ok(status_due.into_iter().chain(wake_at).min())
    }

    /// Returns when the status of a plan is due, if that is later.
    fn postpone_status(&self, key: &JobKey, entry: &Entry, plan: &ForeignPlan) -> Option<Instant> {
        let waits = plan.status_can_wait && plan.status.is_some() && !plan.delete;
        let now = Instant::now();
        let since = waits.then(|| entry.local.unwritten_since.unwrap_or(now));
        if since != entry.local.unwritten_since {
            self.store
                .remember(key, &entry.uid, |local| local.unwritten_since = since);
        }
        since.map(|since| since + STATUS_DELAY).filter(|due| *due > now)
    }
}

/// Another term begins with all objects. If this term has not ended after all, the object must not
/// be forgotten.
fn not_leading() -> Requeue {
    Requeue::At(Instant::now() + LEADERSHIP_CHECK_DELAY)
}

fn config_name(plan: &ForeignPlan) -> String {
    let config = plan.config.as_ref();
    config
        .and_then(|config| config.metadata.name.clone())
        .unwrap_or_default()
}

#[cfg(test)]
pub(crate) mod tests;
