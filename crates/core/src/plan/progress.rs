//! What programs say of their progress, written into the status from time to time.

use trainyard_api::{JobPhase, Progress, TrainingJobStatus};

use super::{Plan, after, earliest};
use crate::model::StatusWrite;
use crate::status::time;
use crate::view::View;

/// It is not written more often than this, in seconds, until the job ends.
const INTERVAL: i64 = 60;

/// Adds to a plan what the programs last said.
pub(super) fn report(view: &View<'_>, plan: &mut Plan) {
    let Some(said) = view.progress.filter(|_| view.job.reports_progress()) else {
        return;
    };
    let old = view.job.status.as_ref();
    let status = match &plan.status {
        StatusWrite::Unchanged => old,
        StatusWrite::Soon(status) | StatusWrite::Early(status) | StatusWrite::Now(status) => Some(&**status),
    };
    let Some(status) = status.filter(|status| counts(status) && !is_said(status, said)) else {
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
        ..said.clone()
    });
    match &mut plan.status {
        StatusWrite::Soon(status) | StatusWrite::Early(status) | StatusWrite::Now(status) => {
            status.progress = progress;
        }
        unchanged @ StatusWrite::Unchanged => {
            let status = TrainingJobStatus {
                progress,
                ..old.cloned().unwrap_or_default()
            };
            // Nothing else follows that it could be written with, and somebody may wait for it.
            let write = if ended {
                StatusWrite::Now
            } else {
                StatusWrite::Soon
            };
            *unchanged = write(Box::new(status));
        }
    }
}

/// Whether what programs say belongs to this run of the job.
fn counts(status: &TrainingJobStatus) -> bool {
    status
        .phase
        .is_some_and(|phase| phase != JobPhase::Pending && !phase.is_suspended())
}

fn is_said(status: &TrainingJobStatus, said: &Progress) -> bool {
    let written = status.progress.as_ref().map(|written| Progress {
        time: None,
        ..written.clone()
    });
    written.as_ref() == Some(said)
}
