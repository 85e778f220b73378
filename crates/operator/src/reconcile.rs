//! One reconcile: look at the index, ask what to do, do it.

mod fingerprint;
mod hurry;
mod judge;
mod malformed;
mod pause;
mod refusal;
mod told;
mod verdict;
mod work;

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use trainyard_api::{TrainingJob, TrainingJobStatus};
use trainyard_core::model::StatusWrite;
use trainyard_core::plan::{Plan, plan};
use trainyard_core::view::{Conflict, SecretState, View};

use crate::act::{Class, Failure, Hands, Target};
use crate::clock::Clock;
use crate::events::Recorder;
use crate::index::{Index, JobKey, Known, Memory, Snapshot};
use crate::metrics::{Metrics, Outcome};

use judge::ineffective;
use pause::hold_back;
use refusal::held;
use told::Told;
pub use verdict::{Next, Verdict};
use work::{Progress, Work};

/// A status in which only counters or messages differ is not written more often than this.
const STATUS_INTERVAL: Duration = Duration::from_secs(10);
/// How long successes wait for others before they are written, with all that there are then.
const EARLY_INTERVAL: Duration = Duration::from_secs(1);
/// How often it is looked whether what is in a job's way still is.
const PROBE_INTERVAL: Duration = Duration::from_secs(30);
/// A reconcile that has looked so often, each time because of what it had done, lets others go first.
const ROUNDS: u32 = 8;
/// A time to look again that has passed already is taken to mean this.
const SOON: Duration = Duration::from_millis(100);

/// Reconciles jobs.
pub struct Reconciler {
    /// Carries out what is decided.
    pub hands: Hands,
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
    pub async fn reconcile(&self, key: &JobKey, term: &CancellationToken) -> Verdict {
        let mut work = Work::default();
        let result = loop {
            let known = match self.index.get(key) {
                None => break Ok(Verdict::REST),
                Some(Known::Malformed(malformed, memory)) => {
                    break self.malformed(&malformed, *memory, term).await;
                }
                Some(Known::Job(known)) => known,
            };
            match self.step(key, *known, term, &mut work).await {
                Ok(None) if work.rounds < ROUNDS => work.rounds += 1,
                Ok(None) => break Ok(Verdict::new(Outcome::Acted, Next::Again)),
                Ok(Some(verdict)) => break Ok(verdict),
                Err(failure) => break Err(failure),
            }
        };
        let verdict = result.unwrap_or_else(|failure| self.failed(key, &failure));
        if let Some(uid) = work.made_sure.filter(|_| verdict.next != Next::Again) {
            // It is not watched: the next pods may come too late for it.
            self.index.remember(&uid, Memory::doubt);
        }
        Verdict {
            cost: work.cost,
            outcome: work.outcome.unwrap_or(verdict.outcome),
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
        work: &mut Work,
    ) -> Result<Option<Verdict>, Failure> {
        let Snapshot {
            uid,
            job,
            pods,
            services,
            departed,
            conflicts,
            refusal,
            pauses,
            progress: progress_said,
            nodes,
            memory,
        } = known;
        if !job.is_ours() || job.metadata.deletion_timestamp.is_some() || memory.deleted {
            return Ok(Some(Verdict::REST));
        }
        let target = Target { key, uid: &uid, term };
        work.note_sure(memory, &uid);
        if job.is_suspended() {
            self.forget(&uid, memory, progress_said.is_some());
        }
        let started = Instant::now();
        let mut progress = Progress {
            acted: work.acted,
            next: None,
        };
        if !conflicts.is_empty() {
            let (changed, next) = self.probe(target, memory, &conflicts, started).await?;
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
            secret: memory.secret,
            granted: memory.granted,
            grant_is_sure: memory.grant_is_sure,
            refusal: refusal.as_deref(),
            progress: progress_said.as_deref(),
            nodes: &nodes,
            settings: &self.hands.settings(),
            now,
        });
        work.cost += processor_time().saturating_sub(begun);
        // Kept, they would have to be copied when the answers to what follows come in.
        drop((pods, services));

        if self.search(target, &plan.missing, work).await? {
            return Ok(None);
        }
        let hold = held(memory.hold, job.metadata.generation, started);
        self.forget_pauses(target, &pauses, &plan);
        hold_back(&mut plan, &mut progress, hold, &pauses, started);
        self.hurry(target, memory, &mut plan, &mut progress, started);
        if !plan.actions.is_empty() {
            work.place = None;
            let done = if work.did_just(&plan.actions) {
                ineffective(plan.actions)
            } else {
                Box::pin(self.hands.act(target, &job, plan.actions)).await
            };
            work.acted |= done.acted > 0;
            self.judge(target, &job.metadata, memory, &pauses, done, work)?;
            return Ok(None);
        }
        if let Some(wake) = plan.wake_at {
            let away = Duration::try_from(wake.duration_since(now)).unwrap_or_default();
            progress.at(started + away.max(SOON));
        }
        let (status, due) = self.paced(target, memory, std::mem::take(&mut plan.status), started);
        if status.is_some() && due > started {
            progress.at(due);
            // Nothing hangs on it: what depends on a status comes with `Now`.
            return Ok(Some(progress.verdict()));
        }
        if status.is_some() && work.place.is_none() {
            let class = if plan.after.is_empty() {
                Class::Status
            } else {
                Class::Urgent
            };
            work.place = self.hands.gate().try_enter(class);
            if work.place.is_none() {
                drop((job, plan, status));
                work.place = Some(self.hands.gate().enter(class).await);
                // What was to be written may be out of date.
                return Ok(None);
            }
        }
        let verdict = Box::pin(self.conclude(target, job, status, plan, now, progress, work)).await;
        let failed = |verdict: &Verdict| verdict.outcome == Outcome::Error;
        if !departed.is_empty() && verdict.as_ref().is_ok_and(|verdict| !failed(verdict)) {
            self.index.forget_departed(&uid, &departed);
        }
        verdict.map(Some)
    }

