//! Plans a job that should run: creates its children, counts how its pods ended and deduces its
//! state. If there is an objection, nothing is created and no pod is replaced; ends are still
//! counted, and the pods of an attempt that is given up are deleted.

use trainyard_api::{Accepted, ConditionType, JobPhase, Reason, RolePhase, TrainingJobStatus};

use super::verdict::{Outcome, deadline, finish, outcome};
use super::{
    Objection, Plan, budget, children, dependent, earliest, event, group, objections, restarts, roles, roll,
    size, unrecorded,
};
use crate::assess::{Assessment, Attempt, assess};
use crate::deduce;
use crate::foreign::is_child;
use crate::immutable::fingerprints;
use crate::job::Job;
use crate::model::{JobEvent, StatusWrite};
use crate::scaling::{self, Sizes};
use crate::status::{condition, has_run, keeps_scaling, set_condition, time, write};
use crate::view::View;

/// Plans once. Each part uses the results of the parts before it.
pub(super) fn plan(
    job: &Job<'_>,
    view: &View<'_>,
    sizes: Option<&Sizes>,
    objection: Option<&Objection>,
) -> Plan {
    let mut plan = Plan::default();
    let mut status = initial_status(view);
    match objection {
        None => accept(job, view, &mut status),
        Some(objection) => plan
            .events
            .extend(objections::reject(&mut status, objection, view.now)),
    }
    let sizes = sizes.filter(|_| objection.is_none());
    let resize = sizes.and_then(|sizes| sizes.resize.as_ref());
    if let Some(resize) = resize {
        size::record(job, view, resize, &mut status, &mut plan);
        plan.wake_at = resize.wake_at;
        plan.waits.unacknowledged_since = resize.unacknowledged_since;
        plan.waits.put_off_since = resize.put_off_since;
    }
    report_resumed(view, &mut plan);
    let phase_before = status.phase;
    let attempt = decide_attempt(job, view, objection);
    reset_status(attempt, &mut status);
    size::reset_roles(job, &mut status);

    // Assess the pods, then the roles.
    let evaded = resize.and_then(|resize| resize.evaded.as_ref());
    let mut assessment = assess(job, view, &status, attempt, evaded);
    if objection.is_none() {
        roll::choose_outdated(job, view, &mut assessment);
    }
    let fatal_ends = roles::deduce(job, view, &assessment, objection.is_some(), &mut status);
    roles::ignore_ended_roles(job, &status, &mut assessment);
    if attempt == Attempt::GoesOn {
        assessment.group = group::choose(job, view, &status, &mut assessment);
    }
    if assessment.group.is_none() {
        group::finish(job, view, &mut status);
    }

    // Deduce what that means for the job.
    let phase = phase(job, view, &assessment, &status, attempt);
    let paused_until = size::pause_deadline(job, &status, phase);
    plan.wake_at = earliest([
        plan.wake_at,
        deadline(job, &status),
        paused_until,
        assessment.next_due,
    ]);
    match outcome(job, view, &assessment, &status, phase, &fatal_ends) {
        Outcome::DelayedUntil(until) => {
            // Nothing is written meanwhile: a node may yet report the end that caused this one.
            return Plan {
                wake_at: Some(until),
                ..Plan::default()
            };
        }
        Outcome::Ends(verdict) => finish(job, view, &assessment, &mut status, verdict, &mut plan),
        Outcome::GoesOn => {
            if phase == JobPhase::Running {
                restarts::record_outage(view, &mut status);
            }
            let waits_for = sizes.and_then(|sizes| sizes.waits_for.as_deref());
            record_phase(view, &mut status, phase, objection, waits_for);
            restarts::record_step_after(view, &mut status);
            children::plan(job, view, &mut assessment, &mut status, objection, &mut plan);
            budget::correct(job, view, &status, objection, &mut plan);
            let is_news = phase_before != Some(JobPhase::Running) && phase == JobPhase::Running;
            if is_news && !is_child(view.job) {
                plan.events.push(all_running_event(job));
            }
            plan.events
                .extend(budget::conflict(job, view).filter(|_| is_news));
        }
    }

    plan.unconfirmed = children::unconfirmed(job, &assessment);
    add_status(job, view, status, &mut plan);
    plan
}

