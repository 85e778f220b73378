//! Kinds of other operators: each object owns a TrainingJob of its name and gets its status.
//!
//! This runs beside the engine, which knows nothing of it: it reads TrainingJobs from the engine's index, writes them as
//! any user would, and writes the status of its own objects. What should be done is decided by a
//! [`ForeignKind`]. An object that is as it should be costs no request. Every write names what it was decided on, so that
//! one that comes late does no harm.

mod config;
mod feed;
mod store;
mod write;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use tokio::sync::{Notify, Semaphore};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use trainyard_core::foreign::{Child, ChildAction, ForeignKind, ForeignPlan, ForeignView, Obstacle};

use crate::act::{Failure, WriteLimiter};
use crate::clock::Clock;
use crate::events::Recorder;
use crate::index::{Index, JobKey, Lookup};
use crate::leader::Leadership;
use crate::listwatch::{Target, follow};
use crate::metrics::{Foreign, Metrics, Outcome};
use crate::queue::{Backoff, Queue, jitter};
use crate::settings::SharedSettings;
use feed::Feeder;
use store::{Entry, Store};

/// The pause after a failure.
const RETRY: Backoff = Backoff {
    base: Duration::from_millis(100),
    max: Duration::from_mins(1),
};
/// How long the index may take to have a child that was created.
const SEEN: Duration = Duration::from_secs(10);
/// How many objects are worked on at once.
const CONCURRENCY: usize = 32;
/// A time to look again that has passed already is taken to mean this.
const MIN_DELAY: Duration = Duration::from_millis(100);
/// When to look again whether this replica may write, in a term that is not known to have ended.
const LEADERSHIP_CHECK_DELAY: Duration = Duration::from_secs(1);
/// How often it is looked, while a replica starts, whether the engine has seen all jobs.
const WARMING: Duration = Duration::from_millis(50);

/// What this is made of.
#[derive(Clone)]
pub(crate) struct Context {
    pub client: kube::Client,
    pub index: Arc<Index>,
    pub leadership: Leadership,
    pub limiter: WriteLimiter,
    pub recorder: Recorder,
    pub metrics: Arc<Metrics>,
    pub clock: Arc<dyn Clock>,
    pub settings: SharedSettings,
    /// The namespaces to look at; all, if empty.
    pub namespaces: Vec<String>,
}

/// Serves one kind.
pub(crate) struct Controller {
    kind: &'static dyn ForeignKind,
    around: Context,
    store: Arc<Store>,
    queue: Arc<Queue<JobKey>>,
    listed: Arc<Notify>,
}

/// When to look at an object again.
#[derive(Clone, Copy, Debug)]
enum Next {
    Rest,
    At(Instant),
    Retry(Option<Duration>),
}

impl Next {
    /// If the term has ended, the next one begins with all objects; if it has not, this one is not to be forgotten.
    fn unsure() -> Self {
        Self::At(Instant::now() + LEADERSHIP_CHECK_DELAY)
    }
}

impl Controller {
    pub(crate) fn new(kind: &'static dyn ForeignKind, around: Context) -> Self {
        let scopes = around.namespaces.len().max(1);
        Self {
            kind,
            around,
            store: Arc::new(Store::new(scopes)),
            queue: Arc::default(),
            listed: Arc::default(),
        }
    }

    /// Runs until `shutdown`.
    pub(crate) async fn run(self, shutdown: CancellationToken) {
        let controller = Arc::new(self);
        let mut watches = controller.watch();
        let mut changes = controller.around.index.listen();
        let children = controller.clone();
        watches.spawn(async move {
            while let Some(key) = changes.recv().await {
                if children.store.contains(&key) {
                    children.queue.add(key);
                }
            }
        });
        let mut leadership = controller.around.leadership.clone();
        while !shutdown.is_cancelled() {
            let led = tokio::select! {
                () = shutdown.cancelled() => break,
                term = leadership.leading() => term,
            };
            let term = shutdown.child_token();
            let mut tasks = JoinSet::new();
            let over = async {
                while leadership.term() == Some(led) {
                    leadership.changed().await;
                }
            };
            tokio::select! {
                () = shutdown.cancelled() => {}
                () = over => {}
                () = controller.serve(&term, &mut tasks) => {}
            }
            term.cancel();
            controller.queue.with(crate::queue::Core::close);
            // A key is handed out again only once it was given back.
            while tasks.join_next().await.is_some() {}
        }
        watches.shutdown().await;
    }

