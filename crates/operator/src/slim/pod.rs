//! The fields of a pod that decisions need.

use std::num::NonZeroU64;
use std::sync::Arc;

use jiff::Timestamp;
use serde::Deserialize;
use trainyard_api::names::START_NOW;
use trainyard_core::agent::WAIT_CONTAINER;
use trainyard_core::view::{PodEnd, PodPhase, PodRow, Trouble};

use super::{Annotations, Meta};

/// How many bytes of a container's message are kept.
const MESSAGE_LIMIT: usize = 1024;

#[derive(Clone, Debug, Default, Deserialize)]
pub struct SlimPod {
    #[serde(default)]
    pub metadata: Meta,
    #[serde(default)]
    spec: Spec,
    #[serde(default)]
    status: Status,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Spec {
    #[serde(default)]
    node_name: Option<Box<str>>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Status {
    #[serde(default)]
    phase: Option<Box<str>>,
    #[serde(default)]
    reason: Option<String>,
    #[serde(default)]
    message: Option<String>,
    #[serde(default, rename = "podIP")]
    pod_ip: Option<Box<str>>,
    #[serde(default)]
    conditions: Option<Vec<Condition>>,
    #[serde(default)]
    init_container_statuses: Option<Vec<Container>>,
    #[serde(default)]
    container_statuses: Option<Vec<Container>>,
}

#[derive(Clone, Debug, Deserialize)]
struct Condition {
    #[serde(rename = "type")]
    type_: Box<str>,
    status: Box<str>,
    #[serde(default)]
    reason: Option<String>,
    #[serde(default)]
    message: Option<String>,
    #[serde(default, rename = "lastTransitionTime")]
    since: Option<Box<str>>,
}

#[derive(Clone, Debug, Deserialize)]
struct Container {
    name: String,
    /// A container that was created has one.
    #[serde(default, rename = "containerID")]
    id: Option<serde::de::IgnoredAny>,
    #[serde(default)]
    state: State,
}

#[derive(Clone, Debug, Default, Deserialize)]
struct State {
    #[serde(default)]
    waiting: Option<Waiting>,
    #[serde(default)]
    running: Option<serde::de::IgnoredAny>,
    #[serde(default)]
    terminated: Option<Terminated>,
}

#[derive(Clone, Debug, Deserialize)]
struct Waiting {
    #[serde(default)]
    reason: Option<String>,
    #[serde(default)]
    message: Option<String>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Terminated {
    exit_code: i32,
    #[serde(default)]
    signal: Option<i32>,
    #[serde(default)]
    reason: Option<String>,
    #[serde(default)]
    message: Option<String>,
    #[serde(default)]
    finished_at: Option<Box<str>>,
}

impl Terminated {
    fn finished_at(&self) -> Option<Timestamp> {
        self.finished_at.as_deref()?.parse().ok()
    }
}

impl SlimPod {
    pub fn into_row(self) -> PodRow {
        let (phase, lingers) = self.phase();
        PodRow {
            phase,
            lingers,
            ready: self
                .condition("Ready")
                .is_some_and(|ready| &*ready.status == "True"),
            terminating: self.metadata.terminating(),
            labelled: self.metadata.is_fully_labelled(),
            passed_on: self.metadata.passed_on(),
            released: self.released(),
            waits: self.waits(),
            template: self.hash(|annotations| annotations.template.as_deref()),
            spec: self.hash(|annotations| annotations.spec.as_deref()),
            attempt: self.attempt(),
            address: self
                .status
                .pod_ip
                .as_deref()
                .and_then(|address| address.parse().ok()),
            end: self.end(phase).map(Box::new),
            trouble: self.trouble(phase).map(Box::new),
            node: self.spec.node_name.map(Arc::from),
            name: self.metadata.name,
            uid: self.metadata.uid,
        }
    }

    /// Returns the phase, by the pod or, once the main container has ended, by that container. Also
    /// returns whether other containers still run.
    fn phase(&self) -> (PodPhase, bool) {
        let phase = match self.status.phase.as_deref() {
            Some("Running") => PodPhase::Running,
            Some("Succeeded") => PodPhase::Succeeded,
            Some("Failed") => PodPhase::Failed,
            Some("Unknown") => PodPhase::Unknown,
            _ => PodPhase::Pending,
        };
        // If the kubelet ended the pod, its reason counts, unless the program ended before.
        let counts = |end: &&Terminated| self.status.reason.is_none() || self.ended_before_deletion(end);
        match (phase, self.main_end().filter(counts).map(|end| end.exit_code)) {
            (PodPhase::Failed, _) if self.was_deleted_before_start() => (PodPhase::Pending, false),
            (PodPhase::Running | PodPhase::Pending, Some(0)) => (PodPhase::Succeeded, self.others_run()),
            (PodPhase::Running | PodPhase::Pending, Some(_)) => (PodPhase::Failed, self.others_run()),
            (PodPhase::Failed, Some(0)) => (PodPhase::Succeeded, false),
            _ => (phase, false),
        }
    }

    /// Returns when the deletion was requested or a disruption began.
    fn asked_at(&self) -> Option<Timestamp> {
        let since = self.target().and_then(|target| target.since.as_deref());
        let taken = since.and_then(|time| time.parse().ok());
        self.metadata.asked_at().into_iter().chain(taken).min()
    }

    /// Returns true if a container is known to have ended before that.
    fn ended_before_deletion(&self, end: &Terminated) -> bool {
        let (finished, asked) = (end.finished_at(), self.asked_at());
        finished.is_some_and(|finished| asked.is_some_and(|asked| finished < asked))
    }

    /// Returns true if the pod was deleted before its main container was created. Kubelets report
    /// such a pod as failed, and may make up an end of the container.
    fn was_deleted_before_start(&self) -> bool {
        let is_unmade = |main: &Container| {
            let end = main.state.terminated.as_ref();
            main.id.is_none() && end.is_none_or(|end| end.reason.as_deref() == Some("ContainerStatusUnknown"))
        };
        let had_failed = || {
            self.culprit()
                .is_some_and(|(_, end)| self.ended_before_deletion(end))
        };
        let is_deleted = self.metadata.terminating() && !self.exceeded_deadline();
        is_deleted && self.main_status().is_some_and(is_unmade) && !had_failed()
    }

    /// Returns the init container that waits for other roles.
    fn wait_container(&self) -> Option<&Container> {
        let mut init = self.status.init_container_statuses.iter().flatten();
        init.find(|container| container.name == WAIT_CONTAINER)
    }

    /// Returns true if the container that waits for other roles has succeeded.
    fn released(&self) -> bool {
        let ended = self
            .wait_container()
            .and_then(|wait| wait.state.terminated.as_ref());
        ended.is_some_and(|ended| ended.exit_code == 0)
    }

    /// Returns true if that container runs, and no annotation tells it to stop.
    fn waits(&self) -> bool {
        let annotations = self.metadata.annotations.as_ref();
        let starts_now = annotations.and_then(|annotations| annotations.start.as_deref()) == Some(START_NOW);
        let runs = |wait: &Container| wait.state.running.is_some();
        !starts_now && self.wait_container().is_some_and(runs)
    }

    /// Returns a hash that is an annotation. A text that is no hash is ignored.
    fn hash(&self, of: impl Fn(&Annotations) -> Option<&str>) -> Option<NonZeroU64> {
        let text = of(self.metadata.annotations.as_ref()?)?;
        u64::from_str_radix(text, 16).ok().and_then(NonZeroU64::new)
    }

    /// Returns the attempt. Pods that start anew alone, and those of former versions, say none.
    fn attempt(&self) -> i32 {
        let text = self
            .metadata
            .annotations
            .as_ref()
            .and_then(|of| of.attempt.as_deref());
        text.and_then(|text| text.parse().ok()).unwrap_or_default()
    }

    /// Returns the condition of a pod that the system disrupts.
    fn target(&self) -> Option<&Condition> {
        self.condition("DisruptionTarget")
            .filter(|target| &*target.status == "True")
    }

    /// Returns true if a container besides the main one has not ended. A kubelet may report the end
    /// of a pod's only container before the end of the pod.
    fn others_run(&self) -> bool {
        let main = self.main_container();
        let mut containers = self.status.container_statuses.iter().flatten();
        containers.any(|container| Some(&*container.name) != main && container.state.terminated.is_none())
    }

    fn main_end(&self) -> Option<&Terminated> {
        self.main_status()?.state.terminated.as_ref()
    }

    fn main_status(&self) -> Option<&Container> {
        let main = self.main_container()?;
        let mut containers = self.status.container_statuses.iter().flatten();
        containers.find(|container| container.name == main)
    }

    fn condition(&self, type_: &str) -> Option<&Condition> {
        self.status
            .conditions
            .iter()
            .flatten()
            .find(|condition| &*condition.type_ == type_)
    }

    fn containers(&self) -> impl Iterator<Item = &Container> {
        let init = self.status.init_container_statuses.iter().flatten();
        init.chain(self.status.container_statuses.iter().flatten())
    }

    /// Returns the container that failed: the main one if it did, else the first.
    fn culprit(&self) -> Option<(&Container, &Terminated)> {
        let mut bad = self.containers().filter_map(|container| {
            let terminated = container.state.terminated.as_ref()?;
            (terminated.exit_code != 0).then_some((container, terminated))
        });
        let first = bad.next()?;
        let main = self.main_container();
        let is_main = |container: &Container| Some(container.name.as_str()) == main;
        if is_main(first.0) {
            return Some(first);
        }
        Some(bad.find(|(container, _)| is_main(container)).unwrap_or(first))
    }

    fn main_container(&self) -> Option<&str> {
        let annotations = self.metadata.annotations.as_ref()?;
        let main = annotations.main_container.as_deref();
        main.or(annotations.shown_container.as_deref())
    }

    fn end(&self, phase: PodPhase) -> Option<PodEnd> {
        let target = self.target();
        if phase != PodPhase::Failed && target.is_none() && !self.metadata.terminating() {
            return None;
        }
        // The pod's reason names the cause if the system ended it. The condition's is more general.
        let of_pod = PodEnd {
            reason: self
                .status
                .reason
                .clone()
                .or_else(|| target.and_then(|target| target.reason.clone())),
            message: self
                .status
                .message
                .clone()
                .or_else(|| target.and_then(|target| target.message.clone())),
            asked_at: self.asked_at(),
            disrupted: target.is_some(),
            seen_version: self.metadata.resource_version.0,
            ..PodEnd::default()
        };
        match phase {
            PodPhase::Failed => Some(self.bad_end(of_pod)),
            PodPhase::Succeeded => Some(PodEnd {
                container: self.main_container().map(str::to_owned),
                exit_code: Some(0),
                finished_at: self.main_end().and_then(Terminated::finished_at),
                ..of_pod
            }),
            _ => Some(of_pod),
        }
    }

    /// Returns how a pod failed. `of_pod` is what the pod itself says.
    fn bad_end(&self, of_pod: PodEnd) -> PodEnd {
        let disrupted = of_pod.disrupted || self.ended_by_system();
        let culprit = self.culprit();
        if self.exceeded_deadline() {
            // The kubelet ended the program: its exit code says nothing.
            let ended = culprit.map(|(_, ended)| ended).or_else(|| self.main_end());
            let finished_at = ended.and_then(Terminated::finished_at);
            return PodEnd {
                disrupted,
                finished_at,
                ..of_pod
            };
        }
        let Some((container, terminated)) = culprit else {
            // No program failed.
            return PodEnd {
                disrupted: true,
                ..of_pod
            };
        };
        PodEnd {
            container: Some(container.name.clone()),
            exit_code: Some(terminated.exit_code),
            signal: terminated.signal.filter(|signal| *signal != 0),
            reason: match of_pod.reason {
                Some(reason) if disrupted => Some(reason),
                other => terminated.reason.clone().or(other),
            },
            message: terminated.message.as_deref().map(message_tail).or(of_pod.message),
            finished_at: terminated.finished_at(),
            disrupted,
            ..of_pod
        }
    }

    /// Returns true if the kubelet or a controller ended a failed pod. Some of them don't set the
    /// condition `DisruptionTarget`.
    fn ended_by_system(&self) -> bool {
        let ran_to_an_end = |container: &Container| container.state.terminated.is_some();
        let reason = self.status.reason.as_deref().unwrap_or_default();
        if !self.containers().any(ran_to_an_end) {
            // No program has ended.
            return !self.exceeded_deadline();
        }
        is_system_reason(reason)
    }

    /// Returns true if the kubelet ended the pod at the deadline of its spec, as its user wanted.
    fn exceeded_deadline(&self) -> bool {
        self.status.reason.as_deref() == Some("DeadlineExceeded")
    }

    fn trouble(&self, phase: PodPhase) -> Option<Trouble> {
        if matches!(phase, PodPhase::Succeeded | PodPhase::Failed) {
            return None;
        }
        let trouble = |reason: &Option<String>, message: &Option<String>| Trouble {
            reason: reason.clone().unwrap_or_default(),
            message: message.as_deref().map(message_tail).unwrap_or_default(),
        };
        if let Some(scheduled) = self.condition("PodScheduled").filter(|c| &*c.status == "False") {
            return Some(trouble(&scheduled.reason, &scheduled.message));
        }
        let mut waiting = self
            .containers()
            .filter_map(|container| container.state.waiting.as_ref());
        let stuck = waiting.find(|waiting| {
            let reason = waiting.reason.as_deref().unwrap_or_default();
            !matches!(reason, "" | "ContainerCreating" | "PodInitializing")
        })?;
        Some(trouble(&stuck.reason, &stuck.message))
    }
}

/// Returns true for the reasons of the kubelet and of controllers that end pods.
fn is_system_reason(reason: &str) -> bool {
    reason.starts_with("OutOf")
        || matches!(
            reason,
            "Evicted"
                | "NodeLost"
                | "NodeShutdown"
                | "Terminated"
                | "Preempting"
                | "Shutdown"
                | "NodeAffinity"
                | "UnexpectedAdmissionError"
        )
}

/// Returns the end of a message, where a program says why it ended.
fn message_tail(message: &str) -> String {
    let mut start = message.len().saturating_sub(MESSAGE_LIMIT);
    while !message.is_char_boundary(start) {
        start += 1;
    }
    message[start..].to_owned()
}

#[cfg(test)]
mod tests;
