//! What may change in a job, and when.
//!
//! | field                                                     | may change                      |
//! |-----------------------------------------------------------|---------------------------------|
//! | `suspend`, the two TTLs, `activeDeadlineSeconds`, `drainTimeoutSeconds` | always              |
//! | `elastic`, but for its role                                 | always; present or absent: while suspended |
//! | `backoffLimit`                                              | always upwards                  |
//! | `replicas` and `template` of a role                         | while suspended; always with `updatePolicy: Roll` |
//! | all else of a role, `completion`, framework options, `cleanPodPolicy`, `updatePolicy`, `progress` | while suspended |
//! | the framework's name, the set of roles, `managedBy`, `dialect` | never                           |
//!
//! Of a job that has ended, the TTLs are all that may change: of anything else nothing would come.

use super::FieldError;
use crate::job::{ProgressPolicy, TrainingJob, TrainingJobSpec};
use crate::role::RoleSpec;
use crate::run_policy::{RunPolicy, UpdatePolicy};
use crate::status::JobPhase;

/// A part of the spec that may change only while the job is suspended.
#[derive(Clone, Debug, PartialEq)]
pub struct Section<'a> {
    /// What it is known by from one version of the spec to the next: a role goes by its name,
    /// because the order of roles means nothing.
    pub key: String,
    /// The path of the field in this version, such as `spec.roles[0]`.
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
    /// What becomes of changes.
    UpdatePolicy(UpdatePolicy),
    /// What becomes of progress.
    Progress(ProgressPolicy),
    /// The role that grows and shrinks.
    Elastic(&'a str),
}

/// The parts of a spec that may change only while the job is suspended.
pub fn sections(spec: &TrainingJobSpec) -> Vec<Section<'_>> {
    let clean_pod_policy = spec.run_policy.as_ref().and_then(|run| run.clean_pod_policy);
    let fixed = [
        ("spec.framework", SectionContent::Framework(&spec.framework)),
        (
            "spec.completion",
            SectionContent::Completion(spec.completion.as_ref()),
        ),
        (
            "spec.runPolicy.cleanPodPolicy",
            SectionContent::CleanPodPolicy(clean_pod_policy),
        ),
    ];
    let fixed = fixed.into_iter().map(|(path, content)| Section {
        key: path.to_owned(),
        path: path.to_owned(),
        content,
    });
    let roles = spec.roles.iter().enumerate().map(|(i, role)| Section {
        key: format!("spec.roles[{}]", role.name),
        path: format!("spec.roles[{i}]"),
        content: SectionContent::Role(role),
    });
    fixed
        .chain(rolled(spec))
        .chain(reported(spec))
        .chain(elastic(spec))
        .chain(roles)
        .collect()
}

/// The section of the update policy. Only a policy that is not the default has one, so that jobs
/// that were accepted before there were policies are unchanged.
fn rolled(spec: &TrainingJobSpec) -> Option<Section<'_>> {
    let policy = spec.update_policy();
    (policy != UpdatePolicy::default()).then(|| Section {
        key: UPDATE_POLICY.to_owned(),
        path: UPDATE_POLICY.to_owned(),
        content: SectionContent::UpdatePolicy(policy),
    })
}

/// The section of the progress policy, as that of the update policy.
fn reported(spec: &TrainingJobSpec) -> Option<Section<'_>> {
    let policy = spec.progress.unwrap_or_default();
    (policy != ProgressPolicy::default()).then(|| Section {
        key: PROGRESS.to_owned(),
        path: PROGRESS.to_owned(),
        content: SectionContent::Progress(policy),
    })
}

/// The section of the elastic role. Only an elastic job has one.
fn elastic(spec: &TrainingJobSpec) -> Option<Section<'_>> {
    let role = spec.elastic_role().and_then(|role| spec.roles.get(role))?;
    Some(Section {
        key: ELASTIC.to_owned(),
        path: ELASTIC.to_owned(),
        content: SectionContent::Elastic(&role.name),
    })
}

/// The path of what an elastic job may change.
pub const ELASTIC: &str = "spec.elastic";
/// The path of the progress policy.
pub const PROGRESS: &str = "spec.progress";
/// The path of the update policy.
pub const UPDATE_POLICY: &str = "spec.runPolicy.updatePolicy";

/// How far a job is, as far as changes go.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    Running,
    Suspended,
    Ended,
}

impl Stage {
    /// What is wrong with a change that is possible only while the job is suspended.
    fn problem(self, what: &str) -> Option<String> {
        match self {
            Self::Suspended => None,
            Self::Running => Some(format!(
                "{what} can be changed only while the job is suspended: set spec.suspend to true first"
            )),
            Self::Ended => Some(ENDED.to_owned()),
        }
    }
}

/// What else makes a change of a template or of a number of pods possible.
const OR_ROLL: &str = ", or create the job with spec.runPolicy.updatePolicy: Roll";

const ENDED: &str = "the job has ended, and nothing would come of this: create a new job instead";

