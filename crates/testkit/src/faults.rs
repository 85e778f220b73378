//! Faults between an operator and the API server, and a test that crashes the operator at every one
//! of its writes.
//!
//! [`Faults`] is a tower layer; `trainyard_operator::client::build_with_layer` takes it. Its rules
//! are met in their order; each has its effect on the requests it matches, from one number on and
//! for a count of them.

mod call;
mod harness;
mod service;
mod snapshot;

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

pub use call::{Call, Verb};
pub use harness::{Report, Running, Scenario, Start, crash_everywhere, run_operator};
pub use service::{Faulty, FaultyBody};
pub use snapshot::snapshot;

/// CrashPoint the operator ends: before the server has the request, or before the operator has the
/// answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CrashPoint {
    /// The request is not sent.
    Before,
    /// The request is carried out, and its answer is not delivered.
    After,
}

/// What happens to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Effect {
    CrashBefore,
    CrashAfter,
    /// The operator has crashed: its requests are not sent.
    Dead,
    LoseAnswer,
    Answer {
        code: u16,
        retry_after: Option<u64>,
    },
    Gone,
    Refuse,
    Delay(Duration),
    SlowAnswer(Duration),
}

type Matcher = Box<dyn Fn(&Call) -> bool + Send>;

struct Rule {
    matcher: Matcher,
    /// How many matching requests pass before the effect.
    skip: u64,
    /// How many requests meet the effect.
    times: u64,
    effect: Effect,
}

#[derive(Default)]
struct State {
    rules: Vec<Rule>,
    crashed: bool,
    refusing: bool,
    /// Writes that were refused.
    refused: Vec<Call>,
}

/// Faults that happen to requests. Clones share them.
#[derive(Clone, Default)]
pub struct Faults {
    state: Arc<Mutex<State>>,
    crash: CancellationToken,
    traffic: Arc<watch::Sender<Traffic>>,
}

/// What has passed so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Requests.
    pub requests: u64,
    /// Writes: creates, updates, patches and deletes but for events and leases.
    pub writes: u64,
    /// Writes that wait for their answer.
    pub in_flight: u64,
}

impl std::fmt::Debug for Faults {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Faults({:?})", *self.traffic.borrow())
    }
}

impl Faults {
    /// No faults: a layer that only counts.
    pub fn none() -> Self {
        Self::default()
    }

    /// The operator crashes at its n-th write, counted from 1; see [`Faults::crashed`].
    pub fn crash_at(n: u64, when: CrashPoint) -> Self {
        let faults = Self::default();
        faults.crash_later(n, when);
        faults
    }

    /// The operator crashes at its n-th write from now on, counted from 1.
    pub fn crash_later(&self, n: u64, when: CrashPoint) {
        let effect = match when {
            CrashPoint::Before => Effect::CrashBefore,
            CrashPoint::After => Effect::CrashAfter,
        };
        let rule = Rule {
            matcher: Box::new(Call::is_write),
            skip: n.saturating_sub(1),
            times: 1,
            effect,
        };
        // Before rules that match every request.
        self.state.lock().rules.insert(0, rule);
    }

    /// The first `times` requests that match are carried out, and their answers are lost.
    #[must_use]
    pub fn lose_answers(self, times: u64, matching: impl Fn(&Call) -> bool + Send + 'static) -> Self {
        self.rule(matching, 0, times, Effect::LoseAnswer)
    }

    /// The first `times` requests that match are answered with this code and not carried out.
    #[must_use]
    pub fn answer(self, code: u16, times: u64, matching: impl Fn(&Call) -> bool + Send + 'static) -> Self {
        let effect = Effect::Answer {
            code,
            retry_after: None,
        };
        self.rule(matching, 0, times, effect)
    }

    /// The first `times` writes that match meet a conflict.
    #[must_use]
    pub fn conflicts(self, times: u64, matching: impl Fn(&Call) -> bool + Send + 'static) -> Self {
        self.answer(409, times, move |call| call.is_write() && matching(call))
    }

    /// The first `times` requests that match are answered with 429 and Retry-After.
    #[must_use]
    pub fn too_many(
        self,
        seconds: u64,
        times: u64,
        matching: impl Fn(&Call) -> bool + Send + 'static,
    ) -> Self {
        let effect = Effect::Answer {
            code: 429,
            retry_after: Some(seconds),
        };
        self.rule(matching, 0, times, effect)
    }

