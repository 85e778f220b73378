//! Backoff for single writes that failed or had no effect. Other writes of the job go on.

use std::collections::HashSet;
use std::time::Duration;

use tokio::time::Instant;
use trainyard_core::model::Action;
use trainyard_core::plan::Plan;

use super::fingerprint::fingerprint;
use super::{Reconciler, RoundResult};
use crate::act::{Failure, Target};
use crate::index::{JobKey, LocalState, Lookup, WriteBackoff, WriteBackoffs};
use crate::queue::{Backoff, jitter};

/// For failures that are likely to last: a denial, or a deletion that a finalizer holds up.
pub(super) const LASTING: Backoff = Backoff {
    base: Duration::from_secs(1),
    max: Duration::from_mins(5),
};
/// For failures that may be over in a moment.
pub(super) const PASSING: Backoff = Backoff {
    base: Duration::from_millis(50),
    max: Duration::from_secs(30),
};

impl Reconciler {
    /// Backs off from writes that failed or may have had no effect. Returns true if any failed.
    pub(super) fn back_off(
        &self,
        target: Target<'_>,
        local: LocalState,
        backoffs: &WriteBackoffs,
        tried: Vec<(Action, Option<Failure>)>,
    ) -> bool {
        let now = Instant::now();
        let failure = tried.iter().find_map(|(_, failure)| failure.as_ref());
        if let Some(failure) = failure {
            self.warn(target.key, target.uid, local, failure.words());
        }
        let failed = failure.is_some();
        let next = tried.into_iter().map(|(action, failure)| {
            let pause = next(backoffs.get(&action), failure.as_ref(), now, jitter());
            (action, pause)
        });
        self.index.back_off(target.uid, next.collect());
        failed
    }

    /// Drops the backoffs of actions that are not planned any more.
    pub(super) fn forget_backoffs(&self, target: Target<'_>, backoffs: &WriteBackoffs, plan: &Plan) {
        if !backoffs.is_empty() {
            let wanted: HashSet<&Action> = plan.actions.iter().chain(&plan.after).collect();
            self.index.forget_backoffs(target.uid, &wanted);
        }
    }

    /// Logs a failure, unless it is the one that was last logged for this job.
    pub(super) fn warn(&self, key: &JobKey, uid: &str, local: LocalState, words: &str) {
        let print = fingerprint(words);
        if local.last_warning != Some(print) {
            tracing::warn!(job = %key, error = words, "a write failed; it is tried again, more and more seldom");
            self.index.remember(uid, |local| local.last_warning = Some(print));
        }
    }

    /// Like [`Self::warn`], by key.
    pub(super) fn warn_of(&self, key: &JobKey, words: &str) {
        if let Some(Lookup::Job(known)) = self.index.get(key) {
            self.warn(key, &known.uid, known.local, words);
        }
    }
}

/// Takes actions out of a plan that are in backoff: creations by the job's [`CreateBackoff`], every
/// other action by its own.
pub(super) fn hold_back(
    plan: &mut Plan,
    progress: &mut RoundResult,
    hold: Option<Instant>,
    backoffs: &WriteBackoffs,
    now: Instant,
) {
    if hold.is_none() && backoffs.is_empty() {
        return;
    }
    let mut goes = |action: &Action| {
        let until = if action.creates() {
            hold
        } else {
            let pause = backoffs.get(action).map(|pause| pause.until);
            pause.filter(|until| *until > now)
        };
        until.inspect(|until| progress.at(*until)).is_none()
    };
    plan.actions.retain(&mut goes);
    plan.after.retain(&mut goes);
}

fn next(before: Option<WriteBackoff>, failure: Option<&Failure>, now: Instant, jitter: f64) -> WriteBackoff {
    let tries = before.map_or(1, |before| before.tries.saturating_add(1));
    let pause = match failure {
        None | Some(Failure::Refused(_)) => LASTING.pause(tries, jitter),
        Some(Failure::Transient(_, asked)) => PASSING.pause(tries, jitter).max(asked.unwrap_or_default()),
        Some(_) => PASSING.pause(tries, jitter),
    };
    WriteBackoff {
        until: now + pause,
        tries,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_and_are_as_long_as_the_server_asks() {
        let now = Instant::now();
        let refused = Failure::Refused("no".to_owned());
        let first = next(None, Some(&refused), now, 0.0);
        let second = next(Some(first), Some(&refused), now, 0.0);
        assert_eq!(first.until - now, Duration::from_secs(1));
        assert_eq!(second.until - now, Duration::from_secs(2));
        assert_eq!(
            next(Some(first), None, now, 0.0),
            second,
            "an effect that it lacks"
        );
        let busy = Failure::Transient("busy".to_owned(), Some(Duration::from_secs(7)));
        assert_eq!(
            next(None, Some(&busy), now, 0.0).until - now,
            Duration::from_secs(7)
        );
    }
}
