//! What only this process knows about a job: how its own writes went, and objects that are not
//! watched.
//!
//! The operator changes it by its methods; plans only read it. Losing it costs a few requests.
//! Times are monotonic: a jump of the wall clock neither ends a backoff nor prolongs it.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use trainyard_contract::drain::DrainReport;
use trainyard_contract::script::{ScriptReport, ScriptRun};

use crate::backoff::Backoff;
use crate::model::{Action, Identity, PodNames};

/// For failures that are likely to last: a denial, or a deletion that a finalizer holds up.
const LASTING: Backoff = Backoff {
    base: Duration::from_secs(1),
    max: Duration::from_mins(5),
};
/// For failures that may be over in a moment.
const PASSING: Backoff = Backoff {
    base: Duration::from_millis(50),
    max: Duration::from_secs(30),
};
/// While children of a former job of the same name still exist.
const FORMER_JOB: Backoff = Backoff {
    base: Duration::from_secs(1),
    max: Duration::from_secs(10),
};
/// Servers keep events for an hour: one that still holds is repeated before it expires.
const EVENT_INTERVAL: Duration = Duration::from_mins(30);

/// What only this process knows about a job.
#[derive(Clone, Debug, Default)]
pub struct LocalState {
    /// The state of the job's Secret. `Exists` holds for one reconcile, because it is not watched.
    pub secret: SecretState,
    /// When the operator last looked for that Secret.
    pub secret_checked_at: Option<Instant>,
    /// The job's exec right.
    pub exec_right: ExecRightState,
    /// Whether this reconcile has seen the objects of that right. They are not watched either.
    pub exec_right_is_sure: bool,
    /// When the operator last checked whether conflicting objects still exist.
    pub conflicts_checked_at: Option<Instant>,
    /// When the job's status was last written.
    pub status_written_at: Option<Instant>,
    /// Since when the last plan has waited.
    pub waits: Waits,
    /// Set while creating the job's children fails.
    pub create_backoff: Option<CreateBackoff>,
    /// Other writes that failed or had no effect.
    pub write_backoffs: WriteBackoffs,
    /// What pods that were told to leave have reported, by UID.
    pub drains: DrainReports,
    /// What this process tells the launcher to run.
    pub script: ScriptOffer,
    /// The operator has deleted the job.
    pub is_deleted: bool,
    /// The generation for which the job was reported as malformed.
    pub malformed_generation: Option<i64>,
    /// A fingerprint of the last event about children that could not be created, and its time.
    last_event: Option<(u64, Instant)>,
    /// A fingerprint of the last failure of a write that was logged.
    last_warning: Option<u64>,
}

/// What is known about the Secret with the identity of a job's pods.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SecretState {
    /// Nothing.
    #[default]
    Unknown,
    /// It exists.
    Exists(Identity),
    /// Pods exist that have it, so the operator looked for it, and it does not exist.
    Missing(Identity),
}

/// What is known about the right of a job to start programs through the API server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ExecRightState {
    /// Nothing.
    #[default]
    Unknown,
    /// There is none.
    Missing,
    /// It covers these pods.
    Covers(PodNames),
}

/// Since when a plan has waited. The next plan needs it, or it would wait for ever.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Waits {
    /// Since when something is overdue: pods that may start and do not, for example.
    pub overdue_since: Option<Instant>,
    /// Since when pods have succeeded without the status saying so.
    pub unwritten_since: Option<Instant>,
    /// Since when nothing was left to create of a job that has no status yet.
    pub created_since: Option<Instant>,
    /// Since when pods that were told to leave could have said that they know, to this process.
    pub unacknowledged_since: Option<Instant>,
    /// Since when pods should leave their nodes and are not told yet, because too few would stay.
    pub put_off_since: Option<Instant>,
    /// When the disruption budget was last deleted to be made anew, if that was a moment ago.
    pub budget_replaced_at: Option<Instant>,
}

/// Backoff for creating the children of one job.
#[derive(Clone, Copy, Debug)]
pub struct CreateBackoff {
    /// No child is created before this.
    pub until: Instant,
    /// How often in a row creating children failed.
    pub failures: u32,
    /// The generation that failed: a change of the spec ends the backoff.
    pub generation: Option<i64>,
    /// The kind that was refused: creating another kind does not end the backoff.
    pub kind: Option<&'static str>,
}

/// What pods that were told to leave have reported. Few jobs have any; for the others this is one
/// pointer.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DrainReports(Option<Arc<HashMap<Box<str>, DrainReport>>>);

impl DrainReports {
    /// Records a report. Returns true if it is new.
    pub fn record(&mut self, uid: &str, report: DrainReport) -> bool {
        if self.get(uid) == Some(&report) {
            return false;
        }
        Arc::make_mut(self.0.get_or_insert_default()).insert(uid.into(), report);
        true
    }

