use serde_json::{Value, json};
use trainyard_api::NodeDownPolicy;
use trainyard_api::names::ANNOTATION_START;
use trainyard_core::restart::{self, End};
use trainyard_core::view::{NodeState, PodPhase, PodRow};

use super::*;

/// A pod as a server sends it, with what this test is about in `spec.nodeName` and `status`.
fn pod(status: &Value) -> PodRow {
    let json = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": "mnist-worker-0", "namespace": "team", "uid": "p0", "resourceVersion": "77",
            "creationTimestamp": "2026-01-02T03:04:05Z",
            "labels": {"app.kubernetes.io/managed-by": "trainyard", "trainyard.dev/job": "mnist", "other": "x"},
            "annotations": {"kubectl.kubernetes.io/default-container": "train", "other": "y"},
            "ownerReferences": [
                {"apiVersion": "v1", "kind": "ConfigMap", "name": "c", "uid": "u0"},
                {"apiVersion": "trainyard.dev/v1alpha1", "kind": "TrainingJob", "name": "mnist", "uid": "u1",
                 "controller": true, "blockOwnerDeletion": true}],
            "managedFields": [{"manager": "trainyard", "fieldsV1": {"f:metadata": {"f:labels": {}}}}],
        },
        "spec": {"nodeName": "node-a", "containers": [{"name": "log"}, {"name": "train", "image": "i"}]},
        "status": status,
    });
    let pod: SlimPod = serde_json::from_str(&json.to_string()).unwrap();
    assert_eq!(pod.metadata.job().map(|owner| &*owner.uid), Some("u1"));
    assert!(pod.metadata.is_labelled());
    pod.into_row()
}

fn ended(name: &str, state: &Value) -> Value {
    json!({"name": name, "ready": false, "restartCount": 0, "image": "i", "imageID": "", "state": {"terminated": state}})
}

#[test]
fn a_running_pod() {
    let row = pod(&json!({
        "phase": "Running", "podIP": "10.0.0.9", "qosClass": "BestEffort", "startTime": "2026-01-02T03:04:06Z",
        "conditions": [
            {"type": "Ready", "status": "True", "lastProbeTime": null, "lastTransitionTime": "2026-01-02T03:04:09Z"},
            {"type": "PodScheduled", "status": "True", "lastProbeTime": null}],
        "containerStatuses": [
            {"name": "train", "ready": true, "state": {"running": {"startedAt": "2026-01-02T03:04:08Z"}}, "lastState": {}}],
    }));
    assert_eq!(
        (&*row.name, &*row.uid, row.node.as_deref()),
        ("mnist-worker-0", "p0", Some("node-a"))
    );
    assert_eq!(row.phase, PodPhase::Running);
    assert!(row.ready && !row.terminating && row.end.is_none() && row.trouble.is_none());
}

#[test]
fn a_pod_killed_for_its_memory() {
    let row = pod(&json!({
        "phase": "Failed",
        "containerStatuses": [
            ended("log", &json!({"exitCode": 143, "reason": "Error"})),
            ended("train", &json!({"exitCode": 137, "reason": "OOMKilled", "message": "step 7",
                "startedAt": "2026-01-02T03:04:08Z", "finishedAt": "2026-01-02T03:05:00Z"}))],
    }));
    let end = row.end.unwrap();
    assert_eq!(end.container.as_deref(), Some("train"));
    assert_eq!(
        (end.exit_code, end.reason.as_deref()),
        (Some(137), Some("OOMKilled"))
    );
    assert_eq!(end.message.as_deref(), Some("step 7"));
    assert_eq!(end.finished_at, Some("2026-01-02T03:05:00Z".parse().unwrap()));
    assert!(!end.disrupted);
}

