//! Decides whether a job ends now, and how.

use jiff::Timestamp;
use trainyard_api::{
    CleanPodPolicy, ConditionType, JobPhase, Reason, RestartCause, RolePhase, TrainingJobStatus,
};

use super::describe::{describe, root_cause};
use super::{Plan, after, cause, earliest, event, exec_right, finished, roles, size};
use crate::assess::{Assessment, Ended};
use crate::foreign::is_child;
use crate::job::Job;
use crate::restart::End;
use crate::status::{set_condition, time};
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
    /// The end that caused it.
    pub cause: Option<Ended<'a>>,
}

/// What the state of its roles means for a job.
pub(super) enum Outcome<'a> {
    /// The job goes on.
    GoesOn,
    /// The job seems to end, but a node may not have reported yet the end of the pod that caused
    /// it.
    DelayedUntil(Timestamp),
    /// The job ends now.
    Ends(Verdict<'a>),
}

/// Decides what the state of its roles means for a job.
pub(super) fn outcome<'a>(
    job: &Job<'a>,
    view: &View<'_>,
    assessment: &Assessment<'a>,
    status: &TrainingJobStatus,
    phase: JobPhase,
    ends: &[Ended<'a>],
) -> Outcome<'a> {
    let deadline = deadline(job, status);
    let Some(mut verdict) = verdict(job, view, assessment, status, phase, deadline, ends) else {
        return Outcome::GoesOn;
    };
    verdict.cause = verdict.cause.and_then(|cause| cause::origin(assessment, cause));
    let cause = verdict.cause.as_ref();
    let delayed = cause.and_then(|cause| cause::delayed_until(job, view, assessment, cause));
    match earliest([delayed, delayed.and(deadline.filter(|at| *at > view.now))]) {
        Some(until) => Outcome::DelayedUntil(until),
        None => Outcome::Ends(verdict),
    }
}

/// Decides how the job ends. `None` if it goes on.
fn verdict<'a>(
    job: &Job<'a>,
    view: &View<'_>,
    assessment: &Assessment<'a>,
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
        let cause = cause::find(job, ends, &cause::retried(assessment));
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
    if deadline.is_some_and(|deadline| deadline <= view.now) {
        let seconds = job.active_deadline_seconds.unwrap_or_default();
        return Some(Verdict {
            phase: JobPhase::Failed,
            reason: Reason::DeadlineExceeded,
            message: format!(
                "The job has not ended within {seconds} seconds (spec.runPolicy.activeDeadlineSeconds).{}",
                unfinished(status)
            ),
            cause: None,
        });
    }
    if size::pause_deadline(job, status, phase).is_some_and(|deadline| deadline <= view.now) {
        return Some(Verdict {
            phase: JobPhase::Failed,
            reason: Reason::PauseTimeoutExceeded,
            message: format!(
                "The job had too few pods to train for longer than spec.elastic.pauseTimeoutSeconds.{}",
                unfinished(status)
            ),
            cause: None,
        });
    }
    backoff_limit_exceeded(job, assessment, status)
}

/// Decides whether a job fails because too many of its pods have.
fn backoff_limit_exceeded<'a>(
    job: &Job<'a>,
    assessment: &Assessment<'a>,
    status: &TrainingJobStatus,
) -> Option<Verdict<'a>> {
    let new = assessment
        .new_restarts
        .iter()
        .filter(|end| end.consequence_of.is_none());
    let failures: Vec<Ended<'a>> = new
        .filter(|end| end.cause == RestartCause::Failure)
        .map(|end| end.ended)
        .collect();
    let spent = status.restarts.as_ref().map_or(0, |restarts| restarts.failures);
    let new = i32::try_from(failures.len()).unwrap_or(i32::MAX);
    if spent.saturating_add(new) <= job.backoff_limit {
        return None;
    }
    let cause = cause::find(job, &failures, &cause::retried(assessment))?;
    let before = match spent {
        1 => "1 failure was".to_owned(),
        spent => format!("{spent} failures were"),
    };
    Some(Verdict {
        phase: JobPhase::Failed,
        reason: Reason::BackoffLimitExceeded,
        message: format!(
            "{}; {before} forgiven before, and spec.runPolicy.backoffLimit is {}.",
            describe(job, &cause),
            job.backoff_limit
        ),
        cause: Some(cause),
    })
}

/// Says what keeps roles from running, as the end of a message.
fn unfinished(status: &TrainingJobStatus) -> String {
    let starts = |phase| matches!(phase, RolePhase::Pending | RolePhase::Starting);
    let roles = status.roles.iter().filter(|role| starts(role.phase));
    let why = roles.filter_map(|role| Some(format!(" {}: {}", role.name, role.message.as_deref()?)));
    why.collect()
}

/// Records how the job ends, and deletes the pods that its policy does not keep.
pub(super) fn finish(
    job: &Job<'_>,
    view: &View<'_>,
    assessment: &Assessment<'_>,
    status: &mut TrainingJobStatus,
    verdict: Verdict<'_>,
    plan: &mut Plan,
) {
    let Verdict {
        phase,
        reason,
        message,
        cause,
    } = verdict;
    let failed = phase == JobPhase::Failed;
    status.phase = Some(phase);
    status.completion_time = Some(time(view.now));
    status.scaling = None;
    if let Some(cause) = cause {
        status.root_cause = Some(root_cause(job, &cause));
    }
    if let Some(restarts) = &mut status.restarts {
        restarts.replacing.clear();
        restarts.incidents.clear();
        restarts.group = None;
    }
    roles::end(job, assessment, status, reason);
    // Failures that would have been retried count as failed. Terminating pods count only as that.
    let stays = |ended: &Ended<'_>| ended.row.is_none_or(|row| !row.terminating);
    let retried = assessment.new_restarts.iter().map(|end| end.ended);
    for ended in retried.filter(|ended| matches!(ended.end, End::Failure(_)) && stays(ended)) {
        if let Some(role) = status.roles.get_mut(ended.key.role) {
            role.failed += 1;
            role.pending -= 1;
        }
    }
    if job.clean_pod_policy != CleanPodPolicy::None {
        // These pods are deleted next, and the status of a finished job is not written again.
        for role in &mut status.roles {
            (role.active, role.ready, role.pending, role.terminating) = (0, 0, 0, 0);
        }
        status.ready = Some(format!("0/{}", job.total()));
    }
    set_condition(
        status,
        ConditionType::Running,
        false,
        Reason::Finished,
        "The job has ended.",
        view.now,
    );
    let kind = if failed {
        ConditionType::Failed
    } else {
        ConditionType::Succeeded
    };
    set_condition(status, kind, true, reason, &*message, view.now);
    if failed || !is_child(view.job) {
        plan.events.push(event(failed, reason, message));
    }
    // The status is written when nothing can be started any more.
    plan.at_once.extend(exec_right::withdrawal(view));
    plan.after_status = finished::clean(view, job.clean_pod_policy);
    plan.wake_at = None;
}
