//! Counts the pods that are replaced, and reports why.

use std::collections::HashSet;

use jiff::{SignedDuration, Timestamp};
use trainyard_api::{
    ConditionType, JobPhase, PendingReplacement, Reason, RestartCause, RestartRecord, Restarts, RolePhase,
    RootCause, TrainingJobStatus,
};

use super::describe::{describe, root_cause};
use super::roles::{and_others, describe_replacement};
use super::{Plan, cause, checkpoint, earliest, event, group, size};
use crate::assess::incident::Incidents;
use crate::assess::{Assessment, Ended, NewRestart, pod_deletion};
use crate::group_restart::Beginning;
use crate::job::Job;
use crate::model::{Action, JobEvent, PodKey};
use crate::replacements;
use crate::restart::{self, End, is_expected};
use crate::scaling::{self, Evaded};
use crate::status::{condition, time};
use crate::view::{PodRow, View};

/// How many replacements may be under way at once: the length of the list in the status.
const MAX_REPLACING: usize = 256;
const MAX_HISTORY: usize = 20;

/// Counts the ends that are retried. The count is in the status before a pod is deleted or created,
/// so no end counts twice.
pub(super) fn count(
    job: &Job<'_>,
    view: &View<'_>,
    assessment: &mut Assessment<'_>,
    status: &mut TrainingJobStatus,
    withheld: bool,
    plan: &mut Plan,
) {
    let mut replacing = std::mem::take(&mut assessment.replacing);
    give_up_places(job, view, &mut replacing, status);
    let room = MAX_REPLACING.saturating_sub(replacing.len());
    limit(job, view, room, assessment, status);
    if assessment.new_restarts.is_empty() && replacing.is_empty() && status.restarts.is_none() {
        return;
    }
    let mut restarts = status.restarts.take().unwrap_or_default();
    let mut incidents = Incidents::read(job, &restarts);
    incidents.record_deleted(deleted_since(job, &restarts, &replacing), view.now);
    for end in &assessment.new_restarts {
        incidents.drop_outlived(&end.ended, view.now);
        if let Some(first) = end.consequence_of {
            count_consequence(job, &mut restarts, &mut incidents, first, end, view.now);
        } else {
            let mut record = record_of(job, view, status, end);
            if let Some(evaded) = assessment.evaded_of(end.ended.key) {
                explain_evaded(evaded, &mut record.1);
            }
            count_first(job, &mut restarts, &mut incidents, end, record);
        }
        let NewRestart { ended, cause, .. } = end;
        if let Some(group) = &assessment.group
            && group.roles.contains(&ended.key.role)
        {
            // All pods of its role are replaced together.
            continue;
        }
        if size::stays_empty(job, view, ended.key, ended.row) {
            // The next plan finds that its role has no such pod, and deletes it.
            size::remove_member(job, ended.key, status);
            continue;
        }
        let evaded = assessment
            .evaded
            .as_ref()
            .filter(|evaded| evaded.pods.contains(&ended.key));
        let role = assessment.roles.get_mut(ended.key.role);
        // A replacement that the user asked for, by changing the template, has no backoff.
        let role = role.filter(|_| ended.end != End::TemplateChanged);
        let earlier = role.map_or(0, |role| replacements::add(&mut role.replaced, ended.key.index));
        // One that has left may be evicted until then. One that has not is asked by its deletion.
        let runs = ended.row.is_some_and(PodRow::may_run);
        let left = evaded.filter(|_| !runs && ended.row.is_some());
        let free_at = left.and_then(|_| Evaded::names_are_free_at(view.now));
        let not_before = restart::not_before(earlier, view.now).max(free_at);
        if not_before.is_none() || evaded.is_some() && runs {
            plan.after_status
                .extend(match ended.row.filter(|_| !ended.is_deleted) {
                    Some(row) => pod_deletion(row, view.node(row)),
                    None => Some(Action::CreatePod(ended.key)),
                });
        }
        plan.wake_at = earliest([plan.wake_at, not_before]);
        replacing.push(PendingReplacement {
            pod: job.pod_name(ended.key),
            uid: ended.row.map(|row| row.uid.to_string()).unwrap_or_default(),
            not_before: not_before.map(time),
            cause: Some(*cause),
            leaving: ended.is_leaving(),
        });
    }
    if let Some(group) = assessment.group.take() {
        match &group.leave {
            Some(leave) => size::begin_leaving(job, view, leave, status, plan),
            None => begin_group(job, view, assessment, &group, &mut restarts, status, plan),
        }
        let is_alone = |entry: &PendingReplacement| {
            let key = job.key(&entry.pod);
            key.is_none_or(|key| !group.roles.contains(&key.role))
        };
        replacing.retain(is_alone);
        incidents.drop_roles(&group.roles);
        assessment.group = Some(group);
    }
    if !assessment.new_restarts.is_empty() {
        // This is written for all roles: if the job had been calm, earlier replacements do not
        // count.
        for (role, this) in status.roles.iter_mut().zip(&assessment.roles) {
            role.replacements = replacements::format(&this.replaced);
        }
    }
    restarts.incidents = incidents.write(job);
    restarts.replacing = replacing;
    report(job, view, assessment, &restarts, status, withheld, plan);
    status.restarts = Some(restarts);
}