    /// What a pod reported last.
    pub fn get(&self, uid: &str) -> Option<&DrainReport> {
        self.0.as_ref()?.get(uid)
    }
}

/// An attempt of a script, and the pod that is to make it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScriptTask {
    /// The UID of the pod. No other is told.
    pub pod_uid: Box<str>,
    /// What it is to run.
    pub run: ScriptRun,
}

/// What a launcher is told to run by this process.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum ScriptOffer {
    /// Nothing is said: it was not decided yet, and the launcher goes on with what it does.
    #[default]
    Undecided,
    /// It is to run nothing.
    Idle,
    /// It is to make this attempt.
    Run(Arc<OfferedScript>),
}

impl ScriptOffer {
    /// The attempt, if there is one.
    pub fn offered(&self) -> Option<&OfferedScript> {
        match self {
            Self::Run(offered) => Some(offered),
            Self::Undecided | Self::Idle => None,
        }
    }
}

/// An attempt of a script that a launcher was told to make.
#[derive(Clone, Debug, PartialEq)]
pub struct OfferedScript {
    /// What it was told.
    pub task: ScriptTask,
    /// When it was told first, by this process.
    pub since: Instant,
    /// How the attempt ended.
    pub report: Option<ScriptReport>,
}

/// The pause before a write is sent again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriteBackoff {
    /// It is not sent before this.
    pub until: Instant,
    /// How often in a row it had no effect.
    pub tries: u32,
}

/// The writes of a job that are in backoff. Few jobs have any; for the others this is one pointer.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct WriteBackoffs(Option<Arc<HashMap<Action, WriteBackoff>>>);

/// Why a write failed, as far as the backoff depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BackoffKind {
    /// The failure is likely to last.
    Lasting,
    /// A child of a former job of the same name still exists.
    FormerJob,
    /// The failure may be over in a moment. The server may have asked for a pause.
    Passing(Option<Duration>),
}

/// Whether an event is news to the user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventNews {
    /// It says something new.
    New,
    /// It says the same as the last one, which is about to expire.
    Repeat,
    /// The same event was sent lately.
    Known,
}

impl BackoffKind {
    fn pause(self, failures: u32, jitter: f64) -> Duration {
        match self {
            Self::Lasting => LASTING.pause(failures, jitter),
            Self::FormerJob => FORMER_JOB.pause(failures, jitter),
            Self::Passing(asked) => PASSING.pause(failures, jitter).max(asked.unwrap_or_default()),
        }
    }
}

impl WriteBackoffs {
    /// Returns true if no write is in backoff.
    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// The backoff of a write, which may be over.
    pub fn get(&self, action: &Action) -> Option<WriteBackoff> {
        self.0.as_ref()?.get(action).copied()
    }

    /// The writes that have a backoff.
    pub(crate) fn actions(&self) -> impl Iterator<Item = &Action> {
        self.0.iter().flat_map(|backoffs| backoffs.keys())
    }

    fn back_off(&mut self, action: Action, failure: BackoffKind, now: Instant, jitter: f64) {
        let tries = self
            .get(&action)
            .map_or(1, |before| before.tries.saturating_add(1));
        let until = now + failure.pause(tries, jitter);
        Arc::make_mut(self.0.get_or_insert_default()).insert(action, WriteBackoff { until, tries });
    }

    fn forget(&mut self, moot: &[Action]) {
        if let Some(backoffs) = self.0.as_mut().filter(|_| !moot.is_empty()) {
            let backoffs = Arc::make_mut(backoffs);
            for action in moot {
                backoffs.remove(action);
            }
            self.0.take_if(|backoffs| backoffs.is_empty());
        }
    }
}

impl LocalState {
    /// Forgets that unwatched objects exist: somebody may delete them at any time.
    pub fn doubt_unwatched(&mut self) {
        if matches!(self.secret, SecretState::Exists(_)) {
            self.secret = SecretState::Unknown;
        }
        self.exec_right_is_sure = false;
    }

    /// Tells a launcher what to run from now on, or that there is nothing. Returns true if that is
    /// new.
    pub fn offer_script(&mut self, task: Option<ScriptTask>, now: Instant) -> bool {
        let is_decided = self.script != ScriptOffer::Undecided;
        if is_decided && self.script.offered().map(|known| &known.task) == task.as_ref() {
            return false;
        }
        self.script = task.map_or(ScriptOffer::Idle, |task| {
            ScriptOffer::Run(Arc::new(OfferedScript {
                task,
                since: now,
                report: None,
            }))
        });
        true
    }

