//! Connections without an authenticated request. They are evicted to make room for others.

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::HEAD_TIMEOUT;
use crate::budget::{UNAUTHENTICATED, UNAUTHENTICATED_CONNECTION};

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

/// How many unauthenticated connections there may be, over all addresses and from each.
#[derive(Clone, Copy, Debug)]
pub(super) struct UnauthenticatedLimits {
    pub(super) all: usize,
    pub(super) each: usize,
    /// Clients that are what they should be come one or two from an address. If all addresses have
    /// so few, they come at once, and it is waited for them a little.
    pub(super) few: usize,
}

impl UnauthenticatedLimits {
    const DEFAULT: Self = {
        let all = UNAUTHENTICATED / UNAUTHENTICATED_CONNECTION;
        Self {
            all,
            each: all / 16,
            few: 4,
        }
    };
}

/// How often it is looked whether connections became authenticated, and how many times.
const ROOM_INTERVAL: Duration = Duration::from_millis(5);
const MAX_LOOKS: usize = 10;

/// The unauthenticated connections, the oldest first, among some that are authenticated by now.
#[derive(Debug, Default)]
pub(super) struct EvictionQueue(Mutex<Waiting>);

#[derive(Debug, Default)]
struct Waiting {
    all: VecDeque<(IpAddr, Unauthenticated)>,
    /// The length at which authenticated connections are removed: twice the length after the last
    /// time, so that removing costs no more than adding.
    max: usize,
}

impl Waiting {
    fn forget_authenticated(&mut self) {
        self.all.retain(|(_, connection)| !connection.done.is_cancelled());
    }

    /// Returns true if there is room for one more from an address. Otherwise evicts the oldest
    /// connection of the address that has the most, so that whoever opens many loses their own;
    /// unless no address has many and `waits`.
    fn has_room(&mut self, peer: IpAddr, limits: UnauthenticatedLimits, waits: bool) -> bool {
        if self.all.len() < limits.each.min(limits.all) {
            return true;
        }
        self.forget_authenticated();
        let mut counts: HashMap<IpAddr, usize> = HashMap::new();
        for (address, _) in &self.all {
            *counts.entry(*address).or_default() += 1;
        }
        let own = counts.get(&peer).copied().unwrap_or_default();
        let busiest = if own >= limits.each {
            Some((peer, own))
        } else if self.all.len() >= limits.all {
            counts.into_iter().max_by_key(|(_, count)| *count)
        } else {
            return true;
        };
        match busiest {
            Some((address, count)) if count > limits.few => self.evict_oldest_of(address),
            _ if waits => return false,
            _ => {
                if let Some(address) = self.all.front().map(|(address, _)| *address) {
                    self.evict_oldest_of(address);
                }
            }
        }
        true
    }

    fn evict_oldest_of(&mut self, address: IpAddr) {
        let oldest = self.all.iter().position(|(peer, _)| *peer == address);
        if let Some((_, connection)) = oldest.and_then(|oldest| self.all.remove(oldest)) {
            connection.evict.cancel();
        }
    }
}

impl EvictionQueue {
    /// A shorter queue is left alone.
    const FEW: usize = 64;

    /// Makes room for one more connection from an address.
    pub(super) async fn make_room(&self, peer: IpAddr) {
        for look in 0..=MAX_LOOKS {
            let waits = look < MAX_LOOKS;
            if self
                .0
                .lock()
                .has_room(peer, UnauthenticatedLimits::DEFAULT, waits)
            {
                return;
            }
            sleep(ROOM_INTERVAL).await;
        }
    }

    /// Adds a connection, which is closed when the guard is dropped.
    pub(super) fn add(&self, peer: IpAddr) -> UnauthenticatedGuard {
        let unauthenticated = Unauthenticated::default();
        let mut waiting = self.0.lock();
        if waiting.all.len() >= waiting.max {
            waiting.forget_authenticated();
            waiting.max = Self::FEW.max(2 * waiting.all.len());
        }
        waiting.all.push_back((peer, unauthenticated.clone()));
        UnauthenticatedGuard(unauthenticated)
    }

    pub(super) fn evict_oldest(&self) {
        let mut waiting = self.0.lock();
        while let Some((_, oldest)) = waiting.all.pop_front() {
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

    const HOST: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

    fn host(number: u8) -> IpAddr {
        IpAddr::from([10, 0, 0, number])
    }

    #[test]
    fn whoever_opens_many_connections_loses_their_own() {
        let limits = UnauthenticatedLimits {
            all: 20,
            each: 10,
            few: 2,
        };
        let queue = EvictionQueue::default();
        let comes = |peer| {
            let has_room = queue.0.lock().has_room(peer, limits, true);
            has_room.then(|| queue.add(peer))
        };
        let first = comes(host(1)).unwrap();
        let many: Vec<_> = (0..15).map(|_| comes(host(2)).unwrap()).collect();
        let evicted = || many.iter().filter(|one| one.evict.is_cancelled()).count();
        assert_eq!(evicted(), 5, "no more than 10 from one address");
        assert!(many[4].evict.is_cancelled() && !many[5].evict.is_cancelled());
        // There is room for others, and then those make room who have most.
        let others: Vec<_> = (3..15).map(|number| comes(host(number)).unwrap()).collect();
        assert!(queue.0.lock().all.len() <= 20);
        assert_eq!(evicted(), 5 + 3);
        assert!(!first.evict.is_cancelled() && others.iter().all(|one| !one.evict.is_cancelled()));
        // Those that have shown a token are none of them.
        for one in &many {
            one.done.cancel();
        }
        let more: Vec<_> = (20..27).map(|number| comes(host(number)).unwrap()).collect();
        assert!(
            comes(host(28)).is_none(),
            "they come at once, and it is waited for them"
        );
        assert!(queue.0.lock().has_room(host(28), limits, false));
        assert!(first.evict.is_cancelled(), "but not for ever: the oldest goes");
        drop((others, more));
    }

    #[test]
    fn those_who_have_asked_are_forgotten_in_time() {
        let eviction = EvictionQueue::default();
        let count = || eviction.0.lock().all.len();
        let waiting: Vec<UnauthenticatedGuard> = (0..1000).map(|_| eviction.add(HOST)).collect();
        assert_eq!(count(), 1000);
        for _ in 0..10_000 {
            drop(eviction.add(HOST));
            assert!(count() <= 2 * 1001, "{}", count());
        }
        waiting[0].done.cancel();
        eviction.evict_oldest();
        let leave: Vec<bool> = waiting.iter().map(|one| one.evict.is_cancelled()).collect();
        assert_eq!(leave[..3], [false, true, false], "the oldest that has not asked");
        drop(waiting);
        for _ in 0..10_000 {
            drop(eviction.add(HOST));
        }
        assert!(count() <= EvictionQueue::FEW, "{}", count());
    }
}
