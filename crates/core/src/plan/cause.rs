//! Which end made the others, where several pods of a job ended.

use jiff::{SignedDuration, Timestamp};
use trainyard_api::{RestartCause, RootCause};

use super::roles::first;
use crate::assess::{Assessment, Ended, RoleAssessment};
use crate::job::Job;
use crate::restart::End;
use crate::view::View;

/// How long after the end of a pod the ends of those that need it may still be its consequence. A remote shell takes up to
/// 5 s to notice a worker that fell silent, and its launcher a moment more to stop the others.
const CONSEQUENCE: SignedDuration = SignedDuration::from_secs(10);
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

/// The ends that are forgiven and that might be what made others.
pub(super) fn forgiven<'a>(seen: &Assessment<'a>) -> Vec<Ended<'a>> {
    let bad = |cause| matches!(cause, RestartCause::Failure | RestartCause::Disruption);
    let ends = seen.uncounted.iter().filter(|(_, cause)| bad(*cause));
    ends.map(|(ended, _)| *ended).collect()
}

/// Whether an end is what came of one that was written down before.
pub(super) fn is_known(job: &Job<'_>, written: Option<&RootCause>, ended: &Ended<'_>) -> bool {
    let Some((written, earlier)) = written.and_then(|cause| Some((cause, cause.time.as_ref()?.0))) else {
        return false;
    };
    let after = finished_at(ended).map(|at| at.duration_since(earlier));
    job.key(&written.pod)
        .is_some_and(|cause| needs(job, ended.key.role, cause.role))
        && after.is_some_and(|after| !after.is_negative() && after <= CONSEQUENCE)
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
    let needed = |role: usize| needs(job, cause.key.role, role);
    let ended = |role: usize, ends: &[Ended<'_>]| ends.iter().any(|end| end.key.role == role);
    let runs = |(role, this): (usize, &RoleAssessment<'_>)| {
        needed(role) && this.tally.active > 0 && !ended(role, &this.final_ends)
    };
    let is_told = forgiven(seen).iter().any(|end| needed(end.key.role));
    // Pods that have gone are forgotten unless a status is written that was computed with them.
    let stays = cause.row.is_some_and(|row| !row.terminating) && view.departed.is_empty();
    let waits =
        matches!(cause.end, End::Failure(_)) && stays && !is_told && seen.roles.iter().enumerate().any(runs);
    waits.then_some(until)
}

fn finished_at(ended: &Ended<'_>) -> Option<Timestamp> {
    ended.row?.end.as_deref()?.finished_at
}

/// Whether the pods of a role can't do their work without those of another: they wait for them, or would if their user did not
/// want it otherwise.
fn needs(job: &Job<'_>, role: usize, other: usize) -> bool {
    let (Some(role), Some(other)) = (job.roles.get(role), job.roles.get(other)) else {
        return false;
    };
    let names: Vec<&str> = job.roles.iter().map(|role| role.name).collect();
    let awaited = role.depends_on.iter().filter_map(|on| job.roles.get(on.role));
    let by_user = awaited.into_iter().any(|on| on.name == other.name);
    let by_framework = job.framework.dependencies(role.name, &names);
    by_user || by_framework.iter().any(|on| on.role == other.name)
}
