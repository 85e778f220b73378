//! The fields of a disruption budget that decisions need.

use k8s_openapi::api::policy::v1::PodDisruptionBudgetSpec;
use serde::Deserialize;
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
            spec: self.spec,
        }
    }
}
