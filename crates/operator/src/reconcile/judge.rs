//! What follows from what became of writes.

use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use tokio::time::Instant;
use trainyard_api::TrainingJob;
use trainyard_core::model::Action;

use super::{Next, Reconciler, Verdict, Work};
use crate::act::{Done, Failure, Target};
use crate::index::{JobKey, Memory, Pauses};
use crate::metrics::Outcome;

/// When to look again whether this replica may write, in a term that is not known to have ended.
const UNSURE: Duration = Duration::from_secs(1);
/// When to look again at a job of which the server says that it has changed. The watch, which has not said so yet, is all
/// but certain to be earlier.
pub(super) const UNSEEN: Duration = Duration::from_secs(10);

impl Reconciler {
    /// Judges what became of actions. What failed is tried again after a pause, while the rest of the job goes on.
    pub(super) fn judge(
        &self,
        target: Target<'_>,
        job: &ObjectMeta,
        memory: Memory,
        pauses: &Pauses,
        done: Done,
        work: &mut Work,
    ) -> Result<(), Failure> {
        if let Some(Failure::NotLeader) = done.failure {
            return Err(Failure::NotLeader);
        }
        if self.pause(target, memory, pauses, done.tried) {
            work.outcome = Some(Outcome::Error);
        }
        if done.outdated {
            return self.look_again(target, job, work);
        }
        if done.conflict {
            let now = Instant::now();
            self.index
                .remember(target.uid, |memory| memory.probed = Some(now));
            return Err(Failure::InTheWay);
        }
        match done.failure {
            Some(failure) => {
                if !matches!(failure, Failure::Refused(_)) {
                    work.outcome = Some(failure.outcome());
                }
                self.hold(target, job, memory, failure, done.refusal)?;
            }
            None => self.taken(target, job, memory, &done.taken),
        }
        Ok(())
    }

    /// Has it decided anew what is to be done for a job that has changed: at once, if the index knows the change, and
    /// otherwise when the watch tells of it. Nothing of that is a failure.
    fn look_again(
        &self,
        target: Target<'_>,
        decided_for: &ObjectMeta,
        work: &mut Work,
    ) -> Result<(), Failure> {
        // The same may be decided again, and has not been done.
        work.forget_did();
        let seen = |known: &TrainingJob| {
            (&known.metadata.uid, &known.metadata.resource_version)
                == (&decided_for.uid, &decided_for.resource_version)
        };
        match self.index.job(target.key) {
            Some(known) if seen(&known) => Err(Failure::Outdated),
            _ => Ok(()),
        }
    }

    /// What follows from a failure that ended a reconcile.
    pub(super) fn failed(&self, key: &JobKey, failure: &Failure) -> Verdict {
        let next = match failure {
            // If the term has ended, the next one begins with all jobs; if it has not, this one is not to be forgotten.
            Failure::NotLeader => Next::At(Instant::now() + UNSURE),
            // The watch will say what became of it.
            Failure::Gone | Failure::Former | Failure::NamespaceEnds => Next::Retry(None),
            Failure::Conflict | Failure::Replaced | Failure::Exists | Failure::Skipped => Next::Stale,
            Failure::Outdated => Next::At(Instant::now() + UNSEEN),
            Failure::InTheWay => Next::Again,
            Failure::Refused(words) => {
                self.warn_of(key, words);
                Next::Retry(None)
            }
            Failure::Transient(error, pause) => {
                tracing::debug!(job = %key, %error, "a write failed and is tried again");
                Next::Retry(*pause)
            }
        };
        Verdict::new(failure.outcome(), next)
    }
}

/// What is to be done and has just been done, as if it had failed: nothing that can be seen has come of it.
pub(super) fn ineffective(actions: Vec<Action>) -> Done {
    let failure = actions.iter().any(Action::creates).then_some(Failure::Exists);
    let tried = actions.into_iter().filter(|action| !action.creates());
    Done {
        failure,
        tried: tried.map(|action| (action, None)).collect(),
        ..Done::default()
    }
}
