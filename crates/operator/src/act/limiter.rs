//! Limits how many requests are under way at once, and decides which goes first.
//!
//! Under load the server is the bottleneck, and we choose the order of requests. Pods go first,
//! because everything waits for them. The status of jobs goes next: a later write can contain
//! several changes. Events go last. Each class has a few permits of its own, so that none waits for
//! ever.
//!
//! How many permits there are follows the server, see [`Limit`].

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::oneshot;
use tokio::time::Instant;

use limit::Limit;

mod limit;

/// The priority of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// Requests that others wait for.
    Urgent,
    Status,
    Event,
}

const CLASSES: [Class; 3] = [Class::Urgent, Class::Status, Class::Event];

/// Gives out a limited number of permits.
#[derive(Clone, Debug)]
pub struct WriteLimiter {
    state: Arc<Mutex<State>>,
}

#[derive(Debug)]
struct State {
    limit: Limit,
    in_use: [usize; 3],
    waiting: [VecDeque<oneshot::Sender<Permit>>; 3],
}

/// Allows one request. It is returned when dropped.
#[derive(Debug)]
pub struct Permit {
    /// `None` if it was never received, so that dropping it does not return it again.
    limiter: Option<WriteLimiter>,
    class: Class,
    since: Instant,
}

impl WriteLimiter {
    /// Creates a limiter with at most so many permits.
    pub fn new(permits: usize) -> Self {
        let state = State {
            limit: Limit::new(permits),
            in_use: [0; 3],
            waiting: Default::default(),
        };
        Self {
            state: Arc::new(Mutex::new(state)),
        }
    }

    fn permit(&self, class: Class) -> Permit {
        Permit {
            limiter: Some(self.clone()),
            class,
            since: Instant::now(),
        }
    }

    /// Takes a permit. `None` if none is free.
    pub fn try_enter(&self, class: Class) -> Option<Permit> {
        let mut state = self.state.lock();
        let free = state.may_have_permit(class, true);
        state.in_use[class as usize] += usize::from(free);
        free.then(|| self.permit(class))
    }

    /// Waits for a permit.
    pub async fn enter(&self, class: Class) -> Permit {
        loop {
            if let Some(permit) = self.try_enter(class) {
                return permit;
            }
            let (sender, receiver) = oneshot::channel();
            {
                let mut state = self.state.lock();
                state.waiting[class as usize].push_back(sender);
                // A permit may have been returned just now.
                self.hand_out(&mut state);
            }
            if let Ok(permit) = receiver.await {
                return permit;
            }
        }
    }

    /// Hands free permits to waiting requests, the urgent ones first.
    fn hand_out(&self, state: &mut State) {
        for class in CLASSES {
            while state.may_have_permit(class, false)
                && let Some(next) = state.waiting[class as usize].pop_front()
            {
                state.in_use[class as usize] += 1;
                // A permit that is received and not used returns itself. If nobody receives it, it
                // is taken back here.
                if let Err(mut unused) = next.send(self.permit(class)) {
                    unused.limiter = None;
                    state.in_use[class as usize] -= 1;
                }
            }
        }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        if let Some(limiter) = self.limiter.take() {
            let mut state = limiter.state.lock();
            let is_short = state.waiting.iter().any(|waiting| !waiting.is_empty());
            state.limit.record(self.class, self.since.elapsed(), is_short);
            state.in_use[self.class as usize] -= 1;
            limiter.hand_out(&mut state);
        }
    }
}

impl State {
    /// How many permits a class may use while higher classes wait.
    fn reserved(&self, class: usize) -> usize {
        let permits = self.limit.permits();
        [permits, (permits / 8).max(1), 1][class]
    }

    /// Returns true if a request of a class may have a permit. A newcomer has to wait behind others
    /// of its class.
    fn may_have_permit(&self, class: Class, newcomer: bool) -> bool {
        let position = class as usize;
        if newcomer && !self.waiting[position].is_empty() {
            return false;
        }
        let total: usize = self.in_use.iter().sum();
        if total >= self.limit.permits() {
            return false;
        }
        let higher_wait = self.waiting[..position].iter().any(|waiting| !waiting.is_empty());
        if higher_wait && self.in_use[position] >= self.reserved(position) {
            return false;
        }
        // The permits of lower classes are reserved while requests of these classes wait.
        let reserved_below: usize = CLASSES[position + 1..]
            .iter()
            .map(|lower| *lower as usize)
            .map(|lower| {
                self.reserved(lower)
                    .saturating_sub(self.in_use[lower])
                    .min(self.waiting[lower].len())
            })
            .sum();
        total + reserved_below < self.limit.permits()
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    #[tokio::test]
    async fn a_free_limiter_lets_everyone_in() {
        let limiter = WriteLimiter::new(2);
        let one = limiter.enter(Class::Event).now_or_never();
        let two = limiter.enter(Class::Status).now_or_never();
        assert!(one.is_some() && two.is_some());
        assert!(limiter.enter(Class::Urgent).now_or_never().is_none());
        drop(one);
        assert!(limiter.enter(Class::Urgent).now_or_never().is_some());
    }

    #[tokio::test]
    async fn all_are_let_in_and_none_waits_for_all_the_others() {
        let limiter = WriteLimiter::new(8);
        let mut inside: VecDeque<_> = (0..8)
            .filter_map(|_| limiter.enter(Class::Urgent).now_or_never())
            .collect();
        assert_eq!(inside.len(), 8);
        let order = Mutex::new(Vec::new());
        let visit = |class| {
            let (limiter, order) = (&limiter, &order);
            async move {
                let _permit = limiter.enter(class).await;
                order.lock().push(class);
                tokio::task::yield_now().await;
            }
        };
        let visits = [
            Class::Event,
            Class::Status,
            Class::Status,
            Class::Urgent,
            Class::Urgent,
            Class::Urgent,
        ];
        let all = futures::future::join_all(visits.map(visit));
        let leave = async {
            while inside.pop_front().is_some() {
                tokio::task::yield_now().await;
            }
        };
        tokio::join!(all, leave);
        let order = order.into_inner();
        assert_eq!(order.len(), 6);
        let first_status = order.iter().position(|class| *class == Class::Status).unwrap();
        let last_urgent = order.iter().rposition(|class| *class == Class::Urgent).unwrap();
        assert!(
            first_status < last_urgent,
            "a permit is kept for status: {order:?}"
        );
        assert!(limiter.state.lock().in_use.iter().all(|in_use| *in_use == 0));
    }

    #[tokio::test]
    async fn who_gives_up_waiting_takes_no_permit() {
        let limiter = WriteLimiter::new(1);
        let inside = limiter.enter(Class::Urgent).await;
        {
            let mut waiting = Box::pin(limiter.enter(Class::Urgent));
            assert!(futures::poll!(&mut waiting).is_pending());
        }
        drop(inside);
        assert!(limiter.enter(Class::Status).now_or_never().is_some());
    }
}
