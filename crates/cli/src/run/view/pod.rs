//! A pod as the view sees it.

use std::time::Duration;

use k8s_openapi::api::core::v1::{ContainerState, ContainerStatus, Pod, PodStatus};
use trainyard_api::names;
use trainyard_core::build::MAIN_CONTAINER;

#[derive(Clone, Debug, Default, PartialEq)]
pub struct ObservedPod {
    pub name: String,
    pub uid: String,
    pub role: String,
    pub index: i32,
    pub phase: Phase,
    pub is_deleting: bool,
    /// None unless it is being deleted.
    pub grace_period: Option<Duration>,
    /// The main container may not have been started yet.
    pub main_container: Option<String>,
    /// Containers that have a log, or can't be started.
    pub containers: Vec<ObservedContainer>,
    /// Why it can't be scheduled or started.
    pub trouble: Option<String>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
pub enum Phase {
    #[default]
    Pending,
    Running,
    Succeeded,
    Failed,
    Unknown,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct ObservedContainer {
    pub name: String,
    pub is_main: bool,
    /// How often it was restarted; each start has a log of its own.
    pub restarts: i32,
    pub ended: Option<Termination>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Termination {
    pub exit_code: i32,
    pub reason: Option<String>,
}

impl ObservedContainer {
    /// Whether its program was ever started; if not, it has no log.
    pub fn has_run(&self) -> bool {
        let reason = self.ended.as_ref().and_then(|ended| ended.reason.as_deref());
        !matches!(reason, Some("StartError" | "ContainerCannotRun"))
    }
}

impl ObservedPod {
    pub fn of(pod: &Pod) -> Self {
        let meta = &pod.metadata;
        let label = |key: &str| meta.labels.as_ref().and_then(|labels| labels.get(key)).cloned();
        let named = meta
            .annotations
            .as_ref()
            .and_then(|annotations| annotations.get(MAIN_CONTAINER));
        let first = || Some(&pod.spec.as_ref()?.containers.first()?.name);
        let main = named.or_else(first);
        let status = pod.status.clone().unwrap_or_default();
        let own = status
            .container_statuses
            .iter()
            .flatten()
            .map(|container| seen(container, main == Some(&container.name)));
        let init = status
            .init_container_statuses
            .iter()
            .flatten()
            .map(|container| seen(container, false));
        Self {
            name: meta.name.clone().unwrap_or_default(),
            uid: meta.uid.clone().unwrap_or_default(),
            role: label(names::LABEL_ROLE).unwrap_or_default(),
            index: label(names::LABEL_INDEX)
                .and_then(|index| index.parse().ok())
                .unwrap_or_default(),
            phase: match status.phase.as_deref() {
                Some("Running") => Phase::Running,
                Some("Succeeded") => Phase::Succeeded,
                Some("Failed") => Phase::Failed,
                Some("Unknown") => Phase::Unknown,
                _ => Phase::Pending,
            },
            is_deleting: meta.deletion_timestamp.is_some(),
            grace_period: meta.deletion_timestamp.as_ref().map(|_| {
                let seconds = meta.deletion_grace_period_seconds.unwrap_or_default();
                Duration::from_secs(u64::try_from(seconds).unwrap_or_default())
            }),
            main_container: main.cloned(),
            containers: init.chain(own).flatten().collect(),
            trouble: trouble(&status),
        }
    }

    pub fn main(&self) -> Option<&ObservedContainer> {
        self.containers.iter().find(|container| container.is_main)
    }

    pub fn is_over(&self) -> bool {
        matches!(self.phase, Phase::Succeeded | Phase::Failed)
    }
}

/// None if the container was never started.
fn seen(status: &ContainerStatus, is_main: bool) -> Option<ObservedContainer> {
    let state = status.state.clone().unwrap_or_default();
    let last = status
        .last_state
        .as_ref()
        .and_then(|last| last.terminated.as_ref());
    if state.running.is_none() && state.terminated.is_none() && last.is_none() {
        return None;
    }
    Some(ObservedContainer {
        name: status.name.clone(),
        is_main,
        // A container that waits for a restart has only the log of its last start.
        restarts: if state.waiting.is_some() {
            status.restart_count - 1
        } else {
            status.restart_count
        },
        ended: state.terminated.map(|ended| Termination {
            exit_code: ended.exit_code,
            reason: ended.reason,
        }),
    })
}

/// Why a pod can't be scheduled, or a container can't be started.
fn trouble(status: &PodStatus) -> Option<String> {
    let sentence = |reason: Option<&str>, message: Option<&str>| match (reason, message) {
        (Some(reason), Some(message)) if !message.is_empty() => Some(format!("{reason}: {message}")),
        (Some(reason), _) => Some(reason.to_owned()),
        (None, message) => message.map(ToOwned::to_owned),
    };
    let unscheduled = status
        .conditions
        .iter()
        .flatten()
        .find(|condition| condition.type_ == "PodScheduled" && condition.status == "False");
    if let Some(condition) = unscheduled {
        return sentence(condition.reason.as_deref(), condition.message.as_deref());
    }
    let containers = status
        .init_container_statuses
        .iter()
        .chain(&status.container_statuses)
        .flatten();
    let waiting = containers.filter_map(|container| match &container.state {
        Some(ContainerState {
            waiting: Some(waiting),
            ..
        }) => Some(waiting),
        _ => None,
    });
    waiting
        // Every container starts with these two.
        .filter(|waiting| {
            !matches!(
                waiting.reason.as_deref(),
                None | Some("ContainerCreating" | "PodInitializing")
            )
        })
        .find_map(|waiting| sentence(waiting.reason.as_deref(), waiting.message.as_deref()))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn pod(status: &Value) -> ObservedPod {
        let pod = json!({
            "metadata": {
                "name": "mnist-worker-1",
                "uid": "u1",
                "labels": {names::LABEL_ROLE: "worker", names::LABEL_INDEX: "1"},
                "annotations": {MAIN_CONTAINER: "train"},
            },
            "status": status,
        });
        ObservedPod::of(&serde_json::from_value(pod).unwrap())
    }

    fn container(name: &str, restarts: i32, state: &Value) -> Value {
        json!({"name": name, "image": "", "imageID": "", "ready": false, "restartCount": restarts, "state": state})
    }

    #[test]
    fn a_new_pod_has_no_logs_and_no_trouble() {
        let creating = container("train", 0, &json!({"waiting": {"reason": "ContainerCreating"}}));
        let seen = pod(&json!({"phase": "Pending", "containerStatuses": [creating]}));
        assert_eq!(
            (seen.role.as_str(), seen.index, seen.phase),
            ("worker", 1, Phase::Pending)
        );
        assert_eq!((seen.containers.len(), seen.trouble), (0, None));
    }

    #[test]
    fn containers_are_seen_once_they_have_run() {
        let seen = pod(&json!({
            "phase": "Failed",
            "initContainerStatuses": [container("wait", 0, &json!({"terminated": {"exitCode": 0}}))],
            "containerStatuses": [
                container("train", 0, &json!({"terminated": {"exitCode": 3, "reason": "Error"}})),
                container("side", 2, &json!({"running": {}})),
            ],
        }));
        let names: Vec<&str> = seen.containers.iter().map(|c| c.name.as_str()).collect();
        assert_eq!(names, ["wait", "train", "side"]);
        let main = seen.main().unwrap();
        assert_eq!(main.name, "train");
        assert_eq!(main.ended.as_ref().map(|ended| ended.exit_code), Some(3));
        assert_eq!(seen.containers[2].restarts, 2);
        assert!(seen.is_over());
        assert!(seen.containers.iter().all(ObservedContainer::has_run));
    }

    #[test]
    fn the_first_container_trains_where_nobody_says_which() {
        let pod = json!({
            "metadata": {"name": "a", "uid": "u1"},
            "spec": {"containers": [{"name": "train"}, {"name": "side"}], "initContainers": [{"name": "prep"}]},
        });
        let seen = ObservedPod::of(&serde_json::from_value(pod).unwrap());
        assert_eq!(seen.main_container.as_deref(), Some("train"));
    }

    #[test]
    fn a_container_that_could_not_be_started_has_no_log() {
        let failed = json!({"terminated": {"exitCode": 128, "reason": "StartError"}});
        let seen = pod(&json!({"phase": "Failed", "containerStatuses": [container("train", 0, &failed)]}));
        assert_eq!(seen.main().map(ObservedContainer::has_run), Some(false));
    }

    #[test]
    fn trouble_is_said_with_its_reason() {
        let seen = pod(&json!({"phase": "Pending", "conditions": [
            {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/1 nodes are available"},
        ]}));
        assert_eq!(
            seen.trouble.as_deref(),
            Some("Unschedulable: 0/1 nodes are available")
        );
        let waiting = json!({"waiting": {"reason": "ErrImagePull", "message": "not found"}});
        let seen = pod(&json!({"phase": "Pending", "containerStatuses": [container("train", 0, &waiting)]}));
        assert_eq!(seen.trouble.as_deref(), Some("ErrImagePull: not found"));
    }
}
