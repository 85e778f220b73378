mod budgets;
mod jobs;
mod lists;
mod namespaces;
mod nodes;
mod pods;

use serde_json::{Value, json};
use tokio::time::Instant;
use trainyard_api::JobPhase;
use trainyard_core::notice::NoticeCause;
use trainyard_core::view::{NodeState, Nodes, PodPhase};

use super::*;

fn job(name: &str, uid: &str, version: u64) -> JobObject {
    job_in("Pending", name, uid, version)
}

fn job_in(phase: &str, name: &str, uid: &str, version: u64) -> JobObject {
    let json = json!({
        "metadata": {"name": name, "namespace": "ns", "uid": uid, "resourceVersion": version.to_string(), "generation": 1},
        "spec": {"framework": {"name": "custom"}, "roles": [{"name": "w", "template": {}}]},
        "status": {"phase": phase},
    });
    JobObject::decode(&json.to_string()).unwrap()
}

struct TestPod {
    name: &'static str,
    uid: &'static str,
    owner: Option<(&'static str, &'static str)>,
    version: u64,
    phase: &'static str,
    node: &'static str,
    going: bool,
}

const POD: TestPod = TestPod {
    name: "a-w-0",
    uid: "p0",
    owner: Some(("a", "u1")),
    version: 10,
    phase: "Pending",
    node: "n1",
    going: false,
};

impl TestPod {
    fn slim(&self) -> SlimPod {
        let owners: Vec<_> = self
            .owner
            .iter()
            .map(|(name, uid)| {
                json!({"apiVersion": "trainyard.dev/v1alpha1", "kind": "TrainingJob", "name": name, "uid": uid,
                "controller": true})
            })
            .collect();
        let mut json = json!({
            "metadata": {"name": self.name, "namespace": "ns", "uid": self.uid,
                "resourceVersion": self.version.to_string(), "ownerReferences": owners,
                "labels": {"app.kubernetes.io/managed-by": "trainyard", "trainyard.dev/job": "a"}},
            "spec": {"nodeName": self.node}, "status": {"phase": self.phase},
        });
        if self.going {
            json["metadata"]["deletionTimestamp"] = json!("2026-01-02T03:04:05Z");
        }
        serde_json::from_str(&json.to_string()).unwrap()
    }

    fn meta(&self) -> Meta {
        self.slim().metadata
    }
}

fn key(name: &str) -> JobKey {
    JobKey::new("ns", name)
}

fn snapshot(index: &Index, name: &str) -> Snapshot {
    match index.get(&key(name)) {
        Some(Lookup::Job(snapshot)) => *snapshot,
        other => panic!("{other:?}"),
    }
}

fn pods(index: &Index, name: &str) -> Vec<String> {
    let mut pods: Vec<_> = snapshot(index, name)
        .pods
        .iter()
        .map(|pod| format!("{}/{}", pod.name, pod.uid))
        .collect();
    pods.sort();
    pods
}

/// An index that has one job, `a`, and whose watches have reached version 5.
fn index() -> Index {
    let index = Index::new(&[]);
    for kind in [Kind::Job, Kind::Pod, Kind::Service, Kind::Node] {
        index.listing(kind, 0, Version(5));
        if kind == Kind::Job {
            assert_eq!(index.apply_job(job("a", "u1", 3), Source::List), Some(key("a")));
        }
        index.listed(kind, 0, Version(5), Instant::now());
    }
    index
}
