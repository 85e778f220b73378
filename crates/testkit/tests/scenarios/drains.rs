//! Pods that leave a node in order, on real nodes and on the embedded cluster: `kubectl drain`
//! waits for them, and trainings go on elsewhere.

mod trainings;

use std::thread;

use serde_json::{Value, json};
use trainyard_testkit::lab::{Change, Image, Lab, Role, Scenarios, job};
use trainyard_testkit::scenarios;

use self::trainings::horovod_and_pytorch_go_on_elsewhere_without_losing_a_step;
use crate::elastic::{WORKER, exit_code, wait_for_size};

pub const SCENARIOS: Scenarios = scenarios!(
    "drains",
    &[Image::AGENT],
    [a_drain_waits_until_pods_have_saved_their_work_and_succeeds]
);

/// Real trainings.
pub const TRAININGS: Scenarios = scenarios!(
    "drained_trainings",
    &[Image::AGENT, Image::HOROVOD],
    [horovod_and_pytorch_go_on_elsewhere_without_losing_a_step]
);

/// A job whose pods count until they are told to leave, on both nodes.
fn counting(name: &str, replicas: u32, aliases: &Value, more: &Value) -> Value {
    let placed = r#"{"restartPolicy": "OnFailure", "placement": {"spread": "Preferred"}}"#;
    let worker = Role {
        more: placed,
        ..Role::worker(replicas, WORKER)
    };
    let text = job(name, "custom", &[worker], &more.to_string());
    let mut manifest: Value = serde_json::from_str(&text).unwrap();
    manifest["spec"]["roles"][0]["template"]["spec"]["hostAliases"] = aliases.clone();
    manifest
}

/// The names of the jobs' pods on a node.
fn pods_on(lab: &Lab, node: &str) -> Vec<String> {
    let pods = lab.get("pods -l trainyard.dev/job");
    let pods = pods["items"].as_array().into_iter().flatten();
    let there = pods.filter(|pod| pod["spec"]["nodeName"] == node);
    let names = there.map(|pod| pod["metadata"]["name"].as_str().unwrap_or_default());
    names.map(str::to_owned).collect()
}

fn node_of(lab: &Lab, pod: &str) -> String {
    let pod = lab.get(&format!("pod {pod}"));
    pod["spec"]["nodeName"].as_str().unwrap().to_owned()
}

/// Waits until jobs have the budget that makes evictions wait.
fn wait_for_budgets(lab: &Lab, jobs: &[&str]) {
    for job in jobs {
        let what = format!("pdb {job}-drain");
        lab.until("evictions are to wait", || lab.try_get(&what).map(drop));
    }
}

/// No pod was deleted before it had saved its work and ended by itself, and no failure counts.
fn a_drain_waits_until_pods_have_saved_their_work_and_succeeds() {
    let (lab, _operator, aliases) = Lab::with_observer("drain");
    let elastic = json!({"replicas": 3, "minReplicas": 1, "maxReplicas": 6, "drainTimeoutSeconds": 300});
    let mut live = counting("live", 1, &aliases, &json!({"elastic": elastic}));
    live["spec"]["roles"][0]
        .as_object_mut()
        .unwrap()
        .remove("replicas");
    let run_policy = json!({"drainTimeoutSeconds": 300, "backoffLimit": 0});
    let mut rigid = counting("rigid", 2, &aliases, &json!({"runPolicy": run_policy}));
    rigid["spec"]["roles"][0]["restartScope"] = "Job".into();
    for manifest in [live, rigid] {
        lab.apply(&manifest.to_string()).unwrap();
    }
    wait_for_size(&lab, "live", 3);
    lab.wait_for_phase("rigid", "Running");
    wait_for_budgets(&lab, &["live", "rigid"]);
    // Rank 0 of the elastic job is on the other node, and the rigid job has a pod on each.
    let first = node_of(&lab, "live-worker-0");
    let node = lab.nodes().into_iter().find(|node| *node != first).unwrap();
    let there = pods_on(&lab, &node);
    let count = |job: &str| there.iter().filter(|pod| pod.starts_with(job)).count();
    assert!(
        (1..=2).contains(&count("live")) && count("rigid") == 1,
        "{there:?}"
    );

    let mut pods = lab.follow("pods");
    let mut leaving = count("live") + 2;
    let drained = thread::scope(|scope| {
        let draining = scope.spawn(|| lab.drain(&node, &["live", "rigid"]));
        pods.until("all of them have left", |change| {
            if let Change::Deleted(pod) = change {
                assert_eq!(exit_code(pod, "main"), Some(0), "it had saved its work: {pod:#}");
                leaving -= 1;
            }
            (leaving == 0).then_some(())
        });
        draining.join().unwrap()
    });
    assert_eq!(pods_on(&lab, &node), [""; 0]);
    let status = wait_for_size(&lab, "live", 3);
    assert_eq!(status["restarts"], json!({"failures": 0, "disruptions": 0}));
    let status = lab.wait_for_phase("rigid", "Running")["status"].clone();
    let restarts = &status["restarts"];
    assert_eq!(
        (&restarts["failures"], &restarts["disruptions"]),
        (&json!(0), &json!(1)),
        "{restarts:#}"
    );
    let incident = &restarts["history"][0];
    assert_eq!(
        (&incident["reason"], &incident["node"]),
        (&json!("NodeDrained"), &json!(node))
    );
    assert!(status["checkpoint"]["step"].as_i64() > Some(0), "{status:#}");
    drop(drained);
}
