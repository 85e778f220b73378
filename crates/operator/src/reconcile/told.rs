//! What of a status goes into metrics and logs.

use trainyard_api::{JobPhase, RestartCause, TrainingJobStatus};

use super::Reconciler;
use crate::index::JobKey;

impl Reconciler {
    pub(super) fn tell(&self, key: &JobKey, before: Told, after: Told) {
        for (cause, before, after) in [
            (RestartCause::Failure, before.failures, after.failures),
            (RestartCause::Disruption, before.disruptions, after.disruptions),
        ] {
            if after > before {
                self.metrics.restarted(cause, u64::from(after.abs_diff(before)));
            }
        }
        if before.phase != after.phase {
            let phase = after.phase.map(JobPhase::as_str).unwrap_or_default();
            tracing::info!(job = %key, phase, "job");
        }
    }
}

/// What of a status is told.
#[derive(Clone, Copy, Default)]
pub(super) struct Told {
    phase: Option<JobPhase>,
    failures: i32,
    disruptions: i32,
}

impl Told {
    pub(super) fn of(status: &TrainingJobStatus) -> Self {
        let restarts = status.restarts.as_ref();
        Self {
            phase: status.phase,
            failures: restarts.map_or(0, |restarts| restarts.failures),
            disruptions: restarts.map_or(0, |restarts| restarts.disruptions),
        }
    }
}
