//! One reconcile: look at the index, ask what to do, do it.

mod create_backoff;
mod fingerprint;
mod malformed;
mod outcome;
mod overdue;
mod result;
mod round;
mod status_metrics;
mod write_backoff;

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use trainyard_api::{TrainingJob, TrainingJobStatus};
use trainyard_core::model::StatusWrite;
use trainyard_core::plan::{Plan, plan};
use trainyard_core::view::{Conflict, SecretState, View};

use crate::act::{Class, Failure, Target, Writer};
use crate::clock::Clock;
use crate::events::Recorder;
use crate::index::{Index, JobKey, LocalState, Lookup, Snapshot};
use crate::metrics::{Metrics, Outcome};

use create_backoff::held;
use outcome::ineffective;
pub use result::{ReconcileResult, Requeue};
use round::{Round, RoundResult};
use status_metrics::StatusDelta;
use write_backoff::hold_back;

/// A status in which only counters or messages differ is not written more often than this.
const STATUS_INTERVAL: Duration = Duration::from_secs(10);
/// How long successes wait for others before they are written, with all that there are then.
const EARLY_INTERVAL: Duration = Duration::from_secs(1);
/// How often it is looked whether what is in a job's way still is.
const PROBE_INTERVAL: Duration = Duration::from_secs(30);
/// A reconcile that has looked so often, each time because of what it had done, lets others go first.
const ROUNDS: u32 = 8;
/// A time to look again that has passed already is taken to mean this.
const MIN_DELAY: Duration = Duration::from_millis(100);

/// Reconciles jobs.
pub struct Reconciler {
    /// Carries out what is decided.
    pub writer: Writer,
    /// What is known.
    pub index: Arc<Index>,
    /// Tells users.
    pub recorder: Recorder,
    /// Counts.
    pub metrics: Arc<Metrics>,
    /// The time.
    pub clock: Arc<dyn Clock>,
}

impl Reconciler {
    /// Looks at a job and does what is to be done.
    pub async fn reconcile(&self, key: &JobKey, term: &CancellationToken) -> ReconcileResult {
        let mut round = Round::default();
        let result = loop {
            let known = match self.index.get(key) {
                None => break Ok(ReconcileResult::REST),
                Some(Lookup::Malformed(malformed, local)) => {
                    break self.malformed(&malformed, *local, term).await;
                }
                Some(Lookup::Job(known)) => known,
            };
            match self.step(key, *known, term, &mut round).await {
                Ok(None) if round.rounds < ROUNDS => round.rounds += 1,
                Ok(None) => break Ok(ReconcileResult::new(Outcome::Acted, Requeue::Again)),
                Ok(Some(verdict)) => break Ok(verdict),
                Err(failure) => break Err(failure),
            }
        };
        let verdict = result.unwrap_or_else(|failure| self.failed(key, &failure));
        if let Some(uid) = round.made_sure.filter(|_| verdict.next != Requeue::Again) {
            // It is not watched: the next pods may come too late for it.
            self.index.remember(&uid, LocalState::doubt);
        }
        ReconcileResult {
            cost: round.cost,
            outcome: round.outcome.unwrap_or(verdict.outcome),
            ..verdict
        }
    }