    /// The first `times` watches of a resource are told that their version is gone.
    #[must_use]
    pub fn gone(self, resource: impl Into<String>, times: u64) -> Self {
        let resource = resource.into();
        let matching = move |call: &Call| call.verb == Verb::Watch && call.resource == resource;
        self.rule(matching, 0, times, Effect::Gone)
    }

    /// Requests that match are sent later.
    #[must_use]
    pub fn delay(self, time: Duration, matching: impl Fn(&Call) -> bool + Send + 'static) -> Self {
        self.rule(matching, 0, u64::MAX, Effect::Delay(time))
    }

    /// Every piece of the answers of requests that match comes later: a watch that lags behind.
    #[must_use]
    pub fn slow(self, time: Duration, matching: impl Fn(&Call) -> bool + Send + 'static) -> Self {
        self.rule(matching, 0, u64::MAX, Effect::SlowAnswer(time))
    }

    /// Starts or stops refusing connections. Those that are open, such as watches, stay.
    pub fn refuse(&self, refusing: bool) {
        self.state.lock().refusing = refusing;
    }

    /// Waits until [`Faults::refuse`] has refused so many matching writes.
    pub async fn wait_until_refused(&self, times: usize, matching: impl Fn(&Call) -> bool) {
        let mut traffic = self.traffic();
        loop {
            traffic.mark_unchanged();
            let refused = self
                .state
                .lock()
                .refused
                .iter()
                .filter(|call| matching(call))
                .count();
            if refused >= times || traffic.changed().await.is_err() {
                return;
            }
        }
    }

    fn rule(
        self,
        matcher: impl Fn(&Call) -> bool + Send + 'static,
        skip: u64,
        times: u64,
        effect: Effect,
    ) -> Self {
        self.state.lock().rules.push(Rule {
            matcher: Box::new(matcher),
            skip,
            times,
            effect,
        });
        self
    }

    /// Cancelled when the operator crashes: drop all of its tasks.
    pub fn crashed(&self) -> &CancellationToken {
        &self.crash
    }

    /// The traffic, now and as it changes.
    pub fn traffic(&self) -> watch::Receiver<Traffic> {
        self.traffic.subscribe()
    }

    /// Waits until no write was sent for a while and none is in flight.
    pub async fn wait_until_idle(&self, time: Duration) {
        let mut traffic = self.traffic();
        loop {
            let now = *traffic.borrow_and_update();
            let moved = traffic.wait_for(|then| then.writes != now.writes || then.in_flight != now.in_flight);
            if tokio::time::timeout(time, moved).await.is_err() && now.in_flight == 0 {
                return;
            }
        }
    }

    /// Counts a request and returns its fault, if any.
    fn apply_rules(&self, call: &Call) -> Option<Effect> {
        let mut state = self.state.lock();
        if state.crashed {
            return Some(Effect::Dead);
        }
        self.traffic.send_modify(|traffic| {
            traffic.requests += 1;
            traffic.writes += u64::from(call.is_write());
        });
        if state.refusing {
            if call.is_write() {
                state.refused.push(call.clone());
            }
            return Some(Effect::Refuse);
        }
        for rule in &mut state.rules {
            if rule.times == 0 || !(rule.matcher)(call) {
                continue;
            }
            if rule.skip > 0 {
                rule.skip -= 1;
                continue;
            }
            rule.times -= 1;
            let effect = rule.effect;
            if effect == Effect::CrashBefore {
                state.crashed = true;
            }
            return Some(effect);
        }
        None
    }

    /// The operator crashes now: no request of it is sent any more.
    pub fn crash(&self) {
        self.state.lock().crashed = true;
        self.crash.cancel();
    }

    fn in_flight(&self, call: &Call) -> InFlight {
        let counted = call.is_write();
        if counted {
            self.traffic.send_modify(|traffic| traffic.in_flight += 1);
        }
        InFlight {
            traffic: counted.then(|| self.traffic.clone()),
        }
    }
}

/// Counts a write until it is dropped.
struct InFlight {
    traffic: Option<Arc<watch::Sender<Traffic>>>,
}

impl Drop for InFlight {
    fn drop(&mut self) {
        if let Some(traffic) = &self.traffic {
            traffic.send_modify(|traffic| traffic.in_flight -= 1);
        }
    }
}

#[cfg(test)]
mod tests;
