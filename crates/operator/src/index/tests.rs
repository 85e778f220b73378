use serde_json::json;
use tokio::time::Instant;
use trainyard_api::JobPhase;
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
        Some(Known::Job(snapshot)) => *snapshot,
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

#[test]
fn a_change_of_a_pod_names_its_job_and_an_echo_does_not() {
    let index = index();
    assert_eq!(index.apply_pod(POD.slim(), Source::Answer), Some(key("a")));
    assert_eq!(
        index.apply_pod(POD.slim(), Source::Watch),
        None,
        "the watch only repeats the answer"
    );
    let heartbeat = TestPod { version: 11, ..POD };
    assert_eq!(
        index.apply_pod(heartbeat.slim(), Source::Watch),
        None,
        "nothing that decisions look at"
    );
    let running = TestPod {
        version: 12,
        phase: "Running",
        ..POD
    };
    assert_eq!(index.apply_pod(running.slim(), Source::Watch), Some(key("a")));
    assert_eq!(snapshot(&index, "a").pods[0].phase, PodPhase::Running);
}

#[test]
fn stale_events_change_nothing() {
    let index = index();
    index.apply_pod(
        TestPod {
            version: 20,
            phase: "Running",
            ..POD
        }
        .slim(),
        Source::Watch,
    );
    assert_eq!(index.apply_pod(POD.slim(), Source::Watch), None);
    assert_eq!(snapshot(&index, "a").pods[0].phase, PodPhase::Running);
    assert_eq!(
        index.apply_job(job_in("Running", "a", "u1", 2), Source::Watch),
        None
    );
    assert_eq!(
        index.phases().find(|(phase, _)| *phase == JobPhase::Running),
        Some((JobPhase::Running, 0))
    );
}

#[test]
fn an_answer_that_comes_after_the_object_was_removed_is_ignored() {
    let index = index();
    index.apply_pod(POD.slim(), Source::Watch);
    assert_eq!(
        index.delete_child(Kind::Pod, &TestPod { version: 12, ..POD }.meta()),
        Some(key("a"))
    );
    assert_eq!(index.apply_pod(POD.slim(), Source::Answer), None);
    assert!(pods(&index, "a").is_empty());
}

#[test]
fn a_list_does_not_drop_what_was_created_after_it_and_drops_what_is_gone() {
    let index = index();
    index.apply_pod(POD.slim(), Source::Watch);
    // A list of version 15 is under way when a create is answered with version 17.
    index.listing(Kind::Pod, 0, Version(15));
    index.apply_pod(
        TestPod {
            name: "a-w-1",
            uid: "p1",
            version: 17,
            ..POD
        }
        .slim(),
        Source::Answer,
    );
    assert_eq!(
        index.listed(Kind::Pod, 0, Version(15), Instant::now()),
        [key("a")]
    );
    assert_eq!(pods(&index, "a"), ["a-w-1/p1"]);
    // The next one is newer than the create and does not have it: somebody has removed the pod in between.
    index.listing(Kind::Pod, 0, Version(18));
    assert_eq!(
        index.listed(Kind::Pod, 0, Version(18), Instant::now()),
        [key("a")]
    );
    assert!(pods(&index, "a").is_empty());
    // An answer older than that list comes too late to be true.
    assert_eq!(
        index.apply_pod(TestPod { version: 16, ..POD }.slim(), Source::Answer),
        None
    );
    assert!(pods(&index, "a").is_empty());
}

#[test]
fn a_list_that_is_broken_off_removes_nothing() {
    let index = index();
    for (name, uid) in [("a-w-0", "p0"), ("a-w-1", "p1")] {
        index.apply_pod(TestPod { name, uid, ..POD }.slim(), Source::Watch);
    }
    index.listing(Kind::Pod, 0, Version(15));
    index.apply_pod(POD.slim(), Source::List);
    index.listing(Kind::Pod, 0, Version(16));
    index.apply_pod(
        TestPod {
            name: "a-w-1",
            uid: "p1",
            ..POD
        }
        .slim(),
        Source::List,
    );
    assert_eq!(pods(&index, "a"), ["a-w-0/p0", "a-w-1/p1"]);
    index.listed(Kind::Pod, 0, Version(16), Instant::now());
    assert_eq!(pods(&index, "a"), ["a-w-1/p1"], "only the complete list counts");
}

