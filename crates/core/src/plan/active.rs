//! A job that should run: its children are made, its ends are counted, its state is deduced. Where something stands
//! against its spec, nothing is made and no pod is replaced; all the rest goes on.

use trainyard_api::{CleanPodPolicy, ConditionType, JobPhase, Reason, RolePhase, TrainingJobStatus};

use super::dependent::{has_late_pods, hold_back, unreached};
use super::describe::root_cause;
use super::restarts::count;
use super::verdict::{Verdict, deadline, verdict};
use super::{Objection, Plan, cause, earliest, event, finished, refused, roles, roll};
use crate::assess::{Assessment, Attempt, Ended, assess};
use crate::build;
use crate::deduce;
use crate::exec;
use crate::immutable::fingerprints;
use crate::job::Job;
use crate::model::{Action, PodKey, StatusWrite};
use crate::restart::End;
use crate::status::{condition, given_up, has_run, set_condition, time, write};
use crate::view::{SecretState, View};

pub(super) fn plan(job: &Job<'_>, view: &View<'_>, objection: Option<&Objection>) -> Plan {
    let old = view.job.status.as_ref();
    let mut status = started(view);
    if objection.is_none() {
        accept(job, view, &mut status);
    }
    let said = objection.and_then(|objection| refused::reject(&mut status, objection, view.now));
    let before = status.phase;
    let attempt = attempt(job, view, objection);
    if attempt == Attempt::GivenUp {
        // Nothing is left that was made from it, and it may be changed.
        status.accepted_spec.clear();
        status.accepted_rules = None;
    }
    if attempt != Attempt::GoesOn {
        let open = status.roles.iter_mut().filter(|role| !role.phase.is_terminal());
        open.for_each(|role| role.phase = RolePhase::Pending);
    }
    let mut seen = assess(job, view, &status, attempt);
    if objection.is_none() {
        roll::choose(job, view, &mut seen);
    }
    let ends = roles::deduce(job, view, &seen, objection.is_some(), &mut status);
    roles::leave_ended(job, &status, &mut seen);
    let phases: Vec<RolePhase> = status.roles.iter().map(|role| role.phase).collect();
    let replacing = !seen.new_restarts.is_empty() || !seen.replacing.is_empty();
    let mut phase = deduce::job(
        status.phase,
        &phases,
        replacing,
        roll::is_resized(job, view),
        &job.failed_when,
        &job.succeeded_when,
    );
    if attempt != Attempt::GoesOn && !phase.is_terminal() {
        phase = JobPhase::Pending;
    }
    let deadline = deadline(job, &status);
    let mut verdict = verdict(job, view, &seen, &status, phase, deadline, &ends);
    if let Some(verdict) = &mut verdict {
        verdict.cause = verdict.cause.and_then(|cause| cause::origin(&seen, cause));
        let held = verdict
            .cause
            .and_then(|cause| cause::held_until(job, view, &seen, &cause));
        if held.is_some() {
            return Plan {
                wake_at: earliest([held, deadline.filter(|at| *at > view.now)]),
                ..Plan::default()
            };
        }
    }

    let mut plan = Plan {
        wake_at: earliest([deadline, seen.next]),
        events: Vec::from_iter(said),
        ..Plan::default()
    };
    let resumed = old.is_some_and(|old| old.phase.is_some_and(JobPhase::is_suspended));
    if resumed {
        plan.events.push(event(
            false,
            Reason::Resumed,
            "The job was resumed and starts afresh.",
        ));
    }
    if let Some(verdict) = verdict {
        finish(job, view, &seen, &mut status, verdict, &mut plan);
    } else {
        go_on(job, view, &mut seen, &mut status, phase, objection, &mut plan);
        if before != Some(JobPhase::Running) && phase == JobPhase::Running {
            let message = match job.total() {
                1 => "All roles run (1 pod).".to_owned(),
                pods => format!("All roles run ({pods} pods)."),
            };
            plan.events.push(event(false, Reason::AllRolesRunning, message));
        }
    }
    plan.missing = missing(job, &seen);
    if old.is_none_or(|old| old.start_time.is_none()) {
        // The status first: a pod of a job that is still called suspended is one of its last run, and of one that is not called
        // started it would not be known what it was made from, nor when its time began.
        plan.after.splice(0..0, std::mem::take(&mut plan.actions));
    }
    // What is done after it destroys evidence that it keeps.
    let is_urgent = has_late_pods(job, old, &status) || !plan.after.is_empty();
    plan.status = match write(old, status) {
        StatusWrite::Soon(status) | StatusWrite::Early(status) if is_urgent => StatusWrite::Now(status),
        status => status,
    };
    if plan.status == StatusWrite::Unchanged {
        // All of it has been counted, and need not be looked for again.
        plan.missing.clear();
    }
    plan
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

fn finish(
    job: &Job<'_>,
    view: &View<'_>,
    seen: &Assessment<'_>,
    status: &mut TrainingJobStatus,
    verdict: Verdict<'_>,
    plan: &mut Plan,
) {
    let Verdict {
        phase,
        reason,
        message,
        cause,
    } = verdict;
    let failed = phase == JobPhase::Failed;
    status.phase = Some(phase);
    status.completion_time = Some(time(view.now));
    if let Some(cause) = cause {
        status.root_cause = Some(root_cause(job, &cause));
    }
    if let Some(restarts) = &mut status.restarts {
        restarts.replacing.clear();
        restarts.incidents.clear();
    }
    roles::end(job, seen, status, reason);
    // Failures that would have been retried count as failed. Terminating pods count as nothing else.
    let stays = |ended: &Ended<'_>| ended.row.is_none_or(|row| !row.terminating);
    let failed_too = seen.new_restarts.iter().map(|end| end.ended);
    for ended in failed_too.filter(|ended| matches!(ended.end, End::Failure(_)) && stays(ended)) {
        if let Some(role) = status.roles.get_mut(ended.key.role) {
            role.failed += 1;
            role.pending -= 1;
        }
    }
    if job.clean_pod_policy != CleanPodPolicy::None {
        // These pods are removed next, and the status of a finished job is not written again.
        for role in &mut status.roles {
            (role.active, role.ready, role.pending, role.terminating) = (0, 0, 0, 0);
        }
        status.ready = Some(format!("0/{}", job.total()));
    }
    set_condition(
        status,
        ConditionType::Running,
        false,
        Reason::Finished,
        "The job has ended.",
        view.now,
    );
    let kind = if failed {
        ConditionType::Failed
    } else {
        ConditionType::Succeeded
    };
    set_condition(status, kind, true, reason, &*message, view.now);
    plan.events.push(event(failed, reason, message));
    plan.after = finished::clean(view, job.clean_pod_policy);
    plan.wake_at = None;
}

fn go_on(
    job: &Job<'_>,
    view: &View<'_>,
    seen: &mut Assessment<'_>,
    status: &mut TrainingJobStatus,
    phase: JobPhase,
    objection: Option<&Objection>,
    plan: &mut Plan,
) {
    let withheld = objection.is_some();
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

    let services = missing_services(job, view);
    let unnamed = !services.is_empty();
    plan.actions = services;
    plan.actions.append(&mut seen.actions);
    let removals = roll::removals(job, view);
    if roll::is_resized(job, view) {
        // The status first: if the role grows again, these pods must not be taken for some that were lost.
        plan.after.extend(removals);
    } else {
        plan.actions.extend(removals);
    }
    count(job, view, seen, status, withheld, plan);
    hold_back(job, view, seen, status, plan);
    plan.late = unreached(job, view, seen, status);
    if withheld {
        // What ended is counted now and replaced later.
        plan.actions.clear();
        plan.after.clear();
        // The status first: how these pods end must not count.
        let told = view.job.status.as_ref().and_then(given_up).is_some();
        let last = if told { &mut plan.actions } else { &mut plan.after };
        last.append(&mut seen.given_up);
    } else {
        let secret = missing_secret(job, view, plan);
        let grant = missing_grant(job, view, plan);
        if unnamed || secret.is_some() || grant.is_some() {
            // Without its Services no pod finds another, without its Secret or account none can start, and one of them may
            // turn out to be somebody else's.
            plan.actions.retain(|action| !is_pod(action));
            plan.after.retain(|action| !is_pod(action));
        }
        plan.actions.extend(secret);
        plan.actions.extend(grant);
        plan.late.extend(doubtful_secret(job, view));
    }
}

fn is_pod(action: &Action) -> bool {
    matches!(action, Action::CreatePod(_))
}

/// Sees to the Secret that pods need which are to be created. While there are none to create, nobody asks for it.
fn missing_secret(job: &Job<'_>, view: &View<'_>, plan: &Plan) -> Option<Action> {
    let identity = job.framework.credentials(job.object)?.made()?;
    let needed = plan.actions.iter().chain(&plan.after).any(is_pod);
    (needed && view.secret != SecretState::There(identity)).then(|| {
        if refused::is_held(view) {
            // Made anew, it would not be the one that they have.
            Action::FindSecret(identity)
        } else {
            Action::CreateSecret(identity)
        }
    })
}

/// The Secret that pods need which were created and can't start. Somebody may have deleted it before they had it.
fn doubtful_secret(job: &Job<'_>, view: &View<'_>) -> Option<Action> {
    let identity = job.framework.credentials(job.object)?.made()?;
    let doubtful = view.secret != SecretState::Gone(identity) && refused::is_unmounted(view);
    doubtful.then_some(Action::FindSecret(identity))
}

/// The right that pods need which are to be created, or that was given for other pods than there are to be. Somebody may have
/// deleted it, which concerns only those that are to have it: a stream that is open stays so.
fn missing_grant(job: &Job<'_>, view: &View<'_>, plan: &Plan) -> Option<Action> {
    let (right, extent) = (job.framework.exec(job)?, exec::extent(job)?);
    let mut pods = plan.actions.iter().chain(&plan.after);
    let has_it = |action: &Action| matches!(action, Action::CreatePod(key) if key.role == right.holder);
    let needed = match view.granted {
        Some(given) => given != extent || !view.grant_is_sure && pods.any(has_it),
        // A leader that is new knows of none. What was given for more pods than are left is not to stay.
        None => pods.any(is_pod) || view.settings.allows_exec && roll::is_resized(job, view),
    };
    needed.then_some(Action::Grant)
}

/// Pods that ran and are not there.
fn missing(job: &Job<'_>, seen: &Assessment<'_>) -> Vec<String> {
    let retried = seen.new_restarts.iter().map(|end| end.ended);
    let retried = retried.filter(|ended| ended.row.is_none()).map(|ended| ended.key);
    let roles = seen.roles.iter().enumerate();
    let lost =
        roles.flat_map(|(role, this)| this.lost.iter().map(move |index| PodKey { role, index: *index }));
    retried.chain(lost).map(|key| job.pod_name(key)).collect()
}

fn missing_services(job: &Job<'_>, view: &View<'_>) -> Vec<Action> {
    let exists = |name: &str| view.services.iter().any(|service| *service.name == *name);
    let keys = build::service_keys(job).into_iter();
    keys.filter(|key| !exists(&build::service_name(job.name, *key)))
        .map(Action::CreateService)
        .collect()
}