#[test]
fn the_main_container_decides() {
    let log = |state: Value| json!({"name": "log", "state": state});
    let running = || log(json!({"running": {}}));
    let train = |code: i32| ended("train", &json!({"exitCode": code, "reason": "Error"}));
    let row = |phase: &str, other: Value, code: i32| {
        pod(&json!({"phase": phase, "containerStatuses": [other, train(code)]}))
    };
    // It did well, and another did not.
    let well = row("Failed", log(json!({"terminated": {"exitCode": 5}})), 0);
    assert_eq!(
        (well.phase, well.lingers, well.end),
        (PodPhase::Succeeded, false, None)
    );
    // All have ended, which the kubelet has not told of the pod yet.
    let badly = row("Running", log(json!({"terminated": {"exitCode": 0}})), 3);
    assert_eq!((badly.phase, badly.lingers), (PodPhase::Failed, false));
    // It has ended, and another runs on.
    let well = row("Running", running(), 0);
    assert_eq!(
        (well.phase, well.lingers, well.end),
        (PodPhase::Succeeded, true, None)
    );
    let badly = row("Running", running(), 3);
    assert_eq!((badly.phase, badly.lingers), (PodPhase::Failed, true));
    let end = badly.end.unwrap();
    assert_eq!(
        (end.container.as_deref(), end.exit_code, end.disrupted),
        (Some("train"), Some(3), false)
    );
    // Another has ended, and it runs on.
    let other = ended("log", &json!({"exitCode": 5}));
    let runs = json!({"name": "train", "state": {"running": {}}});
    let row = pod(&json!({"phase": "Running", "containerStatuses": [other, runs]}));
    assert_eq!((row.phase, row.lingers), (PodPhase::Running, false));
}

/// How decisions take the end of a pod, in a namespace where nodes that are down are waited for.
fn end_of(row: &PodRow) -> Option<End> {
    restart::end(row, NodeState::Up, NodeDownPolicy::Wait)
}

#[test]
fn how_a_program_ends_that_was_told_to_go_says_nothing() {
    // It ends in an orderly way when it is evicted: its work is not done.
    let well = || ended("train", &json!({"exitCode": 0}));
    let killed = || ended("log", &json!({"exitCode": 137}));
    let evicted =
        pod(&json!({"phase": "Failed", "reason": "Evicted", "containerStatuses": [killed(), well()]}));
    assert_eq!(end_of(&evicted), Some(End::Disruption));
    let target = json!([{"type": "DisruptionTarget", "status": "True"}]);
    let going = json!({"phase": "Running", "conditions": target, "containerStatuses": [well()]});
    assert_eq!(end_of(&pod(&going)), Some(End::Disruption));
}

#[test]
fn what_ended_before_it_was_told_to_go_counts() {
    let at = |second: u32| format!("2026-01-02T03:04:{second:02}Z");
    let train = |code: i32, second: u32| ended("train", &json!({"exitCode": code, "finishedAt": at(second)}));
    let removed = |phase: &str, code: i32, second: u32| {
        let json = json!({
            "metadata": {
                "name": "p", "namespace": "ns", "uid": "u", "resourceVersion": "1",
                "annotations": {"trainyard.dev/container": "train"},
                // It was asked at second 10.
                "deletionTimestamp": at(40), "deletionGracePeriodSeconds": 30,
            },
            "status": {"phase": phase, "containerStatuses": [train(code, second)]},
        });
        end_of(&serde_json::from_value::<SlimPod>(json).unwrap().into_row())
    };
    for phase in ["Running", "Succeeded"] {
        assert_eq!(removed(phase, 0, 9), Some(End::Success));
        assert_eq!(removed(phase, 0, 11), Some(End::Disruption));
    }
    for phase in ["Running", "Failed"] {
        assert_eq!(removed(phase, 1, 9), Some(End::Failure(Some(1))));
        assert_eq!(removed(phase, 1, 11), Some(End::Disruption));
    }
    let taken = |code: i32, second: u32| {
        let target = json!([{"type": "DisruptionTarget", "status": "True", "lastTransitionTime": at(10)}]);
        end_of(&pod(
            &json!({"phase": "Failed", "reason": "Evicted", "conditions": target,
            "containerStatuses": [train(code, second)]}),
        ))
    };
    assert_eq!(taken(0, 9), Some(End::Success));
    assert_eq!(taken(0, 10), Some(End::Disruption));
    assert_eq!(taken(1, 9), Some(End::Failure(Some(1))));
    assert_eq!(taken(1, 11), Some(End::Disruption));
}

