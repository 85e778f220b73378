//! When an AresJob has succeeded or failed.

use std::collections::BTreeMap;

use trainyard_api::{Completion, FieldError, RestartPolicy, RoleSet};

use super::framework::Framework;
use super::{JobPhasePolicy, RoleSets, TheirRole};

/// As many alternatives as a TrainingJob may have.
const MAX_SETS: usize = 16;

/// The rules of a job: those that are given, or those of the framework.
pub fn completion(
    framework: Framework,
    given: Option<JobPhasePolicy>,
    roles: &BTreeMap<String, TheirRole>,
    notes: &mut Vec<String>,
    errors: &mut Vec<FieldError>,
) -> Option<Completion> {
    let is_given = given.is_some();
    let JobPhasePolicy { failed, succeeded } = given.unwrap_or_default();
    let (failed, succeeded) = (failed.unwrap_or_default(), succeeded.unwrap_or_default());
    errors.extend(check("failed", &failed, roles));
    errors.extend(check("succeeded", &succeeded, roles));
    if is_given && succeeded.is_empty() {
        notes.push(
            "spec.jobPhasePolicy.succeeded: is not given, so that the job never succeeded; here it does as if no policy were \
             given"
                .to_owned(),
        );
    }
    if is_given && failed.is_empty() {
        notes.push(
            "spec.jobPhasePolicy.failed: is not given, so that the job never failed; here it does when it can't succeed any more"
                .to_owned(),
        );
    }
    let never_ends = |role: &String| {
        let given = roles.get(role).and_then(|role| role.restart_policy);
        framework.restart_policy(role, given) == RestartPolicy::Always
    };
    let mut to_succeed = if succeeded.is_empty() {
        vec![default_success(framework, roles)]
    } else {
        succeeded
    };
    if to_succeed.iter().flatten().any(never_ends) {
        for set in &mut to_succeed {
            set.retain(|role| !never_ends(role));
        }
        to_succeed.retain(|set| !set.is_empty());
        notes.push(
            "spec.jobPhasePolicy.succeeded: roles with restartPolicy Always never succeed, and the job does without them"
                .to_owned(),
        );
    }
    let to_fail = match (failed.is_empty(), is_given) {
        (false, _) => failed,
        (true, true) => failure_sets(&to_succeed),
        (true, false) => {
            let decisive = roles.keys().filter(|role| !framework.goes_on_without(role));
            decisive.map(|role| vec![role.clone()]).collect()
        }
    };
    let sets = |sets: RoleSets| sets.into_iter().map(|all_of| RoleSet { all_of }).collect();
    let completion = Completion {
        succeeded_when: sets(to_succeed),
        failed_when: sets(to_fail),
    };
    (completion != Completion::default()).then_some(completion)
}

fn default_success(framework: Framework, roles: &BTreeMap<String, TheirRole>) -> Vec<String> {
    let wanted = framework.must_succeed();
    let there = roles
        .keys()
        .filter(|role| wanted.is_empty() || wanted.contains(&role.as_str()));
    there.cloned().collect()
}

/// The sets of roles that rule out success when they fail: one role of each set that could succeed.
/// Empty if there are too many: then the framework's rule holds.
fn failure_sets(to_succeed: &[Vec<String>]) -> RoleSets {
    let mut all: RoleSets = vec![Vec::new()];
    for set in to_succeed {
        let longer = all.iter().flat_map(|chosen| {
            set.iter().map(move |role| {
                let mut chosen = chosen.clone();
                if !chosen.contains(role) {
                    chosen.push(role.clone());
                }
                chosen
            })
        });
        all = longer.collect();
        if all.len() > MAX_SETS {
            return Vec::new();
        }
    }
    all.retain(|set| !set.is_empty());
    all
}

/// What is wrong with given sets.
fn check(field: &str, sets: &RoleSets, roles: &BTreeMap<String, TheirRole>) -> Vec<FieldError> {
    let at = format!("spec.jobPhasePolicy.{field}");
    let mut errors = Vec::new();
    for (i, set) in sets.iter().enumerate() {
        if set.is_empty() {
            errors.push(FieldError::new(
                format!("{at}[{i}]"),
                "an empty set holds at once: name at least one role",
            ));
        }
        for (j, role) in set
            .iter()
            .enumerate()
            .filter(|(_, role)| !roles.contains_key(*role))
        {
            let known: Vec<&str> = roles.keys().map(String::as_str).collect();
            errors.push(FieldError::new(
                format!("{at}[{i}][{j}]"),
                format!("there is no role {role:?}: name one of {}", known.join(", ")),
            ));
        }
    }
    errors
}
