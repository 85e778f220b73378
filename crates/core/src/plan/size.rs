//! Records the size of an elastic job, the change of it that is under way, and a job that has too
//! few pods to train.

use std::collections::HashSet;

use jiff::Timestamp;
use trainyard_api::names::{LABEL_JOB, LABEL_ROLE};
use trainyard_api::{
    ConditionType, JobPhase, Reason, Refill, RestartedRole, RolePhase, RoleStatus, Scaling, TrainingJobStatus,
};

use super::{Plan, after, event, group, leave};
use crate::assess::Assessment;
use crate::indices;
use crate::job::{Job, members_of, retired_indices};
use crate::model::{Action, PodKey};
use crate::scaling::{Resize, RestartStage};
use crate::status::{condition, set_condition, time};
use crate::view::{NodeState, PodRow, View};

/// Writes the size of a job, and what changes about it.
pub(super) fn record(
    job: &Job<'_>,
    view: &View<'_>,
    resize: &Resize,
    status: &mut TrainingJobStatus,
    plan: &mut Plan,
) {
    let before = std::mem::replace(&mut status.scaling, resize.scaling.clone().map(Box::new));
    if let Some(before) = &before {
        leave::report(job, view, before, resize, plan);
    }
    if let Some(scaling) = &resize.scaling {
        record_stage(job, view, before.as_deref(), scaling, status, plan);
    }
    let Some(role) = job.elastic.and_then(|elastic| job.roles.get(elastic.role)) else {
        return;
    };
    status.replicas = Some(role.replicas());
    status.target_replicas = resize.target.or(status.target_replicas);
    status.selector = Some(format!("{LABEL_JOB}={},{LABEL_ROLE}={}", job.name, role.name));
    match &resize.refused {
        Some(refusal) => refuse(view, refusal, status, plan),
        None if is_refused(status) && resize.scaling.is_none() => {
            let message = format!(
                "The role {} has {} pods, as it should.",
                role.name,
                role.replicas()
            );
            record_rest(view, message, status);
        }
        None => {}
    }
    if let Some(request) = &resize.fulfilled {
        status.last_scale_request = Some(Box::new(request.clone()));
    }
    if let Some(finished) = &resize.finished {
        let message = format!("The role {} has {} pods.", role.name, role.replicas());
        status.last_scale_time = Some(time(view.now));
        plan.events.push(event(false, Reason::Scaled, &*message));
        record_rest(
            view,
            format!("{message} Before, it had {}.", finished.from),
            status,
        );
    }
}

/// Records that all pods are told to leave, and start anew at the same size.
pub(super) fn begin_leaving(
    job: &Job<'_>,
    view: &View<'_>,
    scaling: &Scaling,
    status: &mut TrainingJobStatus,
    plan: &mut Plan,
) {
    status.scaling = Some(Box::new(scaling.clone()));
    record_stage(job, view, None, scaling, status, plan);
    // None of them is deleted before it has left, and none is created.
    plan.at_once.clear();
}

/// Records that nothing changes about the size any more.
fn record_rest(view: &View<'_>, message: String, status: &mut TrainingJobStatus) {
    let reason = Reason::Scaled;
    set_condition(status, ConditionType::Scaling, false, reason, message, view.now);
}

/// Records a change that is under way.
fn record_stage(
    job: &Job<'_>,
    view: &View<'_>,
    before: Option<&Scaling>,
    scaling: &Scaling,
    status: &mut TrainingJobStatus,
    plan: &mut Plan,
) {
    if RestartStage::of(scaling) == Some(RestartStage::Deleting) && is_news(before, scaling) {
        // The pods that are created next have no part in what came before.
        let restarts = status.restarts.get_or_insert_default();
        restarts.replacing.clear();
        restarts.incidents.clear();
        group::add_attempt(job, view, 0..job.roles.len(), restarts);
    }
    if is_news(before, scaling) {
        let reason = if scaling.evades() {
            Reason::Draining
        } else {
            Reason::Scaling
        };
        let message = describe(scaling);
        plan.events.push(event(false, reason, &*message));
        if scaling.evades() && scaling.restarts_all() {
            // The size does not change.
            return;
        }
        set_condition(status, ConditionType::Scaling, true, reason, message, view.now);
    }
}

