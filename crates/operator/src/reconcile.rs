//! One reconcile: look at the index, ask what to do, do it.

use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, ObjectMeta, Time};
use serde_json::json;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use trainyard_api::{ConditionType, JobPhase, Reason, RestartCause, TrainingJobStatus};
use trainyard_core::plan::{Action, Note, Plan, StatusWrite, plan};
use trainyard_core::view::View;

use crate::act::{Done, Failure, Hands, Target};
use crate::clock::Clock;
use crate::events::Recorder;
use crate::index::{Hold, Index, JobKey, Known, Memory, Snapshot};
use crate::metrics::{Metrics, Outcome};
use crate::queue::{Backoff, jitter};
use crate::slim::Malformed;

/// A status in which only counters or messages differ is not written more often than this.
const STATUS_INTERVAL: Duration = Duration::from_secs(10);
/// How often it is looked whether what is in a job's way still is.
const PROBE_INTERVAL: Duration = Duration::from_secs(30);
/// The pause in creating children that the server refuses.
const REFUSED: Backoff = Backoff { base: Duration::from_secs(1), max: Duration::from_mins(5) };
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
    const REST: Self = Self { outcome: Outcome::Quiet, next: Next::Rest };
}

/// What a reconcile has come to so far.
#[derive(Default)]
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
            (true, _) => Verdict { outcome: Outcome::Acted, next: Next::Again },
            (false, Some(at)) => Verdict { outcome: Outcome::Quiet, next: Next::At(at) },
            (false, None) => Verdict::REST,
        }
    }
}

impl Reconciler {
    /// Looks at a job and does what is to be done.
    pub async fn reconcile(&self, key: &JobKey, term: &CancellationToken) -> Verdict {
        let result = match self.index.get(key) {
            None => return Verdict::REST,
            Some(Known::Malformed(malformed, memory)) => self.malformed(&malformed, memory, term).await,
            Some(Known::Job(snapshot)) => self.job(key, *snapshot, term).await,
        };
        result.unwrap_or_else(|failure| Self::failed(key, failure))
    }

    fn failed(key: &JobKey, failure: Failure) -> Verdict {
        match failure {
            Failure::NotLeader => Verdict { outcome: Outcome::Error, next: Next::Rest },
            // The watch will say what became of it.
            Failure::Gone => Verdict { outcome: Outcome::Conflict, next: Next::Retry(None) },
            Failure::Conflict | Failure::Exists | Failure::Skipped => {
                Verdict { outcome: Outcome::Conflict, next: Next::Stale }
            }
            Failure::InTheWay => Verdict { outcome: Outcome::Conflict, next: Next::Again },
            Failure::Former | Failure::NamespaceEnds => Verdict { outcome: Outcome::Waiting, next: Next::Retry(None) },
            Failure::Refused(error) => {
                tracing::warn!(job = %key, %error, "the server refuses a write");
                Verdict { outcome: Outcome::Error, next: Next::Retry(None) }
            }
            Failure::Transient(error, pause) => {
                tracing::debug!(job = %key, %error, "a write failed and is tried again");
                Verdict { outcome: Outcome::Error, next: Next::Retry(pause) }
            }
        }
    }

    async fn job(&self, key: &JobKey, known: Snapshot, term: &CancellationToken) -> Result<Verdict, Failure> {
        let Snapshot { uid, job, pods, services, conflicts, nodes, memory } = known;
        if !job.is_ours() || job.metadata.deletion_timestamp.is_some() || memory.deleted {
            return Ok(Verdict::REST);
        }
        let target = Target { key, uid: &uid, term };
        let started = Instant::now();
        let mut progress = Progress::default();
        if !conflicts.is_empty() {
            let due = memory.probed.map_or(started, |probed| probed + PROBE_INTERVAL);
            if due <= started {
                self.index.remember(&uid, |memory| memory.probed = Some(started));
                if self.hands.probe(target, &conflicts).await? {
                    return Ok(Verdict { outcome: Outcome::Quiet, next: Next::Again });
                }
            }
            progress.at(if due <= started { started + PROBE_INTERVAL } else { due });
        }
        let now = self.clock.now();
        let mut plan = plan(&View {
            job: &job,
            pods: &pods,
            services: &services,
            conflicts: &conflicts,
            nodes: &nodes,
            settings: self.hands.settings(),
            now,
        });
        // Kept, they would have to be copied when the answers to what follows come in.
        drop((pods, services));

        if let Some(until) = held(memory.hold, job.metadata.generation, started) {
            let before = plan.actions.len();
            plan.actions.retain(|action| !matches!(action, Action::CreatePod(_) | Action::CreateService(_)));
            if plan.actions.len() < before {
                progress.at(until);
            }
        }
        if !plan.actions.is_empty() {
            let done = self.hands.act(target, &job, std::mem::take(&mut plan.actions)).await;
            self.after_actions(target, &job.metadata, memory, done, &mut progress)?;
        }
        self.write(target, job, memory, plan, now, progress).await
    }

    /// Judges what became of the actions.
    fn after_actions(
        &self,
        target: Target<'_>,
        job: &ObjectMeta,
        memory: Memory,
        done: Done,
        progress: &mut Progress,
    ) -> Result<(), Failure> {
        progress.acted = done.acted > 0;
        if done.conflict {
            let now = Instant::now();
            self.index.remember(target.uid, |memory| memory.probed = Some(now));
            return Err(Failure::InTheWay);
        }
        match done.failure {
            // The rest of the job goes on; what was refused is tried again after a pause.
            Some(Failure::Refused(words)) => {
                progress.at(self.hold(target, job, memory, &words));
                Ok(())
            }
            Some(failure) => Err(failure),
            None => {
                if memory.hold.is_some() || memory.told.is_some() {
                    self.index.remember(target.uid, |memory| (memory.hold, memory.told) = (None, None));
                }
                Ok(())
            }
        }
    }

