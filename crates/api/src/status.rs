//! `TrainingJob.status`: what the operator answers.

#![allow(
    dead_code,
    reason = "KubeSchema copies a struct for its schema, and nobody reads the fields of the copy"
)]

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use trainyard_contract::observer::{MAX_ARTIFACTS, MAX_LOCATION, MAX_METRICS, MAX_NUMBER};

use crate::accepted::{Accepted, AcceptedRules, Fingerprint, MAX_ACCEPTED};
use crate::declaration::MAX_DECLARATION;
use crate::scale_request::ScaleRequestRef;
use crate::words::words;

/// What the operator has seen and done. Written by the operator only.
// The API server records with every write who has written each field and each item of a keyed list:
// for a status that has one writer, that would be more than half of the object. So its parts are
// atomic, but for the conditions, which are keyed in all kinds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase", remote = "Self")]
pub struct TrainingJobStatus {
    /// The generation of the spec that this status answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,

    /// Where the job is in its life.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<JobPhase>,

    /// Ready pods of all pods, such as "3/4".
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32))]
    pub ready: Option<String>,

    /// Accepted, Running, Suspended, Succeeded, Failed, each with its reason and a sentence.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".into()]))]
    pub conditions: Vec<Condition>,

    /// The state of every role.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub roles: Vec<RoleStatus>,

    /// How many pods the elastic role has, with those that are joining or leaving.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replicas: Option<i32>,

    /// The labels of the pods of the elastic role: what a HorizontalPodAutoscaler measures.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 512))]
    pub selector: Option<String>,

    /// The change of size that is under way, or the pods that leave nodes which are about to go.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(merge_strategy = MapMerge::Atomic)]
    pub scaling: Option<Box<Scaling>>,

    /// The value of `spec.elastic.replicas` to which the size was last fitted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target_replicas: Option<i32>,

    /// The indices of pods of the elastic role that were lost and whose names are not used again,
    /// such as "1,4", where the framework does not take them for new pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 65536))]
    pub retired_indices: Option<String>,

    /// When the last change of size was done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_scale_time: Option<Time>,

    /// The ScaleIn or ScaleOut that was last carried out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(merge_strategy = MapMerge::Atomic)]
    pub last_scale_request: Option<Box<ScaleRequestRef>>,

    /// When the job was started, or last resumed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_time: Option<Time>,

    /// When the job ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completion_time: Option<Time>,

    /// Pods that were replaced, and why.
    // The API server writes the default, so that the column of `kubectl get` begins with 0 and not
    // with nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = {"failures": 0, "disruptions": 0}))]
    #[x_kube(merge_strategy = MapMerge::Atomic)]
    pub restarts: Option<Restarts>,

    /// What made the job fail, or the latest failure that was survived.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(merge_strategy = MapMerge::Atomic)]
    pub root_cause: Option<RootCause>,

    /// How far the programs are, as they say themselves, with `spec.progress: Report`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(merge_strategy = MapMerge::Atomic)]
    pub progress: Option<Progress>,

    /// The last checkpoint that the programs have said they wrote.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(merge_strategy = MapMerge::Atomic)]
    pub checkpoint: Option<Checkpoint>,

    /// What the programs reported last, kept when the job has ended, with `spec.progress: Report`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(merge_strategy = MapMerge::Atomic)]
    pub result: Option<JobResult>,

    /// What the running pods were made from and are counted by. For the operator alone.
    // One string, because nobody else reads it: its parts would be half of what the server
    // validates and stores of a status.
    #[serde(default, skip_serializing_if = "Accepted::is_empty")]
    #[schemars(with = "String", length(max = MAX_ACCEPTED))]
    pub accepted: Accepted,

    /// As former versions of the operator wrote it: is read into `accepted`, and not written again.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub accepted_spec: Vec<Fingerprint>,

    /// As former versions of the operator wrote it: is read into `accepted`, and not written again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(merge_strategy = MapMerge::Atomic)]
    pub accepted_rules: Option<AcceptedRules>,

    /// The declaration of the job's framework that the running pods were made by, as JSON, where
    /// the framework is declared: a change of the declaration does not touch a job that runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = MAX_DECLARATION))]
    pub accepted_framework: Option<String>,
}

impl TrainingJobStatus {
    /// Whether pods start anew together at the moment.
    pub fn starts_anew(&self) -> bool {
        let restarts = self.restarts.as_ref();
        restarts.is_some_and(|restarts| restarts.group.is_some())
    }
}

impl Serialize for TrainingJobStatus {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        Self::serialize(self, serializer)
    }
}

