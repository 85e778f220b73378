//! The controller of one kind: it reconciles the objects of that kind while this replica leads.
//!
//! For example, a change of the job `ns/mnist`:
//!
//! ```text
//! watch ── queue.add("ns/mnist") ──> queue ── dispatch ──> reconcile("ns/mnist", term)
//!                                      ^                               │
//!                                      └── requeue: at once, at a time, after a backoff, not at all
//! ```
//!
//! - **Terms.** A term begins when this replica becomes the leader. The caches catch up first, then
//!   all objects are reconciled, then those that change. When the leadership is lost, the token of
//!   the term is cancelled; the next term begins after the last reconcile of this one has returned.
//! - **Keys.** A key is never reconciled twice at a time. A key that changes meanwhile is
//!   reconciled once more. Failures are counted for each key, and only that key is delayed.
//! - **Limits.** [`Limits`] says how many keys are reconciled at once. A key whose reconcile took
//!   much processor time cools down, so that its next changes are handled together.
//!
//! A kind is an implementation of [`Reconcile`]: TrainingJobs in `engine`, kinds of other operators
//! in `foreign`.

mod context;
mod queue;
mod result;

use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

use crate::backoff::{Backoff, jitter};
use crate::leader::Leadership;
use crate::metrics::{Metrics, Subject};
pub(crate) use context::Context;
pub(crate) use queue::Queue;
pub(crate) use result::{ReconcileResult, Requeue};

/// The delay until a cache that was stale is looked at again.
const STALE_BACKOFF: Backoff = Backoff {
    base: Duration::from_millis(10),
    max: Duration::from_secs(2),
};
/// How long a replica that has just started waits to become the leader before it lists. Lists that
/// begin after that need not be repeated for the first term.
const FIRST_TERM_TIMEOUT: Duration = Duration::from_secs(1);
/// A key cools down for so many times the processor time of its last reconcile.
const COOLDOWN_FACTOR: u32 = 20;
/// Timers are no finer than this. A shorter cooldown is none.
const MIN_COOLDOWN: Duration = Duration::from_millis(2);

/// A kind of objects, and how one of them is reconciled.
pub(crate) trait Reconcile: Send + Sync + 'static {
    type Key: Clone + Eq + Hash + Ord + Send + Sync + 'static;

    /// The kind as metrics and logs name it.
    fn kind(&self) -> Subject;

    /// Starts the tasks that keep the caches and add the keys of changed objects to the queue. They
    /// run in all terms and between them, and are aborted when the controller ends.
    fn watch(&self, queue: &Arc<Queue<Self::Key>>) -> JoinSet<()>;

    /// Waits until the caches hold everything that anybody had written at `began`. A predecessor
    /// may have written until then.
    fn catch_up(&self, began: Instant) -> impl Future<Output = ()> + Send;

    /// Returns the keys of all objects, which a term begins with.
    fn keys(&self) -> Vec<Self::Key>;

    /// Reconciles one object. Nothing may be written once `term` is cancelled.
    fn reconcile(
        &self,
        key: &Self::Key,
        term: &CancellationToken,
    ) -> impl Future<Output = ReconcileResult> + Send;
}

/// How much a controller does at once, and how long it waits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// How many keys are reconciled at once.
    pub concurrency: usize,
    /// The delay of a key that failed.
    pub backoff: Backoff,
    /// How long reconciles may go on after the shutdown, before their term is cancelled.
    pub drain_timeout: Duration,
}

pub(crate) struct Controller<R: Reconcile> {
    pub(crate) reconciler: R,
    pub(crate) queue: Arc<Queue<R::Key>>,
    limits: Limits,
    leadership: Leadership,
    metrics: Arc<Metrics>,
}

impl<R: Reconcile> Controller<R> {
    pub(crate) fn new(
        reconciler: R,
        limits: Limits,
        leadership: Leadership,
        metrics: Arc<Metrics>,
    ) -> Arc<Self> {
        Arc::new(Self {
            reconciler,
            queue: Arc::default(),
            limits,
            leadership,
            metrics,
        })
    }

