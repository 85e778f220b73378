//! Writes the last checkpoint of the programs into the status, whenever that is written.

use trainyard_api::{Checkpoint, TrainingJobStatus};
use trainyard_contract::drain::DrainState;

use super::Plan;
use crate::status::time;
use crate::view::View;

/// The number by which programs report it among their progress.
const METRIC: &str = "checkpoint";

/// Adds the latest checkpoint to a plan that writes the status.
pub(super) fn record(view: &View<'_>, plan: &mut Plan) {
    let Some(status) = plan.status.status_mut() else {
        return;
    };
    let attempt = attempt(status);
    if let Some(step) = news(view, status, attempt) {
        status.checkpoint = Some(Checkpoint {
            step,
            time: Some(time(view.now)),
            attempt,
        });
    }
}

/// The step of the last checkpoint, as the status says or will say.
pub(super) fn last(view: &View<'_>, status: &TrainingJobStatus) -> Option<i64> {
    let written = status.checkpoint.as_ref().map(|checkpoint| checkpoint.step);
    news(view, status, attempt(status)).or(written)
}

/// The step of a checkpoint that the status does not have yet.
fn news(view: &View<'_>, status: &TrainingJobStatus, attempt: i32) -> Option<i64> {
    latest(view).filter(|step| is_news(status, *step, attempt))
}

/// How often pods of the job have started anew together.
fn attempt(status: &TrainingJobStatus) -> i32 {
    let restarts = status.restarts.iter();
    let attempts = restarts.flat_map(|restarts| &restarts.attempts);
    attempts.map(|of| of.attempt).max().unwrap_or_default()
}

/// The latest step that this process was told of: by pods that were told to leave, or among the
/// progress.
fn latest(view: &View<'_>) -> Option<i64> {
    let reports = view.pods.iter().filter_map(|row| view.local.drains.get(&row.uid));
    let saved = reports.filter(|report| report.state == DrainState::CheckpointDone);
    let progress = view.progress.filter(|_| view.job.reports_progress());
    let told = progress.and_then(|progress| step(progress.metrics.get(METRIC)?));
    saved
        .filter_map(|report| report.step)
        .chain(told)
        .filter(|step| *step >= 0)
        .max()
}

/// Reads a number that is a step. Metrics are text, and may be anything.
fn step(text: &str) -> Option<i64> {
    text.strip_suffix(".0").unwrap_or(text).parse().ok()
}

/// Returns true unless a step goes back. It may if all pods have started anew since, or the job
/// was suspended: programs may have gone on from an older checkpoint.
fn is_news(status: &TrainingJobStatus, step: i64, attempt: i32) -> bool {
    let Some(written) = &status.checkpoint else {
        return true;
    };
    let started = status.start_time.as_ref();
    let is_of_former_run =
        started.is_some_and(|start| written.time.as_ref().is_some_and(|at| at.0 < start.0));
    step > written.step || step != written.step && (attempt > written.attempt || is_of_former_run)
}
