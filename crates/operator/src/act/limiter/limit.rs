//! How many requests may be under way at once.

use std::time::Duration;

/// A server that is asked by one client alone answers as fast under so few requests as it ever
/// does, or nearly.
const FEWEST: usize = 16;
/// Requests that wait inside the server make it no faster. This many make sure that it is never
/// idle; more only make everybody's requests wait.
const WAITING: f64 = 12.0;
/// After how many answers the shortest time is taken to be a little longer, because a server may
/// become slower for good.
const WINDOW: u32 = 1_000;

/// Follows the server: a limit that starts low, grows while more requests at once are answered as
/// fast as few are, and shrinks when they only wait for each other.
///
/// By how much longer answers take than the shortest did lately, it is told how many of the
/// requests wait inside the server, as TCP Vegas does. A server that asks for a pause (429) takes
/// long to answer, too: the client waits and asks again.
#[derive(Debug)]
pub(super) struct Limit {
    permits: usize,
    most: usize,
    shortest: Option<Duration>,
    in_window: u32,
    /// The answers since the limit was last changed, and the time that they took together.
    answers: usize,
    taken: Duration,
}

impl Limit {
    pub(super) fn new(most: usize) -> Self {
        Self {
            permits: FEWEST.min(most),
            most,
            shortest: None,
            in_window: 0,
            answers: 0,
            taken: Duration::ZERO,
        }
    }

    pub(super) fn permits(&self) -> usize {
        self.permits
    }

    /// Records an answer. `is_short` says whether other requests wait for a permit: without them, a
    /// limit limits nothing, and nothing is learned about it.
    pub(super) fn record(&mut self, time: Duration, is_short: bool) {
        let mut shortest = self.shortest.map_or(time, |shortest| shortest.min(time));
        self.in_window += 1;
        if self.in_window == WINDOW {
            self.in_window = 0;
            shortest += shortest / 20;
        }
        self.shortest = Some(shortest);
        if !is_short {
            return;
        }
        self.answers += 1;
        self.taken += time;
        // Each limit is tried for as long as it takes to see what it does.
        if self.answers >= self.permits {
            self.adjust();
            (self.answers, self.taken) = (0, Duration::ZERO);
        }
    }

    fn adjust(&mut self) {
        let shortest = self.shortest.unwrap_or_default();
        let answers = u32::try_from(self.answers).unwrap_or(u32::MAX);
        let mean = (self.taken / answers.max(1)).max(Duration::from_micros(1));
        let permits = f64::from(u32::try_from(self.permits).unwrap_or(u32::MAX));
        let waiting = permits * (1.0 - shortest.as_secs_f64() / mean.as_secs_f64());
        let step = (self.permits / 8).max(1);
        self.permits = if waiting > WAITING {
            self.permits.saturating_sub(step)
        } else {
            self.permits + step
        };
        self.permits = self.permits.clamp(FEWEST.min(self.most), self.most);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOST: usize = 64;

    /// The limit after many requests to a server that works on some of them at once and takes this
    /// long for each, or longer if they all arrive over a slow network.
    fn settled(at_once: u32, work: Duration, network: Duration) -> usize {
        let mut limit = Limit::new(MOST);
        // While there was little to do, answers came soon.
        limit.record(work + network, false);
        for _ in 0..1_500 {
            let permits = u32::try_from(limit.permits()).unwrap();
            let time = network + work * (permits.max(at_once)) / at_once;
            limit.record(time, true);
        }
        limit.permits()
    }

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn a_small_server_is_asked_for_few_things_at_once() {
        assert_eq!(settled(2, MS, Duration::ZERO), FEWEST);
        let limit = settled(16, 4 * MS, Duration::ZERO);
        assert!((24..=34).contains(&limit), "{limit}");
    }

    #[test]
    fn a_large_server_and_a_slow_network_are_asked_for_many() {
        assert_eq!(settled(100, 4 * MS, Duration::ZERO), MOST);
        assert_eq!(settled(100, MS, 100 * MS), MOST);
    }

    #[test]
    fn a_server_that_recovers_is_asked_for_more_again() {
        let mut limit = Limit::new(MOST);
        limit.record(MS, false);
        (0..1_000).for_each(|_| limit.record(100 * MS, true));
        assert_eq!(limit.permits(), FEWEST);
        (0..1_000).for_each(|_| limit.record(MS, true));
        assert_eq!(limit.permits(), MOST);
    }

    #[test]
    fn a_limit_that_nobody_waits_for_stays() {
        let mut limit = Limit::new(MOST);
        (0..1_000).for_each(|_| limit.record(MS, false));
        assert_eq!(limit.permits(), FEWEST);
        (0..1_000).for_each(|_| limit.record(MS, true));
        (0..1_000).for_each(|_| limit.record(100 * MS, false));
        assert_eq!(limit.permits(), MOST);
    }

    #[test]
    fn a_limit_below_the_fewest_is_what_it_is() {
        let mut limit = Limit::new(4);
        (0..1_000).for_each(|_| limit.record(100 * MS, true));
        assert_eq!(limit.permits(), 4);
    }
}
