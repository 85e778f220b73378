//! A node that is lost, drained or rebooted.
//!
//! In a file of its own, since nobody else should lose a node.

use serde_json::{Value, json};
use trainyard_testkit::cluster::Cluster;
use trainyard_testkit::lab::{Image, Lab, Role, Scenarios, job};
use trainyard_testkit::scenarios;

pub const SCENARIOS: Scenarios = scenarios!(
    "nodes",
    &[Image::AGENT],
    [
        what_was_on_a_lost_node_is_replaced_once_it_is_known_to_have_ended_or_waited_for,
        what_leaves_a_drained_node_in_good_order_has_not_done_its_work,
        what_ran_on_a_node_that_is_rebooted_did_not_fail,
    ]
);

const OUT_OF_SERVICE: &str = "node.kubernetes.io/out-of-service";

/// A node without its kubelet, which comes back also when the test fails.
pub struct Lost<'a> {
    cluster: &'a Cluster,
    node: &'a str,
}

impl<'a> Lost<'a> {
    pub fn node(cluster: &'a Cluster, node: &'a str) -> Self {
        cluster.kill_kubelet(node).unwrap();
        Self { cluster, node }
    }

    pub fn declare_out_of_service(&self) {
        let taint = format!("{OUT_OF_SERVICE}=lost:NoExecute");
        self.cluster
            .kubectl(&["taint", "node", self.node, &taint], None)
            .unwrap();
    }
}

impl Drop for Lost<'_> {
    fn drop(&mut self) {
        let taint = format!("{OUT_OF_SERVICE}-");
        let _ = self.cluster.kubectl(&["taint", "node", self.node, &taint], None);
        if let Err(error) = self.cluster.start_kubelet(self.node) {
            eprintln!("{} stays lost: {error:#}", self.node);
        }
    }
}

/// The pod, once it runs as somebody wants it.
fn running(lab: &Lab, pod: &str, wanted: impl Fn(&Value) -> bool) -> Value {
    lab.until(&format!("{pod} runs"), || {
        let found = lab.try_get(&format!("pod {pod}"))?;
        if found["status"]["phase"] == "Running" && wanted(&found) {
            Ok(found)
        } else {
            Err(format!(
                "{} {}",
                found["spec"]["nodeName"], found["status"]["phase"]
            ))
        }
    })
}

/// The name of the node that these scenarios take from the cluster.
fn victim(lab: &Lab) -> String {
    let nodes = &lab.cluster().state().nodes;
    nodes.last().unwrap().name.clone()
}

/// Has all pods of a job rather go to a node than elsewhere, so that their replacements may go
/// elsewhere.
fn prefer(manifest: &mut Value, node: &str) {
    for role in manifest["spec"]["roles"].as_array_mut().unwrap() {
        role["template"]["spec"]["affinity"] = json!({"nodeAffinity": {
            "preferredDuringSchedulingIgnoredDuringExecution": [{
                "weight": 100,
                "preference": {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]},
            }],
        }});
    }
}

fn what_leaves_a_drained_node_in_good_order_has_not_done_its_work() {
    let (lab, _operator) = Lab::with_operator("drained");
    let node = victim(&lab);
    // As many do: a checkpoint when they are told to go, and a good end.
    let script = "trap 'echo saved; exit 0' TERM; while true; do sleep 1 & wait $!; done";
    let worker = |more| Role {
        more,
        ..Role::worker(2, script)
    };
    let jobs = [
        ("mover", "custom", r#"{"restartPolicy": "OnFailure"}"#),
        ("once", "custom", r#"{"restartPolicy": "Never"}"#),
    ];
    for (name, framework, policy) in jobs {
        let text = job(
            name,
            framework,
            &[worker(policy)],
            r#"{"runPolicy": {"backoffLimit": 0}}"#,
        );
        let mut manifest: Value = serde_json::from_str(&text).unwrap();
        prefer(&mut manifest, &node);
        for role in manifest["spec"]["roles"].as_array_mut().unwrap() {
            role["template"]["spec"]["terminationGracePeriodSeconds"] = 20.into();
        }
        lab.apply(&manifest.to_string()).unwrap();
        lab.wait_for_phase(name, "Running");
    }
    let there = |pod: &str| lab.get(&format!("pod {pod}"))["spec"]["nodeName"] == *node;
    assert!(there("mover-worker-0") && there("mover-worker-1") && there("once-worker-0"));

    let _drained = lab.drain(&node, &["mover", "once"]);
    let moved = lab.until("both run again elsewhere", || {
        let job = lab.get("tj mover");
        let status = &job["status"];
        if status["phase"] == "Running" && status["restarts"]["disruptions"] == 2 {
            Ok(job)
        } else {
            Err(format!("{status:#}"))
        }
    });
    let status = &moved["status"];
    assert_eq!(status["restarts"]["failures"], 0, "{status:#}");
    assert_eq!(status["roles"][0]["succeededIndices"], Value::Null, "{status:#}");
    assert!(!there("mover-worker-0") && !there("mover-worker-1"));
    let once = lab.wait_for_phase("once", "Failed")["status"].clone();
    assert_eq!(once["roles"][0]["succeeded"], 0, "{once:#}");
}

/// A node that is off. It comes back with this, also when the test fails.
struct Off<'a> {
    cluster: &'a Cluster,
    node: &'a str,
}

impl Drop for Off<'_> {
    fn drop(&mut self) {
        if let Err(error) = self.cluster.switch_on(self.node) {
            eprintln!("{} stays off: {error:#}", self.node);
        }
    }
}