    /// Looks once and does one thing: carries out actions, or waits for a place to write the status, or writes it and
    /// does what follows. None if it is to be looked at again, because things have changed meanwhile.
    async fn step(
        &self,
        key: &JobKey,
        known: Snapshot,
        term: &CancellationToken,
        round: &mut Round,
    ) -> Result<Option<ReconcileResult>, Failure> {
        let Snapshot {
            uid,
            job,
            pods,
            services,
            departed,
            conflicts,
            refusal,
            backoffs,
            progress: progress_said,
            nodes,
            local,
        } = known;
        if !job.is_ours() || job.metadata.deletion_timestamp.is_some() || local.deleted {
            return Ok(Some(ReconcileResult::REST));
        }
        let target = Target { key, uid: &uid, term };
        round.note_sure(local, &uid);
        if job.is_suspended() {
            self.forget(&uid, local, progress_said.is_some());
        }
        let started = Instant::now();
        let mut progress = RoundResult {
            acted: round.acted,
            next: None,
        };
        if !conflicts.is_empty() {
            let (changed, next) = self.probe(target, local, &conflicts, started).await?;
            if changed {
                return Ok(None);
            }
            progress.at(next);
        }
        let (now, started) = (self.clock.now(), Instant::now());
        let begun = processor_time();
        let mut plan = plan(&View {
            job: &job,
            pods: &pods,
            services: &services,
            departed: &departed,
            conflicts: &conflicts,
            secret: local.secret,
            granted: local.granted,
            grant_is_sure: local.grant_is_sure,
            refusal: refusal.as_deref(),
            progress: progress_said.as_deref(),
            nodes: &nodes,
            settings: &self.writer.settings(),
            now,
        });
        round.cost += processor_time().saturating_sub(begun);
        // Kept, they would have to be copied when the answers to what follows come in.
        drop((pods, services));

        if self.search(target, &plan.missing, round).await? {
            return Ok(None);
        }
        let hold = held(local.create_backoff, job.metadata.generation, started);
        self.forget_backoffs(target, &backoffs, &plan);
        hold_back(&mut plan, &mut progress, hold, &backoffs, started);
        self.act_on_overdue(target, local, &mut plan, &mut progress, started);
        if !plan.actions.is_empty() {
            round.permit = None;
            let done = if round.did_just(&plan.actions) {
                ineffective(plan.actions)
            } else {
                Box::pin(self.writer.act(target, &job, plan.actions)).await
            };
            round.acted |= done.acted > 0;
            self.note_outcome(target, &job.metadata, local, &backoffs, done, round)?;
            return Ok(None);
        }
        if let Some(wake) = plan.wake_at {
            let away = Duration::try_from(wake.duration_since(now)).unwrap_or_default();
            progress.at(started + away.max(MIN_DELAY));
        }
        let (status, due) = self.paced(target, local, std::mem::take(&mut plan.status), started);
        if status.is_some() && due > started {
            progress.at(due);
            // Nothing hangs on it: what depends on a status comes with `Now`.
            return Ok(Some(progress.verdict()));
        }
        if status.is_some() && round.permit.is_none() {
            let class = if plan.after.is_empty() {
                Class::Status
            } else {
                Class::Urgent
            };
            round.permit = self.writer.limiter().try_enter(class);
            if round.permit.is_none() {
                drop((job, plan, status));
                round.permit = Some(self.writer.limiter().enter(class).await);
                // What was to be written may be out of date.
                return Ok(None);
            }
        }
        let verdict = Box::pin(self.conclude(target, job, status, plan, now, progress, round)).await;
        let failed = |verdict: &ReconcileResult| verdict.outcome == Outcome::Error;
        if !departed.is_empty() && verdict.as_ref().is_ok_and(|verdict| !failed(verdict)) {
            self.index.forget_departed(&uid, &departed);
        }
        verdict.map(Some)
    }

    /// A status to write, and when.
    fn paced(
        &self,
        target: Target<'_>,
        local: LocalState,
        write: StatusWrite,
        now: Instant,
    ) -> (Option<Box<TrainingJobStatus>>, Instant) {
        let after = |pace: Duration| local.status_written.map_or(now, |written| written + pace);
        match write {
            StatusWrite::Unchanged => (None, now),
            StatusWrite::Now(status) => (Some(status), now),
            StatusWrite::Early(status) => {
                // The first of many successes is mostly followed by the others, and then by the end of the job.
                let since = local.unwritten_since.unwrap_or(now);
                if local.unwritten_since.is_none() {
                    self.index
                        .remember(target.uid, |local| local.unwritten_since = Some(now));
                }
                (Some(status), since + EARLY_INTERVAL)
            }
            StatusWrite::Soon(status) => (Some(status), after(STATUS_INTERVAL)),
        }
    }

