//! The fields of a disruption budget that decisions need.

use k8s_openapi::api::policy::v1::PodDisruptionBudgetSpec;
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

impl SlimBudget {
    pub fn into_row(self) -> BudgetRow {
        BudgetRow {
            name: self.metadata.name.clone(),
            uid: self.metadata.uid.clone(),
            terminating: self.metadata.terminating(),
            is_orphan: is_orphan(&self.metadata),
            spec: self.spec,
        }
    }
}

fn is_orphan(metadata: &Meta) -> bool {
    let labels = metadata.labels.as_ref();
    let is_ours = labels.and_then(|labels| labels.managed_by.as_deref()) == Some(MANAGED_BY);
    let job = labels.and_then(|labels| labels.job.as_deref());
    let has_name = job.is_some_and(|job| *metadata.name == *names::disruption_budget(job));
    is_ours && has_name && metadata.owner_references.iter().flatten().next().is_none()
}