pub(super) fn check(before: &TrainingJob, new: &TrainingJobSpec) -> Vec<FieldError> {
    let old = &before.spec;
    let phase = before.status.as_ref().and_then(|status| status.phase);
    let suspended = |spec: &TrainingJobSpec| spec.suspend == Some(true);
    let stage = if phase.is_some_and(JobPhase::is_terminal) {
        Stage::Ended
    } else if suspended(old) || suspended(new) {
        Stage::Suspended
    } else {
        Stage::Running
    };
    let mut errors = Vec::new();
    if old.framework.name != new.framework.name {
        errors.push(FieldError::new(
            "spec.framework.name",
            format!(
                "can't be changed from {:?}: create a new job instead",
                old.framework.name
            ),
        ));
    } else if old.framework != new.framework {
        let problem = stage.problem("options");
        errors.extend(problem.map(|problem| FieldError::new("spec.framework", problem)));
    }
    if old.managed_by != new.managed_by {
        errors.push(FieldError::new(
            "spec.managedBy",
            "can't be changed: create a new job instead",
        ));
    }
    if old.dialect.unwrap_or_default() != new.dialect.unwrap_or_default() {
        errors.push(FieldError::new(
            "spec.dialect",
            "can't be changed: create a new job instead",
        ));
    }
    roles(old, new, stage, &mut errors);
    if old.completion != new.completion {
        let problem = stage.problem("completion rules");
        errors.extend(problem.map(|problem| FieldError::new("spec.completion", problem)));
    }
    if old.progress.unwrap_or_default() != new.progress.unwrap_or_default() {
        let problem = stage.problem("this");
        errors.extend(problem.map(|problem| FieldError::new(PROGRESS, problem)));
    }
    elastic_role(old, new, stage, &mut errors);
    run_policy(old, new, stage, &mut errors);
    if stage == Stage::Ended && suspended(old) != suspended(new) {
        errors.push(FieldError::new("spec.suspend", ENDED));
    }
    errors
}

fn elastic_role(old: &TrainingJobSpec, new: &TrainingJobSpec, stage: Stage, errors: &mut Vec<FieldError>) {
    let role = |spec: &TrainingJobSpec| {
        let role = spec.elastic_role().and_then(|role| spec.roles.get(role));
        role.map(|role| role.name.clone())
    };
    let problem = match (role(old), role(new)) {
        _ if stage == Stage::Ended && old.elastic != new.elastic => Some(ENDED.to_owned()),
        (None, Some(_)) => stage.problem("a job that is not elastic has a fixed size, and this"),
        (before, after) if before != after => stage.problem("this"),
        _ => None,
    };
    errors.extend(problem.map(|problem| FieldError::new(ELASTIC, problem)));
}

fn run_policy(old: &TrainingJobSpec, new: &TrainingJobSpec, stage: Stage, errors: &mut Vec<FieldError>) {
    let run = |spec: &TrainingJobSpec| spec.run_policy.clone().unwrap_or_default();
    let (before, after) = (run(old), run(new));
    if before.clean_pod_policy.unwrap_or_default() != after.clean_pod_policy.unwrap_or_default() {
        let problem = stage.problem("this");
        errors.extend(problem.map(|problem| FieldError::new("spec.runPolicy.cleanPodPolicy", problem)));
    }
    if old.update_policy() != new.update_policy() {
        let problem = stage.problem("this");
        errors.extend(problem.map(|problem| FieldError::new(UPDATE_POLICY, problem)));
    }
    let limit = |run: &RunPolicy| run.backoff_limit.unwrap_or(crate::default::BACKOFF_LIMIT);
    let (least, given) = (limit(&before), limit(&after));
    let lowered = || format!("can be raised, not lowered, while the job runs: give at least {least}");
    let problem = match stage {
        Stage::Running => (given < least).then(lowered),
        Stage::Suspended => None,
        Stage::Ended => (given != least).then(|| ENDED.to_owned()),
    };
    errors.extend(problem.map(|problem| FieldError::new("spec.runPolicy.backoffLimit", problem)));
    if stage == Stage::Ended && before.active_deadline_seconds != after.active_deadline_seconds {
        errors.push(FieldError::new("spec.runPolicy.activeDeadlineSeconds", ENDED));
    }
    if stage == Stage::Ended && before.drain_timeout_seconds != after.drain_timeout_seconds {
        errors.push(FieldError::new("spec.runPolicy.drainTimeoutSeconds", ENDED));
    }
}

fn roles(old: &TrainingJobSpec, new: &TrainingJobSpec, stage: Stage, errors: &mut Vec<FieldError>) {
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
        let Some(problem) = stage.problem("this") else {
            continue;
        };
        // Taken apart, so that a new field can't be forgotten here.
        let RoleSpec {
            name: _,
            replicas,
            template,
            container,
            restart_policy,
            restart_scope,
            succeeded_when,
            failed_when,
            node_down_policy,
            placement,
            depends_on,
            create_policy,
        } = before;
        let same = [
            ("replicas", replicas.unwrap_or(1) == role.replicas.unwrap_or(1)),
            ("template", *template == role.template),
            ("container", *container == role.container),
            ("restartPolicy", *restart_policy == role.restart_policy),
            ("restartScope", *restart_scope == role.restart_scope),
            ("succeededWhen", *succeeded_when == role.succeeded_when),
            ("failedWhen", *failed_when == role.failed_when),
            ("nodeDownPolicy", *node_down_policy == role.node_down_policy),
            ("placement", *placement == role.placement),
            ("dependsOn", *depends_on == role.depends_on),
            ("createPolicy", *create_policy == role.create_policy),
        ];
        let rolls = [old, new]
            .iter()
            .all(|spec| spec.update_policy() == UpdatePolicy::Roll);
        for (field, _) in same.into_iter().filter(|(_, same)| !same) {
            let problem = match (stage, field) {
                (Stage::Running, "replicas" | "template") if rolls => continue,
                (Stage::Running, "replicas" | "template") => format!("{problem}{OR_ROLL}"),
                _ => problem.clone(),
            };
            errors.push(FieldError::new(format!("{path}.{field}"), problem));
        }
    }
}
