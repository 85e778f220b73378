//! What the cluster and the user do to a job.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use trainyard_api::TrainingJobSpec;
use trainyard_contract::drain::{DrainReport, DrainState};
use trainyard_core::notice::{Notice, NoticeCause};
use trainyard_core::view::{NodeState, Nodes, PodEnd, PodPhase, PodRow, Trouble};

use super::{ROUNDS, World};

impl World {
    // What the cluster does.

    /// The row of a pod.
    pub fn pod(&self, name: &str) -> &PodRow {
        self.pods
            .iter()
            .find(|row| &*row.name == name)
            .unwrap_or_else(|| panic!("there is no pod {name}"))
    }

    pub fn pod_mut(&mut self, name: &str) -> &mut PodRow {
        let row = self.pods.iter_mut().find(|row| &*row.name == name);
        row.unwrap_or_else(|| panic!("there is no pod {name}"))
    }

    /// A pod is placed on a node and runs.
    pub fn run_on(&mut self, name: &str, node: &str) {
        let row = self.pod_mut(name);
        row.node = Some(node.into());
        row.phase = PodPhase::Running;
        row.ready = true;
        row.trouble = None;
    }

    /// Every pod that waits is placed on a node, which has not begun with it.
    pub fn bind_all(&mut self) {
        for row in self.pods.iter_mut().filter(|row| row.phase == PodPhase::Pending) {
            row.node.get_or_insert_with(|| "node-0".into());
        }
    }

    /// Every pod that waits is placed on one of two nodes that take pods, and runs.
    pub fn run_all(&mut self) {
        let waiting: Vec<String> = self.names(|row| row.phase == PodPhase::Pending && !row.terminating);
        let nodes = (0..).map(|i| format!("node-{i}"));
        let nodes: Vec<String> = nodes
            .filter(|node| self.nodes.notice(node).is_none())
            .take(2)
            .collect();
        for (i, name) in waiting.iter().enumerate() {
            self.run_on(name, &nodes[i % 2]);
        }
    }

    pub fn names(&self, which: impl Fn(&PodRow) -> bool) -> Vec<String> {
        self.pods
            .iter()
            .filter(|row| which(row))
            .map(|row| row.name.to_string())
            .collect()
    }

    pub fn succeed(&mut self, name: &str) {
        let now = self.now;
        let row = self.pod_mut(name);
        row.node.get_or_insert_with(|| "node-0".into());
        row.phase = PodPhase::Succeeded;
        row.ready = false;
        if let Some(end) = &mut row.end {
            // It was asked to go before.
            (end.exit_code, end.finished_at) = (Some(0), Some(now));
        }
    }

    pub fn succeed_all(&mut self) {
        for name in self.names(|row| row.phase == PodPhase::Running) {
            self.succeed(&name);
        }
    }

    /// A pod's program ends with an exit code.
    pub fn fail(&mut self, name: &str, code: i32) {
        let now = self.now;
        self.told += 1;
        let told = self.told;
        let row = self.pod_mut(name);
        row.node.get_or_insert_with(|| "node-0".into());
        row.phase = PodPhase::Failed;
        row.ready = false;
        row.end = Some(Box::new(PodEnd {
            container: Some("main".to_owned()),
            exit_code: Some(code),
            signal: (code > 128).then(|| code - 128),
            reason: Some("Error".to_owned()),
            message: Some("the last line of the log".to_owned()),
            finished_at: Some(now),
            asked_at: row.end.take().and_then(|end| end.asked_at),
            seen_version: told,
            disrupted: false,
        }));
    }

    /// The machine of a node is switched off and on: of what ran there nothing is known.
    pub fn reboot(&mut self, node: &str) {
        for name in self.names(|row| row.node.as_deref() == Some(node) && row.phase == PodPhase::Running) {
            self.fail(&name, 255);
            if let Some(end) = &mut self.pod_mut(&name).end {
                end.reason = Some("Unknown".to_owned());
            }
        }
    }

    /// All pods of a node are asked to go.
    pub fn drain(&mut self, node: &str) {
        for name in self.names(|row| row.node.as_deref() == Some(node) && !row.terminating) {
            self.ask_to_go(&name);
        }
    }

    /// A pod is evicted: it failed, and its program had no part in it.
    pub fn evict(&mut self, name: &str) {
        let now = self.now;
        let row = self.pod_mut(name);
        row.node.get_or_insert_with(|| "node-0".into());
        row.phase = PodPhase::Failed;
        row.ready = false;
        let reason = Some("Evicted".to_owned());
        row.end = Some(Box::new(PodEnd {
            reason,
            asked_at: Some(now),
            disrupted: true,
            ..PodEnd::default()
        }));
    }

