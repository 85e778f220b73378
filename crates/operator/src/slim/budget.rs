//! The fields of a disruption budget that decisions need.

use k8s_openapi::api::policy::v1::PodDisruptionBudgetSpec;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use serde::Deserialize;
use trainyard_api::names::{self, MANAGED_BY};
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

/// A selector of somebody else's that has more labels and values is not kept: all jobs of its
/// namespace would compare their pods with it, again and again.
const MAX_VALUES: usize = 256;

impl SlimBudget {
    pub fn into_row(mut self) -> BudgetRow {
        let selector = self.spec.selector.as_mut();
        if let Some(selector) =
            selector.filter(|selector| is_large(selector) && self.metadata.job().is_none())
        {
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
    let expressions = selector.match_expressions.iter().flatten();
    let values = expressions.map(|one| 1 + one.values.as_ref().map_or(0, Vec::len));
    let labels = selector.match_labels.iter().flatten().count();
    labels + values.sum::<usize>() > MAX_VALUES
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

    #[test]
    fn a_large_selector_of_somebody_else_counts_as_one_of_all_pods() {
        let selector = |values: usize, owner: Value| {
            let values: Vec<_> = (0..values).map(|value| value.to_string()).collect();
            let json = json!({
                "metadata": {"name": "x", "ownerReferences": owner},
                "spec": {"selector": {"matchExpressions": [{"key": "app", "operator": "In", "values": values}]}},
            });
            let budget: SlimBudget = serde_json::from_str(&json.to_string()).unwrap();
            budget.into_row().spec.selector.unwrap()
        };
        let job = json!([{"apiVersion": "trainyard.dev/v1alpha1", "kind": "TrainingJob", "name": "a", "uid": "u1",
            "controller": true}]);
        assert_ne!(selector(MAX_VALUES - 1, Value::Null), LabelSelector::default());
        assert_eq!(selector(MAX_VALUES, Value::Null), LabelSelector::default());
        assert_ne!(selector(MAX_VALUES, job), LabelSelector::default());
    }
}
