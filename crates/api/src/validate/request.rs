//! The rules for requests to change the size of a job.

use std::collections::HashSet;

use super::FieldError;
use crate::elastic::MAX_REPLICAS;
use crate::names::MAX_NAME;
use crate::scale_request::{
    JobRef, MAX_ARG, MAX_ARGS, MAX_BACKOFF_LIMIT, MAX_NAMED, MAX_SCRIPT, MAX_VARIABLE_NAME,
    MAX_VARIABLE_VALUE, MAX_VARIABLES, ScaleInSpec, ScaleOutSpec, ScriptVariable, ToDelete,
};

const UNCHANGEABLE: &str = "can't be changed: create another request instead";

/// All that is wrong with a ScaleIn, and with its change where `old` is given.
pub fn validate_scale_in(old: Option<&ScaleInSpec>, new: &ScaleInSpec) -> Vec<FieldError> {
    let mut errors = Vec::new();
    check_job(&new.job_ref, &mut errors);
    match &new.to_delete {
        Some(to_delete) => check_victims(to_delete, &mut errors),
        None => errors.push(FieldError::new(
            "spec.toDelete",
            "is missing: say who leaves, by count, podNames or nodeNames",
        )),
    }
    check_seconds("drainTimeoutSeconds", new.drain_timeout_seconds, 0, &mut errors);
    check_seconds("timeoutSeconds", new.timeout_seconds, 1, &mut errors);
    check_seconds(
        "ttlSecondsAfterFinished",
        new.ttl_seconds_after_finished,
        0,
        &mut errors,
    );
    let script = GivenScript {
        program: new.script.as_deref(),
        args: new.args.as_deref().unwrap_or_default(),
        env: new.env.as_deref().unwrap_or_default(),
        backoff_limit: new.backoff_limit,
    };
    script.check(&mut errors);
    if old.is_some_and(|old| old != new) {
        errors.push(FieldError::new("spec", UNCHANGEABLE));
    }
    errors
}

/// All that is wrong with a ScaleOut, and with its change where `old` is given.
pub fn validate_scale_out(old: Option<&ScaleOutSpec>, new: &ScaleOutSpec) -> Vec<FieldError> {
    let mut errors = Vec::new();
    check_job(&new.job_ref, &mut errors);
    match &new.to_add {
        Some(to_add) => check_count("spec.toAdd.count", to_add.count, &mut errors),
        None => errors.push(FieldError::new(
            "spec.toAdd",
            "is missing: say with count how many pods join",
        )),
    }
    check_seconds("timeoutSeconds", new.timeout_seconds, 1, &mut errors);
    check_seconds(
        "ttlSecondsAfterFinished",
        new.ttl_seconds_after_finished,
        0,
        &mut errors,
    );
    let script = GivenScript {
        program: new.script.as_deref(),
        args: new.args.as_deref().unwrap_or_default(),
        env: new.env.as_deref().unwrap_or_default(),
        backoff_limit: new.backoff_limit,
    };
    script.check(&mut errors);
    if old.is_some_and(|old| old != new) {
        errors.push(FieldError::new("spec", UNCHANGEABLE));
    }
    errors
}

fn check_job(job: &JobRef, errors: &mut Vec<FieldError>) {
    let path = "spec.jobRef.name";
    if job.name.is_empty() {
        errors.push(FieldError::new(
            path,
            "is empty: name a TrainingJob of this namespace",
        ));
    } else if job.name.len() > MAX_NAME {
        let message = format!("no TrainingJob has a name of more than {MAX_NAME} characters");
        errors.push(FieldError::new(path, message));
    }
}

fn check_victims(to_delete: &ToDelete, errors: &mut Vec<FieldError>) {
    let given = [
        to_delete.count.map(|_| "count"),
        to_delete.pod_names.as_ref().map(|_| "podNames"),
        to_delete.node_names.as_ref().map(|_| "nodeNames"),
    ];
    let given: Vec<&str> = given.into_iter().flatten().collect();
    match &*given {
        [_] => {}
        [] => errors.push(FieldError::new(
            "spec.toDelete",
            "is empty: give one of count, podNames and nodeNames",
        )),
        several => errors.push(FieldError::new(
            "spec.toDelete",
            format!("has {}: give one of them", several.join(" and ")),
        )),
    }
    if let Some(count) = to_delete.count {
        check_count("spec.toDelete.count", count, errors);
    }
    check_names("podNames", to_delete.pod_names.as_deref(), errors);
    check_names("nodeNames", to_delete.node_names.as_deref(), errors);
}

/// The program that a request asks for, if it does.
struct GivenScript<'a> {
    program: Option<&'a str>,
    args: &'a [String],
    env: &'a [ScriptVariable],
    backoff_limit: Option<i32>,
}

