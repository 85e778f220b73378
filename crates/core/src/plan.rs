//! Decides one reconcile: [`plan`] returns everything that should be done now.

mod active;
mod budget;
mod cause;
mod checkpoint;
mod children;
mod dependent;
mod describe;
mod exec_right;
mod finished;
mod group;
mod leave;
mod objections;
pub mod pace;
mod progress;
mod restarts;
pub(crate) mod roles;
mod roll;
mod size;
mod suspended;
mod unrecorded;
mod verdict;

use jiff::Timestamp;
use trainyard_api::{JobPhase, Reason, TrainingJob, TrainingJobStatus};

use crate::job::Job;
use crate::local_state::{LocalState, Waits};
use crate::model::{Action, DrainSummary, JobEvent, StatusWrite};
use crate::scaling;
use crate::status;
use crate::view::View;

/// What should be done for a job, in stages: check what is doubtful, act, write the status, act on
/// what the status has recorded. [`Plan::step`] returns the first stage only, so nobody can carry
/// out the stages in another order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    checks_conflicts: bool,
    /// Pods that ran and do not exist. Their loss is about to be counted.
    unconfirmed: Vec<String>,
    /// Writes that are safe at any time and in any order. Repeating them does no harm.
    at_once: Vec<Action>,
    status: StatusWrite,
    /// The status is not due yet.
    status_is_early: bool,
    /// Writes that are safe only once the status is written: they destroy evidence, or create what
    /// the status must explain.
    after_status: Vec<Action>,
    /// All that waits for the status are deletions of pods that have left by a change of size, and
    /// others are about to leave: one write may tell of all.
    others_leave: bool,
    /// Writes for what should happen by itself and may not: pods that the observer has told to
    /// start may still wait, or may lack their Secret.
    when_overdue: Vec<Action>,
    events: Vec<JobEvent>,
    drain: DrainSummary,
    wake_at: Option<Timestamp>,
    waits: Waits,
    moot_backoffs: Vec<Action>,
}

/// The next thing to do for a job. After each step but `Wait` and `Done`, plan again.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// Check whether the conflicting objects still exist and still belong to somebody else.
    CheckConflicts,
    /// Ask the server whether these pods are really deleted: a watch also shows a pod that lost its
    /// label as deleted. Done once in a reconcile; see [`View::absence_is_confirmed`].
    ConfirmAbsence(Vec<String>),
    /// Carry out these actions, in any order.
    Act(Vec<Action>),
    /// Write the status. Only if that worked, send the events and carry out the actions.
    WriteStatus(StatusChange),
    /// Do nothing now. A status is to be written at [`Plan::wake_at`].
    Wait,
    /// Do nothing. The job and its status are as they should be.
    Done,
}

/// A status to write, and what follows from it.
#[derive(Clone, Debug, PartialEq)]
pub struct StatusChange {
    /// The status.
    pub status: Box<TrainingJobStatus>,
    /// Events to send when the status is written.
    pub events: Vec<JobEvent>,
    /// What to count then.
    pub drain: DrainSummary,
    /// Actions that are safe only when the status is written.
    pub then: Vec<Action>,
}

impl Plan {
    /// The next thing to do.
    pub fn step(self) -> Step {
        if self.checks_conflicts {
            return Step::CheckConflicts;
        }
        if !self.unconfirmed.is_empty() {
            return Step::ConfirmAbsence(self.unconfirmed);
        }
        if !self.at_once.is_empty() {
            return Step::Act(self.at_once);
        }
        match self.status {
            _ if self.status_is_early => Step::Wait,
            StatusWrite::Changed(status, _) => Step::WriteStatus(StatusChange {
                status,
                events: self.events,
                drain: self.drain,
                then: self.after_status,
            }),
            // The status has recorded it already.
            StatusWrite::Unchanged if !self.after_status.is_empty() => Step::Act(self.after_status),
            StatusWrite::Unchanged => Step::Done,
        }
    }

    /// When to plan again even if nothing changes.
    pub fn wake_at(&self) -> Option<Timestamp> {
        self.wake_at
    }

    /// Since when the plan waits. [`LocalState::record_plan`] hands it to the next plan.
    pub fn waits(&self) -> Waits {
        self.waits
    }

