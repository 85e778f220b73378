//! Templates that change while a job runs: pods with an old one are replaced one after the other.

use std::cmp::Reverse;

use trainyard_api::RestartCause;

use super::objections;
use crate::assess::{Assessment, Ended, NewRestart, RoleAssessment};
use crate::deduce::Tally;
use crate::job::{Job, Role};
use crate::model::PodKey;
use crate::restart::End;
use crate::view::{PodPhase, PodRow, View};

/// Chooses the pods to replace now because their template is old: all pods that have not started,
/// or one pod that runs, while nothing else changes in the job. It chooses none if a new pod could
/// not be created.
pub(super) fn choose_outdated<'a>(job: &Job<'a>, view: &View<'_>, assessment: &mut Assessment<'a>) {
    let is_rolling = assessment.roles.iter().any(|role| !role.outdated.is_empty());
    if !is_rolling || is_refused(job, view) || objections::unsupported(job, view).is_some() {
        return;
    }
    let outdated = || {
        assessment
            .roles
            .iter()
            .flat_map(|role| role.outdated.iter().copied())
    };
    let waiting: Vec<_> = outdated()
        .filter(|(_, row)| row.phase == PodPhase::Pending)
        .collect();
    if !waiting.is_empty() {
        for (key, row) in waiting {
            add_replacement(assessment, key, row);
        }
    } else if let Some((key, row)) = next_outdated(job, assessment) {
        add_replacement(assessment, key, row);
    }
}

/// Returns true if the server refuses a child that the job should have. A refusal from before a
/// role shrank may be about a pod that the job does not have any more.
fn is_refused(job: &Job<'_>, view: &View<'_>) -> bool {
    view.refusal.is_some_and(|refusal| {
        let exists = || view.pods.iter().any(|row| *row.name == *refusal.name);
        refusal.kind != "Pod" || job.key(&refusal.name).is_some() && !exists()
    })
}

/// The running pod to replace now.
fn next_outdated<'a>(job: &Job<'a>, assessment: &Assessment<'a>) -> Option<(PodKey, &'a PodRow)> {
    let mut going_on = assessment.roles.iter().filter(|role| !role.has_ended);
    let is_calm =
        assessment.new_restarts.is_empty() && assessment.replacing.is_empty() && !going_on.any(is_moving);
    if !is_calm {
        return None;
    }
    let all = job.roles.iter().zip(&assessment.roles);
    let (_, this) = all
        .filter(|(_, this)| !this.outdated.is_empty())
        .find(|(role, _)| dependencies_are_current(role, assessment))?;
    let Tally { active, ready, .. } = this.tally;
    let unready = this.outdated.iter().filter(|(_, row)| !row.ready).count();
    // All pods with the new template must be ready. Otherwise a broken template would take down the
    // whole role.
    let works = usize::try_from(active - ready).is_ok_and(|all| all == unready);
    let order = |(key, row): &&(PodKey, &PodRow)| (row.ready, Reverse(key.index));
    this.outdated.iter().filter(|_| works).min_by_key(order).copied()
}

/// Returns true if pods of a role are starting or terminating. Pods that wait for other roles do
/// not count.
fn is_moving(this: &RoleAssessment<'_>) -> bool {
    let Tally {
        pending,
        replacing,
        terminating,
        ..
    } = this.tally;
    let waiting = i32::try_from(this.waiting).unwrap_or(i32::MAX);
    pending > waiting || replacing > 0 || terminating > 0
}

/// Returns true if the pods of all roles that a role waits for have the current template.
fn dependencies_are_current(role: &Role<'_>, assessment: &Assessment<'_>) -> bool {
    let awaited = role
        .depends_on
        .iter()
        .filter_map(|on| assessment.roles.get(on.role));
    awaited.into_iter().all(|awaited| awaited.outdated.is_empty())
}

fn add_replacement<'a>(assessment: &mut Assessment<'a>, key: PodKey, row: &'a PodRow) {
    let ended = Ended::present(key, row, End::TemplateChanged);
    let Some(this) = assessment.roles.get_mut(key.role) else {
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
    assessment.new_restarts.push(NewRestart {
        ended,
        cause: RestartCause::Update,
        consequence_of: None,
    });
}
