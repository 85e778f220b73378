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
        "metadata": {"name": name, "uid": name, "namespace": "n", "labels": {"job": "j"}},
        "spec": {"containers": [{"name": "main"}]},
    });
    json_patch::merge(&mut pod, more);
    serde_json::from_value(pod).unwrap()
}

fn on(node: &str) -> Value {
    json!({"spec": {"nodeName": node}})
}

fn asking(cpu: &str) -> Value {
    json!({"spec": {"containers": [{"name": "main", "resources": {"requests": {"cpu": cpu}}}]}})
}

fn both(mut one: Value, other: &Value) -> Value {
    json_patch::merge(&mut one, other);
    one
}

fn affinity(kind: &str, rule: &Value) -> Value {
    json!({"spec": {"affinity": {kind: {"requiredDuringSchedulingIgnoredDuringExecution": rule}}}})
}

fn of_job(kind: &str) -> Value {
    let term =
        json!({"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"job": "j"}}});
    affinity(kind, &json!([term]))
}

fn two() -> Vec<Node> {
    vec![node("a", &json!({})), node("b", &json!({}))]
}

/// Where a pod goes, or the reasons for which it goes nowhere.
fn chosen(pod: &Pod, nodes: &[Node], pods: &[Pod]) -> Result<String, String> {
    let found = choose(
        pod,
        &nodes.iter().collect::<Vec<_>>(),
        &pods.iter().collect::<Vec<_>>(),
        &HashSet::from([("n".to_owned(), "kept".to_owned())]),
    );
    found.map_err(|message| {
        let reasons = message.split(". ").next().unwrap_or_default();
        reasons.to_owned()
    })
}

#[expect(clippy::unnecessary_wraps, reason = "it stands beside the other answers")]
fn ok(name: &str) -> Result<String, String> {
    Ok(name.to_owned())
}

fn none(reasons: &str) -> Result<String, String> {
    Err(format!("0/2 nodes are available: {reasons}"))
}

#[test]
fn the_emptier_node_is_taken() {
    assert_eq!(
        chosen(&pod("new", &json!({})), &two(), &[pod("old", &on("a"))]),
        ok("b")
    );
}

#[test]
fn what_does_not_fit_waits_and_says_what_is_lacking() {
    let used = both(asking("1500m"), &on("a"));
    let pods = [pod("old", &used)];
    assert_eq!(chosen(&pod("new", &asking("1")), &two(), &pods), ok("b"));
    assert_eq!(
        chosen(&pod("new", &asking("3")), &two(), &pods),
        none("2 Insufficient cpu")
    );
    let ended = [pod(
        "old",
        &both(used, &json!({"status": {"phase": "Succeeded"}})),
    )];
    let one = [node("a", &json!({}))];
    assert_eq!(
        chosen(&pod("new", &asking("2")), &one, &ended),
        ok("a"),
        "what has ended holds nothing"
    );
}

#[test]
fn init_containers_count_as_far_as_they_run_at_the_same_time() {
    let init = |cpu: &str, policy: Value| {
        let container =
            json!({"name": "i", "restartPolicy": policy, "resources": {"requests": {"cpu": cpu}}});
        both(asking("1"), &json!({"spec": {"initContainers": [container]}}))
    };
    assert_eq!(chosen(&pod("new", &init("2", json!(null))), &two(), &[]), ok("a"));
    assert_eq!(
        chosen(&pod("new", &init("2", json!("Always"))), &two(), &[]),
        none("2 Insufficient cpu")
    );
}

#[test]
fn a_node_takes_only_so_many_pods() {
    let full: Vec<Pod> = (0..6)
        .map(|at| pod(&format!("p{at}"), &on(if at % 2 == 0 { "a" } else { "b" })))
        .collect();
    assert_eq!(
        chosen(&pod("new", &json!({})), &two(), &full),
        none("2 Too many pods")
    );
}

#[test]
fn pods_that_must_be_apart_are() {
    let apart = of_job("podAntiAffinity");
    let first = pod("0", &both(apart.clone(), &on("a")));
    let second = pod("1", &both(apart.clone(), &on("b")));
    assert_eq!(
        chosen(&pod("1", &apart), &two(), std::slice::from_ref(&first)),
        ok("b")
    );
    let pods = [first, second];
    assert_eq!(
        chosen(&pod("2", &apart), &two(), &pods),
        none("2 node(s) didn't match pod anti-affinity rules")
    );
    assert_eq!(
        chosen(&pod("friendly", &json!({})), &two(), &pods),
        none("2 node(s) didn't satisfy existing pods anti-affinity rules")
    );
}

#[test]
fn pods_that_must_be_together_are() {
    let together = of_job("podAffinity");
    let first = pod("0", &both(together.clone(), &on("b")));
    assert_eq!(
        chosen(&pod("0", &together), &two(), &[]),
        ok("a"),
        "the first has nobody to be with"
    );
    assert_eq!(chosen(&pod("1", &together), &two(), &[first]), ok("b"));
}

#[test]
fn taints_keep_away_who_does_not_tolerate_them() {
    let taint =
        |effect: &str| json!({"spec": {"taints": [{"key": "gpu", "value": "yes", "effect": effect}]}});
    let tolerant = |toleration: Value| pod("new", &json!({"spec": {"tolerations": [toleration]}}));
    for effect in ["NoSchedule", "NoExecute"] {
        let nodes = [node("a", &taint(effect)), node("b", &taint(effect))];
        assert!(chosen(&pod("new", &json!({})), &nodes, &[]).is_err(), "{effect}");
        for toleration in [
            json!({"key": "gpu", "operator": "Exists"}),
            json!({"key": "gpu", "value": "yes", "effect": effect}),
            json!({"operator": "Exists"}),
        ] {
            assert_eq!(
                chosen(&tolerant(toleration.clone()), &nodes, &[]),
                ok("a"),
                "{toleration}"
            );
        }
        for toleration in [
            json!({"key": "gpu", "value": "no"}),
            json!({"key": "gpu", "operator": "Exists", "effect": "PreferNoSchedule"}),
            json!({"key": "other", "operator": "Exists"}),
        ] {
            assert!(
                chosen(&tolerant(toleration.clone()), &nodes, &[]).is_err(),
                "{toleration}"
            );
        }
    }
    let mild = [node("a", &taint("PreferNoSchedule"))];
    assert_eq!(chosen(&pod("new", &json!({})), &mild, &[]), ok("a"));
}

#[test]
fn affinity_to_nodes_is_kept() {
    let numbered =
        |name: &str, number: &str| node(name, &json!({"metadata": {"labels": {"number": number}}}));
    let nodes = [numbered("a", "1"), numbered("b", "5")];
    let wants = |requirement: Value| {
        let rule = json!({"nodeSelectorTerms": [{"matchExpressions": [requirement]}]});
        pod("new", &affinity("nodeAffinity", &rule))
    };
    let requirement =
        |operator: &str, values: Value| json!({"key": "number", "operator": operator, "values": values});
    for (operator, values, wanted) in [
        ("In", json!(["5", "6"]), "b"),
        ("NotIn", json!(["1"]), "b"),
        ("Gt", json!(["3"]), "b"),
        ("Lt", json!(["3"]), "a"),
        ("Exists", json!([]), "a"),
    ] {
        assert_eq!(
            chosen(&wants(requirement(operator, values)), &nodes, &[]),
            ok(wanted),
            "{operator}"
        );
    }
    let refusal = none("2 node(s) didn't match Pod's node affinity/selector");
    assert_eq!(
        chosen(&wants(requirement("DoesNotExist", json!([]))), &nodes, &[]),
        refusal
    );
    let picky = json!({"spec": {"nodeSelector": {"number": "7"}}});
    assert_eq!(chosen(&pod("new", &picky), &nodes, &[]), refusal);
}

#[test]
fn preferences_count_more_than_room() {
    let rule = json!([{"weight": 1, "preference": {"matchExpressions": [
        {"key": "kubernetes.io/hostname", "operator": "In", "values": ["a"]},
    ]}}]);
    let prefers = json!({"spec": {"affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": rule}}}});
    assert_eq!(
        chosen(&pod("new", &prefers), &two(), &[pod("old", &on("a"))]),
        ok("a")
    );
}

#[test]
fn a_cordoned_node_takes_nothing_and_no_node_is_no_answer() {
    let cordoned = json!({"spec": {"unschedulable": true}});
    let nodes = [node("a", &cordoned), node("b", &cordoned)];
    assert_eq!(
        chosen(&pod("new", &json!({})), &nodes, &[]),
        none("2 node(s) were unschedulable")
    );
    assert!(chosen(&pod("new", &json!({})), &[], &[]).is_err());
}

#[test]
fn a_pod_waits_for_its_claims() {
    let claims = |name: &str| {
        let volume = json!({"name": "v", "persistentVolumeClaim": {"claimName": name}});
        pod("new", &json!({"spec": {"volumes": [volume]}}))
    };
    assert_eq!(chosen(&claims("kept"), &two(), &[]), ok("a"));
    let refusal = none("persistentvolumeclaim \"absent\" not found");
    assert_eq!(chosen(&claims("absent"), &two(), &[]), refusal);
    let mut elsewhere = claims("kept");
    elsewhere.metadata.namespace = Some("other".to_owned());
    assert!(chosen(&elsewhere, &two(), &[]).is_err());
}
