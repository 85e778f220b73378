//! Which end made the others, where several pods of a job ended.

use jiff::{SignedDuration, Timestamp};
use trainyard_api::RestartCause;

use super::roles::first;
use crate::assess::incident::is_judged_by_code;
use crate::assess::{Assessment, Ended, RoleAssessment};
use crate::depends::needs;
use crate::job::Job;
use crate::restart::{End, is_expected};
use crate::view::View;

/// How long the end of a pod that needs others is held back while those seem to run. A kubelet looks at its containers once
/// a second, and two kubelets do not look at the same moment. Ends are told in whole seconds, so that it is less by up to one.
const HELD: SignedDuration = SignedDuration::from_secs(3);

/// The end that made the others. The first one, of `ends`, is only what came of the end of a pod that it needs, of `ends`
/// or of `others`, if that is not known to have been later.
pub(super) fn of<'a>(job: &Job<'_>, ends: &[Ended<'a>], others: &[Ended<'a>]) -> Option<Ended<'a>> {
    let consequence = first(ends)?;
    let at = finished_at(&consequence);
    let made_it = |other: &&Ended<'_>| {
        let is_later = at.is_some_and(|at| finished_at(other).is_some_and(|other| other > at));
        needs(job, consequence.key.role, other.key.role) && !is_later
    };
    let needed: Vec<Ended<'a>> = ends.iter().chain(others).filter(made_it).copied().collect();
    first(&needed).or(Some(consequence))
}

/// The ends that are retried and may have caused others.
pub(super) fn retried<'a>(seen: &Assessment<'a>) -> Vec<Ended<'a>> {
    let ends = seen.new_restarts.iter().filter(|end| !is_expected(end.cause));
    ends.map(|end| end.ended).collect()
}

/// The end that one stands for: its own, or, if it is what came of another, that one, unless it was counted before. What came of
/// an update stands for itself.
pub(super) fn origin<'a>(seen: &Assessment<'a>, ended: Ended<'a>) -> Option<Ended<'a>> {
    match seen.followers.get(&ended.key) {
        None | Some((_, RestartCause::Update)) => Some(ended),
        Some((first, _)) => {
            let new = seen.new_restarts.iter().filter(|end| end.follows.is_none());
            let mut new = new.map(|end| end.ended);
            new.find(|end| end.key == *first)
        }
    }
}

/// Until when the end of a pod does not end the job yet: one that it needs may have ended before, and its node has not told it.
pub(super) fn held_until(
    job: &Job<'_>,
    view: &View<'_>,
    seen: &Assessment<'_>,
    cause: &Ended<'_>,
) -> Option<Timestamp> {
    let at = finished_at(cause).filter(|at| *at <= view.now)?;
    let until = at.checked_add(HELD).ok().filter(|until| *until > view.now)?;
    // By its exit code it stands, and would not if it only followed.
    let by_code = job.framework.trains_as_one() && is_judged_by_code(job, cause.key);
    let needed = |role: usize| by_code || needs(job, cause.key.role, role);
    let ended = |role: usize, ends: &[Ended<'_>]| ends.iter().any(|end| end.key.role == role);
    let runs = |(role, this): (usize, &RoleAssessment<'_>)| {
        needed(role) && this.tally.active > 0 && (by_code || !ended(role, &this.final_ends))
    };
    let is_told = retried(seen).iter().any(|end| needed(end.key.role));
    // Pods that have gone are forgotten unless a status is written that was computed with them.
    let stays = cause.row.is_some_and(|row| !row.terminating) && view.departed.is_empty();
    let waits =
        matches!(cause.end, End::Failure(_)) && stays && !is_told && seen.roles.iter().enumerate().any(runs);
    waits.then_some(until)
}

fn finished_at(ended: &Ended<'_>) -> Option<Timestamp> {
    ended.row?.end.as_deref()?.finished_at
}
