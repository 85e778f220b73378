//! One reconcile: take a snapshot, plan, carry out the plan's next step, until nothing is left to
//! do.

mod fingerprint;
mod malformed;
mod outcome;
mod round;
mod status_metrics;

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use trainyard_api::TrainingJob;
use trainyard_core::local_state::LocalState;
use trainyard_core::model::Action;
use trainyard_core::plan::{Plan, StatusChange, Step, plan};
use trainyard_core::view::{Conflict, View};

use crate::act::{Class, RequestError, Result, Target, Writer};
use crate::clock::{Clock, monotonic};
use crate::controller::{ReconcileResult, Requeue};
use crate::events::Recorder;
use crate::index::{Index, JobKey, Lookup, Snapshot};
use crate::metrics::{Metrics, Outcome};

use outcome::ineffective;
use round::Rounds;
use status_metrics::StatusSummary;

/// A reconcile plans again at most this often; then other jobs go first.
const MAX_REPLANS: u32 = 8;
/// The shortest delay before a job is planned again, also if that is due already.
const MIN_DELAY: Duration = Duration::from_millis(50);

pub struct Reconciler {
    /// Carries out planned writes.
    pub writer: Writer,
    /// Knows all jobs and their children.
    pub index: Arc<Index>,
    pub recorder: Recorder,
    /// Counts reconciles and restarts.
    pub metrics: Arc<Metrics>,
    pub clock: Arc<dyn Clock>,
}

/// What follows a round.
enum AfterRound {
    /// Plan again, because something has changed.
    PlanAgain,
    /// The reconcile is over.
    End(ReconcileResult),
}

impl Reconciler {
    /// Reconciles one job.
    pub async fn reconcile(&self, key: &JobKey, term: &CancellationToken) -> ReconcileResult {
        let mut rounds = Rounds::default();
        let result = loop {
            match self.round(key, term, &mut rounds).await {
                Ok(AfterRound::PlanAgain) if rounds.replans < MAX_REPLANS => rounds.replans += 1,
                Ok(AfterRound::PlanAgain) => break ReconcileResult::new(Outcome::Acted, Requeue::Again),
                Ok(AfterRound::End(result)) => break result,
                Err(error) => break self.result_of(key, &error),
            }
        };
        if let Some(uid) = rounds.relied_on.filter(|_| result.next != Requeue::Again) {
            // The object is not watched. When the next pods are created, it may be deleted.
            self.index.update_local(&uid, LocalState::doubt_unwatched);
        }
        ReconcileResult {
            cost: rounds.cost,
            outcome: rounds.outcome.unwrap_or(result.outcome),
            ..result
        }
    }

    /// Plans once and carries out one step.
    async fn round(&self, key: &JobKey, term: &CancellationToken, rounds: &mut Rounds) -> Result<AfterRound> {
        let snapshot = match self.index.get(key) {
            None => return Ok(AfterRound::End(ReconcileResult::REST)),
            Some(Lookup::Malformed(malformed, local)) => {
                let uid = malformed.metadata.uid.as_deref().unwrap_or_default();
                let target = Target { key, uid, term };
                let exec_right = local.exec_right.clone();
                let result = self.report_malformed(&malformed, *local, term).await?;
                self.writer.withdraw_budget(target).await?;
                Box::pin(self.writer.withdraw_exec_right(target, &exec_right)).await?;
                return Ok(AfterRound::End(result));
            }
            Some(Lookup::Job(snapshot)) => snapshot,
        };
        if snapshot.local.is_deleted {
            // The watch is about to say so.
            return Ok(AfterRound::End(ReconcileResult::REST));
        }
        let now = self.clock.now();
        let plan = self.plan(&snapshot, now, rounds);
        let requeue = requeue(&plan, now);
        let Snapshot {
            uid,
            job,
            departed,
            conflicts,
            pods,
            services,
            ..
        } = *snapshot;
        // While the snapshot shares them, the index would have to copy them for every answer to a
        // write.
        drop((pods, services));
        let target = Target { key, uid: &uid, term };
        let result = match plan.step() {
            Step::CheckConflicts => return self.check_conflicts(target, &conflicts).await,
            Step::ConfirmAbsence(pods) => {
                rounds.absence_is_confirmed = true;
                Box::pin(self.writer.confirm_absence(target, &pods)).await?;
                return Ok(AfterRound::PlanAgain);
            }
            Step::Act(actions) => {
                Box::pin(self.act(target, &job, actions, rounds)).await?;
                return Ok(AfterRound::PlanAgain);
            }
            Step::Wait => return Ok(AfterRound::End(rounds.result(requeue))),
            Step::WriteStatus(change) => {
                let Some(change) = self.take_permit(change, rounds).await else {
                    return Ok(AfterRound::PlanAgain);
                };
                Box::pin(self.write_status(target, job, change, now, rounds)).await?
            }
            Step::Done => rounds.result(requeue),
        };
        if result.outcome != Outcome::Error && !departed.is_empty() {
            self.index.forget_departed(&uid, &departed);
        }
        Ok(AfterRound::End(result))
    }

