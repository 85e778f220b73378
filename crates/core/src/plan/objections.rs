//! Objections: why a job is not accepted, and what its status says then.

use jiff::Timestamp;
use trainyard_api::{CleanPodPolicy, ConditionType, FieldError, JobPhase, Reason, TrainingJobStatus, names};

use super::{Objection, Plan, budget, event, exec_right, finished};
use crate::build;
use crate::immutable::forbidden_changes;
use crate::job::Job;
use crate::local_state::SecretState;
use crate::model::{Action, JobEvent, PodKey};
use crate::restart;
use crate::status::{condition, given_up, is_accepted, set_condition, write};
use crate::view::{Conflict, PodPhase, PodRow, View};

/// Plans a job that was never accepted: it has no pods.
pub(super) fn plan_rejected(view: &View<'_>, objection: &Objection) -> Plan {
    let old = view.job.status.as_ref();
    let mut status = old.cloned().unwrap_or_default();
    status.observed_generation = view.job.metadata.generation;
    let phase = *status.phase.get_or_insert(JobPhase::Pending);
    let events = reject(&mut status, objection, view.now);
    // An operator may have created pods and died before it wrote that the job was accepted.
    let leftovers = finished::clean(view, CleanPodPolicy::All)
        .into_iter()
        .filter(|action| phase == JobPhase::Pending && matches!(action, Action::DeletePod { .. }));
    let mut at_once = Vec::from_iter(exec_right::withdrawal(view));
    at_once.extend(budget::withdrawal(view));
    Plan {
        at_once,
        status: write(old, status),
        after_status: leftovers.collect(),
        events: Vec::from_iter(events),
        ..Plan::default()
    }
}

/// Records why a job is not accepted. Returns an event, unless the status already says the same.
pub(super) fn reject(
    status: &mut TrainingJobStatus,
    objection: &Objection,
    now: Timestamp,
) -> Option<JobEvent> {
    let Objection { reason, message } = objection;
    let is_written = condition(status, ConditionType::Accepted, false)
        .is_some_and(|written| written.reason == reason.as_str() && written.message == *message);
    set_condition(status, ConditionType::Accepted, false, *reason, message, now);
    (!is_written).then(|| event(true, *reason, message))
}

/// Finds changes that are allowed only while the job is suspended and that admission did not see.
pub(super) fn check_immutable(view: &View<'_>) -> Result<(), Vec<FieldError>> {
    let Some(status) = &view.job.status else {
        return Ok(());
    };
    if is_accepted(view.job) || view.job.is_suspended() || status.accepted.spec.is_empty() {
        return Ok(());
    }
    let changes = forbidden_changes(&status.accepted.spec, view.job, view.frameworks);
    if changes.is_empty() { Ok(()) } else { Err(changes) }
}

/// Objects to names that are taken. It goes on objecting while pods of the start that was given up
/// are terminating, even if the names are free again: how those pods end must not count for the
/// next start.
pub(super) fn ownership_conflict(job: &Job<'_>, view: &View<'_>) -> Option<Objection> {
    let taken: Vec<_> = view.conflicts.iter().filter(|c| needs_name(job, c)).collect();
    if !taken.is_empty() {
        return Some(Objection {
            reason: Reason::OwnershipConflict,
            message: describe_conflicts(&taken),
        });
    }
    let (reason, condition) = given_up(view.job.status.as_ref()?)?;
    let is_terminating = view.pods.iter().any(|row| row.terminating);
    is_terminating.then(|| Objection {
        reason,
        message: condition.message.clone(),
    })
}

/// Objects if pods run whose Secret is deleted: pods that are created now would have another
/// Secret, and could not talk to them.
pub(super) fn secret_missing(job: &Job<'_>, view: &View<'_>) -> Option<Objection> {
    let credentials = job.framework.credentials(job.object)?;
    let (identity, caller) = (credentials.made()?, credentials.caller);
    if view.local.secret != SecretState::Missing(identity) || !has_live_pods(view) {
        return None;
    }
    let name = identity.secret_name(job.name);
    let then = match running_launcher_pod(job, view) {
        Some(pod) => format!(
            "nothing is replaced as long as the {caller} runs. When it has ended, all pods start anew with another Secret; to \
             have that now, delete the pod {pod}."
        ),
        None => "all pods start anew with another Secret.".to_owned(),
    };
    Some(Objection {
        reason: Reason::SecretMissing,
        message: format!(
            "Secret {name:?} is gone, and pods that are made now could not talk to those that have it: {then}"
        ),
    })
}

