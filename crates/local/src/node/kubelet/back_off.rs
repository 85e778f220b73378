//! The back-off of containers that are restarted.

use std::time::Duration;

use jiff::Timestamp;

const FIRST_BACK_OFF: Duration = Duration::from_secs(10);
const MAX_BACK_OFF: Duration = Duration::from_mins(5);
/// The back-off is reset after a run of this length.
const RESET_AFTER: Duration = Duration::from_mins(10);

/// The back-off of one container: none before the first restart, then 10 s, doubling up to 5 min.
#[derive(Clone, Copy, Debug, Default)]
pub struct BackOff {
    next: Option<Duration>,
}

impl BackOff {
    /// How long to wait after a run.
    pub fn after(&mut self, started: Timestamp, finished: Timestamp) -> Duration {
        let ran = Duration::try_from(finished.duration_since(started)).unwrap_or_default();
        if ran > RESET_AFTER {
            self.next = None;
        }
        let wait = self.next.unwrap_or_default();
        self.next = Some(if wait.is_zero() {
            FIRST_BACK_OFF
        } else {
            (wait * 2).min(MAX_BACK_OFF)
        });
        wait
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn doubles_to_a_limit_and_forgets_after_a_long_run() {
        let mut back_off = BackOff::default();
        let at = |second| Timestamp::from_second(second).unwrap();
        let mut waits = Vec::new();
        for _ in 0..8 {
            waits.push(back_off.after(at(0), at(1)).as_secs());
        }
        assert_eq!(waits, [0, 10, 20, 40, 80, 160, 300, 300]);
        assert_eq!(back_off.after(at(0), at(601)).as_secs(), 0);
        assert_eq!(back_off.after(at(0), at(1)).as_secs(), 10);
    }
}
