//! The state of a pod's containers, and its status. Pure.

mod entry;
#[cfg(test)]
mod tests;

use std::net::Ipv4Addr;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Container, HostIP, Pod, PodCondition, PodIP, PodStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

pub use entry::{Entry, State, Terminated};

/// The status, reason and message of a condition.
type ConditionState = (bool, Option<&'static str>, Option<String>);

#[derive(Clone, Debug)]
pub struct PodState {
    pub seen: Timestamp,
    pub address: Option<Ipv4Addr>,
    /// Whether its sandbox exists.
    pub sandboxed: bool,
    pub init: Vec<Entry>,
    pub main: Vec<Entry>,
    /// The reason and message of a failure that is not that of a container.
    pub failure: Option<(String, String)>,
    pub over: bool,
    /// Whether it ended before all of its containers had run.
    pub cut_short: bool,
}

impl PodState {
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
            before_last: None,
            restarts: 0,
            ready: false,
            started: false,
            came_up: false,
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
            cut_short: false,
        }
    }

    pub fn entry(&mut self, name: &str) -> Option<&mut Entry> {
        self.init
            .iter_mut()
            .chain(&mut self.main)
            .find(|entry| entry.name == name)
    }

    /// Marks the pod as ended. Containers that should have run count as failed.
    pub fn close(&mut self) {
        let was_initialized = self.initialized();
        self.cut_short = !self.main.iter().all(Entry::has_run);
        self.over = true;
        self.sandboxed = false;
        let begun = self.init.iter().rposition(Entry::has_run).unwrap_or(0);
        self.init.iter_mut().take(begun + 1).for_each(Entry::close);
        if was_initialized {
            self.main.iter_mut().for_each(Entry::close);
        }
    }

    fn initialized(&self) -> bool {
        // A restart of a sidecar does not undo the initialization.
        self.main.iter().any(Entry::has_run) || self.init.iter().all(Entry::is_initialized)
    }

    /// The phase when no container runs any more.
    fn coming_phase(&self, policy: &str) -> &'static str {
        if self.failure.is_some() {
            return "Failed";
        }
        if policy == "Never" && self.has_failed_init() {
            return "Failed";
        }
        let ended = if self.main.iter().all(|entry| entry.code() == Some(0)) {
            "Succeeded"
        } else {
            "Failed"
        };
        if self.over {
            return ended;
        }
        let current = self.current_phase();
        let can_end = self.main.iter().all(|entry| entry.code().is_some())
            && !self.init.iter().any(|entry| entry.sidecar && entry.runs());
        let restarts = policy == "Always" || (policy == "OnFailure" && ended == "Failed");
        if current == "Running" && can_end && !restarts {
            ended
        } else {
            current
        }
    }

    fn has_failed_init(&self) -> bool {
        let failed = |entry: &Entry| !entry.sidecar && entry.code().is_some_and(|code| code != 0);
        self.init.iter().any(failed)
    }

    fn current_phase(&self) -> &'static str {
        if self.initialized() && self.main.iter().all(Entry::has_run) {
            "Running"
        } else {
            "Pending"
        }
    }

    pub fn status(&self, pod: &Pod, host: Ipv4Addr, now: Timestamp) -> PodStatus {
        let spec = pod.spec.as_ref();
        let policy = spec
            .and_then(|spec| spec.restart_policy.as_deref())
            .unwrap_or("Always");
        let old = pod.status.clone().unwrap_or_default();
        let coming = self.coming_phase(policy);
        let mut everyone = self.init.iter().chain(&self.main);
        let is_held = !self.over && everyone.any(Entry::runs);
        let has_ended = matches!(coming, "Succeeded" | "Failed");
        // A pod must not be reported as ended while containers run.
        let (phase, failure) = if has_ended && is_held {
            (self.current_phase(), None)
        } else {
            (coming, self.failure.as_ref())
        };
        // The conditions show what was missing when the pod ended early.
        let seen = if self.cut_short && self.failure.is_none() && !self.has_failed_init() {
            self.current_phase()
        } else {
            coming
        };
        let statuses = |entries: &[Entry], deliberate: bool| {
            (!entries.is_empty()).then(|| {
                entries
                    .iter()
                    .map(|entry| entry.status(deliberate))
                    .collect::<Vec<_>>()
            })
        };
        let mut conditions = Vec::new();
        for (kind, (status, reason, message)) in self.conditions(seen) {
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
            reason: failure.map(|(reason, _)| reason.clone()),
            message: failure.map(|(_, message)| message.clone()),
            qos_class: old.qos_class,
            ..PodStatus::default()
        }
    }

    fn conditions(&self, phase: &str) -> [(&'static str, ConditionState); 4] {
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
            Some(_) if self.initialized() => (true, None, None),
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
