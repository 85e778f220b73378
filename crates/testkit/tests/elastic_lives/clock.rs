//! The time of a life: that of a runtime whose time is paused, and goes on when nobody has anything
//! to do.

use std::time::Duration;

use jiff::Timestamp;
use tokio::time::Instant;

/// The clock of the operator, of the API server and of the kubelets.
#[derive(Clone, Copy)]
pub struct PausedClock {
    begun: Instant,
    origin: Timestamp,
}

impl PausedClock {
    pub fn start() -> Self {
        Self {
            begun: Instant::now(),
            origin: Timestamp::constant(1_800_000_000, 0),
        }
    }

    /// How old the life is.
    pub fn age(&self) -> Duration {
        self.begun.elapsed()
    }

    fn time(&self) -> Timestamp {
        self.origin + self.age()
    }

    /// The age at which it is this time.
    pub fn age_at(&self, time: Timestamp) -> Duration {
        Duration::try_from(time.duration_since(self.origin)).unwrap_or_default()
    }
}

impl trainyard_operator::clock::Clock for PausedClock {
    fn now(&self) -> Timestamp {
        self.time()
    }
}

impl trainyard_local::env::Clock for PausedClock {
    fn now(&self) -> Timestamp {
        self.time()
    }
}
