//! `tensorflow`.

use serde_json::{Value, json};
use trainyard_api::Elastic;
use trainyard_core::build;
use trainyard_core::job::Job;
use trainyard_core::model::PodKey;
use trainyard_core::view::Settings;

use super::{job, table, values};
use crate::jobs::Change;

const ALL: &[(&str, i32)] = &[("chief", 1), ("evaluator", 1), ("ps", 2), ("worker", 2)];

fn config(options: &str, roles: &[(&str, i32)], role: usize, index: i32) -> Value {
    let values = values(&job("tensorflow", options, roles), role, index);
    serde_json::from_str(&values["TF_CONFIG"]).unwrap()
}

fn hosts(role: &str, count: i32) -> Vec<String> {
    let host = |index| format!("mnist-{role}-{index}.mnist.team.svc.cluster.local:2222");
    (0..count).map(host).collect()
}

#[test]
fn all_roles() {
    insta::assert_snapshot!(table(&job("tensorflow", "", ALL)), @r#"
    chief-0: OnFailure, AllPods
      PYTHONUNBUFFERED=1
      TF_CONFIG={"cluster":{"chief":["mnist-chief-0~:2222"],"ps":["mnist-ps-0~:2222","mnist-ps-1~:2222"],"worker":["mnist-worker-0~:2222","mnist-worker-1~:2222"]},"task":{"type":"chief","index":0},"environment":"cloud"}
      port tfjob-port 2222
    evaluator-0: OnFailure, AllPods
      PYTHONUNBUFFERED=1
      TF_CONFIG={"cluster":{"chief":["mnist-chief-0~:2222"],"ps":["mnist-ps-0~:2222","mnist-ps-1~:2222"],"worker":["mnist-worker-0~:2222","mnist-worker-1~:2222"]},"task":{"type":"evaluator","index":0},"environment":"cloud"}
      port tfjob-port 2222
    ps-0: OnFailure, AllPods
      PYTHONUNBUFFERED=1
      TF_CONFIG={"cluster":{"chief":["mnist-chief-0~:2222"],"ps":["mnist-ps-0~:2222","mnist-ps-1~:2222"],"worker":["mnist-worker-0~:2222","mnist-worker-1~:2222"]},"task":{"type":"ps","index":0},"environment":"cloud"}
      port tfjob-port 2222
    ps-1: OnFailure, AllPods
      PYTHONUNBUFFERED=1
      TF_CONFIG={"cluster":{"chief":["mnist-chief-0~:2222"],"ps":["mnist-ps-0~:2222","mnist-ps-1~:2222"],"worker":["mnist-worker-0~:2222","mnist-worker-1~:2222"]},"task":{"type":"ps","index":1},"environment":"cloud"}
      port tfjob-port 2222
    worker-0: OnFailure, FirstPod
      PYTHONUNBUFFERED=1
      TF_CONFIG={"cluster":{"chief":["mnist-chief-0~:2222"],"ps":["mnist-ps-0~:2222","mnist-ps-1~:2222"],"worker":["mnist-worker-0~:2222","mnist-worker-1~:2222"]},"task":{"type":"worker","index":0},"environment":"cloud"}
      port tfjob-port 2222
    worker-1: OnFailure, FirstPod
      PYTHONUNBUFFERED=1
      TF_CONFIG={"cluster":{"chief":["mnist-chief-0~:2222"],"ps":["mnist-ps-0~:2222","mnist-ps-1~:2222"],"worker":["mnist-worker-0~:2222","mnist-worker-1~:2222"]},"task":{"type":"worker","index":1},"environment":"cloud"}
      port tfjob-port 2222
    Service: mnist
    succeeds: chief
    fails: chief, or evaluator, or ps
    "#);
}

#[test]
fn workers_alone_with_a_port_of_their_own() {
    insta::assert_snapshot!(table(&job("tensorflow", "port: 3333", &[("worker", 2)])), @r#"
    worker-0: OnFailure, FirstPod
      PYTHONUNBUFFERED=1
      TF_CONFIG={"cluster":{"worker":["mnist-worker-0~:3333","mnist-worker-1~:3333"]},"task":{"type":"worker","index":0},"environment":"cloud"}
      port tfjob-port 3333
    worker-1: OnFailure, FirstPod
      PYTHONUNBUFFERED=1
      TF_CONFIG={"cluster":{"worker":["mnist-worker-0~:3333","mnist-worker-1~:3333"]},"task":{"type":"worker","index":1},"environment":"cloud"}
      port tfjob-port 3333
    Service: mnist
    succeeds: worker
    fails: worker
    "#);
}

/// A program with `TF_CONFIG` looks for others.
#[test]
fn a_pod_alone_trains_for_itself() {
    insta::assert_snapshot!(table(&job("tensorflow", "", &[("worker", 1)])), @r"
    worker-0: OnFailure, FirstPod
      PYTHONUNBUFFERED=1
      port tfjob-port 2222
    Service: mnist
    succeeds: worker
    fails: worker
    ");
}

#[test]
fn a_container_may_have_its_own_port() {
    let mut job = job("tensorflow", "port: 3333", &[("ps", 1), ("worker", 1)]);
    let pod = job.spec.roles[0].template.spec.as_mut().unwrap();
    pod.containers[0].ports =
        Some(serde_saphyr::from_str("[{containerPort: 4444, name: tfjob-port}]").unwrap());
    let table = table(&job);
    let cluster = r#""cluster":{"ps":["mnist-ps-0~:4444"],"worker":["mnist-worker-0~:3333"]}"#;
    assert_eq!(table.matches(cluster).count(), 2, "{table}");
    assert_eq!(table.matches("port tfjob-port 4444").count(), 1, "{table}");
    assert_eq!(table.matches("port tfjob-port 3333").count(), 1, "{table}");
}

#[test]
fn a_dynamic_worker_knows_chief_and_servers_and_itself() {
    let own = json!({"1": hosts("worker", 2)[1]});
    let expected = json!({
        "cluster": {"chief": hosts("chief", 1), "ps": hosts("ps", 2), "worker": own},
        "sparseCluster": {"ps": hosts("ps", 2), "worker": own},
        "task": {"type": "worker", "index": 1},
        "environment": "cloud",
    });
    assert_eq!(config("dynamicWorkers: true", ALL, 3, 1), expected);
}

/// Its index is 1 also where it is the only one that is listed.
#[test]
fn a_server_of_dynamic_workers_knows_itself() {
    let own = &hosts("ps", 2)[1];
    let expected = json!({
        "cluster": {"ps": {"1": own}},
        "sparseCluster": {"ps": [own], "worker": {}},
        "task": {"type": "ps", "index": 1},
        "environment": "cloud",
    });
    assert_eq!(config("dynamicWorkers: true", ALL, 2, 1), expected);
}

#[test]
fn the_chief_of_dynamic_workers_knows_all() {
    let expected = json!({
        "cluster": {"chief": hosts("chief", 1), "ps": hosts("ps", 2), "worker": hosts("worker", 2)},
        "task": {"type": "chief", "index": 0},
        "environment": "cloud",
    });
    assert_eq!(config("dynamicWorkers: true", ALL, 0, 0), expected);
}

/// Workers have their indices in their own configuration, so they must have the same in a chief's
/// that is made anew.
#[test]
fn a_chief_knows_the_indices_of_workers_among_which_some_have_left() {
    let mut object = job("tensorflow", "dynamicWorkers: true", ALL).spec(|spec| {
        spec.roles[3].replicas = None;
        spec.elastic = Some(Elastic {
            replicas: 2,
            ..Elastic::default()
        });
    });
    let worker = json!({
        "name": "worker", "replicas": 2, "members": "0,2", "restartPolicy": "OnFailure", "succeededWhen": "FirstPod",
        "failedWhen": "AnyPod", "nodeDownPolicy": "Fail",
    });
    let status = json!({"phase": "Running", "acceptedRules": {"roles": [worker]}});
    object.status = serde_json::from_value(status).unwrap();
    let values = values(&object, 0, 0);
    let config: Value = serde_json::from_str(&values["TF_CONFIG"]).unwrap();
    let all = hosts("worker", 3);
    assert_eq!(config["cluster"]["worker"], json!({"0": all[0], "2": all[2]}));
}

#[test]
fn only_dynamic_workers_can_be_added_while_others_run() {
    for (options, resizes) in [
        ("", false),
        ("dynamicWorkers: false", false),
        ("dynamicWorkers: true", true),
    ] {
        let object = job("tensorflow", options, ALL);
        assert_eq!(
            Job::parse(&object).unwrap().framework.resizes,
            resizes,
            "{options}"
        );
    }
}

fn config_of(job: &Job<'_>, role: usize, index: i32) -> String {
    let pod = build::pod(job, &Settings::default(), PodKey { role, index }).unwrap();
    let main = pod.spec.unwrap().containers.remove(0);
    let found = main.env.into_iter().flatten().find(|var| var.name == "TF_CONFIG");
    found.unwrap().value.unwrap()
}

/// `TF_CONFIG` grows with the job, and so would planning with its square.
#[test]
fn the_cluster_is_made_once_for_all_pods() {
    let object = job("tensorflow", "", &[("chief", 1), ("ps", 99), ("worker", 900)]);
    let job = Job::parse(&object).unwrap();
    let config = |role, index| config_of(&job, role, index);
    config(0, 0);
    let cluster = || job.common(|| panic!("it is made when the first pod is"));
    let address = cluster().as_ptr();
    for key in job.keys() {
        assert!(config(key.role, key.index).starts_with(&format!("{{\"cluster\":{},\"task\":", cluster())));
    }
    assert_eq!(cluster().as_ptr(), address);
    let cluster: Value = serde_json::from_str(cluster()).unwrap();
    let sizes = ["chief", "ps", "worker"].map(|role| cluster[role].as_array().unwrap().len());
    assert_eq!(sizes, [1, 99, 900]);
}

#[test]
fn so_it_is_for_all_evaluators_of_dynamic_workers() {
    let roles = [("chief", 1), ("evaluator", 3), ("ps", 2), ("worker", 2)];
    let object = job("tensorflow", "dynamicWorkers: true", &roles);
    let job = Job::parse(&object).unwrap();
    let config = |role, index| config_of(&job, role, index);
    let servers_first = config(3, 0);
    let of_chief = config(0, 0);
    let cluster: &String = job
        .common_value(|| panic!("it is made when the first pod is that knows all"))
        .unwrap();
    assert!(of_chief.starts_with(&format!("{{\"cluster\":{cluster},\"task\":")));
    for index in 0..3 {
        assert!(config(1, index).starts_with(&format!("{{\"cluster\":{cluster},\"task\":")));
    }
    assert_eq!(config(3, 0), servers_first, "workers know the servers alone");
}
