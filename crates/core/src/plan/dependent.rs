//! Pods of roles that wait for other roles.

use trainyard_api::{CreatePolicy, RolePhase, TrainingJobStatus};

use super::Plan;
use super::roles;
use crate::assess::Assessment;
use crate::depends;
use crate::job::{Job, Role};
use crate::model::Action;
use crate::view::{PodRow, View};

/// Leaves out the pods of roles that wait for others and are created only when these have come.
pub(super) fn hold_back(
    job: &Job<'_>,
    view: &View<'_>,
    seen: &Assessment<'_>,
    status: &TrainingJobStatus,
    plan: &mut Plan,
) {
    let phase_of = |role: usize| status.roles.get(role).map(|role| role.phase);
    let waits = |role: &Role<'_>| {
        depends::is_created_late(role, view.settings) && roles::waits(seen, role, phase_of).is_some()
    };
    let held: Vec<bool> = job.roles.iter().map(waits).collect();
    let goes_on =
        |action: &Action| !matches!(action, Action::CreatePod(key) if held.get(key.role) == Some(&true));
    plan.at_once.retain(goes_on);
    plan.after_status.retain(goes_on);
}

/// Whether a role whose user has its pods created late has some now, and had none: deadlines may begin
/// with them. Nothing hangs on when those of other roles come, and most jobs are spared that write.
pub(super) fn has_late_pods(job: &Job<'_>, old: Option<&TrainingJobStatus>, new: &TrainingJobStatus) -> bool {
    let pending = |status: &TrainingJobStatus, name: &str| {
        let mut roles = status.roles.iter();
        roles.any(|role| role.name == name && role.phase == RolePhase::Pending)
    };
    let mut late = job
        .roles
        .iter()
        .filter(|role| role.create_policy == CreatePolicy::WhenDependenciesMet);
    late.any(|role| old.is_some_and(|old| pending(old, role.name)) && !pending(new, role.name))
}

/// Pods that wait although what they wait for has come. Most are told so by the observer at this very moment.
pub(super) fn unreached(
    job: &Job<'_>,
    view: &View<'_>,
    seen: &Assessment<'_>,
    status: &TrainingJobStatus,
) -> Vec<Action> {
    let phase_of = |role: usize| status.roles.get(role).map(|role| role.phase);
    let may_start = |row: &&PodRow| {
        let role = job.key(&row.name).and_then(|key| job.roles.get(key.role));
        role.is_some_and(|role| roles::waits(seen, role, phase_of).is_none())
    };
    let waiting = view.pods.iter().filter(|row| row.waits && !row.terminating);
    waiting
        .filter(may_start)
        .map(|row| Action::StartPod {
            name: row.name.to_string(),
            uid: row.uid.to_string(),
        })
        .collect()
}
