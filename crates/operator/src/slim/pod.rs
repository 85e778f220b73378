//! A pod, as far as decisions need it.

use std::num::NonZeroU64;
use std::sync::Arc;

use jiff::Timestamp;
use serde::Deserialize;
use trainyard_api::names::START_NOW;
use trainyard_core::agent::WAIT_CONTAINER;
use trainyard_core::view::{PodEnd, PodPhase, PodRow, Trouble};

use super::Meta;

/// The most that is kept of a container's last words.
const MESSAGE_LIMIT: usize = 1024;

/// A pod, as far as decisions need it.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct SlimPod {
    /// Its metadata.
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
    /// Runtimes give one to a container that they make.
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
    /// The row of this pod.
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
            released: self.released(),
            waits: self.waits(),
            template: self.template(),
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

    /// The pod's phase, or, once its main container has ended, what follows from that; and whether others still run.
    fn phase(&self) -> (PodPhase, bool) {
        let phase = match self.status.phase.as_deref() {
            Some("Running") => PodPhase::Running,
            Some("Succeeded") => PodPhase::Succeeded,
            Some("Failed") => PodPhase::Failed,
            Some("Unknown") => PodPhase::Unknown,
            _ => PodPhase::Pending,
        };
        // Of a pod that the kubelet has ended, its word counts, unless the program was done before.
        let counts = |end: &&Terminated| self.status.reason.is_none() || self.was_earlier(end);
        match (phase, self.main_end().filter(counts).map(|end| end.exit_code)) {
            (PodPhase::Failed, _) if self.was_deleted_unbegun() => (PodPhase::Pending, false),
            (PodPhase::Running | PodPhase::Pending, Some(0)) => (PodPhase::Succeeded, self.others_run()),
            (PodPhase::Running | PodPhase::Pending, Some(_)) => (PodPhase::Failed, self.others_run()),
            (PodPhase::Failed, Some(0)) => (PodPhase::Succeeded, false),
            _ => (phase, false),
        }
    }

    /// When the pod was asked to go, or the system began to take it away.
    fn asked_at(&self) -> Option<Timestamp> {
        let since = self.target().and_then(|target| target.since.as_deref());
        let taken = since.and_then(|time| time.parse().ok());
        self.metadata.asked_at().into_iter().chain(taken).min()
    }

    /// Whether a container is known to have ended before its pod was asked to go.
    fn was_earlier(&self, end: &Terminated) -> bool {
        let (finished, asked) = (end.finished_at(), self.asked_at());
        finished.is_some_and(|finished| asked.is_some_and(|asked| finished < asked))
    }

    /// Whether somebody deleted the pod before its main container was made. Kubelets call such a pod failed, and may make up an
    /// end for the container.
    fn was_deleted_unbegun(&self) -> bool {
        let is_unmade = |main: &Container| {
            let end = main.state.terminated.as_ref();
            main.id.is_none() && end.is_none_or(|end| end.reason.as_deref() == Some("ContainerStatusUnknown"))
        };
        let had_failed = || self.culprit().is_some_and(|(_, end)| self.was_earlier(end));
        let is_deleted = self.metadata.terminating() && !self.is_too_late();
        is_deleted && self.main_status().is_some_and(is_unmade) && !had_failed()
    }

    /// The container that waits for other roles.
    fn wait_container(&self) -> Option<&Container> {
        let mut init = self.status.init_container_statuses.iter().flatten();
        init.find(|container| container.name == WAIT_CONTAINER)
    }

    /// Whether the container that waits for other roles has ended well.
    fn released(&self) -> bool {
        let ended = self
            .wait_container()
            .and_then(|wait| wait.state.terminated.as_ref());
        ended.is_some_and(|ended| ended.exit_code == 0)
    }

    /// Whether it runs, and nobody has told it by an annotation to stop.
    fn waits(&self) -> bool {
        let annotations = self.metadata.annotations.as_ref();
        let told = annotations.and_then(|annotations| annotations.start.as_deref()) == Some(START_NOW);
        let runs = |wait: &Container| wait.state.running.is_some();
        !told && self.wait_container().is_some_and(runs)
    }

    /// The hash of the template that it was made from. A text that is none means nothing.
    fn template(&self) -> Option<NonZeroU64> {
        let text = self.metadata.annotations.as_ref()?.template.as_deref()?;
        u64::from_str_radix(text, 16).ok().and_then(NonZeroU64::new)
    }

    /// The condition that the system sets on a pod that it takes away.
    fn target(&self) -> Option<&Condition> {
        self.condition("DisruptionTarget")
            .filter(|target| &*target.status == "True")
    }

    /// Whether a container besides the main one has not ended. A kubelet may tell that a pod's only container ended
    /// before it tells that the pod has.
    fn others_run(&self) -> bool {
        let main = self.main_container();
        let mut containers = self.status.container_statuses.iter().flatten();
        containers.any(|container| Some(&*container.name) != main && container.state.terminated.is_none())
    }

    /// How the main container ended.
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

    /// The container that ended badly: the main one if it did, else the first that did.
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
        // The reason of the pod names the cause where the system ended it; a condition's is only more general.
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

    /// How a pod failed, given what is known of it as a whole.
    fn bad_end(&self, of_pod: PodEnd) -> PodEnd {
        let disrupted = of_pod.disrupted || self.ended_by_system();
        let culprit = self.culprit();
        if self.is_too_late() {
            // How a program ends that the kubelet tells to says nothing.
            let ended = culprit.map(|(_, ended)| ended).or_else(|| self.main_end());
            let finished_at = ended.and_then(Terminated::finished_at);
            return PodEnd {
                disrupted,
                finished_at,
                ..of_pod
            };
        }
        let Some((container, terminated)) = culprit else {
            // No program ended badly.
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
            message: terminated.message.as_deref().map(last_words).or(of_pod.message),
            finished_at: terminated.finished_at(),
            disrupted,
            ..of_pod
        }
    }

    /// Whether a failed pod was ended by the kubelet or a controller, as far as servers and kubelets say that do not
    /// set the condition `DisruptionTarget`.
    fn ended_by_system(&self) -> bool {
        let ran_to_an_end = |container: &Container| container.state.terminated.is_some();
        let reason = self.status.reason.as_deref().unwrap_or_default();
        if !self.containers().any(ran_to_an_end) {
            // It never ran to an end of its own.
            return !self.is_too_late();
        }
        is_system_reason(reason)
    }

    /// Whether the kubelet ended it because of a deadline in its spec, which is its user's own wish.
    fn is_too_late(&self) -> bool {
        self.status.reason.as_deref() == Some("DeadlineExceeded")
    }

    fn trouble(&self, phase: PodPhase) -> Option<Trouble> {
        if matches!(phase, PodPhase::Succeeded | PodPhase::Failed) {
            return None;
        }
        let trouble = |reason: &Option<String>, message: &Option<String>| Trouble {
            reason: reason.clone().unwrap_or_default(),
            message: message.as_deref().map(last_words).unwrap_or_default(),
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

/// Reasons the kubelet and controllers give to pods that they end.
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

/// The end of a message: the last thing a program says is why it ended.
fn last_words(message: &str) -> String {
    let mut start = message.len().saturating_sub(MESSAGE_LIMIT);
    while !message.is_char_boundary(start) {
        start += 1;
    }
    message[start..].to_owned()
}

#[cfg(test)]
mod tests;
