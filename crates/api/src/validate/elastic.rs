//! The rules for a job that grows and shrinks.

use super::FieldError;
use crate::elastic::Elastic;
use crate::job::TrainingJobSpec;

pub(super) fn check(spec: &TrainingJobSpec, errors: &mut Vec<FieldError>) {
    let Some(elastic) = &spec.elastic else {
        return;
    };
    check_role(spec, elastic, errors);
    check_bounds(elastic, errors);
    check_sizes(elastic, errors);
    for (field, seconds, least) in [
        ("drainTimeoutSeconds", elastic.drain_timeout_seconds, 0),
        ("pauseTimeoutSeconds", elastic.pause_timeout_seconds, 1),
    ] {
        if let Some(seconds) = seconds.filter(|seconds| *seconds < least) {
            let message = format!("{seconds} seconds: give at least {least}, or leave it out");
            errors.push(FieldError::new(format!("spec.elastic.{field}"), message));
        }
    }
}

fn check_role(spec: &TrainingJobSpec, elastic: &Elastic, errors: &mut Vec<FieldError>) {
    let names = || {
        let names: Vec<&str> = spec.roles.iter().map(|role| &*role.name).collect();
        names.join(", ")
    };
    let Some(position) = spec.elastic_role() else {
        let message = match &elastic.role {
            Some(role) => format!("there is no role {role:?}: there are {}", names()),
            None => format!("name the role that grows and shrinks: there are {}", names()),
        };
        errors.push(FieldError::new("spec.elastic.role", message));
        return;
    };
    if spec
        .roles
        .get(position)
        .is_some_and(|role| role.replicas.is_some())
    {
        errors.push(FieldError::new(
            format!("spec.roles[{position}].replicas"),
            "the role is elastic, and spec.elastic.replicas says how many pods it has: remove this",
        ));
    }
}

fn check_bounds(elastic: &Elastic, errors: &mut Vec<FieldError>) {
    let (replicas, min, max) = (elastic.replicas, elastic.min(), elastic.max());
    for (field, number) in [
        ("replicas", Some(replicas)),
        ("minReplicas", elastic.min_replicas),
        ("maxReplicas", elastic.max_replicas),
    ] {
        if let Some(number) = number.filter(|number| *number < 1) {
            let message = format!("{number} pods: give at least 1; to stop a job, set spec.suspend");
            errors.push(FieldError::new(format!("spec.elastic.{field}"), message));
        }
    }
    if min > max {
        errors.push(FieldError::new(
            "spec.elastic.minReplicas",
            format!("{min} is more than maxReplicas, which is {max}: give at most {max}"),
        ));
    } else if replicas < min && replicas > 0 {
        errors.push(FieldError::new(
            "spec.elastic.replicas",
            format!("{replicas} is less than minReplicas, which is {min}: give at least {min}"),
        ));
    } else if replicas > max {
        errors.push(FieldError::new(
            "spec.elastic.replicas",
            format!("{replicas} is more than maxReplicas, which is {max}: give at most {max}"),
        ));
    }
}

fn check_sizes(elastic: &Elastic, errors: &mut Vec<FieldError>) {
    let Some(sizes) = &elastic.valid_sizes else {
        return;
    };
    let mut problem = |path: &str, message: String| {
        errors.push(FieldError::new(format!("spec.elastic.validSizes{path}"), message));
    };
    match (&sizes.values, sizes.step) {
        (Some(_), Some(_)) => problem(
            "",
            "values and step are two ways to say it: give one of them".to_owned(),
        ),
        (None, None) => problem("", "give values or a step, or leave it out".to_owned()),
        (_, Some(step)) if step < 1 => problem(".step", format!("{step}: give at least 1")),
        _ if elastic.largest_size_within(elastic.replicas).is_none() => {
            let message = format!(
                "none of these sizes is from minReplicas, which is {}, to replicas, which is {}: give one",
                elastic.min(),
                elastic.replicas
            );
            problem("", message);
        }
        _ => {}
    }
}
