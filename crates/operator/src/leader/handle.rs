//! The result of the election, for the rest of the operator.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use jiff::Timestamp;
use tokio::sync::watch;
use tokio::time::Instant;

/// Whether this replica may write. Cheap to clone and to ask.
#[derive(Clone, Debug)]
pub struct Leadership {
    shared: Arc<Shared>,
    terms: watch::Receiver<Option<u64>>,
}

#[derive(Debug)]
struct Shared {
    /// The origin of `until`.
    base: Instant,
    /// When the leadership ends, in nanoseconds after `base`. 0: there is none. `u64::MAX`: it has
    /// no end.
    until: AtomicU64,
    /// The same by the wall clock, in milliseconds: the monotonic clock of a suspended machine may
    /// stand still. This can only shorten the leadership.
    until_wall: AtomicI64,
    terms: watch::Sender<Option<u64>>,
}

impl Leadership {
    /// Leads always: for a single replica without an election.
    pub fn always() -> Self {
        let (sender, terms) = watch::channel(Some(1));
        let shared = Shared {
            base: Instant::now(),
            until: AtomicU64::new(u64::MAX),
            until_wall: AtomicI64::new(i64::MAX),
            terms: sender,
        };
        Self {
            shared: Arc::new(shared),
            terms,
        }
    }

    /// Returns true if a write may be sent now. Ask right before each write: in a process that was
    /// paused, or could not reach the API server, this is the first to say no.
    pub(crate) fn may_write(&self) -> bool {
        let until = self.shared.until.load(Ordering::Acquire);
        if until == 0 || until == u64::MAX {
            return until != 0;
        }
        nanos(self.shared.base.elapsed()) < until
            && Timestamp::now().as_millisecond() < self.shared.until_wall.load(Ordering::Acquire)
    }

    /// Returns the term in which this replica leads. Between two terms another replica may have
    /// led.
    pub(crate) fn term(&self) -> Option<u64> {
        if self.may_write() {
            *self.shared.terms.borrow()
        } else {
            None
        }
    }

    /// Waits until a term has begun or ended since the last call, and returns the present term.
    /// Several changes are seen as one.
    ///
    /// Cancel-safe. Never returns where there is no election.
    pub(crate) async fn changed(&mut self) -> Option<u64> {
        // The sender is in `shared`: this can't fail.
        if self.terms.changed().await.is_err() {
            return futures::future::pending().await;
        }
        *self.terms.borrow_and_update()
    }

    /// Waits until this replica leads, and returns the term.
    pub(crate) async fn leading(&mut self) -> u64 {
        loop {
            if let Some(term) = self.term() {
                self.terms.mark_unchanged();
                return term;
            }
            self.changed().await;
        }
    }
}

/// The elector's side of a [`Leadership`], which ends when this is dropped.
#[derive(Debug)]
pub(crate) struct LeadershipSetter {
    leadership: Leadership,
    last_term: u64,
    end: Option<Instant>,
}

impl LeadershipSetter {
    pub(crate) fn new() -> Self {
        let (sender, terms) = watch::channel(None);
        let shared = Shared {
            base: Instant::now(),
            until: AtomicU64::new(0),
            until_wall: AtomicI64::new(0),
            terms: sender,
        };
        Self {
            leadership: Leadership {
                shared: Arc::new(shared),
                terms,
            },
            last_term: 0,
            end: None,
        }
    }

    pub(crate) fn leadership(&self) -> Leadership {
        self.leadership.clone()
    }

    /// Returns when the leadership ends unless it is renewed.
    pub(crate) fn end(&self) -> Option<Instant> {
        self.end
    }

    /// The lease was renewed by a request that began at `begun`. Returns true if a term begins.
    pub(crate) fn renew(&mut self, begun: Instant, begun_wall: Timestamp, deadline: Duration) -> bool {
        let end = begun + deadline;
        if Instant::now() >= end {
            // It came too late. The next attempt will tell.
            return false;
        }
        // No write was allowed for a while, as after a step of the wall clock. What was not written
        // is reconciled again only in a new term.
        if self.end.is_some() && !self.leadership.may_write() {
            tracing::warn!("the leadership had ended by the wall clock: a new term begins");
            self.leave();
        }
        let shared = &self.leadership.shared;
        let wall = begun_wall
            .as_millisecond()
            .saturating_add(i64::try_from(deadline.as_millis()).unwrap_or(i64::MAX));
        shared.until_wall.store(wall, Ordering::Release);
        shared.until.store(
            nanos(end.saturating_duration_since(shared.base)),
            Ordering::Release,
        );
        let begins = self.end.replace(end).is_none();
        if begins {
            self.last_term += 1;
            shared.terms.send_replace(Some(self.last_term));
        }
        begins
    }

    /// Ends the leadership. Returns true if there was one.
    pub(crate) fn leave(&mut self) -> bool {
        let shared = &self.leadership.shared;
        shared.until.store(0, Ordering::Release);
        shared.until_wall.store(0, Ordering::Release);
        let led = self.end.take().is_some();
        if led {
            shared.terms.send_replace(None);
        }
        led
    }
}

impl Drop for LeadershipSetter {
    fn drop(&mut self) {
        self.leave();
    }
}

fn nanos(duration: Duration) -> u64 {
    // `u64::MAX` means no end.
    u64::try_from(duration.as_nanos())
        .unwrap_or(u64::MAX)
        .min(u64::MAX - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_step_of_the_wall_clock_ends_the_term_and_begins_another() {
        let mut setter = LeadershipSetter::new();
        let mut leadership = setter.leadership();
        let deadline = Duration::from_secs(10);
        assert!(setter.renew(Instant::now(), Timestamp::now(), deadline));
        assert_eq!(leadership.leading().await, 1);
        assert!(!setter.renew(Instant::now(), Timestamp::now(), deadline));
        // As if the clock had been set forward while the lease was renewed.
        let stepped = Timestamp::now() - jiff::SignedDuration::from_secs(20);
        setter.renew(Instant::now(), stepped, deadline);
        assert!(!leadership.may_write());
        let waiting = tokio::spawn(async move { leadership.leading().await });
        tokio::task::yield_now().await;
        assert!(setter.renew(Instant::now(), Timestamp::now(), deadline));
        assert_eq!(waiting.await.unwrap(), 2);
        assert!(!setter.renew(Instant::now(), Timestamp::now(), deadline));
    }
}
