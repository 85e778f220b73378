//! Defaults and validation as admission sees them: the rules of every job, and those of its framework.

use std::borrow::Cow;

use trainyard_api::{FieldError, JobPhase, TrainingJob, TrainingJobSpec};

use crate::immutable::forbidden_changes;
use crate::{dialect, frameworks};

pub use crate::defaults::{default, is_defaulted};

/// All that is wrong with writing a job, and with changing it where `old` is what is stored. Whoever
/// lets jobs in asks this, so that the same ones are let in everywhere; neither needs its defaults
/// yet, and `new` gets them.
///
/// A stored one on its way out is let go whatever is wrong with it; else its finalizers could not be
/// removed.
pub fn review(old: Option<TrainingJob>, new: &mut TrainingJob) -> Vec<FieldError> {
    default(new);
    let old = old.map(|mut old| {
        default(&mut old);
        old
    });
    let goes = new.metadata.deletion_timestamp.is_some();
    if old
        .as_ref()
        .is_some_and(|old| goes || is_always_possible(old, new))
    {
        return Vec::new();
    }
    validate(old.as_ref(), &named(new))
}

/// The job with a name as long as the one that the API server will make for it.
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

/// Stands for what the API server adds to `generateName`.
const GENERATED: &str = "xxxxx";

/// All that is wrong with a job, and with the way it was changed where `old` is given.
///
/// Give it jobs whose defaults are written ([`default`]): the rules are about what a job does, also where its user left that
/// out, and writing a default down is no change.
pub fn validate(old: Option<&TrainingJob>, new: &TrainingJob) -> Vec<FieldError> {
    let mut errors = trainyard_api::validate(old, new);
    match frameworks::find(&new.spec.framework.name) {
        Some(framework) => errors.extend(frameworks::validate(framework, new)),
        None if new.spec.framework.name.is_empty() => {}
        None => errors.push(FieldError::new(
            "spec.framework.name",
            frameworks::unknown(&new.spec.framework.name),
        )),
    }
    errors.extend(dialect::check(new));
    if let Some(old) = old {
        errors.extend(resized(old, new));
        errors.extend(resumed_unseen(old, new));
    }
    errors
}

/// What is wrong with another number of pods while a job runs whose framework tells it to every pod when it starts.
fn resized(old: &TrainingJob, new: &TrainingJob) -> Vec<FieldError> {
    let suspended = old.is_suspended() || new.is_suspended();
    let framework = frameworks::find(&new.spec.framework.name).filter(|framework| !framework.resizes());
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

/// What is wrong with resuming a job that was changed, before the operator has seen it suspended: it would only see the
/// change, of a job that runs.
fn resumed_unseen(old: &TrainingJob, new: &TrainingJob) -> Option<FieldError> {
    let seen = old.status.as_ref()?;
    let unseen = seen
        .phase
        .is_some_and(|phase| phase != JobPhase::Suspended && !phase.is_terminal());
    let resumed = old.is_suspended() && !new.is_suspended();
    let changed = || !forbidden_changes(&seen.accepted_spec, new).is_empty();
    (resumed && unseen && changed()).then(|| {
        FieldError::new(
            "spec.suspend",
            "the job was changed, and the operator has not yet removed the pods made before: wait until status.phase is \
             Suspended, then resume it",
        )
    })
}

/// Whether a change is let through whatever is wrong with the job: nothing of the spec was changed, so that labels and
/// finalizers can be, or it was suspended and nothing else, so that what it holds can always be freed.
fn is_always_possible(old: &TrainingJob, new: &TrainingJob) -> bool {
    let phase = old.status.as_ref().and_then(|status| status.phase);
    let suspended = || TrainingJobSpec {
        suspend: Some(true),
        ..old.spec.clone()
    };
    old.spec == new.spec || (!phase.is_some_and(JobPhase::is_terminal) && suspended() == new.spec)
}
