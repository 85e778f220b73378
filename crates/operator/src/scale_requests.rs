//! ScaleIn and ScaleOut: requests to change the size of a job.
//!
//! For example, the ScaleIn `ns/shrink` of the job `ns/mnist` is reconciled under the key of the
//! job, together with all other requests of it: so one after the other has its turn.
//!
//! `trainyard_core::scale_request` decides what is written next: an owner, a status, the target of
//! the job. Each write names the version that it was decided on, and its answer is known to the
//! store or the index before the next decision. Requests that have ended, or wait, cost nothing.

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
use trainyard_api::{ScaleKind, TrainingJob};
use trainyard_core::scale_request::{self, RequestedJob, RequestsPlan, ScaleRequest};
use trainyard_core::view::View;

use crate::act::RequestError;
use crate::backoff::Backoff;
use crate::clock::monotonic;
use crate::controller::{Context, Controller, Limits, Queue, Reconcile, ReconcileResult, Requeue};
use crate::declarations::Wake;
use crate::index::{JobKey, Lookup};
use crate::listwatch::{Target, follow};
use crate::metrics::{Kind, Outcome, Subject};
use feed::Feeder;
use store::Entry;
pub(crate) use store::Store;

const LIMITS: Limits = Limits {
    concurrency: 16,
    backoff: Backoff {
        base: Duration::from_millis(100),
        max: Duration::from_secs(30),
    },
    drain_timeout: Duration::ZERO,
};
/// The least delay to a time that the plan asks for.
const MIN_DELAY: Duration = Duration::from_millis(100);
/// When requests are reconciled again that could not be written because this replica did not lead.
const LEADERSHIP_CHECK_DELAY: Duration = Duration::from_secs(1);
/// How often a starting replica checks whether the engine has listed all jobs.
const WARM_UP_INTERVAL: Duration = Duration::from_millis(50);

/// Reconciles the requests of one job at a time.
pub(crate) struct ScaleRequests {
    context: Context,
    store: Arc<Store>,
    /// Notified of every list.
    listed: Arc<Notify>,
    wake: Wake,
}

/// Makes the controller of requests. `wake` has a job reconciled.
pub(crate) fn controller(context: Context, wake: Wake) -> Arc<Controller<ScaleRequests>> {
    let (leadership, metrics) = (context.leadership.clone(), context.metrics.clone());
    let namespaces = context.namespaces.len().max(1);
    let requests = ScaleRequests {
        context,
        store: Arc::new(Store::new(namespaces * ScaleKind::ALL.len())),
        listed: Arc::default(),
        wake,
    };
    Controller::new(requests, LIMITS, leadership, metrics)
}

impl Reconcile for ScaleRequests {
    type Key = JobKey;

    fn kind(&self) -> Subject {
        Kind::ScaleRequest.into()
    }

    fn watch(&self, queue: &Arc<Queue<JobKey>>) -> JoinSet<()> {
        let mut watches = self.watch_requests(queue);
        let mut changes = self.context.index.listen();
        let (store, queue) = (self.store.clone(), queue.clone());
        watches.spawn(async move {
            while let Some(key) = changes.recv().await {
                if store.has_requests(&key) {
                    queue.add(key);
                }
            }
        });
        watches
    }

    /// Waits for the first lists: without them, younger requests could have their turn first, and
    /// jobs would seem to be missing. A decision on an old list is refused by the server.
    async fn catch_up(&self, _: Instant) {
        while !self.store.is_listed() {
            self.listed.notified().await;
        }
        while !self.context.index.is_listed_since(None) {
            tokio::time::sleep(WARM_UP_INTERVAL).await;
        }
    }

    fn keys(&self) -> Vec<JobKey> {
        self.store.jobs()
    }

