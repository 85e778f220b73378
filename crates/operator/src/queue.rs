//! Which job to look at next.
//!
//! A key is never handed out twice at once; a key that is added while it is out comes back afterwards. A key may
//! carry a deadline, the earliest of which wins, and a count of failures in a row, from which its pause grows.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};
use std::hash::Hash;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

/// How the pause after a failure grows.
#[derive(Clone, Copy, Debug)]
pub struct Backoff {
    /// The pause after the first failure.
    pub base: Duration,
    /// The longest pause.
    pub max: Duration,
}

impl Backoff {
    /// The pause after a number of failures in a row, of which the last one is counted. Up to a quarter is taken off,
    /// as `jitter`, from 0 to 1, says, so that what failed together does not come back together.
    pub fn pause(&self, failures: u32, jitter: f64) -> Duration {
        let doubled = self.base.saturating_mul(1_u32.checked_shl(failures.saturating_sub(1)).unwrap_or(u32::MAX));
        doubled.min(self.max).mul_f64(1.0 - 0.25 * jitter.clamp(0.0, 1.0))
    }
}

/// A number from 0 to 1 that differs from call to call and from process to process.
#[expect(clippy::cast_precision_loss, reason = "a random number has no precision to lose")]
pub fn jitter() -> f64 {
    // The standard library seeds every such hasher differently; no other source of randomness is needed for this.
    let random = std::hash::BuildHasher::hash_one(&std::hash::RandomState::new(), 0_u8);
    random as f64 / u64::MAX as f64
}

/// The queue without time or tasks.
#[derive(Debug)]
pub struct Core<K> {
    entries: HashMap<K, Entry>,
    ready: VecDeque<K>,
    timers: BinaryHeap<Reverse<Timer<K>>>,
    open: bool,
}

#[derive(Debug, Default)]
struct Entry {
    state: State,
    /// The deadline that counts; timers that differ from it are out of date.
    due: Option<Instant>,
    failures: u32,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    Idle,
    Ready,
    Out,
    OutAndDirty,
}

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Timer<K> {
    at: Instant,
    key: K,
}

impl<K: Clone + Eq + Hash + Ord> Default for Core<K> {
    fn default() -> Self {
        Self { entries: HashMap::new(), ready: VecDeque::new(), timers: BinaryHeap::new(), open: false }
    }
}

impl<K: Clone + Eq + Hash + Ord> Core<K> {
    /// Opens the queue with some keys. While it is closed, nothing is taken in.
    pub fn open(&mut self, keys: impl IntoIterator<Item = K>) {
        self.open = true;
        for key in keys {
            self.add(key);
        }
    }

    /// Closes the queue and forgets all that waits in it. What is out stays out until it is [`done`](Self::done).
    pub fn close(&mut self) {
        self.open = false;
        self.ready.clear();
        self.timers.clear();
        self.entries.retain(|_, entry| matches!(entry.state, State::Out | State::OutAndDirty));
        for entry in self.entries.values_mut() {
            *entry = Entry { state: State::Out, ..Entry::default() };
        }
    }

    /// Adds a key, to be looked at as soon as may be.
    pub fn add(&mut self, key: K) {
        if !self.open {
            return;
        }
        let entry = self.entries.entry(key.clone()).or_default();
        match entry.state {
            State::Idle => {
                entry.state = State::Ready;
                self.ready.push_back(key);
            }
            State::Out => entry.state = State::OutAndDirty,
            State::Ready | State::OutAndDirty => {}
        }
    }

    /// Adds a key, to be looked at at a time, or earlier if there is reason to.
    pub fn add_at(&mut self, key: K, at: Instant) {
        if !self.open {
            return;
        }
        let entry = self.entries.entry(key.clone()).or_default();
        if entry.due.is_none_or(|due| at < due) {
            entry.due = Some(at);
            self.timers.push(Reverse(Timer { at, key }));
        }
    }