    /// Follows all objects of the kind.
    fn watch(&self) -> JoinSet<()> {
        let scopes: Vec<Option<&str>> = match &*self.around.namespaces {
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
                queue: self.queue.clone(),
                listed: self.listed.clone(),
                metrics: self.around.metrics.clone(),
                complained: AtomicBool::new(false),
            };
            let client = self.around.client.clone();
            watches.spawn(async move {
                // Nobody asks for another list: what is decided on old news is refused by the server.
                let (_resync, asked) = tokio::sync::watch::channel(0);
                follow(client, target, &feeder, asked).await;
            });
        }
        watches
    }

    /// Leads: looks at all objects, and then at each that changes, or whose child does.
    async fn serve(self: &Arc<Self>, term: &CancellationToken, tasks: &mut JoinSet<()>) {
        // Without both, children would be created that are there.
        while !self.store.is_listed() {
            self.listed.notified().await;
        }
        while !self.around.index.is_listed_since(None) {
            tokio::time::sleep(WARMING).await;
        }
        self.queue.with(|core| core.open(self.store.keys()));
        let places = Arc::new(Semaphore::new(CONCURRENCY));
        loop {
            let Ok(place) = places.clone().acquire_owned().await else {
                return;
            };
            let key = self.queue.next().await;
            while tasks.try_join_next().is_some() {}
            let (controller, term) = (self.clone(), term.clone());
            tasks.spawn(async move {
                let next = controller.reconcile(&key, &term).await;
                controller.settle(&key, next);
                drop(place);
            });
        }
    }

    fn settle(&self, key: &JobKey, next: Next) {
        self.queue.with(|core| {
            match next {
                Next::Rest => core.succeeded(key),
                Next::At(at) => {
                    core.succeeded(key);
                    core.add_at(key.clone(), at);
                }
                Next::Retry(asked) => {
                    let pause = RETRY.pause(core.failed(key), jitter());
                    core.add_at(key.clone(), Instant::now() + pause.max(asked.unwrap_or_default()));
                }
            }
            core.done(key, None);
        });
    }

    /// Looks at an object and does what is to be done.
    async fn reconcile(&self, key: &JobKey, term: &CancellationToken) -> Next {
        let mut outcome = Outcome::Quiet;
        let next = self.step(key, term, &mut outcome).await;
        let kind = Foreign::new(self.kind);
        self.around.metrics.foreign_reconciled(kind, outcome);
        next
    }

    async fn step(&self, key: &JobKey, term: &CancellationToken, outcome: &mut Outcome) -> Next {
        let Some(entry) = self.store.get(key).filter(|entry| !entry.local.deleted) else {
            return Next::Rest;
        };
        let mut plan = self.plan(key, &entry);
        let next = match self.child(key, &entry, &mut plan, term, outcome).await {
            Ok(at) => at.map_or(Next::Rest, Next::At),
            Err(failure) => {
                *outcome = failure.outcome();
                match failure {
                    Failure::NotLeader => return Next::unsure(),
                    Failure::NamespaceEnds => return Next::Rest,
                    _ => {}
                }
                let obstacle = match &failure {
                    Failure::Refused(words) => Some(Arc::new(Obstacle::Refused(words.clone()))),
                    Failure::InTheWay => Some(Arc::new(Obstacle::Taken(config_name(&plan)))),
                    _ => entry.local.obstacle.clone(),
                };
                if obstacle != entry.local.obstacle {
                    tracing::warn!(kind = self.kind.flag(), object = %key, error = failure.words(),
                        "its TrainingJob can't be written; it is tried again, more and more seldom");
                    self.store
                        .remember(key, &entry.uid, |local| local.obstacle = obstacle);
                    // What the server says is told at once.
                    if let Some(entry) = self.store.get(key) {
                        plan = self.plan(key, &entry);
                    }
                }
                Next::Retry(match failure {
                    Failure::Transient(_, asked) => asked,
                    _ => None,
                })
            }
        };
        let failure = match self.conclude(key, &entry, plan, term, outcome).await {
            Ok(at) => {
                return match (next, at) {
                    (Next::Rest, Some(at)) => Next::At(at),
                    (Next::At(one), Some(at)) => Next::At(one.min(at)),
                    (next, _) => next,
                };
            }
            Err(failure) => failure,
        };
        *outcome = failure.outcome();
        match failure {
            Failure::NotLeader => Next::unsure(),
            Failure::NamespaceEnds | Failure::Gone => Next::Rest,
            Failure::Transient(_, asked) => Next::Retry(asked),
            failure => {
                tracing::debug!(kind = self.kind.flag(), object = %key, error = failure.words(), "a write failed");
                Next::Retry(None)
            }
        }
    }

    fn plan(&self, key: &JobKey, entry: &Entry) -> ForeignPlan {
        let known = self.around.index.get(key);
        let child = match &known {
            None => Child::None,
            Some(Lookup::Job(known)) => Child::Job(&known.job),
            Some(Lookup::Malformed(malformed, _)) => Child::Malformed(&malformed.metadata, &malformed.error),
        };
        self.kind.plan(&ForeignView {
            object: &entry.object,
            child,
            obstacle: entry.local.obstacle.as_deref(),
            other_writer: entry.other_writer.as_deref(),
            settings: &self.around.settings.now(),
            now: self.around.clock.now(),
        })
    }

    /// Writes the child, and tells users of the object what is to be told then. When to look again, whatever happens.
    async fn child(
        &self,
        key: &JobKey,
        entry: &Entry,
        plan: &mut ForeignPlan,
        term: &CancellationToken,
        outcome: &mut Outcome,
    ) -> Result<Option<Instant>, Failure> {
        let job = match std::mem::take(&mut plan.child) {
            ChildAction::Leave => return Ok(None),
            ChildAction::Create(job) => {
                let now = Instant::now();
                // The index will tell of it.
                let seen_by = entry.local.created.map(|created| created + SEEN);
                if let Some(seen_by) = seen_by.filter(|seen_by| *seen_by > now) {
                    *outcome = Outcome::Waiting;
                    return Ok(Some(seen_by));
                }
                self.configure(key, entry, plan.config.as_deref(), term).await?;
                self.create(key, &job, term).await?;
                *outcome = Outcome::Acted;
                self.store.remember(key, &entry.uid, |local| {
                    local.created = Some(now);
                    local.obstacle = None;
                });
                self.note(entry, &plan.notes);
                return Ok(Some(now + SEEN));
            }
            ChildAction::Replace(job) => job,
        };
        self.configure(key, entry, plan.config.as_deref(), term).await?;
        self.replace(key, &job, term).await?;
        *outcome = Outcome::Acted;
        self.store
            .remember(key, &entry.uid, |local| local.obstacle = None);
        self.note(entry, &plan.notes);
        Ok(None)
    }

    /// Writes the status, or deletes the object. When to look again.
    async fn conclude(
        &self,
        key: &JobKey,
        entry: &Entry,
        plan: ForeignPlan,
        term: &CancellationToken,
        outcome: &mut Outcome,
    ) -> Result<Option<Instant>, Failure> {
        let told = match plan.status {
            Some(status) => self.tell(key, entry, status, term).await?,
            None => false,
        };
        if told {
            *outcome = Outcome::Acted;
        }
        if plan.delete && told {
            // By what was written it is of another version, and what was decided is decided anew.
            return Ok(Some(Instant::now()));
        }
        if plan.delete {
            self.delete(key, entry, term).await?;
            *outcome = Outcome::Acted;
            self.store.remember(key, &entry.uid, |local| local.deleted = true);
            return Ok(None);
        }
        Ok(plan.wake_at.map(|at| {
            let away = Duration::try_from(at.duration_since(self.around.clock.now()));
            Instant::now() + away.unwrap_or_default().max(MIN_DELAY)
        }))
    }
}

/// The name of the ConfigMap that a plan sees to.
fn config_name(plan: &ForeignPlan) -> String {
    let config = plan.config.as_ref();
    config
        .and_then(|config| config.metadata.name.clone())
        .unwrap_or_default()
}

#[cfg(test)]
pub(crate) mod tests;
