//! Handles the results of writes: backs off from writes that failed, while the rest of the job goes
//! on, and tells the user what the server refuses.

use std::collections::HashSet;
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use tokio::time::Instant;
use trainyard_api::{Reason, TrainingJob};
use trainyard_core::local_state::{BackoffKind, EventNews};
use trainyard_core::model::{Action, JobEvent};
use trainyard_core::view::Refusal;

use super::fingerprint::{fingerprint, hash};
use super::{Reconciler, Rounds};
use crate::act::{ActionResults, RequestError, Result, Target};
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
    /// Records the results of actions. Returns an error if it ends the reconcile.
    pub(super) fn record_results(
        &self,
        target: Target<'_>,
        job: &ObjectMeta,
        results: ActionResults,
        rounds: &mut Rounds,
    ) -> Result<()> {
        if let Some(RequestError::NotLeader) = results.error {
            return Err(RequestError::NotLeader);
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
            return Err(RequestError::NameTaken);
        }
        let Some(error) = results.error else {
            self.record_creates(target, job, &results.created);
            return Ok(());
        };
        if !matches!(error, RequestError::Refused(_)) {
            rounds.outcome = Some(error.outcome());
        }
        self.back_off_creates(target, job, error, results.refusal)
    }

    /// Backs off from writes that failed or may have had no effect. Returns true if any failed.
    fn back_off_writes(&self, target: Target<'_>, unsuccessful: Vec<(Action, Option<RequestError>)>) -> bool {
        if unsuccessful.is_empty() {
            return false;
        }
        let error = unsuccessful.iter().find_map(|(_, error)| error.as_ref());
        if let Some(error) = error {
            self.log_error(target.key, target.uid, error.message());
        }
        let failed = error.is_some();
        let writes = unsuccessful.into_iter().map(|(action, error)| {
            let error = error.as_ref().map_or(BackoffKind::Lasting, backoff_kind);
            (action, error)
        });
        self.index.update_local(target.uid, |local| {
            local.back_off_writes(writes, monotonic(), jitter());
        });
        failed
    }

    /// Backs off from creating children, and sends an event unless the same was sent lately.
    /// Returns the error if it may pass, so that the whole job is retried soon.
    fn back_off_creates(
        &self,
        target: Target<'_>,
        job: &ObjectMeta,
        error: RequestError,
        refusal: Option<Refusal>,
    ) -> Result<()> {
        let class = backoff_kind(&error);
        let kind = refusal.as_ref().map(|refusal| refusal.kind);
        let failures = self.index.update_local(target.uid, |local| {
            local.back_off_creates(class, job.generation, kind, monotonic(), jitter())
        });
        let is_passing = matches!(class, BackoffKind::Passing(_));
        if is_passing && failures.is_none_or(|failures| failures < FAILURES_BEFORE_EVENT) {
            return Err(error);
        }
        if let Some(refusal) = refusal.filter(|_| error != RequestError::NamespaceEnds) {
            self.record_refusal(target, job, &error, refusal);
        }
        Ok(())
    }

    fn record_refusal(&self, target: Target<'_>, job: &ObjectMeta, error: &RequestError, refusal: Refusal) {
        let message = refusal.to_string();
        let fingerprint = match error {
            // The name matters here: these objects are deleted one by one.
            RequestError::Former => hash(&message),
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
            self.recorder.record(job, &event, self.clock.now());
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
    /// the watch shows it. This is not an error.
    fn plan_changed_job(
        &self,
        target: Target<'_>,
        decided_for: &ObjectMeta,
        rounds: &mut Rounds,
    ) -> Result<()> {
        // The actions were not carried out, so the same ones may be planned again.
        rounds.forget_last_actions();
        let is_unchanged = |known: &TrainingJob| {
            (&known.metadata.uid, &known.metadata.resource_version)
                == (&decided_for.uid, &decided_for.resource_version)
        };
        match self.index.job(target.key) {
            Some(known) if is_unchanged(&known) => Err(RequestError::Outdated),
            _ => Ok(()),
        }
    }

    /// Logs an error, unless it is the one that was last logged for this job.
    fn log_error(&self, key: &JobKey, uid: &str, message: &str) {
        let fingerprint = fingerprint(message);
        if self
            .index
            .update_local(uid, |local| local.record_warning(fingerprint))
            == Some(true)
        {
            tracing::warn!(job = %key, error = message, "a write failed; it is tried again, more and more seldom");
        }
    }

    /// The result of a reconcile that ended with an error.
    pub(super) fn result_of(&self, key: &JobKey, error: &RequestError) -> ReconcileResult {
        let next = match error {
            // If the term has ended, the next one begins with all jobs. If it has not, this job
            // must not be forgotten.
            RequestError::NotLeader => Requeue::At(Instant::now() + LEADERSHIP_CHECK_DELAY),
            // The watch will show what happened.
            RequestError::Gone | RequestError::Former | RequestError::NamespaceEnds => Requeue::Retry(None),
            RequestError::VersionConflict
            | RequestError::Replaced
            | RequestError::Exists
            | RequestError::Skipped => Requeue::Stale,
            RequestError::Outdated => Requeue::At(Instant::now() + WATCH_DELAY),
            RequestError::NameTaken => Requeue::Again,
            RequestError::Refused(message) => {
                if let Some(Lookup::Job(known)) = self.index.get(key) {
                    self.log_error(key, &known.uid, message);
                }
                Requeue::Retry(None)
            }
            RequestError::Transient(error, pause) => {
                tracing::debug!(job = %key, %error, "a write failed and is tried again");
                Requeue::Retry(*pause)
            }
        };
        ReconcileResult::new(error.outcome(), next)
    }
}

/// How long an error is likely to last.
fn backoff_kind(error: &RequestError) -> BackoffKind {
    match error {
        RequestError::Refused(_) | RequestError::NamespaceEnds => BackoffKind::Lasting,
        RequestError::Former => BackoffKind::FormerJob,
        RequestError::Transient(_, asked) => BackoffKind::Passing(*asked),
        _ => BackoffKind::Passing(None),
    }
}

/// The result of actions that are planned again right after they were carried out: they count as
/// failed, because they had no visible effect.
pub(super) fn ineffective(actions: Vec<Action>) -> ActionResults {
    let error = actions
        .iter()
        .any(Action::creates)
        .then_some(RequestError::Exists);
    let unsuccessful = actions.into_iter().filter(|action| !action.creates());
    ActionResults {
        error,
        unsuccessful: unsuccessful.map(|action| (action, None)).collect(),
        ..ActionResults::default()
    }
}
