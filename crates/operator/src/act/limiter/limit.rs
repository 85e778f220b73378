//! How many requests may be under way at once.

use std::time::Duration;

use super::Class;

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
/// requests wait inside the server, as TCP Vegas does. Each class has a shortest time of its own:
/// to write a status takes a server several times as long as to create an event. A server that asks
/// for a pause (429) takes long to answer, too: the client waits and asks again.
#[derive(Debug)]
pub(super) struct Limit {
    permits: usize,
    most: usize,
    shortest: [Shortest; 3],
    /// The answers since the limit was last changed, the time that they took together, and the time
    /// that they would have taken if none had waited.
    answers: usize,
    taken: Duration,
    unavoidable: Duration,
}

/// The shortest time that answers of a class took lately.
#[derive(Debug, Default, Clone, Copy)]
struct Shortest {
    time: Option<Duration>,
    in_window: u32,
}

impl Shortest {
    fn record(&mut self, time: Duration) -> Duration {
        let mut shortest = self.time.map_or(time, |shortest| shortest.min(time));
        self.in_window += 1;
        if self.in_window == WINDOW {
            self.in_window = 0;
            shortest += shortest / 20;
        }
        self.time = Some(shortest);
        shortest
    }
}

impl Limit {
    pub(super) fn new(most: usize) -> Self {
        Self {
            permits: FEWEST.min(most),
            most,
            shortest: [Shortest::default(); 3],
            answers: 0,
            taken: Duration::ZERO,
            unavoidable: Duration::ZERO,
        }
    }

    pub(super) fn permits(&self) -> usize {
        self.permits
    }

    /// Records an answer. `is_short` says whether other requests wait for a permit: without them, a
    /// limit limits nothing, and nothing is learned about it.
    pub(super) fn record(&mut self, class: Class, time: Duration, is_short: bool) {
        let shortest = self.shortest[class as usize].record(time);
        if !is_short {
            return;
        }
        self.answers += 1;
        self.taken += time;
        self.unavoidable += shortest;
        // Each limit is tried for as long as it takes to see what it does.
        if self.answers >= self.permits {
            self.adjust();
            (self.answers, self.taken, self.unavoidable) = (0, Duration::ZERO, Duration::ZERO);
        }
    }

    fn adjust(&mut self) {
        let taken = self.taken.max(Duration::from_micros(1));
        let permits = f64::from(u32::try_from(self.permits).unwrap_or(u32::MAX));
        let waiting = permits * (1.0 - self.unavoidable.as_secs_f64() / taken.as_secs_f64());
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
        limit.record(Class::Urgent, work + network, false);
        for _ in 0..1_500 {
            let permits = u32::try_from(limit.permits()).unwrap();
            let time = network + work * (permits.max(at_once)) / at_once;
            limit.record(Class::Urgent, time, true);
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
    fn requests_that_take_longer_by_nature_do_not_count_as_waiting() {
        let mut limit = Limit::new(MOST);
        for _ in 0..500 {
            limit.record(Class::Event, MS, true);
            limit.record(Class::Status, 8 * MS, true);
            limit.record(Class::Urgent, 4 * MS, true);
        }
        assert_eq!(limit.permits(), MOST);
    }

    #[test]
    fn a_server_that_recovers_is_asked_for_more_again() {
        let mut limit = Limit::new(MOST);
        limit.record(Class::Urgent, MS, false);
        (0..1_000).for_each(|_| limit.record(Class::Urgent, 100 * MS, true));
        assert_eq!(limit.permits(), FEWEST);
        (0..1_000).for_each(|_| limit.record(Class::Urgent, MS, true));
        assert_eq!(limit.permits(), MOST);
    }

    #[test]
    fn a_limit_that_nobody_waits_for_stays() {
        let mut limit = Limit::new(MOST);
        (0..1_000).for_each(|_| limit.record(Class::Urgent, MS, false));
        assert_eq!(limit.permits(), FEWEST);
        (0..1_000).for_each(|_| limit.record(Class::Urgent, MS, true));
        (0..1_000).for_each(|_| limit.record(Class::Urgent, 100 * MS, false));
        assert_eq!(limit.permits(), MOST);
    }

    #[test]
    fn a_limit_below_the_fewest_is_what_it_is() {
        let mut limit = Limit::new(4);
        (0..1_000).for_each(|_| limit.record(Class::Urgent, 100 * MS, true));
        assert_eq!(limit.permits(), 4);
    }
}