    /// Writes that have a backoff and are not wanted any more.
    pub fn moot_backoffs(&self) -> &[Action] {
        &self.moot_backoffs
    }

    /// All writes except the status, of all stages.
    pub fn actions(&self) -> impl Iterator<Item = &Action> {
        self.at_once.iter().chain(&self.after_status)
    }

    /// The status to write, now or later; `None` if it is unchanged.
    pub fn status(&self) -> Option<&TrainingJobStatus> {
        self.status.status()
    }

    /// The events to send when that status is written.
    pub fn events(&self) -> &[JobEvent] {
        &self.events
    }

    fn wake_no_later(&mut self, at: Option<Timestamp>) {
        self.wake_at = earliest([self.wake_at, at]);
    }
}

/// Plans everything that should be done for a job now.
///
/// The first case that applies decides:
///
/// 1. The job has another controller, or is being deleted: nothing is done, but that the latter
///    loses its right to start programs in its pods, and its disruption budget.
/// 2. The job has ended.
/// 3. It is suspended, whether its spec is valid or not.
/// 4. Its spec is not valid, or has a change that is forbidden.
/// 5. A name that it needs is taken.
/// 6. Pods are to be created, and this operator lacks what they need, or they could not talk to the
///    pods that run.
/// 7. It runs.
///
/// A job whose spec was accepted before and is not now goes on by the accepted rules, as far as
/// that is possible without creating anything.
pub fn plan(view: &View<'_>) -> Plan {
    if !is_managed(view.job, view.local) {
        return leave(view);
    }
    let mut plan = decide(view);
    progress::report(view, &mut plan);
    checkpoint::record(view, &mut plan);
    leave::measure(view, &mut plan);
    pace::pace(&mut plan, view);
    plan
}

/// Returns true unless a job has another controller or is being deleted.
fn is_managed(job: &TrainingJob, local: &LocalState) -> bool {
    job.is_ours() && job.metadata.deletion_timestamp.is_none() && !local.is_deleted
}

/// Plans for a job that is not managed any more. One that is being deleted may stay for as long as
/// finalizers or its pods do: it keeps no right to its pods, and no budget, because nobody has them
/// leave nodes any more.
fn leave(view: &View<'_>) -> Plan {
    let mut plan = Plan::default();
    if view.job.is_ours() && !view.local.is_deleted {
        plan.at_once.extend(exec_right::withdrawal(view));
        plan.at_once.extend(budget::withdrawal(view));
        pace::pace_actions(&mut plan, view);
    }
    plan
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
    if let Some(plan) = unrecorded::start_over(view) {
        return plan;
    }
    let mut parsed = match Job::parse_with(job, view.frameworks)
        .and_then(|parsed| objections::check_immutable(view).map(|()| parsed))
    {
        Ok(parsed) => parsed,
        Err(errors) => {
            let objection = Objection {
                reason: Reason::Invalid,
                message: status::sentences(&errors),
            };
            let accepted = Job::accepted(job, view.frameworks);
            return match accepted {
                _ if job.is_suspended() || suspended::was_suspended(view) => {
                    suspended::plan(accepted.as_ref(), view, Some(&objection))
                }
                Some(accepted) => active::plan(&accepted, view, None, Some(&objection)),
                None => objections::plan_rejected(view, &objection),
            };
        }
    };
    if job.is_suspended() || suspended::has_leftovers(view) {
        return suspended::plan(Some(&parsed), view, None);
    }
    let mut sizes = scaling::decide(&parsed, view);
    parsed.set_members(std::mem::take(&mut sizes.members));
    let conflict = objections::ownership_conflict(&parsed, view);
    let plan = active::plan(&parsed, view, Some(&sizes), conflict.as_ref());
    // A job whose pods all exist goes on, even if they could not be created now.
    let needs_secret = || creates(&plan) || objections::has_unmounted_pods(view);
    let objection = objections::unsupported(&parsed, view)
        .filter(|_| creates(&plan))
        .or_else(|| objections::secret_missing(&parsed, view).filter(|_| needs_secret()));
    match objection {
        Some(objection) => active::plan(&parsed, view, Some(&sizes), Some(&objection)),
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
