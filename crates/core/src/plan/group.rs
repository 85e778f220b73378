//! Pods that start anew together: which, because of which end, and when it is over.

use std::collections::BTreeSet;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use trainyard_api::{
    GroupRestart, RestartCause, RestartPolicy, RestartScope, Restarts, RoleAttempt, RolePhase,
    TrainingJobStatus,
};

use crate::assess::{Assessment, NewRestart};
use crate::group_restart::{Beginning, has_former, positions};
use crate::job::Job;
use crate::model::PodKey;
use crate::scaling::{self, Evaded};
use crate::view::{PodRow, View};

/// Finds the pods that have to start anew because of ends that are counted now. Further ends of
/// such pods came of those: all of them cost one unit.
pub(super) fn choose(
    job: &Job<'_>,
    view: &View<'_>,
    status: &TrainingJobStatus,
    assessment: &mut Assessment<'_>,
) -> Option<Beginning> {
    let Some(evaded) = assessment.evaded.clone() else {
        return choose_ended(job, view, status, assessment, |_| true);
    };
    let left = choose_evaded(view, status, assessment, &evaded);
    // Pods that have nothing to do with those that leave may have ended at the same time.
    let has_left = |key: PodKey| evaded.pods.contains(&key) || evaded.roles.contains(&key.role);
    let ended = choose_ended(job, view, status, assessment, |key| !has_left(key));
    match (left, ended) {
        (Some(left), Some(ended)) => Some(Beginning {
            roles: left.roles.union(&ended.roles).copied().collect(),
            ..left
        }),
        (left, ended) => left.or(ended),
    }
}

/// Finds the pods that have to start anew because some of those ended that count.
fn choose_ended(
    job: &Job<'_>,
    view: &View<'_>,
    status: &TrainingJobStatus,
    assessment: &mut Assessment<'_>,
    may_be_first: impl Fn(PodKey) -> bool,
) -> Option<Beginning> {
    let scope_of = |role: usize| {
        job.roles
            .get(role)
            .map_or(RestartScope::Pod, |role| role.restart_scope)
    };
    let counts = |cause| matches!(cause, RestartCause::Failure | RestartCause::Disruption);
    let ends = assessment.new_restarts.iter();
    let mut triggers = ends
        .filter(|end| counts(end.cause) && scope_of(end.ended.key.role) != RestartScope::Pod)
        .filter(|end| may_be_first(end.ended.key))
        .map(|end| (end.ended.key, end.cause, end.ended.is_leaving()));
    let (first, cause, is_leaving) = triggers.next()?;
    let of_end = |key: PodKey| match scope_of(key.role) {
        RestartScope::Job => 0..job.roles.len(),
        RestartScope::Role | RestartScope::Pod => key.role..key.role + 1,
    };
    let is_replaced = |role: &usize| {
        let role = job.roles.get(*role);
        role.is_some_and(|role| role.restart_policy != RestartPolicy::Never)
    };
    let all = of_end(first).chain(triggers.flat_map(|(key, ..)| of_end(key)));
    let roles: BTreeSet<usize> = all
        .filter(|role| is_replaced(role) && !has_ended(status, *role))
        .collect();
    for end in &mut assessment.new_restarts {
        let key = end.ended.key;
        if key != first && roles.contains(&key.role) && may_be_first(key) {
            (end.consequence_of, end.cause) = (Some(first), cause);
        }
    }
    // Nobody waits for them if others start anew already.
    let may_leave = is_leaving && status.scaling.is_none() && assessment.evaded.is_none();
    let leave = may_leave.then(|| scaling::leave_with(job, view, &job.pod_name(first)));
    Some(Beginning {
        roles,
        first,
        leave: leave.flatten().map(Box::new),
    })
}

/// Returns true if a role has ended, so that its pods stay as they are.
fn has_ended(status: &TrainingJobStatus, role: usize) -> bool {
    let written = status.roles.get(role);
    written.is_some_and(|role| role.phase.is_terminal())
}