fn what_ran_on_a_node_that_is_rebooted_did_not_fail() {
    let (lab, _operator) = Lab::with_operator("reboot");
    let node = victim(&lab);
    let worker = Role {
        more: r#"{"restartPolicy": "OnFailure"}"#,
        ..Role::worker(2, "sleep 600")
    };
    let text = job(
        "sturdy",
        "custom",
        &[worker],
        r#"{"runPolicy": {"backoffLimit": 0}}"#,
    );
    let mut manifest: Value = serde_json::from_str(&text).unwrap();
    prefer(&mut manifest, &node);
    lab.apply(&manifest.to_string()).unwrap();
    lab.wait_for_phase("sturdy", "Running");
    let before = lab.get("pod sturdy-worker-0");
    assert_eq!(before["spec"]["nodeName"], *node);

    let off = Off {
        cluster: lab.cluster(),
        node: &node,
    };
    off.cluster.switch_off(&node).unwrap();
    drop(off);
    // Its kubelet finds containers of which it knows nothing, and the runtime says 255.
    let after = lab.until("both run again", || {
        let job = lab.get("tj sturdy");
        let status = &job["status"];
        if status["phase"] == "Running" && status["restarts"]["disruptions"] == 2 && status["ready"] == "2/2"
        {
            Ok(job)
        } else {
            let pods = lab.get("pods -l trainyard.dev/job=sturdy");
            let pods = pods["items"].as_array().into_iter().flatten();
            let pods: Vec<&Value> = pods.map(|pod| &pod["status"]["containerStatuses"]).collect();
            Err(format!("{status:#} {pods:?}"))
        }
    });
    assert_eq!(after["status"]["restarts"]["failures"], 0, "{after:#}");
    let now = lab.get("pod sturdy-worker-0");
    assert_ne!(now["metadata"]["uid"], before["metadata"]["uid"]);
}

fn what_was_on_a_lost_node_is_replaced_once_it_is_known_to_have_ended_or_waited_for() {
    let (lab, _operator) = Lab::with_operator("lost");
    let node = victim(&lab);
    let node = node.as_str();
    let role = |name, more| Role {
        name,
        replicas: 1,
        script: "sleep 600",
        more,
    };
    let roles = [
        role(
            "mover",
            r#"{"nodeDownPolicy": "Fail", "restartPolicy": "OnFailure"}"#,
        ),
        role("stayer", r#"{"nodeDownPolicy": "Wait"}"#),
    ];
    let mut manifest: Value = serde_json::from_str(&job("exposed", "custom", &roles, "")).unwrap();
    prefer(&mut manifest, node);
    for role in manifest["spec"]["roles"].as_array_mut().unwrap() {
        // Else the cluster itself removes the pods of a lost node after a while.
        role["template"]["spec"]["tolerations"] = json!([{"operator": "Exists", "effect": "NoExecute"}]);
    }
    lab.apply(&manifest.to_string()).unwrap();
    lab.wait_for_phase("exposed", "Running");
    let there = |pod: &Value| pod["spec"]["nodeName"] == node;
    let mover = running(&lab, "exposed-mover-0", there);
    let stayer = running(&lab, "exposed-stayer-0", there);

    let lost = Lost::node(lab.cluster(), node);
    lab.until("the job says what it waits for", || {
        let job = lab.get("tj exposed");
        let going = lab.get("pod exposed-mover-0")["metadata"]["deletionTimestamp"].is_string();
        if job["status"]["phase"] == "Restarting" && going {
            Ok(())
        } else {
            Err(format!("{:#}", job["status"]))
        }
    });
    let same = |name: &str, before: &Value| {
        let now = lab.get(&format!("pod {name}"));
        now["metadata"]["uid"] == before["metadata"]["uid"]
    };
    assert!(
        same("exposed-mover-0", &mover),
        "its processes may still run there, so there is no second one"
    );
    lab.until("nothing new is sent there", || {
        let taints = &lab.get(&format!("node {node}"))["spec"]["taints"];
        let closed = |taint: &Value| taint["effect"] == "NoSchedule";
        let closed = taints.as_array().is_some_and(|taints| taints.iter().any(closed));
        closed.then_some(()).ok_or_else(|| taints.to_string())
    });
    // The administrator says that they do not. `kubectl taint` writes the whole list of taints, as
    // it read it: before the cluster has closed the node, that would open it again for a moment,
    // and the replacement would go there.
    lost.declare_out_of_service();
    let replacement = running(&lab, "exposed-mover-0", |pod| {
        pod["metadata"]["uid"] != mover["metadata"]["uid"]
    });
    assert_ne!(replacement["spec"]["nodeName"], node);
    assert!(same("exposed-stayer-0", &stayer));

    drop(lost);
    lab.until("the job runs again", || {
        let job = lab.get("tj exposed");
        if job["status"]["phase"] == "Running" && job["status"]["ready"] == "2/2" {
            Ok(())
        } else {
            Err(format!("{:#}", job["status"]))
        }
    });
    assert!(same("exposed-stayer-0", &stayer));
    let restarts = &lab.get("tj exposed")["status"]["restarts"];
    assert_eq!(restarts["disruptions"], 1, "{restarts:#}");
}
