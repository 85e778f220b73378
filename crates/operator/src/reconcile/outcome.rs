//! What the operator does about the outcome of its writes.

use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use tokio::time::Instant;
use trainyard_api::TrainingJob;
use trainyard_core::model::Action;

use super::{ReconcileResult, Reconciler, Requeue, Round};
use crate::act::{Done, Failure, Target};
use crate::index::{JobKey, LocalState, WriteBackoffs};
use crate::metrics::Outcome;

/// How long to wait before asking again whether this replica still leads.
const LEADERSHIP_CHECK_DELAY: Duration = Duration::from_secs(1);
/// How long to wait for the watch to show a change that the server has reported. It nearly always
/// comes earlier.
pub(super) const WATCH_DELAY: Duration = Duration::from_secs(10);

impl Reconciler {
    /// Backs off from the actions that failed, while the rest of the job goes on.
    pub(super) fn note_outcome(
        &self,
        target: Target<'_>,
        job: &ObjectMeta,
        local: LocalState,
        backoffs: &WriteBackoffs,
        done: Done,
        round: &mut Round,
    ) -> Result<(), Failure> {
        if let Some(Failure::NotLeader) = done.failure {
            return Err(Failure::NotLeader);
        }
        if self.back_off(target, local, backoffs, done.tried) {
            round.outcome = Some(Outcome::Error);
        }
        if done.outdated {
            return self.look_again(target, job, round);
        }
        if done.conflict {
            let now = Instant::now();
            self.index
                .remember(target.uid, |local| local.conflicts_checked_at = Some(now));
            return Err(Failure::InTheWay);
        }
        match done.failure {
            Some(failure) => {
                if !matches!(failure, Failure::Refused(_)) {
                    round.outcome = Some(failure.outcome());
                }
                self.hold(target, job, local, failure, done.refusal)?;
            }
            None => self.taken(target, job, local, &done.taken),
        }
        Ok(())
    }

    /// Plans again for a job that has changed: at once if the index has the change, otherwise when
    /// the watch shows it. This is not a failure.
    fn look_again(
        &self,
        target: Target<'_>,
        decided_for: &ObjectMeta,
        round: &mut Round,
    ) -> Result<(), Failure> {
        // The same may be decided again, and has not been done.
        round.forget_did();
        let seen = |known: &TrainingJob| {
            (&known.metadata.uid, &known.metadata.resource_version)
                == (&decided_for.uid, &decided_for.resource_version)
        };
        match self.index.job(target.key) {
            Some(known) if seen(&known) => Err(Failure::Outdated),
            _ => Ok(()),
        }
    }

    /// The result of a reconcile that ended with a failure.
    pub(super) fn failed(&self, key: &JobKey, failure: &Failure) -> ReconcileResult {
        let next = match failure {
            // If the term has ended, the next one begins with all jobs; if it has not, this one is not to be forgotten.
            Failure::NotLeader => Requeue::At(Instant::now() + LEADERSHIP_CHECK_DELAY),
            // The watch will say what became of it.
            Failure::Gone | Failure::Former | Failure::NamespaceEnds => Requeue::Retry(None),
            Failure::Conflict | Failure::Replaced | Failure::Exists | Failure::Skipped => Requeue::Stale,
            Failure::Outdated => Requeue::At(Instant::now() + WATCH_DELAY),
            Failure::InTheWay => Requeue::Again,
            Failure::Refused(words) => {
                self.warn_of(key, words);
                Requeue::Retry(None)
            }
            Failure::Transient(error, pause) => {
                tracing::debug!(job = %key, %error, "a write failed and is tried again");
                Requeue::Retry(*pause)
            }
        };
        ReconcileResult::new(failure.outcome(), next)
    }
}

/// Treats actions that were just carried out, and are planned again, as failed: they had no effect
/// that the index shows.
pub(super) fn ineffective(actions: Vec<Action>) -> Done {
    let failure = actions.iter().any(Action::creates).then_some(Failure::Exists);
    let tried = actions.into_iter().filter(|action| !action.creates());
    Done {
        failure,
        tried: tried.map(|action| (action, None)).collect(),
        ..Done::default()
    }
}