/// A program gets its arguments and variables from the system, which takes no NUL in them.
fn fits(text: &str, most: usize) -> bool {
    !text.contains('\0') && text.chars().count() <= most
}

impl GivenScript<'_> {
    fn check(&self, errors: &mut Vec<FieldError>) {
        let mut wrong = |path: &str, message: String| errors.push(FieldError::new(path, message));
        match self.program {
            Some("") => wrong("spec.script", "is empty: name a program".to_owned()),
            Some(program) if !fits(program, MAX_SCRIPT) => {
                let message = format!("give a path of at most {MAX_SCRIPT} characters, without NUL");
                wrong("spec.script", message);
            }
            None => {
                let parts = [
                    ("spec.args", "arguments", self.args.is_empty()),
                    ("spec.env", "variables", self.env.is_empty()),
                ];
                for (path, what, _) in parts.into_iter().filter(|(_, _, is_empty)| !is_empty) {
                    let message = format!(
                        "are the {what} of a script, and there is none: add script, or leave them out"
                    );
                    wrong(path, message);
                }
            }
            Some(_) => {}
        }
        if let Some(limit) = self
            .backoff_limit
            .filter(|limit| !(0..=MAX_BACKOFF_LIMIT).contains(limit))
        {
            let message = format!("{limit} more attempts: give a number from 0 to {MAX_BACKOFF_LIMIT}");
            wrong("spec.backoffLimit", message);
        }
        check_arguments(self.args, errors);
        check_variables(self.env, errors);
    }
}

fn check_arguments(args: &[String], errors: &mut Vec<FieldError>) {
    if args.len() > MAX_ARGS {
        let message = format!("has {} arguments: give at most {MAX_ARGS}", args.len());
        errors.push(FieldError::new("spec.args", message));
    }
    for (position, _) in args.iter().enumerate().filter(|(_, arg)| !fits(arg, MAX_ARG)) {
        let message = format!("give an argument of at most {MAX_ARG} characters, without NUL");
        errors.push(FieldError::new(format!("spec.args[{position}]"), message));
    }
}

fn check_variables(env: &[ScriptVariable], errors: &mut Vec<FieldError>) {
    let mut wrong = |path: String, message: String| errors.push(FieldError::new(path, message));
    if env.len() > MAX_VARIABLES {
        let message = format!("has {} variables: give at most {MAX_VARIABLES}", env.len());
        wrong("spec.env".to_owned(), message);
    }
    let mut names = HashSet::new();
    for (position, ScriptVariable { name, value }) in env.iter().enumerate() {
        let path = format!("spec.env[{position}]");
        if name.is_empty() || name.contains('=') || !fits(name, MAX_VARIABLE_NAME) {
            let message = format!(
                "{name:?} is no name of a variable: it has 1 to {MAX_VARIABLE_NAME} characters, no ="
            );
            wrong(format!("{path}.name"), message);
        } else if !names.insert(name) {
            wrong(
                format!("{path}.name"),
                format!("{name:?} is given twice: give it once"),
            );
        }
        if !fits(value.as_deref().unwrap_or_default(), MAX_VARIABLE_VALUE) {
            let message = format!("give a value of at most {MAX_VARIABLE_VALUE} characters, without NUL");
            wrong(format!("{path}.value"), message);
        }
    }
}

fn check_count(path: &str, count: i32, errors: &mut Vec<FieldError>) {
    if !(1..=MAX_REPLICAS).contains(&count) {
        let message = format!("{count} pods: give a number from 1 to {MAX_REPLICAS}");
        errors.push(FieldError::new(path, message));
    }
}

fn check_names(field: &str, names: Option<&[String]>, errors: &mut Vec<FieldError>) {
    let Some(names) = names else { return };
    let path = format!("spec.toDelete.{field}");
    if names.is_empty() {
        errors.push(FieldError::new(&path, "is empty: give at least one name"));
    } else if names.len() > MAX_NAMED {
        let message = format!("has {} names: give at most {MAX_NAMED}", names.len());
        errors.push(FieldError::new(&path, message));
    }
    let mut seen = HashSet::new();
    for (position, name) in names.iter().enumerate() {
        let path = format!("{path}[{position}]");
        if name.is_empty() {
            errors.push(FieldError::new(path, "is empty: give a name"));
        } else if !seen.insert(name) {
            errors.push(FieldError::new(
                path,
                format!("{name:?} is given twice: give it once"),
            ));
        }
    }
}

fn check_seconds(field: &str, seconds: Option<i64>, least: i64, errors: &mut Vec<FieldError>) {
    if let Some(seconds) = seconds.filter(|seconds| *seconds < least) {
        let message = format!("{seconds} seconds: give at least {least}, or leave it out");
        errors.push(FieldError::new(format!("spec.{field}"), message));
    }
}
