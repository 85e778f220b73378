//! Which node a pod fits on. Pure.

mod affinity;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashSet};

use k8s_openapi::api::core::v1::{Node, Pod, Taint, Toleration, WeightedPodAffinityTerm};

use crate::node::kubelet::milli;
use affinity::{is_first, matches_term, meets, same_place, selects};

/// The node that the pod fits on with the most room; the error is in the words of Kubernetes'
/// scheduler.
pub fn choose(
    pod: &Pod,
    nodes: &[&Node],
    pods: &[&Pod],
    claims: &HashSet<(String, String)>,
) -> Result<String, String> {
    let all = nodes.len();
    if let Some(absent) = absent_claim(pod, claims) {
        return Err(format!(
            "0/{all} nodes are available: persistentvolumeclaim \"{absent}\" not found. not found"
        ));
    }
    let mut reasons: BTreeMap<String, usize> = BTreeMap::new();
    let mut best: Option<((i64, usize), String)> = None;
    let mut helpful = 0;
    for node in nodes {
        let name = node.metadata.name.clone().unwrap_or_default();
        match refusals(pod, node, nodes, pods) {
            refusals if refusals.is_empty() => {
                let load = pods.iter().filter(|other| is_on(other, &name)).count();
                let score = (-preference(pod, node, nodes, pods), load);
                let better = match &best {
                    None => true,
                    Some((known, other)) => (score, &name) < (*known, other),
                };
                if better {
                    best = Some((score, name));
                }
            }
            refusals => {
                helpful += usize::from(refusals.iter().all(|(_, by_pods)| *by_pods));
                for (reason, _) in refusals {
                    *reasons.entry(reason).or_default() += 1;
                }
            }
        }
    }
    if let Some((_, name)) = best {
        return Ok(name);
    }
    if all == 0 {
        return Err("no nodes available to schedule pods".to_owned());
    }
    let mut listed: Vec<String> = reasons
        .iter()
        .map(|(reason, count)| format!("{count} {reason}"))
        .collect();
    listed.sort();
    let preemption = [
        (helpful, "No preemption victims found for incoming pod"),
        (all - helpful, "Preemption is not helpful for scheduling"),
    ];
    let preemption = preemption.into_iter().filter(|(nodes, _)| *nodes > 0);
    let preemption: Vec<_> = preemption.map(|(nodes, why)| format!("{nodes} {why}")).collect();
    Err(format!(
        "0/{all} nodes are available: {}. no new claims to deallocate, preemption: 0/{all} nodes are available: {}.",
        listed.join(", "),
        preemption.join(", ")
    ))
}

/// A claim of the pod that does not exist.
fn absent_claim(pod: &Pod, claims: &HashSet<(String, String)>) -> Option<String> {
    let namespace = pod.metadata.namespace.clone().unwrap_or_default();
    let volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
    volumes
        .filter_map(|volume| Some(volume.persistent_volume_claim.as_ref()?.claim_name.clone()))
        .find(|name| !claims.contains(&(namespace.clone(), name.clone())))
}

/// Why a pod does not fit on a node, and whether that is because of other pods. Only the first
/// reason is returned, but all missing resources.
fn refusals(pod: &Pod, node: &Node, nodes: &[&Node], pods: &[&Pod]) -> Vec<(String, bool)> {
    let spec = pod.spec.clone().unwrap_or_default();
    let node_spec = node.spec.clone().unwrap_or_default();
    let tolerations = spec.tolerations.unwrap_or_default();
    if node_spec.unschedulable == Some(true) && !tolerates(&tolerations, &unschedulable()) {
        return vec![("node(s) were unschedulable".to_owned(), false)];
    }
    let bad = node_spec.taints.iter().flatten().any(|taint| {
        matches!(taint.effect.as_str(), "NoSchedule" | "NoExecute") && !tolerates(&tolerations, taint)
    });
    if bad {
        return vec![("node(s) had untolerated taint(s)".to_owned(), false)];
    }
    let labels = node.metadata.labels.clone().unwrap_or_default();
    let selected = spec
        .node_selector
        .iter()
        .flatten()
        .all(|(key, value)| labels.get(key) == Some(value));
    let affinity = spec.affinity.unwrap_or_default();
    let required = affinity.node_affinity.as_ref().and_then(|affinity| {
        affinity
            .required_during_scheduling_ignored_during_execution
            .as_ref()
    });
    let affine = required.is_none_or(|required| {
        required
            .node_selector_terms
            .iter()
            .any(|term| matches_term(term, node))
    });
    if !selected || !affine {
        return vec![(
            "node(s) didn't match Pod's node affinity/selector".to_owned(),
            false,
        )];
    }
    let lacking = lacking(pod, node, pods);
    if !lacking.is_empty() {
        return lacking;
    }
    let wanted = affinity
        .pod_affinity
        .and_then(|affinity| affinity.required_during_scheduling_ignored_during_execution);
    if !wanted
        .iter()
        .flatten()
        .all(|term| meets(term, pod, node, nodes, pods) || is_first(term, pod, pods))
    {
        return vec![("node(s) didn't match pod affinity rules".to_owned(), false)];
    }
    let refused = affinity
        .pod_anti_affinity
        .and_then(|affinity| affinity.required_during_scheduling_ignored_during_execution);
    if refused
        .iter()
        .flatten()
        .any(|term| meets(term, pod, node, nodes, pods))
    {
        return vec![("node(s) didn't match pod anti-affinity rules".to_owned(), true)];
    }
    let keeps_away = |other: &Pod| {
        let affinity = other.spec.as_ref().and_then(|spec| spec.affinity.as_ref());
        let anti = affinity.and_then(|affinity| affinity.pod_anti_affinity.as_ref());
        let terms = anti.and_then(|anti| anti.required_during_scheduling_ignored_during_execution.as_ref());
        terms
            .into_iter()
            .flatten()
            .any(|term| selects(term, other, pod) && same_place(term, other, node, nodes))
    };
    if pods.iter().any(|other| is_active(other) && keeps_away(other)) {
        return vec![(
            "node(s) didn't satisfy existing pods anti-affinity rules".to_owned(),
            true,
        )];
    }
    Vec::new()
}