/// Returns true if pods exist that run or may start, and so have the Secret of their time.
pub(super) fn has_live_pods(view: &View<'_>) -> bool {
    view.pods.iter().any(PodRow::may_run)
}

/// Returns true if a pod is on a node but has no address yet. A kubelet mounts volumes first, and
/// does nothing else until it can.
pub(super) fn has_unmounted_pods(view: &View<'_>) -> bool {
    let waits = |row: &PodRow| row.phase == PodPhase::Pending && row.node.is_some() && row.address.is_none();
    view.pods.iter().any(|row| waits(row) && !row.terminating)
}

/// The running pod that starts programs in other pods. While it runs, the job may still finish.
pub(super) fn running_launcher_pod(job: &Job<'_>, view: &View<'_>) -> Option<String> {
    let caller = job.framework.credentials(job.object)?.caller;
    let (position, role) = job.role(caller)?;
    let runs = |row: &&PodRow| {
        let is_caller = job.key(&row.name).is_some_and(|key| key.role == position);
        let runs = matches!(row.phase, PodPhase::Running | PodPhase::Unknown) && !row.terminating;
        is_caller && runs && restart::end(row, view.node(row), role.node_down_policy).is_none()
    };
    view.pods.iter().find(runs).map(|row| row.name.to_string())
}

/// Objects if this operator lacks something that the job's pods need.
pub(super) fn unsupported(job: &Job<'_>, view: &View<'_>) -> Option<Objection> {
    let has_shell = |role| {
        let pod = PodKey { role, index: 0 };
        job.framework.remote_shell(job, view.settings, pod).is_some()
    };
    let has_shell = (0..job.roles.len()).any(has_shell);
    if job.framework.exec(job).is_some() && !view.settings.allows_exec {
        return Some(Objection {
            reason: Reason::Unsupported,
            message: format!(
                "attach Exec takes a right to run commands in pods, which this operator does not have to give: install it with \
                 --exec, or start it with --allow-exec, or set spec.framework.{}.attach to Agent. The job goes on by itself \
                 when there is one.",
                job.framework.name()
            ),
        });
    }
    (has_shell && view.settings.agent.is_none()).then(|| Objection {
        reason: Reason::Unsupported,
        message: format!(
            "{} needs the agent in its pods, and this operator has none to put there: install it without --no-agent, or start \
             it with --agent-image. The job goes on by itself when there is one.",
            job.framework.name()
        ),
    })
}

/// Returns true if the job needs a name that is taken. A change while it was suspended may have
/// made it need other names.
fn needs_name(job: &Job<'_>, conflict: &Conflict) -> bool {
    let name = &conflict.name;
    match conflict.kind {
        "Secret" => job
            .framework
            .credentials(job.object)
            .and_then(|credentials| credentials.made())
            .is_some_and(|identity| identity.secret_name(job.name) == *name),
        "ServiceAccount" | "Role" | "RoleBinding" => {
            job.framework.exec(job).is_some() && names::mpi_account(job.name) == *name
        }
        "Service" => build::service_keys(job)
            .into_iter()
            .any(|key| build::service_name(job, key) == *name),
        _ => job.key(name).is_some(),
    }
}

fn describe_conflicts(taken: &[&Conflict]) -> String {
    let each = taken.iter().map(|conflict| {
        let Conflict { kind, name, owner } = conflict;
        let collides = if owner.starts_with("TrainingJob ") {
            ", whose names collide with those of this job"
        } else {
            ""
        };
        format!("{kind} {name:?} exists and belongs to {owner}{collides}")
    });
    let list = each.collect::<Vec<_>>().join("; ");
    format!(
        "{list}. Remove it, or create this job under another name; the job goes on by itself when the name is free."
    )
}
