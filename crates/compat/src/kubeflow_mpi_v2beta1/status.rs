//! The status of an MPIJob, in the words that its users know.

use serde_json::{Map, Value, json};
use trainyard_api::{ConditionType, JobPhase, Reason};

use crate::deadline::launched_at;
use crate::mpi::{LAUNCHER, WORKER};
use crate::notes::{Condition, Tone};
use crate::report::Report;

const CREATED: &str = "Created";
const RUNNING: &str = "Running";
const RESTARTING: &str = "Restarting";
const SUSPENDED: &str = "Suspended";
const SUCCEEDED: &str = "Succeeded";
const FAILED: &str = "Failed";
/// The job, or a change of it, can't be carried out. The others know nothing like it: they leave
/// such jobs without a word.
const REFUSED: &str = "Refused";

/// What programs that watch these jobs match on.
const REASON_CREATED: &str = "MPIJobCreated";
const REASON_RUNNING: &str = "MPIJobRunning";
const REASON_RESTARTING: &str = "MPIJobRestarting";
const REASON_SUSPENDED: &str = "MPIJobSuspended";
const REASON_RESUMED: &str = "MPIJobResumed";
const REASON_SUCCEEDED: &str = "MPIJobSucceeded";
const REASON_FAILED: &str = "MPIJobFailed";
const REASON_EVICTED: &str = "MPIJobEvicted";
const EVICTED: &str = "Evicted";
/// The reasons for which a launcher's Job fails, which are those of the MPIJob then.
const OF_LAUNCHERS: [Reason; 2] = [Reason::BackoffLimitExceeded, Reason::DeadlineExceeded];

/// What events are called there that say why a job can't be carried out.
const REFUSALS: [(Reason, &str); 2] = [
    (Reason::Invalid, "ValidationError"),
    (Reason::OwnershipConflict, "ErrResourceExists"),
];

/// The status of an object. What holds now comes last: many read only that.
pub fn status(report: &Report<'_>) -> Value {
    let refused = report.refusal().map(|refusal| {
        let condition = report.condition(REFUSED, true, &refusal.reason, &refusal.message);
        report.updated(condition)
    });
    // A job that goes on as it was although a change of it was refused is what it was.
    let conditions: Vec<Value> = past(report).chain(refused).chain(present(report)).collect();
    let mut status = Map::new();
    status.insert("conditions".to_owned(), conditions.into());
    status.extend(report.times().map(|(field, time)| (field.to_owned(), time)));
    let roles = [("Launcher", LAUNCHER), ("Worker", WORKER)];
    let roles = roles.into_iter().filter_map(|(theirs, ours)| {
        let role = report.counts(ours)?;
        let counts = [
            ("active", role.active),
            ("succeeded", role.succeeded),
            ("failed", role.failed),
        ];
        // Theirs leave out what is 0.
        let counts = counts.into_iter().filter(|(_, count)| *count != 0);
        let counts: Map<String, Value> = counts
            .map(|(name, count)| (name.to_owned(), json!(count)))
            .collect();
        Some((theirs.to_owned(), counts.into()))
    });
    let roles: Map<String, Value> = roles.collect();
    if !roles.is_empty() {
        status.insert("replicaStatuses".to_owned(), roles.into());
    }
    status.into()
}

/// The event that reports a condition: one that comes to hold, or that a job is resumed.
pub fn event<'a>(condition: &Condition<'a>) -> Option<(Tone, &'a str)> {
    let tone = match (condition.kind, condition.holds) {
        (CREATED | RUNNING | SUSPENDED | SUCCEEDED, true) | (SUSPENDED, false) => Tone::Normal,
        (RESTARTING | FAILED, true) => Tone::Warning,
        (REFUSED, true) => Tone::Refusal,
        _ => return None,
    };
    let known = REFUSALS
        .iter()
        .find(|(ours, _)| ours.as_str() == condition.reason);
    Some((tone, known.map_or(condition.reason, |(_, theirs)| theirs)))
}