impl<'de> Deserialize<'de> for TrainingJobStatus {
    /// Reads what former versions wrote, too, as what this one would have written: that alone is no
    /// change.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut status = Self::deserialize(deserializer)?;
        let former = Accepted {
            spec: std::mem::take(&mut status.accepted_spec),
            rules: status.accepted_rules.take(),
        };
        if status.accepted.is_empty() {
            status.accepted = former;
        }
        Ok(status)
    }
}

/// How far the programs of a job are, as the first of its pods says that says anything.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Progress {
    /// The step that is done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub step: Option<i64>,
    /// The step at which the training ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub total: Option<i64>,
    /// The latest of every other number, as text: `loss: "0.3"`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = MAX_METRICS, "additionalProperties" = {"type": "string", "maxLength": MAX_NUMBER}))]
    pub metrics: BTreeMap<String, String>,
    /// The path or URI of what the programs have made so far, by its name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = MAX_ARTIFACTS, "additionalProperties" = {"type": "string", "maxLength": MAX_LOCATION}))]
    pub artifacts: BTreeMap<String, String>,
    /// When these values were written here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time: Option<Time>,
}

/// A checkpoint that the programs of a job have written.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Checkpoint {
    /// The step that it was written at.
    #[schemars(range(min = 0))]
    pub step: i64,
    /// When this was written here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time: Option<Time>,
    /// How often all pods had started anew. Until they do again, the step does not go back.
    #[serde(default)]
    #[schemars(range(min = 0))]
    pub attempt: i32,
}

/// What the programs of a job reported last.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct JobResult {
    /// The last value of every metric, as text: `loss: "0.3"`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = MAX_METRICS, "additionalProperties" = {"type": "string", "maxLength": MAX_NUMBER}))]
    pub metrics: BTreeMap<String, String>,
    /// The path or URI of what the programs have made, by its name: `model: "s3://b/model.pt"`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = MAX_ARTIFACTS, "additionalProperties" = {"type": "string", "maxLength": MAX_LOCATION}))]
    pub artifacts: BTreeMap<String, String>,
}

impl Progress {
    /// What is left of it at the end of a job. `None` if there is neither a metric nor an artifact.
    pub fn result(&self) -> Option<JobResult> {
        let result = JobResult {
            metrics: self.metrics.clone(),
            artifacts: self.artifacts.clone(),
        };
        Some(result).filter(|result| *result != JobResult::default())
    }
}

/// A change of the size of an elastic job, or pods that leave nodes which are about to go.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Scaling {
    /// How many pods the role had.
    pub from: i32,
    /// How many pods it comes to have.
    pub to: i32,
    /// How far it is: with pods that leave, the step that all of them have reached.
    pub step: ScalingStep,
    /// When it began. Of a change for which all pods start anew: when they were told to leave, and
    /// then when they were created.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Time>,
    /// When pods that have not left by then are deleted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<Time>,
    /// The indices of the pods that leave, such as "2,6-7". They were chosen before anything was
    /// done, and do not change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 65536))]
    pub victims: Option<String>,
    /// The indices of those of them whose programs know.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 65536))]
    pub acknowledged: Option<String>,
    /// The indices of those of them that have written their checkpoints.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 65536))]
    pub checkpointed: Option<String>,
    /// The indices of the pods that join.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 65536))]
    pub joining: Option<String>,
    /// The roles whose pods all leave and start anew, where the framework is rigid: then these say
    /// who leaves and who joins.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub roles: Vec<RestartedRole>,
    /// The nodes that these pods leave because they are about to go: the first 64 of them. Where
    /// `roles` are given, their pods then start anew at the size that they have.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), inner(length(max = 253)))]
    pub nodes: Vec<String>,
    /// The ScaleIn or ScaleOut that has asked for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<ScaleRequestRef>,
    /// Why these pods leave.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 2048))]
    pub message: Option<String>,
}

impl Scaling {
    /// Whether all pods of the job start anew.
    pub fn restarts_all(&self) -> bool {
        !self.roles.is_empty()
    }

    /// Whether pods leave nodes that are about to go.
    pub fn evades(&self) -> bool {
        !self.nodes.is_empty()
    }
}

/// A role whose pods all start anew because the size of the job changes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RestartedRole {
    /// The name of the role.
    #[schemars(length(max = 32))]
    pub name: String,
    /// The indices of the pods that leave, such as "0-3".
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 65536))]
    pub victims: Option<String>,
    /// The indices of those of them whose programs know.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 65536))]
    pub acknowledged: Option<String>,
    /// The indices of those of them that have written their checkpoints.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 65536))]
    pub checkpointed: Option<String>,
    /// The indices of the pods that take their place.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 65536))]
    pub joining: Option<String>,
}

