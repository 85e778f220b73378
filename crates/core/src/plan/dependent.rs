//! Pods of roles that wait for other roles.

use trainyard_api::{CreatePolicy, RolePhase, TrainingJobStatus};

use super::Plan;
use super::roles;
use crate::assess::Assessment;
use crate::depends;
use crate::job::{Job, Role};
use crate::model::Action;
use crate::view::{PodRow, View};

/// Drops the creation of pods of roles that still wait, if those pods are created only when their
/// dependencies are met.
pub(super) fn drop_waiting(
    job: &Job<'_>,
    view: &View<'_>,
    assessment: &Assessment<'_>,
    status: &TrainingJobStatus,
    plan: &mut Plan,
) {
    let phase_of = |role: usize| status.roles.get(role).map(|role| role.phase);
    let waits = |role: &Role<'_>| {
        depends::is_created_late(role, view.settings)
            && roles::unmet_dependency(assessment, role, phase_of).is_some()
    };
    let waiting: Vec<bool> = job.roles.iter().map(waits).collect();
    let stays =
        |action: &Action| !matches!(action, Action::CreatePod(key) if waiting.get(key.role) == Some(&true));
    plan.at_once.retain(stays);
    plan.after_status.retain(stays);
}

/// Returns true if pods of a role with `createPolicy: WhenDependenciesMet` were created now:
/// deadlines may count from then, so the status must say it at once. For other roles that moment
/// does not matter, and most jobs save the write.
pub(super) fn has_late_role_started(
    job: &Job<'_>,
    old: Option<&TrainingJobStatus>,
    new: &TrainingJobStatus,
) -> bool {
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

/// Starts pods that wait although their dependencies are met. The observer is telling most of them
/// at this very moment.
pub(super) fn unreached(
    job: &Job<'_>,
    view: &View<'_>,
    assessment: &Assessment<'_>,
    status: &TrainingJobStatus,
) -> Vec<Action> {
    let phase_of = |role: usize| status.roles.get(role).map(|role| role.phase);
    let may_start = |row: &&PodRow| {
        let role = job.key(&row.name).and_then(|key| job.roles.get(key.role));
        role.is_some_and(|role| roles::unmet_dependency(assessment, role, phase_of).is_none())
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