    /// Notes that children were refused, and tells the user unless that has been said. Until when to wait.
    fn hold(&self, target: Target<'_>, job: &ObjectMeta, memory: Memory, words: &str) -> Instant {
        let failures = memory.hold.filter(|hold| hold.generation == job.generation).map_or(1, |hold| hold.failures + 1);
        let until = Instant::now() + REFUSED.pause(failures, jitter());
        let hold = Hold { until, failures, generation: job.generation };
        let told = fingerprint(words);
        self.index.remember(target.uid, |memory| (memory.hold, memory.told) = (Some(hold), Some(told)));
        if memory.told != Some(told) {
            tracing::warn!(job = %target.key, error = words, "children could not be created");
            let note = Note { warning: true, reason: Reason::CreateFailed, message: words.to_owned() };
            self.recorder.note(job, &note, self.clock.now());
        }
        until
    }

    /// Writes the status, and does what may be done only then.
    async fn write(
        &self,
        target: Target<'_>,
        job: Arc<trainyard_api::TrainingJob>,
        memory: Memory,
        plan: Plan,
        now: Timestamp,
        mut progress: Progress,
    ) -> Result<Verdict, Failure> {
        let started = Instant::now();
        if let Some(wake) = plan.wake_at {
            let away = Duration::try_from(wake.duration_since(now)).unwrap_or_default();
            progress.at(started + away.max(SOON));
        }
        let status = match plan.status {
            StatusWrite::Unchanged => None,
            StatusWrite::Now(status) => Some(status),
            StatusWrite::Soon(status) => {
                let due = memory.status_written.map_or(started, |written| written + STATUS_INTERVAL);
                if due > started {
                    progress.at(due);
                    // Nothing hangs on it: what depends on a status comes with `Now`.
                    return Ok(progress.verdict());
                }
                Some(status)
            }
        };
        let metadata = job.metadata.clone();
        if let Some(status) = status {
            let before = job.status.as_ref().map(Told::of).unwrap_or_default();
            match self.hands.write_status(target, job, &status).await {
                Err(Failure::Refused(words)) => {
                    tracing::error!(job = %target.key, error = words, "the server refuses the status");
                    return Ok(Verdict { outcome: Outcome::Error, next: Next::Retry(None) });
                }
                result => result?,
            }
            let written = Instant::now();
            self.index.remember(target.uid, |memory| memory.status_written = Some(written));
            self.tell(target.key, before, Told::of(&status));
            progress.acted = true;
        } else {
            drop(job);
        }
        for note in &plan.events {
            self.recorder.note(&metadata, note, now);
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

    /// Reports on itself an object that is no job.
    async fn malformed(
        &self,
        malformed: &Malformed,
        memory: Memory,
        term: &CancellationToken,
    ) -> Result<Verdict, Failure> {
        let generation = malformed.metadata.generation.unwrap_or_default();
        let uid = malformed.metadata.uid.as_deref().unwrap_or_default();
        let going = malformed.metadata.deletion_timestamp.is_some();
        if going || memory.reported == Some(generation) || says_so(malformed, generation) {
            return Ok(Verdict::REST);
        }
        let now = self.clock.now();
        match self.hands.write_malformed(term, malformed, &report(malformed, generation, now)).await {
            Ok(()) => {}
            // The server may refuse any change of an object that breaks its rules; then the event must do.
            Err(Failure::Refused(error)) => tracing::warn!(error, "a malformed job can't be marked as such"),
            Err(failure) => return Err(failure),
        }
        self.index.remember(uid, |memory| memory.reported = Some(generation));
        let note = Note { warning: true, reason: Reason::Invalid, message: malformed.error.clone() };
        self.recorder.note(&malformed.metadata, &note, now);
        Ok(Verdict { outcome: Outcome::Acted, next: Next::Rest })
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
    hold.filter(|hold| hold.until > now && hold.generation == generation).map(|hold| hold.until)
}

/// A fingerprint of what the server says, without the name of the child it happened to say it about.
fn fingerprint(words: &str) -> u64 {
    let rest = words.split_once('"').and_then(|(_, rest)| rest.split_once('"')).map_or(words, |(_, rest)| rest);
    BuildHasherDefault::<DefaultHasher>::default().hash_one(rest)
}

fn says_so(malformed: &Malformed, generation: i64) -> bool {
    malformed.conditions.iter().any(|condition| {
        condition.type_ == ConditionType::Accepted.as_str()
            && condition.status == "False"
            && condition.reason == Reason::Invalid.as_str()
            && condition.observed_generation == Some(generation)
            && condition.message == malformed.error
    })
}

fn report(malformed: &Malformed, generation: i64, now: Timestamp) -> serde_json::Value {
    let accepted = ConditionType::Accepted.as_str();
    let mut conditions: Vec<&Condition> = malformed.conditions.iter().filter(|old| old.type_ != accepted).collect();
    let condition = Condition {
        type_: accepted.to_owned(),
        status: "False".to_owned(),
        reason: Reason::Invalid.as_str().to_owned(),
        message: malformed.error.clone(),
        observed_generation: Some(generation),
        last_transition_time: Time(now),
    };
    conditions.push(&condition);
    json!({
        "metadata": {
            "uid": malformed.metadata.uid,
            "resourceVersion": malformed.metadata.resource_version,
        },
        "status": {"observedGeneration": generation, "phase": JobPhase::Pending.as_str(), "conditions": conditions},
    })
}

#[cfg(test)]
mod tests;
