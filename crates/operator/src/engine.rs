//! The controller of TrainingJobs with its watches, its index and its events: an operator without
//! election, webhooks and servers.

mod observer;
mod training_jobs;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use trainyard_core::view::Settings;

use crate::act::Writer;
use crate::backoff::Backoff;
use crate::clock::{Clock, SystemClock};
use crate::controller::{Context, Controller, Limits};
use crate::declarations::{self, Declarations, Wake};
use crate::events::{Recorder, Senders};
use crate::index::Index;
use crate::leader::Leadership;
use crate::metrics::Metrics;
use crate::observer::{DrainReports, Launchers};
use crate::scale_requests::{self, ScaleRequests};
use crate::settings::SharedSettings;
pub use observer::ObserverError;
use training_jobs::TrainingJobs;

const BACKOFF: Backoff = Backoff {
    base: Duration::from_millis(50),
    max: Duration::from_secs(30),
};
const DRAIN_TIMEOUT: Duration = Duration::from_secs(10);

/// How the engine runs.
#[derive(Clone)]
pub struct Config {
    /// The namespaces to watch; all, if empty.
    pub namespaces: Vec<String>,
    /// The settings that decisions depend on.
    pub settings: Settings,
    /// How many jobs are reconciled at once.
    pub concurrency: usize,
    /// The name of this instance, for events.
    pub instance: String,
    /// The clock that decisions are taken by.
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

/// Runs TrainingJobs.
pub struct Engine {
    controller: Arc<Controller<TrainingJobs>>,
    declarations: Arc<Controller<Declarations>>,
    scale_requests: Arc<Controller<ScaleRequests>>,
    context: Context,
    senders: Senders,
}

/// Tells whether the engine is alive.
#[derive(Debug)]
pub(crate) struct Pulse {
    since: Instant,
    /// Milliseconds from `since` to the last beat.
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

    /// Returns the time since the last beat.
    pub(crate) fn silent(&self) -> Duration {
        self.since
            .elapsed()
            .saturating_sub(Duration::from_millis(self.last.load(Ordering::Relaxed)))
    }
}

impl Engine {
    /// Makes an engine. Nothing is watched or written before [`run`](Self::run).
    pub fn new(client: kube::Client, config: Config, leadership: Leadership, metrics: Arc<Metrics>) -> Self {
        let index = Arc::new(Index::new(&config.namespaces).with_notices(config.settings.notices.clone()));
        let settings = SharedSettings::new(config.settings);
        let writer = Writer::new(
            client.clone(),
            index.clone(),
            leadership.clone(),
            settings.clone(),
        );
        let limiter = writer.limiter().clone();
        let (recorder, senders) = Recorder::start(&client, &limiter, &leadership, &config.instance);
        let context = Context {
            client,
            namespaces: config.namespaces,
            index,
            leadership,
            limiter,
            recorder: recorder.with_metrics(metrics.clone()),
            metrics,
            clock: config.clock,
            settings,
        };
        let limits = Limits {
            concurrency: config.concurrency,
            backoff: BACKOFF,
            drain_timeout: DRAIN_TIMEOUT,
        };
        let training_jobs = TrainingJobs::new(writer, &context);
        let (leadership, metrics) = (context.leadership.clone(), context.metrics.clone());
        let controller = Controller::new(training_jobs, limits, leadership, metrics);
        let declarations = declarations::controller(context.clone(), wake(&controller));
        let scale_requests = scale_requests::controller(context.clone(), wake(&controller));
        Self {
            controller,
            declarations,
            scale_requests,
            context,
            senders,
        }
    }

    /// Runs until `shutdown`, and then until the last writes and events have been answered.
    pub async fn run(self, shutdown: CancellationToken) {
        // The senders end when the last recorder is dropped: this one and the controller's.
        drop(self.context);
        let declarations = self.declarations.run(shutdown.clone());
        let scale_requests = self.scale_requests.run(shutdown.clone());
        tokio::join!(self.controller.run(shutdown), declarations, scale_requests);
        self.senders.finish().await;
    }

    /// Returns the requests to change the size of a job.
    pub(crate) fn requests(&self) -> Arc<scale_requests::Store> {
        self.scale_requests.reconciler.store()
    }

    /// Returns what the engine shares with other controllers. [`run`](Self::run) returns only when
    /// it is dropped.
    pub(crate) fn context(&self) -> Context {
        self.context.clone()
    }

    /// Returns what takes reports of pods that leave, where no observer is served.
    pub fn drain_reports(&self) -> DrainReports {
        DrainReports::new(self.index(), self.wake())
    }

    /// Returns what speaks for launchers that run scripts, where no observer is served.
    pub fn launchers(&self) -> Launchers {
        Launchers::new(self.index())
    }

    pub(crate) fn index(&self) -> Arc<Index> {
        self.context.index.clone()
    }

    pub(crate) fn settings(&self) -> SharedSettings {
        self.context.settings.clone()
    }

    pub(crate) fn pulse(&self) -> Arc<Pulse> {
        self.controller.reconciler.pulse.clone()
    }

    /// Returns a function that has a job reconciled, while this replica leads.
    pub(crate) fn wake(&self) -> Wake {
        wake(&self.controller)
    }
}

fn wake(controller: &Controller<TrainingJobs>) -> Wake {
    let queue = controller.queue.clone();
    Arc::new(move |key| queue.add(key))
}
