//! A Dask cluster that grows and shrinks while a program computes with it, on real nodes and on the
//! embedded cluster.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use trainyard_testkit::images;
use trainyard_testkit::lab::{Change, Image, Lab, Scenarios};
use trainyard_testkit::scenarios;

use crate::elastic::{assert_no_step_is_lost, elastic_example, exit_code, request, wait_for_size};
use crate::trainings::{nodes, result};

const RBAC: &str = "rbac.authorization.k8s.io/v1";

pub const TRAININGS: Scenarios = scenarios!(
    "elastic_dask_trainings",
    &[Image::AGENT, Image::FRAMEWORKS_SMALL],
    [
        the_scheduler_of_an_adaptive_job_sets_its_size,
        workers_give_their_data_away_when_the_observer_tells_them_to_leave,
    ]
);

fn wait_until_trained_by(lab: &Lab, launcher: &str, workers: i32) {
    let says = format!("{workers} workers go on after step ");
    lab.until(&format!("{workers} workers compute"), || {
        let log = lab.try_logs(launcher)?;
        let (_, since) = log.rsplit_once(&*says).ok_or_else(|| log.clone())?;
        // It has done a step, with the parts that each of them has computed.
        since.contains("saved step ").then_some(()).ok_or(log)
    });
}

/// The program fails if a part of its data is computed again. Each worker has some that no other
/// has.
fn workers_give_their_data_away_when_the_observer_tells_them_to_leave() {
    let (lab, _operator, aliases) = Lab::with_observer("dask");
    let (name, launcher) = ("dask-elastic", "dask-elastic-launcher-0");
    for document in elastic_example(name, images::FRAMEWORKS_SMALL, &aliases)
        .iter()
        .rev()
    {
        lab.apply(&document.to_string()).unwrap();
    }
    wait_until_trained_by(&lab, launcher, 2);
    lab.scale(name, 4);
    wait_until_trained_by(&lab, launcher, 4);
    wait_for_size(&lab, name, 4);
    assert_eq!(nodes(&lab).len(), 2);

    let mut pods = lab.follow("pods");
    request(&lab, "ScaleIn", name, json!({"toDelete": {"count": 3}}));
    let mut left = BTreeSet::new();
    pods.until("three workers have left by themselves", |change| {
        let (Change::Applied(pod) | Change::Deleted(pod)) = change;
        let name = pod["metadata"]["name"].as_str()?;
        if pod["metadata"]["deletionTimestamp"].is_string() && name.contains("-worker-") {
            // Dask has ended by itself, and had not been asked by the kubelet.
            assert_eq!(exit_code(pod, "main"), Some(0), "{pod:#}");
            left.insert(name.to_owned());
        }
        (left.len() == 3).then_some(())
    });
    let leavers = [1, 2, 3].map(|index| format!("{name}-worker-{index}"));
    assert_eq!(left, BTreeSet::from(leavers));

    let ended = lab.wait_until_ended(name, "Succeeded");
    assert_eq!(
        ended["status"]["restarts"],
        json!({"failures": 0, "disruptions": 0})
    );
    let log = lab.logs(launcher);
    assert_no_step_is_lost(&log);
    // Each of four workers had parts of its own, and all of them are on the last one.
    assert!(log.contains("1 workers go on"), "{log}");
    assert!(log.contains("parts of data: 7, computed again: 0"), "{log}");
    assert!(result(&log, "final loss ") <= 1e-3, "{log}");
}

const ADAPTIVE: &str = include_str!("dask/adaptive.py");

/// What lets the scheduler set the size of its job, as docs/frameworks/dask.md has it.
fn rights() -> [Value; 3] {
    let named =
        |kind: &str, group: &str| json!({"apiVersion": group, "kind": kind, "metadata": {"name": "adapts"}});
    let account = named("ServiceAccount", "v1");
    let mut role = named("Role", RBAC);
    role["rules"] = json!([
        {"apiGroups": ["trainyard.dev"], "resources": ["trainingjobs"], "verbs": ["get"]},
        {"apiGroups": ["trainyard.dev"], "resources": ["trainingjobs/scale"], "verbs": ["patch"]},
    ]);
    let mut binding = named("RoleBinding", RBAC);
    binding["roleRef"] = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "adapts"});
    binding["subjects"] = json!([{"kind": "ServiceAccount", "name": "adapts"}]);
    [account, role, binding]
}

/// From one worker to three, which is what it may have at most, and back.
fn the_scheduler_of_an_adaptive_job_sets_its_size() {
    let (lab, _operator, aliases) = Lab::with_observer("adaptive");
    for object in rights() {
        lab.apply(&object.to_string()).unwrap();
    }
    let (name, launcher) = ("dask-elastic", "dask-elastic-launcher-0");
    let mut documents = elastic_example(name, images::FRAMEWORKS_SMALL, &aliases);
    documents[1]["data"]["train.py"] = ADAPTIVE.into();
    let spec = &mut documents[0]["spec"];
    spec["framework"]["dask"] = json!({"adaptive": true});
    spec["elastic"] = json!({"replicas": 1, "minReplicas": 1, "maxReplicas": 3});
    let scheduler = &mut spec["roles"][0]["template"]["spec"];
    scheduler["serviceAccountName"] = "adapts".into();
    scheduler["automountServiceAccountToken"] = true.into();
    for document in documents.iter().rev() {
        lab.apply(&document.to_string()).unwrap();
    }
    let ended = lab.wait_until_ended(name, "Succeeded");
    assert_eq!(
        ended["status"]["restarts"],
        json!({"failures": 0, "disruptions": 0})
    );
    assert_eq!(ended["spec"]["elastic"]["replicas"], 1, "{ended:#}");
    let log = lab.logs(launcher);
    assert!(log.contains("three workers compute\none worker is left"), "{log}");
}
