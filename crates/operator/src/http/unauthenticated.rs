//! Connections without an authenticated request. They are evicted to make room for others.

use std::collections::VecDeque;

use parking_lot::Mutex;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::HEAD_TIMEOUT;

/// A connection without an authenticated request, as far as is known.
#[derive(Clone, Debug, Default)]
pub(super) struct Unauthenticated {
    /// It is closed to make room for another.
    pub(super) evict: CancellationToken,
    /// It is authenticated, or closed.
    pub(super) done: CancellationToken,
}

impl Unauthenticated {
    /// Waits until the connection is to be closed: it is evicted, or has taken too long. Waits for
    /// ever once it is authenticated.
    pub(super) async fn evicted(&self) {
        tokio::select! {
            () = self.done.cancelled() => {}
            () = self.evict.cancelled() => {}
            () = sleep(HEAD_TIMEOUT) => {}
        }
        if self.done.is_cancelled() {
            std::future::pending::<()>().await;
        }
    }
}

/// The unauthenticated connections, the oldest first, among some that are authenticated by now.
#[derive(Debug, Default)]
pub(super) struct EvictionQueue(Mutex<Waiting>);

#[derive(Debug, Default)]
struct Waiting {
    all: VecDeque<Unauthenticated>,
    /// The length at which authenticated connections are removed: twice the length after the last
    /// time, so that removing costs no more than adding.
    max: usize,
}

impl EvictionQueue {
    /// A shorter queue is left alone.
    const FEW: usize = 64;

    /// Adds a connection, which is closed when the guard is dropped.
    pub(super) fn add(&self) -> UnauthenticatedGuard {
        let unauthenticated = Unauthenticated::default();
        let mut waiting = self.0.lock();
        if waiting.all.len() >= waiting.max {
            waiting
                .all
                .retain(|unauthenticated| !unauthenticated.done.is_cancelled());
            waiting.max = Self::FEW.max(2 * waiting.all.len());
        }
        waiting.all.push_back(unauthenticated.clone());
        UnauthenticatedGuard(unauthenticated)
    }

    pub(super) fn evict_oldest(&self) {
        let mut waiting = self.0.lock();
        while let Some(oldest) = waiting.all.pop_front() {
            if !oldest.done.is_cancelled() {
                return oldest.evict.cancel();
            }
        }
    }
}

/// Held by the task of a connection.
#[derive(Debug)]
pub(super) struct UnauthenticatedGuard(Unauthenticated);

impl std::ops::Deref for UnauthenticatedGuard {
    type Target = Unauthenticated;

    fn deref(&self) -> &Unauthenticated {
        &self.0
    }
}

impl Drop for UnauthenticatedGuard {
    fn drop(&mut self) {
        self.done.cancel();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_who_have_asked_are_forgotten_in_time() {
        let eviction = EvictionQueue::default();
        let count = || eviction.0.lock().all.len();
        let waiting: Vec<UnauthenticatedGuard> = (0..1000).map(|_| eviction.add()).collect();
        assert_eq!(count(), 1000);
        for _ in 0..10_000 {
            drop(eviction.add());
            assert!(count() <= 2 * 1001, "{}", count());
        }
        waiting[0].done.cancel();
        eviction.evict_oldest();
        let leave: Vec<bool> = waiting.iter().map(|one| one.evict.is_cancelled()).collect();
        assert_eq!(leave[..3], [false, true, false], "the oldest that has not asked");
        drop(waiting);
        for _ in 0..10_000 {
            drop(eviction.add());
        }
        assert!(count() <= EvictionQueue::FEW, "{}", count());
    }
}
