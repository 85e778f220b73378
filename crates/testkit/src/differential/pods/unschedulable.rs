//! Pods that no node takes, and what the scheduler says of them.

use serde_json::{Value, json};

use super::{SmallPod, Until, main, pod, pod_with, with};

pub(super) fn pods() -> Vec<SmallPod> {
    let stays = |pod: SmallPod| pod.until(Until::Stays("Pending"));
    let asks = |name: &'static str, resources: Value| {
        let wanted = json!({"resources": {"requests": resources, "limits": resources}});
        pod(name, with(main("true"), &wanted))
    };
    let wants = |name: &'static str, more: Value| pod_with(name, main("true"), &more);
    let node_affinity = |term: Value| {
        let required = json!({"nodeSelectorTerms": [term]});
        json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}})
    };
    let near = |labels: Value| {
        let term = json!({"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": labels}});
        json!({"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}})
    };
    let pods = [
        asks("too-many-processors", json!({"cpu": "1000"})),
        asks("too-much-of-all", json!({"cpu": "1000", "memory": "1000Ti"})),
        asks("no-such-resource", json!({"example.org/absent": "1"})),
        wants("no-such-node", json!({"nodeSelector": {"absent": "yes"}})),
        wants(
            "no-such-affinity",
            node_affinity(json!({"matchExpressions": [{"key": "absent", "operator": "Exists"}]})),
        ),
        wants("no-such-company", near(json!({"app": "absent"}))),
        wants(
            "gated",
            json!({"schedulingGates": [{"name": "example.com/gate"}]}),
        ),
    ];
    pods.into_iter().map(stays).collect()
}
