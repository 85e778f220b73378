//! How long to wait before the next attempt.

use std::time::Duration;

const MIN_PAUSE: Duration = Duration::from_millis(50);
/// An upper bound for the limits of callers.
const MAX_PAUSE: Duration = Duration::from_mins(1);

/// Pauses that double from one failure to the next.
#[derive(Clone, Debug)]
pub struct Backoff {
    next: Duration,
}

impl Default for Backoff {
    fn default() -> Self {
        Self { next: MIN_PAUSE }
    }
}

impl Backoff {
    pub fn reset(&mut self) {
        *self = Self::default();
    }

    /// The pause after one more failure, at most `limit`. `random`, from 0 to 1, takes up to a half
    /// off, so that pods that failed together do not retry together.
    pub fn pause(&mut self, limit: Duration, random: f64) -> Duration {
        let whole = self.next.min(limit);
        self.next = (self.next * 2).min(MAX_PAUSE);
        whole.mul_f64(0.5 + random.clamp(0.0, 1.0) / 2.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn pauses(backoff: &mut Backoff, limit: Duration, random: f64, count: usize) -> Vec<u128> {
        let mut millis = || backoff.pause(limit, random).as_millis();
        (0..count).map(|_| millis()).collect()
    }

    #[test]
    fn doubles_up_to_its_limit() {
        let expected = [50, 100, 200, 400, 800, 1000, 1000];
        assert_eq!(pauses(&mut Backoff::default(), SECOND, 1.0, 7), expected);
    }

    #[test]
    fn chance_takes_up_to_a_half_off() {
        assert_eq!(
            pauses(&mut Backoff::default(), SECOND, 0.0, 7),
            [25, 50, 100, 200, 400, 500, 500]
        );
        assert_eq!(pauses(&mut Backoff::default(), SECOND, 0.5, 2), [37, 75]);
    }

    #[test]
    fn starts_anew_when_told() {
        let mut backoff = Backoff::default();
        pauses(&mut backoff, SECOND, 1.0, 5);
        backoff.reset();
        assert_eq!(pauses(&mut backoff, SECOND, 1.0, 2), [50, 100]);
    }

    #[test]
    fn the_limit_is_that_of_the_last_failure() {
        let mut backoff = Backoff::default();
        pauses(&mut backoff, SECOND, 1.0, 6);
        assert_eq!(pauses(&mut backoff, SECOND * 5, 1.0, 3), [3200, 5000, 5000]);
        assert_eq!(pauses(&mut backoff, SECOND, 1.0, 1), [1000]);
    }

    #[test]
    fn never_overflows() {
        let mut backoff = Backoff::default();
        assert_eq!(
            pauses(&mut backoff, Duration::MAX, 1.0, 1000).last(),
            Some(&60_000)
        );
    }
}
