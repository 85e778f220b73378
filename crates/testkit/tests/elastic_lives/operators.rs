//! One operator after the other: each is killed at some time, and the next one starts later.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;
use tower::Layer;
use trainyard_contract::drain::DrainReport;
use trainyard_core::view::{Agent, ObserverEndpoint, Settings};
use trainyard_local::api::Api;
use trainyard_operator::engine::{Config, Engine};
use trainyard_operator::leader::Leadership;
use trainyard_operator::metrics::Metrics;
use trainyard_operator::observer::DrainReports;
use trainyard_testkit::faults::{CrashPoint, Faults, Verb};

use crate::clock::PausedClock;
use crate::draw::ClusterPlan;
use crate::record::{Event, JOB, NAMESPACE, Record};

/// How long an operator is away that was killed at one of its writes.
const RESTART_TIME: Duration = Duration::from_secs(1);

struct Running {
    faults: Faults,
    reports: DrainReports,
}

struct State {
    api: Api,
    clock: PausedClock,
    record: Record,
    plan: ClusterPlan,
    running: Mutex<Option<Running>>,
    away: Mutex<Duration>,
}

#[derive(Clone)]
pub struct Operators(Arc<State>);

impl Operators {
    /// Starts the first one.
    pub fn start(api: &Api, clock: PausedClock, record: &Record, plan: &ClusterPlan) -> Self {
        let state = State {
            api: api.clone(),
            clock,
            record: record.clone(),
            plan: plan.clone(),
            running: Mutex::default(),
            away: Mutex::new(RESTART_TIME),
        };
        let operators = Self(Arc::new(state));
        let others = operators.clone();
        tokio::spawn(async move {
            loop {
                others.run().await;
                let away = std::mem::replace(&mut *others.0.away.lock(), RESTART_TIME);
                tokio::time::sleep(away).await;
            }
        });
        operators
    }

    /// Runs one until it is killed.
    async fn run(&self) {
        let State {
            api,
            clock,
            record,
            plan,
            ..
        } = &*self.0;
        let mut faults = Faults::none();
        if !plan.watch_lag.is_zero() {
            faults = faults.slow(plan.watch_lag, |call| call.verb == Verb::Watch);
        }
        if !plan.request_time.is_zero() {
            faults = faults.delay(plan.request_time, |call| call.verb != Verb::Watch);
        }
        let config = Config {
            settings: settings(plan.has_agents),
            clock: Arc::new(*clock),
            ..Config::default()
        };
        let client = kube::Client::new(faults.layer(api.clone()), NAMESPACE);
        let engine = Engine::new(client, config, Leadership::always(), Arc::new(Metrics::new()));
        let reports = engine.drain_reports();
        record.add(Event::OperatorStarted);
        let crashed = faults.crashed().clone();
        *self.0.running.lock() = Some(Running { faults, reports });
        tokio::select! {
            () = engine.run(CancellationToken::new()) => {}
            () = crashed.cancelled() => {}
        }
        *self.0.running.lock() = None;
        record.add(Event::OperatorKilled);
    }

    fn with_faults(&self, act: impl FnOnce(&Faults)) {
        if let Some(running) = &*self.0.running.lock() {
            act(&running.faults);
        }
    }

    /// Kills the one that runs.
    pub fn kill(&self, away: Duration) {
        self.with_faults(|faults| {
            *self.0.away.lock() = away;
            faults.crash();
        });
    }

    /// Has the one that runs killed at a write.
    pub fn kill_at_write(&self, number: u64, when: CrashPoint) {
        self.with_faults(|faults| faults.crash_later(number, when));
    }

    /// Cuts the one that runs off from the API server for a time, if it is not killed before.
    pub fn cut_off(&self, time: Duration) {
        self.with_faults(|faults| {
            faults.refuse(true);
            self.0.record.add(Event::CutOff);
            let (faults, record) = (faults.clone(), self.0.record.clone());
            tokio::spawn(async move {
                tokio::time::sleep(time).await;
                faults.refuse(false);
                if !faults.crashed().is_cancelled() {
                    record.add(Event::Reconnected);
                }
            });
        });
    }

    /// How many writes the one that runs has made; none runs: `None`.
    pub fn writes(&self) -> Option<u64> {
        let running = self.0.running.lock();
        running
            .as_ref()
            .map(|running| running.faults.traffic().borrow().writes)
    }

    /// Tells the one that runs what the agent of a pod reports. Returns false if none runs.
    pub fn report(&self, uid: &str, report: DrainReport) -> bool {
        let running = self.0.running.lock();
        let Some(running) = running.as_ref().filter(|_| self.0.plan.has_agents) else {
            return false;
        };
        running.reports.take(NAMESPACE, JOB, uid, report);
        true
    }
}

fn settings(has_agents: bool) -> Settings {
    Settings {
        agent: has_agents.then(|| Agent {
            image: "registry.example/trainyard:v1".to_owned(),
            image_pull_policy: None,
            may_be_root: false,
            command: vec!["/trainyard-agent".to_owned()],
            observer: Some(ObserverEndpoint {
                address: "https://trainyard-observer.trainyard-system.svc:9444".to_owned(),
                authority: "-----BEGIN CERTIFICATE-----\n".to_owned(),
            }),
        }),
        ..Settings::default()
    }
}