    /// Runs until `shutdown`, and then until the last reconcile has returned.
    pub(crate) async fn run(self: Arc<Self>, shutdown: CancellationToken) {
        let mut leadership = self.leadership.clone();
        let first = timeout(FIRST_TERM_TIMEOUT, leadership.leading()).await.ok();
        let started = Instant::now();
        let mut watches = self.reconciler.watch(&self.queue);
        let kind = self.reconciler.kind();
        while let Some(term) = shutdown.run_until_cancelled(leadership.leading()).await {
            tracing::info!(%kind, term, "leading");
            let began = if first == Some(term) {
                started
            } else {
                Instant::now()
            };
            let lost = async {
                while leadership.term() == Some(term) {
                    leadership.changed().await;
                }
            };
            self.lead(began, lost, &shutdown).await;
            if !shutdown.is_cancelled() {
                tracing::warn!(%kind, term, "not leading any more");
            }
        }
        watches.shutdown().await;
    }

    /// Leads for one term, which began at a time: until the leadership is `lost` or until
    /// `shutdown`. Returns when the last reconcile of the term has returned.
    pub(crate) async fn lead(
        self: &Arc<Self>,
        began: Instant,
        lost: impl Future<Output = ()>,
        shutdown: &CancellationToken,
    ) {
        let term = CancellationToken::new();
        let mut tasks = JoinSet::new();
        let work = async {
            self.reconciler.catch_up(began).await;
            // The keys are collected while the queue is locked: a change is among them, or is added
            // after the queue is open.
            self.queue.with(|core| core.open(self.reconciler.keys()));
            self.dispatch(&term, &mut tasks).await;
        };
        tokio::select! {
            () = lost => term.cancel(),
            () = shutdown.cancelled() => {}
            () = work => {}
        }
        self.queue.with(queue::Core::close);
        let drained = async { while tasks.join_next().await.is_some() {} };
        if timeout(self.limits.drain_timeout, drained).await.is_err() {
            term.cancel();
            while tasks.join_next().await.is_some() {}
        }
    }

    /// Starts a reconcile for every key of the queue, as soon as one of `concurrency` permits is
    /// free.
    async fn dispatch(self: &Arc<Self>, term: &CancellationToken, tasks: &mut JoinSet<()>) {
        let permits = Arc::new(Semaphore::new(self.limits.concurrency.max(1)));
        loop {
            let Ok(permit) = permits.clone().acquire_owned().await else {
                return;
            };
            let key = self.queue.next().await;
            while tasks.try_join_next().is_some() {}
            let (controller, term) = (self.clone(), term.clone());
            tasks.spawn(async move {
                let result = controller.reconcile(&key, &term).await;
                controller.requeue(&key, result);
                drop(permit);
            });
        }
    }

    /// Reconciles one object and counts it.
    pub(crate) async fn reconcile(&self, key: &R::Key, term: &CancellationToken) -> ReconcileResult {
        let started = Instant::now();
        let result = self.reconciler.reconcile(key, term).await;
        let kind = self.reconciler.kind();
        self.metrics.reconciled(kind, result.outcome, started.elapsed());
        result
    }

    /// Gives a key back to the queue, to be reconciled again when the result says so.
    fn requeue(&self, key: &R::Key, result: ReconcileResult) {
        let now = Instant::now();
        let cooldown = result.cost * COOLDOWN_FACTOR;
        self.queue.with(|core| {
            match result.next {
                Requeue::Rest => core.succeeded(key),
                Requeue::Again => {
                    core.succeeded(key);
                    core.add(key.clone());
                }
                Requeue::At(at) => {
                    core.succeeded(key);
                    core.add_at(key.clone(), at);
                }
                Requeue::Retry(asked) => {
                    let pause = self.limits.backoff.pause(core.failed(key), jitter());
                    core.add_at(key.clone(), now + pause.max(asked.unwrap_or_default()));
                }
                Requeue::Stale => {
                    let pause = STALE_BACKOFF.pause(core.failed(key), jitter());
                    core.add_at(key.clone(), now + pause);
                }
            }
            core.done(key, (cooldown >= MIN_COOLDOWN).then(|| now + cooldown));
        });
    }
}

#[cfg(test)]
mod tests;