#[test]
fn a_deleted_pod_is_seen_as_going_and_never_comes_back() {
    let index = index();
    index.apply_pod(POD.slim(), Source::Watch);
    index.terminate(Kind::Pod, "u1", "a-w-0", "other");
    assert!(!snapshot(&index, "a").pods[0].terminating);
    index.terminate(Kind::Pod, "u1", "a-w-0", "p0");
    assert!(snapshot(&index, "a").pods[0].terminating);
    index.apply_pod(
        TestPod {
            version: 11,
            phase: "Running",
            ..POD
        }
        .slim(),
        Source::Watch,
    );
    let pod = &snapshot(&index, "a").pods[0];
    assert!(pod.terminating && pod.phase == PodPhase::Running);
}

#[test]
fn when_a_pod_was_first_told_to_have_failed_is_remembered() {
    let index = index();
    let failed = |version, node| TestPod {
        phase: "Failed",
        version,
        node,
        ..POD
    };
    index.apply_pod(failed(20, POD.node).slim(), Source::Watch);
    // Something else about it changes later.
    index.apply_pod(failed(30, "elsewhere").slim(), Source::Watch);
    let pod = snapshot(&index, "a").pods[0].clone();
    assert_eq!(pod.node.as_deref(), Some("elsewhere"));
    assert_eq!(pod.end.map(|end| end.told), Some(20));
}

#[test]
fn only_a_pod_that_had_succeeded_is_remembered_when_it_is_gone() {
    type Going = fn(&Index);
    let ways: [Going; 3] = [
        |index| {
            index.delete_child(Kind::Pod, &TestPod { version: 30, ..POD }.meta());
        },
        |index| index.went(Kind::Pod, "u1", "a-w-0", "p0", Version(30)),
        |index| {
            index.listing(Kind::Pod, 0, Version(30));
            index.listed(Kind::Pod, 0, Version(30), Instant::now());
        },
    ];
    for go in ways {
        for phase in ["Succeeded", "Running", "Failed"] {
            let index = index();
            index.apply_pod(TestPod { phase, ..POD }.slim(), Source::Watch);
            go(&index);
            assert!(pods(&index, "a").is_empty());
            let departed = snapshot(&index, "a").departed;
            let expected = (phase == "Succeeded").then(|| Departed {
                name: "a-w-0".into(),
                uid: "p0".into(),
            });
            assert_eq!(departed, expected.as_slice(), "{phase}");
            index.forget_departed("u1", &departed);
            assert!(snapshot(&index, "a").departed.is_empty());
        }
    }
}

#[test]
fn a_pod_and_its_replacement_of_the_same_name_are_two() {
    let index = index();
    index.apply_pod(POD.slim(), Source::Watch);
    index.apply_pod(
        TestPod {
            uid: "p0b",
            version: 15,
            ..POD
        }
        .slim(),
        Source::Answer,
    );
    assert_eq!(pods(&index, "a"), ["a-w-0/p0", "a-w-0/p0b"]);
    index.delete_child(Kind::Pod, &TestPod { version: 14, ..POD }.meta());
    assert_eq!(pods(&index, "a"), ["a-w-0/p0b"], "only the one that was removed");
    assert_eq!(
        index.delete_child(Kind::Pod, &TestPod { version: 14, ..POD }.meta()),
        None
    );
}

#[test]
fn a_job_of_the_same_name_does_not_see_the_children_of_the_former() {
    let index = index();
    index.apply_pod(POD.slim(), Source::Watch);
    assert_eq!(index.apply_job(job("a", "u2", 30), Source::Watch), Some(key("a")));
    assert!(pods(&index, "a").is_empty());
    assert_eq!(
        index.apply_job(job("a", "u1", 29), Source::Watch),
        None,
        "late news of the former"
    );
    assert_eq!(&*snapshot(&index, "a").uid, "u2");
    let former = job("a", "u1", 31);
    assert_eq!(
        index.delete_job(former.metadata()),
        None,
        "it is the former that is gone"
    );
    assert_eq!(&*snapshot(&index, "a").uid, "u2");
    // The new job may be waiting for the name.
    assert_eq!(
        index.delete_child(Kind::Pod, &TestPod { version: 32, ..POD }.meta()),
        Some(key("a"))
    );
}

#[test]
fn a_pod_is_known_before_its_job() {
    let index = index();
    let early = TestPod {
        owner: Some(("b", "u9")),
        ..POD
    };
    assert_eq!(
        index.apply_pod(early.slim(), Source::Watch),
        None,
        "nobody to look at yet"
    );
    assert_eq!(index.apply_job(job("b", "u9", 40), Source::Watch), Some(key("b")));
    assert_eq!(pods(&index, "b"), ["a-w-0/p0"]);
}

