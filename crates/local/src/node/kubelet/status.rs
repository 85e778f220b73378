//! What is known of a pod's containers, and the status that follows from it. Pure.

use std::net::Ipv4Addr;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{
    Container, ContainerState, ContainerStateRunning, ContainerStateTerminated, ContainerStateWaiting,
    ContainerStatus, HostIP, Pod, PodCondition, PodIP, PodStatus,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

/// Whether a condition holds, why in one word, and why in a sentence.
type Finding = (bool, Option<&'static str>, Option<String>);

/// One container, over all of its runs.
#[derive(Clone, Debug)]
pub struct Entry {
    /// Its name.
    pub name: String,
    /// Its image, as the pod names it.
    pub image: String,
    /// An init container that goes on beside the others.
    pub sidecar: bool,
    /// What it does.
    pub state: State,
    /// How its last run ended.
    pub last: Option<Terminated>,
    /// How often it was started again.
    pub restarts: i32,
    /// Whether it is ready, as its probe says.
    pub ready: bool,
    /// Whether it has started, as its probe says.
    pub started: bool,
    /// The identifier of its run.
    pub id: Option<String>,
}

/// What a container does.
#[derive(Clone, Debug, PartialEq)]
pub enum State {
    /// It does not run yet, or not again yet.
    Waiting {
        /// Why, in one word.
        reason: String,
        /// Why, in a sentence.
        message: Option<String>,
    },
    /// It runs.
    Running {
        /// Since when.
        since: Timestamp,
    },
    /// It has ended.
    Terminated(Terminated),
}

/// The end of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Terminated {
    /// Its exit code.
    pub code: i32,
    /// `Completed`, `Error`, `OOMKilled`, ...
    pub reason: String,
    /// What it left as its last word.
    pub message: Option<String>,
    /// When it began.
    pub started: Timestamp,
    /// When it ended.
    pub finished: Timestamp,
    /// The identifier of the run.
    pub id: Option<String>,
}

/// All that is known of a pod.
#[derive(Clone, Debug)]
pub struct PodState {
    /// When the kubelet first saw it.
    pub seen: Timestamp,
    /// Its address, while it has one.
    pub address: Option<Ipv4Addr>,
    /// Whether its containers can be started.
    pub sandboxed: bool,
    /// Init containers.
    pub init: Vec<Entry>,
    /// Containers.
    pub main: Vec<Entry>,
    /// Why the whole pod failed, if not because of its containers.
    pub failure: Option<(String, String)>,
    /// Whether all is over.
    pub over: bool,
}

impl PodState {
    /// Before anything was started.
    pub fn new(pod: &Pod, now: Timestamp) -> Self {
        let spec = pod.spec.clone().unwrap_or_default();
        let init = spec.init_containers.unwrap_or_default();
        let reason = if init.is_empty() {
            "ContainerCreating"
        } else {
            "PodInitializing"
        };
        let entry = |container: &Container| Entry {
            name: container.name.clone(),
            image: container.image.clone().unwrap_or_default(),
            sidecar: container.restart_policy.as_deref() == Some("Always"),
            state: State::waiting(reason),
            last: None,
            restarts: 0,
            ready: false,
            started: false,
            id: None,
        };
        Self {
            seen: now,
            address: None,
            sandboxed: false,
            init: init.iter().map(entry).collect(),
            main: spec.containers.iter().map(entry).collect(),
            failure: None,
            over: false,
        }
    }

    /// A container by its name.
    pub fn entry(&mut self, name: &str) -> Option<&mut Entry> {
        self.init
            .iter_mut()
            .chain(&mut self.main)
            .find(|entry| entry.name == name)
    }

    fn initialized(&self) -> bool {
        self.init.iter().all(Entry::is_initialized)
    }

    fn phase(&self, policy: &str) -> &'static str {
        if self.failure.is_some() {
            return "Failed";
        }
        if !self.initialized() {
            let failed = self
                .init
                .iter()
                .any(|entry| !entry.sidecar && entry.code().is_some_and(|code| code != 0));
            return if failed && policy == "Never" {
                "Failed"
            } else {
                "Pending"
            };
        }
        let runs = |entry: &Entry| matches!(entry.state, State::Running { .. });
        let stopped = |entry: &Entry| !runs(entry) && (entry.code().is_some() || entry.last.is_some());
        if self.main.iter().any(|entry| !runs(entry) && !stopped(entry)) {
            return "Pending";
        }
        if self.main.iter().any(runs) || policy == "Always" {
            return "Running";
        }
        if self.main.iter().any(|entry| entry.code().is_none()) {
            return "Running";
        }
        if self.init.iter().any(|entry| entry.sidecar && runs(entry)) {
            return "Running";
        }
        if self.main.iter().all(|entry| entry.code() == Some(0)) {
            "Succeeded"
        } else if policy == "Never" || self.over {
            "Failed"
        } else {
            "Running"
        }
    }

    /// The status of the pod, given the one it has.
    pub fn status(&self, pod: &Pod, host: Ipv4Addr, now: Timestamp) -> PodStatus {
        let spec = pod.spec.as_ref();
        let policy = spec
            .and_then(|spec| spec.restart_policy.as_deref())
            .unwrap_or("Always");
        let old = pod.status.clone().unwrap_or_default();
        let phase = self.phase(policy);
        let statuses = |entries: &[Entry], deliberate: bool| {
            (!entries.is_empty()).then(|| {
                entries
                    .iter()
                    .map(|entry| entry.status(deliberate))
                    .collect::<Vec<_>>()
            })
        };
        let mut conditions = Vec::new();
        for (kind, (status, reason, message)) in self.conditions(phase) {
            let known = old.conditions.iter().flatten().find(|known| known.type_ == kind);
            let status = if status { "True" } else { "False" };
            let since = known
                .filter(|known| known.status == status)
                .and_then(|known| known.last_transition_time.clone());
            conditions.push(PodCondition {
                type_: kind.to_owned(),
                status: status.to_owned(),
                reason: reason.map(str::to_owned),
                message,
                last_transition_time: Some(since.unwrap_or(Time(now))),
                observed_generation: known.and_then(|known| known.observed_generation),
                ..PodCondition::default()
            });
        }
        let own: Vec<_> = conditions
            .iter()
            .map(|condition| condition.type_.clone())
            .collect();
        conditions.extend(
            old.conditions
                .into_iter()
                .flatten()
                .filter(|known| !own.contains(&known.type_)),
        );
        let address = self.address.map(|address| address.to_string());
        PodStatus {
            phase: Some(phase.to_owned()),
            conditions: Some(conditions),
            host_ip: Some(host.to_string()),
            host_ips: Some(vec![HostIP { ip: host.to_string() }]),
            pod_ips: address.clone().map(|ip| vec![PodIP { ip }]),
            pod_ip: address,
            start_time: Some(Time(self.seen)),
            init_container_statuses: statuses(&self.init, true),
            container_statuses: statuses(&self.main, false),
            reason: self.failure.as_ref().map(|(reason, _)| reason.clone()),
            message: self.failure.as_ref().map(|(_, message)| message.clone()),
            qos_class: old.qos_class,
            ..PodStatus::default()
        }
    }

    fn conditions(&self, phase: &str) -> [(&'static str, Finding); 4] {
        let names = |entries: &[Entry], bad: fn(&Entry) -> bool| {
            let names: Vec<_> = entries
                .iter()
                .filter(|entry| bad(entry))
                .map(|entry| entry.name.clone())
                .collect();
            (!names.is_empty()).then(|| format!("[{}]", names.join(" ")))
        };
        let completed = phase == "Succeeded";
        let incomplete = names(&self.init, |entry| !entry.is_initialized());
        let initialized = match incomplete {
            _ if completed => (true, Some("PodCompleted"), None),
            None => (true, None, None),
            Some(names) => {
                let message = format!("containers with incomplete status: {names}");
                (false, Some("ContainersNotInitialized"), Some(message))
            }
        };
        let mut counted: Vec<Entry> = self.init.iter().filter(|entry| entry.sidecar).cloned().collect();
        counted.extend(self.main.iter().cloned());
        let ready = match names(&counted, |entry| !entry.ready) {
            _ if completed => (false, Some("PodCompleted"), None),
            _ if phase == "Failed" => (false, Some("PodFailed"), None),
            None => (true, None, None),
            Some(names) => {
                let message = format!("containers with unready status: {names}");
                (false, Some("ContainersNotReady"), Some(message))
            }
        };
        [
            ("PodReadyToStartContainers", (self.sandboxed, None, None)),
            ("Initialized", initialized),
            ("Ready", ready.clone()),
            ("ContainersReady", ready),
        ]
    }
}

impl State {
    /// Waiting, without more to say.
    pub fn waiting(reason: &str) -> Self {
        Self::Waiting {
            reason: reason.to_owned(),
            message: None,
        }
    }

    fn shown(&self) -> ContainerState {
        let mut shown = ContainerState::default();
        match self {
            Self::Waiting { reason, message } => {
                shown.waiting = Some(ContainerStateWaiting {
                    reason: Some(reason.clone()),
                    message: message.clone(),
                });
            }
            Self::Running { since } => {
                shown.running = Some(ContainerStateRunning {
                    started_at: Some(Time(*since)),
                });
            }
            Self::Terminated(end) => shown.terminated = Some(end.shown()),
        }
        shown
    }
}

impl Terminated {
    fn shown(&self) -> ContainerStateTerminated {
        ContainerStateTerminated {
            container_id: self.id.clone(),
            exit_code: self.code,
            reason: Some(self.reason.clone()),
            message: self.message.clone(),
            // No signal: container runtimes put it into the exit code.
            signal: None,
            started_at: Some(Time(self.started)),
            finished_at: Some(Time(self.finished)),
        }
    }
}

impl Entry {
    fn code(&self) -> Option<i32> {
        match &self.state {
            State::Terminated(end) => Some(end.code),
            _ => None,
        }
    }

    fn is_initialized(&self) -> bool {
        if self.sidecar {
            self.started || self.code().is_some()
        } else {
            self.code() == Some(0)
        }
    }

    fn status(&self, init: bool) -> ContainerStatus {
        let runs = matches!(self.state, State::Running { .. });
        let ready = if init && !self.sidecar {
            self.code() == Some(0)
        } else {
            self.ready
        };
        ContainerStatus {
            name: self.name.clone(),
            image: self.image.clone(),
            image_id: if self.id.is_some() {
                self.image.clone()
            } else {
                String::new()
            },
            container_id: self.id.clone(),
            state: Some(self.state.shown()),
            last_state: Some(
                self.last
                    .as_ref()
                    .map_or_else(ContainerState::default, |end| ContainerState {
                        terminated: Some(end.shown()),
                        ..ContainerState::default()
                    }),
            ),
            ready,
            restart_count: self.restarts,
            started: Some(runs && self.started),
            ..ContainerStatus::default()
        }
    }
}
