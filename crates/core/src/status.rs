//! How a status is written: conditions that move only when something changed, and how soon.

use jiff::{Timestamp, Unit};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use trainyard_api::{
    ConditionType, FieldError, JobPhase, Reason, RoleStatus, TrainingJob, TrainingJobStatus,
};

use crate::model::StatusWrite;

/// The longest message of a condition that the API server takes; what is longer is cut.
const MAX_MESSAGE: usize = 32_000;
/// The longest reason that the schema allows; what kubelets and schedulers say has no limit of its own.
pub(crate) const MAX_REASON: usize = 128;

/// The time as the API writes it: whole seconds.
pub(crate) fn time(now: Timestamp) -> Time {
    Time(now.round(Unit::Second).unwrap_or(now))
}

/// Sets a condition; its transition time moves only if its status does.
pub(crate) fn set_condition(
    status: &mut TrainingJobStatus,
    kind: ConditionType,
    holds: bool,
    reason: Reason,
    message: impl Into<String>,
    now: Timestamp,
) {
    let word = if holds { "True" } else { "False" };
    let mut message = message.into();
    truncate(&mut message, MAX_MESSAGE);
    let new = Condition {
        type_: kind.as_str().to_owned(),
        status: word.to_owned(),
        reason: reason.as_str().to_owned(),
        message,
        last_transition_time: time(now),
        observed_generation: status.observed_generation,
    };
    match status
        .conditions
        .iter_mut()
        .find(|condition| condition.type_ == new.type_)
    {
        Some(old) => {
            let since = if old.status == word {
                old.last_transition_time.clone()
            } else {
                new.last_transition_time
            };
            *old = Condition {
                last_transition_time: since,
                ..new
            };
        }
        None => status.conditions.push(new),
    }
}

/// A condition's reason, if the condition is there with that status.
pub(crate) fn condition(status: &TrainingJobStatus, kind: ConditionType, holds: bool) -> Option<&Condition> {
    let word = if holds { "True" } else { "False" };
    status
        .conditions
        .iter()
        .find(|c| c.type_ == kind.as_str() && c.status == word)
}

/// Whether a job was accepted as its spec is now.
pub(crate) fn is_settled(job: &TrainingJob) -> bool {
    job.status.as_ref().is_some_and(|status| {
        status.observed_generation == job.metadata.generation
            && condition(status, ConditionType::Accepted, true).is_some()
    })
}

/// Whether a status must be written, and how soon.
pub(crate) fn write(old: Option<&TrainingJobStatus>, new: TrainingJobStatus) -> StatusWrite {
    let empty = TrainingJobStatus::default();
    let old = old.unwrap_or(&empty);
    if *old == new {
        StatusWrite::Unchanged
    } else if weighty(old) != weighty(&new) {
        StatusWrite::Now(Box::new(new))
    } else if has_run(&new) && successes(old) != successes(&new) {
        StatusWrite::Early(Box::new(new))
    } else {
        StatusWrite::Soon(Box::new(new))
    }
}

/// What was said when all pods of a job were given up, because a name that it needs to start was taken, or because they could not
/// talk to others.
pub(crate) fn given_up(status: &TrainingJobStatus) -> Option<(Reason, &Condition)> {
    let said = condition(status, ConditionType::Accepted, false).filter(|_| !has_run(status))?;
    let reason = Reason::parse(&said.reason)?;
    matches!(reason, Reason::OwnershipConflict | Reason::SecretMissing).then_some((reason, said))
}

/// Whether a job that has not ended runs as a whole, or did before. Until then it costs no more writes than it must.
pub(crate) fn has_run(status: &TrainingJobStatus) -> bool {
    matches!(
        status.phase,
        Some(JobPhase::Running | JobPhase::Scaling | JobPhase::Restarting)
    )
}

fn successes(status: &TrainingJobStatus) -> Vec<(&str, Option<&str>)> {
    let roles = status.roles.iter();
    roles
        .map(|role| (&*role.name, role.succeeded_indices.as_deref()))
        .collect()
}

/// The part of a status that users and decisions depend on at once; the rest are counters, and sentences about them.
/// The end of a role is a part of it: its pods may be removed the next moment, and with them the evidence.
fn weighty(status: &TrainingJobStatus) -> TrainingJobStatus {
    let mut status = status.clone();
    status.ready = None;
    status.progress = None;
    let ended = status.roles.iter().filter(|role| role.phase.is_terminal());
    let ended = ended.map(|role| RoleStatus {
        name: role.name.clone(),
        phase: role.phase,
        ..RoleStatus::default()
    });
    status.roles = ended.collect();
    if let Some(restarts) = &mut status.restarts {
        restarts.replacing.clear();
        restarts.incidents.clear();
    }
    status
}

/// All errors as one message, one sentence a line.
pub(crate) fn sentences(errors: &[FieldError]) -> String {
    errors
        .iter()
        .map(ToString::to_string)
        .collect::<Vec<_>>()
        .join("\n")
}

/// Cuts a text at a character boundary.
pub(crate) fn truncate(text: &mut String, max: usize) {
    if text.len() > max {
        let end = (0..=max)
            .rev()
            .find(|end| text.is_char_boundary(*end))
            .unwrap_or(0);
        text.truncate(end);
    }
}
