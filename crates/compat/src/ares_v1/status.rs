//! The status of an AresJob, in the words that its users know.

use serde_json::{Map, Value, json};
use trainyard_api::{ConditionType, JobPhase, Reason, RolePhase, RoleStatus, RootCause};

use crate::notes::{Condition, Tone};
use crate::report::{INVALID_DEFINITION, Problem, Report};

const CREATED: &str = "Created";
const RUNNING: &str = "Running";
const SUCCEEDED: &str = "Succeeded";
const FAILED: &str = "Failed";
const PENDING: &str = "Pending";
const STARTING: &str = "Starting";
/// The job, or a change of it, can't be carried out for a reason that the other operator knows
/// nothing of.
const REFUSED: &str = "Refused";

/// What events are called there that tell of another phase of the job.
const TRANSITION: &str = "JobPhaseTransition";

/// The reasons for which a job fails that the other operator never gave, because it did not look.
const LIMITS: [Reason; 2] = [Reason::BackoffLimitExceeded, Reason::DeadlineExceeded];

/// The status of an object.
pub fn status(report: &Report<'_>) -> Value {
    let refusal = report.refusal();
    let invalid = refusal.as_ref().filter(|refusal| is_invalid(report, refusal));
    let phase = if invalid.is_some() { FAILED } else { phase(report) };
    let mut conditions = conditions(report, phase, invalid);
    if let Some(refusal) = refusal.as_ref().filter(|_| invalid.is_none()) {
        let refused = report.condition(REFUSED, true, &refusal.reason, &refusal.message);
        // What holds now comes last.
        let last = conditions.len().saturating_sub(1);
        conditions.insert(last, report.updated(refused));
    }
    let mut status = Map::new();
    status.insert("phase".to_owned(), phase.into());
    status.insert("conditions".to_owned(), conditions.into());
    status.extend(report.times().map(|(field, time)| (field.to_owned(), time)));
    let since = before(report, "/runningTime").cloned();
    let since = since.or_else(|| (phase == RUNNING).then(|| report.time()));
    status.extend(since.map(|since| ("runningTime".to_owned(), since)));
    let roles = report
        .object
        .pointer("/spec/roleSpecs")
        .and_then(Value::as_object);
    let names = || roles.into_iter().flat_map(Map::keys);
    let of_roles: Map<String, Value> = names().map(|name| (name.clone(), role(report, name))).collect();
    status.insert("roleStatuses".to_owned(), of_roles.into());
    let counts: Map<String, Value> = names()
        .filter_map(|name| Some((name.clone(), counts(report.role(name)?, false).into())))
        .collect();
    if !counts.is_empty() {
        status.insert("replicaStatuses".to_owned(), counts.into());
    }
    status.into()
}

/// The event that reports a condition.
pub fn event<'a>(condition: &Condition<'a>) -> Option<(Tone, &'a str)> {
    match (condition.kind, condition.holds) {
        (FAILED, true) if condition.reason == INVALID_DEFINITION => Some((Tone::Refusal, condition.reason)),
        (REFUSED, true) => Some((Tone::Refusal, condition.reason)),
        (FAILED, true) => Some((Tone::Warning, TRANSITION)),
        (CREATED, true) => Some((Tone::Passing, TRANSITION)),
        (RUNNING | SUCCEEDED, true) => Some((Tone::Normal, TRANSITION)),
        _ => None,
    }
}

/// Whether an object can't be run as it is: to the other operator, it has failed then.
fn is_invalid(report: &Report<'_>, refusal: &Problem) -> bool {
    refusal.reason == Reason::Invalid.as_str() && report.phase() == JobPhase::Pending
}

/// What the object's status says so far.
fn before<'a>(report: &Report<'a>, pointer: &str) -> Option<&'a Value> {
    let status = report.object.get("status")?;
    status.pointer(pointer).filter(|value| !value.is_null())
}