/// Finds the pods that start anew because they have left nodes which are about to go: all of them
/// are one disruption.
fn choose_evaded(
    view: &View<'_>,
    status: &TrainingJobStatus,
    assessment: &mut Assessment<'_>,
    evaded: &Evaded,
) -> Option<Beginning> {
    let of_told = evaded.roles.iter().copied();
    let roles: BTreeSet<usize> = of_told.filter(|role| !has_ended(status, *role)).collect();
    let on_node = |row: &PodRow| {
        let node = row.node.as_deref();
        view.notice(row).is_some() || node.is_some_and(|node| evaded.nodes.iter().any(|known| known == node))
    };
    let ends = assessment.new_restarts.iter();
    let of_them = ends.filter(|end| evaded.pods.contains(&end.ended.key));
    let order = |end: &&NewRestart<'_>| {
        let key = end.ended.key;
        (
            !end.ended.row.is_some_and(on_node),
            !roles.contains(&key.role),
            key,
        )
    };
    let first = of_them.min_by_key(order)?.ended.key;
    // If not all can be counted now, the first is.
    assessment.new_restarts.sort_by_key(|end| end.ended.key != first);
    let counted = evaded.counted.filter(|_| roles.is_empty());
    for end in &mut assessment.new_restarts {
        let key = end.ended.key;
        if key == first && counted.is_none() {
            (end.consequence_of, end.cause) = (None, RestartCause::Disruption);
        } else if evaded.pods.contains(&key) || roles.contains(&key.role) {
            (end.consequence_of, end.cause) = (counted.or(Some(first)), RestartCause::Disruption);
        }
    }
    (!roles.is_empty()).then_some(Beginning {
        roles,
        first,
        leave: None,
    })
}

/// Counts one more attempt of roles. Pods that exist are of former ones.
pub(super) fn add_attempt(
    job: &Job<'_>,
    view: &View<'_>,
    roles: impl IntoIterator<Item = usize>,
    restarts: &mut Restarts,
) {
    for (position, role) in roles
        .into_iter()
        .filter_map(|position| Some((position, job.roles.get(position)?)))
    {
        let rows = view.pods.iter();
        let of_role = rows.filter(|row| job.key(&row.name).is_some_and(|key| key.role == position));
        let latest = of_role.map(|row| row.attempt).max().unwrap_or_default();
        let attempt = latest.max(role.attempt).saturating_add(1);
        match restarts.attempts.iter_mut().find(|known| known.role == role.name) {
            Some(known) => known.attempt = attempt,
            None => restarts.attempts.push(RoleAttempt {
                role: role.name.to_owned(),
                attempt,
            }),
        }
    }
}

/// The restart to write down. Pods that were starting anew before still wait for each other.
pub(super) fn record(
    job: &Job<'_>,
    beginning: &Beginning,
    before: Option<&GroupRestart>,
    since: Time,
    not_before: Option<Time>,
) -> GroupRestart {
    let others = before
        .map(|before| positions(job, &before.roles))
        .unwrap_or_default();
    let roles = beginning.roles.union(&others);
    GroupRestart {
        roles: roles
            .filter_map(|role| Some(job.roles.get(*role)?.name.to_owned()))
            .collect(),
        pod: job.pod_name(beginning.first),
        since,
        not_before,
    }
}

/// Says which pods start anew, and when.
pub(super) fn describe(job: &Job<'_>, beginning: &Beginning, restarts: &Restarts) -> String {
    let which = if beginning.roles.len() == job.roles.len() {
        "all pods of the job start anew together".to_owned()
    } else {
        let roles = beginning.roles.iter().filter_map(|role| job.roles.get(*role));
        let names: Vec<&str> = roles.map(|role| role.name).collect();
        format!("all pods of {} start anew together", names.join(", "))
    };
    let due = restarts
        .group
        .as_ref()
        .and_then(|group| group.not_before.as_ref());
    match due {
        Some(due) => format!("{which}, not before {}", due.0),
        None => which,
    }
}

/// Ends the restart that is under way if all its pods run, or have ended for good.
pub(super) fn finish(job: &Job<'_>, view: &View<'_>, status: &mut TrainingJobStatus) {
    let Some(group) = status
        .restarts
        .as_ref()
        .and_then(|restarts| restarts.group.as_ref())
    else {
        return;
    };
    let roles = positions(job, &group.roles);
    let runs = |role: &usize| {
        let phase = status.roles.get(*role).map(|role| role.phase);
        phase.is_none_or(|phase| phase == RolePhase::Running || phase.is_terminal())
    };
    if roles.iter().all(runs)
        && !has_former(job, view, &roles)
        && let Some(restarts) = &mut status.restarts
    {
        restarts.group = None;
    }
}
