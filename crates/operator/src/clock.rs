//! The clock that decisions are taken by. Tests hand in another.

use jiff::Timestamp;

/// Tells the time of day.
pub trait Clock: Send + Sync {
    /// Returns the time now.
    fn now(&self) -> Timestamp;
}

/// The machine's clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        Timestamp::now()
    }
}

/// The time that only goes forward, in which a process measures how long it waits.
pub(crate) fn monotonic() -> std::time::Instant {
    tokio::time::Instant::now().into_std()
}
