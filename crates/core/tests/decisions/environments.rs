//! What the pods of each framework find: a table per framework, of a job with all of its roles.
//!
//! Each pod is listed with its restart policy, how many pods make its role succeed, what it waits
//! for, its variables and its ports; then come the job's Services and its rules of completion. `~`
//! stands for the domain of the job, `.mnist.team.svc.cluster.local`. Variables that every job has
//! are left out.

mod bagua;
mod bounds;
mod dask;
mod deepspeed;
mod jax;
mod mxnet;
mod paddle;
mod pytorch;
mod standalone;
mod tensorflow;
mod xgboost;

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{EnvVar, Pod};
use trainyard_api::TrainingJob;
use trainyard_core::build;
use trainyard_core::job::{Job, Role};
use trainyard_core::model::PodKey;
use trainyard_core::view::Settings;

use crate::jobs;

/// A job named `mnist` of a framework, whose options are given, with these roles.
pub(crate) fn job(framework: &str, options: &str, roles: &[(&str, i32)]) -> TrainingJob {
    let mut job = jobs::job(framework, roles);
    let spec = if options.is_empty() {
        format!("{{name: {framework}}}")
    } else {
        format!("{{name: {framework}, {framework}: {{{options}}}}}")
    };
    job.spec.framework = serde_saphyr::from_str(&spec).unwrap();
    job
}

/// All that the pods of a job find, in lines.
fn table(object: &TrainingJob) -> String {
    let job = Job::parse(object).unwrap();
    let mut lines: Vec<String> = job.keys().flat_map(|key| pod_lines(&job, key)).collect();
    let services = build::service_keys(&job).into_iter();
    lines.extend(services.map(|key| format!("Service: {}", build::service_name(&job, key))));
    lines.push(format!("succeeds: {}", sets(&job, &job.succeeded_when)));
    lines.push(format!("fails: {}", sets(&job, &job.failed_when)));
    lines.join("\n").replace(".mnist.team.svc.cluster.local", "~")
}

fn sets(job: &Job<'_>, sets: &[Vec<usize>]) -> String {
    let set = |set: &Vec<usize>| {
        let names: Vec<&str> = set.iter().map(|role| job.roles[*role].name).collect();
        names.join(" and ")
    };
    sets.iter().map(set).collect::<Vec<_>>().join(", or ")
}

fn pod_lines(job: &Job<'_>, key: PodKey) -> Vec<String> {
    let role = &job.roles[key.role];
    let pod = build::pod(job, &Settings::default(), key).unwrap();
    let mut lines = vec![format!("{}-{}{}", role.name, key.index, rules(job, role))];
    lines.extend(variables(&pod).iter().map(|var| format!("  {}", describe(var))));
    let main = &pod.spec.as_ref().unwrap().containers[0];
    let ports = main.ports.iter().flatten();
    lines.extend(ports.map(|port| {
        let name = port.name.as_deref().unwrap_or_default();
        format!("  port {name} {}", port.container_port)
    }));
    lines
}

fn rules(job: &Job<'_>, role: &Role<'_>) -> String {
    let after = role.depends_on.iter();
    let after: Vec<&str> = after.map(|on| job.roles[on.role].name).collect();
    let after = if after.is_empty() {
        String::new()
    } else {
        format!(", after {}", after.join(" and "))
    };
    format!(": {:?}, {:?}{after}", role.restart_policy, role.succeeded_when)
}

/// The variables of a pod's main container that its framework has set.
fn variables(pod: &Pod) -> Vec<EnvVar> {
    let main = pod.spec.as_ref().unwrap().containers[0].clone();
    let all = main.env.unwrap_or_default();
    all.into_iter()
        .filter(|var| !var.name.starts_with("TRAINYARD_"))
        .collect()
}

fn describe(var: &EnvVar) -> String {
    let field = var.value_from.as_ref().and_then(|from| from.field_ref.as_ref());
    match field {
        Some(field) => format!("{} from {}", var.name, field.field_path),
        None => format!("{}={}", var.name, var.value.as_deref().unwrap_or_default()),
    }
}

/// The variables of one pod, by name, where none has another source than its value.
fn values(object: &TrainingJob, role: usize, index: i32) -> BTreeMap<String, String> {
    let job = Job::parse(object).unwrap();
    let pod = build::pod(&job, &Settings::default(), PodKey { role, index }).unwrap();
    let of = |var: EnvVar| (var.name, var.value.unwrap_or_default());
    variables(&pod).into_iter().map(of).collect()
}