    /// Records how an attempt ended that this pod was told to make. Returns true if that is new.
    pub fn record_script(&mut self, pod_uid: &str, report: ScriptReport) -> bool {
        let ScriptOffer::Run(known) = &mut self.script else {
            return false;
        };
        let run = &known.task.run;
        let is_of_it = (&*run.request, run.attempt) == (&*report.request, report.attempt);
        // The first report of an attempt holds.
        if *known.task.pod_uid != *pod_uid || !is_of_it || known.report.is_some() {
            return false;
        }
        Arc::make_mut(known).report = Some(report);
        true
    }

    /// Forgets everything about unwatched objects, and what a launcher was told in a former term.
    pub fn forget_unwatched(&mut self) {
        self.forget_run();
        self.exec_right = ExecRightState::Unknown;
    }

    /// Forgets what a suspended job does not need. What its exec right covers is remembered: it is
    /// taken away, and that must be known to be done.
    pub fn forget_run(&mut self) {
        self.script = ScriptOffer::Undecided;
        (self.secret, self.secret_checked_at) = (SecretState::Unknown, None);
        self.exec_right_is_sure = false;
    }

    /// Returns true if something is known that a suspended job does not need.
    pub fn knows_run(&self) -> bool {
        self.secret != SecretState::Unknown || self.exec_right_is_sure
    }

    /// Returns true if this reconcile relies on unwatched objects that it has seen.
    pub fn relies_on_unwatched(&self) -> bool {
        matches!(self.secret, SecretState::Exists(_)) || self.exec_right_is_sure
    }

    /// Records that the objects of the exec right exist. If the Role was not created now, it may
    /// cover any pods that it covered before.
    pub fn record_exec_right(&mut self, is_new: bool) {
        self.exec_right_is_sure = true;
        if is_new {
            self.exec_right = ExecRightState::Covers(PodNames::default());
        } else if self.exec_right == ExecRightState::Missing {
            self.exec_right = ExecRightState::Unknown;
        }
    }

    /// Records which pods the exec right covers, or that there is none.
    pub fn record_grant(&mut self, state: ExecRightState) {
        self.exec_right = state;
    }

    /// The Secret was found, or found missing.
    pub fn record_secret(&mut self, state: SecretState) {
        self.secret = state;
    }

    /// The operator looks for the Secret.
    pub fn record_secret_check(&mut self, now: Instant) {
        self.secret_checked_at = Some(now);
    }

    /// The operator checks whether conflicting objects still exist.
    pub fn record_conflict_check(&mut self, now: Instant) {
        self.conflicts_checked_at = Some(now);
    }

    /// The operator has deleted the job.
    pub fn record_deletion(&mut self) {
        self.is_deleted = true;
    }

    /// A generation of the job was reported as malformed.
    pub fn record_malformed(&mut self, generation: i64) {
        self.malformed_generation = Some(generation);
    }

    /// Records since when a plan waits, and drops the backoffs of writes that it does not want any
    /// more.
    pub fn record_plan(&mut self, waits: Waits, moot: &[Action]) {
        self.waits = waits;
        self.write_backoffs.forget(moot);
    }

    /// Records that the status was written.
    pub fn record_status_write(&mut self, now: Instant) {
        self.status_written_at = Some(now);
        self.waits.unwritten_since = None;
    }

    /// Until when no children are created for a generation of the spec.
    pub fn create_backoff_until(&self, generation: Option<i64>, now: Instant) -> Option<Instant> {
        let backoff = self.create_backoff.as_ref();
        let backoff = backoff.filter(|backoff| backoff.until > now && backoff.generation == generation);
        backoff.map(|backoff| backoff.until)
    }

    /// Records that creating children failed. Returns how often in a row it has failed now.
    pub fn back_off_creates(
        &mut self,
        failure: BackoffKind,
        generation: Option<i64>,
        kind: Option<&'static str>,
        now: Instant,
        jitter: f64,
    ) -> u32 {
        let before = self
            .create_backoff
            .filter(|backoff| backoff.generation == generation);
        let failures = before.map_or(1, |backoff| backoff.failures.saturating_add(1));
        self.create_backoff = Some(CreateBackoff {
            until: now + failure.pause(failures, jitter),
            failures,
            generation,
            kind,
        });
        failures
    }

    /// Records that children of these kinds were created. Returns true if that ends a backoff, or
    /// makes the last event obsolete. Creating a Secret ends only the backoff of Secrets, because
    /// it is tried before the other kinds every time.
    pub fn record_creates(&mut self, generation: Option<i64>, kinds: &HashSet<&'static str>) -> bool {
        let ends = |backoff: CreateBackoff| {
            backoff.kind.is_none_or(|kind| kinds.contains(kind)) || backoff.generation != generation
        };
        let has_failed = self.create_backoff.is_some() || self.last_event.is_some();
        let is_over = has_failed && !kinds.is_empty() && self.create_backoff.is_none_or(ends);
        if is_over {
            (self.create_backoff, self.last_event) = (None, None);
        }
        is_over
    }

