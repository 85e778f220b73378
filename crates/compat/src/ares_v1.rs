//! `ares.io/v1` AresJob, of AresOperator: one kind for many frameworks, whose roles are a map.
//!
//! What AresOperator fills in for each framework is written out here, because our frameworks fill
//! in other things.

mod definition;
mod framework;
mod policy;
mod role;
mod status;

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::PodTemplateSpec;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use trainyard_api::names::ARES_PASSED_ON;
use trainyard_api::{
    CleanPodPolicy, Dialect, FieldError, RestartPolicy, RoleSpec, RunPolicy, TrainingJob, TrainingJobSpec,
};

use crate::{Converted, Extras, Kind, Purpose, read};
use framework::Framework;

const ROLES: &str = "spec.roleSpecs";

/// As good as none, and the most that a TrainingJob takes.
const NO_BACKOFF_LIMIT: i32 = 100_000;

pub const KIND: Kind = Kind {
    group: "ares.io",
    version: "v1",
    name: "AresJob",
    plural: "aresjobs",
    flag: "ares",
    dialect: Dialect::Ares,
    translate,
    paths: PATHS,
    status: status::status,
    event: status::event,
    definition: definition::definition,
    extras: Extras {
        passed_on: &ARES_PASSED_ON,
        // One half of a policy follows from the other.
        entangled: Some("spec.jobPhasePolicy"),
        ..Extras::NONE
    },
};

/// Where users wrote what a TrainingJob has elsewhere.
const PATHS: &[(&str, &str)] = &[
    (
        "spec.roles[*].dependsOn[*].role",
        "spec.roleSpecs.*.dependence.roleNames[*]",
    ),
    (
        "spec.roles[*].dependsOn[*].state",
        "spec.roleSpecs.*.dependence.rolePhase",
    ),
    ("spec.roles[*].dependsOn", "spec.roleSpecs.*.dependence"),
    (
        "spec.roles[*].succeededWhen",
        "spec.roleSpecs.*.rolePhasePolicy.succeeded",
    ),
    (
        "spec.roles[*].failedWhen",
        "spec.roleSpecs.*.rolePhasePolicy.failed",
    ),
    (
        "spec.roles[*].nodeDownPolicy",
        "spec.roleSpecs.*.rolePhasePolicy.nodeDownAsFailed",
    ),
    ("spec.roles[*].name", "spec.roleSpecs.*"),
    ("spec.roles[*]", "spec.roleSpecs.*"),
    ("spec.roles", ROLES),
    (
        "spec.completion.succeededWhen[*].allOf",
        "spec.jobPhasePolicy.succeeded[*]",
    ),
    (
        "spec.completion.failedWhen[*].allOf",
        "spec.jobPhasePolicy.failed[*]",
    ),
    ("spec.completion", "spec.jobPhasePolicy"),
    ("spec.framework.bagua.ports", "spec.availablePorts"),
    (
        "spec.framework.mpi.slotsPerWorker",
        "spec.framework.mpi.replicasPerNode",
    ),
    ("spec.framework.mpi.hostFiles[*].path", HOST_FILES),
    ("spec.framework.mpi.hostFiles", HOST_FILES),
    (
        "spec.framework.pytorch.port",
        "spec.roleSpecs.master.template.spec.containers",
    ),
    (
        "spec.framework.dask.masterPort",
        "spec.roleSpecs.leadworker.template.spec.containers",
    ),
    (
        "spec.framework.dask",
        "spec.roleSpecs.scheduler.template.spec.containers",
    ),
    ("spec.framework.name", "spec.frameworkType"),
    (
        "spec.runPolicy.ttlSecondsAfterFailed",
        "spec.ttlSecondsAfterFailed",
    ),
];

/// Where users write the paths of lists of hosts.
const HOST_FILES: &str = "spec.roleSpecs.launcher.dependence.mpiHostFile";

#[derive(Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
struct Spec {
    framework_type: Option<String>,
    framework: Option<TheirFramework>,
    available_ports: Option<Vec<i32>>,
    ttl_seconds_after_failed: Option<i32>,
    run_policy: Option<TheirRunPolicy>,
    job_phase_policy: Option<JobPhasePolicy>,
    role_specs: Option<BTreeMap<String, TheirRole>>,
}

#[derive(Default, Deserialize, Serialize)]
struct TheirFramework {
    bagua: Option<Bagua>,
    mpi: Option<Mpi>,
    tensorflow: Option<Tensorflow>,
}

#[derive(Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
struct Bagua {
    enable_elastic: Option<bool>,
    min_replicas: Option<i32>,
    max_replicas: Option<i32>,
}

#[derive(Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
struct Mpi {
    replicas_per_node: Option<i32>,
    implementation: Option<Implementation>,
}

#[derive(Clone, Copy, Default, Deserialize, Serialize)]
enum Implementation {
    #[default]
    #[serde(rename = "ompi")]
    OpenMpi,
    #[serde(rename = "mpich")]
    Mpich,
}

#[derive(Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
struct Tensorflow {
    enable_dynamic_worker: Option<bool>,
}

