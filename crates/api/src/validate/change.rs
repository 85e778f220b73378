//! What may change in a job, and when.
//!
//! | field                                                     | may change                      |
//! |-----------------------------------------------------------|---------------------------------|
//! | `suspend`, the two TTLs, `activeDeadlineSeconds`            | always                          |
//! | `backoffLimit`                                              | always upwards                  |
//! | templates and all else of a role, `completion`, framework options, `cleanPodPolicy` | while suspended |
//! | the framework's name, the set of roles, `managedBy`         | never                           |

use super::FieldError;
use crate::job::{RoleSpec, TrainingJobSpec};

/// A part of the spec that may change only while the job is suspended.
#[derive(Clone, Debug, PartialEq)]
pub struct Section<'a> {
    /// The path of the field.
    pub path: String,
    /// Its content.
    pub content: SectionContent<'a>,
}

/// The content of a [`Section`].
#[derive(Clone, Debug, PartialEq)]
pub enum SectionContent<'a> {
    /// One role with its template.
    Role(&'a RoleSpec),
    /// The framework with its options.
    Framework(&'a crate::FrameworkSpec),
    /// The completion rules.
    Completion(Option<&'a crate::Completion>),
    /// What is left behind at the end.
    CleanPodPolicy(Option<crate::CleanPodPolicy>),
}

/// The parts of a spec that may change only while the job is suspended.
pub fn sections(spec: &TrainingJobSpec) -> Vec<Section<'_>> {
    let mut sections = vec![
        Section {
            path: "spec.framework".to_owned(),
            content: SectionContent::Framework(&spec.framework),
        },
        Section {
            path: "spec.completion".to_owned(),
            content: SectionContent::Completion(spec.completion.as_ref()),
        },
        Section {
            path: "spec.runPolicy.cleanPodPolicy".to_owned(),
            content: SectionContent::CleanPodPolicy(
                spec.run_policy.as_ref().and_then(|run| run.clean_pod_policy),
            ),
        },
    ];
    // By name, because the order of roles means nothing.
    sections.extend(spec.roles.iter().map(|role| Section {
        path: format!("spec.roles[{}]", role.name),
        content: SectionContent::Role(role),
    }));
    sections
}

pub(super) fn check(old: &TrainingJobSpec, new: &TrainingJobSpec) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let suspended = old.suspend == Some(true) || new.suspend == Some(true);
    if old.framework.name != new.framework.name {
        errors.push(FieldError::new(
            "spec.framework.name",
            format!(
                "can't be changed from {:?}: create a new job instead",
                old.framework.name
            ),
        ));
    } else if old.framework != new.framework && !suspended {
        errors.push(FieldError::new("spec.framework", while_suspended("options")));
    }
    if old.managed_by != new.managed_by {
        errors.push(FieldError::new(
            "spec.managedBy",
            "can't be changed: create a new job instead",
        ));
    }
    roles(old, new, suspended, &mut errors);
    if old.completion != new.completion && !suspended {
        errors.push(FieldError::new(
            "spec.completion",
            while_suspended("completion rules"),
        ));
    }
    let run = |spec: &TrainingJobSpec| spec.run_policy.clone().unwrap_or_default();
    let (before, after) = (run(old), run(new));
    if before.clean_pod_policy.unwrap_or_default() != after.clean_pod_policy.unwrap_or_default() && !suspended
    {
        errors.push(FieldError::new(
            "spec.runPolicy.cleanPodPolicy",
            while_suspended("this"),
        ));
    }
    let limit = |run: &crate::RunPolicy| run.backoff_limit.unwrap_or(crate::default::BACKOFF_LIMIT);
    if limit(&after) < limit(&before) && !suspended {
        errors.push(FieldError::new(
            "spec.runPolicy.backoffLimit",
            format!(
                "can be raised, not lowered, while the job runs: give at least {}",
                limit(&before)
            ),
        ));
    }
    errors
}

fn while_suspended(what: &str) -> String {
    format!("{what} can be changed only while the job is suspended: set spec.suspend to true first")
}

fn roles(old: &TrainingJobSpec, new: &TrainingJobSpec, suspended: bool, errors: &mut Vec<FieldError>) {
    for role in &old.roles {
        if !new.roles.iter().any(|r| r.name == role.name) {
            errors.push(FieldError::new(
                "spec.roles",
                format!("role {:?} can't be removed: create a new job instead", role.name),
            ));
        }
    }
    for (i, role) in new.roles.iter().enumerate() {
        let path = format!("spec.roles[{i}]");
        let Some(before) = old.roles.iter().find(|r| r.name == role.name) else {
            errors.push(FieldError::new(
                format!("{path}.name"),
                format!("role {:?} can't be added: create a new job instead", role.name),
            ));
            continue;
        };
        if suspended {
            continue;
        }
        // Taken apart, so that a new field can't be forgotten here.
        let RoleSpec {
            name: _,
            replicas,
            template,
            container,
            restart_policy,
            succeeded_when,
            failed_when,
            node_down_policy,
            placement,
        } = before;
        let same = [
            ("replicas", replicas.unwrap_or(1) == role.replicas.unwrap_or(1)),
            ("template", *template == role.template),
            ("container", *container == role.container),
            ("restartPolicy", *restart_policy == role.restart_policy),
            ("succeededWhen", *succeeded_when == role.succeeded_when),
            ("failedWhen", *failed_when == role.failed_when),
            ("nodeDownPolicy", *node_down_policy == role.node_down_policy),
            ("placement", *placement == role.placement),
        ];
        let changed = same.into_iter().filter(|(_, same)| !same);
        errors.extend(
            changed.map(|(field, _)| FieldError::new(format!("{path}.{field}"), while_suspended("this"))),
        );
    }
}
