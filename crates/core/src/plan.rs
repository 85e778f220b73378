//! One reconcile, decided: [`plan`] says all that should be done now.

mod active;
mod cause;
mod children;
mod dependent;
mod describe;
mod finished;
pub mod pace;
mod progress;
mod refused;
mod restarts;
pub(crate) mod roles;
mod roll;
mod suspended;
mod verdict;

use jiff::Timestamp;
use trainyard_api::{JobPhase, Reason, TrainingJob, TrainingJobStatus};

use crate::job::Job;
use crate::local_state::{LocalState, Waits};
use crate::model::{Action, JobEvent, StatusWrite};
use crate::status;
use crate::view::View;

/// What should be done for a job, in stages: check what is doubtful, act, write the status, act on
/// what it has recorded. [`Plan::step`] gives out the first stage only, so that nobody can carry them
/// out in another order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    checks_conflicts: bool,
    /// Pods that ran and do not exist, which is about to be counted.
    missing: Vec<String>,
    /// Writes that are safe at any time and in any order: repeating them does no harm.
    at_once: Vec<Action>,
    status: StatusWrite,
    /// The status is not due yet.
    status_waits: bool,
    /// Writes that destroy evidence which only the new status keeps.
    after_status: Vec<Action>,
    /// Writes for what should happen by itself, if it does not: pods that the observer has told to
    /// start, and that do not, or that may lack their Secret.
    when_overdue: Vec<Action>,
    events: Vec<JobEvent>,
    wake_at: Option<Timestamp>,
    waits: Waits,
    moot_backoffs: Vec<Action>,
}

/// The next thing to do for a job. Plan again after each, unless it says otherwise.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// Check whether the objects in the job's way still exist and are somebody else's.
    CheckConflicts,
    /// Ask the server whether these pods are really gone: a watch shows a pod that lost its label as
    /// deleted. Once in a reconcile; see [`View::absence_is_confirmed`].
    ConfirmAbsence(Vec<String>),
    /// Carry these out, in any order.
    Act(Vec<Action>),
    /// Write the status; then, and only if that worked, send the events and carry out the actions.
    WriteStatus(StatusChange),
    /// Nothing now: a status waits to be written at [`Plan::wake_at`].
    Wait,
    /// Nothing: the status that is written says all there is to say.
    Done,
}

/// A status to write, and what follows from it.
#[derive(Clone, Debug, PartialEq)]
pub struct StatusChange {
    /// The status.
    pub status: Box<TrainingJobStatus>,
    /// What to tell the user.
    pub events: Vec<JobEvent>,
    /// What may be done only now.
    pub then: Vec<Action>,
}

impl Plan {
    /// The next thing to do.
    pub fn step(self) -> Step {
        if self.checks_conflicts {
            return Step::CheckConflicts;
        }
        if !self.missing.is_empty() {
            return Step::ConfirmAbsence(self.missing);
        }
        if !self.at_once.is_empty() {
            return Step::Act(self.at_once);
        }
        match self.status {
            _ if self.status_waits => Step::Wait,
            StatusWrite::Soon(status) | StatusWrite::Early(status) | StatusWrite::Now(status) => {
                Step::WriteStatus(StatusChange {
                    status,
                    events: self.events,
                    then: self.after_status,
                })
            }
            // The status keeps it already.
            StatusWrite::Unchanged if !self.after_status.is_empty() => Step::Act(self.after_status),
            StatusWrite::Unchanged => Step::Done,
        }
    }

    /// When to plan again though nothing happens.
    pub fn wake_at(&self) -> Option<Timestamp> {
        self.wake_at
    }

    /// Since when it waits: [`LocalState::keep`] gives it to the next plan.
    pub fn waits(&self) -> Waits {
        self.waits
    }

    /// Writes that have a backoff and are not wanted any more.
    pub fn moot_backoffs(&self) -> &[Action] {
        &self.moot_backoffs
    }