/// Returns true if users are told of a change: when it begins, and where all pods start anew, of
/// each stage.
fn is_news(before: Option<&Scaling>, now: &Scaling) -> bool {
    let stage = |scaling: &Scaling| {
        (
            RestartStage::of(scaling),
            scaling.restarts_all().then(|| scaling.since.clone()),
            scaling.nodes.clone(),
        )
    };
    before.is_none_or(|before| stage(before) != stage(now))
}

fn is_refused(status: &TrainingJobStatus) -> bool {
    let condition = condition(status, ConditionType::Scaling, false);
    condition.is_some_and(|condition| condition.reason == Reason::SizeRefused.as_str())
}

/// Records that the size stays as it is.
fn refuse(view: &View<'_>, refusal: &str, status: &mut TrainingJobStatus, plan: &mut Plan) {
    let reason = Reason::SizeRefused;
    let written = condition(status, ConditionType::Scaling, false);
    if !is_refused(status) || written.is_none_or(|written| written.message != refusal) {
        plan.events.push(event(true, reason, refusal));
        set_condition(status, ConditionType::Scaling, false, reason, refusal, view.now);
    }
}

fn describe(scaling: &Scaling) -> String {
    let Scaling { from, to, .. } = scaling;
    let why = scaling.message.as_deref().unwrap_or_default();
    if scaling.evades() {
        return describe_evasion(scaling, why);
    }
    let what = match RestartStage::of(scaling) {
        Some(RestartStage::Leaving) => format!("all pods of the job are told to leave ({why})"),
        Some(RestartStage::Deleting) => "all pods of the job have left, and are deleted".to_owned(),
        Some(RestartStage::Joining) => "all pods of the job start anew".to_owned(),
        None => match (&scaling.victims, &scaling.joining) {
            (Some(victims), _) => format!("{victims} are told to leave ({why})"),
            (None, Some(joining)) => format!("{joining} join"),
            (None, None) => return format!("From {from} to {to} pods."),
        },
    };
    format!("From {from} to {to} pods: {what}.")
}

/// Says who leaves nodes that are about to go.
fn describe_evasion(scaling: &Scaling, why: &str) -> String {
    let of_role = |role: &RestartedRole| Some(format!("{} {}", role.name, role.victims.as_deref()?));
    let together: Vec<String> = scaling.roles.iter().filter_map(of_role).collect();
    match (&scaling.victims, &scaling.joining) {
        _ if scaling.restarts_all() => {
            format!(
                "{why}: {} are told to leave, and start anew.",
                together.join(", ")
            )
        }
        (Some(victims), Some(joining)) => format!("{why}: {victims} are told to leave, and {joining} join."),
        (Some(victims), None) => format!("{why}: {victims} are told to leave."),
        (None, joining) => format!("{why}: {} join.", joining.as_deref().unwrap_or_default()),
    }
}

/// Returns true if the place of a pod that was lost stays empty: nobody refills it, or a pod of
/// another name does, because it can't have the name again or would wait for it. That of rank 0
/// never stays empty where all train as one, as the others look for it, nor that of a pod without
/// which its role never ends.
pub(super) fn stays_empty(job: &Job<'_>, view: &View<'_>, key: PodKey, row: Option<&PodRow>) -> bool {
    let elastic = job.elastic.filter(|elastic| elastic.role == key.role);
    let elastic = elastic.filter(|_| !job.is_rigid());
    let has_other_name = job.framework.renames_lost_pods;
    let is_needed =
        job.framework.trains_as_one && key == job.rank_zero() || job.decides_for_role(key) && !has_other_name;
    let is_stuck = row.is_some_and(|row| keeps_its_name(view, row));
    let is_left = |refill: Option<Refill>| refill == Some(Refill::Never) || has_other_name || is_stuck;
    !is_needed && elastic.is_some_and(|elastic| is_left(elastic.spec.refill))
}

/// Returns true if a pod is on its way out and its node is down: it may be so for ever, and may run
/// as long, so nobody removes it.
fn keeps_its_name(view: &View<'_>, row: &PodRow) -> bool {
    row.terminating && view.node(row) == NodeState::Down
}

