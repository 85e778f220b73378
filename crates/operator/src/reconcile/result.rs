//! The result of a reconcile.

use std::time::Duration;

use tokio::time::Instant;

use crate::metrics::Outcome;

/// The result of a reconcile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReconcileResult {
    /// How it ended.
    pub outcome: Outcome,
    /// When to look again.
    pub next: Requeue,
    /// How long it took to decide.
    pub cost: Duration,
}

/// When to reconcile a job again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Requeue {
    /// When the job or a child changes.
    Rest,
    /// At a time.
    At(Instant),
    /// Now: the index has changed by our own writes.
    Again,
    /// After a backoff that grows with every failure, and is at least as long as the server asks.
    Retry(Option<Duration>),
    /// After a short backoff: the watch will have brought what the index lacks.
    Stale,
}

impl ReconcileResult {
    pub(super) const REST: Self = Self::new(Outcome::Quiet, Requeue::Rest);

    pub(super) const fn new(outcome: Outcome, next: Requeue) -> Self {
        Self {
            outcome,
            next,
            cost: Duration::ZERO,
        }
    }
}
