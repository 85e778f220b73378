//! What a terminal shows below the logs.

use std::time::Duration;

use trainyard_api::JobPhase;

use super::{PodPhase, ReportedProgress, Size, Source, Stop, View, humanize};

#[derive(Clone, Debug, PartialEq)]
pub struct Dashboard {
    pub job: String,
    /// The phase, and how long it has lasted.
    pub phase: (JobPhase, Duration),
    /// For each role: how many pods run or have succeeded, and how many there are.
    pub roles: Vec<(String, usize, usize)>,
    /// Of an elastic job.
    pub size: Option<Size>,
    pub progress: Option<Bar>,
    /// Pods that can't start, with the reason.
    pub troubles: Vec<(Source, String)>,
    /// Why the job is being stopped, and how many pods are left.
    pub stopping: Option<(Stop, usize)>,
}

/// The progress of a job.
#[derive(Clone, Debug, PartialEq)]
pub struct Bar {
    /// The part that is done, from 0 to 1.
    pub fraction: Option<f64>,
    /// The step and the metrics.
    pub facts: Vec<String>,
    pub eta: Option<Duration>,
}

impl View {
    pub fn dashboard(&self, now: Duration) -> Dashboard {
        let here = || self.pods().filter(|pod| !pod.is_deleting);
        let roles = self.roles.iter().map(|(role, all)| {
            let up = here().filter(|pod| {
                pod.role == *role && matches!(pod.phase, PodPhase::Running | PodPhase::Succeeded)
            });
            (role.clone(), up.count(), *all)
        });
        let troubles = here().filter_map(|pod| Some((self.source(pod, None), pod.trouble.clone()?)));
        let (phase, since) = self.phases.last().copied().unwrap_or((JobPhase::Pending, now));
        Dashboard {
            job: self.job.clone(),
            phase: (phase, now.saturating_sub(since)),
            roles: roles.collect(),
            size: self.size(),
            progress: self
                .job_progress()
                .map(|progress| bar(progress, now))
                .filter(|bar| !bar.facts.is_empty()),
            troubles: troubles.collect(),
            stopping: self.stopping.map(|stop| {
                let left = self.pods.values().filter(|pod| !pod.is_over()).count();
                (stop, left)
            }),
        }
    }
}

pub(super) fn bar(progress: &ReportedProgress, now: Duration) -> Bar {
    let report = &progress.report;
    let mut facts = Vec::new();
    match (report.step, report.total) {
        (Some(step), Some(total)) => facts.push(format!("step {step}/{total}")),
        (Some(step), None) => facts.push(format!("step {step}")),
        _ => {}
    }
    let loss = report.metrics.get_key_value("loss");
    let others = report.metrics.iter().filter(|(name, _)| *name != "loss");
    for (name, value) in loss.into_iter().chain(others) {
        facts.push(format!("{name} {}", humanize::number(*value)));
    }
    Bar {
        fraction: progress.fraction(),
        facts,
        eta: progress.eta(now),
    }
}

impl Bar {
    pub fn text(&self) -> String {
        let eta = self.eta.filter(|eta| !eta.is_zero());
        let eta = eta.map(|eta| format!("ETA {}", humanize::span(eta)));
        self.facts
            .iter()
            .cloned()
            .chain(eta)
            .collect::<Vec<_>>()
            .join("  ")
    }
}
