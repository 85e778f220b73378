//! A job that its user has suspended: it keeps its status and holds no pods.

use trainyard_api::{CleanPodPolicy, ConditionType, JobPhase, Reason, RolePhase, RoleStatus};

use super::{Action, Objection, Plan, ServiceKey, finished, note, refused};
use crate::build;
use crate::job::Job;
use crate::status::{set_condition, write};
use crate::view::{ServiceRow, View};

/// Whether the job holds no pods, as far as its status says.
pub(super) fn was_suspended(view: &View<'_>) -> bool {
    let phase = view.job.status.as_ref().and_then(|status| status.phase);
    phase == Some(JobPhase::Suspended)
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
    status.phase = Some(JobPhase::Suspended);
    status.start_time = None;
    status.root_cause = None;
    status.accepted_spec.clear();
    status.accepted_rules = None;
    if let Some(restarts) = &mut status.restarts {
        restarts.replacing.clear();
    }
    // Resuming starts afresh: what ran, or was done, before does not count.
    match job {
        Some(job) => {
            status.ready = Some(format!("0/{}", job.total()));
            status.roles = job.roles.iter().map(|role| empty(role.name)).collect();
        }
        None if first => {
            status.ready = None;
            status.roles.clear();
        }
        None => {}
    }
    let message = if view.job.is_suspended() {
        "The job is suspended and holds no pods; set spec.suspend to false to start it."
    } else if is_leaving(view) {
        "The job starts again when the pods of its last run are gone."
    } else {
        "The job starts again when its spec is accepted."
    };
    let refused = objection.and_then(|objection| refused::object(&mut status, objection, view.now));
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
    set_condition(
        &mut status,
        ConditionType::Running,
        false,
        Reason::Suspended,
        message,
        view.now,
    );
    set_condition(
        &mut status,
        ConditionType::Suspended,
        true,
        Reason::Suspended,
        message,
        view.now,
    );
    let pods = if old.is_some() {
        "The job was suspended; its pods are removed."
    } else {
        "The job is suspended."
    };
    Plan {
        status: write(old, status),
        // The status first: a pod that is missing must not be taken for one that was lost.
        after: finished::clean(view, CleanPodPolicy::All)
            .into_iter()
            .filter(|action| match action {
                Action::DeleteService { uid, .. } => {
                    view.services.iter().any(|s| *s.uid == **uid && goes(view, s))
                }
                _ => true,
            })
            .collect(),
        events: first
            .then(|| note(false, Reason::Suspended, pods))
            .into_iter()
            .chain(refused)
            .collect(),
        ..Plan::default()
    }
}

fn empty(role: &str) -> RoleStatus {
    RoleStatus {
        name: role.to_owned(),
        phase: RolePhase::Pending,
        ..RoleStatus::default()
    }
}
