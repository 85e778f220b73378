//! `TrainingJob.spec`: what a user asks for.

use k8s_openapi::api::core::v1::PodTemplateSpec;
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::framework::FrameworkSpec;
use crate::status::TrainingJobStatus;

/// A distributed training: a framework, and the roles whose pods train together.
#[allow(clippy::duplicated_attributes, reason = "every printed column has a type")]
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[kube(
    group = "trainyard.dev",
    version = "v1alpha1",
    kind = "TrainingJob",
    plural = "trainingjobs",
    shortname = "tj",
    category = "all",
    namespaced,
    status = "TrainingJobStatus",
    derive = "PartialEq",
    derive = "Default",
    doc = "A distributed training: a framework, and the roles whose pods train together.",
    printcolumn(name = "Framework", type_ = "string", json_path = ".spec.framework.name"),
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase"),
    printcolumn(
        name = "Ready",
        type_ = "string",
        json_path = ".status.ready",
        description = "Ready pods of all pods"
    ),
    printcolumn(
        name = "Restarts",
        type_ = "integer",
        json_path = ".status.restarts.failures",
        description = "Pods replaced because they failed"
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(
        name = "Accepted",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Accepted\")].reason",
        description = "Valid, or why the job is not run",
        priority = 1
    ),
    printcolumn(
        name = "Disruptions",
        type_ = "integer",
        json_path = ".status.restarts.disruptions",
        description = "Pods replaced because they were evicted, removed or lost with their node",
        priority = 1
    ),
    printcolumn(
        name = "Cause",
        type_ = "string",
        json_path = ".status.rootCause.reason",
        description = "Why the pod failed that failed first",
        priority = 1
    ),
    printcolumn(
        name = "Failed Pod",
        type_ = "string",
        json_path = ".status.rootCause.pod",
        description = "The pod that failed first",
        priority = 1
    ),
    printcolumn(
        name = "Node",
        type_ = "string",
        json_path = ".status.rootCause.node",
        description = "The node of the pod that failed first",
        priority = 1
    )
)]
#[serde(rename_all = "camelCase")]
// Only what never changes: the API server stops at its own rules, so that nobody would see what else is wrong. All
// else is said at once by the webhook, or without it by the operator.
#[x_kube(
    validation = Rule::new("has(self.managedBy) == has(oldSelf.managedBy) && (!has(self.managedBy) || self.managedBy == oldSelf.managedBy)")
        .field_path(".managedBy")
        .message("can't be changed: create a new job instead"),
    validation = Rule::new("(has(self.dialect) ? self.dialect : 'Native') == (has(oldSelf.dialect) ? oldSelf.dialect : 'Native')")
        .field_path(".dialect")
        .message("can't be changed: create a new job instead"),
    validation = Rule::new("self.roles.size() == oldSelf.roles.size() && self.roles.all(r, oldSelf.roles.exists(o, o.name == r.name))")
        .field_path(".roles")
        .message("roles can't be added or removed: create a new job instead")
)]
pub struct TrainingJobSpec {
    /// The framework that trains, and its options.
    pub framework: FrameworkSpec,

    /// The roles of the job, each a number of equal pods. Pods are named `<job>-<role>-<index>`.
    #[schemars(length(min = 1, max = 16))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
    pub roles: Vec<RoleSpec>,

    /// When the job as a whole has succeeded or failed, in terms of its roles. Default: what the framework says;
    /// for `pytorch` and `custom` the job succeeds when all roles did and fails when one did; for `mpi`, `horovod` and
    /// `deepspeed` it succeeds when the launcher did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completion: Option<Completion>,

    /// True: the job holds no pods. Setting it deletes the pods and keeps the job; clearing it starts the job
    /// afresh, with a new start time and a new deadline.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suspend: Option<bool>,

    /// The controller that runs this job; absent or `trainyard.dev/operator` for this one. A job of another
    /// controller is not touched. It can't be changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63))]
    pub managed_by: Option<String>,

    /// Whose names, labels and lists of hosts the pods carry: ours, or those of another operator, for its users. The operator
    /// sets it where it serves kinds of other operators. It can't be changed. Default: Native.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Dialect")]
    pub dialect: Option<Dialect>,

    /// Limits in time and number, and what is left behind at the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_policy: Option<RunPolicy>,