/// Decides how the status is written, and what has to wait for that.
fn add_status(job: &Job<'_>, view: &View<'_>, status: TrainingJobStatus, plan: &mut Plan) {
    let old = view.job.status.as_ref();
    let is_urgent = dependent::has_late_role_started(job, old, &status);
    let must_be_first = match old {
        None => !unrecorded::may_start(job, &status),
        Some(old) => {
            old.start_time.is_none()
                || old.accepted_framework.as_deref() != job.framework.declaration.as_deref()
                || !keeps_scaling(old, &status)
                || scaling::adds_members(old, &status)
        }
    };
    if must_be_first {
        // The status is written first. Pods of a job whose status says Suspended count as pods of
        // its last run; and without a start time, accepted rules and the declaration of a framework
        // nobody would know what the pods were created from, nor since when the deadline runs; and
        // pods that join or leave would count as lost.
        plan.after_status.splice(0..0, std::mem::take(&mut plan.at_once));
    }
    plan.others_leave = size::others_leave(job, view, &status, plan);
    plan.status = write(old, status);
    if is_urgent || must_be_first {
        plan.status.write_now();
    }
    if plan.status == StatusWrite::Unchanged {
        // This plan counts no new loss, so there is nothing to confirm.
        plan.unconfirmed.clear();
    }
}

/// The status to start from: the job's own, reset if the job was just started or resumed.
fn initial_status(view: &View<'_>) -> TrainingJobStatus {
    let mut status = view.job.status.clone().unwrap_or_default();
    status.observed_generation = view.job.metadata.generation;
    if status.phase.is_some_and(JobPhase::is_suspended) {
        let message = "The job was resumed.";
        set_condition(
            &mut status,
            ConditionType::Suspended,
            false,
            Reason::Resumed,
            message,
            view.now,
        );
        status.roles.clear();
        status.progress = None;
        status.phase = None;
    }
    if status.start_time.is_none() {
        status.start_time = Some(time(unrecorded::start_time(view)));
    }
    status
}

/// Records that the job is accepted, and the spec and rules that its pods are created from.
fn accept(job: &Job<'_>, view: &View<'_>, status: &mut TrainingJobStatus) {
    let observed = view
        .job
        .status
        .as_ref()
        .and_then(|status| status.observed_generation);
    // Former versions of the operator wrote no rules. A spec that they accepted and that is
    // unchanged is the one that the pods were created from.
    let declaration = job.framework.declaration.as_deref();
    let unwritten = status.accepted.spec.is_empty()
        || status.accepted.rules.is_none()
        || status.accepted_framework.as_deref() != declaration
        || scaling::is_resized(job, view)
        || job.elastic.is_some() && status.accepted.rules != Some(job.rules());
    // An objected generation has been observed too, but was not accepted.
    let accepted = condition(status, ConditionType::Accepted, true).is_some();
    if observed != view.job.metadata.generation || unwritten || !accepted {
        status.accepted = Accepted {
            spec: fingerprints(job.object, view.frameworks),
            rules: Some(job.rules()),
        };
        status.accepted_framework = declaration.map(ToOwned::to_owned);
    }
    set_condition(
        status,
        ConditionType::Accepted,
        true,
        Reason::Valid,
        "The job is valid.",
        view.now,
    );
}

fn report_resumed(view: &View<'_>, plan: &mut Plan) {
    let phase = view.job.status.as_ref().and_then(|status| status.phase);
    if phase.is_some_and(JobPhase::is_suspended) {
        let message = "The job was resumed and starts afresh.";
        plan.events.push(event(false, Reason::Resumed, message));
    }
}

/// Decides whether the job goes on.
///
/// A job that has never run as a whole does not start in part: an object with a name that the job
/// needs may stay for ever, and the job's pods would wait for each other, and hold resources, as
/// long.
///
/// A job whose pods could not talk to pods that are created now starts anew, unless the pods that
/// run may still finish the job.
fn decide_attempt(job: &Job<'_>, view: &View<'_>, objection: Option<&Objection>) -> Attempt {
    let cannot_start = match objection.map(|objection| objection.reason) {
        Some(Reason::OwnershipConflict) => true,
        // An operator that is just starting may not know its agent yet. It must not undo what
        // another operator has begun.
        Some(Reason::Unsupported) => view.pods.is_empty(),
        Some(Reason::SecretMissing) if objections::running_launcher_pod(job, view).is_none() => {
            return Attempt::StartsAnew;
        }
        _ => false,
    };
    if cannot_start && !view.job.status.as_ref().is_some_and(has_run) {
        Attempt::GivenUp
    } else {
        Attempt::GoesOn
    }
}

