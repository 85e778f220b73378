//! What a status write adds to metrics and logs.

use std::collections::HashMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use trainyard_api::{JobPhase, RestartCause, RestartRecord, TrainingJobStatus};

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
        for record in after.begun_since(before) {
            self.metrics.incident_began(record.cause);
        }
        for seconds in after.over_since(before) {
            self.metrics.incident_ended(seconds);
        }
        for steps in after.resumed_since(before) {
            self.metrics.incident_resumed(steps);
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
    /// The latest incidents.
    history: Vec<RestartRecord>,
    /// Since when all pods of some roles start anew.
    group_since: Option<Time>,
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
        u64::try_from(pods)
            .unwrap_or(u64::MAX)
            .saturating_add(self.restarted_together_since(before, cause))
    }

    /// How many pods began to start anew together since `before`. They are not listed.
    fn restarted_together_since(&self, before: &Self, cause: RestartCause) -> u64 {
        let has_begun = self.group_since.is_some() && self.group_since != before.group_since;
        let first = self
            .history
            .last()
            .filter(|record| has_begun && record.cause == cause);
        first.map_or(0, |record| {
            u64::try_from(record.consequences)
                .unwrap_or_default()
                .saturating_add(1)
        })
    }

    /// The incidents that were not there before.
    fn begun_since<'a>(&'a self, before: &'a Self) -> impl Iterator<Item = &'a RestartRecord> {
        self.history
            .iter()
            .filter(move |record| before.record(record).is_none())
    }

    /// How long the job did not run, for each incident that was not over before.
    fn over_since<'a>(&'a self, before: &'a Self) -> impl Iterator<Item = i64> + 'a {
        let was_over = move |record: &RestartRecord| {
            let written = before.record(record);
            written.is_some_and(|written| written.seconds.is_some())
        };
        let over = self.history.iter().filter(move |record| !was_over(record));
        over.filter_map(|record| record.seconds)
    }

    /// How many steps were lost, for each incident of which that was not known before.
    fn resumed_since<'a>(&'a self, before: &'a Self) -> impl Iterator<Item = i64> + 'a {
        let was_known = move |record: &RestartRecord| {
            let written = before.record(record);
            written.is_some_and(|written| written.step_after.is_some())
        };
        let resumed = self.history.iter().filter(|record| record.step_after.is_some());
        let new = resumed.filter(move |record| !was_known(record));
        new.filter_map(|record| record.steps_lost)
    }

    fn record(&self, same: &RestartRecord) -> Option<&RestartRecord> {
        let is_same = |record: &&RestartRecord| record.time == same.time && record.pod == same.pod;
        self.history.iter().find(is_same)
    }

    pub(super) fn of(status: &TrainingJobStatus) -> Self {
        let restarts = status.restarts.as_ref();
        let replacing = restarts.into_iter().flat_map(|restarts| &restarts.replacing);
        Self {
            phase: status.phase,
            replacing: replacing
                .map(|entry| ((entry.pod.clone(), entry.uid.clone()), entry.cause))
                .collect(),
            history: restarts
                .map(|restarts| restarts.history.clone())
                .unwrap_or_default(),
            group_since: restarts.and_then(|restarts| Some(restarts.group.as_ref()?.since.clone())),
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
    fn an_incident_counts_when_it_begins_and_its_time_when_it_is_over() {
        let status = |history: &serde_json::Value, since: Option<&str>| {
            let group = since.map(|since| json!({"roles": ["w"], "pod": "a-w-0", "since": since}));
            let status = json!({"restarts": {"history": history, "group": group}});
            StatusSummary::of(&serde_json::from_value(status).unwrap())
        };
        let record = |minute: i32, seconds: Option<i64>| {
            json!({"time": format!("2026-01-01T00:{minute:02}:00Z"), "pod": "a-w-0", "cause": "Failure", "reason": "Error",
                "consequences": 3, "seconds": seconds, "stepsLost": 5})
        };
        let calm = status(&json!([record(1, Some(7))]), None);
        let begun = status(
            &json!([record(1, Some(7)), record(2, None)]),
            Some("2026-01-01T00:02:00Z"),
        );
        let over = status(&json!([record(1, Some(7)), record(2, Some(9))]), None);
        let counts = |before: &StatusSummary, after: &StatusSummary| {
            let times: Vec<i64> = after.over_since(before).collect();
            (
                after.begun_since(before).count(),
                after.counted_since(before, RestartCause::Failure),
                times,
            )
        };
        assert_eq!(counts(&calm, &begun), (1, 4, vec![]));
        assert_eq!(counts(&begun, &begun), (0, 0, vec![]));
        assert_eq!(counts(&begun, &over), (0, 0, vec![9]));
        assert_eq!(counts(&over, &over), (0, 0, vec![]));

        let mut after = record(2, Some(9));
        after["stepAfter"] = 7.into();
        let resumed = status(&json!([record(1, Some(7)), after]), None);
        let lost = |before: &StatusSummary, after: &StatusSummary| -> Vec<i64> {
            after.resumed_since(before).collect()
        };
        assert_eq!((lost(&begun, &over), lost(&over, &resumed)), (vec![], vec![5]));
        assert_eq!(lost(&resumed, &resumed), [0; 0]);
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
