//! Plans the children that a job should have now: Services, its Secret, pods.

use std::cmp::Reverse;

use trainyard_api::TrainingJobStatus;

use super::restarts::count;
use super::{Objection, Plan, dependent, exec_right, objections};
use crate::assess::{Assessment, pod_deletion};
use crate::build;
use crate::job::Job;
use crate::local_state::SecretState;
use crate::model::{Action, PodKey};
use crate::scaling;
use crate::status::given_up;
use crate::view::{PodRow, View};

/// Plans the children of a job that goes on. If there is an objection, nothing is created and no
/// pod is replaced, but ends are counted all the same.
pub(super) fn plan(
    job: &Job<'_>,
    view: &View<'_>,
    assessment: &mut Assessment<'_>,
    status: &mut TrainingJobStatus,
    objection: Option<&Objection>,
    plan: &mut Plan,
) {
    let services = missing_services(job, view);
    let lacks_services = !services.is_empty();
    plan.at_once = services;
    plan.at_once.append(&mut assessment.actions);
    delete_surplus(job, view, plan);
    count(job, view, assessment, status, objection.is_some(), plan);
    dependent::drop_waiting(job, view, assessment, status, plan);
    plan.when_overdue = dependent::unreached(job, view, assessment, status);
    if objection.is_some() {
        withhold(view, assessment, plan);
        plan.at_once.extend(exec_right::correction(job, view, objection));
        return;
    }
    let secret = missing_secret(job, view, plan);
    let right = exec_right::missing(job, view, plan);
    if lacks_services || secret.is_some() || right.is_some() {
        // Without the Services pods can't find each other; without the Secret or the account they
        // can't start; and one of these names may turn out to be somebody else's.
        plan.at_once.retain(|action| !is_pod(action));
        plan.after_status.retain(|action| !is_pod(action));
    }
    plan.at_once.extend(secret);
    plan.at_once
        .extend(right.or_else(|| exec_right::correction(job, view, None)));
    plan.when_overdue.extend(doubtful_secret(job, view));
}

/// Deletes the pods that the roles do not have any more, those with the highest index first.
fn delete_surplus(job: &Job<'_>, view: &View<'_>, plan: &mut Plan) {
    let surplus = view.pods.iter().filter(|row| job.key(&row.name).is_none());
    let mut rows: Vec<&PodRow> = surplus.collect();
    rows.sort_by_key(|row| Reverse((row.name.len(), &*row.name)));
    let deletions = rows
        .into_iter()
        .filter_map(|row| pod_deletion(row, view.node(row)));
    if scaling::is_resized(job, view) {
        // The status is written first: if the role grows again, these pods must not count as lost.
        plan.after_status.extend(deletions);
    } else {
        plan.at_once.extend(deletions);
    }
}

/// Drops all writes but the deletion of pods that are given up.
fn withhold(view: &View<'_>, assessment: &mut Assessment<'_>, plan: &mut Plan) {
    plan.at_once.clear();
    plan.after_status.clear();
    // The status is written first: how these pods end must not count.
    let is_written = view.job.status.as_ref().and_then(given_up).is_some();
    let deletions = if is_written {
        &mut plan.at_once
    } else {
        &mut plan.after_status
    };
    deletions.append(&mut assessment.given_up);
}

fn is_pod(action: &Action) -> bool {
    matches!(action, Action::CreatePod(_))
}

/// Makes sure that the Secret exists before pods are created that need it.
fn missing_secret(job: &Job<'_>, view: &View<'_>, plan: &Plan) -> Option<Action> {
    let identity = job.framework.credentials(job.object)?.made()?;
    let needed = plan.at_once.iter().chain(&plan.after_status).any(is_pod);
    (needed && view.local.secret != SecretState::Exists(identity)).then(|| {
        if objections::has_live_pods(view) {
            // A new Secret would not be the one that the existing pods have.
            Action::FindSecret(identity)
        } else {
            Action::CreateSecret(identity)
        }
    })
}

/// Looks for the Secret if pods were created and do not start: somebody may have deleted it before
/// they mounted it.
fn doubtful_secret(job: &Job<'_>, view: &View<'_>) -> Option<Action> {
    let identity = job.framework.credentials(job.object)?.made()?;
    let doubtful =
        view.local.secret != SecretState::Missing(identity) && objections::has_unmounted_pods(view);
    doubtful.then_some(Action::FindSecret(identity))
}

/// The names of pods that ran and do not exist.
pub(super) fn unconfirmed(job: &Job<'_>, assessment: &Assessment<'_>) -> Vec<String> {
    let retried = assessment.new_restarts.iter().map(|end| end.ended);
    let retried = retried.filter(|ended| ended.row.is_none()).map(|ended| ended.key);
    let roles = assessment.roles.iter().enumerate();
    let lost =
        roles.flat_map(|(role, this)| this.lost.iter().map(move |index| PodKey { role, index: *index }));
    retried.chain(lost).map(|key| job.pod_name(key)).collect()
}

fn missing_services(job: &Job<'_>, view: &View<'_>) -> Vec<Action> {
    let exists = |name: &str| view.services.iter().any(|service| *service.name == *name);
    let keys = build::service_keys(job).into_iter();
    keys.filter(|key| !exists(&build::service_name(job, *key)))
        .map(Action::CreateService)
        .collect()
}
