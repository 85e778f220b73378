//! The children that a job should have now: Services, its Secret, its exec right, pods.

use trainyard_api::TrainingJobStatus;

use super::restarts::count;
use super::{Objection, Plan, dependent, refused, roll};
use crate::assess::Assessment;
use crate::build;
use crate::exec;
use crate::job::Job;
use crate::local_state::SecretState;
use crate::model::{Action, PodKey};
use crate::status::given_up;
use crate::view::View;

/// Plans the children of a job that goes on. With an objection none is made and no pod is replaced;
/// what has ended is counted all the same.
pub(super) fn plan(
    job: &Job<'_>,
    view: &View<'_>,
    seen: &mut Assessment<'_>,
    status: &mut TrainingJobStatus,
    objection: Option<&Objection>,
    plan: &mut Plan,
) {
    let services = missing_services(job, view);
    let lacks_services = !services.is_empty();
    plan.at_once = services;
    plan.at_once.append(&mut seen.actions);
    remove_surplus(job, view, plan);
    count(job, view, seen, status, objection.is_some(), plan);
    dependent::hold_back(job, view, seen, status, plan);
    plan.when_overdue = dependent::unreached(job, view, seen, status);
    if objection.is_some() {
        withhold(view, seen, plan);
        return;
    }
    let secret = missing_secret(job, view, plan);
    let grant = missing_grant(job, view, plan);
    if lacks_services || secret.is_some() || grant.is_some() {
        // Without its Services no pod finds another, without its Secret or account none can start,
        // and one of them may turn out to be somebody else's.
        plan.at_once.retain(|action| !is_pod(action));
        plan.after_status.retain(|action| !is_pod(action));
    }
    plan.at_once.extend(secret);
    plan.at_once.extend(grant);
    plan.when_overdue.extend(doubtful_secret(job, view));
}

/// Removes the pods that the roles do not have any more.
fn remove_surplus(job: &Job<'_>, view: &View<'_>, plan: &mut Plan) {
    let removals = roll::removals(job, view);
    if roll::is_resized(job, view) {
        // The status first: if the role grows again, these pods must not be taken for lost ones.
        plan.after_status.extend(removals);
    } else {
        plan.at_once.extend(removals);
    }
}

/// Leaves out all writes but the removal of pods that are given up.
fn withhold(view: &View<'_>, seen: &mut Assessment<'_>, plan: &mut Plan) {
    plan.at_once.clear();
    plan.after_status.clear();
    // The status first: how these pods end must not count.
    let is_written = view.job.status.as_ref().and_then(given_up).is_some();
    let removals = if is_written {
        &mut plan.at_once
    } else {
        &mut plan.after_status
    };
    removals.append(&mut seen.given_up);
}

fn is_pod(action: &Action) -> bool {
    matches!(action, Action::CreatePod(_))
}

/// Sees to the Secret that pods need which are to be created. While there are none to create, nobody asks for it.
fn missing_secret(job: &Job<'_>, view: &View<'_>, plan: &Plan) -> Option<Action> {
    let identity = job.framework.credentials(job.object)?.made()?;
    let needed = plan.at_once.iter().chain(&plan.after_status).any(is_pod);
    (needed && view.local.secret != SecretState::There(identity)).then(|| {
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
    let doubtful = view.local.secret != SecretState::Gone(identity) && refused::is_unmounted(view);
    doubtful.then_some(Action::FindSecret(identity))
}

/// The right that pods need which are to be created, or that was given for other pods than there are to be. Somebody may have
/// deleted it, which concerns only those that are to have it: a stream that is open stays so.
fn missing_grant(job: &Job<'_>, view: &View<'_>, plan: &Plan) -> Option<Action> {
    let (right, extent) = (job.framework.exec(job)?, exec::extent(job)?);
    let mut pods = plan.at_once.iter().chain(&plan.after_status);
    let has_it = |action: &Action| matches!(action, Action::CreatePod(key) if key.role == right.holder);
    let needed = match view.local.granted {
        Some(given) => given != extent || !view.local.grant_is_sure && pods.any(has_it),
        // A leader that is new knows of none. What was given for more pods than are left is not to stay.
        None => pods.any(is_pod) || view.settings.allows_exec && roll::is_resized(job, view),
    };
    needed.then_some(Action::Grant)
}

/// Pods that ran and do not exist.
pub(super) fn missing(job: &Job<'_>, seen: &Assessment<'_>) -> Vec<String> {
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
