//! One reconcile, decided: [`plan`] says all that should be done now.

mod active;
mod cause;

mod dependent;
mod describe;
mod finished;
mod progress;
mod refused;
mod restarts;
pub(crate) mod roles;
mod roll;
mod suspended;
mod verdict;

use jiff::Timestamp;
use trainyard_api::{JobPhase, Reason};

use crate::job::Job;
use crate::model::{Action, JobEvent, StatusWrite};
use crate::status;
use crate::view::View;

/// What should be done now, in this order: `actions`, `status`, and only if that was written, `after` and `events`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    /// Names of pods that ran and are not there, which is about to be counted. Whoever carries the plan out makes sure
    /// first: a watch shows a pod that lost its label as gone.
    pub missing: Vec<String>,
    /// What can be done at any time and in any order: repeating it does no harm, and nothing is lost by it.
    pub actions: Vec<Action>,
    /// The status to write.
    pub status: StatusWrite,
    /// What destroys evidence that `status` keeps, and so must come after it.
    pub after: Vec<Action>,
    /// What to do if it is still so after a while: pods that were told over the network that they may start, and whom
    /// that has not reached, or that may lack their Secret.
    pub late: Vec<Action>,
    /// What to tell the user, once `status` is written.
    pub events: Vec<JobEvent>,
    /// When to look again though nothing happened.
    pub wake_at: Option<Timestamp>,
}

impl Plan {
    /// Whether it creates a child.
    fn creates(&self) -> bool {
        self.actions.iter().chain(&self.after).any(Action::creates)
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
    if !view.job.is_ours() || view.job.metadata.deletion_timestamp.is_some() {
        return Plan::default();
    }
    let mut plan = decide(view);
    progress::report(view, &mut plan);
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
    let needs_secret = || plan.creates() || refused::is_unmounted(view);
    let objection = refused::unsupported(&parsed, view)
        .filter(|_| plan.creates())
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
