//! Counts the pods that are replaced, and says why they are.

use jiff::Timestamp;
use trainyard_api::{
    JobPhase, Reason, Replacement, RestartCause, RestartRecord, Restarts, RootCause, TrainingJobStatus,
};

use super::describe::{describe, root_cause};
use super::roles::{others, replacement};
use super::{Plan, cause, earliest, event};
use crate::assess::incident::Incidents;
use crate::assess::{Assessment, Ended, NewRestart, removal};
use crate::job::Job;
use crate::model::{Action, JobEvent, PodKey};
use crate::replacements;
use crate::restart::{self, End, is_expected};
use crate::status::time;
use crate::view::View;

/// How many replacements may be under way at once: the length of the list in status that keeps them.
const MAX_REPLACING: usize = 256;
const MAX_HISTORY: usize = 20;

/// Counts the ends that are retried. The count is in status before a pod is touched, so that no
/// end counts twice.
pub(super) fn count(
    job: &Job<'_>,
    view: &View<'_>,
    seen: &mut Assessment<'_>,
    status: &mut TrainingJobStatus,
    withheld: bool,
    plan: &mut Plan,
) {
    let mut replacing = std::mem::take(&mut seen.replacing);
    let batch = MAX_REPLACING.saturating_sub(replacing.len());
    seen.new_restarts.truncate(batch);
    if seen.new_restarts.is_empty() && replacing.is_empty() && status.restarts.is_none() {
        return;
    }
    let mut restarts = status.restarts.take().unwrap_or_default();
    let mut incidents = Incidents::read(job, &restarts);
    incidents.left(gone(job, &restarts, &replacing), view.now);
    for end in &seen.new_restarts {
        incidents.outlive(&end.ended, view.now);
        match end.follows {
            Some(first) => follow(job, &mut restarts, &mut incidents, first, end, view.now),
            None => charge(job, &mut restarts, &mut incidents, end, view.now),
        }
        let NewRestart { ended, cause, .. } = end;
        let role = seen.roles.get_mut(ended.key.role);
        // What is replaced because its user wants it so is not held back.
        let role = role.filter(|_| ended.end != End::TemplateChanged);
        let earlier = role.map_or(0, |role| replacements::add(&mut role.replaced, ended.key.index));
        let not_before = restart::not_before(earlier, view.now);
        if not_before.is_none() {
            plan.after_status
                .extend(match ended.row.filter(|_| !ended.is_gone) {
                    Some(row) => removal(row, view.node(row)),
                    None => Some(Action::CreatePod(ended.key)),
                });
        }
        plan.wake_at = earliest([plan.wake_at, not_before]);
        replacing.push(Replacement {
            pod: job.pod_name(ended.key),
            uid: ended.row.map(|row| row.uid.to_string()).unwrap_or_default(),
            not_before: not_before.map(time),
            cause: Some(*cause),
            leaving: ended.is_leaving(),
        });
    }
    if !seen.new_restarts.is_empty() {
        // Of all roles: of a job that had been calm, nothing that was before counts any more.
        for (role, this) in status.roles.iter_mut().zip(&seen.roles) {
            role.replacements = replacements::format(&this.replaced);
        }
    }
    restarts.incidents = incidents.write(job);
    restarts.replacing = replacing;
    tell(job, view, seen, &restarts, status, withheld, plan);
    status.restarts = Some(restarts);
}

/// Pods that were asked to go, and are gone since the status was written.
fn gone<'a>(
    job: &'a Job<'_>,
    restarts: &'a Restarts,
    replacing: &'a [Replacement],
) -> impl Iterator<Item = PodKey> + 'a {
    let is_there = |entry: &&Replacement| {
        replacing
            .iter()
            .any(|still| still.uid == entry.uid && still.leaving)
    };
    let left = restarts.replacing.iter().filter(|entry| entry.leaving);
    left.filter(move |entry| !is_there(entry))
        .filter_map(|entry| job.key(&entry.pod))
}

