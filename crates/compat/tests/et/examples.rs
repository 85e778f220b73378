//! et-operator's own manifests, with another image and other commands.

use rstest::rstest;
use serde_json::{Value, json};
use trainyard_core::build;
use trainyard_core::foreign::NewRequest;
use trainyard_core::job::Job;

use super::common::{settings, stored};
use super::requests::made;
use super::{child, kind_of};

fn example(text: &str) -> Value {
    let mut object = stored(serde_saphyr::from_str(text).unwrap());
    if object["metadata"]["name"].is_null() {
        // The server makes one.
        object["metadata"]["name"] = "made-by-the-server".into();
    }
    assert_eq!(kind_of(&object).review(None, &object), []);
    object
}

#[rstest]
#[case(include_str!("../manifests/et/training_job.yaml"), "elastic-training", 2, 9)]
#[case(include_str!("../manifests/et/kai_v1alpha1_trainingjob.yaml"), "trainingjob-sample", 3, 10)]
fn a_job(#[case] text: &str, #[case] name: &str, #[case] workers: i32, #[case] max: i32) {
    let child = child(&example(text));
    let elastic = child.spec.elastic.as_ref().unwrap();
    assert_eq!(
        (elastic.replicas, elastic.min(), elastic.max()),
        (workers, 1, max)
    );
    let job = Job::parse(&child).unwrap();
    let launcher = job.keys().next().unwrap();
    assert_eq!(job.pod_name(launcher), format!("{name}-launcher"));
    let shell = job.framework.remote_shell(&job, &settings(), launcher).unwrap();
    assert_eq!(shell.hosts[0].slots, 1, "one for its accelerator");
    let pods: Vec<_> = job
        .keys()
        .map(|key| build::pod(&job, &settings(), key).unwrap())
        .collect();
    assert_eq!(pods.len(), usize::try_from(workers).unwrap() + 1);
    let main = &pods[1].spec.as_ref().unwrap().containers[0];
    let limits = main.resources.as_ref().unwrap().limits.as_ref().unwrap();
    assert_eq!(limits["nvidia.com/gpu"].0, "1");
}

#[rstest]
#[case(include_str!("../manifests/et/scale_in_count.yaml"), json!({"count": 1}))]
#[case(include_str!("../manifests/et/scale_in_pod.yaml"), json!({"podNames": ["elastic-training-worker-1"]}))]
fn fewer_workers(#[case] text: &str, #[case] victims: Value) {
    let NewRequest::ScaleIn(request) = made(&example(text)) else {
        panic!("it is of another kind")
    };
    assert_eq!(request.spec.job_ref.name, "elastic-training");
    assert_eq!(request.spec.timeout_seconds, Some(60));
    assert_eq!(serde_json::to_value(request.spec.to_delete).unwrap(), victims);
}

#[test]
fn more_workers() {
    let text = include_str!("../manifests/et/scale_out.yaml");
    let NewRequest::ScaleOut(request) = made(&example(text)) else {
        panic!("it is of another kind")
    };
    assert_eq!(request.spec.to_add.unwrap().count, 1);
    assert_eq!(request.spec.timeout_seconds, Some(300));
}

/// What a request of ours has of a script.
fn script(request: &Value) -> Value {
    let mut spec = request["spec"].clone();
    spec.as_object_mut().unwrap().remove("jobRef");
    spec
}

#[rstest]
#[case(include_str!("../manifests/et/kai_v1alpha1_scalein.yaml"), "--delete", 60, json!({"toDelete": {"count": 2}}))]
#[case(
    include_str!("../manifests/et/kai_v1alpha1_scalein-2.yaml"), "--delete", 5,
    json!({"toDelete": {"podNames": ["trainingjob-sample-worker-1"]}})
)]
#[case(include_str!("../manifests/et/kai_v1alpha1_scaleout.yaml"), "--add", 60, json!({"toAdd": {"count": 2}}))]
#[case(include_str!("../manifests/et/kai_v1alpha1_scaleout-2.yaml"), "--add", 5, json!({"toAdd": {"count": 4}}))]
fn with_a_script(#[case] text: &str, #[case] flag: &str, #[case] timeout: i64, #[case] change: Value) {
    let made = match made(&example(text)) {
        NewRequest::ScaleIn(request) => serde_json::to_value(request).unwrap(),
        NewRequest::ScaleOut(request) => serde_json::to_value(request).unwrap(),
    };
    assert_eq!(made["spec"]["jobRef"]["name"], "trainingjob-sample");
    let variable = |n: u8| json!({"name": format!("TEST{n}"), "value": format!("test{n}")});
    let mut expected = json!({
        "script": "/usr/local/bin/scaler.sh", "args": [flag], "env": [variable(1), variable(2), variable(3)],
        "backoffLimit": 3, "timeoutSeconds": timeout,
    });
    expected
        .as_object_mut()
        .unwrap()
        .extend(change.as_object().unwrap().clone());
    assert_eq!(script(&made), expected);
}
