//! The present of a run, for a terminal.

use std::time::Duration;

use trainyard_api::JobPhase;

use super::{PodPhase, Progress, Speaker, Stop, View, words};

/// The present, for a terminal.
#[derive(Clone, Debug, PartialEq)]
pub struct Picture {
    /// The job's name.
    pub job: String,
    /// The phase, and for how long.
    pub phase: (JobPhase, Duration),
    /// For each role: pods that run or are done, and all.
    pub roles: Vec<(String, usize, usize)>,
    /// How far it is.
    pub progress: Option<Bar>,
    /// Pods that do not get on, with the reason.
    pub troubles: Vec<(Speaker, String)>,
    /// Why it is being stopped, and how many pods are left.
    pub stopping: Option<(Stop, usize)>,
}

/// How far a training is.
#[derive(Clone, Debug, PartialEq)]
pub struct Bar {
    /// The part that is done, from 0 to 1.
    pub fraction: Option<f64>,
    /// The steps, the metrics.
    pub facts: Vec<String>,
    /// How long the rest will take.
    pub eta: Option<Duration>,
}

impl View {
    /// The present.
    pub fn picture(&self, now: Duration) -> Picture {
        let here = || self.pods().filter(|pod| !pod.deleting);
        let roles = self.roles.iter().map(|(role, all)| {
            let up = here().filter(|pod| {
                pod.role == *role && matches!(pod.phase, PodPhase::Running | PodPhase::Succeeded)
            });
            (role.clone(), up.count(), *all)
        });
        let troubles = here().filter_map(|pod| Some((self.speaker(pod, None), pod.trouble.clone()?)));
        let (phase, since) = self.phases.last().copied().unwrap_or((JobPhase::Pending, now));
        Picture {
            job: self.job.clone(),
            phase: (phase, now.saturating_sub(since)),
            roles: roles.collect(),
            progress: self.job_progress().map(|progress| bar(progress, now)),
            troubles: troubles.collect(),
            stopping: self.stopping.map(|stop| {
                let left = self.pods.values().filter(|pod| !pod.is_over()).count();
                (stop, left)
            }),
        }
    }
}

/// How far it is, at a time.
pub(super) fn bar(progress: &Progress, now: Duration) -> Bar {
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
        facts.push(format!("{name} {}", words::number(*value)));
    }
    Bar {
        fraction: progress.fraction(),
        facts,
        eta: progress.eta(now),
    }
}

impl Bar {
    /// In one line.
    pub fn text(&self) -> String {
        let eta = self.eta.filter(|eta| !eta.is_zero());
        let eta = eta.map(|eta| format!("ETA {}", words::span(eta)));
        self.facts
            .iter()
            .cloned()
            .chain(eta)
            .collect::<Vec<_>>()
            .join("  ")
    }
}
