//! Connections that have asked for nothing yet: they make room for others.

use std::collections::VecDeque;

use parking_lot::Mutex;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::HEAD_TIMEOUT;

/// A connection that has not asked for anything yet, as far as is known.
#[derive(Clone, Debug, Default)]
pub(super) struct Newcomer {
    /// It has to make room for another.
    pub(super) leave: CancellationToken,
    /// It has asked for something, or is gone.
    pub(super) asked: CancellationToken,
}

impl Newcomer {
    /// Waits until it has taken too long to ask, or is shown out; for ever, once it has asked.
    pub(super) async fn has_to_leave(&self) {
        tokio::select! {
            () = self.asked.cancelled() => {}
            () = self.leave.cancelled() => {}
            () = sleep(HEAD_TIMEOUT) => {}
        }
        if self.asked.is_cancelled() {
            std::future::pending::<()>().await;
        }
    }
}

/// Connections that have asked nothing yet, the oldest first, among some that have.
#[derive(Debug, Default)]
pub(super) struct Newcomers(Mutex<Waiting>);

#[derive(Debug, Default)]
struct Waiting {
    all: VecDeque<Newcomer>,
    /// How many there may be before those that have asked are swept out: twice as many as were left by the last sweep, so
    /// that the sweeps cost no more than the arrivals between them.
    most: usize,
}

impl Newcomers {
    /// The fewest for which a sweep is worth it.
    const FEW: usize = 64;

    /// One more. It counts as gone when what is returned is dropped.
    pub(super) fn add(&self) -> Arriving {
        let newcomer = Newcomer::default();
        let mut waiting = self.0.lock();
        if waiting.all.len() >= waiting.most {
            waiting.all.retain(|newcomer| !newcomer.asked.is_cancelled());
            waiting.most = Self::FEW.max(2 * waiting.all.len());
        }
        waiting.all.push_back(newcomer.clone());
        Arriving(newcomer)
    }

    /// Shows the oldest out.
    pub(super) fn make_room(&self) {
        let mut waiting = self.0.lock();
        while let Some(oldest) = waiting.all.pop_front() {
            if !oldest.asked.is_cancelled() {
                return oldest.leave.cancel();
            }
        }
    }
}

/// A newcomer, as its own task has it.
#[derive(Debug)]
pub(super) struct Arriving(Newcomer);

impl std::ops::Deref for Arriving {
    type Target = Newcomer;

    fn deref(&self) -> &Newcomer {
        &self.0
    }
}

impl Drop for Arriving {
    fn drop(&mut self) {
        self.asked.cancel();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_who_have_asked_are_forgotten_in_time() {
        let newcomers = Newcomers::default();
        let count = || newcomers.0.lock().all.len();
        let waiting: Vec<Arriving> = (0..1000).map(|_| newcomers.add()).collect();
        assert_eq!(count(), 1000);
        for _ in 0..10_000 {
            drop(newcomers.add());
            assert!(count() <= 2 * 1001, "{}", count());
        }
        waiting[0].asked.cancel();
        newcomers.make_room();
        let leave: Vec<bool> = waiting.iter().map(|one| one.leave.is_cancelled()).collect();
        assert_eq!(leave[..3], [false, true, false], "the oldest that has not asked");
        drop(waiting);
        for _ in 0..10_000 {
            drop(newcomers.add());
        }
        assert!(count() <= Newcomers::FEW, "{}", count());
    }
}
