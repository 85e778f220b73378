//! How a job ends, if it does now.

use jiff::Timestamp;
use trainyard_api::{JobPhase, Reason, RestartCause, RolePhase, TrainingJobStatus};

use super::describe::describe;
use super::{after, cause};
use crate::assess::{Assessment, Ended};
use crate::job::Job;
use crate::view::View;

/// When the job must have ended.
pub(super) fn deadline(job: &Job<'_>, status: &TrainingJobStatus) -> Option<Timestamp> {
    after(status.start_time.as_ref()?.0, job.active_deadline_seconds?)
}

/// How a job ends.
pub(super) struct Verdict<'a> {
    pub phase: JobPhase,
    pub reason: Reason,
    pub message: String,
    /// The end that made it so.
    pub cause: Option<Ended<'a>>,
}

/// How the job ends, if it does now.
pub(super) fn verdict<'a>(
    job: &Job<'a>,
    view: &View<'_>,
    seen: &Assessment<'a>,
    status: &TrainingJobStatus,
    phase: JobPhase,
    deadline: Option<Timestamp>,
    ends: &[Ended<'a>],
) -> Option<Verdict<'a>> {
    if phase == JobPhase::Succeeded {
        let message = "The job's rule for success holds.".to_owned();
        return Some(Verdict {
            phase,
            reason: Reason::RolesSucceeded,
            message,
            cause: None,
        });
    }
    if phase == JobPhase::Failed {
        let cause = cause::of(job, ends, &cause::retried(seen));
        let roles = status.roles.iter().filter(|role| role.phase == RolePhase::Failed);
        let why = roles.map(|role| format!("{}: {}", role.name, role.message.as_deref().unwrap_or("failed")));
        let message = why.collect::<Vec<_>>().join("; ");
        return Some(Verdict {
            phase,
            reason: Reason::RolesFailed,
            message,
            cause,
        });
    }
    let failed = |reason, message, cause| {
        Some(Verdict {
            phase: JobPhase::Failed,
            reason,
            message,
            cause,
        })
    };
    if deadline.is_some_and(|deadline| deadline <= view.now) {
        let seconds = job.active_deadline_seconds.unwrap_or_default();
        return failed(
            Reason::DeadlineExceeded,
            format!(
                "The job has not ended within {seconds} seconds (spec.runPolicy.activeDeadlineSeconds).{}",
                unfinished(status)
            ),
            None,
        );
    }
    let new = seen.new_restarts.iter().filter(|end| end.follows.is_none());
    let failures: Vec<Ended<'a>> = new
        .filter(|end| end.cause == RestartCause::Failure)
        .map(|end| end.ended)
        .collect();
    let spent = status.restarts.as_ref().map_or(0, |restarts| restarts.failures);
    let new = i32::try_from(failures.len()).unwrap_or(i32::MAX);
    let cause = cause::of(job, &failures, &cause::retried(seen));
    if let Some(cause) = cause.filter(|_| spent.saturating_add(new) > job.backoff_limit) {
        let before = match spent {
            1 => "1 failure was".to_owned(),
            spent => format!("{spent} failures were"),
        };
        let message = format!(
            "{}; {before} forgiven before, and spec.runPolicy.backoffLimit is {}.",
            describe(job, &cause),
            job.backoff_limit
        );
        return failed(Reason::BackoffLimitExceeded, message, Some(cause));
    }
    None
}

/// What keeps roles from running, as the rest of a message.
fn unfinished(status: &TrainingJobStatus) -> String {
    let starts = |phase| matches!(phase, RolePhase::Pending | RolePhase::Starting);
    let roles = status.roles.iter().filter(|role| starts(role.phase));
    let why = roles.filter_map(|role| Some(format!(" {}: {}", role.name, role.message.as_deref()?)));
    why.collect()
}
