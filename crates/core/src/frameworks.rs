//! What each framework says about a job. One file each, one table, in one order.
//!
//! To add one: a file here with a function `framework`, a line in [`FRAMEWORKS`], an example and a
//! page in `docs/frameworks/`. `CONTRIBUTING.md` shows how.

mod accelerators;
mod bagua;
mod custom;
mod dask;
mod deepspeed;
mod horovod;
mod hostfiles;
mod jax;
mod launcher;
mod lists;
mod mounts;
mod mpi;
mod mxnet;
mod one_port;
mod paddle;
mod ports;
mod pytorch;
mod standalone;
mod tensorflow;
mod xgboost;

use std::sync::LazyLock;

use k8s_openapi::api::core::v1::Container;
use trainyard_api::{DependencyState, FieldError, RoleSpec, TrainingJob};
use trainyard_contract::environment::SHELL_IDLE_TIMEOUT;
use trainyard_contract::shell::IDLE_TIMEOUT_SECONDS;

use crate::job::{Framework, RoleRule};

pub use accelerators::accelerators;

/// Every framework, in the order in which they are listed to users.
pub static FRAMEWORKS: LazyLock<Vec<Framework>> = LazyLock::new(|| {
    vec![
        pytorch::framework(),
        tensorflow::framework(),
        mpi::framework(),
        horovod::framework(),
        deepspeed::framework(),
        mxnet::framework(),
        jax::framework(),
        xgboost::framework(),
        paddle::framework(),
        bagua::framework(),
        dask::framework(),
        standalone::framework(),
        custom::framework(),
    ]
});

/// The framework that says the least.
pub(crate) static ANY: LazyLock<Framework> = LazyLock::new(custom::framework);

/// The framework of a name.
pub fn find(name: &str) -> Option<&'static Framework> {
    FRAMEWORKS.iter().find(|framework| framework.name == name)
}

/// The framework of a job.
pub fn of(job: &TrainingJob) -> Option<&'static Framework> {
    find(&job.spec.framework.name).map(|framework| framework.variant(job))
}

/// All that is wrong with a job as far as its framework can tell.
pub(crate) fn validate(framework: &Framework, job: &TrainingJob) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if !framework.roles.is_empty() {
        check_roles(framework.name(), &framework.roles, job, &mut errors);
    }
    if framework.declaration.is_none() && !job.spec.framework.params.is_empty() {
        let name = framework.name();
        errors.push(FieldError::new(
            "spec.framework.params",
            format!("{name} is built in and has no params: use its options in spec.framework.{name}"),
        ));
    }
    let reserved = framework.environment.reserved(job);
    check_env(framework.name(), &reserved, job, &mut errors);
    errors.extend(mounts::check(job, framework.elasticity, |role| {
        framework.places(job, role)
    }));
    if framework.trains_as_one {
        check_waiting(framework.name(), job, &mut errors);
    }
    errors.extend(framework.check(job));
    errors
}

/// Roles that train together end together: one that waits for another to end keeps it from
/// training.
fn check_waiting(framework: &str, job: &TrainingJob, errors: &mut Vec<FieldError>) {
    for (i, role) in job.spec.roles.iter().enumerate() {
        for (d, on) in role.depends_on.iter().flatten().enumerate() {
            if on.state == DependencyState::Succeeded {
                errors.push(FieldError::new(
                    format!("spec.roles[{i}].dependsOn[{d}].state"),
                    format!(
                        "the roles of {framework} jobs train together, so that {:?} can't succeed while {:?} waits for it: use \
                         Running or Ready",
                        on.role, role.name
                    ),
                ));
            }
        }
    }
}

/// The sentence for a framework that does not exist, where frameworks can be declared.
pub fn unknown(name: &str) -> String {
    format!(
        "{}, or declare it: apply a Framework of that name, or give its file as --framework-file",
        not_built_in(name)
    )
}

/// The sentence for a framework that is not built in, where no other can be declared.
pub(crate) fn not_built_in(name: &str) -> String {
    let known: Vec<&str> = FRAMEWORKS.iter().map(Framework::name).collect();
    format!("there is no framework {name:?}: use one of {}", known.join(", "))
}