/// Missing resources of a node, and whether that is because of other pods.
fn lacking(pod: &Pod, node: &Node, pods: &[&Pod]) -> Vec<(String, bool)> {
    let name = node.metadata.name.clone().unwrap_or_default();
    let status = node.status.clone().unwrap_or_default();
    let allocatable = status.allocatable.or(status.capacity).unwrap_or_default();
    let on_it: Vec<_> = pods.iter().filter(|other| is_on(other, &name)).collect();
    let mut lacking = Vec::new();
    if let Some(limit) = allocatable.get("pods").and_then(milli)
        && i128::try_from(on_it.len()).unwrap_or(i128::MAX) * 1000 >= limit
    {
        lacking.push(("Too many pods".to_owned(), true));
    }
    for (resource, wanted) in requests(pod) {
        let has = allocatable.get(&resource).and_then(milli).unwrap_or(0);
        let used: i128 = on_it
            .iter()
            .map(|other| requests(other).get(&resource).copied().unwrap_or(0))
            .sum();
        if wanted > 0 && used + wanted > has {
            lacking.push((format!("Insufficient {resource}"), wanted <= has));
        }
    }
    lacking
}

/// The requests of a pod: those of its containers, or of an init container with the sidecars before
/// it, whichever is more.
fn requests(pod: &Pod) -> BTreeMap<String, i128> {
    let spec = pod.spec.clone().unwrap_or_default();
    let of = |container: &k8s_openapi::api::core::v1::Container| -> BTreeMap<String, i128> {
        let requests = container
            .resources
            .as_ref()
            .and_then(|resources| resources.requests.clone());
        let requests = requests.unwrap_or_default();
        requests
            .iter()
            .filter_map(|(name, quantity)| Some((name.clone(), milli(quantity)?)))
            .collect()
    };
    let mut sidecars: BTreeMap<String, i128> = BTreeMap::new();
    let mut most: BTreeMap<String, i128> = BTreeMap::new();
    for container in spec.init_containers.iter().flatten() {
        let is_sidecar = container.restart_policy.as_deref() == Some("Always");
        for (name, value) in of(container) {
            let before = sidecars.get(&name).copied().unwrap_or(0);
            let most = most.entry(name.clone()).or_default();
            *most = (*most).max(before + value);
            if is_sidecar {
                *sidecars.entry(name).or_default() += value;
            }
        }
    }
    let mut sum = sidecars;
    for container in &spec.containers {
        for (name, value) in of(container) {
            *sum.entry(name).or_default() += value;
        }
    }
    for (name, value) in most {
        let sum = sum.entry(name).or_default();
        *sum = (*sum).max(value);
    }
    sum
}

/// The weight of a pod's preferences for a node.
fn preference(pod: &Pod, node: &Node, nodes: &[&Node], pods: &[&Pod]) -> i64 {
    let affinity = pod
        .spec
        .as_ref()
        .and_then(|spec| spec.affinity.clone())
        .unwrap_or_default();
    let weight = |terms: Option<Vec<WeightedPodAffinityTerm>>| -> i64 {
        let met = terms
            .into_iter()
            .flatten()
            .filter(|term| meets(&term.pod_affinity_term, pod, node, nodes, pods));
        met.map(|term| i64::from(term.weight)).sum()
    };
    let terms = affinity
        .node_affinity
        .and_then(|a| a.preferred_during_scheduling_ignored_during_execution);
    let terms = terms.into_iter().flatten();
    let on_node = terms.filter(|term| matches_term(&term.preference, node));
    let on_node: i64 = on_node.map(|term| i64::from(term.weight)).sum();
    let near = affinity
        .pod_affinity
        .and_then(|a| a.preferred_during_scheduling_ignored_during_execution);
    let away = affinity
        .pod_anti_affinity
        .and_then(|a| a.preferred_during_scheduling_ignored_during_execution);
    on_node + weight(near) - weight(away)
}

fn is_active(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    !matches!(phase, Some("Succeeded" | "Failed"))
}

fn is_on(pod: &Pod, node: &str) -> bool {
    is_active(pod) && pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()) == Some(node)
}

fn unschedulable() -> Taint {
    Taint {
        key: "node.kubernetes.io/unschedulable".to_owned(),
        effect: "NoSchedule".to_owned(),
        ..Taint::default()
    }
}

fn tolerates(tolerations: &[Toleration], taint: &Taint) -> bool {
    tolerations.iter().any(|toleration| {
        let key = toleration.key.as_deref().unwrap_or_default();
        let effect = toleration.effect.as_deref().unwrap_or_default();
        let exists = toleration.operator.as_deref() == Some("Exists");
        (effect.is_empty() || effect == taint.effect)
            && (key == taint.key || (key.is_empty() && exists))
            && (exists
                || toleration.value.as_deref().unwrap_or_default()
                    == taint.value.as_deref().unwrap_or_default())
    })
}
