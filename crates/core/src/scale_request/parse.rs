//! Parses requests of both kinds.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use trainyard_api::scale_request::TIMEOUT_SECONDS;
use trainyard_api::validate::{validate_scale_in, validate_scale_out};
use trainyard_api::{
    FieldError, ScaleIn, ScaleKind, ScaleOut, ScalePolicy, ScaleRequestStatus, ScriptVariable, ToDelete,
};

/// A request of either kind.
#[derive(Clone, Debug, PartialEq)]
pub struct ScaleRequest {
    /// Its kind.
    pub kind: ScaleKind,
    /// Its metadata.
    pub metadata: ObjectMeta,
    /// What it asks for, or what is wrong with it.
    pub spec: Result<RequestSpec, Vec<FieldError>>,
    /// What became of it so far.
    pub status: ScaleRequestStatus,
}

/// What a request asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestSpec {
    /// The name of the job.
    pub job: String,
    /// How its size is to change.
    pub change: Change,
    /// What happens if the job can't have that size.
    pub policy: ScalePolicy,
    /// How long the pods that leave may take, if not as long as the job says.
    pub drain_timeout_seconds: Option<i64>,
    /// The program that is run in the launcher.
    pub script: Option<Script>,
    /// How long the change may take, and each attempt of the script.
    pub timeout_seconds: i64,
    /// When the request is deleted after its end; `None` if it is not.
    pub ttl_seconds: Option<i64>,
}

/// A program that is run in the launcher, with the pods that leave or join as its last argument.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Script {
    /// The program.
    pub program: String,
    /// Its arguments before the pods.
    pub args: Vec<String>,
    /// Its variables: names and values.
    pub env: Vec<(String, String)>,
    /// How often it is tried.
    pub attempts: i32,
}

impl Script {
    fn of(
        script: Option<String>,
        args: Option<Vec<String>>,
        env: Option<Vec<ScriptVariable>>,
        backoff_limit: Option<i32>,
    ) -> Option<Self> {
        let env = env.unwrap_or_default().into_iter();
        Some(Self {
            program: script?,
            args: args.unwrap_or_default(),
            env: env
                .map(|variable| (variable.name, variable.value.unwrap_or_default()))
                .collect(),
            attempts: backoff_limit.unwrap_or_default().saturating_add(1),
        })
    }
}

/// How the size of a job is to change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// So many pods join.
    Add(i32),
    /// Pods leave.
    Remove(Removal),
}

/// Who leaves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Removal {
    /// So many pods.
    Count(i32),
    /// The pods of these names.
    Pods(Vec<String>),
    /// The pods on these nodes.
    Nodes(Vec<String>),
}

impl From<ScaleIn> for ScaleRequest {
    fn from(object: ScaleIn) -> Self {
        let ScaleIn {
            metadata,
            spec,
            status,
        } = object;
        let errors = validate_scale_in(None, &spec);
        let removal = spec.to_delete.and_then(removal).filter(|_| errors.is_empty());
        Self {
            kind: ScaleKind::ScaleIn,
            metadata,
            spec: removal.ok_or(errors).map(|removal| RequestSpec {
                job: spec.job_ref.name,
                change: Change::Remove(removal),
                policy: spec.policy.unwrap_or_default(),
                drain_timeout_seconds: spec.drain_timeout_seconds,
                script: Script::of(spec.script, spec.args, spec.env, spec.backoff_limit),
                timeout_seconds: spec.timeout_seconds.unwrap_or(TIMEOUT_SECONDS),
                ttl_seconds: spec.ttl_seconds_after_finished,
            }),
            status: status.unwrap_or_default(),
        }
    }
}

impl From<ScaleOut> for ScaleRequest {
    fn from(object: ScaleOut) -> Self {
        let ScaleOut {
            metadata,
            spec,
            status,
        } = object;
        let errors = validate_scale_out(None, &spec);
        let to_add = spec.to_add.filter(|_| errors.is_empty());
        Self {
            kind: ScaleKind::ScaleOut,
            metadata,
            spec: to_add.ok_or(errors).map(|to_add| RequestSpec {
                job: spec.job_ref.name,
                change: Change::Add(to_add.count),
                policy: spec.policy.unwrap_or_default(),
                drain_timeout_seconds: None,
                script: Script::of(spec.script, spec.args, spec.env, spec.backoff_limit),
                timeout_seconds: spec.timeout_seconds.unwrap_or(TIMEOUT_SECONDS),
                ttl_seconds: spec.ttl_seconds_after_finished,
            }),
            status: status.unwrap_or_default(),
        }
    }
}

fn removal(to_delete: ToDelete) -> Option<Removal> {
    let ToDelete {
        count,
        pod_names,
        node_names,
    } = to_delete;
    let count = count.map(Removal::Count);
    let pods = pod_names.map(Removal::Pods);
    count.or(pods).or(node_names.map(Removal::Nodes))
}
