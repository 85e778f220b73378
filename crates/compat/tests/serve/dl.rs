//! Jobs of dl-operator, and what its own operator could not do.

use k8s_openapi::api::core::v1::Pod;
use rstest::rstest;
use serde_json::{Value, json};
use trainyard_api::{JobPhase, RestartPolicy, TrainingJob};
use trainyard_core::build;
use trainyard_core::foreign::{Child, ChildAction};
use trainyard_core::job::Job;

use super::changes::change;
use super::common::of_job;
use super::{MXJOB, TFJOB, child, object, plan, refused, settings, told};

/// The pods of a child, by name.
fn pods(child: &TrainingJob) -> Vec<Pod> {
    let job = Job::parse(child).unwrap();
    let pods = job.keys().map(|key| build::pod(&job, &settings(), key).unwrap());
    pods.collect()
}

fn variable(pod: &Pod, name: &str) -> Option<String> {
    let main = &pod.spec.as_ref().unwrap().containers[0];
    let mut variables = main.env.iter().flatten();
    variables.find(|variable| variable.name == name)?.value.clone()
}

/// The child of a job whose roles have come to something.
fn with_roles(object: &Value, phase: JobPhase, roles: &Value, condition: &Value) -> TrainingJob {
    let mut job = child(object);
    let status = json!({"phase": phase, "conditions": [condition], "roles": roles});
    job.status = Some(serde_json::from_value(status).unwrap());
    job
}

/// TODO of its operator: replicas should reach each other by host names. What it told them was a
/// name that no Service had.
#[test]
fn replicas_find_each_other_by_host_names() {
    for pod in pods(&child(&object(MXJOB))) {
        let uri = variable(&pod, "DMLC_PS_ROOT_URI").unwrap();
        assert_eq!(uri, "scheduler-test02-0.test02.research.svc.cluster.local");
        let spec = pod.spec.unwrap();
        assert_eq!(spec.hostname, pod.metadata.name, "the name leads to the pod");
        assert_eq!(spec.subdomain.as_deref(), Some("test02"));
    }
    let worker = &pods(&child(&object(TFJOB)))[1];
    let config: Value = serde_json::from_str(&variable(worker, "TF_CONFIG").unwrap()).unwrap();
    let host = |name: &str| format!("{name}.digits.research.svc.cluster.local:2222");
    assert_eq!(
        config["cluster"],
        json!({"ps": [host("ps-digits-0")], "worker": [host("worker-digits-0"), host("worker-digits-1")]})
    );
    assert_eq!(config["task"], json!({"type": "worker", "index": 0}));
}

/// TODO of its operator: react to exit statuses. There, pods began anew for ever.
#[rstest]
#[case("Never", RestartPolicy::Never)]
#[case("OnFailure", RestartPolicy::OnFailure)]
#[case("Always", RestartPolicy::OnFailure)]
fn exit_statuses_count(#[case] given: &str, #[case] wanted: RestartPolicy) {
    let mut object = object(MXJOB);
    object["spec"][2]["template"]["spec"]["restartPolicy"] = given.into();
    let child = child(&object);
    assert_eq!(child.spec.roles[2].restart_policy, Some(wanted));
    let job = Job::parse(&child).unwrap();
    assert_eq!(
        job.succeeded_when,
        [[2]],
        "the workers decide; scheduler and servers end with them"
    );
    assert_eq!(job.failed_when, [[0], [1], [2]]);
}

