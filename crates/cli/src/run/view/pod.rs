//! What the view wants to know of a pod.

use std::time::Duration;

use k8s_openapi::api::core::v1::{ContainerState, ContainerStatus, Pod, PodStatus};
use trainyard_api::names;
use trainyard_core::build::MAIN_CONTAINER;

/// A pod as the view sees it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PodSeen {
    /// Its name.
    pub name: String,
    /// Tells it from its successor of the same name.
    pub uid: String,
    /// Its role and its index in it, by which pods are sorted and named.
    pub role: String,
    /// Its index in its role.
    pub index: i32,
    /// Its phase, as Kubernetes calls it.
    pub phase: Phase,
    /// Whether it is being deleted.
    pub deleting: bool,
    /// How long it may take to end, if it is being deleted.
    pub grace: Option<Duration>,
    /// The name of the container that trains, which may not have been started yet.
    pub trains: Option<String>,
    /// Its containers that have been started at least once, or can't be.
    pub containers: Vec<ContainerSeen>,
    /// Why it does not get on.
    pub trouble: Option<String>,
}

/// The phase of a pod.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
pub enum Phase {
    /// Not all of its containers have been started.
    #[default]
    Pending,
    /// Its containers run.
    Running,
    /// All of its containers ended well.
    Succeeded,
    /// One of its containers did not.
    Failed,
    /// Its node does not answer.
    Unknown,
}

/// A container as the view sees it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ContainerSeen {
    /// Its name.
    pub name: String,
    /// Whether it is the one that trains.
    pub main: bool,
    /// How often it was started again in place; a log begins anew each time.
    pub restarts: i32,
    /// How it ended, if it has.
    pub ended: Option<Ended>,
}

/// How a container ended.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Ended {
    /// Its exit code.
    pub exit_code: i32,
    /// The word for it.
    pub reason: Option<String>,
}

impl ContainerSeen {
    /// Whether its program was ever started; if not, there is no log to ask for.
    pub fn has_run(&self) -> bool {
        let reason = self.ended.as_ref().and_then(|ended| ended.reason.as_deref());
        !matches!(reason, Some("StartError" | "ContainerCannotRun"))
    }
}

impl PodSeen {
    /// Looks at a pod.
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
            deleting: meta.deletion_timestamp.is_some(),
            grace: meta.deletion_timestamp.as_ref().map(|_| {
                let seconds = meta.deletion_grace_period_seconds.unwrap_or_default();
                Duration::from_secs(u64::try_from(seconds).unwrap_or_default())
            }),
            trains: main.cloned(),
            containers: init.chain(own).flatten().collect(),
            trouble: trouble(&status),
        }
    }

    /// The container that trains.
    pub fn main(&self) -> Option<&ContainerSeen> {
        self.containers.iter().find(|container| container.main)
    }

    /// Whether it has ended.
    pub fn is_over(&self) -> bool {
        matches!(self.phase, Phase::Succeeded | Phase::Failed)
    }
}

/// A container that has a log.
fn seen(status: &ContainerStatus, main: bool) -> Option<ContainerSeen> {
    let state = status.state.clone().unwrap_or_default();
    let last = status
        .last_state
        .as_ref()
        .and_then(|last| last.terminated.as_ref());
    if state.running.is_none() && state.terminated.is_none() && last.is_none() {
        return None;
    }
    Some(ContainerSeen {
        name: status.name.clone(),
        main,
        // One that waits for its next start has only the log of its last.
        restarts: if state.waiting.is_some() {
            status.restart_count - 1
        } else {
            status.restart_count
        },
        ended: state.terminated.map(|ended| Ended {
            exit_code: ended.exit_code,
            reason: ended.reason,
        }),
    })
}

/// What keeps a pod from getting on: it has no place, or a container can't be started.
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
        // These two are no trouble: they are the way every container starts.
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

    fn pod(status: &Value) -> PodSeen {
        let pod = json!({
            "metadata": {
                "name": "mnist-worker-1",
                "uid": "u1",
                "labels": {names::LABEL_ROLE: "worker", names::LABEL_INDEX: "1"},
                "annotations": {MAIN_CONTAINER: "train"},
            },
            "status": status,
        });
        PodSeen::of(&serde_json::from_value(pod).unwrap())
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
        assert!(seen.containers.iter().all(ContainerSeen::has_run));
    }

    #[test]
    fn the_first_container_trains_where_nobody_says_which() {
        let pod = json!({
            "metadata": {"name": "a", "uid": "u1"},
            "spec": {"containers": [{"name": "train"}, {"name": "side"}], "initContainers": [{"name": "prep"}]},
        });
        let seen = PodSeen::of(&serde_json::from_value(pod).unwrap());
        assert_eq!(seen.trains.as_deref(), Some("train"));
    }

    #[test]
    fn a_container_that_could_not_be_started_has_no_log() {
        let failed = json!({"terminated": {"exitCode": 128, "reason": "StartError"}});
        let seen = pod(&json!({"phase": "Failed", "containerStatuses": [container("train", 0, &failed)]}));
        assert_eq!(seen.main().map(ContainerSeen::has_run), Some(false));
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