    /// Ends the pause before children are created again, because its cause is over.
    pub fn end_create_backoff(&mut self, now: Instant) {
        if let Some(backoff) = &mut self.create_backoff {
            backoff.until = now;
        }
    }

    /// Records that writes failed or had no effect.
    pub fn back_off_writes(
        &mut self,
        writes: impl IntoIterator<Item = (Action, BackoffKind)>,
        now: Instant,
        jitter: f64,
    ) {
        for (action, failure) in writes {
            self.write_backoffs.back_off(action, failure, now, jitter);
        }
    }

    /// Returns whether an event must be sent, and records it as sent.
    pub fn record_event(&mut self, fingerprint: u64, now: Instant) -> EventNews {
        let news = match self.last_event.filter(|(last, _)| *last == fingerprint) {
            None => EventNews::New,
            Some((_, at)) if now >= at + EVENT_INTERVAL => EventNews::Repeat,
            Some(_) => return EventNews::Known,
        };
        self.last_event = Some((fingerprint, now));
        news
    }

    /// Returns true if a warning differs from the one that was logged last, and records it as
    /// logged.
    pub fn record_warning(&mut self, fingerprint: u64) -> bool {
        self.last_warning.replace(fingerprint) != Some(fingerprint)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_changed_spec_ends_the_create_backoff() {
        let (now, pod) = (Instant::now(), Some("Pod"));
        let mut local = LocalState::default();
        assert_eq!(
            local.back_off_creates(BackoffKind::FormerJob, Some(1), pod, now, 0.0),
            1
        );
        let until = now + FORMER_JOB.base;
        assert_eq!(local.create_backoff_until(Some(1), now), Some(until));
        assert_eq!(local.create_backoff_until(Some(2), now), None);
        assert_eq!(local.create_backoff_until(Some(1), until), None);
        let ends = |generation, kind| {
            local
                .clone()
                .record_creates(Some(generation), &HashSet::from_iter(kind))
        };
        assert!(ends(1, pod) && !ends(1, Some("Secret")) && !ends(2, None));
        assert!(
            ends(2, Some("Secret")),
            "of the kind that was refused there may be none any more"
        );
        let again = |generation| {
            local
                .clone()
                .back_off_creates(BackoffKind::Lasting, Some(generation), pod, now, 0.0)
        };
        assert_eq!((again(1), again(2)), (2, 1));
    }

    #[test]
    fn write_backoffs_grow_and_are_as_long_as_the_server_asks() {
        let now = Instant::now();
        let pause = |tries: usize, failure| {
            let mut local = LocalState::default();
            let writes = std::iter::repeat_n((Action::DeleteJob, failure), tries);
            local.back_off_writes(writes, now, 0.0);
            local.write_backoffs.get(&Action::DeleteJob).unwrap().until - now
        };
        assert_eq!(pause(1, BackoffKind::Lasting), Duration::from_secs(1));
        assert_eq!(pause(2, BackoffKind::Lasting), Duration::from_secs(2));
        let asked = BackoffKind::Passing(Some(Duration::from_secs(7)));
        assert_eq!(pause(1, asked), Duration::from_secs(7));
        assert_eq!(pause(1, BackoffKind::Passing(None)), PASSING.base);
    }

    #[test]
    fn backoffs_of_writes_that_nobody_wants_are_dropped() {
        let now = Instant::now();
        let mut local = LocalState::default();
        let grant = Action::Grant(PodNames::default());
        let failed = [Action::DeleteJob, grant.clone()].map(|action| (action, BackoffKind::Lasting));
        local.back_off_writes(failed, now, 0.0);
        local.record_plan(Waits::default(), &[grant]);
        assert_eq!(
            local.write_backoffs.actions().collect::<Vec<_>>(),
            [&Action::DeleteJob]
        );
        local.record_plan(Waits::default(), &[Action::DeleteJob]);
        assert!(local.write_backoffs.is_empty());
    }

    #[test]
    fn an_event_is_repeated_before_it_expires_and_a_warning_is_not() {
        let now = Instant::now();
        let mut local = LocalState::default();
        assert_eq!(local.record_event(1, now), EventNews::New);
        assert_eq!(local.record_event(1, now), EventNews::Known);
        assert_eq!(local.record_event(1, now + EVENT_INTERVAL), EventNews::Repeat);
        assert_eq!(local.record_event(2, now), EventNews::New);
        assert!(local.record_warning(1) && !local.record_warning(1) && local.record_warning(2));
    }
}
