//! The fields of a disruption budget that decisions need.

use k8s_openapi::api::policy::v1::PodDisruptionBudgetSpec;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use serde::Deserialize;
use trainyard_api::names::{self, MANAGED_BY};
use trainyard_core::disruption_budget::size;
use trainyard_core::view::BudgetRow;

use super::Meta;

/// A disruption budget without its status, which changes with every pod that it selects.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct SlimBudget {
    #[serde(default)]
    pub metadata: Meta,
    #[serde(default)]
    spec: PodDisruptionBudgetSpec,
}

/// A selector that has more labels and values is not kept: all jobs of its namespace would compare
/// their pods with it, again and again. None of ours has as many, whoever says that it is.
const MAX_VALUES: usize = 256;
/// Nor one with more bytes: anybody may make budgets in their namespace, and all are kept in
/// memory.
const MAX_BYTES: usize = 4096;

impl SlimBudget {
    pub fn into_row(mut self) -> BudgetRow {
        if let Some(selector) = self.spec.selector.as_mut().filter(|selector| is_large(selector)) {
            // As if it selected all pods: a job goes on without a budget, and pods with two can't
            // be evicted.
            *selector = LabelSelector::default();
        }
        BudgetRow {
            name: self.metadata.name.clone(),
            uid: self.metadata.uid.clone(),
            terminating: self.metadata.terminating(),
            is_orphan: is_orphan(&self.metadata),
            spec: self.spec,
        }
    }
}

fn is_large(selector: &LabelSelector) -> bool {
    let labels = selector.match_labels.iter().flatten();
    let labels = labels.map(|(label, value)| label.len() + value.len());
    let expressions = selector.match_expressions.iter().flatten();
    let values = expressions.map(|one| {
        let values = one.values.iter().flatten().map(String::len);
        one.key.len() + one.operator.len() + values.sum::<usize>()
    });
    size(selector) > MAX_VALUES || labels.chain(values).sum::<usize>() > MAX_BYTES
}

fn is_orphan(metadata: &Meta) -> bool {
    let labels = metadata.labels.as_ref();
    let is_ours = labels.and_then(|labels| labels.managed_by.as_deref()) == Some(MANAGED_BY);
    let job = labels.and_then(|labels| labels.job.as_deref());
    let has_name = job.is_some_and(|job| *metadata.name == *names::disruption_budget(job));
    is_ours && has_name && metadata.owner_references.iter().flatten().next().is_none()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn selector(values: &[String], owner: &Value) -> LabelSelector {
        let json = json!({
            "metadata": {"name": "x", "ownerReferences": owner},
            "spec": {"selector": {"matchExpressions": [{"key": "app", "operator": "In", "values": values}]}},
        });
        let budget: SlimBudget = serde_json::from_str(&json.to_string()).unwrap();
        budget.into_row().spec.selector.unwrap()
    }

    /// Anybody may say that a job is the owner of what they make.
    #[test]
    fn a_large_selector_counts_as_one_of_all_pods_whoever_is_its_owner() {
        let job = json!([{"apiVersion": "trainyard.dev/v1alpha1", "kind": "TrainingJob", "name": "a", "uid": "u1",
            "controller": true}]);
        let many = |count: usize| -> Vec<String> { (0..count).map(|value| value.to_string()).collect() };
        let long = |bytes: usize| vec!["x".repeat(bytes - "appIn".len())];
        for owner in [Value::Null, job] {
            for small in [many(MAX_VALUES - 1), long(MAX_BYTES)] {
                assert_ne!(selector(&small, &owner), LabelSelector::default());
            }
            for large in [many(MAX_VALUES), long(MAX_BYTES + 1)] {
                assert_eq!(selector(&large, &owner), LabelSelector::default());
            }
        }
    }
}