/// TODO of its operator: status, and the result of a job.
#[test]
fn a_job_has_a_status() {
    let object = object(MXJOB);
    let new = super::at(&object, JobPhase::Pending);
    let status = told(&object, &new)["status"].clone();
    assert_eq!(
        (&status["phase"], &status["ready"]),
        (&json!("Pending"), &json!("2/3"))
    );
    let roles = json!([
        {"name": "scheduler", "phase": "Running", "active": 1, "ready": 1},
        {"name": "server", "phase": "Running", "active": 1},
        {"name": "worker", "phase": "Succeeded", "succeeded": 1},
    ]);
    let ended = json!({
        "type": "Succeeded", "status": "True", "reason": "RolesSucceeded", "message": "worker has succeeded",
        "lastTransitionTime": "2026-02-03T04:04:01Z",
    });
    let mut child = with_roles(&object, JobPhase::Succeeded, &roles, &ended);
    let result = json!({"metrics": {"loss": "0.3"}, "artifacts": {"model": "/data/linear.params"}});
    child.status.as_mut().unwrap().result = Some(serde_json::from_value(result.clone()).unwrap());
    let object = told(&object, &child);
    let status = &object["status"];
    assert_eq!(status["result"], result);
    let definition = super::kind_of(&object).definition();
    let kept =
        definition.pointer("/spec/versions/0/schema/openAPIV3Schema/properties/status/properties/result");
    assert!(
        kept.unwrap()["properties"]["artifacts"].is_object(),
        "the server keeps it"
    );
    assert_eq!(
        status["replicaStatuses"],
        json!({
            "scheduler": {"replicas": 1, "active": 1, "ready": 1, "succeeded": 0, "failed": 0},
            "server": {"replicas": 1, "active": 1, "ready": 0, "succeeded": 0, "failed": 0},
            "worker": {"replicas": 1, "active": 0, "ready": 0, "succeeded": 1, "failed": 0},
        })
    );
    assert_eq!(
        (
            &status["phase"],
            &status["message"],
            &status["observedGeneration"]
        ),
        (&json!("Succeeded"), &json!("worker has succeeded"), &json!(1))
    );
    assert_eq!(
        super::conditions(&object)[1],
        ("Succeeded", "True", "RolesSucceeded")
    );
    assert_eq!(plan(&object, of_job(&child)).status, None, "it is told once");
}

/// The same for its other kind, field by field.
#[test]
fn a_tfjob_has_a_status() {
    let object = object(TFJOB);
    let roles = json!([
        {"name": "ps", "phase": "Running", "active": 1, "ready": 1},
        {"name": "worker", "phase": "Failed", "succeeded": 1, "failed": 1},
    ]);
    let failed = json!({
        "type": "Failed", "status": "True", "reason": "BackoffLimitExceeded", "message": "worker has failed",
        "lastTransitionTime": "2026-02-03T04:04:01Z",
    });
    let child = with_roles(&object, JobPhase::Failed, &roles, &failed);
    let counts = |replicas: u32, active: u32, succeeded: u32, failed: u32| json!({"replicas": replicas, "active": active, "ready": active, "succeeded": succeeded, "failed": failed});
    assert_eq!(
        told(&object, &child)["status"],
        json!({
            "observedGeneration": 1,
            "phase": "Failed",
            "ready": "1/3",
            "message": "worker has failed",
            "conditions": [
                {
                    "type": "Accepted", "status": "True", "reason": "Valid", "message": "the job is valid",
                    "lastTransitionTime": "2026-02-03T04:05:06Z", "observedGeneration": 1,
                },
                {
                    "type": "Failed", "status": "True", "reason": "BackoffLimitExceeded", "message": "worker has failed",
                    "lastTransitionTime": "2026-02-03T04:05:06Z", "observedGeneration": 1,
                },
            ],
            "replicaStatuses": {"ps": counts(1, 1, 0, 0), "worker": counts(2, 0, 1, 1)},
        })
    );
}

/// Bug: replicas were counted by types in upper case alone.
#[rstest]
#[case(["SCHEDULER", "SERVER", "WORKER"])]
#[case(["scheduler", "server", "worker"])]
#[case(["Scheduler", "sErVeR", "Worker"])]
fn a_replica_type_is_written_in_any_case(#[case] types: [&str; 3]) {
    let mut object = object(MXJOB);
    for (i, name) in types.into_iter().enumerate() {
        object["spec"][i]["replicaType"] = name.into();
    }
    object["spec"][1]["replicas"] = 2.into();
    object["spec"][2]["replicas"] = 3.into();
    let pods = pods(&child(&object));
    assert_eq!(pods.len(), 6);
    for (pod, role) in pods.iter().zip(["scheduler", "server", "server", "worker"]) {
        assert_eq!(variable(pod, "DMLC_ROLE").as_deref(), Some(role));
        assert_eq!(variable(pod, "DMLC_NUM_SERVER").as_deref(), Some("2"));
        assert_eq!(variable(pod, "DMLC_NUM_WORKER").as_deref(), Some("3"));
        assert_eq!(variable(pod, "DMLC_PS_ROOT_PORT").as_deref(), Some("9000"));
        assert_eq!(variable(pod, "PS_VERBOSE").as_deref(), Some("2"));
    }
}