fn check_roles(framework: &str, rules: &[RoleRule], job: &TrainingJob, errors: &mut Vec<FieldError>) {
    let known: Vec<&str> = rules.iter().map(|rule| &*rule.name).collect();
    let is_there = |rule: &RoleRule| job.spec.roles.iter().any(|role| role.name == rule.name);
    for rule in rules.iter().filter(|rule| rule.is_required && !is_there(rule)) {
        errors.push(FieldError::new(
            "spec.roles",
            format!("{framework} jobs need a role {:?}: add it", rule.name),
        ));
    }
    let serves = |role: &RoleSpec| rules.iter().any(|rule| rule.serves && rule.name == role.name);
    if !job.spec.roles.is_empty() && errors.is_empty() && job.spec.roles.iter().all(serves) {
        let train = rules.iter().filter(|rule| !rule.serves);
        let names: Vec<&str> = train.map(|rule| &*rule.name).collect();
        errors.push(FieldError::new(
            "spec.roles",
            format!(
                "{framework} jobs need a role that trains: add {}",
                names.join(" or ")
            ),
        ));
    }
    for (i, role) in job.spec.roles.iter().enumerate() {
        let Some(rule) = rules.iter().find(|rule| rule.name == role.name) else {
            errors.push(FieldError::new(
                format!("spec.roles[{i}].name"),
                format!(
                    "{framework} has no role {:?}: use {}",
                    role.name,
                    known.join(" or ")
                ),
            ));
            continue;
        };
        if let Some(max) = rule
            .max
            .filter(|max| role.replicas.is_some_and(|replicas| replicas > *max))
        {
            errors.push(FieldError::new(
                format!("spec.roles[{i}].replicas"),
                format!(
                    "{framework} jobs have at most {max} {:?} {}: set replicas to {max}",
                    role.name,
                    if max == 1 { "pod" } else { "pods" }
                ),
            ));
        }
    }
}

/// Whether a variable is one of those that users must not set.
fn is_reserved(name: &str, reserved: &[&str]) -> bool {
    reserved.iter().any(|reserved| match reserved.strip_suffix('*') {
        Some(begin) => name.starts_with(begin),
        None => name == *reserved,
    })
}

fn check_env(framework: &str, reserved: &[&str], job: &TrainingJob, errors: &mut Vec<FieldError>) {
    for (path, _, container) in containers(job) {
        for (e, var) in container.env.iter().flatten().enumerate() {
            if var.name == SHELL_IDLE_TIMEOUT {
                let value = var.value.as_deref().unwrap_or_default();
                let is_one = value
                    .parse()
                    .is_ok_and(|seconds| IDLE_TIMEOUT_SECONDS.contains(&seconds));
                // What is not written here is read, and checked, by the agent.
                if var.value_from.is_none() && !value.is_empty() && !is_one {
                    let (least, most) = (IDLE_TIMEOUT_SECONDS.start(), IDLE_TIMEOUT_SECONDS.end());
                    errors.push(FieldError::new(
                        format!("{path}.env[{e}].value"),
                        format!(
                            "{SHELL_IDLE_TIMEOUT} must be a whole number of seconds from {least} to {most}"
                        ),
                    ));
                }
            } else if is_reserved(&var.name, reserved) {
                errors.push(FieldError::new(
                    format!("{path}.env[{e}].name"),
                    format!(
                        "{} is set by the operator for {framework}; another value would keep the pods from finding each \
                         other: remove it",
                        var.name
                    ),
                ));
            }
        }
    }
}

/// Every container of a job, with its path and its role, in the order in which errors are reported.
fn containers(job: &TrainingJob) -> impl Iterator<Item = (String, &RoleSpec, &Container)> {
    let roles = job.spec.roles.iter().enumerate();
    roles.flat_map(|(i, role)| {
        let pod = role.template.spec.as_ref();
        let lists = [
            ("containers", pod.map(|pod| &pod.containers)),
            ("initContainers", pod.and_then(|pod| pod.init_containers.as_ref())),
        ];
        lists.into_iter().flat_map(move |(list, containers)| {
            let containers = containers.into_iter().flatten().enumerate();
            containers.map(move |(c, container)| {
                let path = format!("spec.roles[{i}].template.spec.{list}[{c}]");
                (path, role, container)
            })
        })
    })
}