words! {
    /// How far a change of size is.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
    pub enum ScalingStep {
        /// Pods are created and start.
        Joining,
        /// The pods that leave are told to.
        #[default]
        Requested,
        /// They have said that they know.
        Acknowledged,
        /// They have written their checkpoints.
        CheckpointDone,
        /// All pods have left and are deleted. Then all start anew.
        Restarting,
    }
}

words! {
    /// Where a job is in its life.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
    pub enum JobPhase {
        /// Nothing has been created: the job is new, or was not accepted.
        Pending,
        /// Pods have been created and do not all run yet.
        Starting,
        /// All roles run.
        Running,
        /// The number of pods is changing.
        Scaling,
        /// Pods that ended, or were made from another template, are being replaced.
        Restarting,
        /// Fewer pods run than the job needs at least.
        Paused,
        /// The user has suspended the job, and its pods are being removed.
        Suspending,
        /// The user has suspended the job, and it holds no pods.
        Suspended,
        /// The job ended well. Final.
        Succeeded,
        /// The job ended badly. Final.
        Failed,
    }
}

impl JobPhase {
    /// Whether the phase is final.
    pub const fn is_terminal(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed)
    }

    /// Whether the job has been suspended, be its pods gone or not.
    pub const fn is_suspended(self) -> bool {
        matches!(self, Self::Suspending | Self::Suspended)
    }
}

/// Where a role is in its life.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum RolePhase {
    /// No pod of the role exists yet.
    #[default]
    Pending,
    /// Some pods do not run yet.
    Starting,
    /// All pods run, or have succeeded.
    Running,
    /// The role's rule for success holds.
    Succeeded,
    /// The role's rule for failure holds, or the job failed because of it.
    Failed,
    /// The job ended before the role did, and its pods were removed.
    Stopped,
}

impl RolePhase {
    /// Whether the phase is final.
    pub const fn is_terminal(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed | Self::Stopped)
    }
}

/// The state of one role.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RoleStatus {
    /// The role's name.
    #[schemars(length(max = 32))]
    pub name: String,
    /// Where the role is in its life.
    pub phase: RolePhase,
    /// Why, in one word, where there is something to say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 128))]
    pub reason: Option<String>,
    /// Why, in a sentence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 2048))]
    pub message: Option<String>,
    /// Pods that run.
    #[serde(default)]
    pub active: i32,
    /// Pods that run and are ready.
    #[serde(default)]
    pub ready: i32,
    /// Pods that have succeeded.
    #[serde(default)]
    pub succeeded: i32,
    /// Pods that have failed and are still there, or ran, are gone and are not replaced.
    #[serde(default)]
    pub failed: i32,
    /// Pods that do not run yet.
    #[serde(default)]
    pub pending: i32,
    /// Pods that are being removed; they count nowhere else.
    #[serde(default)]
    pub terminating: i32,
    /// The indices of pods that have succeeded, such as "0-3,7": a pod that has done its work is
    /// not run again when somebody removes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 65536))]
    pub succeeded_indices: Option<String>,
    /// The indices of pods that have failed for good, such as "0-3,7".
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 65536))]
    pub failed_indices: Option<String>,
    /// How often pods were replaced, by their indices, such as "0-62x3;63x4": the more often, the
    /// longer the next replacement waits. Counted up to 6, and forgotten when nothing of the job
    /// was replaced for 10 minutes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 65536))]
    pub replacements: Option<String>,
}

/// Pods that were replaced, and why.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Restarts {
    /// How many failures were forgiven; `backoffLimit` bounds it. Pods that train as one and ended
    /// because of it do not count again.
    #[serde(default)]
    pub failures: i32,
    /// How many times pods were evicted, removed or lost with their node. Those that ended because
    /// of it do not count again.
    #[serde(default)]
    pub disruptions: i32,
    /// The latest replacements, newest last.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 20))]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub history: Vec<RestartRecord>,
    /// Pods whose end has been counted and whose replacement does not exist yet.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256))]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub replacing: Vec<PendingReplacement>,
    /// The latest failures, disruptions and updates, as ends of other pods may be what came of
    /// them: one for each role, or one for the job where all its pods train as one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub incidents: Vec<Incident>,
    /// How often all pods of a role have started anew together, of the roles where they have. Pods
    /// of a former attempt are removed, and nobody talks to them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub attempts: Vec<RoleAttempt>,
    /// The pods that are starting anew together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(merge_strategy = MapMerge::Atomic)]
    pub group: Option<GroupRestart>,
}

