//! What a kubelet would write into a pod's status.

use serde_json::{Value, json};

/// What a pod is said to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PodTransition {
    /// All containers run and are ready.
    Run,
    /// All containers ended with 0.
    Succeed,
    /// All containers ended with this code.
    Fail(i32),
}

/// The patch that makes a pod do it. The UID in it keeps a later pod of the same name untouched.
pub(super) fn patch(
    uid: &str,
    containers: &[String],
    transition: PodTransition,
    now: jiff::Timestamp,
) -> Value {
    let time = now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let (phase, ready) = match transition {
        PodTransition::Run => ("Running", "True"),
        PodTransition::Succeed => ("Succeeded", "False"),
        PodTransition::Fail(_) => ("Failed", "False"),
    };
    let state = match transition {
        PodTransition::Run => json!({"running": {"startedAt": time}}),
        PodTransition::Succeed => ended(0, "Completed", &time),
        PodTransition::Fail(code) => ended(code, "Error", &time),
    };
    let condition =
        |kind: &str, value: &str| json!({"type": kind, "status": value, "lastTransitionTime": time});
    let containers: Vec<Value> = containers
        .iter()
        .map(|name| {
            json!({
                "name": name,
                "image": "none",
                "imageID": "",
                "ready": transition == PodTransition::Run,
                "started": transition == PodTransition::Run,
                "restartCount": 0,
                "state": state,
            })
        })
        .collect();
    let mut status = json!({
        "phase": phase,
        "conditions": [
            condition("PodScheduled", "True"),
            condition("Initialized", "True"),
            condition("ContainersReady", ready),
            condition("Ready", ready),
        ],
        "containerStatuses": containers,
    });
    if transition == PodTransition::Run {
        status["startTime"] = json!(time);
    }
    json!({"metadata": {"uid": uid}, "status": status})
}

fn ended(code: i32, reason: &str, time: &str) -> Value {
    json!({"terminated": {"exitCode": code, "reason": reason, "startedAt": time, "finishedAt": time}})
}
