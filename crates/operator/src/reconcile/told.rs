//! What of a status goes into metrics and logs.

use std::collections::HashSet;

use trainyard_api::{JobPhase, RestartCause, TrainingJobStatus};

use super::Reconciler;
use crate::index::JobKey;

impl Reconciler {
    pub(super) fn tell(&self, key: &JobKey, before: &Told, after: &Told) {
        let causes = [
            RestartCause::Failure,
            RestartCause::Disruption,
            RestartCause::Completion,
            RestartCause::Update,
        ];
        for (cause, times) in causes.into_iter().zip(after.restarts_since(before)) {
            if times > 0 {
                self.metrics.restarted(cause, times);
            }
        }
        if before.phase != after.phase {
            let phase = after.phase.map(JobPhase::as_str).unwrap_or_default();
            tracing::info!(job = %key, phase, "job");
        }
    }
}

fn grown(before: i32, after: i32) -> u64 {
    u64::try_from(i64::from(after) - i64::from(before)).unwrap_or(0)
}

/// What of a status is told.
#[derive(Default)]
pub(super) struct Told {
    phase: Option<JobPhase>,
    failures: i32,
    disruptions: i32,
    /// Pods, by name and UID, whose end is counted and whose replacement does not exist yet.
    replacing: HashSet<(String, String)>,
    /// Names of pods that were last replaced because of their template.
    updated: HashSet<String>,
}

impl Told {
    /// Failures, disruptions, completions and updates that were counted since.
    fn restarts_since(&self, before: &Self) -> [u64; 4] {
        let failures = grown(before.failures, self.failures);
        let disruptions = grown(before.disruptions, self.disruptions);
        // Status has no count of those that ended well or were renewed. Each end that is counted waits to be replaced, and
        // these are the others.
        let new = || self.replacing.difference(&before.replacing);
        let count = |ends: usize| u64::try_from(ends).unwrap_or(u64::MAX);
        let updates = count(new().filter(|(pod, _)| self.updated.contains(pod)).count());
        let others = count(new().count()).saturating_sub(failures.saturating_add(disruptions));
        let updates = updates.min(others);
        [failures, disruptions, others - updates, updates]
    }

    pub(super) fn of(status: &TrainingJobStatus) -> Self {
        let restarts = status.restarts.as_ref();
        let replacing = restarts.into_iter().flat_map(|restarts| &restarts.replacing);
        let history = restarts.into_iter().flat_map(|restarts| &restarts.history);
        let mut updated = HashSet::new();
        for record in history {
            if record.cause == RestartCause::Update {
                updated.insert(record.pod.clone());
            } else {
                updated.remove(&record.pod);
            }
        }
        Self {
            updated,
            phase: status.phase,
            failures: restarts.map_or(0, |restarts| restarts.failures),
            disruptions: restarts.map_or(0, |restarts| restarts.disruptions),
            replacing: replacing
                .map(|entry| (entry.pod.clone(), entry.uid.clone()))
                .collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn told(failures: i32, disruptions: i32, replacing: &[&str]) -> Told {
        let replacing: Vec<_> = replacing
            .iter()
            .map(|uid| json!({"pod": "a-w-0", "uid": uid}))
            .collect();
        let restarts = json!({"failures": failures, "disruptions": disruptions, "replacing": replacing});
        Told::of(&serde_json::from_value(json!({"restarts": restarts})).unwrap())
    }

    #[test]
    fn ends_that_are_neither_failures_nor_disruptions_are_completions() {
        let before = told(1, 1, &["p0", "p1"]);
        let after = told(2, 2, &["p1", "p2", "p3", "p4"]);
        assert_eq!(after.restarts_since(&before), [1, 1, 1, 0]);
        let none = [0; 4];
        assert_eq!(before.restarts_since(&before), none);
        assert_eq!(told(0, 0, &[]).restarts_since(&after), none);
    }

    #[test]
    fn pods_that_were_renewed_are_no_completions() {
        let record =
            |cause| json!({"time": "2026-01-01T00:00:00Z", "pod": "a-w-0", "cause": cause, "reason": ""});
        let after = json!({"restarts": {
            "replacing": [{"pod": "a-w-0", "uid": "p0"}, {"pod": "a-w-1", "uid": "p1"}],
            "history": [record("Failure"), record("Update")],
        }});
        let after = Told::of(&serde_json::from_value(after).unwrap());
        assert_eq!(after.restarts_since(&told(0, 0, &[])), [0, 0, 1, 1]);
    }
}
