//! `Framework`: a framework that is declared in an object instead of built into the operator.

// On the type itself it would not hold for what the schema is derived from.
#![allow(
    clippy::struct_excessive_bools,
    reason = "each answers a question of its own, as users know them from other kinds"
)]

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::role::{Dependency, PodQuorum, RestartPolicy};
use crate::words::words;

/// The longest expression, in bytes.
pub const MAX_EXPRESSION: usize = 4096;
/// The longest declaration as JSON, in bytes: a job that runs keeps a copy in its status.
pub const MAX_DECLARATION: usize = 65_536;

/// What a declared framework says about its jobs. Fields that hold an expression are marked so: it
/// is written in CEL, over `job`, `replica` and `params`.
#[allow(clippy::duplicated_attributes, reason = "every printed column has a type")]
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[kube(
    group = "trainyard.dev",
    version = "v1alpha1",
    kind = "Framework",
    plural = "frameworks",
    root = "DeclaredFramework",
    status = "FrameworkStatus",
    derive = "PartialEq",
    derive = "Default",
    doc = "A framework that jobs can name: its roles, and what their pods find, as expressions.",
    printcolumn(
        name = "Ready",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].status"
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(
        name = "Message",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].message",
        priority = 1
    )
)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct FrameworkDeclaration {
    /// The roles that jobs may have, in the order in which pods are ranked. Default: any roles,
    /// ranked in the job's own order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
    pub roles: Vec<DeclaredRole>,

    /// What happens when a pod ends, where neither the job nor the role says so. Default:
    /// OnFailure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "RestartPolicy")]
    pub restart_policy: Option<RestartPolicy>,

    /// Whether the pods of a job train as one: where one ends, the others can't go on. Default:
    /// false.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub trains_as_one: bool,

    /// Whether pods that run go on when the number of pods of a role changes: what they were told
    /// at their start still holds. Default: false.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub resizes: bool,

    /// The Services of a job. Headless: pods find each other by name. Master: also one with an
    /// address of its own, `job.master`, which reaches the first port of the pod of rank 0. None:
    /// pods can't find each other. Default: Headless.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "DeclaredService")]
    pub service: Option<DeclaredService>,

    /// What jobs may give in `spec.framework.params`, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 32))]
    pub params: BTreeMap<String, DeclaredParam>,

    /// Environment variables of every container, in order. One that the job sets wins.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub env: Vec<DeclaredVariable>,

    /// Variables that jobs must not set, because a wrong value keeps the pods from finding each
    /// other. One that ends in `*` stands for all that begin so.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), inner(length(min = 1, max = 128)))]
    #[x_kube(merge_strategy = ListMerge::Set)]
    pub reserved: Vec<String>,

    /// Ports of main containers, added unless the job has named that number.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
    pub ports: Vec<DeclaredPort>,

    /// Files that main containers find.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["path".into()]))]
    pub files: Vec<DeclaredFile>,

    /// Directories that main containers find.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["path".into()]))]
    pub mounts: Vec<DeclaredMount>,

    /// What must hold of a job, asked when it is created or changed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    pub validations: Vec<DeclaredRule>,
}

/// A role that jobs of a declared framework may have.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct DeclaredRole {
    /// Its name in `spec.roles`.
    #[schemars(length(min = 1, max = 32), regex(pattern = "^[a-z]([-a-z0-9]*[a-z0-9])?$"))]
    pub name: String,

    /// Whether every job has it. Default: false.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub required: bool,

    /// The most pods that it may have. Default: any number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 10000))]
    pub max: Option<i32>,

    /// What happens when a pod ends. Default: what the framework says for all roles.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "RestartPolicy")]
    pub restart_policy: Option<RestartPolicy>,

    /// The roles that it waits for, where a job has them and does not say otherwise.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["role".into()]))]
    pub depends_on: Vec<Dependency>,

    /// Which of its pods must succeed for the role to succeed, where the job does not say. Default:
    /// AllPods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "PodQuorum")]
    pub succeeded_when: Option<PodQuorum>,

    /// Whether the job succeeds when this role does. Where a job has several such roles, the first
    /// decides; where it has none, all roles must succeed but those that serve. Default: false.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub decides: bool,

    /// Whether it only serves other roles, and need not end. Default: false.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub serves: bool,

    /// Whether a job goes on when this role has failed, where another role decides. Default: false.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub expendable: bool,
}

words! {
    /// The Services of a job.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
    pub enum DeclaredService {
        /// One by which pods find each other by name.
        #[default]
        Headless,
        /// Also one with an address of its own, in front of the pod of rank 0.
        Master,
        /// None.
        None,
    }
}