/// Gives up the places of pods that were counted when they were asked to go, and whose nodes are
/// down since: others can't have their names.
fn give_up_places(
    job: &Job<'_>,
    view: &View<'_>,
    replacing: &mut Vec<PendingReplacement>,
    status: &mut TrainingJobStatus,
) {
    replacing.retain(|entry| {
        let mut rows = view.pods.iter().filter(|_| entry.leaving);
        let row = rows.find(|row| *row.uid == *entry.uid);
        let Some((row, key)) = row.zip(job.key(&entry.pod)) else {
            return true;
        };
        let is_given_up = size::stays_empty(job, view, key, Some(row));
        if is_given_up {
            size::remove_member(job, key, status);
        }
        !is_given_up
    });
}

/// Leaves ends to the next plan for which the list in the status has no room. Those of pods that
/// start anew together are not in the list.
fn limit(
    job: &Job<'_>,
    view: &View<'_>,
    mut room: usize,
    assessment: &mut Assessment<'_>,
    status: &mut TrainingJobStatus,
) {
    let group = assessment.group.as_ref();
    let is_listed = |key: PodKey| group.is_none_or(|group| !group.roles.contains(&key.role));
    let evaded = assessment.evaded.as_ref();
    let has_left = |key: PodKey| evaded.is_some_and(|evaded| evaded.pods.contains(&key));
    let mut rest: HashSet<PodKey> = HashSet::new();
    assessment.new_restarts.retain(|end| {
        let key = end.ended.key;
        let fits = !is_listed(key) || room > 0;
        if is_listed(key) && fits {
            room -= 1;
        } else if !fits && has_left(key) {
            rest.insert(key);
        }
        fits
    });
    if !rest.is_empty() {
        let is_first = evaded.is_some_and(|evaded| evaded.pods.len() == rest.len());
        status.scaling = scaling::still_leaving(job, view, &rest, is_first).map(Box::new);
    }
}

/// Lets all pods of some roles start anew. Once that is in the status, those that exist are of a
/// former attempt, and are deleted at once.
fn begin_group(
    job: &Job<'_>,
    view: &View<'_>,
    assessment: &mut Assessment<'_>,
    group: &Beginning,
    restarts: &mut Restarts,
    status: &mut TrainingJobStatus,
    plan: &mut Plan,
) {
    let evaded = assessment.evaded.as_ref();
    let first = assessment.roles.get(group.first.role);
    let earlier = first.and_then(|role| role.replaced.get(&group.first.index).copied());
    let not_before = restart::not_before(earlier.unwrap_or_default(), view.now)
        .max(evaded.and_then(|_| Evaded::names_are_free_at(view.now)));
    plan.wake_at = earliest([plan.wake_at, not_before]);
    for (position, role) in assessment.roles.iter_mut().enumerate() {
        for key in job.keys_of(position).filter(|_| group.roles.contains(&position)) {
            replacements::add(&mut role.replaced, key.index);
        }
    }
    for (position, role) in status.roles.iter_mut().enumerate() {
        if group.roles.contains(&position) {
            // A rank that has succeeded is missed by the others, which begin again.
            role.phase = RolePhase::Starting;
            (role.succeeded_indices, role.failed_indices) = (None, None);
        }
    }
    group::add_attempt(job, view, group.roles.iter().copied(), restarts);
    let since = time(view.now);
    restarts.group = Some(group::record(
        job,
        group,
        restarts.group.as_ref(),
        since,
        not_before.map(time),
    ));
    let is_new = |row: &&PodRow| {
        let key = job.key(&row.name).filter(|key| *key != group.first);
        let role = key.filter(|key| group.roles.contains(&key.role));
        role.is_some_and(|key| {
            !job.roles
                .get(key.role)
                .is_some_and(|role| role.is_former(row.attempt))
        })
    };
    let others = view.pods.iter().filter(is_new).count();
    let pod = job.pod_name(group.first);
    let mut records = restarts.history.iter_mut().rev();
    if let Some(record) = records.find(|record| record.pod == pod) {
        record.consequences = i32::try_from(others).unwrap_or(i32::MAX);
        // They go on from there.
        let since = record.step.zip(record.checkpoint);
        record.steps_lost = since.map(|(step, saved)| step.saturating_sub(saved).max(0));
    }
    let is_covered = |name: &str| job.key(name).is_some_and(|key| group.roles.contains(&key.role));
    let stays = |action: &Action| match action {
        Action::CreatePod(key) | Action::LabelPod { key, .. } => !group.roles.contains(&key.role),
        Action::DeletePod { name, .. } => !is_covered(name),
        _ => true,
    };
    plan.at_once.retain(stays);
    let former = view.pods.iter().filter(|row| is_covered(&row.name));
    plan.after_status
        .extend(former.filter_map(|row| pod_deletion(row, view.node(row))));
}