    /// The next key to look at.
    pub fn pop(&mut self, now: Instant) -> Option<K> {
        self.fire(now);
        let key = self.ready.pop_front()?;
        let entry = self.entries.entry(key.clone()).or_default();
        entry.state = State::Out;
        // Whoever looks at it now says when to look again.
        entry.due = None;
        Some(key)
    }

    fn fire(&mut self, now: Instant) {
        while let Some(Reverse(timer)) = self.timers.peek() {
            let due = self.entries.get(&timer.key).and_then(|entry| entry.due);
            if due == Some(timer.at) && timer.at > now {
                return;
            }
            let Some(Reverse(timer)) = self.timers.pop() else { return };
            if due == Some(timer.at) {
                if let Some(entry) = self.entries.get_mut(&timer.key) {
                    entry.due = None;
                }
                self.add(timer.key);
            }
        }
    }

    /// When the next key becomes ready by itself.
    pub fn next_due(&self) -> Option<Instant> {
        self.timers.peek().map(|Reverse(timer)| timer.at)
    }

    /// A key that was out has been looked at.
    pub fn done(&mut self, key: &K) {
        let Some(entry) = self.entries.get_mut(key) else { return };
        match entry.state {
            State::OutAndDirty => {
                entry.state = State::Ready;
                self.ready.push_back(key.clone());
            }
            State::Out if entry.due.is_none() && entry.failures == 0 => {
                self.entries.remove(key);
            }
            State::Out => entry.state = State::Idle,
            State::Idle | State::Ready => {}
        }
    }

    /// Counts a failure of a key; how many there were in a row.
    pub fn failed(&mut self, key: &K) -> u32 {
        let entry = self.entries.entry(key.clone()).or_default();
        entry.failures = entry.failures.saturating_add(1);
        entry.failures
    }

    /// Forgets a key's failures.
    pub fn succeeded(&mut self, key: &K) {
        if let Some(entry) = self.entries.get_mut(key) {
            entry.failures = 0;
        }
    }

    /// How many keys are ready.
    pub fn depth(&self) -> usize {
        self.ready.len()
    }
}

/// A queue that can be waited for.
#[derive(Debug)]
pub struct Queue<K> {
    core: Mutex<Core<K>>,
    wake: Notify,
}

impl<K: Clone + Eq + Hash + Ord> Default for Queue<K> {
    fn default() -> Self {
        Self { core: Mutex::default(), wake: Notify::new() }
    }
}

impl<K: Clone + Eq + Hash + Ord> Queue<K> {
    fn lock(&self) -> MutexGuard<'_, Core<K>> {
        self.core.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does something to the queue, and wakes who waits for a key.
    pub fn with<T>(&self, change: impl FnOnce(&mut Core<K>) -> T) -> T {
        let result = change(&mut self.lock());
        self.wake.notify_one();
        result
    }

    /// Adds a key.
    pub fn add(&self, key: K) {
        self.with(|core| core.add(key));
    }

    /// Adds keys.
    pub fn extend(&self, keys: Vec<K>) {
        if !keys.is_empty() {
            self.with(|core| keys.into_iter().for_each(|key| core.add(key)));
        }
    }

    /// How many keys are ready.
    pub fn depth(&self) -> usize {
        self.lock().depth()
    }

