//! `ScaleIn` and `ScaleOut`: requests to change the size of an elastic job.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::words::words;

/// The default of `timeoutSeconds`.
pub const TIMEOUT_SECONDS: i64 = 60;
/// The most pods or nodes that a request can name.
pub const MAX_NAMED: usize = 1000;
/// The longest `script`, in characters.
pub const MAX_SCRIPT: usize = 1024;
/// The most arguments of a script.
pub const MAX_ARGS: usize = 32;
/// The longest argument of a script, in characters.
pub const MAX_ARG: usize = 1024;
/// The most variables of a script.
pub const MAX_VARIABLES: usize = 32;
/// The longest name of a variable of a script, in characters.
pub const MAX_VARIABLE_NAME: usize = 256;
/// The longest value of a variable of a script, in characters.
pub const MAX_VARIABLE_VALUE: usize = 4096;
/// The most attempts after the first one.
pub const MAX_BACKOFF_LIMIT: i32 = 100;

/// Asks an elastic job to do with fewer pods: so many of them, or those that are named.
#[allow(clippy::duplicated_attributes, reason = "every printed column has a type")]
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[kube(
    group = "trainyard.dev",
    version = "v1alpha1",
    kind = "ScaleIn",
    plural = "scaleins",
    shortname = "si",
    namespaced,
    status = "ScaleRequestStatus",
    derive = "PartialEq",
    derive = "Default",
    doc = "Asks an elastic job to do with fewer pods: so many of them, or those that are named.",
    printcolumn(name = "Job", type_ = "string", json_path = ".spec.jobRef.name"),
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase"),
    printcolumn(
        name = "From",
        type_ = "integer",
        json_path = ".status.from",
        description = "How many pods the job had"
    ),
    printcolumn(
        name = "To",
        type_ = "integer",
        json_path = ".status.to",
        description = "How many pods it is to have"
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(
        name = "Message",
        type_ = "string",
        json_path = ".status.message",
        priority = 1
    )
)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("self == oldSelf").message("can't be changed: create another request instead")
)]
pub struct ScaleInSpec {
    /// The job that is to have fewer pods, in the namespace of the request.
    pub job_ref: JobRef,

    /// The pods that leave: a number of them, their names, or the nodes that they are on.
    // A request without it is read, so that its status can say what is missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "ToDelete")]
    pub to_delete: Option<ToDelete>,

    /// What happens if the job can't have that size. Refuse: the request fails, and nobody leaves.
    /// Clamp: as many leave as can. Default: Refuse.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "ScalePolicy")]
    pub policy: Option<ScalePolicy>,

    /// Seconds that the pods have to leave, from when they are told. Default: what the job says in
    /// `spec.elastic.drainTimeoutSeconds`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 86_400))]
    pub drain_timeout_seconds: Option<i64>,

    /// A program of the launcher's container that is run there before they are told, with the pods
    /// that leave as its last argument: `host:slots,host:slots`. No shell reads it or its
    /// variables. A file that is not executable is run by `sh`. If it fails, nobody leaves. Only
    /// jobs with a launcher that has a command can run it. Whoever creates such a request needs the
    /// right to `create pods/exec` in this namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = MAX_SCRIPT))]
    pub script: Option<String>,

    /// Arguments of the script, before the one with the pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = MAX_ARGS), inner(length(max = MAX_ARG)))]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub args: Option<Vec<String>>,

    /// Variables of the script, besides those of the launcher's container.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = MAX_VARIABLES))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
    pub env: Option<Vec<ScriptVariable>>,

    /// How often a script that fails is tried again. Default: 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = MAX_BACKOFF_LIMIT))]
    pub backoff_limit: Option<i32>,

    /// Seconds that the request waits for a job that does not exist, that each attempt of the
    /// script may take, and then for the change to begin. After that it fails. Default: 60.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 86_400))]
    pub timeout_seconds: Option<i64>,

    /// Seconds after which the request is deleted once it has ended. Absent: it is deleted with its
    /// job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub ttl_seconds_after_finished: Option<i64>,
}

