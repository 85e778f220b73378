//! Launchers and workers, with an operator that has the rights which were installed and no more.

use serde_json::{Value, json};
use trainyard_testkit::{images, lab};

use super::{apply, cluster, eventually, json, kubectl, phase};

/// The example, run in another way.
fn adds_up(options: &str) {
    cluster().load_image(&images::mpi().unwrap()).unwrap();
    let example = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/mpi/job.yaml");
    let example = std::fs::read_to_string(example).unwrap();
    let manifest = example
        .replace("  name: mpi\nspec", "  name: mpi\n  namespace: users\nspec")
        .replace(
            "      slotsPerWorker: 2\n",
            &format!("      slotsPerWorker: 2\n{options}"),
        )
        .replace("example/openmpi:1", images::MPI);
    apply(&manifest).unwrap();
    phase("users", "mpi", "Succeeded");
    let log = kubectl("logs -n users mpi-launcher-0");
    assert!(log.contains("4 processes on 2 hosts: the sum is 10"), "{log}");
}

#[test]
fn mpi_adds_up_on_two_nodes() {
    adds_up("");
    let secret = json("get secret -n users mpi-mpi");
    assert_eq!(secret["metadata"]["ownerReferences"][0]["name"], "mpi");
    kubectl("delete tj -n users mpi");
}

#[test]
fn mpi_adds_up_over_exec_with_rights_that_the_operator_may_give() {
    adds_up("      attach: Exec\n");
    eventually("a job that has ended has no right", || {
        match json("get role -n users mpi-mpi")["rules"].take() {
            Value::Array(rules) if !rules.is_empty() => Err(json!(rules).to_string()),
            _ => Ok(()),
        }
    });
    kubectl("delete tj -n users mpi");
}

fn template(container: &Value) -> Value {
    lab::template(images::MPI, container)
}

#[test]
fn a_job_of_another_operator_is_served_as_it_is_and_a_bad_one_is_refused_at_once() {
    cluster().load_image(&images::mpi().unwrap()).unwrap();
    let command = json!(["mpirun.openmpi", "-np", "2", "/usr/local/bin/allreduce-openmpi4"]);
    let mut job = json!({
        "apiVersion": "batch.test.bdap.com/v1",
        "kind": "MPIJob",
        "metadata": {"name": "theirs", "namespace": "users"},
        "spec": {
            "numWorkers": 2,
            "launcherTemplate": template(&json!({"command": command})),
            "workerTemplate": template(&json!({"command": ["sleep", "infinity"]})),
        },
    });
    job["spec"]["numWorkers"] = json!(0);
    let refused = apply(&job.to_string()).unwrap_err();
    assert!(refused.contains("spec.numWorkers"), "{refused}");
    job["spec"]["numWorkers"] = json!(2);
    apply(&job.to_string()).unwrap();
    let what = "mpijobs.batch.test.bdap.com -n users theirs";
    eventually("the job of another operator succeeds", || {
        let status = json(&format!("get {what}"))["status"].clone();
        if status["phase"] == "Succeeded" {
            Ok(())
        } else {
            Err(format!("{status:#}"))
        }
    });
    let log = kubectl("logs -n users theirs-launcher");
    for rank in ["rank 0 of 2 on theirs-worker-0", "rank 1 of 2 on theirs-worker-1"] {
        assert!(log.contains(rank), "{log}");
    }
    kubectl(&format!("delete {what}"));
    eventually("its TrainingJob is gone with it", || {
        let left = json("get tj -n users");
        let jobs = left["items"].as_array().cloned().unwrap_or_default();
        if jobs.iter().any(|job| job["metadata"]["name"] == "theirs") {
            Err(format!("{left:#}"))
        } else {
            Ok(())
        }
    });
}