    /// Waits for a key. For one waiter at a time.
    pub async fn next(&self) -> K {
        loop {
            let due = {
                let mut core = self.lock();
                if let Some(key) = core.pop(Instant::now()) {
                    return key;
                }
                core.next_due()
            };
            match due {
                Some(due) => {
                    let _ = tokio::time::timeout_at(due, self.wake.notified()).await;
                }
                None => self.wake.notified().await,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queue() -> (Core<&'static str>, Instant) {
        let mut core = Core::default();
        core.open([]);
        (core, Instant::now())
    }

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn keys_come_once_and_in_order() {
        let (mut core, now) = queue();
        core.add("a");
        core.add("b");
        core.add("a");
        assert_eq!(core.depth(), 2);
        assert_eq!((core.pop(now), core.pop(now), core.pop(now)), (Some("a"), Some("b"), None));
    }

    #[test]
    fn a_key_that_is_out_comes_back_only_when_done() {
        let (mut core, now) = queue();
        core.add("a");
        assert_eq!(core.pop(now), Some("a"));
        core.add("a");
        core.add("a");
        assert_eq!(core.pop(now), None);
        core.done(&"a");
        assert_eq!(core.pop(now), Some("a"));
        core.done(&"a");
        assert_eq!(core.pop(now), None);
        assert!(core.entries.is_empty(), "nothing is remembered of a key that is at rest");
    }

    #[test]
    fn the_earliest_deadline_wins_and_fires_once() {
        let (mut core, now) = queue();
        core.add_at("a", now + 5 * SECOND);
        core.add_at("a", now + 2 * SECOND);
        core.add_at("a", now + 9 * SECOND);
        assert_eq!(core.pop(now + SECOND), None);
        assert_eq!(core.next_due(), Some(now + 2 * SECOND));
        assert_eq!(core.pop(now + 2 * SECOND), Some("a"));
        core.done(&"a");
        assert_eq!(core.pop(now + 10 * SECOND), None);
    }

    #[test]
    fn a_deadline_set_while_out_holds_and_an_event_before_it_replaces_it() {
        let (mut core, now) = queue();
        core.add("a");
        core.pop(now);
        core.add_at("a", now + 5 * SECOND);
        core.done(&"a");
        core.add("a");
        assert_eq!(core.pop(now), Some("a"), "an event does not wait for the deadline");
        core.done(&"a");
        assert_eq!(core.pop(now + 6 * SECOND), None, "whoever looked last did not ask to look again");
    }

    #[test]
    fn a_deadline_that_fires_while_out_is_not_lost() {
        let (mut core, now) = queue();
        core.add("a");
        core.pop(now);
        core.add_at("a", now + SECOND);
        assert_eq!(core.pop(now + 2 * SECOND), None);
        core.done(&"a");
        assert_eq!(core.pop(now + 2 * SECOND), Some("a"));
    }

    #[test]
    fn failures_are_counted_until_success() {
        let (mut core, now) = queue();
        core.add("a");
        core.pop(now);
        assert_eq!((core.failed(&"a"), core.failed(&"a")), (1, 2));
        core.done(&"a");
        assert_eq!(core.failed(&"a"), 3);
        core.succeeded(&"a");
        assert_eq!(core.failed(&"a"), 1);
    }

    #[test]
    fn a_closed_queue_forgets_and_takes_nothing_but_knows_what_is_out() {
        let (mut core, now) = queue();
        core.add("out");
        core.pop(now);
        core.add("waiting");
        core.add_at("later", now + SECOND);
        core.close();
        core.add("b");
        core.add_at("b", now);
        assert_eq!(core.pop(now + 2 * SECOND), None);
        core.open(["out", "c"]);
        assert_eq!(core.pop(now), Some("c"));
        assert_eq!(core.pop(now), None, "still out");
        core.done(&"out");
        assert_eq!(core.pop(now), Some("out"));
    }

    #[test]
    fn pauses_double_up_to_a_limit_less_jitter() {
        let backoff = Backoff { base: SECOND, max: 60 * SECOND };
        assert_eq!(backoff.pause(1, 0.0), SECOND);
        assert_eq!(backoff.pause(4, 0.0), 8 * SECOND);
        assert_eq!(backoff.pause(40, 0.0), 60 * SECOND);
        assert_eq!(backoff.pause(1, 1.0), SECOND.mul_f64(0.75));
    }

    #[tokio::test(start_paused = true)]
    async fn waiting_ends_with_a_key_or_a_deadline() {
        let queue = Queue::default();
        queue.with(|core| core.open([]));
        let start = Instant::now();
        queue.with(|core| core.add_at("later", start + 5 * SECOND));
        assert_eq!(queue.next().await, "later");
        assert_eq!(Instant::now(), start + 5 * SECOND);
        let (key, ()) = tokio::join!(queue.next(), async { queue.add("now") });
        assert_eq!(key, "now");
    }
}
