//! Handles the results of writes: backs off from writes that failed, while the rest of the job goes
//! on, and tells the user what the server refuses.

use std::collections::HashSet;
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use tokio::time::Instant;
use trainyard_api::{Reason, TrainingJob};
use trainyard_core::local_state::{EventNews, WriteFailure};
use trainyard_core::model::{Action, JobEvent};
use trainyard_core::view::Refusal;

use super::fingerprint::{fingerprint, hash};
use super::{Reconciler, Rounds};
use crate::act::{ActionResults, Failure, Target};
use crate::backoff::jitter;
use crate::clock::monotonic;
use crate::controller::{ReconcileResult, Requeue};
use crate::index::{JobKey, Lookup};
use crate::metrics::Outcome;

/// How long to wait before asking again whether this replica still leads.
const LEADERSHIP_CHECK_DELAY: Duration = Duration::from_secs(1);
/// How long to wait for the watch to show a change that the server has reported. It nearly always
/// comes earlier.
pub(super) const WATCH_DELAY: Duration = Duration::from_secs(10);
/// After so many passing failures in a row, the user gets an event.
const FAILURES_BEFORE_EVENT: u32 = 4;

impl Reconciler {
    /// Records the results of actions. Returns a failure if it ends the reconcile.
    pub(super) fn record_results(
        &self,
        target: Target<'_>,
        job: &ObjectMeta,
        results: ActionResults,
        rounds: &mut Rounds,
    ) -> Result<(), Failure> {
        if let Some(Failure::NotLeader) = results.failure {
            return Err(Failure::NotLeader);
        }
        if self.back_off_writes(target, results.unsuccessful) {
            rounds.outcome = Some(Outcome::Error);
        }
        if results.outdated {
            return self.plan_changed_job(target, job, rounds);
        }
        if results.conflict {
            let now = monotonic();
            self.index
                .update_local(target.uid, |local| local.record_conflict_check(now));
            return Err(Failure::InTheWay);
        }
        let Some(failure) = results.failure else {
            self.record_creates(target, job, &results.created);
            return Ok(());
        };
        if !matches!(failure, Failure::Refused(_)) {
            rounds.outcome = Some(failure.outcome());
        }
        self.back_off_creates(target, job, failure, results.refusal)
    }

    /// Backs off from writes that failed or may have had no effect. Returns true if any failed.
    fn back_off_writes(&self, target: Target<'_>, unsuccessful: Vec<(Action, Option<Failure>)>) -> bool {
        if unsuccessful.is_empty() {
            return false;
        }
        let failure = unsuccessful.iter().find_map(|(_, failure)| failure.as_ref());
        if let Some(failure) = failure {
            self.log_failure(target.key, target.uid, failure.words());
        }
        let failed = failure.is_some();
        let writes = unsuccessful.into_iter().map(|(action, failure)| {
            let failure = failure.as_ref().map_or(WriteFailure::Lasting, write_failure);
            (action, failure)
        });
        self.index.update_local(target.uid, |local| {
            local.back_off_writes(writes, monotonic(), jitter());
        });
        failed
    }

    /// Backs off from creating children, and sends an event unless the same was sent lately.
    /// Returns the failure if it may pass, so that the whole job is retried soon.
    fn back_off_creates(
        &self,
        target: Target<'_>,
        job: &ObjectMeta,
        failure: Failure,
        refusal: Option<Refusal>,
    ) -> Result<(), Failure> {
        let class = write_failure(&failure);
        let kind = refusal.as_ref().map(|refusal| refusal.kind);
        let failures = self.index.update_local(target.uid, |local| {
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
        let fingerprint = match failure {
            // The name matters here: these objects are deleted one by one.
            Failure::Former => hash(&message),
            _ => fingerprint(&refusal.message),
        };
        let news = self
            .index
            .update_local(target.uid, |local| local.record_event(fingerprint, monotonic()));
        if news == Some(EventNews::New) {
            // A refusal that says the same is not replaced, so that a status that quotes it does
            // not change.
            self.index.set_refusal(target.uid, Some(refusal));
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
            .update_local(target.uid, |local| local.record_creates(job.generation, kinds));
        if is_over == Some(true) {
            self.index.set_refusal(target.uid, None);
        }
    }

    /// Plans again for a job that has changed: at once if the index has the change, otherwise when
    /// the watch shows it. This is not a failure.
    fn plan_changed_job(
        &self,
        target: Target<'_>,
        decided_for: &ObjectMeta,
        rounds: &mut Rounds,
    ) -> Result<(), Failure> {
        // The actions were not carried out, so the same ones may be planned again.
        rounds.forget_last_actions();
        let is_unchanged = |known: &TrainingJob| {
            (&known.metadata.uid, &known.metadata.resource_version)
                == (&decided_for.uid, &decided_for.resource_version)
        };
        match self.index.job(target.key) {
            Some(known) if is_unchanged(&known) => Err(Failure::Outdated),
            _ => Ok(()),
        }
    }

    /// Logs a failure, unless it is the one that was last logged for this job.
    fn log_failure(&self, key: &JobKey, uid: &str, message: &str) {
        let fingerprint = fingerprint(message);
        if self
            .index
            .update_local(uid, |local| local.record_warning(fingerprint))
            == Some(true)
        {
            tracing::warn!(job = %key, error = message, "a write failed; it is tried again, more and more seldom");
        }
    }

    /// The result of a reconcile that ended with a failure.
    pub(super) fn result_of(&self, key: &JobKey, failure: &Failure) -> ReconcileResult {
        let next = match failure {
            // If the term has ended, the next one begins with all jobs. If it has not, this job
            // must not be forgotten.
            Failure::NotLeader => Requeue::At(Instant::now() + LEADERSHIP_CHECK_DELAY),
            // The watch will show what happened.
            Failure::Gone | Failure::Former | Failure::NamespaceEnds => Requeue::Retry(None),
            Failure::Conflict | Failure::Replaced | Failure::Exists | Failure::Skipped => Requeue::Stale,
            Failure::Outdated => Requeue::At(Instant::now() + WATCH_DELAY),
            Failure::InTheWay => Requeue::Again,
            Failure::Refused(message) => {
                if let Some(Lookup::Job(known)) = self.index.get(key) {
                    self.log_failure(key, &known.uid, message);
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

/// The result of actions that are planned again right after they were carried out: they count as
/// failed, because they had no visible effect.
pub(super) fn ineffective(actions: Vec<Action>) -> ActionResults {
    let failure = actions.iter().any(Action::creates).then_some(Failure::Exists);
    let unsuccessful = actions.into_iter().filter(|action| !action.creates());
    ActionResults {
        failure,
        unsuccessful: unsuccessful.map(|action| (action, None)).collect(),
        ..ActionResults::default()
    }
}
