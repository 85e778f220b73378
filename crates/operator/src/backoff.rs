//! The delay before the next attempt, which grows with every failure in a row.

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

/// A delay that doubles with every failure.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Backoff {
    /// The delay after the first failure.
    pub base: Duration,
    pub max: Duration,
}

impl Backoff {
    /// Returns the delay after a number of failures in a row, the last one included.
    ///
    /// `jitter`, from 0 to 1, takes off up to a quarter, so that attempts that failed together are
    /// not made together again.
    pub(crate) fn pause(&self, failures: u32, jitter: f64) -> Duration {
        let doubled = self
            .base
            .saturating_mul(1_u32.checked_shl(failures.saturating_sub(1)).unwrap_or(u32::MAX));
        doubled.min(self.max).mul_f64(1.0 - 0.25 * jitter.clamp(0.0, 1.0))
    }
}

/// Returns a random number from 0 to 1.
#[expect(
    clippy::cast_precision_loss,
    reason = "a random number has no precision to lose"
)]
pub(crate) fn jitter() -> f64 {
    // The standard library seeds every such hasher differently. No other randomness is needed here.
    let random = RandomState::new().hash_one(0_u8);
    random as f64 / u64::MAX as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn pauses_double_up_to_a_limit_less_jitter() {
        let backoff = Backoff {
            base: SECOND,
            max: 60 * SECOND,
        };
        assert_eq!(backoff.pause(1, 0.0), SECOND);
        assert_eq!(backoff.pause(4, 0.0), 8 * SECOND);
        assert_eq!(backoff.pause(40, 0.0), 60 * SECOND);
        assert_eq!(backoff.pause(1, 1.0), SECOND.mul_f64(0.75));
    }
}
