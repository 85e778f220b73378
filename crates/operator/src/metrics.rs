//! The metrics of the operator. None is global: a [`Metrics`] is made once and handed around in an
//! `Arc`.
//!
//! Every label takes its values from a fixed list, so that the number of series does not grow with
//! the cluster. The name of a job, a pod or a namespace is never a label.

mod labels;
mod subject;

use std::time::Duration;

use prometheus_client::encoding::{EncodeLabelSet, text};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Metric, Registry};
use trainyard_api::{JobPhase, RestartCause, ScaleKind, ScaleReason};
use trainyard_core::foreign::ForeignKind;
use trainyard_core::model::DrainSummary;

pub(crate) use labels::{Kind, Outcome, Review, Verb};
pub(crate) use subject::{Foreign, Subject};

/// The media type of [`Metrics::render`].
pub(crate) const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

const fn cause_name(cause: RestartCause) -> &'static str {
    match cause {
        RestartCause::Failure => "Failure",
        RestartCause::Disruption => "Disruption",
        RestartCause::Completion => "Completion",
        RestartCause::Update => "Update",
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RequestLabels {
    verb: Verb,
    kind: Subject,
    code: u16,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OutcomeLabels {
    kind: Subject,
    outcome: Outcome,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct PhaseLabels {
    phase: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CauseLabels {
    cause: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ScaleLabels {
    kind: &'static str,
    reason: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RemovalLabels {
    cause: &'static str,
    why: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct KindLabels {
    kind: Subject,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReviewLabels {
    webhook: &'static str,
    result: Review,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CertificateLabels {
    certificate: &'static str,
}

/// A histogram for each cause.
type Histograms = Family<CauseLabels, Histogram, fn() -> Histogram>;

// From a program that has nothing to save to one whose checkpoint takes the whole timeout.
fn drain_seconds() -> Histogram {
    Histogram::new([
        1.0, 2.0, 5.0, 10.0, 15.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0,
    ])
}

/// From none to a long way back.
fn steps_lost() -> Histogram {
    Histogram::new([
        0.0, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0, 10_000.0,
    ])
}

/// The operator's metrics.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    /// Requests about these kinds of other operators are counted by kind; about others, as `other`.
    foreign: Vec<Foreign>,
    reconcile_seconds: Histogram,
    reconciles: Family<OutcomeLabels, Counter>,
    queue_depth: Gauge,
    api_requests: Family<RequestLabels, Counter>,
    jobs: Family<PhaseLabels, Gauge>,
    restarts: Family<CauseLabels, Counter>,
    incidents: Family<CauseLabels, Counter>,
    incident_seconds: Histogram,
    incident_steps_lost: Histogram,
    scale_requests: Family<ScaleLabels, Counter>,
    drain_seconds: Histograms,
    forced_removals: Family<RemovalLabels, Counter>,
    drain_steps_lost: Histograms,
    leader: Gauge,
    watch_restarts: Family<KindLabels, Counter>,
    reviews: Family<ReviewLabels, Counter>,
    /// A family, so that it is absent where no certificate is served.
    certificate_expiry: Family<CertificateLabels, Gauge>,
    events_dropped: Counter,
}

/// Makes a metric that is zero, and registers it.
fn registered<M: Metric + Clone + Default>(registry: &mut Registry, name: &str, help: &str) -> M {
    let metric = M::default();
    registry.register(name, help, metric.clone());
    metric
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

impl Metrics {
    /// Makes metrics that are all zero.
    pub fn new() -> Self {
        let mut registry = Registry::with_prefix("trainyard");
        // From a reconcile with nothing to do (microseconds) to a job of thousands of pods.
        let reconcile_seconds = Histogram::new([
            0.000_01, 0.000_05, 0.000_1, 0.000_5, 0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 30.0,
            60.0,
        ]);
        let help = "How long one reconcile of a job took";
        registry.register("reconcile_seconds", help, reconcile_seconds.clone());
        // From a pod that is replaced at once to one for which there was no room for hours.
        let incident_seconds = Histogram::new([
            1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0, 14400.0,
        ]);
        let help = "How long jobs did not run because of an incident";
        registry.register("incident_seconds", help, incident_seconds.clone());
        let drain_seconds = Histograms::new_with_constructor(drain_seconds);
        let help = "How long pods that were told to leave took, until nobody waited for any of them, by why they left";
        registry.register("drain_seconds", help, drain_seconds.clone());
        let incident_steps_lost = steps_lost();
        let help = "Steps that had to be done again because of an incident";
        registry.register("incident_steps_lost", help, incident_steps_lost.clone());
        let drain_steps_lost = Histograms::new_with_constructor(steps_lost);
        let help = "Steps done since the last checkpoint when all pods of a job had left, by why they left";
        registry.register("drain_steps_lost", help, drain_steps_lost.clone());
        let to = &mut registry;
        let metrics = Self {
            reconcile_seconds,
            reconciles: registered(to, "reconciles", "Reconciles by kind and by how they ended"),
            queue_depth: registered(to, "queue_depth", "Jobs that wait to be reconciled"),
            api_requests: registered(
                to,
                "api_requests",
                "Requests to the API server; code 0: there was no answer",
            ),
            jobs: registered(to, "jobs", "Jobs by phase"),
            restarts: registered(to, "restarts", "Pods replaced, by cause"),
            incidents: registered(
                to,
                "incidents",
                "Ends of pods that came of no other, by cause: all that came of them count once",
            ),
            incident_seconds,
            incident_steps_lost,
            scale_requests: registered(
                to,
                "scale_requests",
                "ScaleIns and ScaleOuts that have ended, by why",
            ),
            drain_seconds,
            forced_removals: registered(
                to,
                "forced_removals",
                "Pods that were told to leave and are deleted while they run, by why they left and why they are deleted",
            ),
            drain_steps_lost,
            leader: registered(to, "leader", "1 while this replica may write"),
            watch_restarts: registered(to, "watch_restarts", "Watches that had to start anew"),
            reviews: registered(
                to,
                "admission_reviews",
                "Requests to the webhooks, by what became of them",
            ),
            certificate_expiry: registered(
                to,
                "certificate_expiry_timestamp_seconds",
                "When the certificate that is served now ends, in seconds since 1970",
            ),
            events_dropped: registered(
                to,
                "events_dropped",
                "Events that were not sent, because too many were waiting",
            ),
            foreign: Vec::new(),
            registry: Registry::default(),
        };
        metrics.set_jobs(JobPhase::ALL.map(|phase| (phase, 0)));
        Self { registry, ..metrics }
    }

    /// Counts requests about these kinds of other operators by kind.
    #[must_use]
    pub fn with_kinds(self, kinds: &[&'static dyn ForeignKind]) -> Self {
        Self {
            foreign: kinds.iter().map(|kind| Foreign::new(*kind)).collect(),
            ..self
        }
    }

    pub(crate) fn foreign(&self) -> &[Foreign] {
        &self.foreign
    }

    /// Renders all metrics in the text format of `OpenMetrics`.
    pub fn render(&self) -> String {
        let mut out = String::new();
        // Writing into a string can't fail.
        let _ = text::encode(&mut out, &self.registry);
        out
    }

    /// Counts a reconcile. The histogram has no label for the kind: it is about TrainingJobs alone.
    pub(crate) fn reconciled(&self, kind: impl Into<Subject>, outcome: Outcome, took: Duration) {
        let kind = kind.into();
        if kind == Kind::TrainingJob.into() {
            self.reconcile_seconds.observe(took.as_secs_f64());
        }
        self.reconciles
            .get_or_create(&OutcomeLabels { kind, outcome })
            .inc();
    }

    pub(crate) fn set_queue_depth(&self, depth: usize) {
        self.queue_depth.set(i64::try_from(depth).unwrap_or(i64::MAX));
    }

    /// Counts a request. `code` is `None` if there was no answer.
    pub(crate) fn requested(&self, verb: Verb, kind: impl Into<Subject>, code: Option<u16>) {
        let labels = RequestLabels {
            verb,
            kind: kind.into(),
            code: code.unwrap_or(0),
        };
        self.api_requests.get_or_create(&labels).inc();
    }

    /// Sets the number of jobs in each of some phases.
    pub(crate) fn set_jobs(&self, counts: impl IntoIterator<Item = (JobPhase, i64)>) {
        for (phase, count) in counts {
            let phase = phase.as_str();
            self.jobs.get_or_create(&PhaseLabels { phase }).set(count);
        }
    }

    /// Counts pods that were replaced.
    pub(crate) fn restarted(&self, cause: RestartCause, pods: u64) {
        self.restarts
            .get_or_create(&CauseLabels {
                cause: cause_name(cause),
            })
            .inc_by(pods);
    }

    /// Counts an incident.
    pub(crate) fn incident_began(&self, cause: RestartCause) {
        let cause = cause_name(cause);
        self.incidents.get_or_create(&CauseLabels { cause }).inc();
    }

    /// Records how long a job did not run because of an incident.
    pub(crate) fn incident_ended(&self, seconds: i64) {
        self.incident_seconds.observe(as_float(seconds));
    }

    /// Records how many steps had to be done again because of an incident.
    pub(crate) fn incident_resumed(&self, steps_lost: i64) {
        self.incident_steps_lost.observe(as_float(steps_lost));
    }

    /// Counts a ScaleIn or a ScaleOut that has ended.
    pub(crate) fn scale_request_ended(&self, kind: ScaleKind, reason: ScaleReason) {
        let labels = ScaleLabels {
            kind: kind.as_str(),
            reason: reason.as_str(),
        };
        self.scale_requests.get_or_create(&labels).inc();
    }

    /// Counts what became of pods that were told to leave.
    pub(crate) fn drained(&self, drain: &DrainSummary) {
        let cause = drain.cause.as_str();
        for (why, pods) in &drain.forced {
            let why = why.as_str();
            self.forced_removals
                .get_or_create(&RemovalLabels { cause, why })
                .inc_by(*pods);
        }
        let labels = CauseLabels { cause };
        if let Some(seconds) = drain.seconds {
            self.drain_seconds
                .get_or_create(&labels)
                .observe(as_float(seconds));
        }
        if let Some(steps) = drain.steps_lost {
            self.drain_steps_lost
                .get_or_create(&labels)
                .observe(as_float(steps));
        }
    }

    pub(crate) fn set_leader(&self, leader: bool) {
        self.leader.set(i64::from(leader));
    }

    pub(crate) fn watch_restarted(&self, kind: impl Into<Subject>) {
        let kind = kind.into();
        self.watch_restarts.get_or_create(&KindLabels { kind }).inc();
    }

    pub(crate) fn reviewed(&self, webhook: &'static str, result: Review) {
        self.reviews
            .get_or_create(&ReviewLabels { webhook, result })
            .inc();
    }

    /// Sets when the served certificate ends, in seconds since 1970.
    pub(crate) fn set_certificate_expiry(&self, second: i64) {
        let certificate = "serving";
        self.certificate_expiry
            .get_or_create(&CertificateLabels { certificate })
            .set(second);
    }

    pub(crate) fn event_dropped(&self) {
        self.events_dropped.inc();
    }
}

/// Seconds and steps are whole numbers, and far below the limits of a float.
fn as_float(number: i64) -> f64 {
    f64::from(u32::try_from(number).unwrap_or(u32::MAX))
}

#[cfg(test)]
mod tests;
