//! What is refused: names that are taken, jobs that are malformed, changes that may not be made.

use serde_json::{Value, json};
use trainyard_testkit::lab::{Lab, Role, Scenarios, job};
use trainyard_testkit::scenarios;

pub const SCENARIOS: Scenarios = scenarios!(
    "refusals",
    &[],
    [
        what_is_not_ours_is_not_touched,
        thirty_malformed_jobs_keep_nobody_from_running,
        a_change_that_admission_did_not_see_is_reported_and_healed,
    ]
);

fn what_is_not_ours_is_not_touched() {
    let (lab, _operator) = Lab::with_operator("owner");
    lab.apply(r#"{"apiVersion": "v1", "kind": "Service", "metadata": {"name": "taken"}, "spec": {"ports": [{"port": 1}]}}"#)
        .unwrap();
    let before = lab.get("service taken");
    lab.apply(&job("taken", "custom", &[Role::worker(1, "sleep 600")], ""))
        .unwrap();
    lab.until("the job says whose the name is", || {
        let status = lab.get("tj taken")["status"].clone();
        let accepted = status["conditions"]
            .as_array()
            .into_iter()
            .flatten()
            .find(|c| c["type"] == "Accepted")
            .cloned();
        let told = accepted.is_some_and(|c| c["status"] == "False" && c["reason"] == "OwnershipConflict");
        if told { Ok(()) } else { Err(format!("{status:#}")) }
    });
    assert_eq!(lab.get("service taken"), before);
    lab.wait_for_event("taken", "OwnershipConflict");
    // The way out that the message names works.
    lab.delete("service taken");
    lab.wait_for_phase("taken", "Running");
}

/// Jobs that the schema lets through and only we can see to be broken: framework, role, more of the
/// role, and what is said. There is no webhook here.
const BROKEN: [(&str, &str, &str, &str); 10] = [
    ("tensorfly", "worker", "{}", "spec.framework.name"),
    ("pytorch", "chief", "{}", "spec.roles[0].name"),
    (
        "custom",
        "worker",
        r#"{"container": "absent"}"#,
        "spec.roles[0].container",
    ),
    (
        "custom",
        "worker",
        r#"{"template": {"spec": {"containers": []}}}"#,
        "spec.roles[0].template.spec.containers",
    ),
    (
        "pytorch",
        "worker",
        r#"{"template": {"spec": {"containers": [{"name": "c", "image": "i", "env": [{"name": "RANK", "value": "7"}]}]}}}"#,
        "env[0].name",
    ),
    (
        "mxnet",
        "worker",
        "{}",
        "spec.roles: mxnet jobs need a role \"scheduler\": add it",
    ),
    (
        "dask",
        "launcher",
        "{}",
        "spec.roles: dask jobs need a role \"scheduler\": add it",
    ),
    (
        "tensorflow",
        "chief",
        r#"{"replicas": 2}"#,
        "spec.roles[0].replicas",
    ),
    (
        "pytorch",
        "master",
        r#"{"replicas": 2}"#,
        "spec.roles[0].replicas",
    ),
    ("bagua", "worker", "{}", "spec.framework.bagua.ports"),
];

fn thirty_malformed_jobs_keep_nobody_from_running() {
    let (lab, _operator) = Lab::with_operator("mixed");
    let mut manifests = Vec::new();
    for i in 0..30 {
        manifests.push(job(
            &format!("good-{i}"),
            "custom",
            &[Role::worker(1, "true")],
            "",
        ));
        let (framework, role, more, _) = BROKEN[i % BROKEN.len()];
        let role = Role {
            name: role,
            replicas: 1,
            script: "true",
            more,
        };
        let mut bad: Value = serde_json::from_str(&job(&format!("bad-{i}"), framework, &[role], "")).unwrap();
        if framework == "bagua" {
            // One for SSH and one for the master are the least.
            bad["spec"]["framework"]["bagua"] = json!({"ports": [7001]});
        }
        manifests.push(bad.to_string());
    }
    lab.apply(&manifests.join("\n---\n")).unwrap();
    lab.until("all good jobs succeed and all bad ones say why", || {
        let jobs = lab.get("tj");
        let mut open = Vec::new();
        for job in jobs["items"].as_array().unwrap() {
            let name = job["metadata"]["name"].as_str().unwrap();
            let settled = if let Some(i) = name.strip_prefix("bad-") {
                let conditions = job["status"]["conditions"]
                    .as_array()
                    .cloned()
                    .unwrap_or_default();
                let path = BROKEN[i.parse::<usize>().unwrap() % BROKEN.len()].3;
                conditions.iter().any(|c| {
                    c["type"] == "Accepted"
                        && c["status"] == "False"
                        && c["reason"] == "Invalid"
                        && c["message"]
                            .as_str()
                            .is_some_and(|message| message.contains(path))
                })
            } else {
                job["status"]["phase"] == "Succeeded"
            };
            if !settled {
                open.push(format!("{name}: {}", job["status"]));
            }
        }
        if open.is_empty() {
            Ok(())
        } else {
            Err(open.join("\n"))
        }
    });
    assert!(
        lab.get("pods")["items"]
            .as_array()
            .unwrap()
            .iter()
            .all(|pod| pod["metadata"]["name"].as_str().unwrap().contains("good-"))
    );
}

fn a_change_that_admission_did_not_see_is_reported_and_healed() {
    let (lab, _operator) = Lab::with_operator("change");
    lab.apply(&job("edited", "custom", &[Role::worker(1, "sleep 600")], ""))
        .unwrap();
    lab.wait_for_phase("edited", "Running");
    lab.apply(&job("edited", "custom", &[Role::worker(1, "sleep 700")], ""))
        .unwrap();
    let accepted = |wanted: &str| {
        lab.until(&format!("Accepted is {wanted}"), || {
            let status = lab.get("tj edited")["status"].clone();
            let conditions = status["conditions"].as_array().cloned().unwrap_or_default();
            let found = conditions
                .iter()
                .find(|c| c["type"] == "Accepted")
                .cloned()
                .unwrap_or_default();
            if found["status"] == wanted {
                Ok(found)
            } else {
                Err(format!("{status:#}"))
            }
        })
    };
    assert!(
        accepted("False")["message"]
            .as_str()
            .unwrap()
            .contains("spec.roles[0]: role \"worker\"")
    );
    lab.apply(&job("edited", "custom", &[Role::worker(1, "sleep 600")], ""))
        .unwrap();
    accepted("True");
}
