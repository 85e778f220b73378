//! Plans a job that has ended: its pods are cleaned up, and finally it is deleted itself.

use trainyard_api::{CleanPodPolicy, JobPhase};

use super::{Plan, after, budget, earliest, exec_right};
use crate::assess::pod_deletion;
use crate::model::Action;
use crate::status::{time, write};
use crate::view::{PodPhase, PodRow, View};

pub(super) fn plan(view: &View<'_>) -> Plan {
    let old = view.job.status.as_ref();
    let Some(mut status) = old.cloned() else {
        return Plan::default();
    };
    status.observed_generation = view.job.metadata.generation;
    let run = view.job.spec.run_policy.clone().unwrap_or_default();
    // Somebody may have edited the status. Without a completion time the TTLs would never expire.
    let ended = status.completion_time.get_or_insert_with(|| time(view.now)).0;

    let deleted_at = run.ttl_seconds_after_finished.and_then(|ttl| after(ended, ttl));
    if deleted_at.is_some_and(|at| at <= view.now) {
        // A finalizer may keep it for long.
        let withdrawal = exec_right::withdrawal(view);
        return Plan {
            at_once: withdrawal.into_iter().chain([Action::DeleteJob]).collect(),
            ..Plan::default()
        };
    }
    let failed = status.phase == Some(JobPhase::Failed);
    let emptied_at = run
        .ttl_seconds_after_failed
        .filter(|_| failed)
        .and_then(|ttl| after(ended, ttl));
    let policy = if emptied_at.is_some_and(|at| at <= view.now) {
        CleanPodPolicy::All
    } else {
        // A spec change that was not accepted does not apply after the end either.
        let accepted = status.accepted.rules.as_ref();
        accepted.map_or(run.clean_pod_policy.unwrap_or_default(), |rules| {
            rules.clean_pod_policy
        })
    };
    let mut at_once = clean(view, policy);
    at_once.extend(exec_right::withdrawal(view));
    at_once.extend(budget::withdrawal(view));
    Plan {
        at_once,
        status: write(old, status),
        wake_at: earliest([deleted_at, emptied_at.filter(|at| *at > view.now)]),
        ..Plan::default()
    }
}

/// The deletions that a policy asks for.
pub(super) fn clean(view: &View<'_>, policy: CleanPodPolicy) -> Vec<Action> {
    let ended = |row: &PodRow| matches!(row.phase, PodPhase::Succeeded | PodPhase::Failed) && !row.lingers;
    let is_deleted = |row: &&PodRow| match policy {
        CleanPodPolicy::All => true,
        CleanPodPolicy::Running => !ended(row),
        CleanPodPolicy::None => false,
    };
    let mut actions: Vec<Action> = view
        .pods
        .iter()
        .filter(is_deleted)
        .filter_map(|row| pod_deletion(row, view.node(row)))
        .collect();
    if policy == CleanPodPolicy::All {
        let services = view.services.iter().filter(|service| !service.terminating);
        actions.extend(services.map(|service| Action::DeleteService {
            name: service.name.to_string(),
            uid: service.uid.to_string(),
        }));
    }
    actions
}
