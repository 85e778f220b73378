use std::collections::BTreeMap;

use trainyard_core::model::{DrainCause, ForcedRemoval};

use super::*;

impl Metrics {
    /// Returns how many requests of a verb and a kind there were, whatever the answer.
    pub(crate) fn requests(&self, verb: Verb, kind: Kind) -> u64 {
        let labels = format!("verb=\"{}\",kind=\"{}\"", verb.as_str(), kind.as_str());
        self.count_requests(|line| line.contains(&labels))
    }

    /// Returns how many requests there were that change anything but a lease.
    pub(crate) fn writes(&self) -> u64 {
        let unwanted = [Verb::Get, Verb::List, Verb::Watch].map(|verb| format!("verb=\"{}\"", verb.as_str()));
        self.count_requests(|line| {
            !line.contains("kind=\"Lease\"") && !unwanted.iter().any(|read| line.contains(read))
        })
    }

    fn count_requests(&self, is_wanted: impl Fn(&str) -> bool) -> u64 {
        let text = self.render();
        let lines = text
            .lines()
            .filter(|line| line.starts_with("trainyard_api_requests_total{"));
        let counts = lines
            .filter(|line| is_wanted(line))
            .map(|line| line.rsplit_once(' ').unwrap().1);
        counts.map(|count| count.parse::<u64>().unwrap()).sum()
    }
}

#[test]
fn renders_what_was_counted() {
    let metrics = Metrics::new();
    metrics.reconciled(Kind::TrainingJob, Outcome::Acted, Duration::from_millis(3));
    metrics.set_queue_depth(7);
    metrics.requested(Verb::Create, Kind::Pod, Some(201));
    metrics.requested(Verb::Create, Kind::Pod, Some(409));
    metrics.requested(Verb::List, Kind::Other, None);
    metrics.set_jobs(JobPhase::ALL.map(|phase| (phase, if phase == JobPhase::Running { 5 } else { 0 })));
    metrics.restarted(RestartCause::Disruption, 2);
    metrics.drained(&DrainSummary {
        cause: DrainCause::Restart,
        seconds: Some(7),
        forced: BTreeMap::from([(ForcedRemoval::Silent, 3), (ForcedRemoval::TimedOut, 1)]),
        steps_lost: Some(0),
    });
    metrics.drained(&DrainSummary::default());
    metrics.set_leader(true);
    metrics.watch_restarted(Kind::Node);
    metrics.reviewed("validate", Review::Denied);
    assert!(
        !metrics.render().contains("expiry_timestamp_seconds{"),
        "nothing is served yet"
    );
    metrics.set_certificate_expiry(1_700_000_000);
    metrics.event_dropped();
    let text = metrics.render();
    for line in [
        "trainyard_reconcile_seconds_bucket{le=\"0.005\"} 1",
        "trainyard_reconciles_total{kind=\"TrainingJob\",outcome=\"acted\"} 1",
        "trainyard_queue_depth 7",
        "trainyard_api_requests_total{verb=\"create\",kind=\"Pod\",code=\"201\"} 1",
        "trainyard_api_requests_total{verb=\"create\",kind=\"Pod\",code=\"409\"} 1",
        "trainyard_api_requests_total{verb=\"list\",kind=\"other\",code=\"0\"} 1",
        "trainyard_jobs{phase=\"Running\"} 5",
        "trainyard_jobs{phase=\"Failed\"} 0",
        "trainyard_restarts_total{cause=\"Disruption\"} 2",
        "trainyard_drain_seconds_count{cause=\"Restart\"} 1",
        "trainyard_drain_seconds_bucket{le=\"10.0\",cause=\"Restart\"} 1",
        "trainyard_forced_removals_total{cause=\"Restart\",why=\"Silent\"} 3",
        "trainyard_forced_removals_total{cause=\"Restart\",why=\"TimedOut\"} 1",
        "trainyard_drain_steps_lost_bucket{le=\"0.0\",cause=\"Restart\"} 1",
        "trainyard_drain_steps_lost_count{cause=\"Restart\"} 1",
        "trainyard_leader 1",
        "trainyard_watch_restarts_total{kind=\"Node\"} 1",
        "trainyard_admission_reviews_total{webhook=\"validate\",result=\"denied\"} 1",
        "trainyard_certificate_expiry_timestamp_seconds{certificate=\"serving\"} 1700000000",
        "trainyard_events_dropped_total 1",
        "# EOF",
    ] {
        assert!(text.lines().any(|l| l == line), "no line {line:?} in\n{text}");
    }
}

#[test]
fn a_phase_that_empties_goes_back_to_zero() {
    let metrics = Metrics::new();
    metrics.set_jobs(JobPhase::ALL.map(|phase| (phase, 3)));
    metrics.set_jobs(JobPhase::ALL.map(|phase| (phase, i64::from(phase == JobPhase::Failed))));
    let text = metrics.render();
    let lines: Vec<_> = text
        .lines()
        .filter(|line| line.starts_with("trainyard_jobs{"))
        .collect();
    assert_eq!(lines.len(), JobPhase::ALL.len());
    for line in lines {
        let count = if line.contains("Failed") { " 1" } else { " 0" };
        assert!(line.ends_with(count), "{line}");
    }
}

#[test]
fn counts_requests_without_codes() {
    let metrics = Metrics::new();
    metrics.requested(Verb::Patch, Kind::TrainingJobStatus, Some(200));
    metrics.requested(Verb::Patch, Kind::TrainingJobStatus, None);
    metrics.requested(Verb::Update, Kind::Lease, Some(200));
    metrics.requested(Verb::Get, Kind::Pod, Some(200));
    assert_eq!(metrics.requests(Verb::Patch, Kind::TrainingJobStatus), 2);
    assert_eq!(metrics.requests(Verb::Patch, Kind::TrainingJob), 0);
    assert_eq!(metrics.writes(), 2, "neither reads nor the lease count as writes");
}