/// What has been, and what held before and does not any more.
fn past(report: &Report<'_>) -> impl Iterator<Item = Value> {
    let name = report.name();
    let phase = report.phase();
    let created = report.child.is_some() || report.before(CREATED).is_some();
    let created = created.then(|| {
        (
            CREATED,
            true,
            REASON_CREATED,
            format!("MPIJob {name} is created."),
        )
    });
    let now = current(phase);
    let reason = match now {
        Some((_, reason)) => reason,
        None if phase == JobPhase::Suspending => REASON_SUSPENDED,
        None => REASON_RESUMED,
    };
    let over = [
        (SUSPENDED, REASON_RESUMED, format!("MPIJob {name} is resumed.")),
        (RUNNING, reason, format!("MPIJob {name} is not running.")),
        (RESTARTING, reason, format!("MPIJob {name} is not restarting.")),
    ];
    let over = over
        .into_iter()
        .filter(move |(kind, ..)| now.is_none_or(|(now, _)| now != *kind));
    let over = over.filter(|(kind, ..)| report.before(kind).is_some());
    let over = over.map(|(kind, reason, message)| (kind, false, reason, message));
    let all = created.into_iter().chain(over.collect::<Vec<_>>());
    let all: Vec<Value> = all
        .map(|(kind, holds, reason, message)| report.updated(report.condition(kind, holds, reason, &message)))
        .collect();
    all.into_iter()
}

/// The one condition that says where the job is.
fn present(report: &Report<'_>) -> Option<Value> {
    let name = report.name();
    let phase = report.phase();
    let (kind, mut reason) = current(phase)?;
    let message = match phase {
        JobPhase::Suspended => format!("MPIJob {name} is suspended."),
        JobPhase::Restarting => format!("MPIJob {name} is restarting: pods that ended are being replaced."),
        JobPhase::Succeeded => format!("MPIJob {name} successfully completed."),
        JobPhase::Failed => {
            reason = failure(report).unwrap_or(reason);
            format!("MPIJob {name} has failed: {}", why(report))
        }
        _ => format!("MPIJob {name} is running."),
    };
    Some(report.updated(report.condition(kind, true, reason, &message)))
}

/// The reason for which a job has failed, where that is a known one.
fn failure(report: &Report<'_>) -> Option<&'static str> {
    let cause = report.status().and_then(|status| status.root_cause.as_ref());
    if cause.is_some_and(|cause| cause.role == WORKER && cause.reason.as_deref() == Some(EVICTED)) {
        return Some(REASON_EVICTED);
    }
    let failed = report.holds(ConditionType::Failed)?;
    let mut known = OF_LAUNCHERS.into_iter().map(Reason::as_str);
    known.find(|known| *known == failed.reason)
}

/// Why a job has failed, in a sentence.
fn why(report: &Report<'_>) -> String {
    let Some(failed) = report.holds(ConditionType::Failed) else {
        return String::new();
    };
    let launched = report.child.and_then(launched_at);
    match report.kind.deadline_of(report.object) {
        // The child has another number of seconds, which begin earlier.
        Some(seconds) if launched.is_some() && failed.reason == Reason::DeadlineExceeded.as_str() => format!(
            "its launcher has not ended within {seconds} seconds (spec.runPolicy.activeDeadlineSeconds)."
        ),
        _ => failed.message.clone(),
    }
}

/// The condition of a phase; none while a job is on its way.
fn current(phase: JobPhase) -> Option<(&'static str, &'static str)> {
    match phase {
        JobPhase::Pending | JobPhase::Starting | JobPhase::Suspending => None,
        JobPhase::Running | JobPhase::Scaling | JobPhase::Paused => Some((RUNNING, REASON_RUNNING)),
        JobPhase::Restarting => Some((RESTARTING, REASON_RESTARTING)),
        JobPhase::Suspended => Some((SUSPENDED, REASON_SUSPENDED)),
        JobPhase::Succeeded => Some((SUCCEEDED, REASON_SUCCEEDED)),
        JobPhase::Failed => Some((FAILED, REASON_FAILED)),
    }
}
