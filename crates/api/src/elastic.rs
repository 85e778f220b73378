//! `spec.elastic`: a job that may change its size while it runs.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::words::words;

/// The role of a job that grows and shrinks while it trains, and how far.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Elastic {
    /// The role whose number of pods changes. Its own `replicas` is left out. It can't be changed.
    /// Default: `worker`, or the only role of the job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 32))]
    pub role: Option<String>,

    /// How many pods the role should have: what `kubectl scale` writes, a HorizontalPodAutoscaler,
    /// a ScaleOut or a ScaleIn. The pods that leave are told first, and have time for a checkpoint.
    #[schemars(range(min = 1, max = 10000))]
    pub replicas: i32,

    /// The fewest pods with which the job trains. With fewer it waits, in the phase Paused.
    /// Default: 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 10000))]
    pub min_replicas: Option<i32>,

    /// The most pods that the role may have. Default: 10000.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 10000))]
    pub max_replicas: Option<i32>,

    /// The sizes that the training can have, where not every number will do. Default: all from
    /// `minReplicas` to `maxReplicas`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub valid_sizes: Option<ValidSizes>,

    /// How many pods the job starts with. Target: `replicas`. Min: `minReplicas`, and the others
    /// join once the job runs. Default: Target.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "StartAt")]
    pub start_at: Option<StartAt>,

    /// What becomes of the place of a pod that was lost. Always: another pod joins. Never: the job
    /// goes on without it, until `replicas` is changed. Default: Always.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Refill")]
    pub refill: Option<Refill>,

    /// What a change of `replicas` does where pods are told of their number at the start, as those
    /// of jax are. Restart: all pods of the job are told to leave, and start anew. Refuse: the job
    /// goes on with the pods that it has. Only for such frameworks. Default: Restart.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "RigidPolicy")]
    pub rigid: Option<RigidPolicy>,

    /// Seconds that a pod has to leave, from when it is told: it ends what it does, writes a
    /// checkpoint and exits. After that it is deleted. Where this is set, pods also leave nodes
    /// that are about to go. Default: `runPolicy.drainTimeoutSeconds`, or else 300.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 86_400))]
    pub drain_timeout_seconds: Option<i64>,

    /// Seconds that a job may be paused, with fewer than `minReplicas` pods, before it fails.
    /// Absent: no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub pause_timeout_seconds: Option<i64>,
}

/// The sizes that a training can have: one of these.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ValidSizes {
    /// These numbers of pods, such as 2, 4, 8.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 64), inner(range(min = 1, max = 10000)))]
    pub values: Option<Vec<i32>>,
    /// `minReplicas` and that many more, any number of times.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 10000))]
    pub step: Option<i32>,
}

words! {
    /// How many pods an elastic job starts with.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
    pub enum StartAt {
        /// `replicas`.
        #[default]
        Target,
        /// `minReplicas`.
        Min,
    }
}

words! {
    /// What becomes of the place of a pod that was lost.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
    pub enum Refill {
        /// Another pod joins.
        #[default]
        Always,
        /// The job goes on without it.
        Never,
    }
}

words! {
    /// What a change of size does where pods are told of their number at the start.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
    pub enum RigidPolicy {
        /// All pods start anew.
        #[default]
        Restart,
        /// Nothing: the job goes on with the pods that it has.
        Refuse,
    }
}

/// The default of `drainTimeoutSeconds`.
pub const DRAIN_TIMEOUT_SECONDS: i64 = 300;
/// The most pods that a role may have.
pub const MAX_REPLICAS: i32 = 10_000;

impl Elastic {
    /// The fewest pods with which the job trains.
    pub fn min(&self) -> i32 {
        self.min_replicas.unwrap_or(1)
    }

    /// The most pods that the role may have.
    pub fn max(&self) -> i32 {
        self.max_replicas.unwrap_or(MAX_REPLICAS)
    }

    /// Whether the training can have so many pods.
    pub fn is_valid_size(&self, size: i32) -> bool {
        let sizes = self.valid_sizes.as_ref();
        let listed = |sizes: &ValidSizes| sizes.values.as_ref().is_none_or(|values| values.contains(&size));
        let in_steps = |sizes: &ValidSizes| {
            let step = sizes.step.filter(|step| *step > 0);
            step.is_none_or(|step| size.saturating_sub(self.min()) % step == 0)
        };
        (self.min()..=self.max()).contains(&size)
            && sizes.is_none_or(|sizes| listed(sizes) && in_steps(sizes))
    }

    /// The largest size that the training can have and that is no larger than a number; `None` if
    /// there is none.
    pub fn largest_size_within(&self, number: i32) -> Option<i32> {
        let largest = number.min(self.max());
        (self.min()..=largest)
            .rev()
            .find(|size| self.is_valid_size(*size))
    }
}