#[test]
fn the_main_container_decides_also_while_another_cannot_start() {
    let stuck = json!({"name": "log", "state": {"waiting": {"reason": "ImagePullBackOff"}}});
    let row = |code: i32| {
        let train = ended("train", &json!({"exitCode": code}));
        pod(&json!({"phase": "Pending", "containerStatuses": [stuck, train]}))
    };
    let well = row(0);
    assert_eq!((end_of(&well), well.lingers), (Some(End::Success), true));
    let badly = row(3);
    assert_eq!(
        (end_of(&badly), badly.lingers),
        (Some(End::Failure(Some(3))), true)
    );
}

#[test]
fn a_node_that_was_rebooted_has_disrupted_its_pods() {
    let row = |code: i32, reason: &str| {
        let train = ended(
            "train",
            &json!({"exitCode": code, "reason": reason, "finishedAt": "2026-01-02T03:04:05Z"}),
        );
        end_of(&pod(&json!({"phase": "Failed", "containerStatuses": [train]})))
    };
    assert_eq!(row(255, "Unknown"), Some(End::Disruption));
    assert_eq!(row(137, "ContainerStatusUnknown"), Some(End::Disruption));
    assert_eq!(row(137, "OOMKilled"), Some(End::Failure(Some(137))));
}

#[test]
fn an_init_container_failed() {
    let row = pod(&json!({
        "phase": "Failed",
        "initContainerStatuses": [ended("fetch", &json!({"exitCode": 9, "signal": 9}))],
        "containerStatuses": [{"name": "train", "state": {"waiting": {"reason": "PodInitializing"}}}],
    }));
    let end = row.end.unwrap();
    assert_eq!(
        (end.container.as_deref(), end.signal, end.disrupted),
        (Some("fetch"), Some(9), false)
    );
    assert!(row.trouble.is_none(), "a pod that ended waits for nothing");
}

#[test]
fn an_evicted_pod() {
    let row = pod(
        &json!({"phase": "Failed", "reason": "Evicted", "message": "The node was low on resource: local."}),
    );
    let end = row.end.unwrap();
    assert!(end.disrupted);
    assert_eq!((end.exit_code, end.reason.as_deref()), (None, Some("Evicted")));
    assert_eq!(
        end.message.as_deref(),
        Some("The node was low on resource: local.")
    );
}

#[test]
fn a_preempted_pod() {
    let target = json!([{"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler",
        "message": "kube-scheduler: preempting to accommodate a higher priority pod"}]);
    let going = pod(&json!({"phase": "Running", "conditions": target}));
    assert_eq!(
        going.end.as_ref().map(|end| (end.disrupted, end.exit_code)),
        Some((true, None))
    );
    let gone = pod(&json!({"phase": "Failed", "conditions": target,
        "containerStatuses": [ended("train", &json!({"exitCode": 143, "reason": "Error"}))]}));
    let end = gone.end.unwrap();
    assert_eq!(
        (end.disrupted, end.exit_code, end.reason.as_deref()),
        (true, Some(143), Some("PreemptionByScheduler"))
    );
    let revoked = json!([{"type": "DisruptionTarget", "status": "False"}]);
    assert!(
        pod(&json!({"phase": "Running", "conditions": revoked}))
            .end
            .is_none()
    );
}

#[test]
fn a_pod_that_failed_without_running() {
    assert!(
        pod(&json!({"phase": "Failed", "reason": "OutOfcpu"}))
            .end
            .unwrap()
            .disrupted
    );
    assert!(pod(&json!({"phase": "Failed"})).end.unwrap().disrupted);
    assert!(
        !pod(&json!({"phase": "Failed", "reason": "DeadlineExceeded"}))
            .end
            .unwrap()
            .disrupted
    );
    let side_ended = ended("log", &json!({"exitCode": 0}));
    let shutdown = json!({"phase": "Failed", "reason": "NodeShutdown", "containerStatuses": [side_ended]});
    assert!(pod(&shutdown).end.unwrap().disrupted);
}

