//! What bounds the memory that requests take: anybody may send them.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, SemaphorePermit};

use crate::budget::{ANSWERS, KIB, MAX_REQUESTS, MAX_REVIEWS, REVIEW_BODIES};

/// How long a request may take to arrive. An API server waits for a webhook for at most 30 s.
const BODY_TIMEOUT: Duration = Duration::from_secs(10);
/// How long an answer may take to be read, for the same reason.
const READ_TIMEOUT: Duration = Duration::from_secs(10);
/// How much of it all one address may have: one over this. Whoever is slow on purpose holds up
/// nobody else, unless they have as many addresses.
const SHARES: usize = 4;

/// The limits of all requests together.
pub(super) struct Limits {
    requests: SharedLimit,
    /// In KiB.
    bodies: SharedLimit,
    /// In KiB.
    answers: SharedLimit,
    pub(super) decoders: Semaphore,
    pub(super) body_timeout: Duration,
    pub(super) read_timeout: Duration,
}

impl Limits {
    pub(super) fn new() -> Self {
        Self {
            requests: SharedLimit::new(MAX_REQUESTS),
            bodies: SharedLimit::new(REVIEW_BODIES / KIB),
            answers: SharedLimit::new(ANSWERS / KIB),
            decoders: Semaphore::new(MAX_REVIEWS),
            body_timeout: BODY_TIMEOUT,
            read_timeout: READ_TIMEOUT,
        }
    }

    /// Returns the share of the requests that an address has.
    pub(super) fn requests_of(&self, peer: IpAddr) -> Share {
        self.requests.share_of(peer)
    }

    /// Returns the share of the bodies that an address has, in KiB.
    pub(super) fn bodies_of(&self, peer: IpAddr) -> Share {
        self.bodies.share_of(peer)
    }

    /// Returns the share of the answers that an address has, in KiB.
    pub(super) fn answers_of(&self, peer: IpAddr) -> Share {
        self.answers.share_of(peer)
    }
}

/// A limit of which each address may have a share.
struct SharedLimit {
    all: Arc<Semaphore>,
    share: usize,
    /// Those that are in use.
    shares: Mutex<HashMap<IpAddr, Weak<Semaphore>>>,
}

impl SharedLimit {
    fn new(permits: usize) -> Self {
        Self {
            all: Arc::new(Semaphore::new(permits)),
            share: permits / SHARES,
            shares: Mutex::default(),
        }
    }

    fn share_of(&self, peer: IpAddr) -> Share {
        let mut shares = self.shares.lock();
        let own = shares.get(&peer).and_then(Weak::upgrade).unwrap_or_else(|| {
            shares.retain(|_, share| share.strong_count() > 0);
            let own = Arc::new(Semaphore::new(self.share));
            shares.insert(peer, Arc::downgrade(&own));
            own
        });
        Share {
            own,
            all: self.all.clone(),
        }
    }
}

/// What one address may have of a limit.
pub(super) struct Share {
    own: Arc<Semaphore>,
    all: Arc<Semaphore>,
}

impl Share {
    /// Waits for so many permits. First for those of the share: who waits for those of all waits
    /// for no more than that.
    pub(super) async fn acquire(&self, permits: usize) -> Permits<'_> {
        let permits = u32::try_from(permits).unwrap_or(u32::MAX);
        // They are never closed.
        let own = self.own.acquire_many(permits).await.ok();
        let all = self.all.acquire_many(permits).await.ok();
        Permits { own, all }
    }

    /// As [`Share::acquire`], for permits that last longer than the request.
    pub(super) async fn acquire_owned(self, permits: usize) -> OwnedPermits {
        let permits = u32::try_from(permits).unwrap_or(u32::MAX);
        let own = self.own.acquire_many_owned(permits).await.ok();
        let all = self.all.acquire_many_owned(permits).await.ok();
        OwnedPermits { _own: own, _all: all }
    }

    #[cfg(test)]
    pub(super) fn left(&self) -> usize {
        self.own.available_permits()
    }
}

/// Permits of a share, until they are dropped.
#[derive(Default)]
pub(super) struct Permits<'a> {
    own: Option<SemaphorePermit<'a>>,
    all: Option<SemaphorePermit<'a>>,
}

/// Permits of a share, until they are dropped.
pub(super) struct OwnedPermits {
    _own: Option<OwnedSemaphorePermit>,
    _all: Option<OwnedSemaphorePermit>,
}

impl Permits<'_> {
    fn merge(&mut self, more: Self) {
        for (held, more) in [(&mut self.own, more.own), (&mut self.all, more.all)] {
            match (held, more) {
                (Some(held), Some(more)) => held.merge(more),
                (held, more) => *held = more,
            }
        }
    }
}

/// The room that a body takes of what all of them have, until it is dropped.
pub(super) struct BodyRoom<'a> {
    share: &'a Share,
    held: Permits<'a>,
    free: usize,
}

impl<'a> BodyRoom<'a> {
    pub(super) fn new(share: &'a Share) -> Self {
        Self {
            share,
            held: Permits::default(),
            free: 0,
        }
    }

    /// Waits until there is room for so many bytes.
    pub(super) async fn reserve(&mut self, bytes: usize) {
        if self.free < bytes {
            let more = (bytes - self.free).div_ceil(KIB);
            self.held.merge(self.share.acquire(more).await);
            self.free += more * KIB;
        }
    }

    /// Waits until there is room for so many bytes, and takes it.
    pub(super) async fn take(&mut self, bytes: usize) {
        self.reserve(bytes).await;
        self.free = self.free.saturating_sub(bytes);
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    #[test]
    fn an_address_has_a_quarter_and_those_that_are_gone_are_forgotten() {
        let limit = SharedLimit::new(16);
        let [one, same, other] = [1, 1, 2].map(|host| limit.share_of([10, 0, 0, host].into()));
        let mut held = one.acquire(3).now_or_never().unwrap();
        held.merge(same.acquire(1).now_or_never().unwrap());
        assert!(one.acquire(1).now_or_never().is_none());
        assert!(other.acquire(4).now_or_never().is_some());
        assert_eq!(limit.all.available_permits(), 16 - 4);
        drop(held);
        assert!(same.acquire(4).now_or_never().is_some());
        drop((one, same, other));
        let _share = limit.share_of([10, 0, 0, 3].into());
        assert_eq!(limit.shares.lock().len(), 1);
    }
}
