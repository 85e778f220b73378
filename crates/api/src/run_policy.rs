//! `spec.runPolicy`: limits in time and number, and what is left behind at the end.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Limits in time and number, and what is left behind at the end.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RunPolicy {
    /// Which pods are deleted when the job ends. Running: those that have not ended, so that a
    /// finished job holds no accelerator and its logs stay. All: all of them, and the job's
    /// Services. None: none. Default: Running.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "CleanPodPolicy")]
    pub clean_pod_policy: Option<CleanPodPolicy>,

    /// Seconds after its end, good or bad, at which the job itself is deleted, with all it owns.
    /// Absent: never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub ttl_seconds_after_finished: Option<i64>,

    /// Seconds after a failure at which the pods and Services that `cleanPodPolicy` left are
    /// deleted; the job and its status stay. Absent: never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub ttl_seconds_after_failed: Option<i64>,

    /// Seconds after its start (or its last resumption) at which a job that has not ended fails.
    /// Absent: no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub active_deadline_seconds: Option<i64>,

    /// How many failed pods the job may replace before it fails. Evictions and lost nodes do not
    /// count. It may be raised while the job runs, not lowered. Default: 6.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 100_000))]
    pub backoff_limit: Option<i32>,

    /// Seconds that pods have to write a checkpoint and exit, from when they are told to leave:
    /// when the job is suspended, when one of them is taken away, and when their node is about to
    /// go (cordoned, or marked by an autoscaler or a provider), which they then leave in order.
    /// After that they are deleted. `elastic.drainTimeoutSeconds` wins where it is set. Pods that
    /// were created before this was set are not told, and asked by SIGTERM. Absent: pods are
    /// deleted without being told, and stay on nodes that are about to go.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 86_400))]
    pub drain_timeout_seconds: Option<i64>,

    /// What becomes of a change of `replicas` or `template` of a role while the job runs. Refuse:
    /// it is refused; such changes are possible while the job is suspended. Roll: pods are added
    /// and removed, and those made from another template are replaced, one after the other. It can
    /// be changed only while the job is suspended. Default: Refuse.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "UpdatePolicy")]
    pub update_policy: Option<UpdatePolicy>,
}

/// What becomes of a change of `replicas` or `template` of a role while the job runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum UpdatePolicy {
    /// It is refused.
    #[default]
    Refuse,
    /// Pods are added, removed and replaced while the others run.
    Roll,
}

/// Which pods are deleted when the job ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum CleanPodPolicy {
    /// All pods, and the job's Services.
    All,
    /// Pods that have not ended.
    #[default]
    Running,
    /// No pods.
    None,
}
