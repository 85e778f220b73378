//! The operator without its surroundings: watches, index, queue and writer, driven while this replica leads.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use trainyard_core::view::Settings;

use crate::act::{WriteLimiter, Writer};
use crate::clock::{Clock, SystemClock};
use crate::events::{Recorder, Senders};
use crate::index::{Index, JobKey};
use crate::leader::Leadership;
use crate::metrics::Metrics;
use crate::queue::{Backoff, Queue, jitter};
use crate::reconcile::{ReconcileResult, Reconciler, Requeue};
use crate::settings::SharedSettings;
use crate::watch::Watches;

/// The pause after a failure.
const RETRY: Backoff = Backoff {
    base: Duration::from_millis(50),
    max: Duration::from_secs(30),
};
/// The pause until the index has what it lacked.
const STALE: Backoff = Backoff {
    base: Duration::from_millis(10),
    max: Duration::from_secs(2),
};
/// How long a replica that is just starting waits to be the leader before it lists: a list that begins after that
/// need not be made again.
const FIRST_TERM: Duration = Duration::from_secs(1);
/// A job of many pods, at which each look costs time, rests for so many times what it cost, so that the changes of
/// many pods are looked at together.
const RESTS: u32 = 20;
/// The shortest rest that a timer can tell from none.
const RESOLUTION: Duration = Duration::from_millis(2);
/// How long writes may take that were under way when it was time to stop.
const LAST_WRITES: Duration = Duration::from_secs(10);
/// How often numbers that change by themselves are put into the metrics.
const GAUGES: Duration = Duration::from_secs(5);

/// How the engine runs.
#[derive(Clone)]
pub struct Config {
    /// The namespaces to look at; all, if empty.
    pub namespaces: Vec<String>,
    /// Settings that decisions depend on.
    pub settings: Settings,
    /// How many jobs are reconciled at once.
    pub concurrency: usize,
    /// The name of this instance, for events.
    pub instance: String,
    /// The time.
    pub clock: Arc<dyn Clock>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            namespaces: Vec::new(),
            settings: Settings::default(),
            concurrency: 256,
            instance: "trainyard".to_owned(),
            clock: Arc::new(SystemClock),
        }
    }
}

/// The engine.
pub struct Engine {
    client: kube::Client,
    config: Config,
    leadership: Leadership,
    metrics: Arc<Metrics>,
    index: Arc<Index>,
    queue: Arc<Queue<JobKey>>,
    reconciler: Arc<Reconciler>,
    senders: Senders,
    settings: SharedSettings,
    pulse: Arc<Pulse>,
}

/// Tells whether the engine is alive.
#[derive(Debug)]
pub struct Pulse {
    since: Instant,
    /// Milliseconds since `since` of the last beat.
    last: AtomicU64,
}

impl Pulse {
    fn new() -> Self {
        Self {
            since: Instant::now(),
            last: AtomicU64::new(0),
        }
    }

    fn beat(&self) {
        let now = u64::try_from(self.since.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.last.store(now, Ordering::Relaxed);
    }

    /// How long ago the engine last showed that it lives.
    pub fn silent(&self) -> Duration {
        self.since
            .elapsed()
            .saturating_sub(Duration::from_millis(self.last.load(Ordering::Relaxed)))
    }
}

impl Engine {
    /// An engine at rest.
    pub fn new(client: kube::Client, config: Config, leadership: Leadership, metrics: Arc<Metrics>) -> Self {
        let index = Arc::new(Index::new(&config.namespaces));
        let settings = SharedSettings::new(config.settings.clone());
        let writer = Writer::new(
            client.clone(),
            index.clone(),
            leadership.clone(),
            settings.clone(),
        );
        let (recorder, senders) = Recorder::start(&client, writer.limiter(), &leadership, &config.instance);
        let reconciler = Arc::new(Reconciler {
            writer,
            index: index.clone(),
            recorder: recorder.with_metrics(metrics.clone()),
            metrics: metrics.clone(),
            clock: config.clock.clone(),
        });
        let (queue, pulse) = (Arc::default(), Arc::new(Pulse::new()));
        Self {
            client,
            config,
            leadership,
            metrics,
            index,
            queue,
            reconciler,
            senders,
            settings,
            pulse,
        }
    }