    pub fn trouble(&mut self, name: &str, reason: &str, message: &str) {
        let trouble = Trouble {
            reason: reason.to_owned(),
            message: message.to_owned(),
        };
        self.pod_mut(name).trouble = Some(Box::new(trouble));
    }

    /// Somebody deletes a pod: it is asked to go.
    pub fn ask_to_go(&mut self, name: &str) {
        let now = self.now;
        let row = self.pod_mut(name);
        if !std::mem::replace(&mut row.terminating, true) && row.phase != PodPhase::Succeeded {
            let end = row.end.get_or_insert_default();
            let finished = end
                .finished_at
                .and_then(|at| at.checked_add(SignedDuration::from_secs(1)).ok());
            end.asked_at = Some(finished.map_or(now, |after| now.max(after)));
        }
    }

    /// The program of a pod that was told to leave says how far it is.
    pub fn report_drain(&mut self, pod: &str, state: DrainState) {
        let uid = self.pod(pod).uid.to_string();
        self.local.drains.record(&uid, DrainReport { state, step: None });
    }

    /// A pod is gone without a trace.
    pub fn vanish(&mut self, name: &str) {
        self.pod(name);
        self.remove(|row| &*row.name == name);
    }

    /// What was in the job's way is gone, and the operator sees it.
    pub fn free_names(&mut self) {
        self.taken.clear();
        self.conflicts.clear();
    }

    pub fn node(&mut self, name: &str, state: NodeState) {
        self.nodes.0.insert(name.to_owned(), state);
    }

    /// Somebody cordons a node.
    pub fn cordon(&mut self, name: &str) {
        self.announce(name, NoticeCause::Cordon, None);
    }

    /// A node says that it goes, and how many seconds are left.
    pub fn announce(&mut self, name: &str, why: NoticeCause, seconds: Option<i64>) {
        let notice = Notice {
            seconds,
            ..Notice::of(why)
        };
        self.nodes.1.insert(name.to_owned(), notice);
    }

    /// A node stays after all.
    pub fn uncordon(&mut self, name: &str) {
        self.nodes.1.remove(name);
    }

    /// The kubelets of nodes that are up remove the pods that were asked to go.
    pub fn kubelets_remove(&mut self) {
        let nodes = std::mem::take(&mut self.nodes);
        let up = |node: &str| nodes.state(node) == NodeState::Up;
        self.remove(|row| row.terminating && row.node.as_deref().is_none_or(up));
        self.nodes = nodes;
    }

    pub fn tick(&mut self, seconds: i64) {
        self.now = self.now.checked_add(SignedDuration::from_secs(seconds)).unwrap();
    }

    /// The clock of the operator's machine is set.
    pub fn set_clock(&mut self, seconds: i64) {
        self.tick(seconds);
        self.start.0 = self
            .start
            .0
            .checked_add(SignedDuration::from_secs(seconds))
            .unwrap();
    }

    /// Operator and kubelets work, and time passes to whatever the operator waits for, but for a
    /// deadline in the far future, until nothing moves; pods that wait are run.
    pub fn settle(&mut self) {
        let mut moved_at = self.now;
        let mut before = (self.pods.clone(), self.log.statuses);
        for _ in 0..ROUNDS {
            let plan = self.reconcile();
            self.kubelets_remove();
            self.run_all();
            let after = (self.pods.clone(), self.log.statuses);
            let has_moved = before != after;
            if has_moved {
                (moved_at, before) = (self.now, after);
            }
            // What is in a job's way is looked at again and again, as long as it is there.
            let near = |at: &Timestamp| at.duration_since(moved_at) <= SignedDuration::from_mins(10);
            if let Some(at) = plan.wake_at().filter(near) {
                assert!(at > self.now, "wakes in the past, for ever");
                self.now = at;
            } else if !has_moved {
                return;
            }
        }
        panic!("never settles: {:#?}", self.plan());
    }

    /// As [`World::settle`], but no time passes.
    pub fn settle_without_waiting(&mut self) {
        for _ in 0..ROUNDS {
            self.reconcile();
            let before = self.pods.clone();
            self.kubelets_remove();
            self.run_all();
            if before == self.pods {
                return;
            }
        }
        panic!("never settles: {:#?}", self.plan());
    }

    // What the user does.

    /// The user changes the spec.
    pub fn edit(&mut self, change: impl FnOnce(&mut TrainingJobSpec)) {
        let before = self.job.spec.clone();
        change(&mut self.job.spec);
        if self.job.spec != before {
            *self.job.metadata.generation.get_or_insert(1) += 1;
        }
    }

    /// The user deletes the job, and a finalizer keeps it.
    pub fn begin_deletion(&mut self) {
        self.job.metadata.deletion_timestamp = Some(Time(self.now));
    }

    pub fn suspend(&mut self, suspend: bool) {
        self.edit(|spec| spec.suspend = Some(suspend));
    }
}
