//! Pods that others need avoid spot nodes.

use rstest::rstest;
use serde_json::{Value, json};
use trainyard_api::{RunPolicy, TrainingJob, UpdatePolicy};
use trainyard_core::build;
use trainyard_core::job::Job;
use trainyard_core::view::{Settings, SpotLabel};

use crate::jobs::{job, mpi, with_agent};

fn label(key: &str, value: &str) -> SpotLabel {
    SpotLabel {
        key: key.to_owned(),
        value: value.to_owned(),
    }
}

fn settings() -> Settings {
    Settings {
        spot_labels: vec![label("spot", "true"), label("kind", "a"), label("kind", "b")],
        ..with_agent()
    }
}

fn terms() -> Value {
    json!([{"weight": 100, "preference": {"matchExpressions": [
        {"key": "spot", "operator": "NotIn", "values": ["true"]},
        {"key": "kind", "operator": "NotIn", "values": ["a", "b"]},
    ]}}])
}

fn preferred(pod: &Value) -> &Value {
    &pod["spec"]["affinity"]["nodeAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
}

/// The pods of a job that avoid spot nodes.
fn avoiding(object: &TrainingJob) -> String {
    let job = Job::parse(object).unwrap();
    let avoids = |pod: &Value| {
        let is_told = *preferred(pod) == terms();
        assert!(is_told || preferred(pod).is_null(), "{pod}");
        is_told
    };
    let pods = job
        .keys()
        .map(|key| build::pod(&job, &settings(), key).unwrap())
        .map(|pod| serde_json::to_value(pod).unwrap());
    let names = pods
        .filter(avoids)
        .map(|pod| pod["metadata"]["name"].as_str().unwrap().to_owned());
    let short = names.map(|name| name.trim_start_matches("mnist-").to_owned());
    short.collect::<Vec<_>>().join(" ")
}

#[rstest]
#[case::rank_zero(job("pytorch", &[("worker", 2)]), "worker-0")]
#[case::master(job("pytorch", &[("master", 1), ("worker", 2)]), "master-0")]
#[case::jax(job("jax", &[("worker", 2)]), "worker-0")]
#[case::launcher(mpi("", 2), "launcher-0")]
#[case::chief_and_ps(job("tensorflow", &[("chief", 1), ("ps", 2), ("worker", 2)]), "chief-0 ps-0 ps-1")]
#[case::first_worker_and_ps(job("tensorflow", &[("ps", 1), ("worker", 2)]), "ps-0 worker-0")]
#[case::scheduler_and_servers(
    job("mxnet", &[("scheduler", 1), ("server", 2), ("worker", 2)]),
    "scheduler-0 server-0 server-1"
)]
#[case::first_of_all(job("custom", &[("store", 2), ("worker", 2)]), "store-0")]
fn pods_that_others_need_avoid_spot_nodes(#[case] job: TrainingJob, #[case] expected: &str) {
    assert_eq!(avoiding(&job), expected);
}

#[test]
fn what_the_user_wants_is_kept() {
    let mut object = job("pytorch", &[("worker", 1)]);
    let affinity = json!({
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
                {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}]},
            "preferredDuringSchedulingIgnoredDuringExecution": [
                {"weight": 1, "preference": {"matchExpressions": [{"key": "fast", "operator": "Exists"}]}}],
        },
        "podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
            {"topologyKey": "rack", "labelSelector": {"matchLabels": {"app": "noisy"}}}]},
    });
    object.spec.roles[0].template.spec.as_mut().unwrap().affinity =
        Some(serde_json::from_value(affinity.clone()).unwrap());
    let job = Job::parse(&object).unwrap();
    let pod = build::pod(&job, &settings(), job.rank_zero()).unwrap();
    let pod = serde_json::to_value(pod).unwrap();
    let mut expected = affinity;
    let preferred = &mut expected["nodeAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"];
    preferred
        .as_array_mut()
        .unwrap()
        .extend(terms().as_array().unwrap().iter().cloned());
    assert_eq!(pod["spec"]["affinity"], expected);
}

#[test]
fn pods_that_exist_are_not_made_anew_for_it() {
    let mut object = job("custom", &[("worker", 1)]);
    object.spec.run_policy = Some(RunPolicy {
        update_policy: Some(UpdatePolicy::Roll),
        ..RunPolicy::default()
    });
    let job = Job::parse(&object).unwrap();
    let template = |settings: &Settings| {
        let pod = build::pod(&job, settings, job.rank_zero()).unwrap();
        pod.metadata.annotations.unwrap()["trainyard.dev/template"].clone()
    };
    assert_eq!(template(&settings()), template(&with_agent()));
}