    /// Forgets what is of no use once a job is suspended.
    fn forget(&self, uid: &str, local: LocalState, has_progress: bool) {
        if local.secret != SecretState::Unknown || local.granted.is_some() {
            // Somebody may remove it while nothing needs it.
            self.index.remember(uid, LocalState::forget_unwatched);
        }
        if has_progress {
            // Resuming starts afresh.
            self.index.forget_progress(uid);
        }
    }

    /// Looks, from time to time, whether what was in a job's way still is. Whether that has changed, and when to look
    /// again.
    async fn probe(
        &self,
        target: Target<'_>,
        local: LocalState,
        conflicts: &[Conflict],
        now: Instant,
    ) -> Result<(bool, Instant), Failure> {
        let due = local
            .conflicts_checked_at
            .map_or(now, |probed| probed + PROBE_INTERVAL);
        if due > now {
            return Ok((false, due));
        }
        self.index
            .remember(target.uid, |local| local.conflicts_checked_at = Some(now));
        let changed = self.writer.probe(target, conflicts).await?;
        Ok((changed, now + PROBE_INTERVAL))
    }

    /// Looks, once in a reconcile, for pods whose absence is about to count. Whether there were any after all.
    async fn search(
        &self,
        target: Target<'_>,
        missing: &[String],
        round: &mut Round,
    ) -> Result<bool, Failure> {
        if missing.is_empty() || std::mem::replace(&mut round.searched, true) {
            return Ok(false);
        }
        Box::pin(self.writer.find(target, missing)).await
    }

    /// Writes the status, and does what may be done only then.
    #[expect(
        clippy::too_many_arguments,
        reason = "the second half of a function that is long enough"
    )]
    async fn conclude(
        &self,
        target: Target<'_>,
        job: Arc<TrainingJob>,
        status: Option<Box<TrainingJobStatus>>,
        plan: Plan,
        now: Timestamp,
        mut progress: RoundResult,
        round: &mut Round,
    ) -> Result<ReconcileResult, Failure> {
        let notes = (!plan.events.is_empty()).then(|| job.metadata.clone());
        let generation = job.metadata.generation;
        if let Some(status) = status {
            let before = job.status.as_ref().map(StatusDelta::of).unwrap_or_default();
            match self.writer.write_status(target, job, &status).await {
                Err(Failure::Refused(words)) => {
                    tracing::error!(job = %target.key, error = words, "the server refuses the status");
                    return Ok(ReconcileResult::new(Outcome::Error, Requeue::Retry(None)));
                }
                result => result?,
            }
            let written = Instant::now();
            self.index.remember(target.uid, |local| {
                local.status_written = Some(written);
                local.unwritten_since = None;
            });
            self.count(target.key, &before, &StatusDelta::of(&status));
            progress.acted = true;
        }
        // What follows needs places of its own.
        round.permit = None;
        if let Some(metadata) = notes {
            plan.events
                .iter()
                .for_each(|note| self.recorder.note(&metadata, note, now));
        }
        if !plan.after.is_empty()
            && let Some(Lookup::Job(known)) = self.index.get(target.key)
            && *known.uid == *target.uid
            // What was decided for another spec is decided anew.
            && known.job.metadata.generation == generation
        {
            let Snapshot {
                job, local, backoffs, ..
            } = *known;
            let done = Box::pin(self.writer.act(target, &job, plan.after)).await;
            // Another look will tell when what failed is to be tried again.
            progress.acted = true;
            self.note_outcome(target, &job.metadata, local, &backoffs, done, round)?;
        }
        Ok(progress.verdict())
    }
}

/// The processor time of this thread. Time that a busy machine let us wait is no cost of ours.
fn processor_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::try_from(time).unwrap_or_default()
}

#[cfg(test)]
mod tests;
