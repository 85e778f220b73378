//! What the kinds of dl-operator have in common, MXJob and TFJob of `mpba.fbk.eu/v1`.
//!
//! Their spec is a list, with an entry for each type of replica. Each kind is a framework, which
//! knows the types and the variables of their pods.

mod definition;
mod status;

use k8s_openapi::api::core::v1::PodTemplateSpec;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use trainyard_api::{
    Dialect, FieldError, FrameworkSpec, ProgressPolicy, RoleSpec, TrainingJob, TrainingJobSpec,
};
use trainyard_core::frameworks;

use crate::{Converted, Extras, Kind, Purpose, Translate, conditions, read, templates};

/// What is different for every job that is converted.
const OF_EVERY_JOB: [&str; 2] = [
    "spec: pods are named <job>-<role>-<index>, and not <role>-<job>-<index>; their labels are trainyard.dev/job, role and \
     index, and not job_name and pod_name",
    "spec: pods find each other by host names, and have no Service each; pods that still run are deleted when the job has \
     ended",
];

/// Where users wrote what a TrainingJob has elsewhere.
const PATHS: &[(&str, &str)] = &[
    (
        "spec.roles[*].restartPolicy",
        "spec[*].template.spec.restartPolicy",
    ),
    // Types have the names that they have: what is wrong with the names of pods is the job's.
    ("spec.roles[*].name", "metadata.name"),
    ("spec.roles", "spec"),
    ("spec.framework", "spec"),
];

/// One of their kinds.
pub const fn kind(name: &'static str, plural: &'static str, translate: Translate) -> Kind {
    Kind {
        group: "mpba.fbk.eu",
        version: "v1",
        name,
        plural,
        flag: "dl",
        dialect: Dialect::Dl,
        translate,
        paths: PATHS,
        status: status::status,
        event: conditions::event,
        definition: definition::definition,
        extras: Extras::NONE,
    }
}

/// An entry of a spec.
#[derive(Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
struct ReplicaSpec {
    replicas: Option<i32>,
    replica_type: Option<String>,
    template: Option<PodTemplateSpec>,
}

/// Translates an object of one of their kinds.
pub fn translate(
    object: &Value,
    purpose: Purpose,
    framework: FrameworkSpec,
    errors: &mut Vec<FieldError>,
) -> Result<Converted, Vec<FieldError>> {
    let read::Object {
        metadata,
        spec,
        mut notes,
    } = read::object::<Vec<ReplicaSpec>>(object, purpose)?;
    let mut job = TrainingJob {
        metadata,
        spec: TrainingJobSpec {
            framework,
            // Their users were promised the result of a job, and have no field to ask for it.
            progress: Some(ProgressPolicy::Report),
            ..TrainingJobSpec::default()
        },
        status: None,
    };
    for (i, given) in spec.into_iter().enumerate() {
        let role = role(given, i, &job, &mut notes, errors);
        job.spec.roles.push(role);
    }
    if purpose == Purpose::Replace {
        notes.extend(OF_EVERY_JOB.map(str::to_owned));
    }
    Ok(Converted { job, notes })
}

/// The role of the entry at a position; `job` has those before it. One of a type that is not known
/// has no name.
fn role(
    given: ReplicaSpec,
    position: usize,
    job: &TrainingJob,
    notes: &mut Vec<String>,
    errors: &mut Vec<FieldError>,
) -> RoleSpec {
    let at = format!("spec[{position}]");
    let name = replica_type(given.replica_type.as_deref(), job).unwrap_or_else(|problem| {
        errors.push(FieldError::new(format!("{at}.replicaType"), problem));
        String::new()
    });
    let at = format!("{at}.template");
    let mut template = given.template.unwrap_or_else(|| {
        errors.push(templates::missing(&at));
        PodTemplateSpec::default()
    });
    let restart_policy = templates::restart_policy(&mut template, &at, notes);
    let restart_policy = restart_policy.map_err(|error| errors.push(error)).ok();
    templates::strip(&mut template, &at, notes);
    leave_out_variables(&mut template, &at, job, notes);
    RoleSpec {
        name,
        replicas: Some(given.replicas.unwrap_or(1)),
        template,
        restart_policy,
        ..RoleSpec::default()
    }
}

/// The role of a type of replica, which may be written in any case.
fn replica_type(given: Option<&str>, job: &TrainingJob) -> Result<String, String> {
    let framework = frameworks::find(&job.spec.framework.name);
    let known = framework.into_iter().flat_map(|framework| &framework.roles);
    let known: Vec<&str> = known.map(|rule| &*rule.name).collect();
    let Some(given) = given else {
        return Err(format!("is missing: give one of {}", known.join(", ")));
    };
    let name = given.to_lowercase();
    if !known.contains(&name.as_str()) {
        return Err(format!(
            "there is no type {given:?}: give one of {}",
            known.join(", ")
        ));
    }
    if job.spec.roles.iter().any(|role| role.name == name) {
        return Err(format!(
            "there are {given:?} replicas already: give their number in replicas"
        ));
    }
    Ok(name)
}

/// Removes the variables from a template that the framework sets. There, users had to write them,
/// because the operator did not.
fn leave_out_variables(template: &mut PodTemplateSpec, at: &str, job: &TrainingJob, notes: &mut Vec<String>) {
    let Some(framework) = frameworks::find(&job.spec.framework.name) else {
        return;
    };
    let reserved = framework.environment.reserved(job);
    let Some(pod) = &mut template.spec else { return };
    let lists = [
        ("containers", Some(&mut pod.containers)),
        ("initContainers", pod.init_containers.as_mut()),
    ];
    for (list, containers) in lists {
        for (c, container) in containers.into_iter().flatten().enumerate() {
            let Some(variables) = &mut container.env else {
                continue;
            };
            variables.retain(|variable| {
                let is_set = reserved.contains(&variable.name.as_str());
                if is_set {
                    notes.push(format!(
                        "{at}.spec.{list}[{c}].env: {} is set by the operator; left out",
                        variable.name
                    ));
                }
                !is_set
            });
        }
    }
}
