//! Writes that failed or changed nothing: each is sent again after a pause that grows, and holds nothing else up.

use std::collections::HashSet;
use std::time::Duration;

use tokio::time::Instant;
use trainyard_core::model::Action;
use trainyard_core::plan::Plan;

use super::fingerprint::fingerprint;
use super::{Progress, Reconciler};
use crate::act::{Failure, Target};
use crate::index::{JobKey, Known, Memory, Pause, Pauses};
use crate::queue::{Backoff, jitter};

/// The pause after what is likely to happen again: a denial, or a deletion that a finalizer holds up.
pub(super) const LASTING: Backoff = Backoff {
    base: Duration::from_secs(1),
    max: Duration::from_mins(5),
};
/// The pause after what may be over in a moment.
pub(super) const PASSING: Backoff = Backoff {
    base: Duration::from_millis(50),
    max: Duration::from_secs(30),
};

impl Reconciler {
    /// Lets writes wait that failed or may have changed nothing. Whether any failed.
    pub(super) fn pause(
        &self,
        target: Target<'_>,
        memory: Memory,
        pauses: &Pauses,
        tried: Vec<(Action, Option<Failure>)>,
    ) -> bool {
        let now = Instant::now();
        let failure = tried.iter().find_map(|(_, failure)| failure.as_ref());
        if let Some(failure) = failure {
            self.warn(target.key, target.uid, memory, failure.words());
        }
        let failed = failure.is_some();
        let next = tried.into_iter().map(|(action, failure)| {
            let pause = next(pauses.get(&action), failure.as_ref(), now, jitter());
            (action, pause)
        });
        self.index.pause(target.uid, next.collect());
        failed
    }

    /// Forgets the pauses of what is not wanted any more.
    pub(super) fn forget_pauses(&self, target: Target<'_>, pauses: &Pauses, plan: &Plan) {
        if !pauses.is_empty() {
            let wanted: HashSet<&Action> = plan.actions.iter().chain(&plan.after).collect();
            self.index.forget_pauses(target.uid, &wanted);
        }
    }

    /// Logs a failure, unless the same was the last one of this job.
    pub(super) fn warn(&self, key: &JobKey, uid: &str, memory: Memory, words: &str) {
        let print = fingerprint(words);
        if memory.warned != Some(print) {
            tracing::warn!(job = %key, error = words, "a write failed; it is tried again, more and more seldom");
            self.index.remember(uid, |memory| memory.warned = Some(print));
        }
    }

    /// The same for a job of which only the key is at hand.
    pub(super) fn warn_of(&self, key: &JobKey, words: &str) {
        if let Some(Known::Job(known)) = self.index.get(key) {
            self.warn(key, &known.uid, known.memory, words);
        }
    }
}

/// Takes out of a plan what has to wait: creations as long as these are held, anything else as long as it pauses itself.
pub(super) fn hold_back(
    plan: &mut Plan,
    progress: &mut Progress,
    hold: Option<Instant>,
    pauses: &Pauses,
    now: Instant,
) {
    if hold.is_none() && pauses.is_empty() {
        return;
    }
    let mut goes = |action: &Action| {
        let until = if action.creates() {
            hold
        } else {
            let pause = pauses.get(action).map(|pause| pause.until);
            pause.filter(|until| *until > now)
        };
        until.inspect(|until| progress.at(*until)).is_none()
    };
    plan.actions.retain(&mut goes);
    plan.after.retain(&mut goes);
}

fn next(before: Option<Pause>, failure: Option<&Failure>, now: Instant, jitter: f64) -> Pause {
    let tries = before.map_or(1, |before| before.tries.saturating_add(1));
    let pause = match failure {
        None | Some(Failure::Refused(_)) => LASTING.pause(tries, jitter),
        Some(Failure::Transient(_, asked)) => PASSING.pause(tries, jitter).max(asked.unwrap_or_default()),
        Some(_) => PASSING.pause(tries, jitter),
    };
    Pause {
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