    async fn reconcile(&self, key: &JobKey, term: &CancellationToken) -> ReconcileResult {
        let entries = self.store.of_job(key);
        if entries.is_empty() {
            // Nobody wants a script to run any more.
            self.context.index.offer_script(key, None);
        }
        if entries.is_empty() || self.context.index.is_refused(&key.namespace) {
            return ReconcileResult::REST;
        }
        let (plan, job) = self.plan(key, &entries);
        if plan.steps.is_empty() || plan.script.is_some() {
            // Before a write is answered, what a launcher has reported must not be forgotten.
            self.context.index.offer_script(key, plan.script.clone());
        }
        if plan.steps.is_empty() {
            let next = plan.wake_at.map_or(Requeue::Rest, |at| {
                let away = Duration::try_from(at.duration_since(self.context.clock.now()));
                Requeue::At(Instant::now() + away.unwrap_or_default().max(MIN_DELAY))
            });
            return ReconcileResult::new(Outcome::Quiet, next);
        }
        // What is wrong with one request does not hold up the others.
        let mut failure = None;
        for (position, step) in plan.steps {
            let Some(entry) = entries.get(position) else {
                continue;
            };
            match self.carry_out(job.as_deref(), entry, step, term).await {
                Ok(()) | Err(RequestError::Gone | RequestError::Replaced) => {}
                Err(error) => {
                    let request = entry.request.metadata.name.as_deref();
                    tracing::debug!(job = %key, request, error = error.message(), "a write failed");
                    failure = Some(RequestError::graver(failure, error));
                }
            }
        }
        result_of(failure)
    }
}

impl ScaleRequests {
    /// Returns the requests as the server last showed them.
    pub(crate) fn store(&self) -> Arc<Store> {
        self.store.clone()
    }

    fn watch_requests(&self, queue: &Arc<Queue<JobKey>>) -> JoinSet<()> {
        let namespaces: Vec<Option<&str>> = match &*self.context.namespaces {
            [] => vec![None],
            some => some.iter().map(|name| Some(name.as_str())).collect(),
        };
        let mut watches = JoinSet::new();
        let scopes = ScaleKind::ALL
            .into_iter()
            .flat_map(|kind| namespaces.iter().map(move |namespace| (kind, *namespace)));
        for (scope, (kind, namespace)) in scopes.enumerate() {
            let target = Target {
                kind: kind.as_str(),
                path: write::collection(kind, namespace),
                labels: None,
                metadata_only: false,
                page: 500,
            };
            let feeder = Feeder {
                kind,
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

    /// Plans for all requests of a job. Returns also the job that the plan was made for.
    fn plan(&self, key: &JobKey, entries: &[Entry]) -> (RequestsPlan, Option<Arc<TrainingJob>>) {
        let requests: Vec<&ScaleRequest> = entries.iter().map(|entry| &*entry.request).collect();
        let now = self.context.clock.now();
        let index = &self.context.index;
        let snapshot = match index.get(key) {
            None => return (scale_request::plan(&requests, RequestedJob::Missing, now), None),
            Some(Lookup::Malformed(malformed, _)) => {
                let job = RequestedJob::Malformed(&malformed.error);
                return (scale_request::plan(&requests, job, now), None);
            }
            Some(Lookup::Job(snapshot)) => snapshot,
        };
        let view = View {
            job: &snapshot.job,
            frameworks: &index.frameworks_for(&snapshot.job),
            pods: &snapshot.pods,
            services: &snapshot.services,
            departed: &snapshot.departed,
            conflicts: &snapshot.conflicts,
            local: &snapshot.local,
            absence_is_confirmed: false,
            refusal: snapshot.refusal.as_deref(),
            progress: snapshot.progress.as_deref(),
            nodes: &snapshot.nodes,
            budgets: None,
            settings: &self.context.settings.now(),
            now,
            instant: monotonic(),
        };
        let plan = scale_request::plan(&requests, RequestedJob::Found(&view), now);
        (plan, Some(snapshot.job.clone()))
    }
}

fn result_of(failure: Option<RequestError>) -> ReconcileResult {
    let Some(error) = failure else {
        return ReconcileResult::new(Outcome::Acted, Requeue::Again);
    };
    let next = match &error {
        // Another term begins with all requests. If this term has not ended after all, they must
        // not be forgotten.
        RequestError::NotLeader => Requeue::At(Instant::now() + LEADERSHIP_CHECK_DELAY),
        RequestError::NamespaceEnds => Requeue::Rest,
        RequestError::VersionConflict => Requeue::Stale,
        RequestError::Transient(_, asked) => Requeue::Retry(*asked),
        _ => Requeue::Retry(None),
    };
    ReconcileResult::new(error.outcome(), next)
}

#[cfg(test)]
mod tests;