/// Pods that were terminating when the status was written, and are deleted since.
fn deleted_since<'a>(
    job: &'a Job<'_>,
    restarts: &'a Restarts,
    replacing: &'a [PendingReplacement],
) -> impl Iterator<Item = PodKey> + 'a {
    let exists = |entry: &&PendingReplacement| {
        replacing
            .iter()
            .any(|still| still.uid == entry.uid && still.leaving)
    };
    let terminating = restarts.replacing.iter().filter(|entry| entry.leaving);
    terminating
        .filter(move |entry| !exists(entry))
        .filter_map(|entry| job.key(&entry.pod))
}

/// Counts an end that is not a consequence.
fn count_first(
    job: &Job<'_>,
    restarts: &mut Restarts,
    incidents: &mut Incidents,
    end: &NewRestart<'_>,
    (now, record): (Timestamp, RestartRecord),
) {
    match end.cause {
        RestartCause::Failure => restarts.failures = restarts.failures.saturating_add(1),
        RestartCause::Disruption => restarts.disruptions = restarts.disruptions.saturating_add(1),
        RestartCause::Completion | RestartCause::Update => {}
    }
    // Pods that are replaced at once because of a new template are one incident.
    let update = incidents
        .current_update(job, end.ended.key.role, now)
        .filter(|_| end.cause == RestartCause::Update);
    match update {
        Some(open) => open.add(&end.ended, now),
        None if end.cause == RestartCause::Completion || end.ended.is_forgiven(job) => {}
        None => incidents.begin(job, end, now),
    }
    restarts.history.push(record);
    let surplus = restarts.history.len().saturating_sub(MAX_HISTORY);
    restarts.history.drain(..surplus);
}

/// What is written down of an end that is not a consequence.
fn record_of(
    job: &Job<'_>,
    view: &View<'_>,
    status: &TrainingJobStatus,
    end: &NewRestart<'_>,
) -> (Timestamp, RestartRecord) {
    let RootCause {
        exit_code,
        reason,
        node,
        ..
    } = root_cause(job, &end.ended);
    let progress = view.progress.or(status.progress.as_ref());
    let record = RestartRecord {
        time: time(view.now),
        pod: job.pod_name(end.ended.key),
        cause: end.cause,
        exit_code,
        reason: reason.unwrap_or_default(),
        consequences: 0,
        node,
        step: progress.and_then(|progress| progress.step),
        checkpoint: checkpoint::last(view, status),
        seconds: None,
        step_after: None,
        steps_lost: None,
    };
    (view.now, record)
}

/// Writes down that a pod has left a node which is about to go.
fn explain_evaded(evaded: &Evaded, record: &mut RestartRecord) {
    Reason::NodeDrained.as_str().clone_into(&mut record.reason);
    record.exit_code = None;
    if record.node.is_none() {
        record.node = evaded.nodes.first().cloned();
    }
}

/// Writes how long a job did not run into the records of what kept it from that, now that it runs.
pub(super) fn record_outage(view: &View<'_>, status: &mut TrainingJobStatus) {
    let since = condition(status, ConditionType::Running, false);
    let Some(since) = since.map(|since| since.last_transition_time.0) else {
        return;
    };
    let records = status
        .restarts
        .iter_mut()
        .flat_map(|restarts| &mut restarts.history);
    for record in records.filter(|record| record.seconds.is_none() && record.time.0 >= since) {
        record.seconds = Some(view.now.duration_since(record.time.0).as_secs().max(0));
    }
}

