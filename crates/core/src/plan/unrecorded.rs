//! Plans a job that has no status yet. Most jobs come to run soon, so the first pods are created
//! before a status is written, and one write tells what two would.
//!
//! A status records the spec that the pods were created from. Until it does, the pods say it
//! themselves, by a hash: the spec may change in the meantime.

use jiff::Timestamp;
use trainyard_api::TrainingJobStatus;

use super::{Plan, suspended};
use crate::immutable;
use crate::job::Job;
use crate::model::Action;
use crate::status::only_starts;
use crate::view::View;

/// Returns true if pods may be created before the first status is written. An elastic job has its
/// members in there, and one of a declared framework the declaration.
pub(super) fn may_start(job: &Job<'_>, status: &TrainingJobStatus) -> bool {
    job.elastic.is_none() && job.framework.declaration.is_none() && only_starts(status)
}

/// When a job was started that no status says was.
pub(super) fn start_time(view: &View<'_>) -> Timestamp {
    let since = view.local.waits.unwritten_since.unwrap_or(view.instant);
    let waited = view.instant.saturating_duration_since(since);
    view.now.checked_sub(waited).unwrap_or(view.now)
}

/// Deletes all pods, if some were created from another spec, and what may have changed with it.
/// `None` if there are none of those.
pub(super) fn start_over(view: &View<'_>) -> Option<Plan> {
    let job = view.job;
    let was_changed = job.metadata.generation.is_some_and(|generation| generation > 1);
    if job.status.is_some() || !was_changed || view.pods.iter().all(|row| row.spec.is_none()) {
        return None;
    }
    let spec = immutable::hash(job, view.frameworks);
    if view.pods.iter().all(|row| row.spec.is_none_or(|of| of == spec)) {
        return None;
    }
    let (services, pods): (Vec<Action>, Vec<Action>) = suspended::deletions(view)
        .into_iter()
        .partition(|action| matches!(action, Action::DeleteService { .. }));
    // The pods go last: when they are gone, nobody knows that there was another spec.
    let at_once = if services.is_empty() { pods } else { services };
    Some(Plan {
        at_once,
        ..Plan::default()
    })
}