/// Counts an end that came of no other.
fn charge(
    job: &Job<'_>,
    restarts: &mut Restarts,
    incidents: &mut Incidents,
    end: &NewRestart<'_>,
    now: Timestamp,
) {
    match end.cause {
        RestartCause::Failure => restarts.failures = restarts.failures.saturating_add(1),
        RestartCause::Disruption => restarts.disruptions = restarts.disruptions.saturating_add(1),
        RestartCause::Completion | RestartCause::Update => {}
    }
    // Of pods that their user wants replaced, all that are at once are one incident.
    let update = incidents
        .update_of(job, end.ended.key.role, now)
        .filter(|_| end.cause == RestartCause::Update);
    match update {
        Some(open) => open.add(&end.ended, now),
        None if end.cause == RestartCause::Completion => {}
        None => incidents.begin(job, end, now),
    }
    let RootCause {
        exit_code, reason, ..
    } = root_cause(job, &end.ended);
    restarts.history.push(RestartRecord {
        time: time(now),
        pod: job.pod_name(end.ended.key),
        cause: end.cause,
        exit_code,
        reason: reason.unwrap_or_default(),
        consequences: 0,
    });
    let surplus = restarts.history.len().saturating_sub(MAX_HISTORY);
    restarts.history.drain(..surplus);
}

/// Counts an end that came of another, with that one.
fn follow(
    job: &Job<'_>,
    restarts: &mut Restarts,
    incidents: &mut Incidents,
    first: PodKey,
    end: &NewRestart<'_>,
    now: Timestamp,
) {
    if let Some(open) = incidents.of(first) {
        open.add(&end.ended, now);
    }
    let first = job.pod_name(first);
    let mut records = restarts.history.iter_mut().rev();
    if let Some(record) = records.find(|record| record.pod == first && record.cause == end.cause) {
        record.consequences = record.consequences.saturating_add(1);
    }
}

/// Tells the user what is replaced, and writes down what made it so.
fn tell(
    job: &Job<'_>,
    view: &View<'_>,
    seen: &Assessment<'_>,
    restarts: &Restarts,
    status: &mut TrainingJobStatus,
    withheld: bool,
    plan: &mut Plan,
) {
    let of = |which: fn(&NewRestart<'_>) -> bool| {
        let ends = seen.new_restarts.iter().filter(move |end| which(end));
        ends.map(|end| end.ended).collect::<Vec<Ended<'_>>>()
    };
    if let Some(first) = cause::of(
        job,
        &of(|end| end.follows.is_none() && !is_expected(end.cause)),
        &[],
    ) {
        status.root_cause = Some(root_cause(job, &first));
    }
    // An end that was expected is the cause of nothing, and is told only where there is nothing else to tell.
    let (bad, mut expected) = (
        of(|end| !is_expected(end.cause)),
        of(|end| is_expected(end.cause)),
    );
    if view.job.status.as_ref().and_then(|status| status.phase) == Some(JobPhase::Restarting) {
        // Of pods that are replaced one after the other because of their template, the first is told.
        expected.retain(|ended| ended.end != End::TemplateChanged);
    }
    let warning = !bad.is_empty();
    let ends = if warning { bad } else { expected };
    let Some(first) = cause::of(job, &ends, &[]) else {
        return;
    };
    let pod = job.pod_name(first.key);
    let due = restarts.replacing.iter().find(|entry| entry.pod == pod);
    let due = due.and_then(|entry| entry.not_before.as_ref()).map(|due| due.0);
    let outcome = replacement(due, withheld);
    plan.events
        .push(replaced(job, restarts, &first, ends.len(), &outcome, warning));
}

fn replaced(
    job: &Job<'_>,
    restarts: &Restarts,
    first: &Ended<'_>,
    pods: usize,
    outcome: &str,
    warning: bool,
) -> JobEvent {
    let message = format!(
        "{}{}: {outcome}. Failures so far: {} of {} allowed; disruptions: {}.",
        describe(job, first),
        others(pods),
        restarts.failures,
        job.backoff_limit,
        restarts.disruptions
    );
    event(warning, Reason::PodReplaced, message)
}