#[test]
fn a_pod_that_fits_nowhere() {
    let row = pod(&json!({"phase": "Pending", "conditions": [
        {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/2 nodes are available"}]}));
    let trouble = row.trouble.unwrap();
    assert_eq!(
        (&*trouble.reason, &*trouble.message),
        ("Unschedulable", "0/2 nodes are available")
    );
    assert_eq!(row.phase, PodPhase::Pending);
}

#[test]
fn an_image_that_cannot_be_pulled() {
    let waiting = |reason: &str| {
        pod(&json!({"phase": "Pending", "containerStatuses": [
            {"name": "log", "state": {"waiting": {"reason": "ContainerCreating"}}},
            {"name": "train", "state": {"waiting": {"reason": reason, "message": "Back-off pulling image"}}}]}))
    };
    assert_eq!(
        waiting("ImagePullBackOff").trouble.unwrap().reason,
        "ImagePullBackOff"
    );
    assert!(waiting("PodInitializing").trouble.is_none());
}

#[test]
fn a_pod_that_says_nothing_yet_and_one_that_must_go() {
    let json = r#"{"metadata":{"name":"a","uid":"u","deletionTimestamp":"2026-01-02T03:04:05Z"},"spec":{},"status":{}}"#;
    let pod: SlimPod = serde_json::from_str(json).unwrap();
    assert!(pod.metadata.job().is_none() && !pod.metadata.is_labelled());
    let row = pod.into_row();
    assert_eq!(row.phase, PodPhase::Pending);
    assert!(row.terminating && row.node.is_none());
}

#[test]
fn last_words_are_the_last_and_whole_letters() {
    assert_eq!(message_tail("short"), "short");
    let long = format!("{}end", "ä".repeat(1000));
    let kept = message_tail(&long);
    assert!(kept.len() <= MESSAGE_LIMIT && kept.ends_with("ääend"));
}

#[test]
fn our_own_annotation_says_which_container_trains() {
    let shown = ("kubectl.kubernetes.io/default-container", "side");
    let row = |annotations: &[(&str, &str)]| {
        let annotations: std::collections::BTreeMap<_, _> = annotations.iter().copied().collect();
        let statuses = [
            ended("main", &json!({"exitCode": 0})),
            ended("side", &json!({"exitCode": 1})),
        ];
        let json = json!({
            "metadata": {"name": "p", "namespace": "ns", "uid": "u", "resourceVersion": "1", "annotations": annotations},
            "status": {"phase": "Failed", "containerStatuses": statuses},
        });
        serde_json::from_value::<SlimPod>(json).unwrap().into_row().phase
    };
    assert_eq!(
        row(&[("trainyard.dev/container", "main"), shown]),
        PodPhase::Succeeded
    );
    // Pods of former versions have only the other.
    assert_eq!(row(&[shown]), PodPhase::Failed);
}

/// The name is written out in [`Annotations`](crate::slim::Annotations), where it can't be a
/// constant.
#[test]
fn the_annotation_that_ends_a_wait_is_read() {
    let annotations = json!({ANNOTATION_START: START_NOW});
    let annotations: crate::slim::Annotations = serde_json::from_value(annotations).unwrap();
    assert_eq!(annotations.start.as_deref(), Some(START_NOW));
}

#[test]
fn only_a_deadline_of_its_own_is_no_disruption_where_no_program_ended_badly() {
    let train = ended("train", &json!({"exitCode": 0}));
    let disrupted = |reason: &str| {
        let row = pod(&json!({"phase": "Failed", "reason": reason, "containerStatuses": [train.clone()]}));
        let end = row.end.unwrap();
        assert_eq!((row.phase, end.exit_code), (PodPhase::Failed, None));
        end.disrupted
    };
    assert!(disrupted("Evicted"));
    assert!(!disrupted("DeadlineExceeded"));
}

#[test]
fn a_deadline_of_its_own_counts_whatever_code_its_program_was_ended_with() {
    for code in [0, 1, 137, 143] {
        let train = ended(
            "train",
            &json!({"exitCode": code, "reason": "Error", "finishedAt": "2026-01-02T03:04:05Z"}),
        );
        let row = pod(
            &json!({"phase": "Failed", "reason": "DeadlineExceeded", "message": "too late", "containerStatuses": [train]}),
        );
        let end = row.end.as_deref().unwrap();
        assert_eq!((end.exit_code, end.signal, end.disrupted), (None, None, false));
        assert_eq!(
            (end.reason.as_deref(), end.message.as_deref()),
            (Some("DeadlineExceeded"), Some("too late"))
        );
        assert!(end.finished_at.is_some());
        let ended = restart::end(&row, NodeState::Up, NodeDownPolicy::Wait);
        assert_eq!(ended, Some(End::Failure(None)));
    }
}

/// A pod that somebody deleted, as a kubelet tells its end.
fn deleted(status: &Value) -> PodRow {
    let json = json!({
        "metadata": {
            "name": "p", "namespace": "ns", "uid": "u", "resourceVersion": "1",
            "deletionTimestamp": "2026-01-02T03:05:00Z", "deletionGracePeriodSeconds": 30,
            "annotations": {"trainyard.dev/container": "train"},
        },
        "spec": {"nodeName": "node-a"},
        "status": status,
    });
    serde_json::from_value::<SlimPod>(json).unwrap().into_row()
}

#[test]
fn a_pod_that_was_deleted_before_its_program_began_has_not_ended() {
    let unknown =
        json!({"exitCode": 137, "reason": "ContainerStatusUnknown", "startedAt": null, "finishedAt": null});
    let row = deleted(&json!({"phase": "Failed", "containerStatuses": [ended("train", &unknown)]}));
    assert_eq!((row.phase, row.terminating), (PodPhase::Pending, true));
    // It was there, and nobody knows what became of it.
    let mut ran = ended("train", &unknown);
    ran["containerID"] = json!("containerd://1");
    let row = deleted(&json!({"phase": "Failed", "containerStatuses": [ran]}));
    assert_eq!(row.phase, PodPhase::Failed);
    // What comes before it was ended, or had failed before that.
    let init = |finished: &str| {
        let wait = ended(
            "wait",
            &json!({"exitCode": 143, "reason": "Error", "finishedAt": finished}),
        );
        let train = json!({"name": "train", "state": {"waiting": {"reason": "PodInitializing"}}});
        deleted(&json!({"phase": "Failed", "initContainerStatuses": [wait], "containerStatuses": [train]}))
            .phase
    };
    assert_eq!(init("2026-01-02T03:04:31Z"), PodPhase::Pending);
    assert_eq!(init("2026-01-02T03:04:29Z"), PodPhase::Failed);
}

#[test]
fn a_failure_is_not_undone_by_a_deletion() {
    let status = json!({"phase": "Failed", "reason": "DeadlineExceeded",
        "containerStatuses": [{"name": "train", "state": {"waiting": {"reason": "ImagePullBackOff"}}}]});
    assert_eq!(deleted(&status).phase, PodPhase::Failed);
}

/// Otherwise its labels would be written over and over.
#[test]
fn a_pod_is_labelled_whichever_comes_first_in_its_name() {
    let is_labelled = |name: &str, index: &str| {
        let json = json!({
            "metadata": {
                "name": name, "uid": "u",
                "labels": {
                    "app.kubernetes.io/managed-by": "trainyard", "trainyard.dev/job": "mnist",
                    "trainyard.dev/role": "worker", "trainyard.dev/index": index,
                },
                "ownerReferences": [
                    {"apiVersion": "trainyard.dev/v1alpha1", "kind": "TrainingJob", "name": "mnist", "uid": "u1",
                     "controller": true}],
            },
            "spec": {}, "status": {},
        });
        let pod: SlimPod = serde_json::from_str(&json.to_string()).unwrap();
        pod.into_row().labelled
    };
    for (name, index, expected) in [
        ("mnist-worker-1", "1", true),
        ("worker-mnist-1", "1", true),
        ("mnist-worker", "0", true),
        ("worker-mnist-1", "2", false),
        ("worker-mnist-11", "1", false),
        ("server-mnist-1", "1", false),
        ("worker-other-1", "1", false),
    ] {
        assert_eq!(is_labelled(name, index), expected, "{name} {index}");
    }
}
