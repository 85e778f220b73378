//! A job that is not accepted: it is told why.

use jiff::Timestamp;
use trainyard_api::{CleanPodPolicy, ConditionType, FieldError, JobPhase, Reason, TrainingJobStatus, names};

use super::{Objection, Plan, event, finished};
use crate::build;
use crate::immutable::forbidden_changes;
use crate::job::Job;
use crate::local_state::SecretState;
use crate::model::{Action, JobEvent, PodKey};
use crate::restart;
use crate::status::{condition, given_up, is_settled, set_condition, write};
use crate::view::{Conflict, PodPhase, PodRow, View};

/// A job that was never accepted: it holds no pods.
pub(super) fn plan(view: &View<'_>, objection: &Objection) -> Plan {
    let old = view.job.status.as_ref();
    let mut status = old.cloned().unwrap_or_default();
    status.observed_generation = view.job.metadata.generation;
    let phase = *status.phase.get_or_insert(JobPhase::Pending);
    let events = reject(&mut status, objection, view.now);
    // An operator that died before it could write that it had accepted the job may have left some.
    let left = finished::clean(view, CleanPodPolicy::All)
        .into_iter()
        .filter(|action| phase == JobPhase::Pending && matches!(action, Action::DeletePod { .. }));
    Plan {
        status: write(old, status),
        after_status: left.collect(),
        events: Vec::from_iter(events),
        ..Plan::default()
    }
}

/// Writes down why a job is not accepted; returns what to tell the user, unless that has been said.
pub(super) fn reject(
    status: &mut TrainingJobStatus,
    objection: &Objection,
    now: Timestamp,
) -> Option<JobEvent> {
    let Objection { reason, message } = objection;
    let said = condition(status, ConditionType::Accepted, false)
        .is_some_and(|said| said.reason == reason.as_str() && said.message == *message);
    set_condition(status, ConditionType::Accepted, false, *reason, message, now);
    (!said).then(|| event(true, *reason, message))
}

/// Finds changes that are possible only while the job is suspended, made where admission did not see them.
pub(super) fn check_immutable(view: &View<'_>) -> Result<(), Vec<FieldError>> {
    let Some(status) = &view.job.status else {
        return Ok(());
    };
    if is_settled(view.job) || view.job.is_suspended() || status.accepted_spec.is_empty() {
        return Ok(());
    }
    let changes = forbidden_changes(&status.accepted_spec, view.job);
    if changes.is_empty() { Ok(()) } else { Err(changes) }
}

/// Names that are taken. Where they are free again, and pods of the start that was given up are still on their way out,
/// it is as if they were not: how those pods end must not count for the next start.
pub(super) fn conflict(job: &Job<'_>, view: &View<'_>) -> Option<Objection> {
    let taken: Vec<_> = view.conflicts.iter().filter(|c| needs(job, c)).collect();
    if !taken.is_empty() {
        return Some(Objection {
            reason: Reason::OwnershipConflict,
            message: conflicts(&taken),
        });
    }
    let (reason, said) = given_up(view.job.status.as_ref()?)?;
    let leaving = view.pods.iter().any(|row| row.terminating);
    leaving.then(|| Objection {
        reason,
        message: said.message.clone(),
    })
}

/// Pods that run have a Secret that is gone: those that are made now, with another, could not talk to them.
pub(super) fn estranged(job: &Job<'_>, view: &View<'_>) -> Option<Objection> {
    let credentials = job.framework.credentials(job.object)?;
    let (identity, caller) = (credentials.made()?, credentials.caller);
    if view.local.secret != SecretState::Gone(identity) || !is_held(view) {
        return None;
    }
    let name = identity.secret_name(job.name);
    let then = match running_caller(job, view) {
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

/// Whether pods run, or are about to, which have the Secret that was there when they were made.
pub(super) fn is_held(view: &View<'_>) -> bool {
    view.pods.iter().any(PodRow::may_run)
}

/// Whether the node of a pod has not begun with it. What it mounts comes first, and without that nothing else.
pub(super) fn is_unmounted(view: &View<'_>) -> bool {
    let waits = |row: &PodRow| row.phase == PodPhase::Pending && row.node.is_some() && row.address.is_none();
    view.pods.iter().any(|row| waits(row) && !row.terminating)
}

/// The pod that runs and starts programs in others. As long as it does, the job may well come to its end.
pub(super) fn running_caller(job: &Job<'_>, view: &View<'_>) -> Option<String> {
    let caller = job.framework.credentials(job.object)?.caller;
    let (position, role) = job.role(caller)?;
    let runs = |row: &&PodRow| {
        let is_it = job.key(&row.name).is_some_and(|key| key.role == position);
        let runs = matches!(row.phase, PodPhase::Running | PodPhase::Unknown) && !row.terminating;
        is_it && runs && restart::end(row, view.node(row), role.node_down_policy).is_none()
    };
    view.pods.iter().find(runs).map(|row| row.name.to_string())
}

/// What the job's pods can't be made without and this operator does not have.
pub(super) fn unsupported(job: &Job<'_>, view: &View<'_>) -> Option<Objection> {
    let attached = |role| {
        let pod = PodKey { role, index: 0 };
        job.framework.remote_shell(job, view.settings, pod).is_some()
    };
    let attached = (0..job.roles.len()).any(attached);
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
    (attached && view.settings.agent.is_none()).then(|| Objection {
        reason: Reason::Unsupported,
        message: format!(
            "{} needs the agent in its pods, and this operator has none to put there: install it without --no-agent, or start \
             it with --agent-image. The job goes on by itself when there is one.",
            job.framework.name()
        ),
    })
}

/// Whether the job needs a name that is taken. While it was suspended it may have been changed so that it does not.
fn needs(job: &Job<'_>, conflict: &Conflict) -> bool {
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
            .any(|key| build::service_name(job.name, key) == *name),
        _ => job.key(name).is_some(),
    }
}

fn conflicts(taken: &[&Conflict]) -> String {
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
