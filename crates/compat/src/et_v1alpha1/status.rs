//! The status of a TrainingJob of et-operator, in the words that its users know.

use serde_json::{Map, Value, json};
use trainyard_api::{ConditionType, JobPhase, RoleStatus, ScaleKind, ScaleRequestRef};
use trainyard_core::job::Job;
use trainyard_core::view::PodPhase;

use super::GROUP;
use crate::mpi::{LAUNCHER, WORKER};
use crate::notes::{Condition, Tone};
use crate::report::Report;

pub const CREATED: &str = "Created";
const WORKERS_CREATED: &str = "WorkersCreated";
const WORKERS_READY: &str = "WorkersReady";
const LAUNCHER_CREATED: &str = "LauncherCreated";
const RUNNING: &str = "Running";
pub const SCALING: &str = "Scaling";
pub const SCALE_SUCCEEDED: &str = "ScaleSucceeded";
pub const SCALE_FAILED: &str = "ScaleFailed";
const SUSPENDED: &str = "Suspended";
const SUCCEEDED: &str = "Succeeded";
const FAILED: &str = "Failed";
/// The job, or a change of it, can't be carried out. The other operator knows nothing like it.
const REFUSED: &str = "Refused";

/// What a job comes to one after the other until it runs.
const STEPS: [&str; 5] = [CREATED, WORKERS_CREATED, WORKERS_READY, LAUNCHER_CREATED, RUNNING];

/// What programs that watch these jobs match on.
const REASON_CREATED: &str = "TrainingJobCreated";
const REASON_RUNNING: &str = "TrainingJobRunning";
const REASON_SUCCEEDED: &str = "TrainingJobSucceeded";
const REASON_FAILED: &str = "TrainingJobFailed";
const REASON_EVICTED: &str = "TrainingJobEvicted";
const REASON_SUSPENDED: &str = "WaitingResourceTimeout";
pub const REASON_SCALING: &str = "ScalingStart";
const EVICTED: &str = "Evicted";

/// The status of an object. What holds now comes last.
pub fn status(report: &Report<'_>) -> Value {
    let workers = Workers::of(report);
    let refused = report.refusal().map(|refusal| {
        let condition = report.condition(REFUSED, true, &refusal.reason, &refusal.message);
        report.updated(condition)
    });
    let mut conditions: Vec<Value> = steps(report, &workers);
    conditions.extend(refused);
    conditions.extend(scaling(report));
    conditions.extend(present(report));
    let mut status = Map::new();
    let mut set = |member: &str, value: Value| status.insert(member.to_owned(), value);
    set("phase", phase(report).into());
    set("conditions", conditions.into());
    set("replicaStatuses", replica_statuses(report));
    for (field, time) in report.times() {
        set(field, time);
    }
    set("replicas", workers.target.len().into());
    set("workerSelector", selector(report).into());
    set("targetWorkers", workers.target.into());
    set("currentWorkers", workers.current.into());
    if let Some(request) = request(report) {
        set("currentScaler", scaler(report, request).into());
    }
    let restarts = report.status().and_then(|status| status.restarts.as_ref());
    if let Some(restarts) = restarts.filter(|restarts| restarts.failures > 0) {
        set("restartCount", restarts.failures.into());
    }
    status.into()
}

/// The event that reports a condition that comes to hold.
pub fn event<'a>(condition: &Condition<'a>) -> Option<(Tone, &'a str)> {
    let tone = match (condition.kind, condition.holds) {
        (CREATED, true) => Tone::Passing,
        (RUNNING | SCALING | SCALE_SUCCEEDED | SUSPENDED | SUCCEEDED, true) => Tone::Normal,
        (SCALE_FAILED | FAILED, true) => Tone::Warning,
        (REFUSED, true) => Tone::Refusal,
        _ => return None,
    };
    Some((tone, condition.reason))
}

/// The workers of a job, by name, in the order of their indices.
struct Workers {
    /// Those that it is to have, with those that join or leave.
    target: Vec<String>,
    /// Those that run.
    current: Vec<String>,
}

