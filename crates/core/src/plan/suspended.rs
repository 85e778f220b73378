//! A job that its user has suspended: it keeps its status and holds no pods.

use trainyard_api::{
    CleanPodPolicy, ConditionType, JobPhase, Reason, RolePhase, RoleStatus, TrainingJobStatus,
};

use super::{Objection, Plan, event, finished, refused};
use crate::build;
use crate::job::{Job, Role};
use crate::model::{Action, ServiceKey};
use crate::status::{set_condition, write};
use crate::view::{PodPhase, ServiceRow, View};

/// Whether the pods that are there do not count any more, as far as the job's status says.
pub(super) fn was_suspended(view: &View<'_>) -> bool {
    let phase = view.job.status.as_ref().and_then(|status| status.phase);
    phase.is_some_and(JobPhase::is_suspended)
}

/// Whether a job that was resumed still has pods, or Services, of its last run. It starts when they are gone: what they still do
/// must not count for the new run, and they may have been made from another template.
pub(super) fn is_leaving(view: &View<'_>) -> bool {
    was_suspended(view) && (!view.pods.is_empty() || view.services.iter().any(|service| goes(view, service)))
}

/// Whether a Service goes with the pods. What it says may be changed while the job is suspended, and is made anew then;
/// of the one that gives pods their names, nothing can be.
fn goes(view: &View<'_>, service: &ServiceRow) -> bool {
    let job = view.job.metadata.name.as_deref().unwrap_or_default();
    *service.name != *build::service_name(job, ServiceKey::Headless)
}

/// `job` is what is known of it: nothing, where its spec is not valid and never was.
pub(super) fn plan(job: Option<&Job<'_>>, view: &View<'_>, objection: Option<&Objection>) -> Plan {
    let old = view.job.status.as_ref();
    let mut status = old.cloned().unwrap_or_default();
    let first = !was_suspended(view);
    status.observed_generation = view.job.metadata.generation;
    forget_run(&mut status);
    tell_pods(job, view, &mut status);
    let refused = objection.and_then(|objection| refused::reject(&mut status, objection, view.now));
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
    tell_state(view, &mut status);
    let pods = if old.is_some() {
        "The job was suspended; its pods are removed."
    } else {
        "The job is suspended."
    };
    let removals = finished::clean(view, CleanPodPolicy::All).into_iter();
    let removals = removals.filter(|action| match action {
        Action::DeleteService { uid, .. } => view.services.iter().any(|s| *s.uid == **uid && goes(view, s)),
        _ => true,
    });
    // The status first: a pod that is missing must not be taken for one that was lost.
    let (at_once, after_status) = if first {
        (Vec::new(), removals.collect())
    } else {
        (removals.collect(), Vec::new())
    };
    Plan {
        at_once,
        status: write(old, status),
        after_status,
        events: first
            .then(|| event(false, Reason::Suspended, pods))
            .into_iter()
            .chain(refused)
            .collect(),
        ..Plan::default()
    }
}

/// Resuming starts afresh: what ran, or was done, before does not count.
fn forget_run(status: &mut TrainingJobStatus) {
    status.start_time = None;
    status.root_cause = None;
    status.accepted_spec.clear();
    status.accepted_rules = None;
    if let Some(restarts) = &mut status.restarts {
        restarts.replacing.clear();
        restarts.incidents.clear();
    }
}

/// Says which pods are left.
fn tell_pods(job: Option<&Job<'_>>, view: &View<'_>, status: &mut TrainingJobStatus) {
    match job {
        Some(job) => {
            status.roles = left(job, view);
            let ready: i32 = status.roles.iter().map(|role| role.ready).sum();
            status.ready = Some(format!("{ready}/{}", job.total()));
        }
        None if !was_suspended(view) => {
            status.ready = None;
            status.roles.clear();
        }
        // Whose they are is not known any more, but whether there are any is.
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

/// Says that the job is suspended, or about to be: it is when it holds no pods.
fn tell_state(view: &View<'_>, status: &mut TrainingJobStatus) {
    let holds_none = view.pods.is_empty();
    let (phase, reason) = if holds_none {
        (JobPhase::Suspended, Reason::Suspended)
    } else {
        (JobPhase::Suspending, Reason::Suspending)
    };
    let message = if view.job.is_suspended() && holds_none {
        "The job is suspended and holds no pods; set spec.suspend to false to start it."
    } else if view.job.is_suspended() {
        "The job is suspended; its pods are being removed."
    } else if is_leaving(view) {
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
    set_condition(status, ConditionType::Suspended, holds_none, reason, message, now);
}

/// The pods that every role still has. Quota that they hold is free when they are gone, and not before.
fn left(job: &Job<'_>, view: &View<'_>) -> Vec<RoleStatus> {
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
