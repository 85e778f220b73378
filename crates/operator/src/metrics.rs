//! What the operator tells of itself. Nothing is global: a [`Metrics`] is made once and handed around in an `Arc`.
//!
//! Every label takes its values from a fixed list, so that the number of series does not grow with the cluster; in
//! particular no name of a job, pod or namespace is ever a label.

mod labels;
mod subject;

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use prometheus_client::encoding::{EncodeLabelSet, text};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use trainyard_api::{JobPhase, RestartCause};
use trainyard_core::foreign::ForeignKind;

pub use labels::{Kind, Outcome, Review, Verb};
pub use subject::{Foreign, Subject};

/// The media type of [`Metrics::render`].
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

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

const VERBS: usize = Verb::ALL.len();
const KINDS: usize = Kind::ALL.len();

/// The operator's metrics.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    /// Kinds of other operators whose requests are told apart.
    foreign: Vec<Foreign>,
    reconcile_seconds: Histogram,
    reconciles: Family<OutcomeLabels, Counter>,
    queue_depth: Gauge,
    api_requests: Family<RequestLabels, Counter>,
    /// The same as `api_requests` without codes: tests and benchmarks read it without parsing text.
    request_counts: [[AtomicU64; KINDS]; VERBS],
    jobs: Family<PhaseLabels, Gauge>,
    restarts: Family<CauseLabels, Counter>,
    leader: Gauge,
    watch_restarts: Family<KindLabels, Counter>,
    reviews: Family<ReviewLabels, Counter>,
    /// A family, so that there is nothing where nothing is served.
    certificate_expiry: Family<CertificateLabels, Gauge>,
    events_dropped: Counter,
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

impl Metrics {
    /// A fresh set, all zero.
    pub fn new() -> Self {
        let mut registry = Registry::with_prefix("trainyard");
        // From a look at the index that finds nothing to do (microseconds) to a job of thousands of pods.
        let reconcile_seconds = Histogram::new([
            0.000_01, 0.000_05, 0.000_1, 0.000_5, 0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 30.0,
            60.0,
        ]);
        let metrics = Self {
            reconcile_seconds: reconcile_seconds.clone(),
            reconciles: Family::default(),
            queue_depth: Gauge::default(),
            api_requests: Family::default(),
            request_counts: std::array::from_fn(|_| std::array::from_fn(|_| AtomicU64::new(0))),
            jobs: Family::default(),
            restarts: Family::default(),
            leader: Gauge::default(),
            watch_restarts: Family::default(),
            reviews: Family::default(),
            certificate_expiry: Family::default(),
            events_dropped: Counter::default(),
            foreign: Vec::new(),
            registry: Registry::default(),
        };
        registry.register(
            "reconcile_seconds",
            "How long one reconcile of a job took",
            reconcile_seconds,
        );
        registry.register(
            "reconciles",
            "Reconciles by kind and by how they ended",
            metrics.reconciles.clone(),
        );
        registry.register(
            "queue_depth",
            "Jobs that wait to be reconciled",
            metrics.queue_depth.clone(),
        );
        registry.register(
            "api_requests",
            "Requests to the API server; code 0: there was no answer",
            metrics.api_requests.clone(),
        );
        registry.register("jobs", "Jobs by phase", metrics.jobs.clone());
        registry.register("restarts", "Pods replaced, by cause", metrics.restarts.clone());
        registry.register("leader", "1 while this replica may write", metrics.leader.clone());
        registry.register(
            "watch_restarts",
            "Watches that had to start anew",
            metrics.watch_restarts.clone(),
        );
        registry.register(
            "admission_reviews",
            "Requests to the webhooks, by what became of them",
            metrics.reviews.clone(),
        );
        registry.register(
            "certificate_expiry_timestamp_seconds",
            "When the certificate that is served now ends, in seconds since 1970",
            metrics.certificate_expiry.clone(),
        );
        registry.register(
            "events_dropped",
            "Events that were not sent, because too many were waiting",
            metrics.events_dropped.clone(),
        );
        metrics.set_jobs(|_| 0);
        Self { registry, ..metrics }
    }

    /// The same, and requests about kinds of other operators are told apart.
    #[must_use]
    pub fn with_kinds(self, kinds: &[&'static dyn ForeignKind]) -> Self {
        Self {
            foreign: kinds.iter().map(|kind| Foreign::new(*kind)).collect(),
            ..self
        }
    }

    /// The kinds of other operators whose requests are told apart.
    pub(crate) fn foreign(&self) -> &[Foreign] {
        &self.foreign
    }

    /// All metrics in the text format of `OpenMetrics`; its media type is [`CONTENT_TYPE`].
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

    /// So many jobs wait to be reconciled.
    pub fn set_queue_depth(&self, depth: usize) {
        self.queue_depth.set(i64::try_from(depth).unwrap_or(i64::MAX));
    }

    /// A request has been answered with this code, or not at all.
    pub fn requested(&self, verb: Verb, kind: impl Into<Subject>, code: Option<u16>) {
        let kind = kind.into();
        self.request_counts[verb as usize][kind.known() as usize].fetch_add(1, Ordering::Relaxed);
        let labels = RequestLabels {
            verb,
            kind,
            code: code.unwrap_or(0),
        };
        self.api_requests.get_or_create(&labels).inc();
    }

    /// How many requests of this verb and kind there were, whatever the answer.
    pub fn requests(&self, verb: Verb, kind: Kind) -> u64 {
        self.request_counts[verb as usize][kind as usize].load(Ordering::Relaxed)
    }

    /// How many requests there were in all that change something, leases left out: zero while nothing happens.
    pub fn writes(&self) -> u64 {
        let reads = [Verb::Get, Verb::List, Verb::Watch];
        let verbs = Verb::ALL.iter().filter(|verb| !reads.contains(verb));
        let kinds = || Kind::ALL.iter().filter(|kind| **kind != Kind::Lease);
        verbs
            .flat_map(|verb| kinds().map(|kind| self.requests(*verb, *kind)))
            .sum()
    }

    /// Sets the number of jobs of every phase.
    pub fn set_jobs(&self, count: impl Fn(JobPhase) -> usize) {
        for phase in JobPhase::ALL {
            let labels = PhaseLabels {
                phase: phase.as_str(),
            };
            self.jobs
                .get_or_create(&labels)
                .set(i64::try_from(count(phase)).unwrap_or(i64::MAX));
        }
    }

    /// Pods have been replaced.
    pub fn restarted(&self, cause: RestartCause, pods: u64) {
        self.restarts
            .get_or_create(&CauseLabels {
                cause: cause_name(cause),
            })
            .inc_by(pods);
    }

    /// Whether this replica leads.
    pub fn set_leader(&self, leader: bool) {
        self.leader.set(i64::from(leader));
    }

    /// A watch had to start anew.
    pub fn watch_restarted(&self, kind: impl Into<Subject>) {
        let kind = kind.into();
        self.watch_restarts.get_or_create(&KindLabels { kind }).inc();
    }

    /// A webhook has answered.
    pub fn reviewed(&self, webhook: &'static str, result: Review) {
        self.reviews
            .get_or_create(&ReviewLabels { webhook, result })
            .inc();
    }

    /// The certificate that is served from now on ends at this second since 1970.
    pub fn set_certificate_expiry(&self, second: i64) {
        let certificate = "serving";
        self.certificate_expiry
            .get_or_create(&CertificateLabels { certificate })
            .set(second);
    }

    /// An event was not sent.
    pub fn event_dropped(&self) {
        self.events_dropped.inc();
    }
}

#[cfg(test)]
mod tests;
