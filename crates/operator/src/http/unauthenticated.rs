//! Connections without an authenticated request. They are evicted to make room for others.

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::{HEAD_TIMEOUT, Purpose};
use crate::budget::{UNAUTHENTICATED, UNAUTHENTICATED_CONNECTION};

/// A connection without an authenticated request, as far as is known.
#[derive(Debug, Default)]
pub(super) struct Unauthenticated {
    /// It is closed to make room for another. Where it is authenticated, for one of the same pod.
    pub(super) evict: CancellationToken,
    /// It is authenticated, or closed.
    pub(super) done: CancellationToken,
    /// Whether it has asked for something.
    has_asked: AtomicBool,
    /// How many requests are under way.
    requests: AtomicUsize,
}

impl Unauthenticated {
    /// Waits until the connection is to be closed: it is evicted, or has taken too long. Only an
    /// authenticated one, and one to the webhooks that has asked for something, may last.
    pub(super) async fn evicted(&self, purpose: Purpose) {
        tokio::select! {
            () = self.evict.cancelled() => return,
            () = self.done.cancelled() => {}
            () = sleep(HEAD_TIMEOUT) => {
                let lasts = purpose == Purpose::Webhooks && self.has_asked.load(Ordering::Relaxed);
                if !lasts && !self.done.is_cancelled() {
                    return;
                }
            }
        }
        self.evict.cancelled().await;
    }

    /// A request is under way until the guard is dropped.
    pub(super) fn begin_request(connection: &Arc<Self>) -> RequestGuard {
        connection.has_asked.store(true, Ordering::Relaxed);
        connection.requests.fetch_add(1, Ordering::Relaxed);
        RequestGuard(connection.clone())
    }

    fn is_idle(&self) -> bool {
        self.requests.load(Ordering::Relaxed) == 0
    }
}

/// Held while a request is under way.
pub(super) struct RequestGuard(Arc<Unauthenticated>);

impl Drop for RequestGuard {
    fn drop(&mut self) {
        self.0.requests.fetch_sub(1, Ordering::Relaxed);
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
const MAX_LOOKS: u32 = 10;
/// How long clients that come at once are waited for.
pub(super) const ROOM_TIMEOUT: Duration = ROOM_INTERVAL.saturating_mul(MAX_LOOKS);

/// The unauthenticated connections, the oldest first, among some that are authenticated by now.
#[derive(Debug, Default)]
pub(super) struct EvictionQueue(Mutex<Waiting>);

#[derive(Debug, Default)]
struct Waiting {
    all: VecDeque<(IpAddr, Arc<Unauthenticated>)>,
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
        let own = self.all.iter().filter(|(address, _)| *address == peer).count();
        if own >= limits.each {
            self.evict_one_of(|address| address == peer);
        } else if self.all.len() >= limits.all && !self.evict_one_of_busiest(limits.few) {
            if waits {
                return false;
            }
            self.evict_one_of(|_| true);
        }
        true
    }

    /// Evicts a connection of the address that has the most, if these are more than `few`.
    fn evict_one_of_busiest(&mut self, few: usize) -> bool {
        self.forget_authenticated();
        let mut counts: HashMap<IpAddr, usize> = HashMap::new();
        for (address, _) in &self.all {
            *counts.entry(*address).or_default() += 1;
        }
        let busiest = counts.values().max().copied().unwrap_or_default();
        if busiest > few {
            self.evict_one_of(|address| counts.get(&address) == Some(&busiest));
        }
        busiest > few
    }

    /// Evicts the oldest idle connection of some addresses or, if none is idle, the oldest.
    fn evict_one_of(&mut self, is_meant: impl Fn(IpAddr) -> bool) {
        let is_idle = |(address, one): &(IpAddr, Arc<Unauthenticated>)| is_meant(*address) && one.is_idle();
        let oldest = self
            .all
            .iter()
            .position(is_idle)
            .or_else(|| self.all.iter().position(|(address, _)| is_meant(*address)));
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
        let unauthenticated = Arc::new(Unauthenticated::default());
        let mut waiting = self.0.lock();
        if waiting.all.len() >= waiting.max {
            waiting.forget_authenticated();
            waiting.max = Self::FEW.max(2 * waiting.all.len());
        }
        waiting.all.push_back((peer, unauthenticated.clone()));
        UnauthenticatedGuard(unauthenticated)
    }

    /// Evicts a connection of the address that has the most, if it has many. Otherwise any: an
    /// address with two has no more to give up than one that has one and asks for nothing.
    pub(super) fn evict_one(&self) {
        let mut waiting = self.0.lock();
        if !waiting.evict_one_of_busiest(UnauthenticatedLimits::DEFAULT.few) {
            waiting.evict_one_of(|_| true);
        }
    }

    /// Evicts a connection of the address that has the most, if it has many. Returns true if so.
    pub(super) fn evict_one_of_many(&self) -> bool {
        self.0
            .lock()
            .evict_one_of_busiest(UnauthenticatedLimits::DEFAULT.few)
    }
}

/// Held by the task of a connection.
#[derive(Debug)]
pub(super) struct UnauthenticatedGuard(Arc<Unauthenticated>);

impl UnauthenticatedGuard {
    pub(super) fn connection(&self) -> Arc<Unauthenticated> {
        self.0.clone()
    }
}

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
    fn connections_of_the_busiest_address_go_first_and_of_these_the_idle_ones() {
        let queue = EvictionQueue::default();
        let evicted = |one: &UnauthenticatedGuard| one.evict.is_cancelled();
        let first = queue.add(host(1));
        let busy = queue.add(host(2));
        let request = Unauthenticated::begin_request(&busy.connection());
        let idle: Vec<_> = (0..4).map(|_| queue.add(host(2))).collect();
        queue.evict_one();
        assert!(evicted(&idle[0]) && !evicted(&first), "host 2 has many");
        assert!(!queue.evict_one_of_many(), "now it has few");
        drop(request);
    }

    #[test]
    fn where_nobody_has_many_connections_the_idle_ones_go_first() {
        let queue = EvictionQueue::default();
        let evicted = |one: &UnauthenticatedGuard| one.evict.is_cancelled();
        let busy = [queue.add(host(2)), queue.add(host(2))];
        let requests = busy
            .each_ref()
            .map(|one| Unauthenticated::begin_request(&one.connection()));
        let idle = [queue.add(host(3)), queue.add(host(4))];
        queue.evict_one();
        queue.evict_one();
        assert_eq!(idle.each_ref().map(evicted), [true, true]);
        assert_eq!(busy.each_ref().map(evicted), [false, false]);
        // All are busy: one goes all the same.
        queue.evict_one();
        assert_eq!(busy.each_ref().map(evicted), [true, false]);
        drop(requests);
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
        eviction.evict_one();
        let leave: Vec<bool> = waiting.iter().map(|one| one.evict.is_cancelled()).collect();
        assert_eq!(leave[..3], [false, true, false], "the oldest that has not asked");
        drop(waiting);
        for _ in 0..10_000 {
            drop(eviction.add(HOST));
        }
        assert!(count() <= EvictionQueue::FEW, "{}", count());
    }
}
