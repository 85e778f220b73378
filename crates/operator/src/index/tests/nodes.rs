//! What is known of nodes.

use super::*;

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
    assert_eq!(index.delete_node("n1", Version(15)), [key("a")]);
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
fn jobs_hear_that_their_node_is_about_to_go() {
    let index = index();
    index.apply_pod(POD.slim(), Source::Watch);
    let hear = |spec: Value, version: u64| {
        let node = json!({"metadata": {"name": "n1", "resourceVersion": version.to_string()}, "spec": spec});
        let node = serde_json::from_str(&node.to_string()).unwrap();
        let affected = index.apply_node(&node, Source::Watch);
        let nodes = snapshot(&index, "a").nodes;
        (affected, nodes.notice("n1").map(|notice| notice.why.clone()))
    };
    let cordoned = (vec![key("a")], Some(NoticeCause::Cordon));
    assert_eq!(hear(json!({"unschedulable": true}), 12), cordoned);
    let none: Vec<JobKey> = Vec::new();
    assert_eq!(
        hear(json!({"unschedulable": true}), 13),
        (none.clone(), cordoned.1),
        "nothing is new"
    );
    let spot = "aws-node-termination-handler/spot-itn";
    let (affected, why) = hear(
        json!({"unschedulable": true, "taints": [{"key": spot, "effect": "NoExecute"}]}),
        14,
    );
    assert_eq!(affected, [key("a")]);
    assert!(matches!(why, Some(NoticeCause::Taint(taint)) if &*taint.key == spot));
    assert_eq!(hear(json!({}), 15), (vec![key("a")], None), "it was uncordoned");
    assert_eq!(hear(json!({}), 16), (none, None));
    assert!(snapshot(&index, "a").nodes.are_known());
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
    assert!(!snapshot(&index, "a").nodes.are_known());
}