#[test]
fn a_pod_that_lost_its_owner_is_nobodys() {
    let index = index();
    index.apply_pod(POD.slim(), Source::Watch);
    let stripped = TestPod {
        version: 11,
        owner: None,
        ..POD
    };
    assert_eq!(index.apply_pod(stripped.slim(), Source::Watch), Some(key("a")));
    assert!(pods(&index, "a").is_empty());
    index.apply_pod(TestPod { version: 12, ..POD }.slim(), Source::Watch);
    let moved = TestPod {
        version: 13,
        owner: Some(("z", "u8")),
        ..POD
    };
    index.apply_pod(moved.slim(), Source::Watch);
    assert!(pods(&index, "a").is_empty());
}

#[test]
fn the_answer_to_a_status_write_is_seen_at_once_and_never_undone() {
    let index = index();
    let JobObject::Ok(written) = job_in("Running", "a", "u1", 21) else {
        panic!()
    };
    index.apply_status("u1", written.metadata.clone(), written.status.clone());
    assert_eq!(
        snapshot(&index, "a").job.status.as_ref().unwrap().phase,
        Some(JobPhase::Running)
    );
    assert_eq!(
        index.apply_job(job_in("Running", "a", "u1", 21), Source::Watch),
        None,
        "its own echo"
    );
    assert_eq!(
        index.apply_job(job_in("Pending", "a", "u1", 20), Source::Watch),
        None
    );
    let running = |index: &Index| {
        index
            .phases()
            .find(|(phase, _)| *phase == JobPhase::Running)
            .unwrap()
            .1
    };
    assert_eq!(running(&index), 1);
    index.delete_job(&written.metadata);
    assert_eq!(running(&index), 0);
    index.apply_status("u1", written.metadata, written.status);
    assert!(
        index.get(&key("a")).is_none(),
        "an answer does not bring a deleted job back"
    );
}

#[test]
fn a_job_that_a_list_lacks_is_gone_unless_it_is_newer() {
    let index = index();
    index.apply_job(job("b", "u2", 30), Source::Watch);
    index.listing(Kind::Job, 0, Version(35));
    index.apply_job(job("b", "u2", 30), Source::List);
    assert_eq!(
        index.listed(Kind::Job, 0, Version(35), Instant::now()),
        [key("a")]
    );
    assert_eq!(index.keys(), [key("b")]);
}

#[test]
fn versions_that_go_back_are_believed() {
    let index = index();
    index.apply_job(job_in("Running", "a", "u1", 900), Source::Watch);
    index.apply_pod(
        TestPod {
            version: 901,
            phase: "Running",
            ..POD
        }
        .slim(),
        Source::Watch,
    );
    index.listing(Kind::Job, 0, Version(500));
    assert_eq!(index.apply_job(job("a", "u1", 400), Source::List), Some(key("a")));
    index.listed(Kind::Job, 0, Version(500), Instant::now());
    index.listing(Kind::Pod, 0, Version(500));
    assert_eq!(
        index.listed(Kind::Pod, 0, Version(500), Instant::now()),
        [key("a")]
    );
    assert!(pods(&index, "a").is_empty());
}

#[test]
fn scopes_are_listed_apart() {
    let index = Index::new(&["ns".to_owned(), "other".to_owned()]);
    let since = Instant::now();
    for kind in [Kind::Job, Kind::Pod, Kind::Service] {
        for scope in [0, 1] {
            assert!(!index.is_listed_since(None));
            index.listing(kind, scope, Version(5));
            if kind == Kind::Job && scope == 0 {
                index.apply_job(job("a", "u1", 3), Source::List);
            }
            assert!(
                index.listed(kind, scope, Version(5), since).is_empty(),
                "the other scope is left alone"
            );
        }
    }
    assert!(index.is_listed_since(None) && index.is_listed_since(Some(since)));
    assert!(!index.is_listed_since(Some(since + std::time::Duration::from_secs(1))));
}

#[test]
fn conflicts_are_news_once() {
    let index = index();
    let conflict = Conflict {
        kind: "Service",
        name: "a".into(),
        owner: "nobody".into(),
    };
    assert_eq!(index.conflict("u1", conflict.clone()), Some(key("a")));
    assert_eq!(index.conflict("u1", conflict.clone()), None);
    assert_eq!(snapshot(&index, "a").conflicts, [conflict]);
    index.resolve("u1", "Service", "a");
    assert!(snapshot(&index, "a").conflicts.is_empty());
}