    /// What becomes of the lines that programs append to the file which `TRAINYARD_PROGRESS` names. Ignore: there is no
    /// such file on a cluster. Report: the main containers find it, and the latest values come into `status.progress`, at most
    /// once a minute and at the end. It can be changed only while the job is suspended. Default: Ignore.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "ProgressPolicy")]
    pub progress: Option<ProgressPolicy>,
}

/// What becomes of what programs say of their progress.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ProgressPolicy {
    /// Nothing.
    #[default]
    Ignore,
    /// It comes into the status of the job.
    Report,
}

/// Whose names, labels and lists of hosts the pods of a job carry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum Dialect {
    /// Ours.
    #[default]
    Native,
    /// Those of an MPIJob of `kubeflow.org/v2beta1`.
    KubeflowMpi,
    /// Those of an MPIJob of `batch.test.bdap.com/v1`.
    BdapMpi,
}

impl Dialect {
    /// The word used in the API.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Native => "Native",
            Self::KubeflowMpi => "KubeflowMpi",
            Self::BdapMpi => "BdapMpi",
        }
    }
}

/// One role: a number of equal pods.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct RoleSpec {
    /// The role's name, unique in the job: lower-case letters, digits and `-`, starting with a letter.
    #[schemars(length(min = 1, max = 32), regex(pattern = "^[a-z]([-a-z0-9]*[a-z0-9])?$"))]
    pub name: String,

    /// How many pods the role has. Default: 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 10000))]
    pub replicas: Option<i32>,

    /// The pod that runs for each replica. Its `restartPolicy` must be left out: the role's decides.
    pub template: PodTemplateSpec,

    /// The name of the container that trains: its end is the pod's end as far as exit codes and root causes go.
    /// Default: the first container.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63))]
    pub container: Option<String>,

    /// What happens when a pod of this role ends. Never: it is not replaced, whatever ended it. OnFailure: it is replaced
    /// when it failed, which counts against backoffLimit, and when it was evicted or lost with its node, which does
    /// not. Always: it is replaced however it ended, and the role never succeeds. ExitCode: as OnFailure, but exit codes
    /// 1 to 127 are permanent errors and stand. Default: what the framework says (pytorch, and launchers: OnFailure;
    /// the workers of launchers: Always; custom: Never).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "RestartPolicy")]
    pub restart_policy: Option<RestartPolicy>,

    /// How many pods must have succeeded for the role to have succeeded: AnyPod or AllPods. Default: AllPods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "PodQuorum")]
    pub succeeded_when: Option<PodQuorum>,

    /// How many pods must have failed for good for the role to have failed: AnyPod or AllPods. Default: AnyPod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "PodQuorum")]
    pub failed_when: Option<PodQuorum>,

    /// What a pod counts for whose node is down. Fail: as lost, so that with restart policy Never the role fails, and
    /// otherwise the pod is replaced. Wait: as what it was, until the node is back or the pod is removed. Default: Wait.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "NodeDownPolicy")]
    pub node_down_policy: Option<NodeDownPolicy>,

    /// Where the role's pods may be placed relative to each other.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub placement: Option<Placement>,

    /// The roles that this role's programs wait for before they start. Default: what the framework says. An empty list:
    /// none, whatever the framework says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 16))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["role".into()]))]
    pub depends_on: Option<Vec<Dependency>>,

    /// When the pods of a role that depends on others are created. Immediately: with all others, and they wait before
    /// their programs start, so that images are pulled and places are found meanwhile. WhenDependenciesMet: only when
    /// what the role waits for has come. Default: Immediately.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "CreatePolicy")]
    pub create_policy: Option<CreatePolicy>,
}

/// A role that is waited for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Dependency {
    /// The name of another role of this job.
    #[schemars(length(min = 1, max = 32))]
    pub role: String,

    /// What it must have come to. Running: all its pods run. Ready: all its pods are ready, by their readiness probes.
    /// Succeeded: the role has succeeded. Pods and roles that have succeeded count as having run and been ready, and so do pods
    /// that failed for good while their role goes on without them.
    pub state: DependencyState,
}

/// What a role that is waited for must have come to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum DependencyState {
    /// All its pods run, or have succeeded.
    #[default]
    Running,
    /// All its pods are ready, or have succeeded.
    Ready,
    /// It has succeeded.
    Succeeded,
}

impl DependencyState {
    /// The word used in the API.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Running => "Running",
            Self::Ready => "Ready",
            Self::Succeeded => "Succeeded",
        }
    }
}

/// When the pods of a role that depends on others are created.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum CreatePolicy {
    /// With all others; they wait before their programs start.
    #[default]
    Immediately,
    /// When what the role waits for has come.
    WhenDependenciesMet,
}