/// Takes a pod that was lost from the members of its role, and its name out of use if it can't be
/// used again.
pub(super) fn remove_member(job: &Job<'_>, key: PodKey, status: &mut TrainingJobStatus) {
    let Some(role) = job.roles.get(key.role) else {
        return;
    };
    if job.framework.renames_lost_pods {
        let mut retired = retired_indices(status);
        retired.insert(key.index);
        status.retired_indices = indices::format(&retired);
    }
    let accepted = status.accepted.rules.as_mut();
    let mut roles = accepted.into_iter().flat_map(|rules| &mut rules.roles);
    if let Some(accepted) = roles.find(|accepted| accepted.name == role.name) {
        let members = members_of(accepted.replicas, accepted.members.as_deref());
        let members = members.without(|index| index == key.index);
        (accepted.replicas, accepted.members) = (members.count(), members.gaps());
        status.replicas = Some(members.count());
    }
}

/// The phase of an elastic job, from the one that its roles give it.
pub(super) fn phase(
    job: &Job<'_>,
    assessment: &Assessment<'_>,
    status: &TrainingJobStatus,
    deduced: JobPhase,
) -> JobPhase {
    let scaling = status.scaling.as_deref();
    let evades = scaling.is_some_and(|scaling| scaling.evades() && scaling.restarts_all());
    if RestartStage::of_job(job, status).is_some() && !evades {
        return match deduced {
            JobPhase::Running | JobPhase::Restarting | JobPhase::Paused => JobPhase::Scaling,
            deduced => deduced,
        };
    }
    let is_live = !job.is_rigid() && !status.starts_anew();
    let Some(elastic) = job.elastic.filter(|_| is_live) else {
        return deduced;
    };
    let Some(this) = assessment.roles.get(elastic.role) else {
        return deduced;
    };
    let tally = this.tally;
    let there = tally.active + tally.succeeded + tally.failed;
    let is_short = there < tally.needed;
    match deduced {
        // Others were lost, and nobody has taken their places.
        JobPhase::Running if there < elastic.spec.min() => JobPhase::Paused,
        JobPhase::Running if scaling.is_some() && !evades => JobPhase::Scaling,
        JobPhase::Restarting | JobPhase::Scaling if is_short => JobPhase::Paused,
        deduced => deduced,
    }
}

/// Begins all roles anew of which all pods are deleted for another size.
pub(super) fn reset_roles(job: &Job<'_>, status: &mut TrainingJobStatus) {
    if RestartStage::of_job(job, status) == Some(RestartStage::Deleting) {
        status
            .roles
            .iter_mut()
            .for_each(|role| role.phase = RolePhase::Pending);
    }
}

/// Returns true if a job trains while its size changes.
pub(super) fn runs_on(status: &TrainingJobStatus) -> bool {
    let runs = |role: &RoleStatus| role.phase == RolePhase::Running || role.phase.is_terminal();
    let scaling = status.scaling.as_deref();
    scaling.is_some_and(|scaling| !scaling.restarts_all() || status.roles.iter().all(runs))
}

/// Returns true if a change of size goes on, and all that waits for the status are deletions of
/// pods that have left. A pod that still runs is deleted at once: that is how it is asked.
pub(super) fn others_leave(job: &Job<'_>, view: &View<'_>, status: &TrainingJobStatus, plan: &Plan) -> bool {
    let scaling = status.scaling.as_deref();
    if scaling.is_none_or(|scaling| scaling.victims.is_none()) {
        return false;
    }
    let is_surplus = |row: &&PodRow| row.has_ended() && job.key(&row.name).is_none();
    let left: HashSet<&str> = view.pods.iter().filter(is_surplus).map(|row| &*row.uid).collect();
    let mut actions = plan.after_status.iter();
    actions.all(|action| matches!(action, Action::DeletePod { uid, .. } if left.contains(&**uid)))
}

/// When a job that is paused fails.
pub(super) fn pause_deadline(
    job: &Job<'_>,
    status: &TrainingJobStatus,
    phase: JobPhase,
) -> Option<Timestamp> {
    let seconds = job.elastic?.spec.pause_timeout_seconds?;
    let paused = status.phase == Some(JobPhase::Paused) && phase == JobPhase::Paused;
    let since = condition(status, ConditionType::Running, false).filter(|_| paused)?;
    after(since.last_transition_time.0, seconds)
}
