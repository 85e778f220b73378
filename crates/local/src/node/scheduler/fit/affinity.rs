//! Terms of affinities.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Node, NodeSelectorTerm, Pod, PodAffinityTerm};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

use super::is_active;

/// Whether a node matches a term. An empty term matches none.
pub(super) fn matches_term(term: &NodeSelectorTerm, node: &Node) -> bool {
    let labels = node.metadata.labels.clone().unwrap_or_default();
    let name = node.metadata.name.clone().unwrap_or_default();
    let expressions = term.match_expressions.iter().flatten().all(|expression| {
        let values = expression.values.as_deref().unwrap_or_default();
        holds(&expression.operator, labels.get(&expression.key), values)
    });
    let fields = term.match_fields.iter().flatten().all(|expression| {
        let values = expression.values.as_deref().unwrap_or_default();
        holds(
            &expression.operator,
            (expression.key == "metadata.name").then_some(&name),
            values,
        )
    });
    let says_something = term.match_expressions.is_some() || term.match_fields.is_some();
    says_something && expressions && fields
}

fn holds(operator: &str, value: Option<&String>, values: &[String]) -> bool {
    let number = |text: &String| text.parse::<i64>().ok();
    let bound = values.first().and_then(number);
    match operator {
        "In" => value.is_some_and(|value| values.contains(value)),
        "NotIn" => value.is_none_or(|value| !values.contains(value)),
        "Exists" => value.is_some(),
        "DoesNotExist" => value.is_none(),
        "Gt" => value
            .and_then(number)
            .zip(bound)
            .is_some_and(|(value, bound)| value > bound),
        "Lt" => value
            .and_then(number)
            .zip(bound)
            .is_some_and(|(value, bound)| value < bound),
        _ => false,
    }
}

/// Whether a matching pod is in the topology domain of the node.
pub(super) fn meets(term: &PodAffinityTerm, pod: &Pod, node: &Node, nodes: &[&Node], pods: &[&Pod]) -> bool {
    pods.iter().any(|other| {
        other.metadata.uid != pod.metadata.uid
            && is_active(other)
            && selects(term, pod, other)
            && same_place(term, other, node, nodes)
    })
}

/// Whether the pod matches its own term and no other pod does: the first of a group fits anywhere.
pub(super) fn is_first(term: &PodAffinityTerm, pod: &Pod, pods: &[&Pod]) -> bool {
    let others = pods.iter().any(|other| {
        other.metadata.uid != pod.metadata.uid
            && other.spec.as_ref().is_some_and(|s| s.node_name.is_some())
            && selects(term, pod, other)
    });
    !others && selects(term, pod, pod)
}

/// Whether a term of `owner` selects another pod.
pub(super) fn selects(term: &PodAffinityTerm, owner: &Pod, other: &Pod) -> bool {
    let named = term
        .namespaces
        .as_ref()
        .filter(|namespaces| !namespaces.is_empty());
    let namespace = match named {
        Some(namespaces) => other
            .metadata
            .namespace
            .as_ref()
            .is_some_and(|namespace| namespaces.contains(namespace)),
        None => term.namespace_selector.is_some() || owner.metadata.namespace == other.metadata.namespace,
    };
    let labels = other.metadata.labels.clone().unwrap_or_default();
    namespace
        && term
            .label_selector
            .as_ref()
            .is_some_and(|selector| matches_labels(selector, &labels))
}

fn matches_labels(selector: &LabelSelector, labels: &BTreeMap<String, String>) -> bool {
    let equal = selector
        .match_labels
        .iter()
        .flatten()
        .all(|(key, value)| labels.get(key) == Some(value));
    let expressions = selector.match_expressions.iter().flatten().all(|expression| {
        let values = expression.values.as_deref().unwrap_or_default();
        holds(&expression.operator, labels.get(&expression.key), values)
    });
    equal && expressions
}

/// Whether a pod is in the topology domain of a node.
pub(super) fn same_place(term: &PodAffinityTerm, other: &Pod, node: &Node, nodes: &[&Node]) -> bool {
    let label = |node: &Node| {
        node.metadata
            .labels
            .as_ref()
            .and_then(|labels| labels.get(&term.topology_key).cloned())
    };
    let theirs = other.spec.as_ref().and_then(|spec| spec.node_name.clone());
    let theirs = nodes
        .iter()
        .find(|known| theirs.is_some() && known.metadata.name == theirs);
    let (here, there) = (label(node), theirs.and_then(|node| label(node)));
    here.is_some() && here == there
}
