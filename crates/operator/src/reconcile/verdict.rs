//! What came of a reconcile.

use std::time::Duration;

use tokio::time::Instant;

use crate::metrics::Outcome;

/// What came of a reconcile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// How it ended.
    pub outcome: Outcome,
    /// When to look again.
    pub next: Next,
    /// How long it took to decide.
    pub cost: Duration,
}

/// When to look at a job again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// When something happens.
    Rest,
    /// At a time.
    At(Instant),
    /// Now: the index has changed by what was done.
    Again,
    /// After a pause that grows from one failure to the next, and is at least as long as the server asks.
    Retry(Option<Duration>),
    /// After a short pause, by when the index will have what it lacks.
    Stale,
}

impl Verdict {
    pub(super) const REST: Self = Self::new(Outcome::Quiet, Next::Rest);

    pub(super) const fn new(outcome: Outcome, next: Next) -> Self {
        Self {
            outcome,
            next,
            cost: Duration::ZERO,
        }
    }
}
