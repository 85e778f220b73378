//! A job that should run: its children are made, its ends are counted, its state is deduced. Where
//! something stands against its spec, nothing is made and no pod is replaced; all the rest goes on.

use trainyard_api::{ConditionType, JobPhase, Reason, RolePhase, TrainingJobStatus};

use super::verdict::{Outcome, deadline, finish, outcome};
use super::{Objection, Plan, children, dependent, earliest, event, refused, roles, roll};
use crate::assess::{Assessment, Attempt, assess};
use crate::deduce;
use crate::immutable::fingerprints;
use crate::job::Job;
use crate::model::{JobEvent, StatusWrite};
use crate::status::{condition, has_run, set_condition, time, write};
use crate::view::View;

/// One look at a job, each line of which follows from those before it.
pub(super) fn plan(job: &Job<'_>, view: &View<'_>, objection: Option<&Objection>) -> Plan {
    let old = view.job.status.as_ref();
    let mut plan = Plan::default();
    let mut status = started(view);
    match objection {
        None => accept(job, view, &mut status),
        Some(objection) => plan
            .events
            .extend(refused::reject(&mut status, objection, view.now)),
    }
    tell_resumed(view, &mut plan);
    let was = status.phase;
    let attempt = attempt(job, view, objection);
    give_up(attempt, &mut status);

    // What has become of pods, then of roles.
    let mut seen = assess(job, view, &status, attempt);
    if objection.is_none() {
        roll::choose(job, view, &mut seen);
    }
    let ends = roles::deduce(job, view, &seen, objection.is_some(), &mut status);
    roles::leave_ended(job, &status, &mut seen);

    // What that makes of the job.
    let phase = phase(job, view, &seen, &status, attempt);
    plan.wake_at = earliest([deadline(job, &status), seen.next]);
    match outcome(job, view, &seen, &status, phase, &ends) {
        Outcome::HeldUntil(until) => {
            return Plan {
                wake_at: Some(until),
                ..Plan::default()
            };
        }
        Outcome::Ends(verdict) => finish(job, view, &seen, &mut status, verdict, &mut plan),
        Outcome::GoesOn => {
            go_on(view, &mut status, phase, objection);
            children::plan(job, view, &mut seen, &mut status, objection, &mut plan);
            if was != Some(JobPhase::Running) && phase == JobPhase::Running {
                plan.events.push(all_run(job));
            }
        }
    }

    // What is written, and what has to wait for that.
    plan.missing = children::missing(job, &seen);
    if old.is_none_or(|old| old.start_time.is_none()) {
        // The status first: a pod of a job that is still called suspended is one of its last run, and
        // of one that is not called started it would not be known what it was made from, nor when
        // its time began.
        plan.after_status.splice(0..0, std::mem::take(&mut plan.at_once));
    }
    let is_urgent = dependent::has_late_pods(job, old, &status);
    plan.status = write(old, status);
    if is_urgent {
        plan.status.hurry();
    }
    if plan.status == StatusWrite::Unchanged {
        // All of it has been counted, and need not be confirmed again.
        plan.missing.clear();
    }
    plan
}

/// The status to start from: that of a job which has just been started or resumed, or the one there is.
fn started(view: &View<'_>) -> TrainingJobStatus {
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
        status.start_time = Some(time(view.now));
    }
    status
}

/// Writes down what the pods are made from and counted by, and that it is accepted.
fn accept(job: &Job<'_>, view: &View<'_>, status: &mut TrainingJobStatus) {
    let seen = view
        .job
        .status
        .as_ref()
        .and_then(|status| status.observed_generation);
    // Operators of former versions wrote no rules. What they accepted and is unchanged is what the pods were made from.
    let unwritten = status.accepted_spec.is_empty() || status.accepted_rules.is_none();
    // A generation that something stood against has been seen, and was not accepted.
    let accepted = condition(status, ConditionType::Accepted, true).is_some();
    if seen != view.job.metadata.generation || unwritten || !accepted {
        status.accepted_spec = fingerprints(job.object);
        status.accepted_rules = Some(job.rules());
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

fn tell_resumed(view: &View<'_>, plan: &mut Plan) {
    let phase = view.job.status.as_ref().and_then(|status| status.phase);
    if phase.is_some_and(JobPhase::is_suspended) {
        let message = "The job was resumed and starts afresh.";
        plan.events.push(event(false, Reason::Resumed, message));
    }
}

/// A job that has never run as a whole does not start in part: what has a name it needs may stay for ever, and its pods
/// would wait for each other, and hold what others could use, as long.
///
/// One whose pods could not talk to those that are made now starts anew, unless what they do may yet come to its end.
fn attempt(job: &Job<'_>, view: &View<'_>, objection: Option<&Objection>) -> Attempt {
    let hopeless = match objection.map(|objection| objection.reason) {
        Some(Reason::OwnershipConflict) => true,
        // An operator that is just starting may not know its agent yet: what another has begun is not undone.
        Some(Reason::Unsupported) => view.pods.is_empty(),
        Some(Reason::SecretMissing) if refused::running_caller(job, view).is_none() => {
            return Attempt::StartsAnew;
        }
        _ => false,
    };
    if hopeless && !view.job.status.as_ref().is_some_and(has_run) {
        Attempt::GivenUp
    } else {
        Attempt::GoesOn
    }
}

/// Forgets what was done for an attempt that is given up.
fn give_up(attempt: Attempt, status: &mut TrainingJobStatus) {
    if attempt == Attempt::GivenUp {
        // Nothing is left that was made from it, and it may be changed.
        status.accepted_spec.clear();
        status.accepted_rules = None;
    }
    if attempt != Attempt::GoesOn {
        let open = status.roles.iter_mut().filter(|role| !role.phase.is_terminal());
        open.for_each(|role| role.phase = RolePhase::Pending);
    }
}

/// The phase that follows from those of the roles.
fn phase(
    job: &Job<'_>,
    view: &View<'_>,
    seen: &Assessment<'_>,
    status: &TrainingJobStatus,
    attempt: Attempt,
) -> JobPhase {
    let roles: Vec<RolePhase> = status.roles.iter().map(|role| role.phase).collect();
    let phase = deduce::job(
        status.phase,
        &roles,
        !seen.new_restarts.is_empty() || !seen.replacing.is_empty(),
        roll::is_resized(job, view),
        &job.failed_when,
        &job.succeeded_when,
    );
    if attempt != Attempt::GoesOn && !phase.is_terminal() {
        JobPhase::Pending
    } else {
        phase
    }
}

/// Writes down the phase of a job that has not ended.
fn go_on(view: &View<'_>, status: &mut TrainingJobStatus, phase: JobPhase, objection: Option<&Objection>) {
    status.phase = Some(phase);
    let (running, reason, message) = match phase {
        JobPhase::Running => (true, Reason::AllRolesRunning, "All roles run."),
        JobPhase::Scaling => (false, Reason::Scaling, "Pods are being added."),
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
        JobPhase::Pending => (
            false,
            Reason::OwnershipConflict,
            "A name that the job needs is taken.",
        ),
        _ => (false, Reason::Starting, "Not all pods run yet."),
    };
    set_condition(status, ConditionType::Running, running, reason, message, view.now);
}

fn all_run(job: &Job<'_>) -> JobEvent {
    let message = match job.total() {
        1 => "All roles run (1 pod).".to_owned(),
        pods => format!("All roles run ({pods} pods)."),
    };
    event(false, Reason::AllRolesRunning, message)
}