#[derive(Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
struct TheirRunPolicy {
    clean_pod_policy: Option<CleanPodPolicy>,
    ttl_seconds_after_finished: Option<i32>,
    active_deadline_seconds: Option<i64>,
    backoff_limit: Option<i32>,
    /// Nothing of it has a counterpart, so it only becomes a note.
    scheduling_policy: Option<Value>,
}

/// Alternatives, each a set of roles.
type RoleSets = Vec<Vec<String>>;

#[derive(Default, Deserialize, Serialize)]
struct JobPhasePolicy {
    failed: Option<RoleSets>,
    succeeded: Option<RoleSets>,
}

#[derive(Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
struct TheirRole {
    replicas: Option<i32>,
    template: Option<PodTemplateSpec>,
    restart_policy: Option<RestartPolicy>,
    role_phase_policy: Option<RolePhasePolicy>,
    controller: Option<String>,
    dependence: Option<Dependence>,
}

#[derive(Clone, Copy, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
struct RolePhasePolicy {
    failed: Option<Quorum>,
    succeeded: Option<Quorum>,
    node_down_as_failed: Option<bool>,
}

#[derive(Clone, Copy, Deserialize, Serialize)]
enum Quorum {
    AnyPod,
    AllPods,
}

#[derive(Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
struct Dependence {
    role_names: Option<Vec<String>>,
    role_phase: Option<RolePhase>,
    mpi_host_file: Option<String>,
}

#[derive(Clone, Copy, Default, Deserialize, Serialize)]
enum RolePhase {
    Pending,
    Starting,
    #[default]
    Running,
    Failed,
    Succeeded,
}

/// The job as far as it can be read. It is not valid if there are errors.
fn translate(
    object: &Value,
    purpose: Purpose,
    errors: &mut Vec<FieldError>,
) -> Result<Converted, Vec<FieldError>> {
    let read::Object {
        metadata,
        mut spec,
        mut notes,
    } = read::object::<Spec>(object, purpose)?;
    let given = spec.role_specs.take().unwrap_or_default();
    let framework = Framework::of(&spec, &given).unwrap_or_else(|error| {
        errors.push(error);
        Framework::Unknown
    });
    errors.extend(framework.check(&spec, &given));
    let options = framework.options(&spec, &given, &mut notes);
    let completion = policy::completion(
        framework,
        spec.job_phase_policy.take(),
        &given,
        &mut notes,
        errors,
    );
    let mut roles = role::roles(framework, given, purpose, &mut notes, errors);
    if purpose == Purpose::Replace {
        pass_on(&metadata, &mut roles);
    }
    let mut run_policy = run_policy(&spec, &roles, &mut notes);
    run_policy.update_policy = framework.update_policy();
    let job = TrainingJob {
        metadata,
        spec: TrainingJobSpec {
            framework: options,
            roles,
            completion,
            run_policy: (run_policy != RunPolicy::default()).then_some(run_policy),
            ..TrainingJobSpec::default()
        },
        status: None,
    };
    Ok(Converted { job, notes })
}

/// Gives pods the annotations of the job that they have there, also as labels.
fn pass_on(metadata: &ObjectMeta, roles: &mut [RoleSpec]) {
    let given = metadata.annotations.iter().flatten();
    let passed: BTreeMap<String, String> = given
        .filter(|(key, _)| ARES_PASSED_ON.contains(&key.as_str()))
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect();
    if passed.is_empty() {
        return;
    }
    for role in roles {
        let metadata = role.template.metadata.get_or_insert_default();
        for place in [&mut metadata.labels, &mut metadata.annotations] {
            place.get_or_insert_default().extend(passed.clone());
        }
    }
}

fn run_policy(spec: &Spec, roles: &[RoleSpec], notes: &mut Vec<String>) -> RunPolicy {
    let none = TheirRunPolicy::default();
    let given = spec.run_policy.as_ref().unwrap_or(&none);
    if given.clean_pod_policy.is_none() {
        notes.push(
            "spec.runPolicy.cleanPodPolicy: is not given, which left all pods where they were; here pods that still run are \
             deleted at the end, so that they hold no accelerator. To keep them, set it to None"
                .to_owned(),
        );
    }
    if given.scheduling_policy.is_some() {
        notes.push(
            "spec.runPolicy.schedulingPolicy: there are no pod groups yet, so that pods are placed one by one; left out"
                .to_owned(),
        );
    }
    // There, pods are restarted without a limit.
    let restarts = |role: &RoleSpec| role.restart_policy != Some(RestartPolicy::Never);
    let unlimited = roles.iter().any(restarts).then_some(NO_BACKOFF_LIMIT);
    RunPolicy {
        clean_pod_policy: given.clean_pod_policy,
        ttl_seconds_after_finished: given.ttl_seconds_after_finished.map(i64::from),
        ttl_seconds_after_failed: spec.ttl_seconds_after_failed.map(i64::from),
        active_deadline_seconds: given.active_deadline_seconds,
        backoff_limit: given.backoff_limit.or(unlimited),
        ..RunPolicy::default()
    }
}