/// How long after all roles run again a first report still tells where programs went on.
const MAX_RESUME: SignedDuration = SignedDuration::from_mins(10);

/// Writes the first step that programs report when a job runs again into the records of what had
/// kept it from that.
pub(super) fn record_step_after(view: &View<'_>, status: &mut TrainingJobStatus) {
    let reported = view.progress.filter(|_| view.job.reports_progress());
    let runs = condition(status, ConditionType::Running, true);
    let since = runs.map(|runs| runs.last_transition_time.0);
    let Some((step, since)) = reported.and_then(|progress| progress.step).zip(since) else {
        return;
    };
    if view.now.duration_since(since) > MAX_RESUME {
        return;
    }
    let ended_now = |record: &&mut RestartRecord| {
        let outage = since.duration_since(record.time.0).as_secs();
        record.step_after.is_none() && record.seconds == Some(outage)
    };
    let restarts = status.restarts.iter_mut();
    let records = restarts.flat_map(|restarts| &mut restarts.history);
    for record in records.filter(ended_now) {
        let Some(before) = record.step else { continue };
        let back = before.saturating_sub(step).max(0);
        record.step_after = Some(step);
        record.steps_lost = Some(record.steps_lost.unwrap_or_default().max(back));
    }
}

/// Counts a consequence in the record of its first end.
fn count_consequence(
    job: &Job<'_>,
    restarts: &mut Restarts,
    incidents: &mut Incidents,
    first: PodKey,
    end: &NewRestart<'_>,
    now: Timestamp,
) {
    if let Some(open) = incidents.begun_by(first) {
        open.add(&end.ended, now);
    }
    let first = job.pod_name(first);
    let mut records = restarts.history.iter_mut().rev();
    if let Some(record) = records.find(|record| record.pod == first && record.cause == end.cause) {
        record.consequences = record.consequences.saturating_add(1);
    }
}

/// Adds an event about what is replaced, and records the root cause.
fn report(
    job: &Job<'_>,
    view: &View<'_>,
    assessment: &Assessment<'_>,
    restarts: &Restarts,
    status: &mut TrainingJobStatus,
    withheld: bool,
    plan: &mut Plan,
) {
    let ends_where = |which: fn(&NewRestart<'_>) -> bool| {
        let ends = assessment.new_restarts.iter().filter(move |end| which(end));
        ends.map(|end| end.ended).collect::<Vec<Ended<'_>>>()
    };
    if let Some(first) = cause::find(
        job,
        &ends_where(|end| end.consequence_of.is_none() && !is_expected(end.cause)),
        &[],
    ) {
        let mut found = root_cause(job, &first);
        if let Some(evaded) = assessment.evaded_of(first.key) {
            found.reason = Some(Reason::NodeDrained.as_str().to_owned());
            found.message = Some(evaded.why.clone());
        }
        status.root_cause = Some(found);
    }
    // An expected end causes nothing. It is reported only if there is nothing else to report.
    let (bad, mut expected) = (
        ends_where(|end| !is_expected(end.cause)),
        ends_where(|end| is_expected(end.cause)),
    );
    if view.job.status.as_ref().and_then(|status| status.phase) == Some(JobPhase::Restarting) {
        // Pods are replaced one after the other when the template changes. Only the first is
        // reported.
        expected.retain(|ended| ended.end != End::TemplateChanged);
    }
    let warning = !bad.is_empty();
    let ends = if warning { bad } else { expected };
    let Some(first) = cause::find(job, &ends, &[]) else {
        return;
    };
    let pod = job.pod_name(first.key);
    let due = restarts.replacing.iter().find(|entry| entry.pod == pod);
    let due = due.and_then(|entry| entry.not_before.as_ref()).map(|due| due.0);
    let outcome = match &assessment.group {
        Some(group) => group::describe(job, group, restarts),
        None => describe_replacement(due, withheld),
    };
    let (what, warning) = match assessment.evaded_of(first.key) {
        Some(evaded) => (evaded.why.clone(), false),
        None => (describe(job, &first) + &and_others(ends.len()), warning),
    };
    plan.events
        .push(replaced_event(job, restarts, &what, &outcome, warning));
}

fn replaced_event(job: &Job<'_>, restarts: &Restarts, what: &str, outcome: &str, warning: bool) -> JobEvent {
    let message = format!(
        "{what}: {outcome}. Failures so far: {} of {} allowed; disruptions: {}.",
        restarts.failures, job.backoff_limit, restarts.disruptions
    );
    event(warning, Reason::PodReplaced, message)
}