/// Bug: of a template there was left the first container, without its volumes.
#[test]
fn all_of_a_template_is_kept() {
    let mut object = object(TFJOB);
    let containers = object["spec"][1]["template"]["spec"]["containers"]
        .as_array_mut()
        .unwrap();
    containers.push(json!({"name": "beside", "image": "example/board"}));
    let worker = pods(&child(&object)).pop().unwrap();
    assert_eq!(worker.metadata.labels.unwrap()["course"], "ml");
    let spec = worker.spec.unwrap();
    assert_eq!(spec.containers.len(), 2);
    let mounts = spec.containers[0].volume_mounts.as_ref().unwrap();
    assert!(mounts.iter().any(|mount| mount.name == "data"), "{mounts:?}");
    let volumes = spec.volumes.unwrap();
    assert!(volumes.iter().any(|volume| volume.name == "data"), "{volumes:?}");
}

/// Users had to write the variables, because the operator had stopped doing so.
#[test]
fn variables_that_users_wrote_themselves_are_left_out_and_told() {
    let object = object(TFJOB);
    let worker = pods(&child(&object)).pop().unwrap();
    assert_ne!(variable(&worker, "TF_CONFIG").as_deref(), Some("{}"));
    assert_eq!(variable(&worker, "EPOCHS").as_deref(), Some("3"));
    let notes = plan(&object, Child::None).notes;
    assert!(
        notes[0]
            .message
            .contains("spec[1].template.spec.containers[0].env: TF_CONFIG is set by the operator; left out"),
        "{notes:?}"
    );
}

/// Bugs: jobs of all namespaces were one, pods were made in `default`, and stayed when the job was
/// deleted.
#[test]
fn everything_is_in_the_namespace_of_the_job_and_goes_with_it() {
    let mut child = child(&object(MXJOB));
    child.metadata.uid = Some("child-uid".to_owned());
    for pod in pods(&child) {
        assert_eq!(pod.metadata.namespace.as_deref(), Some("research"));
        assert_eq!(pod.metadata.owner_references.unwrap()[0].uid, "child-uid");
    }
}

/// Bugs: a kind or a spec that made no sense ended the operator; changes were not noticed.
#[test]
fn what_makes_no_sense_is_told_and_so_are_changes() {
    let mut bad = object(MXJOB);
    bad["spec"] = json!("all");
    let (reason, message) = refused(&bad, Child::None);
    assert_eq!(reason, "Invalid");
    assert!(
        message.starts_with("spec: must be of type array, not string"),
        "{message}"
    );
    bad["spec"] = json!([{"replicaType": "WORKER"}, 7]);
    assert_eq!(refused(&bad, Child::None).0, "Invalid");
    // So many that comparing each with all others would take for ever.
    bad["spec"] = json!(vec![json!({}); 2000]);
    assert_eq!(refused(&bad, Child::None).0, "Invalid");

    let before = object(MXJOB);
    let running = super::at(&before, JobPhase::Running);
    let changed = change(&before, "/spec/2/replicas", 5.into());
    let (reason, message) = refused(&changed, of_job(&running));
    assert_eq!(reason, "ChangeRefused");
    assert!(message.starts_with("spec[2].replicas: "), "{message}");
    assert!(message.contains("create the job anew"), "{message}");
}

/// An MXJob and a TFJob of one name would have one TrainingJob.
#[test]
fn a_name_is_taken_once() {
    let mx = object(MXJOB);
    let mut tf = object(TFJOB);
    tf["metadata"]["name"] = "test02".into();
    tf["metadata"]["uid"] = "another-uid".into();
    let child = child(&mx);
    assert_eq!(refused(&tf, of_job(&child)).0, "OwnershipConflict");
    assert_eq!(plan(&mx, of_job(&child)).child, ChildAction::Leave);
}
