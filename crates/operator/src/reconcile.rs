//! One reconcile: look at the index, ask what to do, do it.

mod malformed;

use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use trainyard_api::{JobPhase, Reason, RestartCause, TrainingJob, TrainingJobStatus};
use trainyard_core::plan::{Action, Note, Plan, StatusWrite, plan};
use trainyard_core::view::View;

use crate::act::{Class, Done, Failure, Hands, Place, Target};
use crate::clock::Clock;
use crate::events::Recorder;
use crate::index::{Hold, Index, JobKey, Known, Memory, Snapshot};
use crate::metrics::{Metrics, Outcome};
use crate::queue::{Backoff, jitter};

/// A status in which only counters or messages differ is not written more often than this.
const STATUS_INTERVAL: Duration = Duration::from_secs(10);
/// How often it is looked whether what is in a job's way still is.
const PROBE_INTERVAL: Duration = Duration::from_secs(30);
/// The pause in creating children that the server refuses.
const REFUSED: Backoff = Backoff {
    base: Duration::from_secs(1),
    max: Duration::from_mins(5),
};
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

/// What came of a reconcile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// How it ended.
    pub outcome: Outcome,
    /// When to look again.
    pub next: Next,
    /// How long it took to decide.
    pub cost: Duration,
}

/// When to look at a job again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// When something happens.
    Rest,
    /// At a time.
    At(Instant),
    /// Now: the index has changed by what was done.
    Again,
    /// After a pause that grows from one failure to the next, and is at least as long as the server asks.
    Retry(Option<Duration>),
    /// After a short pause, by when the index will have what it lacks.
    Stale,
}

impl Verdict {
    const REST: Self = Self::new(Outcome::Quiet, Next::Rest);

    const fn new(outcome: Outcome, next: Next) -> Self {
        Self {
            outcome,
            next,
            cost: Duration::ZERO,
        }
    }
}

/// What a reconcile has done so far.
#[derive(Default)]
struct Work {
    rounds: u32,
    acted: bool,
    cost: Duration,
    /// The place from which the status is written.
    place: Option<Place>,
}

/// What one look has come to so far.
struct Progress {
    acted: bool,
    next: Option<Instant>,
}

impl Progress {
    fn at(&mut self, when: Instant) {
        self.next = Some(self.next.map_or(when, |next| next.min(when)));
    }

    fn verdict(self) -> Verdict {
        match (self.acted, self.next) {
            (true, _) => Verdict::new(Outcome::Acted, Next::Again),
            (false, Some(at)) => Verdict::new(Outcome::Quiet, Next::At(at)),
            (false, None) => Verdict::REST,
        }
    }
}

