//! How long to wait before what failed is tried again.

use std::time::Duration;

/// How the pause after a failure grows: it doubles with every failure in a row.
#[derive(Clone, Copy, Debug)]
pub struct Backoff {
    /// The pause after the first failure.
    pub base: Duration,
    /// The longest pause.
    pub max: Duration,
}

impl Backoff {
    /// The pause after a number of failures in a row, the last one included. `jitter`, from 0 to 1,
    /// takes off up to a quarter, so that what failed together does not come back together.
    pub fn pause(&self, failures: u32, jitter: f64) -> Duration {
        let doubled = self
            .base
            .saturating_mul(1_u32.checked_shl(failures.saturating_sub(1)).unwrap_or(u32::MAX));
        doubled.min(self.max).mul_f64(1.0 - 0.25 * jitter.clamp(0.0, 1.0))
    }
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