    /// What takes events for this engine's senders, which end when the last of these is gone.
    pub(crate) fn recorder(&self) -> Recorder {
        self.reconciler.recorder.clone()
    }

    /// Whether the engine lives.
    pub fn pulse(&self) -> Arc<Pulse> {
        self.pulse.clone()
    }

    /// The settings by which the engine decides.
    pub fn settings(&self) -> SharedSettings {
        self.settings.clone()
    }

    /// Has a job looked at, while the engine leads.
    pub fn wake(&self) -> Arc<dyn Fn(JobKey) + Send + Sync> {
        let queue = self.queue.clone();
        Arc::new(move |key| queue.with(|core| core.add(key)))
    }

    /// What the engine knows; warm once [`Index::is_listed_since`] says so.
    pub fn index(&self) -> Arc<Index> {
        self.index.clone()
    }

    /// What limits the number of requests that are under way.
    pub fn limiter(&self) -> WriteLimiter {
        self.reconciler.writer.limiter().clone()
    }

    /// Runs until `shutdown`, and then until what was begun has ended.
    pub async fn run(mut self, shutdown: CancellationToken) {
        let first = tokio::time::timeout(FIRST_TERM, self.leadership.leading())
            .await
            .ok();
        let started = Instant::now();
        let mut watches = Watches::start(
            &self.client,
            &self.config.namespaces,
            &self.index,
            &self.queue,
            &self.metrics,
        );
        let gauges = gauges(
            self.index.clone(),
            self.queue.clone(),
            self.metrics.clone(),
            self.pulse.clone(),
        );
        let gauges = tokio::spawn(gauges);
        while !shutdown.is_cancelled() {
            let led = tokio::select! {
                () = shutdown.cancelled() => break,
                term = self.leadership.leading() => term,
            };
            tracing::info!(term = led, "leading");
            let began = if first == Some(led) {
                started
            } else {
                Instant::now()
            };
            self.term(led, began, &mut watches, &shutdown).await;
            if !shutdown.is_cancelled() {
                tracing::warn!(term = led, "not leading any more");
            }
        }
        gauges.abort();
        watches.stop().await;
        // The senders end when the last recorder is gone.
        drop(self.reconciler);
        self.senders.finish().await;
    }

    /// Leads for a term, which had begun at a time.
    async fn term(&self, led: u64, began: Instant, watches: &mut Watches, shutdown: &CancellationToken) {
        let term = CancellationToken::new();
        let mut tasks = JoinSet::new();
        let mut leadership = self.leadership.clone();
        let over = async {
            while leadership.term() == Some(led) {
                leadership.changed().await;
            }
        };
        tokio::select! {
            () = over => term.cancel(),
            () = shutdown.cancelled() => {}
            () = async {
                // A predecessor may have written until a moment ago: decide nothing before having seen all of it.
                watches.caught_up(began).await;
                self.index.forget_former_terms();
                // First this, so that no change comes between.
                let mut settings = self.settings.follow();
                self.queue.with(|core| core.open(self.index.keys()));
                tokio::select! {
                    () = self.dispatch(&term, &mut tasks) => {}
                    () = self.look_again(&mut settings) => {}
                }
            } => {}
        }
        self.queue.with(crate::queue::Core::close);
        // Writes end with the term; at a shutdown what was begun is ended properly, if that does not take too long.
        let ended = async { while tasks.join_next().await.is_some() {} };
        if tokio::time::timeout(LAST_WRITES, ended).await.is_err() {
            term.cancel();
            while tasks.join_next().await.is_some() {}
        }
    }

    /// Looks at all jobs when there is an agent where there was none: some may have waited for it.
    async fn look_again(&self, settings: &mut watch::Receiver<Arc<Settings>>) {
        let mut had = settings.borrow_and_update().agent.is_some();
        loop {
            if settings.changed().await.is_err() {
                return std::future::pending().await;
            }
            let has = settings.borrow_and_update().agent.is_some();
            if has && !had {
                let keys = self.index.keys();
                self.queue
                    .with(|core| keys.into_iter().for_each(|key| core.add(key)));
            }
            had = has;
        }
    }

