//! Records the size of an elastic job, the change of it that is under way, and a job that has too
//! few pods to train.

use jiff::Timestamp;
use trainyard_api::names::{LABEL_JOB, LABEL_ROLE};
use trainyard_api::{ConditionType, JobPhase, Reason, Refill, Scaling, TrainingJobStatus};

use super::{Plan, after, event};
use crate::assess::Assessment;
use crate::indices;
use crate::job::{Job, members_of, retired_indices};
use crate::model::PodKey;
use crate::scaling::Resize;
use crate::status::{condition, set_condition, time};
use crate::view::View;

/// Writes the size of a job, and what changes about it.
pub(super) fn record(
    job: &Job<'_>,
    view: &View<'_>,
    resize: &Resize,
    status: &mut TrainingJobStatus,
    plan: &mut Plan,
) {
    let Some(role) = job.elastic.and_then(|elastic| job.roles.get(elastic.role)) else {
        return;
    };
    status.replicas = Some(role.replicas());
    status.target_replicas = resize.target.or(status.target_replicas);
    status.selector = Some(format!("{LABEL_JOB}={},{LABEL_ROLE}={}", job.name, role.name));
    let began = resize.scaling.is_some() && status.scaling.is_none();
    status.scaling = resize.scaling.clone().map(Box::new);
    if let Some(scaling) = resize.scaling.as_ref().filter(|_| began) {
        let message = describe(scaling);
        plan.events.push(event(false, Reason::Scaling, &*message));
        set_condition(
            status,
            ConditionType::Scaling,
            true,
            Reason::Scaling,
            message,
            view.now,
        );
    }
    if let Some(request) = &resize.fulfilled {
        status.last_scale_request = Some(Box::new(request.clone()));
    }
    if let Some(finished) = &resize.finished {
        let message = format!("The role {} has {} pods.", role.name, role.replicas());
        status.last_scale_time = Some(time(view.now));
        plan.events.push(event(false, Reason::Scaled, &*message));
        let message = format!("{message} Before, it had {}.", finished.from);
        set_condition(
            status,
            ConditionType::Scaling,
            false,
            Reason::Scaled,
            message,
            view.now,
        );
    }
}

fn describe(scaling: &Scaling) -> String {
    let Scaling { from, to, .. } = scaling;
    let why = scaling.message.as_deref().unwrap_or_default();
    match (&scaling.victims, &scaling.joining) {
        (Some(victims), _) => {
            format!("From {from} to {to} pods: {victims} are told to leave ({why}).")
        }
        (None, Some(joining)) => format!("From {from} to {to} pods: {joining} join."),
        (None, None) => format!("From {from} to {to} pods."),
    }
}

/// Returns true if the place of a pod that was lost stays empty: nobody refills it, or a pod of
/// another name does. That of rank 0 never stays empty where all train as one: the others look for
/// it.
pub(super) fn stays_empty(job: &Job<'_>, key: PodKey) -> bool {
    let elastic = job.elastic.filter(|elastic| elastic.role == key.role);
    let is_needed = job.framework.trains_as_one && key == job.rank_zero();
    let is_left = |refill: Option<Refill>| refill == Some(Refill::Never) || job.framework.renames_lost_pods;
    !is_needed && elastic.is_some_and(|elastic| is_left(elastic.spec.refill))
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
    let accepted = status.accepted_rules.as_mut();
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
    let Some(elastic) = job.elastic else {
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
        JobPhase::Running if status.scaling.is_some() => JobPhase::Scaling,
        JobPhase::Restarting | JobPhase::Scaling if is_short => JobPhase::Paused,
        deduced => deduced,
    }
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
