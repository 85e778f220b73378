//! The queue of keys to reconcile.
//!
//! A key that is being reconciled is not handed out. If it is added meanwhile, it comes back
//! afterwards, once. A key may have a deadline at which it is added; the earliest counts. The queue
//! counts the failures of each key in a row.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};
use std::hash::Hash;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

/// Timers that are out of date are dropped only where there are more timers than this.
const FEW_TIMERS: usize = 64;

/// The queue without tasks: the time is handed in.
#[derive(Debug)]
pub(crate) struct Core<K> {
    entries: HashMap<K, Entry>,
    ready: VecDeque<K>,
    timers: BinaryHeap<Reverse<Timer<K>>>,
    open: bool,
}

#[derive(Debug, Default)]
struct Entry {
    state: State,
    /// When the key is added by itself. A timer of another time is out of date.
    due: Option<Instant>,
    /// The key is not handed out before this.
    cooldown: Option<Instant>,
    failures: u32,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    Idle,
    Ready,
    Processing,
    /// It was added while it was processed.
    ProcessingAndDirty,
    /// As idle, but not ready before the cooldown is over.
    Cooling,
    CoolingAndDirty,
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
    /// Opens the queue with some keys. Keys that are added to a closed queue are dropped.
    pub(crate) fn open(&mut self, keys: impl IntoIterator<Item = K>) {
        self.open = true;
        for key in keys {
            self.add(key);
        }
    }

    /// Closes the queue and drops all that waits in it. A key that is processed stays so until it
    /// is [`done`](Self::done).
    pub(crate) fn close(&mut self) {
        self.open = false;
        self.ready.clear();
        self.timers.clear();
        self.entries
            .retain(|_, entry| matches!(entry.state, State::Processing | State::ProcessingAndDirty));
        for entry in self.entries.values_mut() {
            *entry = Entry {
                state: State::Processing,
                ..Entry::default()
            };
        }
    }

    /// Adds a key, to be handed out as soon as possible.
    pub(crate) fn add(&mut self, key: K) {
        if !self.open {
            return;
        }
        let entry = self.entries.entry(key.clone()).or_default();
        match entry.state {
            State::Idle => {
                entry.state = State::Ready;
                self.ready.push_back(key);
            }
            State::Processing => entry.state = State::ProcessingAndDirty,
            State::Cooling => entry.state = State::CoolingAndDirty,
            State::Ready | State::ProcessingAndDirty | State::CoolingAndDirty => {}
        }
    }

    /// Has a key added at a time, unless it is handed out before.
    pub(crate) fn add_at(&mut self, key: K, at: Instant) {
        if !self.open {
            return;
        }
        let entry = self.entries.entry(key.clone()).or_default();
        if entry.due.is_none_or(|due| at < due) {
            entry.due = Some(at);
            self.set_timer(at, key);
        }
    }

    /// Sets a timer. Timers that are out of date stay until their time; when most are, the others
    /// are collected anew.
    fn set_timer(&mut self, at: Instant, key: K) {
        self.timers.push(Reverse(Timer { at, key }));
        // At most two timers of an entry count.
        if self.timers.len() > 4 * self.entries.len() + FEW_TIMERS {
            let counting = self.entries.iter().flat_map(|(key, entry)| {
                let times = [entry.due, entry.cooldown].into_iter().flatten();
                times.map(|at| Reverse(Timer { at, key: key.clone() }))
            });
            self.timers = counting.collect();
        }
    }

    /// Hands out the next key.
    pub(crate) fn pop(&mut self, now: Instant) -> Option<K> {
        self.fire_timers(now);
        let key = self.ready.pop_front()?;
        let entry = self.entries.entry(key.clone()).or_default();
        entry.state = State::Processing;
        // Its reconcile sets the next deadline.
        entry.due = None;
        Some(key)
    }

    fn fire_timers(&mut self, now: Instant) {
        while let Some(Reverse(timer)) = self.timers.peek() {
            let at = Some(timer.at);
            let entry = self.entries.get(&timer.key);
            let (due, cool) = entry.map_or((false, false), |entry| (entry.due == at, entry.cooldown == at));
            if (due || cool) && timer.at > now {
                return;
            }
            let Some(Reverse(timer)) = self.timers.pop() else {
                return;
            };
            if cool {
                self.end_cooldown(&timer.key);
            }
            if due {
                if let Some(entry) = self.entries.get_mut(&timer.key) {
                    entry.due = None;
                }
                self.add(timer.key);
            }
        }
    }

    fn end_cooldown(&mut self, key: &K) {
        let Some(entry) = self.entries.get_mut(key) else {
            return;
        };
        entry.cooldown = None;
        let dirty = entry.state == State::CoolingAndDirty;
        entry.state = State::Idle;
        if dirty {
            self.add(key.clone());
        } else if entry.due.is_none() && entry.failures == 0 {
            self.entries.remove(key);
        }
    }

    /// Returns the time of the next timer.
    pub(crate) fn next_due(&self) -> Option<Instant> {
        self.timers.peek().map(|Reverse(timer)| timer.at)
    }

    /// Takes a key back that has been processed. It is not handed out again before `cooldown`.
    pub(crate) fn done(&mut self, key: &K, cooldown: Option<Instant>) {
        let Some(entry) = self.entries.get_mut(key) else {
            return;
        };
        if let Some(until) = cooldown
            && self.open
            && matches!(entry.state, State::Processing | State::ProcessingAndDirty)
        {
            let dirty = entry.state == State::ProcessingAndDirty;
            entry.state = if dirty {
                State::CoolingAndDirty
            } else {
                State::Cooling
            };
            entry.cooldown = Some(until);
            self.set_timer(until, key.clone());
            return;
        }
        match entry.state {
            State::ProcessingAndDirty => {
                entry.state = State::Ready;
                self.ready.push_back(key.clone());
            }
            State::Processing if entry.due.is_none() && entry.failures == 0 => {
                self.entries.remove(key);
            }
            State::Processing => entry.state = State::Idle,
            State::Idle | State::Ready | State::Cooling | State::CoolingAndDirty => {}
        }
    }

    /// Counts a failure of a key. Returns how many there were in a row.
    pub(crate) fn failed(&mut self, key: &K) -> u32 {
        let entry = self.entries.entry(key.clone()).or_default();
        entry.failures = entry.failures.saturating_add(1);
        entry.failures
    }

    /// Sets the failures of a key to zero.
    pub(crate) fn succeeded(&mut self, key: &K) {
        if let Some(entry) = self.entries.get_mut(key) {
            entry.failures = 0;
        }
    }

    /// Returns how many keys are ready.
    pub(crate) fn depth(&self) -> usize {
        self.ready.len()
    }
}

/// A queue that can be waited for.
#[derive(Debug)]
pub(crate) struct Queue<K> {
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
    /// Changes the queue, and wakes the task that waits for a key.
    pub(crate) fn with<T>(&self, change: impl FnOnce(&mut Core<K>) -> T) -> T {
        let result = change(&mut self.core.lock());
        self.wake.notify_one();
        result
    }

    pub(crate) fn add(&self, key: K) {
        self.with(|core| core.add(key));
    }

    pub(crate) fn extend(&self, keys: Vec<K>) {
        if !keys.is_empty() {
            self.with(|core| keys.into_iter().for_each(|key| core.add(key)));
        }
    }

    /// Returns how many keys are ready.
    pub(crate) fn depth(&self) -> usize {
        self.core.lock().depth()
    }

    /// Waits for a key. Only one task may wait at a time.
    pub(crate) async fn next(&self) -> K {
        loop {
            let due = {
                let mut core = self.core.lock();
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
