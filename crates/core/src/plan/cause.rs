//! Finds the end that caused the others if several pods of a job ended.

use jiff::{SignedDuration, Timestamp};
use trainyard_api::RestartCause;

use super::roles::first_end;
use crate::assess::incident::is_retried_by_exit_code;
use crate::assess::{Assessment, Ended, RoleAssessment};
use crate::depends::needs;
use crate::job::Job;
use crate::restart::{End, is_expected};
use crate::view::View;

/// How long the end of a pod does not yet end the job while the pods that it needs seem to run. A
/// kubelet looks at its containers once a second, and two kubelets do not look at the same moment.
/// Kubernetes reports ends in whole seconds, so the real pause is up to one second shorter.
const END_DELAY: SignedDuration = SignedDuration::from_secs(3);

/// The end that caused the others: usually the first of `ends`. If that pod needs another one that
/// ended, in `ends` or `others`, and not later, the other one is the cause.
pub(super) fn find<'a>(job: &Job<'_>, ends: &[Ended<'a>], others: &[Ended<'a>]) -> Option<Ended<'a>> {
    let consequence = first_end(ends)?;
    let at = finished_at(&consequence);
    let caused_it = |other: &&Ended<'_>| {
        let is_later = at.is_some_and(|at| finished_at(other).is_some_and(|other| other > at));
        needs(job, consequence.key.role, other.key.role) && !is_later
    };
    let needed: Vec<Ended<'a>> = ends.iter().chain(others).filter(caused_it).copied().collect();
    first_end(&needed).or(Some(consequence))
}

/// The ends that are retried and may have caused others.
pub(super) fn retried<'a>(assessment: &Assessment<'a>) -> Vec<Ended<'a>> {
    let ends = assessment
        .new_restarts
        .iter()
        .filter(|end| !is_expected(end.cause));
    ends.map(|end| end.ended).collect()
}

/// The end to report for `ended`: itself, or the first end of its incident if it is a consequence.
/// `None` if that first end was counted before. A consequence of an update is reported as itself.
pub(super) fn origin<'a>(assessment: &Assessment<'a>, ended: Ended<'a>) -> Option<Ended<'a>> {
    match assessment.final_consequences.get(&ended.key) {
        None | Some((_, RestartCause::Update)) => Some(ended),
        Some((first, _)) => {
            let new = assessment
                .new_restarts
                .iter()
                .filter(|end| end.consequence_of.is_none());
            let mut new = new.map(|end| end.ended);
            new.find(|end| end.key == *first)
        }
    }
}

/// Until when the end of a pod does not end the job yet. A pod that it needs may have ended before,
/// and its node may not have reported that yet.
pub(super) fn delayed_until(
    job: &Job<'_>,
    view: &View<'_>,
    assessment: &Assessment<'_>,
    cause: &Ended<'_>,
) -> Option<Timestamp> {
    let at = finished_at(cause).filter(|at| *at <= view.now)?;
    let until = at.checked_add(END_DELAY).ok().filter(|until| *until > view.now)?;
    // Its exit code makes this end final. As a consequence it would be retried.
    let by_exit_code = job.framework.trains_as_one && is_retried_by_exit_code(job, cause.key);
    let needed = |role: usize| by_exit_code || needs(job, cause.key.role, role);
    let ended = |role: usize, ends: &[Ended<'_>]| ends.iter().any(|end| end.key.role == role);
    let runs = |(role, this): (usize, &RoleAssessment<'_>)| {
        needed(role) && this.tally.active > 0 && (by_exit_code || !ended(role, &this.final_ends))
    };
    let is_reported = retried(assessment).iter().any(|end| needed(end.key.role));
    // Departed pods are forgotten unless a status is written that was computed with them.
    let stays = cause.row.is_some_and(|row| !row.terminating) && view.departed.is_empty();
    let waits = matches!(cause.end, End::Failure(_))
        && stays
        && !is_reported
        && assessment.roles.iter().enumerate().any(runs);
    waits.then_some(until)
}

fn finished_at(ended: &Ended<'_>) -> Option<Timestamp> {
    ended.row?.end.as_deref()?.finished_at
}