    /// All writes but the status, whichever stage they belong to.
    pub fn actions(&self) -> impl Iterator<Item = &Action> {
        self.at_once.iter().chain(&self.after_status)
    }

    /// The status that it writes, now or later, if that is another than the job has.
    pub fn status(&self) -> Option<&TrainingJobStatus> {
        match &self.status {
            StatusWrite::Unchanged => None,
            StatusWrite::Soon(status) | StatusWrite::Early(status) | StatusWrite::Now(status) => Some(status),
        }
    }

    /// What the user is told once that status is written.
    pub fn events(&self) -> &[JobEvent] {
        &self.events
    }

    fn wake_no_later(&mut self, at: Option<Timestamp>) {
        self.wake_at = earliest([self.wake_at, at]);
    }
}

/// All that should be done for a job now.
///
/// In this order, and the first that applies decides: the job is somebody else's or on its way out; it has ended; it is
/// suspended, whatever is wrong with it; it is not valid, or was changed as it may not be; its names are taken; pods are to be made
/// and what they need is not there, or they would be strangers to those that run; it runs.
/// A job that was accepted before and has a spec that is not goes on by the rules it was accepted with, as far as that
/// is possible without making anything.
pub fn plan(view: &View<'_>) -> Plan {
    if !is_managed(view.job, view.local) {
        return Plan::default();
    }
    let mut plan = decide(view);
    progress::report(view, &mut plan);
    pace::pace(&mut plan, view);
    plan
}

/// Returns true unless a job is another controller's, or is being deleted.
pub fn is_managed(job: &TrainingJob, local: &LocalState) -> bool {
    job.is_ours() && job.metadata.deletion_timestamp.is_none() && !local.is_deleted
}

fn decide(view: &View<'_>) -> Plan {
    let job = view.job;
    if job
        .status
        .as_ref()
        .and_then(|status| status.phase)
        .is_some_and(JobPhase::is_terminal)
    {
        return finished::plan(view);
    }
    let parsed = match Job::parse(job).and_then(|parsed| refused::check_immutable(view).map(|()| parsed)) {
        Ok(parsed) => parsed,
        Err(errors) => {
            let objection = Objection {
                reason: Reason::Invalid,
                message: status::sentences(&errors),
            };
            let accepted = Job::accepted(job);
            return match accepted {
                _ if job.is_suspended() || suspended::was_suspended(view) => {
                    suspended::plan(accepted.as_ref(), view, Some(&objection))
                }
                Some(accepted) => active::plan(&accepted, view, Some(&objection)),
                None => refused::plan(view, &objection),
            };
        }
    };
    if job.is_suspended() || suspended::is_leaving(view) {
        return suspended::plan(Some(&parsed), view, None);
    }
    let conflict = refused::conflict(&parsed, view);
    let plan = active::plan(&parsed, view, conflict.as_ref());
    // A job whose pods are all there goes on whatever they took to make.
    let needs_secret = || creates(&plan) || refused::is_unmounted(view);
    let objection = refused::unsupported(&parsed, view)
        .filter(|_| creates(&plan))
        .or_else(|| refused::estranged(&parsed, view).filter(|_| needs_secret()));
    match objection {
        Some(objection) => active::plan(&parsed, view, Some(&objection)),
        None => plan,
    }
}

/// Why a job is not carried out as its spec says.
struct Objection {
    reason: Reason,
    message: String,
}

fn creates(plan: &Plan) -> bool {
    plan.actions().any(Action::creates)
}

fn event(warning: bool, reason: Reason, message: impl Into<String>) -> JobEvent {
    JobEvent {
        warning,
        reason,
        message: message.into(),
    }
}

fn earliest(times: impl IntoIterator<Item = Option<Timestamp>>) -> Option<Timestamp> {
    times.into_iter().flatten().min()
}

fn after(time: Timestamp, seconds: i64) -> Option<Timestamp> {
    time.checked_add(jiff::SignedDuration::from_secs(seconds)).ok()
}
