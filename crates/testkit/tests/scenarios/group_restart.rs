//! Pods that start anew together: a real training that loses one of its ranks.

use std::os::unix::fs::PermissionsExt;

use serde_json::{Value, json};
use trainyard_testkit::lab::{Image, Lab, Scenarios};
use trainyard_testkit::{images, scenarios};

use crate::trainings::result;

pub const SCENARIOS: Scenarios = scenarios!(
    "group_restart",
    &[Image::HOROVOD],
    [pytorch_goes_on_from_its_checkpoint_when_a_rank_is_killed]
);

const PROGRAM: &str = include_str!("group_restart/train.py");
const PODS: usize = 4;

/// A job whose pods share a directory of this machine, on which all nodes are.
fn job(checkpoints: &std::path::Path) -> Value {
    let mut template = trainyard_testkit::lab::template(
        images::HOROVOD,
        &json!({
            "command": ["python3", "/program/train.py"],
            "env": [{"name": "OMP_NUM_THREADS", "value": "1"}],
            "volumeMounts": [
                {"name": "program", "mountPath": "/program"},
                {"name": "checkpoints", "mountPath": "/checkpoints"},
                {"name": "tmp", "mountPath": "/tmp"},
            ],
        }),
    );
    template["spec"]["volumes"] = json!([
        {"name": "program", "configMap": {"name": "program"}},
        {"name": "checkpoints", "hostPath": {"path": checkpoints, "type": "Directory"}},
        {"name": "tmp", "emptyDir": {}},
    ]);
    json!({
        "apiVersion": "trainyard.dev/v1alpha1", "kind": "TrainingJob", "metadata": {"name": "ddp"},
        "spec": {
            "framework": {"name": "pytorch"},
            "roles": [{"name": "worker", "replicas": PODS, "template": template}],
            // Pods stay when all is over, for their logs.
            "runPolicy": {"backoffLimit": 1, "cleanPodPolicy": "None"},
        },
    })
}

/// The others hang in a collective, whose timeout is 30 minutes: nobody waits for that.
fn pytorch_goes_on_from_its_checkpoint_when_a_rank_is_killed() {
    let checkpoints = tempfile::tempdir().unwrap();
    std::fs::set_permissions(checkpoints.path(), std::fs::Permissions::from_mode(0o777)).unwrap();
    let (lab, _operator) = Lab::with_operator_and_profile("group", "privileged");
    let program = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "program"},
        "data": {"train.py": PROGRAM}});
    lab.apply(&program.to_string()).unwrap();
    lab.apply(&job(checkpoints.path()).to_string()).unwrap();
    lab.until("a rank stops in the middle", || {
        let log = lab.try_logs("ddp-worker-2")?;
        log.contains("rank 2 stops").then_some(()).ok_or(log)
    });
    let uids = |lab: &Lab| -> Vec<String> {
        let pods = (0..PODS).map(|index| lab.get(&format!("pod ddp-worker-{index}")));
        pods.map(|pod| pod["metadata"]["uid"].to_string()).collect()
    };
    let before = uids(&lab);
    lab.kill("ddp-worker-2");

    let ended = lab.wait_until_ended("ddp", "Succeeded");
    let restarts = &ended["status"]["restarts"];
    assert_eq!(
        (&restarts["failures"], &restarts["disruptions"]),
        (&json!(1), &json!(0)),
        "{restarts:#}"
    );
    assert_eq!(restarts["attempts"], json!([{"role": "worker", "attempt": 1}]));
    let history = restarts["history"].as_array().unwrap();
    assert_eq!(history.len(), 1, "{restarts:#}");
    assert_eq!(history[0]["consequences"], 3);
    assert!(history[0]["seconds"].is_i64(), "{restarts:#}");
    let after = uids(&lab);
    assert!(
        before.iter().all(|uid| !after.contains(uid)),
        "all of them are new"
    );
    for index in 0..PODS {
        let log = lab.logs(&format!("ddp-worker-{index}"));
        let begins = format!("rank {index} of attempt 1 goes on from step 30");
        assert!(log.contains(&begins), "{log}");
        let loss = result(&log, "final loss ");
        assert!(loss <= 1e-2, "{loss}: {log}");
    }
}
