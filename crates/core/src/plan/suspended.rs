//! Plans a job that its user has suspended: it keeps its status and has no pods.

use trainyard_api::{
    Accepted, CleanPodPolicy, ConditionType, JobPhase, Reason, RolePhase, RoleStatus, TrainingJobStatus,
};

use super::{Objection, Plan, budget, event, exec_right, finished, leave, objections};
use crate::dialect;
use crate::job::{Job, Role};
use crate::model::Action;
use crate::scaling::{self, Resize};
use crate::status::{set_condition, write};
use crate::view::{PodPhase, ServiceRow, View};

/// Returns true if the status says that the job is suspended, so that existing pods do not count.
pub(super) fn was_suspended(view: &View<'_>) -> bool {
    let phase = view.job.status.as_ref().and_then(|status| status.phase);
    phase.is_some_and(JobPhase::is_suspended)
}

/// Returns true if a resumed job still has pods or Services of its last run. It starts when they
/// are deleted: what they still do must not count for the new run, and they may have been created
/// from another template.
pub(super) fn has_leftovers(view: &View<'_>) -> bool {
    was_suspended(view)
        && (!view.pods.is_empty() || view.services.iter().any(|service| is_deleted_too(view, service)))
}

/// Returns true if a Service is deleted together with the pods. Its spec may change while the job
/// is suspended, so it is created again. Only headless Services never change.
fn is_deleted_too(view: &View<'_>, service: &ServiceRow) -> bool {
    !dialect::is_headless(view.job, &service.name)
}

/// Deletes all pods, and the Services that are deleted together with them.
pub(super) fn deletions(view: &View<'_>) -> Vec<Action> {
    let mut all = finished::clean(view, CleanPodPolicy::All);
    all.retain(|action| match action {
        Action::DeleteService { uid, .. } => view
            .services
            .iter()
            .any(|service| *service.uid == **uid && is_deleted_too(view, service)),
        _ => true,
    });
    all
}

/// `job` is `None` if its spec is not valid and never was.
pub(super) fn plan(job: Option<&Job<'_>>, view: &View<'_>, objection: Option<&Objection>) -> Plan {
    let old = view.job.status.as_ref();
    let mut status = old.cloned().unwrap_or_default();
    let first = !was_suspended(view);
    status.observed_generation = view.job.metadata.generation;
    forget_run(&mut status);
    report_pods(job, view, &mut status);
    let rejection = objection.and_then(|objection| objections::reject(&mut status, objection, view.now));
    if objection.is_none() {
        set_condition(
            &mut status,
            ConditionType::Accepted,
            true,
            Reason::Valid,
            "The job is valid.",
            view.now,
        );
    }
    report_phase(view, &mut status);
    let message = if old.is_some() {
        "The job was suspended; its pods are removed."
    } else {
        "The job is suspended."
    };
    let leave = job.and_then(|job| Some((job, scaling::leave_all(job, view)?)));
    let mut plan = Plan {
        events: first
            .then(|| event(false, Reason::Suspended, message))
            .into_iter()
            .collect(),
        ..Plan::default()
    };
    if let Some((job, resize)) = &leave {
        report_leave(job, view, resize, &mut plan);
    }
    if let Some((_, resize)) = leave.filter(|(_, resize)| resize.scaling.is_some()) {
        return wait_for_leave(view, resize, status, plan);
    }
    // The status is written first: otherwise missing pods would count as lost, or be waited for.
    let waited = old.is_some_and(|old| old.scaling.is_some());
    let (mut at_once, after_status) = if first || waited {
        (Vec::new(), deletions(view))
    } else {
        (deletions(view), Vec::new())
    };
    at_once.extend(exec_right::withdrawal(view));
    at_once.extend(budget::withdrawal(view));
    plan.events.extend(rejection);
    Plan {
        at_once,
        status: write(old, status),
        after_status,
        ..plan
    }
}

/// Tells of pods that leave because the job is suspended.
fn report_leave(job: &Job<'_>, view: &View<'_>, resize: &Resize, plan: &mut Plan) {
    let before = view.job.status.as_ref();
    let before = before.and_then(|status| status.scaling.as_deref());
    // Those that were told before for another reason are told anew.
    if let Some(before) = before.filter(|_| was_suspended(view)) {
        leave::report(job, view, before, resize, plan);
    }
}

