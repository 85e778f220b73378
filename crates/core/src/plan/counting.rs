//! Ends that are forgiven, counted.

use trainyard_api::{
    JobPhase, Reason, Replacement, RestartCause, RestartRecord, Restarts, RootCause, TrainingJobStatus,
};

use super::roles::{others, replacement};
use super::{Action, Note, Plan, cause, earliest, note};
use crate::assess::{Assessment, Ended, removal};
use crate::job::Job;
use crate::replacements;
use crate::restart::{self, End};
use crate::status::{describe, root_cause, time};
use crate::view::View;

/// How many replacements may be under way at once: the length of the list in status that keeps them.
const MAX_REPLACING: usize = 256;
const MAX_HISTORY: usize = 20;

/// Counts the ends that are forgiven. The count is in status before a pod is touched, so that none counts twice.
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
    seen.uncounted.truncate(batch);
    if seen.uncounted.is_empty() && replacing.is_empty() && status.restarts.is_none() {
        return;
    }
    let mut restarts = status.restarts.take().unwrap_or_default();
    for (ended, cause) in &seen.uncounted {
        let pod = job.pod_name(ended.key);
        match cause {
            RestartCause::Failure => restarts.failures = restarts.failures.saturating_add(1),
            RestartCause::Disruption => restarts.disruptions = restarts.disruptions.saturating_add(1),
            RestartCause::Completion | RestartCause::Update => {}
        }
        let role = seen.roles.get_mut(ended.key.role);
        // What is replaced because its user wants it so is not held back.
        let role = role.filter(|_| *cause != RestartCause::Update);
        let earlier = role.map_or(0, |role| replacements::add(&mut role.replaced, ended.key.index));
        let not_before = restart::not_before(earlier, view.now);
        if not_before.is_none() {
            plan.after.extend(match ended.row {
                Some(row) => removal(row, view.node(row)),
                None => Some(Action::CreatePod(ended.key)),
            });
        }
        plan.wake_at = earliest([plan.wake_at, not_before]);
        let RootCause {
            exit_code, reason, ..
        } = root_cause(job, ended);
        restarts.history.push(RestartRecord {
            time: time(view.now),
            pod: pod.clone(),
            cause: *cause,
            exit_code,
            reason: reason.unwrap_or_default(),
        });
        let uid = ended.row.map(|row| row.uid.to_string()).unwrap_or_default();
        replacing.push(Replacement {
            pod,
            uid,
            not_before: not_before.map(time),
        });
    }
    if !seen.uncounted.is_empty() {
        // Of all roles: of a job that had been calm, nothing that was before counts any more.
        for (role, this) in status.roles.iter_mut().zip(&seen.roles) {
            role.replacements = replacements::format(&this.replaced);
        }
    }
    let surplus = restarts.history.len().saturating_sub(MAX_HISTORY);
    restarts.history.drain(..surplus);
    let of = |expected: bool| {
        let ends = seen.uncounted.iter();
        ends.filter(move |(_, cause)| is_expected(*cause) == expected)
            .map(|(ended, _)| *ended)
            .collect::<Vec<Ended<'_>>>()
    };
    // An end that was expected is the cause of nothing, and is told only where there is nothing else to tell.
    let (mut ends, mut expected) = (of(false), of(true));
    if view.job.status.as_ref().and_then(|status| status.phase) == Some(JobPhase::Restarting) {
        // Of pods that are replaced one after the other because of their template, the first is told.
        expected.retain(|ended| ended.end != End::Outdated);
    }
    let warning = !ends.is_empty();
    if let Some(first) = cause::of(job, &ends, &[]) {
        if !cause::is_known(job, status.root_cause.as_ref(), &first) {
            status.root_cause = Some(root_cause(job, &first));
        }
    } else {
        ends = expected;
    }
    if let Some(first) = cause::of(job, &ends, &[]) {
        let pod = job.pod_name(first.key);
        let due = replacing.iter().find(|entry| entry.pod == pod);
        let due = due.and_then(|entry| entry.not_before.as_ref()).map(|due| due.0);
        let outcome = replacement(due, withheld);
        plan.events
            .push(replaced(job, &restarts, &first, ends.len(), &outcome, warning));
    }
    restarts.replacing = replacing;
    status.restarts = Some(restarts);
}

fn is_expected(cause: RestartCause) -> bool {
    matches!(cause, RestartCause::Completion | RestartCause::Update)
}

fn replaced(
    job: &Job<'_>,
    restarts: &Restarts,
    first: &Ended<'_>,
    pods: usize,
    outcome: &str,
    warning: bool,
) -> Note {
    let message = format!(
        "{}{}: {outcome}. Failures so far: {} of {} allowed; disruptions: {}.",
        describe(job, first),
        others(pods),
        restarts.failures,
        job.backoff_limit,
        restarts.disruptions
    );
    note(warning, Reason::PodReplaced, message)
}
