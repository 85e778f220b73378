//! The Secret by which the pods of a job know each other is deleted while the job runs.

use serde_json::{Value, json};
use trainyard_testkit::images;
use trainyard_testkit::lab::{self, Image, Lab, Scenarios};
use trainyard_testkit::scenarios;

pub const SCENARIOS: Scenarios = scenarios!(
    "secrets",
    &[Image::AGENT, Image::MPI],
    [a_secret_that_is_deleted_is_told_and_all_pods_start_anew,]
);

/// A job whose launcher reaches all workers, says so, and stays.
fn patient() -> Value {
    let script = "mpirun.openmpi -n 2 /usr/local/bin/allreduce-openmpi4 && echo none is missing && exec sleep infinity";
    let template = |container: &Value| {
        let mut template = lab::template(images::MPI, container);
        lab::tolerate_silence(&mut template);
        template
    };
    let launcher = json!({"command": ["/bin/sh", "-c", script]});
    json!({
        "apiVersion": "trainyard.dev/v1alpha1",
        "kind": "TrainingJob",
        "metadata": {"name": "lost"},
        "spec": {
            "framework": {"name": "mpi", "mpi": {"slotsPerWorker": 1}},
            "roles": [
                {"name": "launcher", "restartScope": "Pod", "template": template(&launcher)},
                {"name": "worker", "replicas": 2, "restartScope": "Pod", "template": template(&json!({}))},
            ],
        },
    })
}

fn uid(object: &Value) -> String {
    object["metadata"]["uid"].as_str().unwrap().to_owned()
}

/// Waits until both ranks of a launcher have said something, and mpirun has ended: every worker can
/// be reached, and none is needed any more.
fn reaches_all(lab: &Lab) {
    lab.until("the launcher reaches all workers", || {
        let log = lab.try_logs("lost-launcher-0").unwrap_or_default();
        let said = |host: &str| {
            log.lines()
                .any(|line| line.contains(" of 2 on ") && line.contains(host))
        };
        let ended = log.lines().any(|line| line == "none is missing");
        if ended && said("lost-worker-0") && said("lost-worker-1") {
            Ok(())
        } else {
            Err(log)
        }
    });
}

/// Waits until the condition Accepted is as wanted; its message.
fn accepted(lab: &Lab, status: &str, reason: &str) -> String {
    lab.until(&format!("Accepted is {status}, {reason}"), || {
        let said = lab.get("tj lost")["status"].clone();
        let conditions = said["conditions"].as_array().into_iter().flatten();
        let mut conditions = conditions.filter(|condition| condition["type"] == "Accepted");
        match conditions.next() {
            Some(one) if one["status"] == status && one["reason"] == reason => {
                Ok(one["message"].as_str().unwrap().to_owned())
            }
            _ => Err(format!("{said:#}")),
        }
    })
}

fn a_secret_that_is_deleted_is_told_and_all_pods_start_anew() {
    let (lab, _operator) = Lab::with_agent("secrets");
    lab.apply_one(patient()).unwrap();
    lab.wait_for_phase("lost", "Running");
    reaches_all(&lab);
    let first = uid(&lab.get("secret lost-mpi"));
    let (launcher, other) = (
        uid(&lab.get("pod lost-launcher-0")),
        uid(&lab.get("pod lost-worker-1")),
    );

    // Nobody needs it until a pod is to be replaced, and nothing is while the launcher runs.
    lab.delete("secret lost-mpi");
    lab.delete("pod lost-worker-0");
    let said = accepted(&lab, "False", "SecretMissing");
    assert!(said.starts_with("Secret \"lost-mpi\" is gone"), "{said}");
    assert!(said.contains("delete the pod lost-launcher-0"), "{said}");
    lab.wait_for_event("lost", "SecretMissing");
    assert_eq!(uid(&lab.get("pod lost-launcher-0")), launcher);
    assert_eq!(uid(&lab.get("pod lost-worker-1")), other);

    // The way out that the message names works.
    lab.delete("pod lost-launcher-0");
    accepted(&lab, "True", "Valid");
    lab.wait_for_phase("lost", "Running");
    reaches_all(&lab);
    assert_ne!(uid(&lab.get("secret lost-mpi")), first);
    assert_ne!(uid(&lab.get("pod lost-worker-1")), other, "it had the first");
    let restarts = lab.get("tj lost")["status"]["restarts"]["failures"].clone();
    assert!(restarts.is_null() || restarts == 0, "{restarts}");
}
