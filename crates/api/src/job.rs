//! `TrainingJob.spec`: what a user asks for.

use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::completion::Completion;
use crate::elastic::Elastic;
use crate::framework::FrameworkSpec;
use crate::role::RoleSpec;
use crate::run_policy::{RunPolicy, UpdatePolicy};
use crate::status::TrainingJobStatus;
use crate::words::words;

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
    scale(
        spec_replicas_path = ".spec.elastic.replicas",
        status_replicas_path = ".status.replicas",
        label_selector_path = ".status.selector"
    ),
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
    ),
    printcolumn(
        name = "Result",
        type_ = "string",
        json_path = ".status.result.metrics",
        description = "The last value of every metric that the programs reported",
        priority = 1
    )
)]
#[serde(rename_all = "camelCase")]
// Only what never changes: the API server stops at its own rules, so that nobody would see what
// else is wrong. All else is said at once by the webhook, or without it by the operator.
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

    /// For a job that may change its size while it runs: which role, how many pods it should have,
    /// and within which bounds. It can be added or removed only while the job is suspended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub elastic: Option<Elastic>,

    /// When the job as a whole has succeeded or failed, in terms of its roles. Default: what the
    /// framework says: a job fails when a role did. It succeeds when its launcher or chief did, if
    /// it has one, else when all roles did but those that only serve others, such as parameter
    /// servers and schedulers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completion: Option<Completion>,

    /// True: the job holds no pods. Setting it deletes the pods and keeps the job; clearing it
    /// starts the job afresh, with a new start time and a new deadline.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suspend: Option<bool>,

    /// The controller that runs this job; absent or `trainyard.dev/operator` for this one. A job of
    /// another controller is not touched. It can't be changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63))]
    pub managed_by: Option<String>,

    /// Whose names, labels and lists of hosts the pods carry: ours, or those of another operator,
    /// for its users. The operator sets it where it serves kinds of other operators. It can't be
    /// changed. Default: Native.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Dialect")]
    pub dialect: Option<Dialect>,

    /// Limits in time and number, and what is left behind at the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_policy: Option<RunPolicy>,

    /// What becomes of the lines that programs append to the file which `TRAINYARD_PROGRESS` names.
    /// Ignore: there is no such file on a cluster. Report: the main containers find it, and the
    /// latest values come into `status.progress`, at most once a minute and at the end, and stay in
    /// `status.result`. It can be changed only while the job is suspended. Default: Ignore.
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

words! {
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
        /// Those of an MXJob or a TFJob of `mpba.fbk.eu/v1`.
        Dl,
        /// Those of an AresJob of `ares.io/v1`.
        Ares,
        /// Those of a TrainingJob of `kai.alibabacloud.com/v1alpha1`.
        Et,
    }
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

    /// The position of the role that grows and shrinks. `None` if the job is not elastic, or names
    /// a role that it does not have.
    pub fn elastic_role(&self) -> Option<usize> {
        let elastic = self.elastic.as_ref()?;
        let find = |name: &str| self.roles.iter().position(|role| role.name == name);
        match &elastic.role {
            Some(name) => find(name),
            None => find("worker").or_else(|| (self.roles.len() == 1).then_some(0)),
        }
    }

    /// How many pods a role should have.
    pub fn replicas(&self, position: usize, role: &RoleSpec) -> i32 {
        match &self.elastic {
            Some(elastic) if self.elastic_role() == Some(position) => elastic.replicas,
            _ => role.replicas.unwrap_or(1),
        }
    }

    /// The most pods that a role may come to have while the job runs.
    pub fn most_replicas(&self, role: &RoleSpec) -> i32 {
        let elastic_role = self.elastic_role().and_then(|position| self.roles.get(position));
        match &self.elastic {
            Some(elastic) if elastic_role.is_some_and(|elastic| elastic.name == role.name) => {
                elastic.max_replicas.unwrap_or(elastic.replicas)
            }
            _ => role.replicas.unwrap_or(1),
        }
    }
}
