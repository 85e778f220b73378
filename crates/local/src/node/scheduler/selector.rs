//! Selectors of nodes and pods.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Node, NodeSelectorRequirement, NodeSelectorTerm, Pod, PodAffinityTerm, PodSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::ResourceExt;

/// Whether a node is one that a pod's selector and required affinity ask for.
pub fn node_wanted(spec: &PodSpec, node: &Node) -> bool {
    let labels = node.labels();
    let mut selector = spec.node_selector.iter().flatten();
    let required = spec
        .affinity
        .as_ref()
        .and_then(|affinity| affinity.node_affinity.as_ref())
        .and_then(|affinity| affinity.required_during_scheduling_ignored_during_execution.as_ref());
    selector.all(|(name, value)| labels.get(name) == Some(value))
        && required.is_none_or(|required| {
            required
                .node_selector_terms
                .iter()
                .any(|term| node_term_matches(term, node))
        })
}

/// Whether a term means a node. An empty one means none.
pub fn node_term_matches(term: &NodeSelectorTerm, node: &Node) -> bool {
    let by_label = term.match_expressions.as_deref().unwrap_or_default();
    let by_field = term.match_fields.as_deref().unwrap_or_default();
    let name = BTreeMap::from([("metadata.name".to_owned(), node.name_any())]);
    !(by_label.is_empty() && by_field.is_empty())
        && by_label
            .iter()
            .all(|requirement| requirement_holds(requirement, node.labels()))
        && by_field
            .iter()
            .all(|requirement| requirement_holds(requirement, &name))
}

fn requirement_holds(requirement: &NodeSelectorRequirement, labels: &BTreeMap<String, String>) -> bool {
    let values = requirement.values.as_deref().unwrap_or_default();
    let value = labels.get(&requirement.key);
    let number = |text: &str| text.parse::<i64>().ok();
    let bound = values.first().and_then(|value| number(value));
    match requirement.operator.as_str() {
        "Gt" => matches!((value.and_then(|value| number(value)), bound), (Some(value), Some(bound)) if value > bound),
        "Lt" => matches!((value.and_then(|value| number(value)), bound), (Some(value), Some(bound)) if value < bound),
        operator => holds(operator, value, values),
    }
}

fn holds(operator: &str, value: Option<&String>, values: &[String]) -> bool {
    match operator {
        "In" => value.is_some_and(|value| values.contains(value)),
        "NotIn" => value.is_none_or(|value| !values.contains(value)),
        "Exists" => value.is_some(),
        "DoesNotExist" => value.is_none(),
        _ => false,
    }
}

/// Whether a pod's term means another pod, wherever that is.
pub fn term_matches(term: &PodAffinityTerm, of: &Pod, other: &Pod) -> bool {
    let namespaces = term.namespaces.as_deref().unwrap_or_default();
    let namespace = other.namespace();
    let in_namespace = if namespaces.is_empty() && term.namespace_selector.is_none() {
        namespace == of.namespace()
    } else {
        // All namespaces are one user's here, and have no labels that would tell them apart.
        term.namespace_selector.is_some() || namespace.is_some_and(|name| namespaces.contains(&name))
    };
    in_namespace
        && term
            .label_selector
            .as_ref()
            .is_some_and(|selector| labels_match(selector, other.labels()))
}

fn labels_match(selector: &LabelSelector, labels: &BTreeMap<String, String>) -> bool {
    let mut equal = selector.match_labels.iter().flatten();
    let mut expressions = selector.match_expressions.iter().flatten();
    equal.all(|(name, value)| labels.get(name) == Some(value))
        && expressions.all(|requirement| {
            let values = requirement.values.as_deref().unwrap_or_default();
            holds(&requirement.operator, labels.get(&requirement.key), values)
        })
}
