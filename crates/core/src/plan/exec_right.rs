//! Plans the right of a job to start programs in its pods through the API server: which pods it
//! covers now.
//!
//! It covers pods by their names, so it follows the pods that exist and are this job's own. It
//! covers none while another object has a name that the job needs, while the job is suspended, once
//! it has ended, and once it is being deleted.

use trainyard_api::{JobPhase, MpiAttach, Reason};

use super::{Objection, Plan};
use crate::exec;
use crate::job::Job;
use crate::local_state::ExecRightState;
use crate::model::{Action, PodNames};
use crate::view::View;

/// Creates the account and its right before pods are created that need them. Somebody may have
/// deleted them, but that only affects new pods: streams that are open stay open.
pub(super) fn missing(job: &Job<'_>, view: &View<'_>, plan: &Plan) -> Option<Action> {
    let right = job.framework.exec(job)?;
    let mut pods = plan
        .actions()
        .filter(|action| matches!(action, Action::CreatePod(_)));
    let needs_it = |action: &Action| matches!(action, Action::CreatePod(key) if key.role == right.holder);
    let is_needed = match &view.local.exec_right {
        _ if view.local.exec_right_is_sure => false,
        ExecRightState::Covers(_) => pods.any(needs_it),
        ExecRightState::Unknown | ExecRightState::Missing => pods.next().is_some(),
    };
    is_needed.then_some(Action::CreateExecRight)
}

/// Lets the right of a job that goes on cover the pods that it should cover now.
pub(super) fn correction(job: &Job<'_>, view: &View<'_>, objection: Option<&Objection>) -> Option<Action> {
    let has_conflict = objection.is_some_and(|objection| objection.reason == Reason::OwnershipConflict);
    let owned = view.pods.iter().map(|row| &*row.name);
    match exec::extent(job, owned).filter(|_| !has_conflict) {
        Some(extent) => grant(view, extent, true),
        None => withdrawal(view),
    }
}

/// Takes the right away from a job that does not go on, or that does not attach by it any more.
pub(super) fn withdrawal(view: &View<'_>) -> Option<Action> {
    let options = view.job.spec.framework.launcher();
    let attaches = options.is_some_and(|options| options.attach == Some(MpiAttach::Exec));
    let status = view.job.status.as_ref();
    // Whoever suspends or deletes a job may change how it attaches in the same moment.
    let may_have_attached = || {
        let framework = view.frameworks.of(view.job);
        let has_shell = framework.is_some_and(|framework| framework.remote_access.is_some());
        let phase = status.and_then(|status| status.phase);
        let is_to_suspend = view.job.is_suspended() && !phase.is_some_and(JobPhase::is_suspended);
        has_shell && (is_to_suspend || view.job.metadata.deletion_timestamp.is_some())
    };
    // Also without a status: pods and rights are created before the first one is written.
    grant(view, PodNames::default(), attaches || may_have_attached())
}

/// `None` if the right covers these pods already. An operator that does not know which ones it
/// covers, because it has just become the leader, finds out by granting it if the job may have it.
fn grant(view: &View<'_>, extent: PodNames, may_have_it: bool) -> Option<Action> {
    let is_wrong = match &view.local.exec_right {
        ExecRightState::Unknown => may_have_it,
        // The next pod that needs it has it created.
        ExecRightState::Missing => false,
        ExecRightState::Covers(pods) => *pods != extent,
    };
    (is_wrong && view.settings.allows_exec).then_some(Action::Grant(extent))
}