/// The phase of the job. One that has run is Running until it ends.
fn phase(report: &Report<'_>) -> &'static str {
    let has_run = before(report, "/runningTime").is_some();
    match report.phase() {
        JobPhase::Succeeded => SUCCEEDED,
        JobPhase::Failed => FAILED,
        JobPhase::Running => RUNNING,
        _ if has_run => RUNNING,
        JobPhase::Pending | JobPhase::Suspending | JobPhase::Suspended => PENDING,
        JobPhase::Starting | JobPhase::Scaling | JobPhase::Restarting | JobPhase::Paused => STARTING,
    }
}

/// What has been and what is, in this order.
fn conditions(report: &Report<'_>, phase: &str, invalid: Option<&Problem>) -> Vec<Value> {
    let name = report.object.pointer("/metadata/name").and_then(Value::as_str);
    let is = |phase: &str| format!("AresJob {} is {phase}", name.unwrap_or_default());
    if let Some(invalid) = invalid {
        let failed = report.condition(FAILED, true, INVALID_DEFINITION, &invalid.message);
        return vec![report.updated(failed)];
    }
    let starts = matches!(phase, PENDING | STARTING);
    let created = if starts { phase } else { STARTING };
    let mut conditions = vec![report.condition(CREATED, true, created, &format!("{}.", is(created)))];
    match phase {
        RUNNING => conditions.push(report.condition(RUNNING, true, RUNNING, &format!("{}.", is(RUNNING)))),
        SUCCEEDED | FAILED => {
            let ran = report.before(RUNNING).is_some();
            let over = format!("AresJob {} has ended.", name.unwrap_or_default());
            conditions.extend(ran.then(|| report.condition(RUNNING, false, phase, &over)));
            let (reason, message) = match report.holds(ConditionType::Failed) {
                Some(failed) => {
                    let mut limits = LIMITS.into_iter().map(Reason::as_str);
                    let limit = limits.find(|limit| *limit == failed.reason);
                    (
                        limit.unwrap_or(phase),
                        format!("{}: {}", is(phase), failed.message),
                    )
                }
                None => (phase, format!("{}.", is(phase))),
            };
            conditions.push(report.condition(phase, true, reason, &message));
        }
        _ => {}
    }
    let updated = conditions.into_iter().map(|condition| report.updated(condition));
    updated.collect()
}

/// The state of one role.
fn role(report: &Report<'_>, name: &str) -> Value {
    let earlier = before(report, &format!("/roleStatuses/{name}"));
    let phase_before = earlier.and_then(|earlier| earlier["phase"].as_str());
    let role = report.role(name);
    let phase = match report.role_phase(name) {
        RolePhase::Succeeded => SUCCEEDED,
        RolePhase::Failed => FAILED,
        RolePhase::Running => RUNNING,
        // A role that has run, or that ended with its job, stays what it was.
        RolePhase::Pending | RolePhase::Starting | RolePhase::Stopped if phase_before == Some(RUNNING) => {
            RUNNING
        }
        RolePhase::Pending => PENDING,
        RolePhase::Starting | RolePhase::Stopped => STARTING,
    };
    let since = earlier.filter(|_| phase_before == Some(phase));
    let since = since.and_then(|earlier| earlier.get("lastTransitionTime").cloned());
    let mut status = Map::new();
    status.insert("phase".to_owned(), phase.into());
    if let Some(role) = role {
        let (reason, message) = why(report, role);
        status.extend(reason.map(|reason| ("reason".to_owned(), reason.into())));
        status.extend(message.map(|message| ("message".to_owned(), message.into())));
        status.extend(counts(role, true));
    }
    status.insert(
        "lastTransitionTime".to_owned(),
        since.unwrap_or_else(|| report.time()),
    );
    status.into()
}

/// Why a role is what it is.
fn why(report: &Report<'_>, role: &RoleStatus) -> (Option<String>, Option<String>) {
    if role.phase == RolePhase::Stopped {
        return (None, None);
    }
    let cause = report.status().and_then(|status| status.root_cause.as_ref());
    let cause = cause.filter(|cause| cause.role == role.name && role.phase == RolePhase::Failed);
    let is = |reason: Reason| role.reason.as_deref() == Some(reason.as_str());
    // To the other operator, a pod that was evicted is one that failed.
    let failed = is(Reason::PodFailed) || is(Reason::PodDisrupted);
    match cause.filter(|_| failed) {
        Some(cause) => (Some(Reason::PodFailed.as_str().to_owned()), Some(describe(cause))),
        None if failed => (Some(Reason::PodFailed.as_str().to_owned()), role.message.clone()),
        None => (role.reason.clone(), role.message.clone()),
    }
}

/// The end of a pod, in the form that the other operator gives it.
fn describe(cause: &RootCause) -> String {
    let RootCause {
        role: _,
        pod,
        node,
        container: _,
        exit_code,
        signal,
        reason,
        message,
        time,
    } = cause;
    let members = [
        ("exitCode", exit_code.map(Value::from)),
        ("signal", signal.map(Value::from)),
        ("reason", reason.clone().map(Value::from)),
        ("message", message.clone().map(Value::from)),
        ("finishedAt", time.as_ref().map(|time| json!(time.0.to_string()))),
    ];
    let given = members.into_iter();
    let info: Map<String, Value> = given
        .filter_map(|(name, value)| Some((name.to_owned(), value?)))
        .collect();
    let node = node.as_deref().unwrap_or_default();
    format!("pod={pod}; nodeName={node}; info={}", Value::from(info))
}

/// How many pods of a role are in which state; what is 0 is left out there. `all`: also the states
/// that other kinds of the same family do not have.
fn counts(role: &RoleStatus, all: bool) -> Map<String, Value> {
    let counts = [
        ("active", role.active, true),
        ("succeeded", role.succeeded, true),
        ("failed", role.failed, true),
        ("pending", role.pending, all),
        ("terminating", role.terminating, all),
    ];
    let written = counts
        .into_iter()
        .filter(|(_, count, is_written)| *is_written && *count != 0);
    written
        .map(|(name, count, _)| (name.to_owned(), json!(count)))
        .collect()
}