/// Deletes nothing as long as pods that were told to leave save their work, not even the budget:
/// nobody should evict them meanwhile.
fn wait_for_leave(view: &View<'_>, resize: Resize, mut status: TrainingJobStatus, plan: Plan) -> Plan {
    status.scaling = resize.scaling.map(Box::new);
    let mut plan = Plan {
        status: write(view.job.status.as_ref(), status),
        wake_at: resize.wake_at,
        ..plan
    };
    plan.waits.unacknowledged_since = resize.unacknowledged_since;
    plan
}

/// Resets what the last run left in the status, because a resumed job starts afresh.
fn forget_run(status: &mut TrainingJobStatus) {
    status.start_time = None;
    status.scaling = None;
    status.last_scale_time = None;
    status.target_replicas = None;
    status.retired_indices = None;
    status.replicas = status.replicas.map(|_| 0);
    status.root_cause = None;
    status.accepted = Accepted::default();
    status.accepted_framework = None;
    if let Some(restarts) = &mut status.restarts {
        restarts.replacing.clear();
        restarts.incidents.clear();
        restarts.group = None;
    }
}

/// Writes which pods still exist.
fn report_pods(job: Option<&Job<'_>>, view: &View<'_>, status: &mut TrainingJobStatus) {
    match job {
        Some(job) => {
            status.roles = count_pods(job, view);
            let ready: i32 = status.roles.iter().map(|role| role.ready).sum();
            status.ready = Some(format!("{ready}/{}", job.total()));
        }
        None if !was_suspended(view) => {
            status.ready = None;
            status.roles.clear();
        }
        // Without valid roles, the pods can't be assigned to them. But there are none.
        None if view.pods.is_empty() => {
            for role in &mut status.roles {
                (role.active, role.ready, role.pending, role.terminating) = (0, 0, 0, 0);
            }
            let total = status.ready.as_deref().and_then(|ready| ready.split_once('/'));
            status.ready = total.map(|(_, total)| format!("0/{total}"));
        }
        None => {}
    }
}

/// Writes that the job is suspended, or is being suspended while it still has pods.
fn report_phase(view: &View<'_>, status: &mut TrainingJobStatus) {
    let has_no_pods = view.pods.is_empty();
    let (phase, reason) = if has_no_pods {
        (JobPhase::Suspended, Reason::Suspended)
    } else {
        (JobPhase::Suspending, Reason::Suspending)
    };
    let message = if view.job.is_suspended() && has_no_pods {
        "The job is suspended and holds no pods; set spec.suspend to false to start it."
    } else if view.job.is_suspended() {
        "The job is suspended; its pods are being removed."
    } else if has_leftovers(view) {
        "The job starts again when the pods of its last run are gone."
    } else {
        "The job starts again when its spec is accepted."
    };
    status.phase = Some(phase);
    let now = view.now;
    set_condition(
        status,
        ConditionType::Running,
        false,
        Reason::Suspended,
        message,
        now,
    );
    set_condition(
        status,
        ConditionType::Suspended,
        has_no_pods,
        reason,
        message,
        now,
    );
}

/// Counts the pods that every role still has. Their quota is free only when they are deleted.
fn count_pods(job: &Job<'_>, view: &View<'_>) -> Vec<RoleStatus> {
    let empty = |role: &Role<'_>| RoleStatus {
        name: role.name.to_owned(),
        phase: RolePhase::Pending,
        ..RoleStatus::default()
    };
    let mut roles: Vec<RoleStatus> = job.roles.iter().map(empty).collect();
    for row in view.pods {
        let key = job.key(&row.name);
        let Some(role) = key.and_then(|key| roles.get_mut(key.role)) else {
            continue;
        };
        match row.phase {
            _ if row.terminating => role.terminating += 1,
            PodPhase::Running | PodPhase::Unknown => {
                role.active += 1;
                role.ready += i32::from(row.ready);
            }
            PodPhase::Pending => role.pending += 1,
            PodPhase::Succeeded | PodPhase::Failed => {}
        }
    }
    roles
}
