use serde_json::{Value, json};

use super::*;

fn node(name: &str, more: &Value) -> Node {
    let mut node = json!({
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
        "status": {"allocatable": {"cpu": "2", "memory": "4Gi", "pods": "3"}},
    });
    json_patch::merge(&mut node, more);
    serde_json::from_value(node).unwrap()
}

fn pod(name: &str, more: &Value) -> Pod {
    let mut pod = json!({
        "metadata": {"name": name, "namespace": "n", "labels": {"job": "j"}},
        "spec": {"containers": [{"name": "main"}]},
    });
    json_patch::merge(&mut pod, more);
    serde_json::from_value(pod).unwrap()
}

fn board(nodes: Vec<Node>, pods: Vec<Pod>) -> Board {
    let mut board = Board::default();
    nodes.into_iter().for_each(|node| board.put_node(node));
    pods.into_iter().for_each(|pod| board.put_pod(pod));
    board
}

fn on(node: &str) -> Value {
    json!({"spec": {"nodeName": node}})
}

fn asking(cpu: &str) -> Value {
    json!({"spec": {"containers": [{"name": "main", "resources": {"requests": {"cpu": cpu}}}]}})
}

fn apart() -> Value {
    json!({"spec": {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{
        "topologyKey": "kubernetes.io/hostname",
        "labelSelector": {"matchLabels": {"job": "j"}},
    }]}}}})
}

fn two() -> Vec<Node> {
    vec![node("a", &json!({})), node("b", &json!({}))]
}

#[test]
fn the_emptier_node_is_taken() {
    let board = board(two(), vec![pod("old", &on("a"))]);
    assert_eq!(board.choose(&pod("new", &json!({}))), Ok("b".to_owned()));
}

#[test]
fn what_does_not_fit_waits_and_says_what_is_lacking() {
    let mut used = asking("1500m");
    json_patch::merge(&mut used, &on("a"));
    let board = board(two(), vec![pod("old", &used)]);
    assert_eq!(board.choose(&pod("new", &asking("1"))), Ok("b".to_owned()));
    assert_eq!(
        board.choose(&pod("new", &asking("3"))),
        Err("0/2 nodes are available: 2 Insufficient cpu.".to_owned())
    );
    let ended = json!({"status": {"phase": "Succeeded"}});
    json_patch::merge(&mut used, &ended);
    let board = self::board(two(), vec![pod("old", &used)]);
    assert_eq!(board.choose(&pod("new", &asking("2"))), Ok("a".to_owned()), "what has ended holds nothing");
}

#[test]
fn a_node_takes_only_so_many_pods() {
    let full = (0..3).map(|number| pod(&format!("p{number}"), &on("a"))).collect();
    let board = board(vec![node("a", &json!({}))], full);
    assert_eq!(
        board.choose(&pod("new", &json!({}))),
        Err("0/1 nodes are available: 1 Too many pods.".to_owned())
    );
}

#[test]
fn pods_that_must_be_apart_are() {
    let mut first = apart();
    json_patch::merge(&mut first, &on("a"));
    let mut second = apart();
    json_patch::merge(&mut second, &on("b"));
    let board = board(two(), vec![pod("0", &first)]);
    assert_eq!(board.choose(&pod("1", &apart())), Ok("b".to_owned()));
    let board = self::board(two(), vec![pod("0", &first), pod("1", &second)]);
    assert_eq!(
        board.choose(&pod("2", &apart())),
        Err("0/2 nodes are available: 2 node(s) didn't match pod anti-affinity rules.".to_owned())
    );
    assert_eq!(
        board.choose(&pod("friendly", &json!({}))),
        Err("0/2 nodes are available: 2 node(s) didn't satisfy existing pods anti-affinity rules.".to_owned())
    );
}

#[test]
fn taints_and_selectors_keep_pods_away() {
    let tainted = json!({"spec": {"taints": [{"key": "gpu", "value": "yes", "effect": "NoSchedule"}]}});
    let board = board(vec![node("a", &tainted), node("b", &json!({}))], Vec::new());
    let picky = json!({"spec": {"nodeSelector": {"kubernetes.io/hostname": "a"}}});
    assert_eq!(
        board.choose(&pod("new", &picky)),
        Err("0/2 nodes are available: 1 node(s) didn't match Pod's node affinity/selector, \
             1 node(s) had untolerated taint(s)."
            .to_owned())
    );
    let mut tolerant = picky.clone();
    let toleration = json!({"spec": {"tolerations": [{"key": "gpu", "operator": "Exists"}]}});
    json_patch::merge(&mut tolerant, &toleration);
    assert_eq!(board.choose(&pod("new", &tolerant)), Ok("a".to_owned()));
}

#[test]
fn a_cordoned_node_takes_nothing_and_no_node_is_no_answer() {
    let cordoned = json!({"spec": {"unschedulable": true}});
    let board = board(vec![node("a", &cordoned)], Vec::new());
    assert_eq!(
        board.choose(&pod("new", &json!({}))),
        Err("0/1 nodes are available: 1 node(s) were unschedulable.".to_owned())
    );
    assert!(Board::default().choose(&pod("new", &json!({}))).is_err());
}

#[test]
fn pods_that_leave_or_are_gated_or_bound_do_not_wait() {
    let leaving = json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}});
    let gated = json!({"spec": {"schedulingGates": [{"name": "gang"}]}});
    let pods = vec![pod("leaving", &leaving), pod("gated", &gated), pod("bound", &on("a")), pod("new", &json!({}))];
    let waiting = board(two(), pods).waiting();
    assert_eq!(waiting.iter().map(ResourceExt::name_any).collect::<Vec<_>>(), ["new"]);
}
