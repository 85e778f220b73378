//! What a status write adds to metrics and logs.

use std::collections::HashMap;

use trainyard_api::{JobPhase, RestartCause, TrainingJobStatus};

use super::Reconciler;
use crate::index::JobKey;

impl Reconciler {
    pub(super) fn count_change(&self, key: &JobKey, before: &StatusSummary, after: &StatusSummary) {
        let causes = [
            RestartCause::Failure,
            RestartCause::Disruption,
            RestartCause::Completion,
            RestartCause::Update,
        ];
        for cause in causes {
            let pods = after.counted_since(before, cause);
            if pods > 0 {
                self.metrics.restarted(cause, pods);
            }
        }
        if before.phase != after.phase {
            let phase = after.phase.map(JobPhase::as_str).unwrap_or_default();
            tracing::info!(job = %key, phase, "job");
        }
    }
}

/// The part of a status that metrics and logs compare.
#[derive(Default)]
pub(super) struct StatusSummary {
    phase: Option<JobPhase>,
    /// Pods, by name and UID, that `status.restarts.replacing` lists, with their cause.
    replacing: HashMap<(String, String), Option<RestartCause>>,
}

impl StatusSummary {
    /// How many pods were counted for a cause since `before`. Every counted pod is listed in the
    /// status that counts it.
    fn counted_since(&self, before: &Self, cause: RestartCause) -> u64 {
        let new = self
            .replacing
            .iter()
            .filter(|(pod, _)| !before.replacing.contains_key(*pod));
        let pods = new.filter(|(_, counted)| **counted == Some(cause)).count();
        u64::try_from(pods).unwrap_or(u64::MAX)
    }

    pub(super) fn of(status: &TrainingJobStatus) -> Self {
        let restarts = status.restarts.as_ref();
        let replacing = restarts.into_iter().flat_map(|restarts| &restarts.replacing);
        Self {
            phase: status.phase,
            replacing: replacing
                .map(|entry| ((entry.pod.clone(), entry.uid.clone()), entry.cause))
                .collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn summary(replacing: &[(&str, RestartCause)]) -> StatusSummary {
        let replacing: Vec<_> = replacing
            .iter()
            .map(|(uid, cause)| json!({"pod": "a-w-0", "uid": uid, "cause": cause}))
            .collect();
        StatusSummary::of(&serde_json::from_value(json!({"restarts": {"replacing": replacing}})).unwrap())
    }

    #[test]
    fn every_pod_counts_once_for_its_cause() {
        use RestartCause::{Completion, Disruption, Failure, Update};
        let before = summary(&[("p0", Failure), ("p1", Disruption)]);
        let after = summary(&[
            ("p1", Disruption),
            ("p2", Disruption),
            ("p3", Disruption),
            ("p4", Completion),
        ]);
        let counts = |after: &StatusSummary| {
            [Failure, Disruption, Completion, Update].map(|cause| after.counted_since(&before, cause))
        };
        assert_eq!(counts(&after), [0, 2, 1, 0]);
        assert_eq!(counts(&before), [0; 4]);
        assert_eq!(counts(&summary(&[("p5", Update)])), [0, 0, 0, 1]);
    }

    #[test]
    fn pods_without_a_cause_do_not_count() {
        let status = json!({"restarts": {"replacing": [{"pod": "a-w-0", "uid": "p0"}]}});
        let after = StatusSummary::of(&serde_json::from_value(status).unwrap());
        assert_eq!(
            after.counted_since(&StatusSummary::default(), RestartCause::Completion),
            0
        );
    }
}