/// How often all pods of a role have started anew together.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RoleAttempt {
    /// The role's name.
    #[schemars(length(max = 32))]
    pub role: String,
    /// How often. Its pods have this number in their annotation `trainyard.dev/attempt`.
    #[schemars(range(min = 0))]
    pub attempt: i32,
}

/// Pods that start anew together because one of them ended. The old ones are deleted; when none
/// exists any more, the new ones are created; when all run, it is over.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GroupRestart {
    /// The roles whose pods all start anew.
    #[schemars(length(max = 16), inner(length(max = 32)))]
    pub roles: Vec<String>,
    /// The pod that ended.
    #[schemars(length(max = 63))]
    pub pod: String,
    /// When it began.
    pub since: Time,
    /// The new pods are not created earlier.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_before: Option<Time>,
}

/// The end of a pod, and those that came of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Incident {
    /// The pod that ended first.
    #[schemars(length(max = 63))]
    pub pod: String,
    /// What ended it. All that came of it is counted as this.
    pub cause: RestartCause,
    /// When that was, if it is known. What ended before did not come of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_time: Option<Time>,
    /// When the latest of its pods ended. What ends more than 10 s later is an incident of its own.
    pub last_time: Time,
    /// The pods that have ended in it. When all have that train together, it is over.
    #[serde(default)]
    #[schemars(length(max = 16))]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub ended: Vec<EndedPods>,
}

/// Pods of one role that have ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EndedPods {
    /// The role's name.
    #[schemars(length(max = 32))]
    pub role: String,
    /// Their indices, such as "0-3,7".
    #[schemars(length(max = 65536))]
    pub indices: String,
}

/// What ended a pod that was replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum RestartCause {
    /// Its program failed.
    Failure,
    /// It was evicted, removed or lost with its node.
    Disruption,
    /// It ended well, and its role restarts always.
    Completion,
    /// It was made from another template, and the job's update policy is Roll.
    Update,
}

/// One replacement.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RestartRecord {
    /// When the end of the pod was seen.
    pub time: Time,
    /// The pod's name, which its replacement has too.
    #[schemars(length(max = 63))]
    pub pod: String,
    /// What ended it.
    pub cause: RestartCause,
    /// The exit code of its main container, where it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// Why, in one word.
    #[schemars(length(max = 128))]
    pub reason: String,
    /// How many other pods ended because of it, and were replaced with it.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub consequences: i32,
    /// The node that the pod was on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub node: Option<String>,
    /// The step that the programs had reported last, with `spec.progress: Report`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<i64>,
    /// The step of their last checkpoint, from which they can go on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checkpoint: Option<i64>,
    /// How long the job did not run because of it: from the end of the pod until all roles ran
    /// again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seconds: Option<i64>,
    /// The first step that the programs reported when all roles ran again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step_after: Option<i64>,
    /// How many steps were done that have to be done again: those since the last checkpoint if all
    /// pods start anew, and as many as the programs are seen to have gone back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub steps_lost: Option<i64>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands over a reference")]
fn is_zero(number: &i32) -> bool {
    *number == 0
}

/// A pod whose end has been counted and whose replacement does not exist yet.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PendingReplacement {
    /// The pod's name.
    #[schemars(length(max = 63))]
    pub pod: String,
    /// The UID of the pod that ended; empty if it was found missing.
    #[serde(default)]
    #[schemars(length(max = 64))]
    pub uid: String,
    /// The replacement is not created earlier.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_before: Option<Time>,
    /// What its end was counted as; nothing if it counts nowhere.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<RestartCause>,
    /// Whether it was counted when it was asked to go, and may have run on.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub leaving: bool,
}

/// What made a job fail.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RootCause {
    /// The role of the pod.
    #[schemars(length(max = 32))]
    pub role: String,
    /// The pod that failed first.
    #[schemars(length(max = 63))]
    pub pod: String,
    /// The node it was on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub node: Option<String>,
    /// The container that failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub container: Option<String>,
    /// Its exit code.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// The signal that ended it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<i32>,
    /// Why, in one word: Error, OOMKilled, Evicted, ...
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 128))]
    pub reason: Option<String>,
    /// The container's own last words: its termination message, or the end of its log.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 2048))]
    pub message: Option<String>,
    /// When it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time: Option<Time>,
}
