//! Pods of a StatefulSet that are called as the workers of a job. Only a real cluster makes them.

use serde_json::{Value, json};
use trainyard_testkit::images;
use trainyard_testkit::lab::{Lab, template};

use super::{OPEN_MPI_4, mpi_job};

/// A StatefulSet `mine-worker`, whose pods have the names of the workers of the job `mine`.
fn namesakes() -> Value {
    let mut template = template(images::MPI, &json!({"command": ["sleep", "600"]}));
    template["metadata"] = json!({"labels": {"app": "database"}});
    json!({
        "apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "mine-worker"},
        "spec": {
            "serviceName": "database", "replicas": 2, "podManagementPolicy": "Parallel",
            "selector": {"matchLabels": {"app": "database"}}, "template": template,
        },
    })
}

/// The names of the pods in which a job may start programs.
fn reach(lab: &Lab) -> Vec<String> {
    let role = lab.try_get("role mine-mpi").unwrap_or_default();
    let rules = role["rules"].as_array().cloned().unwrap_or_default();
    let names = rules
        .iter()
        .flat_map(|rule| rule["resourceNames"].as_array().cloned().unwrap_or_default());
    names
        .filter_map(|name| name.as_str().map(ToOwned::to_owned))
        .collect()
}

/// A job gets no right to them, and waits until their names are free.
pub fn pods_of_a_statefulset_are_out_of_reach() {
    let (lab, _operator) = Lab::with_agent("stateful");
    lab.apply(&namesakes().to_string()).unwrap();
    let theirs = || {
        lab.get("pods -l app=database")["items"]
            .as_array()
            .unwrap()
            .clone()
    };
    lab.until("its pods exist", || match theirs().len() {
        2 => Ok(()),
        other => Err(other.to_string()),
    });
    let job = mpi_job(
        "mine",
        &OPEN_MPI_4,
        2,
        "/etc/mpi/kubexec.sh mine-worker-1 'echo reached'",
        &json!({"attach": "Exec"}),
    );
    lab.apply(&job.to_string()).unwrap();
    lab.wait_for_event("mine", "OwnershipConflict");
    assert_eq!(reach(&lab), [""; 0]);
    let owners = |pods: Vec<Value>| {
        pods.iter()
            .map(|pod| pod["metadata"]["ownerReferences"][0]["kind"].clone())
            .collect::<Vec<_>>()
    };
    assert_eq!(owners(theirs()), ["StatefulSet", "StatefulSet"]);

    lab.delete("statefulset mine-worker");
    lab.wait_until_ended("mine", "Succeeded");
    assert_eq!(lab.logs("mine-launcher-0"), "reached\n");
}
