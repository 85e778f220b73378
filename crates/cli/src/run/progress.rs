//! Progress that programs report, and the pace that follows. Lines are read by the agent's parser,
//! here as in a cluster; see docs/progress.md.

use std::time::Duration;

pub use trainyard_agent::progress::report::{Report, parse};
use trainyard_api::JobResult;
use trainyard_contract::observer::{MAX_ARTIFACTS, MAX_METRICS, is_artifact, number_text};

/// The progress in the status of a job; None if it is empty.
pub fn from_status(status: &trainyard_api::Progress) -> Option<Report> {
    let steps = |steps: Option<i64>| steps.and_then(|steps| u64::try_from(steps).ok());
    let metrics = status.metrics.iter();
    let metrics = metrics.filter_map(|(name, number)| Some((name.clone(), number.parse().ok()?)));
    let artifacts = status.artifacts.clone().into_iter();
    let artifacts = artifacts.filter(|(name, location)| is_artifact(name, location));
    let report = Report {
        step: steps(status.step),
        total: steps(status.total),
        metrics: metrics.take(MAX_METRICS).collect(),
        artifacts: artifacts.take(MAX_ARTIFACTS).collect(),
    };
    Some(report).filter(|report| *report != Report::default())
}

/// What is left of a report at the end of a job, as the operator writes it on a cluster. None if
/// there is neither a metric nor an artifact.
pub fn result(report: &Report) -> Option<JobResult> {
    let metrics = report.metrics.iter();
    let result = JobResult {
        metrics: metrics
            .map(|(name, number)| (name.clone(), number_text(*number)))
            .collect(),
        artifacts: report.artifacts.clone(),
    };
    Some(result).filter(|result| *result != JobResult::default())
}

#[derive(Clone, Debug, PartialEq)]
pub struct ReportedProgress {
    /// The latest value of each field.
    pub report: Report,
    /// The first step, and when it was reported. A program that resumes from a checkpoint does not
    /// start at 0.
    first: Option<(Duration, u64)>,
    /// The latest step, and when it was reported.
    last: Option<(Duration, u64)>,
}

impl ReportedProgress {
    pub fn new(at: Duration, report: Report) -> Self {
        let mut progress = Self {
            report: Report::default(),
            first: None,
            last: None,
        };
        progress.update(at, report);
        progress
    }

    /// Merges a later report.
    pub fn update(&mut self, at: Duration, report: Report) {
        if let Some(step) = report.step {
            let back = self.last.is_some_and(|(_, last)| step < last);
            if back || self.first.is_none() {
                self.first = Some((at, step));
            }
            self.last = Some((at, step));
        }
        self.report.merge(report);
    }

    /// Replaces the report as a whole.
    pub fn replace(&mut self, at: Duration, report: Report) {
        self.update(at, report.clone());
        self.report = report;
    }

    /// The part that is done, from 0 to 1.
    pub fn fraction(&self) -> Option<f64> {
        let (step, total) = (self.report.step?, self.report.total.filter(|total| *total > 0)?);
        Some((to_f64(step) / to_f64(total)).min(1.0))
    }

    /// How long the rest will take, if it goes on as fast as so far.
    pub fn eta(&self, now: Duration) -> Option<Duration> {
        let ((begin, first), (at, last)) = (self.first?, self.last?);
        let left = self.report.total?.checked_sub(last)?;
        let done = last.checked_sub(first).filter(|done| *done > 0)?;
        let pace = at.checked_sub(begin)?.as_secs_f64() / to_f64(done);
        let since = now.saturating_sub(at);
        let all = Duration::try_from_secs_f64(pace * to_f64(left)).ok()?;
        Some(all.saturating_sub(since))
    }
}

#[allow(
    clippy::cast_precision_loss,
    reason = "steps are counted up to where floating point is exact"
)]
fn to_f64(steps: u64) -> f64 {
    steps as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> Report {
        parse(line).unwrap().unwrap()
    }

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn the_number_of_metrics_is_bounded() {
        let line: String = (0..100).fold(String::new(), |line, i| format!("{line} m{i}=1"));
        let mut progress = ReportedProgress::new(seconds(0), read(&line));
        progress.update(seconds(1), read("more=1"));
        assert_eq!(progress.report.metrics.len(), MAX_METRICS);
    }

    #[test]
    fn later_lines_replace_only_what_they_name() {
        let mut progress = ReportedProgress::new(seconds(0), read("total=100"));
        assert_eq!(progress.fraction(), None);
        progress.update(seconds(1), read("step=10 loss=0.5"));
        progress.update(seconds(2), read("step=25"));
        assert_eq!(progress.report, read("step=25 total=100 loss=0.5"));
        assert_eq!(progress.fraction(), Some(0.25));
    }

    #[test]
    fn what_the_operator_has_written_is_read_as_far_as_it_makes_sense() {
        let status = |step, metrics: &[(&str, &str)]| {
            let metrics = metrics
                .iter()
                .map(|(name, number)| ((*name).to_owned(), (*number).to_owned()));
            from_status(&trainyard_api::Progress {
                step,
                total: Some(10),
                metrics: metrics.collect(),
                ..trainyard_api::Progress::default()
            })
        };
        let said = status(Some(3), &[("loss", "0.5"), ("lr", "1e-4"), ("host", "a")]);
        assert_eq!(said, Some(read("step=3 total=10 loss=0.5 lr=1e-4")));
        assert!(status(None, &[("loss", "NaN")]).unwrap().metrics["loss"].is_nan());
        assert_eq!(status(Some(-3), &[]), Some(read("total=10")));
        assert_eq!(from_status(&trainyard_api::Progress::default()), None);
        let made = from_status(&trainyard_api::Progress {
            artifacts: [("model", "/a"), ("odd", "")]
                .map(|(name, location)| (name.to_owned(), location.to_owned()))
                .into(),
            ..trainyard_api::Progress::default()
        });
        assert_eq!(made, Some(read(r#"{"artifacts": {"model": "/a"}}"#)));
    }

    #[test]
    fn metrics_and_artifacts_are_the_result() {
        let said = read(r#"{"step": 3, "loss": NaN, "lr": 0.5, "artifacts": {"model": "/a"}}"#);
        let result = result(&said).unwrap();
        assert_eq!((&*result.metrics["loss"], &*result.metrics["lr"]), ("NaN", "0.5"));
        assert_eq!(result.artifacts["model"], "/a");
        assert_eq!(super::result(&read("step=3")), None, "steps are none");
    }

    #[test]
    fn the_rest_is_judged_by_what_was_seen() {
        let mut progress = ReportedProgress::new(seconds(10), read("step=500 total=600"));
        assert_eq!(progress.eta(seconds(10)), None, "one report is no pace");
        progress.update(seconds(20), read("step=520"));
        assert_eq!(progress.eta(seconds(20)), Some(seconds(40)));
        assert_eq!(
            progress.eta(seconds(30)),
            Some(seconds(30)),
            "it goes on while we look"
        );
        // A program that was replaced and started again is judged anew.
        progress.update(seconds(30), read("step=0"));
        progress.update(seconds(31), read("step=100"));
        assert_eq!(progress.eta(seconds(31)), Some(seconds(5)));
        progress.update(seconds(40), read("step=700"));
        assert_eq!(
            (progress.eta(seconds(40)), progress.fraction()),
            (None, Some(1.0))
        );
    }
}
