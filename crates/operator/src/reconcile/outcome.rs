//! What the operator does about the outcome of its writes: it backs off from those that failed, while
//! the rest of the job goes on, and tells the user what the server refuses.

use std::collections::HashSet;
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use tokio::time::Instant;
use trainyard_api::{Reason, TrainingJob};
use trainyard_core::local_state::{EventNews, WriteFailure};
use trainyard_core::model::{Action, JobEvent};
use trainyard_core::view::Refusal;

use super::fingerprint::{fingerprint, hash};
use super::{ReconcileResult, Reconciler, Requeue, Rounds};
use crate::act::{Done, Failure, Target};
use crate::backoff::jitter;
use crate::clock::monotonic;
use crate::index::{JobKey, Lookup};
use crate::metrics::Outcome;

/// How long to wait before asking again whether this replica still leads.
const LEADERSHIP_CHECK_DELAY: Duration = Duration::from_secs(1);
/// How long to wait for the watch to show a change that the server has reported. It nearly always
/// comes earlier.
pub(super) const WATCH_DELAY: Duration = Duration::from_secs(10);
/// After so many failures in a row that may pass, the user is told.
const FAILURES_BEFORE_EVENT: u32 = 4;

impl Reconciler {
    /// Records the outcome of actions. A failure that ends the reconcile is returned.
    pub(super) fn note_outcome(
        &self,
        target: Target<'_>,
        job: &ObjectMeta,
        done: Done,
        rounds: &mut Rounds,
    ) -> Result<(), Failure> {
        if let Some(Failure::NotLeader) = done.failure {
            return Err(Failure::NotLeader);
        }
        if self.back_off_writes(target, done.tried) {
            rounds.outcome = Some(Outcome::Error);
        }
        if done.outdated {
            return self.look_again(target, job, rounds);
        }
        if done.conflict {
            let now = monotonic();
            self.index
                .remember(target.uid, |local| local.conflicts_checked_at = Some(now));
            return Err(Failure::InTheWay);
        }
        let Some(failure) = done.failure else {
            self.record_creates(target, job, &done.taken);
            return Ok(());
        };
        if !matches!(failure, Failure::Refused(_)) {
            rounds.outcome = Some(failure.outcome());
        }
        self.back_off_creates(target, job, failure, done.refusal)
    }

    /// Backs off from writes that failed or may have had no effect. Returns true if any failed.
    fn back_off_writes(&self, target: Target<'_>, tried: Vec<(Action, Option<Failure>)>) -> bool {
        if tried.is_empty() {
            return false;
        }
        let failure = tried.iter().find_map(|(_, failure)| failure.as_ref());
        if let Some(failure) = failure {
            self.warn(target.key, target.uid, failure.words());
        }
        let failed = failure.is_some();
        let writes = tried.into_iter().map(|(action, failure)| {
            let failure = failure.as_ref().map_or(WriteFailure::Lasting, write_failure);
            (action, failure)
        });
        self.index.remember(target.uid, |local| {
            local.back_off_writes(writes, monotonic(), jitter());
        });
        failed
    }

    /// Backs off from creating children, and tells the user unless that was told lately. Returns the
    /// failure if it may pass, so that the whole job is retried soon.
    fn back_off_creates(
        &self,
        target: Target<'_>,
        job: &ObjectMeta,
        failure: Failure,
        refusal: Option<Refusal>,
    ) -> Result<(), Failure> {
        let class = write_failure(&failure);
        let kind = refusal.as_ref().map(|refusal| refusal.kind);
        let failures = self.index.remember(target.uid, |local| {
            local.back_off_creates(class, job.generation, kind, monotonic(), jitter())
        });
        let is_passing = matches!(class, WriteFailure::Passing(_));
        if is_passing && failures.is_none_or(|failures| failures < FAILURES_BEFORE_EVENT) {
            return Err(failure);
        }
        if let Some(refusal) = refusal.filter(|_| failure != Failure::NamespaceEnds) {
            self.record_refusal(target, job, &failure, refusal);
        }
        Ok(())
    }

    fn record_refusal(&self, target: Target<'_>, job: &ObjectMeta, failure: &Failure, refusal: Refusal) {
        let message = refusal.to_string();
        let print = match failure {
            // Which of them it is makes a difference: they go one by one.
            Failure::Former => hash(&message),
            _ => fingerprint(&refusal.message),
        };
        let news = self
            .index
            .remember(target.uid, |local| local.record_event(print, monotonic()));
        if news == Some(EventNews::New) {
            // What says the same is not replaced, so that a status with it in it stays as it is.
            self.index.refuse(target.uid, Some(refusal));
        }
        if news != Some(EventNews::Known) {
            tracing::warn!(job = %target.key, error = message, "children could not be created");
            let event = JobEvent {
                warning: true,
                reason: Reason::CreateFailed,
                message,
            };
            self.recorder.note(job, &event, self.clock.now());
        }
    }

    /// Ends the backoff once children of these kinds were created.
    fn record_creates(&self, target: Target<'_>, job: &ObjectMeta, kinds: &HashSet<&'static str>) {
        let is_over = self
            .index
            .remember(target.uid, |local| local.record_creates(job.generation, kinds));
        if is_over == Some(true) {
            self.index.refuse(target.uid, None);
        }
    }

    /// Plans again for a job that has changed: at once if the index has the change, otherwise when
    /// the watch shows it. This is not a failure.
    fn look_again(
        &self,
        target: Target<'_>,
        decided_for: &ObjectMeta,
        rounds: &mut Rounds,
    ) -> Result<(), Failure> {
        // The same may be decided again, and has not been done.
        rounds.forget_did();
        let seen = |known: &TrainingJob| {
            (&known.metadata.uid, &known.metadata.resource_version)
                == (&decided_for.uid, &decided_for.resource_version)
        };
        match self.index.job(target.key) {
            Some(known) if seen(&known) => Err(Failure::Outdated),
            _ => Ok(()),
        }
    }

    /// Logs a failure, unless it is the one that was last logged for this job.
    fn warn(&self, key: &JobKey, uid: &str, words: &str) {
        let print = fingerprint(words);
        if self.index.remember(uid, |local| local.record_warning(print)) == Some(true) {
            tracing::warn!(job = %key, error = words, "a write failed; it is tried again, more and more seldom");
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
                if let Some(Lookup::Job(known)) = self.index.get(key) {
                    self.warn(key, &known.uid, words);
                }
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

/// How long a failure is likely to last.
fn write_failure(failure: &Failure) -> WriteFailure {
    match failure {
        Failure::Refused(_) | Failure::NamespaceEnds => WriteFailure::Lasting,
        Failure::Former => WriteFailure::FormerJob,
        Failure::Transient(_, asked) => WriteFailure::Passing(*asked),
        _ => WriteFailure::Passing(None),
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
