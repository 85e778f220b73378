//! Ends that are forgiven, counted.

use jiff::Timestamp;
use trainyard_api::{
    JobPhase, Reason, Replacement, RestartCause, RestartRecord, Restarts, RootCause, TrainingJobStatus,
};

use super::roles::{others, replacement};
use super::{Action, Note, Plan, cause, earliest, note};
use crate::assess::{Assessment, Ended, Uncounted, removal};
use crate::incident::Open;
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
    let mut incident = Open::read(job, &restarts);
    note_departures(job, view, &restarts, &replacing, incident.as_mut());
    for end in &seen.uncounted {
        match &mut incident {
            Some(incident) if end.follows => follow(&mut restarts, incident, end, view.now),
            incident => charge(job, &mut restarts, incident, end, view.now),
        }
        let Uncounted { ended, cause, .. } = end;
        let role = seen.roles.get_mut(ended.key.role);
        // What is replaced because its user wants it so is not held back.
        let role = role.filter(|_| ended.end != End::Outdated);
        let earlier = role.map_or(0, |role| replacements::add(&mut role.replaced, ended.key.index));
        let not_before = restart::not_before(earlier, view.now);
        if not_before.is_none() {
            plan.after.extend(match ended.row.filter(|_| !ended.is_gone) {
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
    if !seen.uncounted.is_empty() {
        // Of all roles: of a job that had been calm, nothing that was before counts any more.
        for (role, this) in status.roles.iter_mut().zip(&seen.roles) {
            role.replacements = replacements::format(&this.replaced);
        }
    }
    restarts.incident = incident.map(|incident| incident.write(job));
    restarts.replacing = replacing;
    tell(job, view, seen, &restarts, status, withheld, plan);
    status.restarts = Some(restarts);
}

/// Pods of an incident that were asked to go and are gone now: others may end because of that from now on.
fn note_departures(
    job: &Job<'_>,
    view: &View<'_>,
    restarts: &Restarts,
    replacing: &[Replacement],
    incident: Option<&mut Open>,
) {
    let Some(incident) = incident else { return };
    let is_there = |entry: &Replacement| {
        replacing
            .iter()
            .any(|still| still.uid == entry.uid && still.leaving)
    };
    let left = |entry: &&Replacement| entry.leaving && !is_there(entry);
    let keys = restarts
        .replacing
        .iter()
        .filter(left)
        .filter_map(|entry| job.key(&entry.pod));
    if keys.into_iter().any(|key| incident.contains(key)) {
        incident.left(view.now);
    }
}

/// Counts an end that came of no other.
fn charge(
    job: &Job<'_>,
    restarts: &mut Restarts,
    incident: &mut Option<Open>,
    end: &Uncounted<'_>,
    now: Timestamp,
) {
    match end.cause {
        RestartCause::Failure => restarts.failures = restarts.failures.saturating_add(1),
        RestartCause::Disruption => restarts.disruptions = restarts.disruptions.saturating_add(1),
        RestartCause::Completion | RestartCause::Update => {}
    }
    match incident {
        _ if end.cause == RestartCause::Completion => {}
        // Pods that its user wants replaced, all at once.
        Some(open) if end.cause == RestartCause::Update && open.is_update_of(now) => {
            open.add(&end.ended, now);
        }
        _ => *incident = Some(Open::new(end, now)),
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
fn follow(restarts: &mut Restarts, incident: &mut Open, end: &Uncounted<'_>, now: Timestamp) {
    incident.add(&end.ended, now);
    let mut records = restarts.history.iter_mut().rev();
    if let Some(record) = records.find(|record| record.cause == end.cause) {
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
    let of = |which: fn(&Uncounted<'_>) -> bool| {
        let ends = seen.uncounted.iter().filter(move |end| which(end));
        ends.map(|end| end.ended).collect::<Vec<Ended<'_>>>()
    };
    if let Some(first) = cause::of(job, &of(|end| !end.follows && !is_expected(end.cause)), &[]) {
        status.root_cause = Some(root_cause(job, &first));
    }
    // An end that was expected is the cause of nothing, and is told only where there is nothing else to tell.
    let (bad, mut expected) = (
        of(|end| !is_expected(end.cause)),
        of(|end| is_expected(end.cause)),
    );
    if view.job.status.as_ref().and_then(|status| status.phase) == Some(JobPhase::Restarting) {
        // Of pods that are replaced one after the other because of their template, the first is told.
        expected.retain(|ended| ended.end != End::Outdated);
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
