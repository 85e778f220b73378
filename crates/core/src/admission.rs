//! Defaults and validation, for every caller that admits jobs: the rules of every job, and those of
//! its framework.

mod elastic;

use std::borrow::Cow;

use trainyard_api::{FieldError, JobPhase, TrainingJob, TrainingJobSpec};

use crate::dialect;
use crate::exec;
use crate::immutable::forbidden_changes;
use crate::job::Framework;
use crate::registry::Frameworks;

pub use crate::defaults::{default, default_with, is_defaulted};

/// Returns everything that is wrong with a job, and with its change if `old` is the stored job. All
/// that admit jobs use this, so that they admit the same ones. Neither job needs defaults; `new`
/// gets them.
///
/// A job that is being deleted may always change. Otherwise its finalizers could not be removed.
pub fn review_with(
    old: Option<TrainingJob>,
    new: &mut TrainingJob,
    frameworks: &Frameworks,
) -> Vec<FieldError> {
    default_with(new, frameworks);
    let old = old.map(|mut old| {
        default_with(&mut old, frameworks);
        old
    });
    let is_deleted = new.metadata.deletion_timestamp.is_some();
    if old
        .as_ref()
        .is_some_and(|old| is_deleted || is_always_possible(old, new))
    {
        return Vec::new();
    }
    validate_with(old.as_ref(), &named(new), frameworks)
}

/// Returns everything that is wrong with a job of a framework that is built in. See
/// [`review_with`].
pub fn review(old: Option<TrainingJob>, new: &mut TrainingJob) -> Vec<FieldError> {
    review_with(old, new, Frameworks::built_in())
}

/// The job with a name as long as the one that the API server will generate for it.
fn named(job: &TrainingJob) -> Cow<'_, TrainingJob> {
    let metadata = &job.metadata;
    match &metadata.generate_name {
        Some(prefix) if metadata.name.as_deref().unwrap_or_default().is_empty() => {
            let mut named = job.clone();
            named.metadata.name = Some(format!("{prefix}{GENERATED}"));
            Cow::Owned(named)
        }
        _ => Cow::Borrowed(job),
    }
}

/// Stands for the suffix that the API server adds to `generateName`.
const GENERATED: &str = "xxxxx";

/// Returns everything that is wrong with a job, and with its change if `old` is given.
///
/// Both jobs must have their defaults ([`default`]): the rules also hold for what users left out,
/// and writing a default is no change.
pub fn validate_with(
    old: Option<&TrainingJob>,
    new: &TrainingJob,
    frameworks: &Frameworks,
) -> Vec<FieldError> {
    let mut errors = trainyard_api::validate(old, new);
    let framework = frameworks.of(new);
    match framework {
        Some(framework) => errors.extend(crate::frameworks::validate(framework, new)),
        None if new.spec.framework.name.is_empty() => {}
        None => errors.push(FieldError::new(
            "spec.framework.name",
            frameworks.problem(&new.spec.framework.name),
        )),
    }
    errors.extend(
        framework
            .into_iter()
            .flat_map(|framework| elastic::check(new, framework)),
    );
    errors.extend(dialect::check(new));
    errors.extend(exec::check_accounts(new));
    if let Some(old) = old {
        errors.extend(check_resize(old, new, framework));
        errors.extend(elastic::check_change(old, new, framework));
        errors.extend(check_resume(old, new, frameworks));
    }
    errors
}

/// Returns everything that is wrong with a job of a framework that is built in. See
/// [`validate_with`].
pub fn validate(old: Option<&TrainingJob>, new: &TrainingJob) -> Vec<FieldError> {
    validate_with(old, new, Frameworks::built_in())
}

/// Forbids to change the number of pods of a running job if its framework tells it to every pod at
/// the start.
fn check_resize(old: &TrainingJob, new: &TrainingJob, framework: Option<&Framework>) -> Vec<FieldError> {
    let suspended = old.is_suspended() || new.is_suspended();
    let framework = framework.filter(|framework| !framework.resizes);
    let Some(framework) = framework.filter(|_| !suspended && old.rolls() && new.rolls()) else {
        return Vec::new();
    };
    let size = |job: &TrainingJob, name: &str| {
        let role = job.spec.roles.iter().find(|role| role.name == name)?;
        Some(role.replicas.unwrap_or(1))
    };
    let roles = new.spec.roles.iter().enumerate();
    let changed = roles.filter(|(_, role)| {
        let before = size(old, &role.name);
        before.is_some() && before != size(new, &role.name)
    });
    changed
        .map(|(i, _)| {
            FieldError::new(
                format!("spec.roles[{i}].replicas"),
                format!(
                    "{} tells every pod at its start how many there are, so that this can be changed only while the job is \
                     suspended: set spec.suspend to true first",
                    framework.name()
                ),
            )
        })
        .collect()
}

/// Forbids to resume a job that was changed while suspended before the operator has seen it
/// suspended. The operator would see only the change, of a job that runs.
fn check_resume(old: &TrainingJob, new: &TrainingJob, frameworks: &Frameworks) -> Option<FieldError> {
    let seen = old.status.as_ref()?;
    let unseen = seen
        .phase
        .is_some_and(|phase| phase != JobPhase::Suspended && !phase.is_terminal());
    let resumed = old.is_suspended() && !new.is_suspended();
    let changed = || !forbidden_changes(&seen.accepted.spec, new, frameworks).is_empty();
    (resumed && unseen && changed()).then(|| {
        FieldError::new(
            "spec.suspend",
            "the job was changed, and the operator has not yet removed the pods made before: wait until status.phase is \
             Suspended, then resume it",
        )
    })
}

/// Returns true if a change is allowed no matter what is wrong with the job: the spec is unchanged,
/// so labels and finalizers may change; or the job is suspended and nothing else, so that its
/// resources can always be freed.
fn is_always_possible(old: &TrainingJob, new: &TrainingJob) -> bool {
    let phase = old.status.as_ref().and_then(|status| status.phase);
    let suspended = || TrainingJobSpec {
        suspend: Some(true),
        ..old.spec.clone()
    };
    old.spec == new.spec || (!phase.is_some_and(JobPhase::is_terminal) && suspended() == new.spec)
}
