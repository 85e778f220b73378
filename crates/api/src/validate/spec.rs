//! The rules for a job on its own.

use std::collections::BTreeSet;

use super::at::At;
use super::{FieldError, depends, dns_label_problem, elastic, metadata, object_name_problem, pod};
use crate::completion::{Completion, RoleSet};
use crate::job::{Dialect, TrainingJob, TrainingJobSpec};
use crate::names;
use crate::role::RoleSpec;
use crate::run_policy::RunPolicy;

/// The most pods one job may have: what the API server, and status lists, carry without harm.
const MAX_PODS: i64 = 20_000;
const MAX_ROLES: usize = 16;

pub(super) fn check(job: &TrainingJob) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let name = job.metadata.name.as_deref().unwrap_or_default();
    if let Some(problem) = dns_label_problem(name) {
        errors.push(FieldError::new(
            "metadata.name",
            format!("the name {problem}, because pods are named after it"),
        ));
    }
    let namespace = job.metadata.namespace.as_deref().and_then(object_name_problem);
    errors.extend(
        namespace.map(|problem| FieldError::new("metadata.namespace", format!("the name {problem}"))),
    );
    metadata::check(&At::root("metadata"), &job.metadata, &mut errors);
    framework(&job.spec, &mut errors);
    roles(name, &job.spec, &mut errors);
    elastic::check(&job.spec, &mut errors);
    if let Some(completion) = &job.spec.completion {
        self::completion(completion, &job.spec.roles, &mut errors);
    }
    if let Some(run) = &job.spec.run_policy {
        run_policy(run, &mut errors);
    }
    if let Some(by) = &job.spec.managed_by
        && (by.len() > 63
            || !by
                .split_once('/')
                .is_some_and(|(domain, path)| !domain.is_empty() && !path.is_empty()))
    {
        errors.push(FieldError::new(
            "spec.managedBy",
            format!("{by:?} is no controller's name: write it as domain/name, at most 63 characters"),
        ));
    }
    errors
}

fn framework(spec: &TrainingJobSpec, errors: &mut Vec<FieldError>) {
    let framework = &spec.framework;
    if framework.name.is_empty() {
        errors.push(FieldError::new(
            "spec.framework.name",
            "name the framework that trains, for example pytorch",
        ));
    }
    for other in framework.given_options() {
        if other != framework.name {
            errors.push(FieldError::new(
                format!("spec.framework.{other}"),
                format!(
                    "these are options of {other}, but the framework is {:?}: remove them",
                    framework.name
                ),
            ));
        }
    }
}

fn roles(job: &str, spec: &TrainingJobSpec, errors: &mut Vec<FieldError>) {
    if spec.roles.is_empty() {
        errors.push(FieldError::new("spec.roles", "a job needs at least one role"));
    }
    if spec.roles.len() > MAX_ROLES {
        errors.push(FieldError::new(
            "spec.roles",
            format!("at most {MAX_ROLES} roles are possible"),
        ));
    }
    // Other dialects name pods in other ways, and `trainyard-core` knows how.
    let job = (spec.dialect.unwrap_or_default() == Dialect::Native).then_some(job);
    let mut seen = BTreeSet::new();
    let at = At::root("spec.roles");
    for (i, role) in spec.roles.iter().enumerate() {
        let at = at.index(i);
        if !seen.insert(role.name.as_str()) {
            errors.push(at.field("name").error(format!(
                "there is a role {:?} already: give each role its own name",
                role.name
            )));
        }
        let replicas = spec.most_replicas(role);
        self::role(job, &at, role, replicas, errors);
    }
    depends::check(&spec.roles, errors);
    let pods: i64 = spec
        .roles
        .iter()
        .map(|role| i64::from(spec.most_replicas(role).max(0)))
        .sum();
    if pods > MAX_PODS {
        errors.push(FieldError::new(
            "spec.roles",
            format!("{pods} pods in one job; at most {MAX_PODS} are possible"),
        ));
    }
}

fn role(job: Option<&str>, at: &At<'_>, role: &RoleSpec, replicas: i32, errors: &mut Vec<FieldError>) {
    if let Some(problem) = dns_label_problem(&role.name) {
        errors.push(at.field("name").error(format!("the role's name {problem}")));
    }
    if role.replicas.is_some_and(|replicas| replicas < 1) {
        errors.push(at.field("replicas").error(format!(
            "{replicas} pods: give at least 1, or remove the role; to stop a job, set spec.suspend"
        )));
    } else if let Some(job) = job.filter(|_| replicas >= 1) {
        let longest = names::pod(job, &role.name, replicas - 1);
        if longest.len() > names::MAX_NAME {
            errors.push(at.field("name").error(format!(
                "the pod name {longest:?} would have {} characters; at most {} are possible: shorten the name of the \
                 job or of the role by {}",
                longest.len(),
                names::MAX_NAME,
                longest.len() - names::MAX_NAME
            )));
        }
    }
    pod::check(at, &role.template, role.container.as_deref(), errors);
    let key = role
        .placement
        .as_ref()
        .and_then(|placement| placement.topology_key.as_deref());
    if let Some(key) = key {
        pod::topology_key(&at.field("placement").field("topologyKey"), key, errors);
    }
}

fn completion(completion: &Completion, roles: &[RoleSpec], errors: &mut Vec<FieldError>) {
    if completion.succeeded_when.is_empty() && completion.failed_when.is_empty() {
        errors.push(FieldError::new(
            "spec.completion",
            "give succeededWhen or failedWhen, or leave completion out",
        ));
    }
    let mut sets = |field: &str, sets: &[RoleSet]| {
        for (i, set) in sets.iter().enumerate() {
            let path = format!("spec.completion.{field}[{i}].allOf");
            if set.all_of.is_empty() {
                errors.push(FieldError::new(
                    &*path,
                    "an empty set holds at once: name at least one role",
                ));
            }
            for (j, name) in set.all_of.iter().enumerate() {
                let mut found = roles.iter().enumerate();
                let problem = match found.find(|(_, role)| role.name == *name) {
                    None => format!("there is no role {name:?} in spec.roles: name one that is there"),
                    Some((at, role)) if field == SUCCEEDED_WHEN && !role.can_succeed() => format!(
                        "the role {name:?} has restartPolicy Always, given or by default, and never succeeds, nor would the \
                         job by this rule: leave it out, or give another spec.roles[{at}].restartPolicy"
                    ),
                    Some(_) => continue,
                };
                errors.push(FieldError::new(format!("{path}[{j}]"), problem));
            }
        }
    };
    sets(SUCCEEDED_WHEN, &completion.succeeded_when);
    sets("failedWhen", &completion.failed_when);
}

const SUCCEEDED_WHEN: &str = "succeededWhen";

fn run_policy(run: &RunPolicy, errors: &mut Vec<FieldError>) {
    let least = [
        ("ttlSecondsAfterFinished", run.ttl_seconds_after_finished, 0),
        ("ttlSecondsAfterFailed", run.ttl_seconds_after_failed, 0),
        ("activeDeadlineSeconds", run.active_deadline_seconds, 1),
        ("drainTimeoutSeconds", run.drain_timeout_seconds, 0),
        ("backoffLimit", run.backoff_limit.map(i64::from), 0),
    ];
    for (field, value, least) in least {
        if let Some(value) = value.filter(|value| *value < least) {
            errors.push(FieldError::new(
                format!("spec.runPolicy.{field}"),
                format!("{value} is too small: give at least {least}, or leave it out"),
            ));
        }
    }
}
