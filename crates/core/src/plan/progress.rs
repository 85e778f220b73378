//! Writes the progress that programs report into the status, from time to time, and what is left of
//! it at the end.

use trainyard_api::{JobPhase, Progress, TrainingJobStatus};

use super::{Plan, after, earliest};
use crate::model::{StatusWrite, Urgency};
use crate::status::time;
use crate::view::View;

/// Progress is not written more often than this, in seconds, until the job ends.
const INTERVAL: i64 = 60;

/// Adds the latest reported progress to a plan, and the result to a status with which a job has
/// ended.
pub(super) fn report(view: &View<'_>, plan: &mut Plan) {
    record(view, plan);
    let ended = |status: &&mut TrainingJobStatus| status.phase.is_some_and(JobPhase::is_terminal);
    if let Some(status) = plan.status.status_mut().filter(ended) {
        status.result = status.progress.as_ref().and_then(Progress::result);
    }
}

fn record(view: &View<'_>, plan: &mut Plan) {
    let Some(reported) = view.progress.filter(|_| view.job.reports_progress()) else {
        return;
    };
    let old = view.job.status.as_ref();
    let status = plan.status.status().or(old);
    let Some(status) = status.filter(|status| belongs_to_run(status) && !is_written(status, reported)) else {
        return;
    };
    let ended = status.phase.is_some_and(JobPhase::is_terminal);
    let written = status.progress.as_ref().and_then(|written| written.time.as_ref());
    let due = written
        .and_then(|written| after(written.0, INTERVAL))
        .filter(|_| !ended);
    if let Some(due) = due.filter(|due| *due > view.now) {
        plan.wake_at = earliest([plan.wake_at, Some(due)]);
        return;
    }
    let progress = Some(Progress {
        time: Some(time(view.now)),
        ..reported.clone()
    });
    match &mut plan.status {
        StatusWrite::Changed(status, _) => status.progress = progress,
        unchanged @ StatusWrite::Unchanged => {
            let status = TrainingJobStatus {
                progress,
                ..old.cloned().unwrap_or_default()
            };
            // No other status write follows after the end, and somebody may wait for the final
            // progress.
            let urgency = if ended { Urgency::Now } else { Urgency::Paced };
            *unchanged = StatusWrite::Changed(Box::new(status), urgency);
        }
    }
}

/// Returns true if reported progress belongs to this run of the job.
fn belongs_to_run(status: &TrainingJobStatus) -> bool {
    status
        .phase
        .is_some_and(|phase| phase != JobPhase::Pending && !phase.is_suspended())
}

fn is_written(status: &TrainingJobStatus, reported: &Progress) -> bool {
    let written = status.progress.as_ref().map(|written| Progress {
        time: None,
        ..written.clone()
    });
    written.as_ref() == Some(reported)
}
