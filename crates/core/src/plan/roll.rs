//! Changes that a job takes while it runs: pods of another template are replaced one after the other, and those that its roles
//! do not have any more are removed.

use std::cmp::Reverse;

use trainyard_api::RestartCause;

use super::refused;
use crate::assess::{Assessment, Ended, NewRestart, RoleAssessment, removal, size_before};
use crate::deduce::Tally;
use crate::job::{Job, Role};
use crate::model::{Action, PodKey};
use crate::restart::End;
use crate::view::{PodPhase, PodRow, View};

/// Whether roles were given another number of pods, and no status says so yet.
pub(super) fn is_resized(job: &Job<'_>, view: &View<'_>) -> bool {
    job.roles
        .iter()
        .any(|role| size_before(view, role) != role.replicas)
}

/// Removes pods that the roles do not have any more, those of the highest index first.
pub(super) fn removals(job: &Job<'_>, view: &View<'_>) -> Vec<Action> {
    let mut rows: Vec<&PodRow> = view
        .pods
        .iter()
        .filter(|row| job.key(&row.name).is_none())
        .collect();
    rows.sort_by_key(|row| Reverse((row.name.len(), &*row.name)));
    rows.into_iter()
        .filter_map(|row| removal(row, view.node(row)))
        .collect()
}

/// Chooses the pods that are replaced now because they were made from another template: all that have not started, and of
/// those that run one at a time, while nothing else of the job is on its way. What could not be made again is left alone.
pub(super) fn choose<'a>(job: &Job<'a>, view: &View<'_>, seen: &mut Assessment<'a>) {
    let is_rolling = seen.roles.iter().any(|role| !role.outdated.is_empty());
    if !is_rolling || is_refused(job, view) || refused::unsupported(job, view).is_some() {
        return;
    }
    let outdated = || seen.roles.iter().flat_map(|role| role.outdated.iter().copied());
    let waiting: Vec<_> = outdated()
        .filter(|(_, row)| row.phase == PodPhase::Pending)
        .collect();
    if !waiting.is_empty() {
        for (key, row) in waiting {
            replace(seen, key, row);
        }
    } else if let Some((key, row)) = next(job, seen) {
        replace(seen, key, row);
    }
}

/// Whether the server does not take a child that the job is to have. What it did not take before the job was made smaller says
/// nothing.
fn is_refused(job: &Job<'_>, view: &View<'_>) -> bool {
    view.refusal.is_some_and(|refusal| {
        let is_there = || view.pods.iter().any(|row| *row.name == *refusal.name);
        refusal.kind != "Pod" || job.key(&refusal.name).is_some() && !is_there()
    })
}

/// The pod that runs and is replaced now.
fn next<'a>(job: &Job<'a>, seen: &Assessment<'a>) -> Option<(PodKey, &'a PodRow)> {
    let mut going_on = seen.roles.iter().filter(|role| !role.has_ended);
    let is_calm = seen.new_restarts.is_empty() && seen.replacing.is_empty() && !going_on.any(is_moving);
    if !is_calm {
        return None;
    }
    let all = job.roles.iter().zip(&seen.roles);
    let (_, this) = all
        .filter(|(_, this)| !this.outdated.is_empty())
        .find(|(role, _)| awaits_none(role, seen))?;
    let Tally { active, ready, .. } = this.tally;
    let unready = this.outdated.iter().filter(|(_, row)| !row.ready).count();
    // Of the template that the role has now, all must be ready: else a template that does not work would take the whole role.
    let works = usize::try_from(active - ready).is_ok_and(|all| all == unready);
    let order = |(key, row): &&(PodKey, &PodRow)| (row.ready, Reverse(key.index));
    this.outdated.iter().filter(|_| works).min_by_key(order).copied()
}

/// Whether pods of a role are about to start or to go. Those that wait for other roles are not.
fn is_moving(this: &RoleAssessment<'_>) -> bool {
    let Tally {
        pending,
        replacing,
        terminating,
        ..
    } = this.tally;
    let held = i32::try_from(this.held).unwrap_or(i32::MAX);
    pending > held || replacing > 0 || terminating > 0
}

/// Whether all roles that a role waits for have the pods they should have.
fn awaits_none(role: &Role<'_>, seen: &Assessment<'_>) -> bool {
    let awaited = role.depends_on.iter().filter_map(|on| seen.roles.get(on.role));
    awaited.into_iter().all(|awaited| awaited.outdated.is_empty())
}

fn replace<'a>(seen: &mut Assessment<'a>, key: PodKey, row: &'a PodRow) {
    let ended = Ended::present(key, row, End::TemplateChanged);
    let Some(this) = seen.roles.get_mut(key.role) else {
        return;
    };
    if row.phase == PodPhase::Pending {
        this.tally.pending -= 1;
    } else {
        this.tally.active -= 1;
        this.tally.ready -= i32::from(row.ready);
    }
    this.tally.replacing += 1;
    let (_, _, pods) = this.retried.get_or_insert((ended, None, 0));
    *pods += 1;
    seen.new_restarts.push(NewRestart {
        ended,
        cause: RestartCause::Update,
        follows: None,
    });
}
