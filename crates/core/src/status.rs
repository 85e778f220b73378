//! How a status is written: conditions whose times change only with their status, and how soon.

use jiff::{Timestamp, Unit};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use trainyard_api::{
    ConditionType, FieldError, JobPhase, Reason, RoleStatus, Scaling, ScalingStep, TrainingJob,
    TrainingJobStatus,
};

use crate::model::{StatusWrite, Urgency};

/// The longest message of a condition that the API server accepts. A longer one is truncated.
const MAX_MESSAGE: usize = 32_000;
/// The longest reason that the schema allows. The reasons of kubelets and schedulers have no limit
/// of their own.
pub(crate) const MAX_REASON: usize = 128;

/// A time as the API writes it, in whole seconds.
pub(crate) fn time(now: Timestamp) -> Time {
    Time(now.round(Unit::Second).unwrap_or(now))
}

/// Sets a condition. Its transition time changes only if its status does.
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

/// A condition, if it is present with this status.
pub(crate) fn condition(status: &TrainingJobStatus, kind: ConditionType, holds: bool) -> Option<&Condition> {
    let word = if holds { "True" } else { "False" };
    status
        .conditions
        .iter()
        .find(|c| c.type_ == kind.as_str() && c.status == word)
}

/// Returns true if the job's current spec was accepted.
pub(crate) fn is_accepted(job: &TrainingJob) -> bool {
    job.status.as_ref().is_some_and(|status| {
        status.observed_generation == job.metadata.generation
            && condition(status, ConditionType::Accepted, true).is_some()
    })
}

/// Decides whether a status must be written, and how soon.
pub(crate) fn write(old: Option<&TrainingJobStatus>, new: TrainingJobStatus) -> StatusWrite {
    let empty = TrainingJobStatus::default();
    let is_first = old.is_none();
    let old = old.unwrap_or(&empty);
    let urgency = if *old == new {
        return StatusWrite::Unchanged;
    } else if is_first && only_starts(&new) {
        Urgency::Starting
    } else if without_counters(old) != without_counters(&new) {
        Urgency::Now
    } else if leaving(old) != leaving(&new) {
        Urgency::Leaving
    } else if has_run(&new) && successes(old) != successes(&new) {
        Urgency::Succeeding
    } else {
        Urgency::Paced
    };
    StatusWrite::Changed(Box::new(new), urgency)
}

/// Returns true if a status says nothing of a valid job but that it starts.
pub(crate) fn only_starts(status: &TrainingJobStatus) -> bool {
    let has_nothing_ended =
        |role: &RoleStatus| !role.phase.is_terminal() && role.succeeded_indices.is_none() && role.failed == 0;
    status.phase == Some(JobPhase::Starting)
        && condition(status, ConditionType::Accepted, true).is_some()
        && status.restarts.is_none()
        && status.roles.iter().all(has_nothing_ended)
}

/// The condition that says why all pods of a job were given up: a name that the job needs was
/// taken, or its pods could not talk to others. `None` if they were not.
pub(crate) fn given_up(status: &TrainingJobStatus) -> Option<(Reason, &Condition)> {
    let condition = condition(status, ConditionType::Accepted, false).filter(|_| !has_run(status))?;
    let reason = Reason::parse(&condition.reason)?;
    matches!(reason, Reason::OwnershipConflict | Reason::SecretMissing).then_some((reason, condition))
}

/// Returns true if a job that has not ended runs as a whole, or did. Until then it is spared all
/// writes that can wait.
pub(crate) fn has_run(status: &TrainingJobStatus) -> bool {
    matches!(
        status.phase,
        Some(JobPhase::Running | JobPhase::Scaling | JobPhase::Restarting | JobPhase::Paused)
    )
}

fn successes(status: &TrainingJobStatus) -> Vec<(&str, Option<&str>)> {
    let roles = status.roles.iter();
    roles
        .map(|role| (&*role.name, role.succeeded_indices.as_deref()))
        .collect()
}

/// How far the pods are that leave by a change of size, and how many pods that leaves. That they
/// know is written later, where others train on: a pod mostly ends at once when its work is saved,
/// so that one write tells all.
fn leaving(status: &TrainingJobStatus) -> Option<(ScalingStep, Option<i32>)> {
    let scaling = status.scaling.as_deref()?;
    let step = match scaling.step {
        ScalingStep::Acknowledged if !scaling.restarts_all() => ScalingStep::Requested,
        step => step,
    };
    Some((step, status.replicas))
}

/// Returns true if a change of size goes on as it was decided: pods may have said something since,
/// or have left.
pub(crate) fn keeps_scaling(old: &TrainingJobStatus, new: &TrainingJobStatus) -> bool {
    let decided = |status: &TrainingJobStatus| status.scaling.as_deref().map(without_reports);
    decided(old) == decided(new)
}

/// A change of size without what the pods have said that leave. Their agents say it again to an
/// operator that does not know it, so that it can be written later. Where all pods start anew, it
/// is news that all have saved their work: their last checkpoint is what they go on from.
fn without_reports(scaling: &Scaling) -> Scaling {
    let mut scaling = scaling.clone();
    (scaling.acknowledged, scaling.checkpointed) = (None, None);
    for role in &mut scaling.roles {
        (role.acknowledged, role.checkpointed) = (None, None);
    }
    let has_saved = scaling.step == ScalingStep::CheckpointDone && !scaling.restarts_all();
    if scaling.step == ScalingStep::Acknowledged || has_saved {
        scaling.step = ScalingStep::Requested;
    }
    scaling
}

/// The part of a status that users and decisions depend on at once. The rest are counters, and
/// sentences about them. The end of a role is included, because its pods may be deleted the next
/// moment, and with them the evidence. Pods that leave are not deleted before the status has fewer.
fn without_counters(status: &TrainingJobStatus) -> TrainingJobStatus {
    let mut status = status.clone();
    if let Some(scaling) = &mut status.scaling {
        **scaling = without_reports(scaling);
        if scaling.victims.is_some() {
            status.replicas = None;
            let rules = status.accepted.rules.iter_mut();
            for role in rules.flat_map(|rules| &mut rules.roles) {
                (role.replicas, role.members) = (0, None);
            }
        }
    }
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

/// Joins all errors into one message, one error a line.
pub(crate) fn sentences(errors: &[FieldError]) -> String {
    errors
        .iter()
        .map(ToString::to_string)
        .collect::<Vec<_>>()
        .join("\n")
}

/// Truncates a text at a character boundary.
pub(crate) fn truncate(text: &mut String, max: usize) {
    if text.len() > max {
        let end = (0..=max)
            .rev()
            .find(|end| text.is_char_boundary(*end))
            .unwrap_or(0);
        text.truncate(end);
    }
}