/// A value that jobs may give.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct DeclaredParam {
    /// What kind of value it is: `string`, `integer` or `boolean`.
    #[serde(rename = "type")]
    pub kind: ParamType,

    /// The value of jobs that give none. Without it, every job must give one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-kubernetes-preserve-unknown-fields" = true))]
    pub default: Option<Value>,

    /// The least number, for an integer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub minimum: Option<i64>,

    /// The greatest number, for an integer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub maximum: Option<i64>,

    /// The texts that are possible, for a string. Default: any of at most 1024 characters.
    #[serde(default, rename = "enum", skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), inner(length(max = 1024)))]
    pub one_of: Vec<String>,

    /// What it is for, for those who write jobs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub description: Option<String>,
}

/// What kind of value a param is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum ParamType {
    /// A text.
    #[default]
    String,
    /// A whole number.
    Integer,
    /// True or false.
    Boolean,
}

/// An environment variable: of an expression, or of a field of the pod.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct DeclaredVariable {
    /// The variable's name: letters, digits and `_`, and no digit first. Names that begin with
    /// `TRAINYARD_` are the operator's.
    #[schemars(length(min = 1, max = 128))]
    pub name: String,

    /// An expression: its value, a string, a number or a boolean.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = MAX_EXPRESSION))]
    pub value: Option<String>,

    /// In place of `value`, a field of the pod that is known only when it starts: `status.podIP`,
    /// `status.podIPs`, `status.hostIP`, `spec.nodeName`, `metadata.name`, `metadata.namespace` or
    /// `metadata.uid`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 64))]
    pub field_path: Option<String>,

    /// An expression: whether a pod has it. Default: it has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = MAX_EXPRESSION))]
    pub when: Option<String>,

    /// The roles whose pods have it. Default: all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), inner(length(min = 1, max = 32)))]
    pub roles: Vec<String>,
}

/// A port of main containers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct DeclaredPort {
    /// The port's name in the container: lower-case letters, digits and `-`, with a letter.
    #[schemars(length(min = 1, max = 15), regex(pattern = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"))]
    pub name: String,

    /// An expression: its number.
    #[schemars(length(min = 1, max = MAX_EXPRESSION))]
    pub number: String,

    /// An expression: whether a pod has it. Default: it has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = MAX_EXPRESSION))]
    pub when: Option<String>,

    /// The roles whose pods have it. Default: all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), inner(length(min = 1, max = 32)))]
    pub roles: Vec<String>,
}

/// A file of main containers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct DeclaredFile {
    /// Its path, from the root. Its directory stays as it is.
    #[schemars(length(min = 2, max = 256), regex(pattern = "^/"))]
    pub path: String,

    /// An expression: what is in it, a string.
    #[schemars(length(min = 1, max = MAX_EXPRESSION))]
    pub content: String,

    /// The roles whose pods have it. Default: all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), inner(length(min = 1, max = 32)))]
    pub roles: Vec<String>,
}

/// A directory of main containers: an empty one, or the content of a ConfigMap.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct DeclaredMount {
    /// Its path, from the root.
    #[schemars(length(min = 2, max = 256), regex(pattern = "^/"))]
    pub path: String,

    /// An empty directory, which goes with the pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub empty_dir: Option<EmptyDirMount>,

    /// The ConfigMap in the job's namespace that is there, read-only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config_map: Option<ConfigMapMount>,

    /// The roles whose pods have it. Default: all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), inner(length(min = 1, max = 32)))]
    pub roles: Vec<String>,
}

/// An empty directory.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct EmptyDirMount {
    /// Disk: on the node's disk. Memory: in memory, such as `/dev/shm`. Default: Disk.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Medium")]
    pub medium: Option<Medium>,

    /// How much it may hold, such as `1Gi`. Default: what the node says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 32))]
    pub size_limit: Option<String>,
}

words! {
    /// Where an empty directory is.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
    pub enum Medium {
        /// On the node's disk.
        #[default]
        Disk,
        /// In memory.
        Memory,
    }
}

/// A ConfigMap.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ConfigMapMount {
    /// An expression: its name, a string.
    #[schemars(length(min = 1, max = MAX_EXPRESSION))]
    pub name: String,

    /// Whether pods start without it, with an empty directory. Default: false.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub optional: bool,
}

/// A rule for jobs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct DeclaredRule {
    /// An expression over `job` and `params`: true if the job is as it should be.
    #[schemars(length(min = 1, max = MAX_EXPRESSION))]
    pub rule: String,

    /// What those read whose job is not: what is wrong, and what to do.
    #[schemars(length(min = 1, max = 1024))]
    pub message: String,

    /// The field of the job that is wrong, such as `spec.framework.params.port`. Default:
    /// `spec.framework`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 256))]
    pub path: Option<String>,
}

/// Whether a declaration can be used.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct FrameworkStatus {
    /// The generation of the declaration that this status answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,

    /// Ready: True, or False with all that is wrong, a line for each field.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".into()]))]
    pub conditions: Vec<Condition>,
}