impl Workers {
    fn of(report: &Report<'_>) -> Self {
        let has_begun = !matches!(
            report.phase(),
            JobPhase::Pending | JobPhase::Suspending | JobPhase::Suspended
        );
        let job = report.child.filter(|_| has_begun);
        let target: Vec<String> = job
            .and_then(|job| Job::parse(job).ok())
            .map_or_else(Vec::new, |job| {
                let worker = job.role(WORKER).map(|(position, _)| position);
                let keys = job.keys().filter(|key| Some(key.role) == worker);
                keys.map(|key| job.pod_name(key)).collect()
            });
        let runs = |name: &&String| {
            let mut rows = report.pods.iter();
            rows.any(|row| *row.name == ***name && row.phase == PodPhase::Running && !row.terminating)
        };
        let current = target.iter().filter(runs).cloned().collect();
        Self { target, current }
    }
}

/// The request by which the size of the job is being changed.
fn request<'a>(report: &'a Report<'_>) -> Option<&'a ScaleRequestRef> {
    report.status()?.scaling.as_ref()?.request.as_ref()
}

/// A request as these statuses name it.
fn scaler(report: &Report<'_>, request: &ScaleRequestRef) -> String {
    let namespace = report
        .object
        .pointer("/metadata/namespace")
        .and_then(Value::as_str);
    full_name(request.kind, namespace.unwrap_or_default(), &request.name)
}

/// How a request is named, such as `ScaleIn:default/shrink`.
pub fn full_name(kind: ScaleKind, namespace: &str, name: &str) -> String {
    format!("{kind}:{namespace}/{name}")
}

/// The reason of a condition of a request, such as `ScalingInSucceeded`.
pub fn reason(kind: ScaleKind, end: &str) -> String {
    match kind {
        ScaleKind::ScaleIn => format!("ScalingIn{end}"),
        ScaleKind::ScaleOut => format!("ScalingOut{end}"),
    }
}

fn selector(report: &Report<'_>) -> String {
    let name = report.object.pointer("/metadata/name").and_then(Value::as_str);
    let name = name.unwrap_or_default();
    format!("group-name={GROUP},training-job-name={name},training-job-role={WORKER}")
}

/// The phase of a job. One that has run is Running until it ends.
fn phase(report: &Report<'_>) -> &'static str {
    match report.phase() {
        JobPhase::Succeeded => SUCCEEDED,
        JobPhase::Failed => FAILED,
        JobPhase::Suspending | JobPhase::Suspended => SUSPENDED,
        JobPhase::Scaling => SCALING,
        JobPhase::Running | JobPhase::Paused => RUNNING,
        JobPhase::Restarting if was_reached(report, RUNNING) => RUNNING,
        JobPhase::Pending | JobPhase::Starting | JobPhase::Restarting => CREATED,
    }
}

/// Returns true if the object has a condition, in this run of its child.
fn was_reached(report: &Report<'_>, kind: &str) -> bool {
    let begins = matches!(
        report.phase(),
        JobPhase::Pending | JobPhase::Suspending | JobPhase::Suspended
    );
    !begins && !starts_anew(report) && report.before(kind).is_some()
}

/// Returns true if the launcher has failed since the object was last written, so that all pods
/// start anew.
fn starts_anew(report: &Report<'_>) -> bool {
    let restarts = report.status().and_then(|status| status.restarts.as_ref());
    let written = report.object.pointer("/status/restartCount");
    let written = written.and_then(Value::as_i64).unwrap_or_default();
    restarts.is_some_and(|restarts| i64::from(restarts.failures) > written)
}

/// How many of the steps the job has come to. It never goes back, until it is suspended or starts
/// anew.
fn reached(report: &Report<'_>, workers: &Workers) -> usize {
    let exist = |role: &RoleStatus| role.active + role.pending + role.succeeded + role.failed;
    let target = i32::try_from(workers.target.len()).unwrap_or(i32::MAX);
    let worker = report.role(WORKER);
    let holds = match report.phase() {
        JobPhase::Pending | JobPhase::Suspending | JobPhase::Suspended => 1,
        // The pods that are still there are the old ones.
        JobPhase::Restarting if starts_anew(report) => 1,
        JobPhase::Running | JobPhase::Scaling | JobPhase::Paused | JobPhase::Succeeded => STEPS.len(),
        JobPhase::Starting | JobPhase::Restarting | JobPhase::Failed => {
            if report.role(LAUNCHER).is_some_and(|role| exist(role) > 0) {
                4
            } else if worker.is_some_and(|role| target > 0 && role.ready >= target) {
                3
            } else if worker.is_some_and(|role| target > 0 && exist(role) >= target) {
                2
            } else {
                1
            }
        }
    };
    let before = STEPS.iter().rposition(|step| was_reached(report, step));
    before.map_or(holds, |last| holds.max(last + 1))
}

fn steps(report: &Report<'_>, workers: &Workers) -> Vec<Value> {
    if report.child.is_none() && report.before(CREATED).is_none() {
        return Vec::new();
    }
    let name = report.name();
    let over = report.phase().is_terminal();
    let step = |step: &&'static str| {
        let (reason, message) = match *step {
            CREATED => (REASON_CREATED, format!("TrainingJob {name} is created.")),
            RUNNING if over => (REASON_RUNNING, format!("TrainingJob {name} has ended.")),
            RUNNING => (REASON_RUNNING, format!("TrainingJob {name} is running.")),
            WORKERS_CREATED => (*step, format!("The workers of {name} are created.")),
            WORKERS_READY => (*step, format!("The workers of {name} are ready.")),
            other => (other, format!("The launcher of {name} is created.")),
        };
        let holds = *step != RUNNING || !over;
        report.updated(report.condition(step, holds, reason, &message))
    };
    STEPS.iter().take(reached(report, workers)).map(step).collect()
}