/// Asks an elastic job to take more pods.
#[allow(clippy::duplicated_attributes, reason = "every printed column has a type")]
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[kube(
    group = "trainyard.dev",
    version = "v1alpha1",
    kind = "ScaleOut",
    plural = "scaleouts",
    shortname = "so",
    namespaced,
    status = "ScaleRequestStatus",
    derive = "PartialEq",
    derive = "Default",
    doc = "Asks an elastic job to take more pods.",
    printcolumn(name = "Job", type_ = "string", json_path = ".spec.jobRef.name"),
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase"),
    printcolumn(
        name = "From",
        type_ = "integer",
        json_path = ".status.from",
        description = "How many pods the job had"
    ),
    printcolumn(
        name = "To",
        type_ = "integer",
        json_path = ".status.to",
        description = "How many pods it is to have"
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(
        name = "Message",
        type_ = "string",
        json_path = ".status.message",
        priority = 1
    )
)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("self == oldSelf").message("can't be changed: create another request instead")
)]
pub struct ScaleOutSpec {
    /// The job that is to have more pods, in the namespace of the request.
    pub job_ref: JobRef,

    /// The pods that join.
    // A request without it is read, so that its status can say what is missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "ToAdd")]
    pub to_add: Option<ToAdd>,

    /// What happens if the job can't have that size. Refuse: the request fails, and nobody joins.
    /// Clamp: as many join as can. Default: Refuse.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "ScalePolicy")]
    pub policy: Option<ScalePolicy>,

    /// A program of the launcher's container that is run there when they run, with the pods that
    /// have joined as its last argument: `host:slots,host:slots`. No shell reads it or its
    /// variables. A file that is not executable is run by `sh`. If it fails, the new pods are
    /// removed. Only jobs with a launcher that has a command can run it. Whoever creates such a
    /// request needs the right to `create pods/exec` in this namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = MAX_SCRIPT))]
    pub script: Option<String>,

    /// Arguments of the script, before the one with the pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = MAX_ARGS), inner(length(max = MAX_ARG)))]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub args: Option<Vec<String>>,

    /// Variables of the script, besides those of the launcher's container.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = MAX_VARIABLES))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
    pub env: Option<Vec<ScriptVariable>>,

    /// How often a script that fails is tried again. Default: 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = MAX_BACKOFF_LIMIT))]
    pub backoff_limit: Option<i32>,

    /// Seconds that the request waits for a job that does not exist, that the new pods have until
    /// they run, and that each attempt of the script may take. After that it fails: the new pods
    /// are removed, and the job has the size that it had. Default: 60.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 86_400))]
    pub timeout_seconds: Option<i64>,

    /// Seconds after which the request is deleted once it has ended. Absent: it is deleted with its
    /// job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub ttl_seconds_after_finished: Option<i64>,
}

/// The job that a request is about.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct JobRef {
    /// The name of a TrainingJob.
    #[schemars(length(min = 1, max = 63))]
    pub name: String,
}

/// The pods that leave: one of these.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("[has(self.count), has(self.podNames), has(self.nodeNames)].filter(given, given).size() == 1")
        .message("give one of count, podNames and nodeNames")
)]
pub struct ToDelete {
    /// So many; which, the operator decides.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 10000))]
    pub count: Option<i32>,

    /// These pods of the job. If one of them is not its, nobody leaves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = MAX_NAMED), inner(length(min = 1, max = 63)))]
    #[x_kube(merge_strategy = ListMerge::Set)]
    pub pod_names: Option<Vec<String>>,

    /// All pods of the job on these nodes. If one of the nodes has none, nobody leaves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = MAX_NAMED), inner(length(min = 1, max = 253)))]
    #[x_kube(merge_strategy = ListMerge::Set)]
    pub node_names: Option<Vec<String>>,
}

/// The pods that join.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ToAdd {
    /// How many pods join the job.
    #[schemars(range(min = 1, max = 10000))]
    pub count: i32,
}

/// A variable of a script.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ScriptVariable {
    /// The variable's name, without `=`.
    #[schemars(length(min = 1, max = MAX_VARIABLE_NAME))]
    pub name: String,
    /// Its value, as it is. Default: empty.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = MAX_VARIABLE_VALUE))]
    pub value: Option<String>,
}

words! {
    /// What happens if a job can't have the size that a request asks for.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
    pub enum ScalePolicy {
        /// The request fails.
        #[default]
        Refuse,
        /// The job comes as near to it as it can.
        Clamp,
    }
}

