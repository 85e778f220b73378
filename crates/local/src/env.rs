//! The clock and the source of randomness.
//!
//! The embedded cluster takes time and random numbers from here only, so that a test can provide
//! both and repeat a run.

use std::sync::Arc;

use jiff::Timestamp;
use parking_lot::Mutex;

/// Tells the time.
pub trait Clock: Send + Sync + 'static {
    /// The time now.
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

/// Where random numbers come from.
pub type Random = Arc<Mutex<dyn FnMut() -> u64 + Send>>;

/// The clock and the randomness of a cluster.
#[derive(Clone)]
pub struct Environment {
    /// The clock.
    pub clock: Arc<dyn Clock>,
    /// The randomness.
    pub random: Random,
}

impl Environment {
    /// The machine's clock and a random seed.
    pub fn system() -> Self {
        Self::with_generator(fastrand::Rng::new())
    }

    /// The machine's clock, and the same random numbers for the same seed.
    pub fn seeded(seed: u64) -> Self {
        Self::with_generator(fastrand::Rng::with_seed(seed))
    }

    fn with_generator(mut generator: fastrand::Rng) -> Self {
        Self {
            clock: Arc::new(SystemClock),
            random: Arc::new(Mutex::new(move || generator.u64(..))),
        }
    }

    /// Replaces the clock.
    #[must_use]
    pub fn with_clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// The time now.
    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// The next random number.
    pub fn number(&self) -> u64 {
        let mut random = self.random.lock();
        random()
    }

    /// A new identifier in the form of a UUID.
    pub fn uuid(&self) -> String {
        let mut random = self.random.lock();
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&random().to_le_bytes());
        bytes[8..].copy_from_slice(&random().to_le_bytes());
        drop(random);
        uuid::Builder::from_random_bytes(bytes).into_uuid().to_string()
    }
}

impl std::fmt::Debug for Environment {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Environment").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_identifiers() {
        let draw = |seed| {
            let environment = Environment::seeded(seed);
            [environment.uuid(), environment.uuid()]
        };
        assert_eq!(draw(1), draw(1));
        assert_ne!(draw(1), draw(2));
        let [first, second] = draw(1);
        assert_ne!(first, second);
        // The version and the variant of a random UUID, which clients may check.
        assert_eq!((first.len(), &first[14..15]), (36, "4"));
    }
}