/// What happens when a pod of the role ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum RestartPolicy {
    /// The pod is not replaced, whatever ended it.
    Never,
    /// A pod that failed is replaced; each replacement counts against `backoffLimit`. A pod that was evicted or lost
    /// with its node is replaced too, and counts as a disruption, which has no limit.
    OnFailure,
    /// A pod is replaced however it ended; the role never succeeds. Only failures count against `backoffLimit`.
    Always,
    /// As OnFailure, but exit codes 1 to 127 mean a permanent error and are not retried; 128 to 255 are.
    ExitCode,
}

/// A number of pods of a role.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum PodQuorum {
    /// One pod is enough.
    AnyPod,
    /// All pods of the role.
    AllPods,
}

/// What a pod counts for whose node is down.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum NodeDownPolicy {
    /// As lost: with restart policy Never the role fails, otherwise the pod is replaced.
    Fail,
    /// As what it was when the node was last heard of, until the node is back or the pod is removed.
    #[default]
    Wait,
}

/// Where the role's pods may be placed relative to each other.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Placement {
    /// One pod of this job per node: `Required` leaves a pod Pending rather than share a node with another pod of
    /// this role, `Preferred` shares when it must.
    pub spread: Spread,

    /// What "node" means: the node label whose values are told apart. Default: `kubernetes.io/hostname`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 316))]
    pub topology_key: Option<String>,
}

/// How strict `placement` is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Spread {
    /// Never two pods of the role in one place.
    #[default]
    Required,
    /// Two pods of the role in one place only if there is no other.
    Preferred,
}

/// When the job as a whole has succeeded or failed: each list holds alternatives, any of which is enough.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Completion {
    /// The job succeeds when all roles of one of these sets have succeeded. Empty: the framework's default.
    #[serde(default)]
    #[schemars(length(max = 16), default)]
    pub succeeded_when: Vec<RoleSet>,

    /// The job fails when all roles of one of these sets have failed. Empty: the framework's default.
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

/// Limits in time and number, and what is left behind at the end.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RunPolicy {
    /// Which pods are deleted when the job ends. Running: those that have not ended, so that a finished job holds no
    /// accelerator and its logs stay. All: all of them, and the job's Services. None: none. Default: Running.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "CleanPodPolicy")]
    pub clean_pod_policy: Option<CleanPodPolicy>,

    /// Seconds after its end, good or bad, at which the job itself is deleted, with all it owns. Absent: never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub ttl_seconds_after_finished: Option<i64>,

    /// Seconds after a failure at which the pods and Services that `cleanPodPolicy` left are deleted; the job and its
    /// status stay. Absent: never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub ttl_seconds_after_failed: Option<i64>,

    /// Seconds after its start (or its last resumption) at which a job that has not ended fails. Absent: no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub active_deadline_seconds: Option<i64>,

    /// How many failed pods the job may replace before it fails. Evictions and lost nodes do not count. It may be
    /// raised while the job runs, not lowered. Default: 6.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 100_000))]
    pub backoff_limit: Option<i32>,

    /// What becomes of a change of `replicas` or `template` of a role while the job runs. Refuse: it is refused; such
    /// changes are possible while the job is suspended. Roll: pods are added and removed, and those made from another
    /// template are replaced, one after the other. It can be changed only while the job is suspended. Default: Refuse.
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

impl TrainingJob {
    /// Whether this operator is the one that runs the job.
    pub fn is_ours(&self) -> bool {
        self.spec
            .managed_by
            .as_deref()
            .is_none_or(|by| by == crate::MANAGED_BY_TRAINYARD)
    }

    /// Whether pods are added, removed and replaced while the job runs.
    pub fn rolls(&self) -> bool {
        self.spec.update_policy() == UpdatePolicy::Roll
    }

    /// Whether what programs say of their progress comes into the status of the job.
    pub fn reports_progress(&self) -> bool {
        self.spec.progress == Some(ProgressPolicy::Report)
    }

    /// Whether the user has asked for the job to hold no pods.
    pub fn is_suspended(&self) -> bool {
        self.spec.suspend == Some(true)
    }
}

impl TrainingJobSpec {
    /// What becomes of a change of `replicas` or `template` of a role while the job runs.
    pub fn update_policy(&self) -> UpdatePolicy {
        let run = self.run_policy.as_ref();
        run.and_then(|run| run.update_policy).unwrap_or_default()
    }
}
