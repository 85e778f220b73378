//! How many requests are under way at once, and which goes first.
//!
//! Under load the server is the bottleneck, and the order of requests is ours to choose: pods first, as everything
//! waits for them; then the status of jobs, which is the better for being late, as one write then tells of several
//! changes; events last. Each class keeps a few permits, so that none waits for ever.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::oneshot;

/// Which requests go first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// What other things wait for.
    Urgent,
    /// The status of jobs.
    Status,
    /// Events.
    Event,
}

const CLASSES: [Class; 3] = [Class::Urgent, Class::Status, Class::Event];

/// Lets in so many requests at once.
#[derive(Clone, Debug)]
pub struct WriteLimiter {
    state: Arc<Mutex<State>>,
}

#[derive(Debug)]
struct State {
    permits: usize,
    /// Places that a class has at least while others of a higher class wait.
    kept: [usize; 3],
    taken: [usize; 3],
    waiting: [VecDeque<oneshot::Sender<Permit>>; 3],
}

/// A permit, given back when dropped.
#[derive(Debug)]
pub struct Permit {
    /// None once it has been given back.
    limiter: Option<WriteLimiter>,
    class: Class,
}

impl WriteLimiter {
    /// A limiter of so many permits.
    pub fn new(permits: usize) -> Self {
        let state = State {
            permits,
            kept: [permits, (permits / 8).max(1), 1],
            taken: [0; 3],
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
        }
    }

    /// A permit, if there is one at once.
    pub fn try_enter(&self, class: Class) -> Option<Permit> {
        let mut state = self.state.lock();
        let free = state.may_enter(class, true);
        state.taken[class as usize] += usize::from(free);
        free.then(|| self.permit(class))
    }

    /// Waits for a permit.
    pub async fn enter(&self, class: Class) -> Permit {
        loop {
            if let Some(permit) = self.try_enter(class) {
                return permit;
            }
            let (sender, turn) = oneshot::channel();
            {
                let mut state = self.state.lock();
                state.waiting[class as usize].push_back(sender);
                // A permit may have become free just now.
                self.let_in(&mut state);
            }
            if let Ok(permit) = turn.await {
                return permit;
            }
        }
    }

    /// Lets in who may enter, the urgent first.
    fn let_in(&self, state: &mut State) {
        for class in CLASSES {
            while state.may_enter(class, false)
                && let Some(next) = state.waiting[class as usize].pop_front()
            {
                state.taken[class as usize] += 1;
                // A permit that is received and not used comes back by itself; one that nobody waits for is taken back.
                if let Err(mut unused) = next.send(self.permit(class)) {
                    unused.limiter = None;
                    state.taken[class as usize] -= 1;
                }
            }
        }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        if let Some(limiter) = self.limiter.take() {
            let mut state = limiter.state.lock();
            state.taken[self.class as usize] -= 1;
            limiter.let_in(&mut state);
        }
    }
}

impl State {
    /// Whether one of a class may enter; a newcomer only after those of its class who wait.
    fn may_enter(&self, class: Class, newcomer: bool) -> bool {
        let position = class as usize;
        if newcomer && !self.waiting[position].is_empty() {
            return false;
        }
        let total: usize = self.taken.iter().sum();
        if total >= self.permits {
            return false;
        }
        let higher_wait = self.waiting[..position].iter().any(|waiting| !waiting.is_empty());
        if higher_wait && self.taken[position] >= self.kept[position] {
            return false;
        }
        // What lower classes keep is left to them while they want it.
        let owed: usize = CLASSES[position + 1..]
            .iter()
            .map(|lower| *lower as usize)
            .map(|lower| {
                self.kept[lower]
                    .saturating_sub(self.taken[lower])
                    .min(self.waiting[lower].len())
            })
            .sum();
        total + owed < self.permits
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
        assert!(limiter.state.lock().taken.iter().all(|taken| *taken == 0));
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