fn node(name: &str, ready: &str, version: u64) -> SlimNode {
    let json = json!({"metadata": {"name": name, "uid": name, "resourceVersion": version.to_string()},
        "status": {"conditions": [{"type": "Ready", "status": ready}]}});
    serde_json::from_str(&json.to_string()).unwrap()
}

#[test]
fn nodes_are_up_down_gone_or_not_known_yet() {
    let index = index();
    let state = |index: &Index| snapshot(index, "a").nodes.state("n1");
    index.apply_pod(POD.slim(), Source::Watch);
    assert_eq!(
        state(&index),
        NodeState::Up,
        "the watch of nodes has not come so far"
    );
    assert!(index.apply_node(&node("n1", "True", 8), Source::Watch).is_empty());
    assert_eq!(
        index.apply_node(&node("n1", "Unknown", 12), Source::Watch),
        [key("a")]
    );
    assert_eq!(state(&index), NodeState::Down);
    assert!(
        index
            .apply_node(&node("n2", "Unknown", 13), Source::Watch)
            .is_empty(),
        "no pods there"
    );
    assert_eq!(
        index.apply_node(&node("n1", "True", 14), Source::Watch),
        [key("a")]
    );
    assert_eq!(index.delete_node(&node("n1", "True", 15).metadata), [key("a")]);
    assert_eq!(state(&index), NodeState::Gone);
    index.apply_pod(TestPod { version: 30, ..POD }.slim(), Source::Watch);
    assert_eq!(
        state(&index),
        NodeState::Up,
        "bound to a node that our watch has yet to show"
    );
    index.bookmark(Kind::Node, 0, Version(30));
    assert_eq!(state(&index), NodeState::Gone);
}

#[test]
fn nodes_whose_versions_go_back_are_not_taken_for_gone() {
    // The cluster was restored from a backup.
    let index = index();
    index.apply_pod(POD.slim(), Source::Watch);
    index.listing(Kind::Node, 0, Version(900));
    index.apply_node(&node("n1", "Unknown", 890), Source::List);
    index.listed(Kind::Node, 0, Version(900), Instant::now());
    index.apply_node(&node("n1", "Unknown", 950), Source::Watch);
    let state = || snapshot(&index, "a").nodes.state("n1");
    assert_eq!(state(), NodeState::Down);
    index.listing(Kind::Node, 0, Version(500));
    index.apply_pod(
        TestPod {
            name: "a-w-7",
            uid: "p7",
            node: "restored",
            ..POD
        }
        .slim(),
        Source::Watch,
    );
    assert_eq!(
        snapshot(&index, "a").nodes.state("restored"),
        NodeState::Up,
        "the list may still name it"
    );
    index.apply_node(&node("n1", "True", 400), Source::List);
    index.listed(Kind::Node, 0, Version(500), Instant::now());
    assert_eq!(state(), NodeState::Up);
    index.apply_node(&node("n1", "Unknown", 501), Source::Watch);
    assert_eq!(state(), NodeState::Down);
}

#[test]
fn without_a_right_to_see_nodes_all_are_up() {
    let index = Index::new(&[]);
    index.apply_job(job("a", "u1", 3), Source::Watch);
    index.apply_pod(POD.slim(), Source::Watch);
    assert_eq!(snapshot(&index, "a").nodes.state("n1"), NodeState::Up);
}

#[test]
fn nothing_is_left_of_a_job_that_is_gone_with_its_children() {
    let index = index();
    index.apply_pod(POD.slim(), Source::Watch);
    index.delete_job(job("a", "u1", 9).metadata());
    assert_eq!(
        index.delete_child(Kind::Pod, &TestPod { version: 12, ..POD }.meta()),
        None
    );
    let inner = index.lock();
    assert!(inner.owners.is_empty() && inner.names.is_empty());
}

#[test]
fn a_malformed_job_is_known_as_such() {
    let index = index();
    let bad = r#"{"metadata":{"name":"bad","namespace":"ns","uid":"u5","resourceVersion":"50"},"spec":{}}"#;
    assert_eq!(
        index.apply_job(JobObject::decode(bad).unwrap(), Source::Watch),
        Some(key("bad"))
    );
    assert!(matches!(index.get(&key("bad")), Some(Known::Malformed(..))));
    assert_eq!(
        index.apply_job(job("bad", "u5", 51), Source::Watch),
        Some(key("bad"))
    );
    assert!(
        matches!(index.get(&key("bad")), Some(Known::Job(_))),
        "it was repaired"
    );
}