/// What was made of the last request, and the change of size that is under way.
fn scaling(report: &Report<'_>) -> Vec<Value> {
    let Some(status) = report.status() else {
        return Vec::new();
    };
    let condition = |kind: &str, holds: bool, reason: &str, message: &str| {
        report.updated(report.condition(kind, holds, reason, message))
    };
    let name = report.name();
    let last = status.last_scale_request.as_deref().map(|request| {
        let named = scaler(report, request);
        if request.rollback {
            let message = format!("{named} was not done in time, and was undone.");
            condition(SCALE_FAILED, true, &reason(request.kind, "Failed"), &message)
        } else {
            let message = format!("{named} has succeeded.");
            condition(
                SCALE_SUCCEEDED,
                true,
                &reason(request.kind, "Succeeded"),
                &message,
            )
        }
    });
    let is_scaling = status.scaling.is_some();
    let message = match (is_scaling, request(report)) {
        (true, Some(request)) => format!("TrainingJob {name} carries out {}.", scaler(report, request)),
        (true, None) => format!("TrainingJob {name} gets another number of workers."),
        (false, _) => format!("TrainingJob {name} has the workers that it is to have."),
    };
    let now = (is_scaling || report.before(SCALING).is_some())
        .then(|| condition(SCALING, is_scaling, REASON_SCALING, &message));
    // What holds now comes last.
    if is_scaling {
        last.into_iter().chain(now).collect()
    } else {
        now.into_iter().chain(last).collect()
    }
}

/// How the job has ended, or that it is suspended.
fn present(report: &Report<'_>) -> Option<Value> {
    let name = report.name();
    let (kind, reason, message) = match report.phase() {
        JobPhase::Suspended => {
            let message = format!("TrainingJob {name} is suspended: it has no pods.");
            (SUSPENDED, REASON_SUSPENDED, message)
        }
        JobPhase::Succeeded => {
            let message = format!("TrainingJob {name} successfully completed.");
            (SUCCEEDED, REASON_SUCCEEDED, message)
        }
        JobPhase::Failed => {
            let why = report.holds(ConditionType::Failed);
            let why = why.map_or("", |failed| &*failed.message);
            let cause = report.status().and_then(|status| status.root_cause.as_ref());
            let is_evicted = cause.is_some_and(|cause| cause.reason.as_deref() == Some(EVICTED));
            let reason = if is_evicted { REASON_EVICTED } else { REASON_FAILED };
            (FAILED, reason, format!("TrainingJob {name} has failed: {why}"))
        }
        _ => return None,
    };
    Some(report.updated(report.condition(kind, true, reason, &message)))
}

fn replica_statuses(report: &Report<'_>) -> Value {
    let roles = [("Launcher", LAUNCHER), ("Worker", WORKER)];
    let roles = roles.into_iter().filter_map(|(theirs, ours)| {
        let role = report.role(ours)?;
        let counts = [
            ("active", role.active),
            ("succeeded", role.succeeded),
            ("failed", role.failed),
        ];
        // Theirs leave out what is 0.
        let counts = counts.into_iter().filter(|(_, count)| *count != 0);
        let counts: Map<String, Value> = counts
            .map(|(name, count)| (name.to_owned(), json!(count)))
            .collect();
        Some((theirs.to_owned(), counts.into()))
    });
    Value::Object(roles.collect())
}
