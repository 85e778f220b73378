//! `spec.completion`: when a job has succeeded or failed.

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// When the job as a whole has succeeded or failed: each list holds alternatives, any of which is
/// enough.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Completion {
    /// The job succeeds when all roles of one of these sets have succeeded. Empty: the framework's
    /// default.
    #[serde(default)]
    #[schemars(length(max = 16), default)]
    pub succeeded_when: Vec<RoleSet>,

    /// The job fails when all roles of one of these sets have failed. Empty: the framework's
    /// default.
    #[serde(default)]
    #[schemars(length(max = 16), default)]
    pub failed_when: Vec<RoleSet>,
}

/// A set of roles, all of which must have reached a state.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct RoleSet {
    /// Names of roles of this job.
    #[schemars(length(min = 1, max = 16), inner(length(min = 1, max = 32)))]
    #[x_kube(merge_strategy = ListMerge::Set)]
    pub all_of: Vec<String>,
}
