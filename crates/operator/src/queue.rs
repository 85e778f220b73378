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
        let doubled = self
            .base
            .saturating_mul(1_u32.checked_shl(failures.saturating_sub(1)).unwrap_or(u32::MAX));
        doubled.min(self.max).mul_f64(1.0 - 0.25 * jitter.clamp(0.0, 1.0))
    }
}

/// A number from 0 to 1 that differs from call to call and from process to process.
#[expect(
    clippy::cast_precision_loss,
    reason = "a random number has no precision to lose"
)]
pub fn jitter() -> f64 {
    // The standard library seeds every such hasher differently; no other source of randomness is needed for this.
    let random = std::hash::BuildHasher::hash_one(&std::hash::RandomState::new(), 0_u8);
    random as f64 / u64::MAX as f64
}

/// So many timers are never too many.
const FEW_TIMERS: usize = 64;

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
    /// Until when it is not handed out again.
    rest: Option<Instant>,
    failures: u32,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    Idle,
    Ready,
    Out,
    OutAndDirty,
    /// As idle, but not to be ready before its rest is over.
    Resting,
    RestingAndDirty,
}

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Timer<K> {
    at: Instant,
    key: K,
}

impl<K: Clone + Eq + Hash + Ord> Default for Core<K> {
    fn default() -> Self {
        Self {
            entries: HashMap::new(),
            ready: VecDeque::new(),
            timers: BinaryHeap::new(),
            open: false,
        }
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
        self.entries
            .retain(|_, entry| matches!(entry.state, State::Out | State::OutAndDirty));
        for entry in self.entries.values_mut() {
            *entry = Entry {
                state: State::Out,
                ..Entry::default()
            };
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
            State::Resting => entry.state = State::RestingAndDirty,
            State::Ready | State::OutAndDirty | State::RestingAndDirty => {}
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
            self.set(at, key);
        }
    }

    /// Sets a timer. Those that are out of date stay until their time comes, which may be never: when most are, all are
    /// made anew.
    fn set(&mut self, at: Instant, key: K) {
        self.timers.push(Reverse(Timer { at, key }));
        // An entry has two that count at most.
        if self.timers.len() > 4 * self.entries.len() + FEW_TIMERS {
            let counting = self.entries.iter().flat_map(|(key, entry)| {
                let times = [entry.due, entry.rest].into_iter().flatten();
                times.map(|at| Reverse(Timer { at, key: key.clone() }))
            });
            self.timers = counting.collect();
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
            let at = Some(timer.at);
            let entry = self.entries.get(&timer.key);
            let (due, rest) = entry.map_or((false, false), |entry| (entry.due == at, entry.rest == at));
            if (due || rest) && timer.at > now {
                return;
            }
            let Some(Reverse(timer)) = self.timers.pop() else {
                return;
            };
            if rest {
                self.rested(&timer.key);
            }
            if due {
                if let Some(entry) = self.entries.get_mut(&timer.key) {
                    entry.due = None;
                }
                self.add(timer.key);
            }
        }
    }

    /// A key's rest is over.
    fn rested(&mut self, key: &K) {
        let Some(entry) = self.entries.get_mut(key) else {
            return;
        };
        entry.rest = None;
        let dirty = entry.state == State::RestingAndDirty;
        entry.state = State::Idle;
        if dirty {
            self.add(key.clone());
        } else if entry.due.is_none() && entry.failures == 0 {
            self.entries.remove(key);
        }
    }

    /// When the next key becomes ready by itself.
    pub fn next_due(&self) -> Option<Instant> {
        self.timers.peek().map(|Reverse(timer)| timer.at)
    }

    /// A key that was out has been looked at. If it was costly, it is to rest before it is looked at again.
    pub fn done(&mut self, key: &K, rest: Option<Instant>) {
        let Some(entry) = self.entries.get_mut(key) else {
            return;
        };
        if let Some(until) = rest
            && self.open
            && matches!(entry.state, State::Out | State::OutAndDirty)
        {
            let dirty = entry.state == State::OutAndDirty;
            entry.state = if dirty {
                State::RestingAndDirty
            } else {
                State::Resting
            };
            entry.rest = Some(until);
            self.set(until, key.clone());
            return;
        }
        match entry.state {
            State::OutAndDirty => {
                entry.state = State::Ready;
                self.ready.push_back(key.clone());
            }
            State::Out if entry.due.is_none() && entry.failures == 0 => {
                self.entries.remove(key);
            }
            State::Out => entry.state = State::Idle,
            State::Idle | State::Ready | State::Resting | State::RestingAndDirty => {}
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
        Self {
            core: Mutex::default(),
            wake: Notify::new(),
        }
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
mod tests;