impl Reconciler {
    /// Looks at a job and does what is to be done.
    pub async fn reconcile(&self, key: &JobKey, term: &CancellationToken) -> Verdict {
        let mut work = Work::default();
        let result = loop {
            let known = match self.index.get(key) {
                None => break Ok(Verdict::REST),
                Some(Known::Malformed(malformed, memory)) => {
                    break self.malformed(&malformed, memory, term).await;
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
        let verdict = result.unwrap_or_else(|failure| Self::failed(key, failure));
        Verdict {
            cost: work.cost,
            ..verdict
        }
    }

    fn failed(key: &JobKey, failure: Failure) -> Verdict {
        match failure {
            Failure::NotLeader => Verdict::new(Outcome::Error, Next::Rest),
            // The watch will say what became of it.
            Failure::Gone => Verdict::new(Outcome::Conflict, Next::Retry(None)),
            Failure::Conflict | Failure::Exists | Failure::Skipped => {
                Verdict::new(Outcome::Conflict, Next::Stale)
            }
            Failure::InTheWay => Verdict::new(Outcome::Conflict, Next::Again),
            Failure::Former | Failure::NamespaceEnds => Verdict::new(Outcome::Waiting, Next::Retry(None)),
            Failure::Refused(error) => {
                tracing::warn!(job = %key, %error, "the server refuses a write");
                Verdict::new(Outcome::Error, Next::Retry(None))
            }
            Failure::Transient(error, pause) => {
                tracing::debug!(job = %key, %error, "a write failed and is tried again");
                Verdict::new(Outcome::Error, Next::Retry(pause))
            }
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
            conflicts,
            nodes,
            memory,
        } = known;
        if !job.is_ours() || job.metadata.deletion_timestamp.is_some() || memory.deleted {
            return Ok(Some(Verdict::REST));
        }
        let target = Target { key, uid: &uid, term };
        let started = Instant::now();
        let mut progress = Progress {
            acted: work.acted,
            next: None,
        };
        if !conflicts.is_empty() {
            let due = memory.probed.map_or(started, |probed| probed + PROBE_INTERVAL);
            if due <= started {
                self.index.remember(&uid, |memory| memory.probed = Some(started));
                if self.hands.probe(target, &conflicts).await? {
                    return Ok(None);
                }
            }
            progress.at(if due <= started {
                started + PROBE_INTERVAL
            } else {
                due
            });
        }
        let (now, started) = (self.clock.now(), Instant::now());
        let mut plan = plan(&View {
            job: &job,
            pods: &pods,
            services: &services,
            conflicts: &conflicts,
            nodes: &nodes,
            settings: self.hands.settings(),
            now,
        });
        work.cost += started.elapsed();
        // Kept, they would have to be copied when the answers to what follows come in.
        drop((pods, services));

        if let Some(until) = held(memory.hold, job.metadata.generation, started) {
            let before = plan.actions.len();
            plan.actions
                .retain(|action| !matches!(action, Action::CreatePod(_) | Action::CreateService(_)));
            if plan.actions.len() < before {
                progress.at(until);
            }
        }
        if !plan.actions.is_empty() {
            work.place = None;
            let done = self.hands.act(target, &job, plan.actions).await;
            work.acted |= done.acted > 0;
            self.judge(target, &job.metadata, memory, done)?;
            return Ok(None);
        }
        if let Some(wake) = plan.wake_at {
            let away = Duration::try_from(wake.duration_since(now)).unwrap_or_default();
            progress.at(started + away.max(SOON));
        }
        let status = match std::mem::take(&mut plan.status) {
            StatusWrite::Unchanged => None,
            StatusWrite::Now(status) => Some(status),
            StatusWrite::Soon(status) => {
                let due = memory
                    .status_written
                    .map_or(started, |written| written + STATUS_INTERVAL);
                if due > started {
                    progress.at(due);
                    // Nothing hangs on it: what depends on a status comes with `Now`.
                    return Ok(Some(progress.verdict()));
                }
                Some(status)
            }
        };
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
        self.conclude(target, job, status, plan, now, progress, work)
            .await
            .map(Some)
    }

    /// Judges what became of the actions.
    fn judge(&self, target: Target<'_>, job: &ObjectMeta, memory: Memory, done: Done) -> Result<(), Failure> {
        if done.conflict {
            let now = Instant::now();
            self.index
                .remember(target.uid, |memory| memory.probed = Some(now));
            return Err(Failure::InTheWay);
        }
        match done.failure {
            // The rest of the job goes on; what was refused is tried again after a pause.
            Some(Failure::Refused(words)) => self.hold(target, job, memory, &words),
            Some(failure) => return Err(failure),
            None if memory.hold.is_some() || memory.told.is_some() => {
                self.index
                    .remember(target.uid, |memory| (memory.hold, memory.told) = (None, None));
            }
            None => {}
        }
        Ok(())
    }

    /// Notes that children were refused, and tells the user unless that has been said.
    fn hold(&self, target: Target<'_>, job: &ObjectMeta, memory: Memory, words: &str) {
        let failures = memory
            .hold
            .filter(|hold| hold.generation == job.generation)
            .map_or(1, |hold| hold.failures + 1);
        let until = Instant::now() + REFUSED.pause(failures, jitter());
        let hold = Hold {
            until,
            failures,
            generation: job.generation,
        };
        let told = fingerprint(words);
        self.index.remember(target.uid, |memory| {
            (memory.hold, memory.told) = (Some(hold), Some(told));
        });
        if memory.told != Some(told) {
            tracing::warn!(job = %target.key, error = words, "children could not be created");
            let note = Note {
                warning: true,
                reason: Reason::CreateFailed,
                message: words.to_owned(),
            };
            self.recorder.note(job, &note, self.clock.now());
        }
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
            self.index
                .remember(target.uid, |memory| memory.status_written = Some(written));
            self.tell(target.key, before, Told::of(&status));
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
        {
            let done = self.hands.act(target, &known.job, plan.after).await;
            progress.acted |= done.acted > 0;
            if let Some(failure) = done.failure {
                return Err(failure);
            }
        }
        Ok(progress.verdict())
    }

    fn tell(&self, key: &JobKey, before: Told, after: Told) {
        for (cause, before, after) in [
            (RestartCause::Failure, before.failures, after.failures),
            (RestartCause::Disruption, before.disruptions, after.disruptions),
        ] {
            if after > before {
                self.metrics.restarted(cause, u64::from(after.abs_diff(before)));
            }
        }
        if before.phase != after.phase {
            let phase = after.phase.map(JobPhase::as_str).unwrap_or_default();
            tracing::info!(job = %key, phase, "job");
        }
    }
}

/// What of a status is told.
#[derive(Clone, Copy, Default)]
struct Told {
    phase: Option<JobPhase>,
    failures: i32,
    disruptions: i32,
}

impl Told {
    fn of(status: &TrainingJobStatus) -> Self {
        let restarts = status.restarts.as_ref();
        Self {
            phase: status.phase,
            failures: restarts.map_or(0, |restarts| restarts.failures),
            disruptions: restarts.map_or(0, |restarts| restarts.disruptions),
        }
    }
}

/// Until when children are not to be created.
fn held(hold: Option<Hold>, generation: Option<i64>, now: Instant) -> Option<Instant> {
    hold.filter(|hold| hold.until > now && hold.generation == generation)
        .map(|hold| hold.until)
}

/// A fingerprint of what the server says, without the name of the child it happened to say it about.
fn fingerprint(words: &str) -> u64 {
    let rest = words
        .split_once('"')
        .and_then(|(_, rest)| rest.split_once('"'))
        .map_or(words, |(_, rest)| rest);
    BuildHasherDefault::<DefaultHasher>::default().hash_one(rest)
}

#[cfg(test)]
mod tests;