    /// Plans, and records what the next plan needs.
    fn plan(&self, snapshot: &Snapshot, now: Timestamp, rounds: &mut Rounds) -> Plan {
        let Snapshot { uid, job, local, .. } = snapshot;
        rounds.note_reliance(local, uid);
        if job.is_suspended() {
            self.forget_run(snapshot);
        }
        let started = processor_time();
        let plan = plan(&View {
            job,
            frameworks: &self.index.frameworks_for(job),
            pods: &snapshot.pods,
            services: &snapshot.services,
            departed: &snapshot.departed,
            conflicts: &snapshot.conflicts,
            local,
            absence_is_confirmed: rounds.absence_is_confirmed,
            refusal: snapshot.refusal.as_deref(),
            progress: snapshot.progress.as_deref(),
            nodes: &snapshot.nodes,
            budgets: snapshot.budgets.as_ref(),
            settings: &self.writer.settings(),
            now,
            instant: monotonic(),
        });
        rounds.cost += processor_time().saturating_sub(started);
        if plan.waits() != local.waits || !plan.moot_backoffs().is_empty() {
            self.index
                .update_local(uid, |local| local.record_plan(plan.waits(), plan.moot_backoffs()));
        }
        plan
    }

    /// Drops what is obsolete once a job is suspended.
    fn forget_run(&self, snapshot: &Snapshot) {
        if snapshot.local.knows_run() {
            // Somebody may delete these objects while nothing needs them.
            self.index.update_local(&snapshot.uid, LocalState::forget_run);
        }
        if snapshot.progress.is_some() {
            // A resumed job starts afresh.
            self.index.forget_progress(&snapshot.uid);
        }
    }

    async fn check_conflicts(&self, target: Target<'_>, conflicts: &[Conflict]) -> Result<AfterRound> {
        let now = monotonic();
        self.index
            .update_local(target.uid, |local| local.record_conflict_check(now));
        self.writer.check_conflicts(target, conflicts).await?;
        Ok(AfterRound::PlanAgain)
    }

    /// Carries out actions. If they are the same as in the round before, they had no effect and are
    /// not sent again.
    async fn act(
        &self,
        target: Target<'_>,
        job: &TrainingJob,
        actions: Vec<Action>,
        rounds: &mut Rounds,
    ) -> Result<()> {
        // Writes of actions need permits of their own.
        rounds.permit = None;
        let is_start = |action: &&Action| matches!(action, Action::StartPod { .. });
        let pods = actions.iter().filter(is_start).count();
        if pods > 0 {
            tracing::info!(job = %target.key, pods, "pods wait that may start: they are told so by an annotation");
        }
        let results = if rounds.repeats_last(&actions) {
            ineffective(actions)
        } else {
            Box::pin(self.writer.act(target, job, actions)).await
        };
        rounds.acted |= results.acted > 0;
        self.record_results(target, &job.metadata, results, rounds)
    }

    /// Takes a permit to write a status. If it had to wait, the status may be out of date: it
    /// returns `None`, and keeps the permit for the next round.
    async fn take_permit(&self, change: StatusChange, rounds: &mut Rounds) -> Option<StatusChange> {
        if rounds.permit.is_some() {
            return Some(change);
        }
        // What follows from a status is more urgent than the next one: of many jobs in trouble, the
        // first are helped soon, and not all of them late.
        let class = Class::Status;
        rounds.permit = self.writer.limiter().try_enter(class);
        if rounds.permit.is_some() {
            return Some(change);
        }
        drop(change);
        rounds.permit = Some(self.writer.limiter().enter(class).await);
        None
    }

    /// Writes the status, then carries out the actions that had to wait for it.
    async fn write_status(
        &self,
        target: Target<'_>,
        job: Arc<TrainingJob>,
        change: StatusChange,
        now: Timestamp,
        rounds: &mut Rounds,
    ) -> Result<ReconcileResult> {
        let StatusChange {
            status,
            events,
            drain,
            then,
        } = change;
        let metadata = job.metadata.clone();
        let before = job.status.as_ref().map(StatusSummary::of).unwrap_or_default();
        match self.writer.write_status(target, job, &status).await {
            Err(RequestError::Refused(words)) => {
                tracing::error!(job = %target.key, error = words, "the server refuses the status");
                return Ok(ReconcileResult::new(Outcome::Error, Requeue::Retry(None)));
            }
            result => result?,
        }
        let written_at = monotonic();
        self.index
            .update_local(target.uid, |local| local.record_status_write(written_at));
        self.count_change(target.key, &before, &StatusSummary::of(&status));
        self.metrics.drained(&drain);
        for event in &events {
            self.recorder.record(&metadata, event, now);
        }
        // The actions need permits of their own.
        rounds.permit = None;
        if !then.is_empty()
            && let Some(Lookup::Job(known)) = self.index.get(target.key)
            && *known.uid == *target.uid
            // Actions that were decided for another spec must be planned again.
            && known.job.metadata.generation == metadata.generation
        {
            let results = Box::pin(self.writer.act(target, &known.job, then)).await;
            self.record_results(target, &known.job.metadata, results, rounds)?;
        }
        Ok(ReconcileResult::new(Outcome::Acted, Requeue::Again))
    }
}

/// When to plan again even if nothing changes.
fn requeue(plan: &Plan, now: Timestamp) -> Requeue {
    plan.wake_at().map_or(Requeue::Rest, |at| {
        let delay = Duration::try_from(at.duration_since(now)).unwrap_or_default();
        Requeue::At(Instant::now() + delay.max(MIN_DELAY))
    })
}

/// The processor time of this thread. It does not include the time that a busy machine makes us
/// wait.
fn processor_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::try_from(time).unwrap_or_default()
}

#[cfg(test)]
mod tests;
