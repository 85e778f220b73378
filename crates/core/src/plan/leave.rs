//! Tells users and metrics of pods that leave: how far they are, and how that ended.

use std::collections::BTreeSet;

use trainyard_api::{JobPhase, Reason, RestartedRole, Scaling, ScalingStep, TrainingJobStatus};

use super::{Plan, event};
use crate::indices;
use crate::job::Job;
use crate::model::{DrainCause, DrainSummary, ForcedRemoval, JobEvent};
use crate::scaling::{Resize, RestartStage, accepted_members, leaving};
use crate::view::View;

/// Adds what has happened since `before` to pods that leave.
pub(super) fn report(job: &Job<'_>, view: &View<'_>, before: &Scaling, resize: &Resize, plan: &mut Plan) {
    if !has_victims(before) {
        return;
    }
    if let Some(now) = resize.drained.as_ref().or(resize.scaling.as_ref()) {
        plan.events.extend(steps(before, now));
    }
    plan.events.extend(forced_events(job, before, resize));
    plan.events.extend(left_event(job, view, before, resize));
    for why in resize.forced.values() {
        *plan.drain.forced.entry(*why).or_default() += 1;
    }
    if resize.drained.is_some() {
        let since = before.since.as_ref();
        plan.drain.seconds = since.map(|since| view.now.duration_since(since.0).as_secs().max(0));
    }
    if plan.drain != DrainSummary::default() {
        plan.drain.cause = cause(view, before);
    }
}

/// Why pods were told to leave.
fn cause(view: &View<'_>, scaling: &Scaling) -> DrainCause {
    let phase = view.job.status.as_ref().and_then(|status| status.phase);
    if phase.is_some_and(JobPhase::is_suspended) {
        DrainCause::Suspend
    } else if scaling.evades() || scaling.from == scaling.to {
        DrainCause::Disruption
    } else if scaling.restarts_all() {
        DrainCause::Restart
    } else {
        DrainCause::Scale
    }
}

/// Adds how many steps are lost with pods that have all left: those since the last checkpoint.
/// Where others train on, nothing is said.
pub(super) fn measure(view: &View<'_>, plan: &mut Plan) {
    let Some(status) = plan.status.status().filter(|_| plan.drain.seconds.is_some()) else {
        return;
    };
    let is_suspended = plan.drain.cause == DrainCause::Suspend;
    let restarts_all = status.scaling.as_deref().is_some_and(Scaling::restarts_all);
    if is_suspended || status.starts_anew() || restarts_all {
        plan.drain.steps_lost = steps_since_checkpoint(view, status);
    }
}

fn steps_since_checkpoint(view: &View<'_>, status: &TrainingJobStatus) -> Option<i64> {
    let reported = view.progress.filter(|_| view.job.reports_progress());
    let last = reported.or(status.progress.as_ref())?.step?;
    let saved = status.checkpoint.as_ref()?.step;
    Some(last.saturating_sub(saved).max(0))
}

fn has_victims(scaling: &Scaling) -> bool {
    scaling.victims.is_some() || RestartStage::of(scaling) == Some(RestartStage::Leaving)
}

/// An event for each step that the pods have come to. One that was over at once has none in the
/// status, but it has one here.
fn steps(before: &Scaling, now: &Scaling) -> Vec<JobEvent> {
    let has_come_to = |step: ScalingStep| before.step < step && step <= now.step;
    let is_leaving = now.step <= ScalingStep::CheckpointDone;
    let steps = [
        (
            ScalingStep::Acknowledged,
            named(now, now.acknowledged.as_ref(), |role| role.acknowledged.as_ref()),
            "know that they are to leave",
        ),
        (
            ScalingStep::CheckpointDone,
            named(now, now.checkpointed.as_ref(), |role| role.checkpointed.as_ref()),
            "have saved their work",
        ),
    ];
    let reached = steps
        .into_iter()
        .filter(|(step, ..)| is_leaving && has_come_to(*step));
    reached
        .filter_map(|(_, pods, what)| Some(news(now, &format!("{} {what}", pods?))))
        .collect()
}

/// The pods of one role, or those of all where all leave, as they are called in messages.
fn named<'s>(
    scaling: &'s Scaling,
    of_one: Option<&'s String>,
    of_role: impl Fn(&'s RestartedRole) -> Option<&'s String>,
) -> Option<String> {
    let of_all = scaling.roles.iter();
    let of_all = of_all.filter_map(|role| Some(format!("{} {}", role.name, of_role(role)?)));
    let of_all: Vec<String> = of_all.collect();
    of_one
        .cloned()
        .or_else(|| (!of_all.is_empty()).then(|| of_all.join(", ")))
}

/// An event for the pods that are asked by a signal, for each reason.
fn forced_events(job: &Job<'_>, before: &Scaling, resize: &Resize) -> Vec<JobEvent> {
    let of = |why: ForcedRemoval| {
        let pods = resize.forced.iter().filter(|(_, forced)| **forced == why);
        let mut names: Vec<String> = Vec::new();
        for (position, role) in job.roles.iter().enumerate() {
            let of_role = pods.clone().filter(|(key, _)| key.role == position);
            let set: BTreeSet<i32> = of_role.map(|(key, _)| key.index).collect();
            let prefix = if before.restarts_all() {
                format!("{} ", role.name)
            } else {
                String::new()
            };
            names.extend(indices::format(&set).map(|set| prefix + &set));
        }
        let what = match why {
            ForcedRemoval::Silent => "say nothing, and are asked by SIGTERM",
            ForcedRemoval::TimedOut => "have not left in time, and are asked by SIGTERM",
        };
        (!names.is_empty()).then(|| news(before, &format!("{} {what}", names.join(", "))))
    };
    ForcedRemoval::ALL.into_iter().filter_map(of).collect()
}

/// An event for the pods that have left since.
fn left_event(job: &Job<'_>, view: &View<'_>, before: &Scaling, resize: &Resize) -> Option<JobEvent> {
    let elastic = job.elastic.filter(|_| !before.restarts_all())?;
    let role = job.roles.get(elastic.role)?;
    let forced: BTreeSet<i32> = resize.forced.keys().map(|key| key.index).collect();
    let were = accepted_members(view, role);
    let has_left =
        |index: &i32| were.contains(*index) && !resize.members.contains(*index) && !forced.contains(index);
    let left: BTreeSet<i32> = leaving(before).into_iter().filter(has_left).collect();
    Some(news(before, &format!("{} have left", indices::format(&left)?)))
}

fn news(scaling: &Scaling, what: &str) -> JobEvent {
    let Scaling { from, to, .. } = scaling;
    if scaling.evades() {
        let why = scaling.message.as_deref().unwrap_or_default();
        return event(false, Reason::Draining, format!("{why}: {what}."));
    }
    event(
        false,
        Reason::Scaling,
        format!("From {from} to {to} pods: {what}."),
    )
}