/// Resets the status if all pods are given up.
fn reset_status(attempt: Attempt, status: &mut TrainingJobStatus) {
    if attempt == Attempt::GivenUp {
        // All pods are deleted, so the spec may change.
        status.accepted = Accepted::default();
        status.accepted_framework = None;
    }
    if attempt != Attempt::GoesOn {
        let unfinished = status.roles.iter_mut().filter(|role| !role.phase.is_terminal());
        unfinished.for_each(|role| role.phase = RolePhase::Pending);
    }
}

/// The phase that follows from those of the roles.
fn phase(
    job: &Job<'_>,
    view: &View<'_>,
    assessment: &Assessment<'_>,
    status: &TrainingJobStatus,
    attempt: Attempt,
) -> JobPhase {
    let roles: Vec<RolePhase> = status.roles.iter().map(|role| role.phase).collect();
    let is_replacing =
        status.starts_anew() || !assessment.new_restarts.is_empty() || !assessment.replacing.is_empty();
    let phase = deduce::job(
        status.phase,
        &roles,
        is_replacing,
        scaling::is_resized(job, view),
        &job.failed_when,
        &job.succeeded_when,
    );
    if attempt != Attempt::GoesOn && !phase.is_terminal() {
        JobPhase::Pending
    } else {
        size::phase(job, assessment, status, phase)
    }
}

/// Records the phase of a job that has not ended.
fn record_phase(
    view: &View<'_>,
    status: &mut TrainingJobStatus,
    phase: JobPhase,
    objection: Option<&Objection>,
    waits_for: Option<&str>,
) {
    status.phase = Some(phase);
    let leaves = status.scaling.as_deref().filter(|scaling| scaling.evades());
    let leaves = leaves.and_then(|scaling| scaling.message.as_deref());
    if let (JobPhase::Running, Some(why)) = (phase, leaves) {
        let (reason, message) = (
            Reason::Draining,
            format!("All roles run, and pods are to leave: {why}."),
        );
        set_condition(status, ConditionType::Running, true, reason, message, view.now);
        return;
    }
    if let (JobPhase::Running, Some(wait)) = (phase, waits_for) {
        let (reason, message) = (Reason::AllRolesRunning, format!("All roles run. {wait}"));
        set_condition(status, ConditionType::Running, true, reason, message, view.now);
        return;
    }
    let (running, reason, message) = match phase {
        JobPhase::Running => (true, Reason::AllRolesRunning, "All roles run."),
        JobPhase::Scaling if size::runs_on(status) => (
            true,
            Reason::Scaling,
            "All roles run, and the number of pods is changing.",
        ),
        JobPhase::Scaling if status.scaling.is_some() => (
            false,
            Reason::Scaling,
            "All pods start anew, with another number of them.",
        ),
        JobPhase::Scaling => (false, Reason::Scaling, "Pods are being added."),
        JobPhase::Paused => (
            false,
            Reason::Paused,
            "The job has fewer pods than it needs to train, and waits for more.",
        ),
        JobPhase::Restarting => (false, Reason::Restarting, "Pods that ended are being replaced."),
        JobPhase::Pending if objection.is_some_and(|objection| objection.reason == Reason::Unsupported) => {
            (false, Reason::Unsupported, "The job needs what is not there.")
        }
        JobPhase::Pending if objection.is_some_and(|objection| objection.reason == Reason::SecretMissing) => {
            (
                false,
                Reason::SecretMissing,
                "All pods start anew with another Secret.",
            )
        }
        // The third reason for which an attempt is given up.
        JobPhase::Pending => (
            false,
            Reason::OwnershipConflict,
            "A name that the job needs is taken.",
        ),
        _ => (false, Reason::Starting, "Not all pods run yet."),
    };
    set_condition(status, ConditionType::Running, running, reason, message, view.now);
}

fn all_running_event(job: &Job<'_>) -> JobEvent {
    let message = match job.total() {
        1 => "All roles run (1 pod).".to_owned(),
        pods => format!("All roles run ({pods} pods)."),
    };
    event(false, Reason::AllRolesRunning, message)
}