    /// A status to write, and when.
    fn paced(
        &self,
        target: Target<'_>,
        memory: Memory,
        write: StatusWrite,
        now: Instant,
    ) -> (Option<Box<TrainingJobStatus>>, Instant) {
        let after = |pace: Duration| memory.status_written.map_or(now, |written| written + pace);
        match write {
            StatusWrite::Unchanged => (None, now),
            StatusWrite::Now(status) => (Some(status), now),
            StatusWrite::Early(status) => {
                // The first of many successes is mostly followed by the others, and then by the end of the job.
                let since = memory.unwritten.unwrap_or(now);
                if memory.unwritten.is_none() {
                    self.index
                        .remember(target.uid, |memory| memory.unwritten = Some(now));
                }
                (Some(status), since + EARLY_INTERVAL)
            }
            StatusWrite::Soon(status) => (Some(status), after(STATUS_INTERVAL)),
        }
    }

    /// Forgets what is of no use once a job is suspended.
    fn forget(&self, uid: &str, memory: Memory, has_progress: bool) {
        if memory.secret != SecretState::Unknown || memory.granted.is_some() {
            // Somebody may remove it while nothing needs it.
            self.index.remember(uid, Memory::forget_unwatched);
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
        memory: Memory,
        conflicts: &[Conflict],
        now: Instant,
    ) -> Result<(bool, Instant), Failure> {
        let due = memory.probed.map_or(now, |probed| probed + PROBE_INTERVAL);
        if due > now {
            return Ok((false, due));
        }
        self.index
            .remember(target.uid, |memory| memory.probed = Some(now));
        let changed = self.hands.probe(target, conflicts).await?;
        Ok((changed, now + PROBE_INTERVAL))
    }

    /// Looks, once in a reconcile, for pods whose absence is about to count. Whether there were any after all.
    async fn search(&self, target: Target<'_>, missing: &[String], work: &mut Work) -> Result<bool, Failure> {
        if missing.is_empty() || std::mem::replace(&mut work.searched, true) {
            return Ok(false);
        }
        Box::pin(self.hands.find(target, missing)).await
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
        mut progress: Progress,
        work: &mut Work,
    ) -> Result<Verdict, Failure> {
        let notes = (!plan.events.is_empty()).then(|| job.metadata.clone());
        let generation = job.metadata.generation;
        if let Some(status) = status {
            let before = job.status.as_ref().map(Told::of).unwrap_or_default();
            match self.hands.write_status(target, job, &status).await {
                Err(Failure::Refused(words)) => {
                    tracing::error!(job = %target.key, error = words, "the server refuses the status");
                    return Ok(Verdict::new(Outcome::Error, Next::Retry(None)));
                }
                result => result?,
            }
            let written = Instant::now();
            self.index.remember(target.uid, |memory| {
                memory.status_written = Some(written);
                memory.unwritten = None;
            });
            self.tell(target.key, &before, &Told::of(&status));
            progress.acted = true;
        }
        // What follows needs places of its own.
        work.place = None;
        if let Some(metadata) = notes {
            plan.events
                .iter()
                .for_each(|note| self.recorder.note(&metadata, note, now));
        }
        if !plan.after.is_empty()
            && let Some(Known::Job(known)) = self.index.get(target.key)
            && *known.uid == *target.uid
            // What was decided for another spec is decided anew.
            && known.job.metadata.generation == generation
        {
            let Snapshot {
                job, memory, pauses, ..
            } = *known;
            let done = Box::pin(self.hands.act(target, &job, plan.after)).await;
            // Another look will tell when what failed is to be tried again.
            progress.acted = true;
            self.judge(target, &job.metadata, memory, &pauses, done, work)?;
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