/// What became of a request. Written by the operator only.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct ScaleRequestStatus {
    /// Where the request is in its life: the last of its conditions that came true.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<ScalePhase>,

    /// Created, Scaling, ScriptExecuted, ScaleSucceeded, ScaleFailed, each with its reason and a
    /// sentence.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 8))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".into()]))]
    pub conditions: Vec<Condition>,

    /// The value of `spec.elastic.replicas` of the job when the change was decided.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<i32>,

    /// The value that it is to have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<i32>,

    /// The pods that leave. They are chosen before anything is done, and do not change.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 10000), inner(length(max = 63)))]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub victims: Vec<String>,

    /// The pods that have joined, or that were to join and did not run in time.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 10000), inner(length(max = 63)))]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub joining: Vec<String>,

    /// Whether the job is given back the size that it had, because the change was not done in time.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub rollback: bool,

    /// The attempt of the script that is under way, or that was the last one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub script: Option<ScriptStatus>,

    /// When the change was decided.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_time: Option<Time>,

    /// When the request ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completion_time: Option<Time>,

    /// What it waits for, or what became of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 4096))]
    pub message: Option<String>,
}

/// One attempt of a script. It is written before the launcher is told, so that no attempt is made
/// twice.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ScriptStatus {
    /// The number of the attempt, from 1.
    pub attempt: i32,

    /// The pod of the launcher that runs it.
    #[schemars(length(max = 63))]
    pub pod: String,

    /// The UID of that pod. Another pod of this name does not run this attempt.
    #[schemars(length(max = 64))]
    pub pod_uid: String,

    /// When the attempt began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_time: Option<Time>,

    /// When its end was seen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completion_time: Option<Time>,

    /// The exit code of the script; 128 and more if a signal has ended it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,

    /// The end of what the script has printed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 2048))]
    pub output: Option<String>,
}

/// The type of the condition that says whether the script was executed.
pub const SCRIPT_EXECUTED: &str = "ScriptExecuted";

impl ScaleRequestStatus {
    /// Whether the request has ended.
    pub fn has_ended(&self) -> bool {
        self.phase.is_some_and(ScalePhase::is_terminal)
    }
}

words! {
    /// Where a request is in its life. Its conditions have the same names.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
    pub enum ScalePhase {
        /// It waits for its job, or for its turn.
        Created,
        /// The change was decided, and is under way.
        Scaling,
        /// The job has the size that was asked for.
        ScaleSucceeded,
        /// It has not, and the message says why.
        ScaleFailed,
    }
}

impl ScalePhase {
    /// Whether the phase is final.
    pub const fn is_terminal(self) -> bool {
        matches!(self, Self::ScaleSucceeded | Self::ScaleFailed)
    }
}

words! {
    /// Why a request is in its phase, in one word.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub enum ScaleReason {
        /// It waits until its job runs, or until requests before it have ended.
        Waiting,
        /// The change was decided.
        Decided,
        /// The change was not done in time, and is undone.
        RollingBack,
        /// The change is done.
        Scaled,
        /// The job has that size already, or can't come nearer to it.
        Unchanged,
        /// Something is wrong with the request itself.
        Invalid,
        /// There was no such job until the time was over.
        JobNotFound,
        /// The job was deleted.
        JobDeleted,
        /// The job has ended.
        JobEnded,
        /// The job is suspended.
        JobSuspended,
        /// The job can't change its size.
        NotElastic,
        /// The job can't have that size.
        SizeRefused,
        /// Pods or nodes that were named are none of the job's, or can't leave.
        PodsRefused,
        /// Somebody else has set `spec.elastic.replicas` meanwhile.
        Superseded,
        /// The change was not done in time.
        TimedOut,
        /// Pods that joined were lost, and are not replaced.
        PodsLost,
        /// The script has ended with exit code 0.
        ScriptSucceeded,
        /// An attempt of the script has failed, or the last of them.
        ScriptFailed,
        /// The script can't be run: scripts are off, or nobody could run it.
        ScriptRefused,
    }
}

words! {
    /// The kinds of requests.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
    pub enum ScaleKind {
        /// Fewer pods.
        #[default]
        ScaleIn,
        /// More pods.
        ScaleOut,
    }
}

impl ScaleKind {
    /// The name of the kind in paths.
    pub const fn plural(self) -> &'static str {
        match self {
            Self::ScaleIn => "scaleins",
            Self::ScaleOut => "scaleouts",
        }
    }
}

/// A request, as the status of its job names it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ScaleRequestRef {
    /// The kind of the request.
    pub kind: ScaleKind,
    /// The name of the request.
    #[schemars(length(max = 253))]
    pub name: String,
    /// The UID of the request.
    #[schemars(length(max = 64))]
    pub uid: String,
    /// Whether the change undoes what it had asked for.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub rollback: bool,
}
