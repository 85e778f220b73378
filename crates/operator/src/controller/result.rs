//! The result of a reconcile.

use std::time::Duration;

use tokio::time::Instant;

use crate::metrics::Outcome;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReconcileResult {
    pub outcome: Outcome,
    /// When to reconcile again.
    pub next: Requeue,
    /// The processor time that planning took.
    pub cost: Duration,
}

/// When to reconcile a job again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Requeue {
    /// When the job or a child changes.
    Rest,
    At(Instant),
    /// At once: our own writes have changed the index.
    Again,
    /// After a backoff that grows with every failure, and is at least as long as the server asks.
    Retry(Option<Duration>),
    /// After a short backoff, in which the watch brings what the index lacks.
    Stale,
}

impl ReconcileResult {
    pub(crate) const REST: Self = Self::new(Outcome::Quiet, Requeue::Rest);

    pub(crate) const fn new(outcome: Outcome, next: Requeue) -> Self {
        Self {
            outcome,
            next,
            cost: Duration::ZERO,
        }
    }
}
