//! `spec.roles`: the pods of a job.

use k8s_openapi::api::core::v1::PodTemplateSpec;
use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::words::words;

/// One role: a number of equal pods.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct RoleSpec {
    /// The role's name, unique in the job: lower-case letters, digits and `-`, starting with a
    /// letter.
    #[schemars(length(min = 1, max = 32), regex(pattern = "^[a-z]([-a-z0-9]*[a-z0-9])?$"))]
    pub name: String,

    /// How many pods the role has. Default: 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 10000))]
    pub replicas: Option<i32>,

    /// The pod that runs for each replica. Its `restartPolicy` must be left out: the role's
    /// decides.
    pub template: PodTemplateSpec,

    /// The name of the container that trains: its end is the pod's end as far as exit codes and
    /// root causes go. Default: the first container.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63))]
    pub container: Option<String>,

    /// What happens when a pod of this role ends. Never: it is not replaced, whatever ended it.
    /// OnFailure: it is replaced when it failed, which counts against backoffLimit, and when it was
    /// evicted or lost with its node, which does not. Always: it is replaced however it ended, and
    /// the role never succeeds. ExitCode: as OnFailure, but exit codes 1 to 127 are permanent
    /// errors and stand. Default: what the framework says (pytorch, and launchers: OnFailure; the
    /// workers of launchers: Always; custom: Never).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "RestartPolicy")]
    pub restart_policy: Option<RestartPolicy>,

    /// Which pods start anew when a pod of this role ends and is replaced. Pod: that pod. Role: all
    /// pods of this role. Job: all pods of all roles, but of those that have ended and those whose
    /// restartPolicy is Never. All that start anew together cost one unit of backoffLimit: the old
    /// pods are ended at once, and when none of them exists any more, the new ones are created.
    /// Default: Job where the framework's pods train as one and pods can't join or leave while the
    /// others train, else Pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "RestartScope")]
    pub restart_scope: Option<RestartScope>,

    /// Which pods must have succeeded for the role to have succeeded: AnyPod, AllPods, or FirstPod,
    /// which is the one of index 0. Default: AllPods; for workers of `tensorflow` FirstPod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "PodQuorum")]
    pub succeeded_when: Option<PodQuorum>,

    /// Which pods must have failed for good for the role to have failed: AnyPod, AllPods, or
    /// FirstPod, which is the one of index 0. Default: AnyPod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "PodQuorum")]
    pub failed_when: Option<PodQuorum>,

    /// What a pod counts for whose node is down. Fail: as lost, so that with restart policy Never
    /// the role fails, and otherwise the pod is replaced. Wait: as what it was, until the node is
    /// back or the pod is removed. Default: Wait.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "NodeDownPolicy")]
    pub node_down_policy: Option<NodeDownPolicy>,

    /// Where the role's pods may be placed relative to each other.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub placement: Option<Placement>,

    /// The roles that this role's programs wait for before they start. Default: what the framework
    /// says. An empty list: none, whatever the framework says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 16))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["role".into()]))]
    pub depends_on: Option<Vec<Dependency>>,

    /// When the pods of a role that depends on others are created. Immediately: with all others,
    /// and they wait before their programs start, so that images are pulled and places are found
    /// meanwhile. WhenDependenciesMet: only when what the role waits for has come. Default:
    /// Immediately.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "CreatePolicy")]
    pub create_policy: Option<CreatePolicy>,
}

impl RoleSpec {
    /// Whether the role can succeed: with restart policy Always, pods that have succeeded are
    /// replaced. Expects a role whose defaults are written.
    pub(crate) fn can_succeed(&self) -> bool {
        self.restart_policy != Some(RestartPolicy::Always)
    }
}

/// A role that is waited for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Dependency {
    /// The name of another role of this job.
    #[schemars(length(min = 1, max = 32))]
    pub role: String,

    /// What it must have come to. Running: all its pods run. Ready: all its pods are ready, by
    /// their readiness probes. Succeeded: the role has succeeded. Pods and roles that have
    /// succeeded count as having run and been ready, and so do pods that failed for good while
    /// their role goes on without them.
    pub state: DependencyState,
}

words! {
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
    /// A pod that failed is replaced; each replacement counts against `backoffLimit`. A pod that
    /// was evicted or lost with its node is replaced too, and counts as a disruption, which has no
    /// limit.
    OnFailure,
    /// A pod is replaced however it ended; the role never succeeds. Only failures count against
    /// `backoffLimit`.
    Always,
    /// As OnFailure, but exit codes 1 to 127 mean a permanent error and are not retried; 128 to 255
    /// are.
    ExitCode,
}

words! {
    /// Which pods start anew when one pod ends and is replaced.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
    pub enum RestartScope {
        /// That pod.
        #[default]
        Pod,
        /// All pods of its role.
        Role,
        /// All pods of all roles, but of those that have ended or are never replaced.
        Job,
    }
}

/// Which pods of a role are enough.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum PodQuorum {
    /// One pod is enough.
    AnyPod,
    /// All pods of the role.
    AllPods,
    /// Pod 0 of the role.
    FirstPod,
}

/// What a pod counts for whose node is down.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum NodeDownPolicy {
    /// As lost: with restart policy Never the role fails, otherwise the pod is replaced.
    Fail,
    /// As what it was when the node was last heard of, until the node is back or the pod is
    /// removed.
    #[default]
    Wait,
}

/// Where the role's pods may be placed relative to each other.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Placement {
    /// One pod of this job per node: `Required` leaves a pod Pending rather than share a node with
    /// another pod of this role, `Preferred` shares when it must.
    pub spread: Spread,

    /// What "node" means: the node label whose values are told apart. Default:
    /// `kubernetes.io/hostname`.
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