    async fn dispatch(&self, term: &CancellationToken, tasks: &mut JoinSet<()>) {
        let places = Arc::new(Semaphore::new(self.config.concurrency.max(1)));
        loop {
            let Ok(place) = places.clone().acquire_owned().await else {
                return;
            };
            let key = self.queue.next().await;
            while tasks.try_join_next().is_some() {}
            let (reconciler, queue) = (self.reconciler.clone(), self.queue.clone());
            let term = term.clone();
            tasks.spawn(async move {
                let started = Instant::now();
                let verdict = reconciler.reconcile(&key, &term).await;
                reconciler.metrics.reconciled(verdict.outcome, started.elapsed());
                settle(&queue, &key, verdict);
                drop(place);
            });
        }
    }
}

/// Puts a key back as a verdict says.
fn settle(queue: &Queue<JobKey>, key: &JobKey, verdict: ReconcileResult) {
    let now = Instant::now();
    let rest = verdict.cost * RESTS;
    queue.with(|core| {
        match verdict.next {
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
                let pause = RETRY.pause(core.failed(key), jitter());
                core.add_at(key.clone(), now + pause.max(asked.unwrap_or_default()));
            }
            Requeue::Stale => {
                let pause = STALE.pause(core.failed(key), jitter());
                core.add_at(key.clone(), now + pause);
            }
        }
        core.done(key, (rest >= RESOLUTION).then(|| now + rest));
    });
}

async fn gauges(index: Arc<Index>, queue: Arc<Queue<JobKey>>, metrics: Arc<Metrics>, pulse: Arc<Pulse>) {
    loop {
        // Whoever gets this far has been given a thread, the index and the queue.
        metrics.set_queue_depth(queue.depth());
        let phases: Vec<_> = index.phases().collect();
        metrics.set_jobs(|phase| {
            let count = phases
                .iter()
                .find(|(known, _)| *known == phase)
                .map_or(0, |(_, count)| *count);
            usize::try_from(count).unwrap_or_default()
        });
        pulse.beat();
        tokio::time::sleep(GAUGES).await;
    }
}

#[cfg(test)]
mod tests {
    use trainyard_core::view::Agent;

    use super::*;
    use crate::index::Source;
    use crate::slim::JobObject;

    fn engine() -> Engine {
        let service = tower::service_fn(|_: http::Request<kube::client::Body>| async {
            Err::<http::Response<kube::client::Body>, _>(std::io::Error::other("nobody is there"))
        });
        let client = kube::Client::new(service, "default");
        let (leadership, metrics) = (Leadership::always(), Arc::new(Metrics::new()));
        Engine::new(client, Config::default(), leadership, metrics)
    }

    #[tokio::test(start_paused = true)]
    async fn jobs_are_looked_at_again_when_there_is_an_agent_and_not_at_every_change_of_it() {
        let engine = engine();
        let job = r#"{"metadata": {"name": "a", "namespace": "ns", "uid": "u1", "resourceVersion": "7"},
            "spec": {"framework": {"name": "mpi"}, "roles": []}}"#;
        let job = JobObject::decode(job).unwrap();
        engine.index.apply_job(job, Source::Watch);
        engine.queue.with(|core| core.open([]));
        let agent = |image: &str| {
            Some(Agent {
                image: image.to_owned(),
                image_pull_policy: None,
                may_be_root: false,
                command: Vec::new(),
                observer: None,
            })
        };
        let mut settings = engine.settings.follow();
        let mut looking = std::pin::pin!(engine.look_again(&mut settings));
        let mut depth_after = async |change: Option<Agent>| {
            engine.settings.set_agent(change);
            assert!(futures::poll!(&mut looking).is_pending());
            engine.queue.depth()
        };
        assert_eq!(depth_after(None).await, 0);
        assert_eq!(depth_after(agent("one")).await, 1);
        engine.queue.next().await;
        engine.queue.with(|core| core.done(&JobKey::new("ns", "a"), None));
        assert_eq!(depth_after(agent("two")).await, 0, "it had one before");
    }
}
