//! The programs in the pods, and their agents: what they do when they are told to leave.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use parking_lot::Mutex;
use tokio::time::{Instant, sleep};
use trainyard_api::TrainingJob;
use trainyard_contract::drain::{DrainReport, DrainState};
use trainyard_testkit::load::Player;

use crate::draw::Farewell;
use crate::operators::Operators;
use crate::record::{Event, NAMESPACE, Record, index, phase, victims};

/// Agents report again after this, to an operator that may be another one.
const RESEND_INTERVAL: Duration = Duration::from_secs(3);
/// Agents that reach no operator try again after this.
const RETRY_INTERVAL: Duration = Duration::from_millis(200);

#[derive(Default)]
struct AgentsView {
    leaving: BTreeSet<i32>,
    /// The index and UID of workers that run, by name.
    running: BTreeMap<String, (i32, String)>,
    /// UIDs of those that were told to leave.
    told: BTreeSet<String>,
}

#[derive(Clone)]
pub struct Programs {
    known: Arc<Mutex<AgentsView>>,
    farewells: Arc<Vec<Farewell>>,
    player: Arc<Player>,
    operators: Operators,
    record: Record,
}

impl Programs {
    pub fn new(farewells: Vec<Farewell>, player: Arc<Player>, operators: Operators, record: Record) -> Self {
        Self {
            known: Arc::default(),
            farewells: Arc::new(farewells),
            player,
            operators,
            record,
        }
    }

    /// Hears of the job, as agents do by the observer.
    pub fn hear(&self, job: &TrainingJob) {
        self.known.lock().leaving = victims(job);
        self.tell();
    }

    pub fn see(&self, pod: &Pod, is_removed: bool) {
        let Some(index) = index(pod) else { return };
        let runs = phase(pod) == "Running" && pod.metadata.deletion_timestamp.is_none() && !is_removed;
        let mut known = self.known.lock();
        let uid = pod.uid().unwrap_or_default();
        let name = pod.name_any();
        if runs {
            known.running.insert(name, (index, uid));
        } else if known.running.get(&name).is_some_and(|(_, known)| *known == uid) {
            known.running.remove(&name);
        }
        drop(known);
        self.tell();
    }

    /// Tells those that are to leave and do not know it yet.
    fn tell(&self) {
        let mut known = self.known.lock();
        let AgentsView {
            leaving,
            running,
            told,
        } = &mut *known;
        for (name, (index, uid)) in running {
            if leaving.contains(index) && told.insert(uid.clone()) {
                let farewell = self.farewells[(told.len() - 1) % self.farewells.len()];
                let program = Program {
                    all: self.clone(),
                    name: name.clone(),
                    uid: uid.clone(),
                };
                tokio::spawn(async move { program.leave(farewell).await });
            }
        }
    }
}

struct Program {
    all: Programs,
    name: String,
    uid: String,
}

impl Program {
    async fn leave(&self, farewell: Farewell) {
        let long = Duration::from_mins(5);
        match farewell {
            Farewell::Silent => {}
            Farewell::Orderly(step) => {
                sleep(step).await;
                self.report(DrainState::Acknowledged, step).await;
                self.report(DrainState::CheckpointDone, step).await;
                self.exit(0).await;
            }
            Farewell::Hangs => self.report(DrainState::Acknowledged, long).await,
            Farewell::HangsAfterCheckpoint => self.report(DrainState::CheckpointDone, long).await,
            Farewell::Exits(code) => self.exit(code).await,
        }
    }

    fn exists(&self) -> bool {
        let known = self.all.known.lock();
        let running = known.running.get(&self.name);
        running.is_some_and(|(_, uid)| *uid == self.uid)
    }

    /// Its agent reports for so long.
    async fn report(&self, state: DrainState, time: Duration) {
        let end = Instant::now() + time;
        while self.exists() && Instant::now() < end {
            let report = DrainReport { state, step: None };
            let is_heard = self.all.operators.report(&self.uid, report);
            if is_heard {
                self.all.record.add(Event::Acknowledged(self.uid.clone()));
            }
            let pause = if is_heard { RESEND_INTERVAL } else { RETRY_INTERVAL };
            sleep(pause.min(end.saturating_duration_since(Instant::now()))).await;
        }
    }

    async fn exit(&self, code: i32) {
        if self.exists() {
            // It may be removed at the same moment.
            let player = &self.all.player;
            let _ = match code {
                0 => player.succeed(NAMESPACE, &self.name).await,
                code => player.fail(NAMESPACE, &self.name, code).await,
            };
        }
    }
}
