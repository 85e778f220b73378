//! The end of a run: how it went, and why.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use serde::Serialize;
use trainyard_api::{ConditionType, JobPhase, JobResult};

use super::{PodPhase, View, humanize};
use crate::run::outcome::Outcome;
use crate::run::progress::{self, Report};

/// How a run went. This is what `--output` prints.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Summary {
    pub job: String,
    pub namespace: String,
    pub framework: String,
    pub outcome: Outcome,
    /// The exit code of `trainyard run`.
    pub exit_code: u8,
    /// Why, in a sentence, where it did not succeed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// How long it took, from the start of trainyard.
    pub seconds: f64,
    pub phases: Vec<PhaseSummary>,
    /// The latest pod of each name.
    pub pods: Vec<PodSummary>,
    /// Pods that were replaced because they failed.
    pub restarts: i32,
    /// Pods that were replaced because they were evicted or lost.
    pub disruptions: i32,
    /// What the job last reported about itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub progress: Option<Report>,
    /// What was reported last by a job that has ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub result: Option<JobResult>,
    /// What made it fail.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub root_cause: Option<Cause>,
    /// What the user should know.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// Where the logs and volumes of its pods are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kept: Option<PathBuf>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PhaseSummary {
    pub phase: JobPhase,
    /// When it began.
    pub after_seconds: f64,
    /// How long it lasted.
    pub seconds: f64,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PodSummary {
    pub name: String,
    pub role: String,
    /// The phase in which it was last seen.
    pub phase: PodPhase,
    /// The exit code of the main container.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
}

/// What made a job fail.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Cause {
    /// The pod that failed first.
    pub pod: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub container: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The last lines it printed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub last_lines: Vec<String>,
}

impl Cause {
    pub fn ending(&self) -> String {
        match self.exit_code {
            Some(code) => describe_exit(code, self.reason.as_deref()),
            None => self.reason.clone().unwrap_or_else(|| "failed".to_owned()),
        }
    }
}

/// Removes what container runtimes put around the reason why a command can't be executed.
fn strip_runtime_prefix(message: &str) -> &str {
    let start = "unable to start container process: ";
    match message.split_once(start) {
        Some((_, reason)) => reason.strip_suffix(": unknown").unwrap_or(reason),
        None => message,
    }
}

impl View {
    pub fn summary(&self, now: Duration, outcome: Outcome, message: Option<String>) -> Summary {
        let failed = outcome == Outcome::Failed;
        let cause = self.cause().filter(|_| failed || outcome == Outcome::TimedOut);
        Summary {
            job: self.job.clone(),
            namespace: self.namespace.clone(),
            framework: self.framework.clone(),
            outcome,
            exit_code: outcome.exit_code(),
            message: message.or_else(|| self.condition().filter(|_| failed)),
            seconds: seconds(now),
            phases: self.phase_summaries(now),
            pods: self.pod_summaries(),
            restarts: self
                .status
                .restarts
                .as_ref()
                .map_or(0, |restarts| restarts.failures),
            disruptions: self
                .status
                .restarts
                .as_ref()
                .map_or(0, |restarts| restarts.disruptions),
            progress: self.job_progress().map(|progress| progress.report.clone()),
            result: self
                .job_progress()
                .filter(|_| self.phase().is_terminal())
                .and_then(|progress| progress::result(&progress.report)),
            root_cause: cause,
            notes: self.notes.clone(),
            kept: None,
        }
    }

    /// The reason and message of the condition Failed.
    fn condition(&self) -> Option<String> {
        let conditions = self.status.conditions.iter();
        let mut failed = conditions.filter(|condition| {
            condition.type_ == ConditionType::Failed.as_str() && condition.status == "True"
        });
        failed
            .next()
            .map(|condition| format!("{}: {}", condition.reason, condition.message))
    }

    fn cause(&self) -> Option<Cause> {
        let root = self.status.root_cause.as_ref()?;
        // The last failed pod of that name that has printed something.
        let pods = self.pods().filter(|pod| pod.name == root.pod);
        let failed = pods.filter(|pod| pod.phase == PodPhase::Failed || pod.is_deleting);
        let lines = failed
            .rev()
            .find_map(|pod| {
                let container = root.container.as_ref().or(pod.main_container.as_ref())?;
                self.tails.get(&(pod.uid.clone(), container.clone()))
            })
            .map(|tail| tail.iter().cloned().collect());
        let message = || {
            let message = strip_runtime_prefix(root.message.as_deref().unwrap_or_default());
            message.lines().map(ToOwned::to_owned).collect()
        };
        Some(Cause {
            pod: root.pod.clone(),
            container: root.container.clone(),
            exit_code: root.exit_code,
            reason: root.reason.clone(),
            last_lines: lines.unwrap_or_else(message),
        })
    }

    fn phase_summaries(&self, now: Duration) -> Vec<PhaseSummary> {
        let ends = self.phases.iter().skip(1).map(|(_, at)| *at).chain([now]);
        let spans = self.phases.iter().zip(ends);
        let spans = spans.filter(|((phase, _), _)| !phase.is_terminal());
        spans
            .map(|((phase, at), end)| PhaseSummary {
                phase: *phase,
                after_seconds: seconds(*at),
                seconds: seconds(end.saturating_sub(*at)),
            })
            .collect()
    }

    fn pod_summaries(&self) -> Vec<PodSummary> {
        let mut latest: BTreeMap<usize, PodSummary> = BTreeMap::new();
        for pod in self.pods() {
            let ended = pod.main().and_then(|main| main.ended.as_ref());
            let summary = PodSummary {
                name: pod.name.clone(),
                role: pod.role.clone(),
                phase: pod.phase,
                exit_code: ended.map(|ended| ended.exit_code),
            };
            latest.insert(self.names.get(&pod.name).copied().unwrap_or_default(), summary);
        }
        latest.into_values().collect()
    }
}

pub fn describe_exit(exit_code: i32, reason: Option<&str>) -> String {
    // "Error" and "Completed" say no more than the code does.
    let reason = reason.filter(|reason| !matches!(*reason, "Error" | "Completed"));
    let code = match exit_code {
        // Shells and container runtimes report a signal as 128 + its number.
        129..=159 => format!("ended by signal {}", exit_code - 128),
        code => format!("exit code {code}"),
    };
    match reason {
        Some(reason) => format!("{code}, {reason}"),
        None => code,
    }
}

/// Rounded to milliseconds.
fn seconds(span: Duration) -> f64 {
    (span.as_secs_f64() * 1000.0).round() / 1000.0
}

impl Summary {
    pub fn headline(&self) -> String {
        let after = humanize::span(Duration::from_secs_f64(self.seconds));
        let job = &self.job;
        let mut facts = vec![humanize::count(self.pods.len(), "pod")];
        if self.restarts > 0 {
            facts.push(humanize::count(
                usize::try_from(self.restarts).unwrap_or_default(),
                "restart",
            ));
        }
        let facts = facts.join(", ");
        match self.outcome {
            Outcome::Succeeded => format!("{job} succeeded in {after} ({facts})"),
            Outcome::Failed => format!("{job} failed after {after} ({facts})"),
            Outcome::Refused => format!("{job} was not accepted"),
            Outcome::TimedOut => {
                format!("{job} was stopped: it had not ended within --timeout ({facts}, {after} in all)")
            }
            Outcome::Broken => format!("{job} could not go on after {after}"),
            Outcome::Interrupted => format!("{job} was interrupted after {after} ({facts})"),
        }
    }
}
