//! Plans the disruption budget of a job: it has one while it goes on and the operator sees when a
//! node is about to go.

use std::time::Duration;

use trainyard_api::{Reason, TrainingJobStatus, names};

use super::{Objection, Plan, event};
use crate::disruption_budget;
use crate::job::Job;
use crate::model::{Action, JobEvent};
use crate::view::{BudgetRow, Budgets, View};

/// How often a budget is made anew. A policy of the cluster may change every one that is created.
const REPLACE_INTERVAL: Duration = Duration::from_mins(1);

/// Lets a job have its budget if it should, and no other.
pub(super) fn correct(
    job: &Job<'_>,
    view: &View<'_>,
    status: &TrainingJobStatus,
    objection: Option<&Objection>,
    plan: &mut Plan,
) {
    let Some(budgets) = view.budgets else {
        return;
    };
    let name = names::disruption_budget(job.name);
    let is_wanted = objection.is_none() && frees_nodes(status) && may_have_one(job, view, budgets);
    let wanted = is_wanted.then(|| disruption_budget::spec(job, view.settings));
    let Some(wanted) = wanted.flatten() else {
        plan.at_once.extend(withdrawal(view));
        return;
    };
    let is_right = |row: &BudgetRow| *row.name == *name && disruption_budget::fulfils(&row.spec, &wanted);
    let wrong = deletions(view, budgets, |row| !is_right(row));
    replace(wrong, view, plan);
    // One that is about to be deleted still has the name.
    if budgets.own.is_empty() && !is_taken(budgets, &name) {
        plan.at_once.push(Action::CreateBudget);
    }
}

/// Deletes budgets that are to be made anew, unless one was a moment ago.
fn replace(wrong: Vec<Action>, view: &View<'_>, plan: &mut Plan) {
    let last = view.local.waits.budget_replaced_at;
    let last = last.filter(|at| *at + REPLACE_INTERVAL > view.instant);
    plan.waits.budget_replaced_at = last;
    if wrong.is_empty() {
        return;
    }
    if let Some(at) = last {
        plan.wake_no_later(view.time_of(at + REPLACE_INTERVAL));
    } else {
        plan.waits.budget_replaced_at = Some(view.instant);
        plan.at_once.extend(wrong);
    }
}

/// Takes all its budgets from a job, and one that a former job of its name has left.
pub(super) fn withdrawal(view: &View<'_>) -> Vec<Action> {
    let deleted = view.budgets.map(|budgets| deletions(view, budgets, |_| true));
    deleted.unwrap_or_default()
}

/// Says that a job which begins to run goes without its budget, because somebody else has its name.
pub(super) fn conflict(job: &Job<'_>, view: &View<'_>) -> Option<JobEvent> {
    let budgets = view.budgets?;
    let name = names::disruption_budget(job.name);
    let is_missed = disruption_budget::spec(job, view.settings).is_some()
        && budgets.sees_all
        && !has_foreign(job, view, budgets)
        && is_taken(budgets, &name);
    let message = || {
        format!(
            "PodDisruptionBudget {name:?} exists and is not of this job: its pods may be evicted before they have saved \
             their work. Remove it; the job has its own when the name is free."
        )
    };
    is_missed.then(|| event(true, Reason::OwnershipConflict, message()))
}

/// Returns true if pods leave nodes that are about to go. While all pods of a job start anew none
/// is told to leave, and pods that find no node may make that last for ever.
fn frees_nodes(status: &TrainingJobStatus) -> bool {
    let scaling = status.scaling.as_deref();
    let is_resized = scaling.is_some_and(|scaling| scaling.restarts_all() && !scaling.evades());
    !status.starts_anew() && !is_resized
}

/// An operator that does not see nodes would never free one, and evictions would be refused for
/// ever. Pods of two budgets can't be evicted at all.
fn may_have_one(job: &Job<'_>, view: &View<'_>, budgets: &Budgets) -> bool {
    disruption_budget::may_need(job.object) && budgets.sees_all && !has_foreign(job, view, budgets)
}

fn has_foreign(job: &Job<'_>, view: &View<'_>, budgets: &Budgets) -> bool {
    disruption_budget::overlap(&budgets.foreign, job, view.settings)
}

fn is_taken(budgets: &Budgets, name: &str) -> bool {
    budgets.foreign.iter().any(|row| *row.name == *name)
}

fn deletions(view: &View<'_>, budgets: &Budgets, is_deleted: impl Fn(&BudgetRow) -> bool) -> Vec<Action> {
    let job = view.job.metadata.name.as_deref().unwrap_or_default();
    let left = budgets.foreign.iter();
    let left = left.filter(|row| disruption_budget::is_left_by_namesake(row, job));
    let rows = budgets.own.iter().filter(|row| is_deleted(row)).chain(left);
    let deletion = |row: &BudgetRow| Action::DeleteBudget {
        name: row.name.to_string(),
        uid: row.uid.to_string(),
    };
    rows.filter(|row| !row.terminating).map(deletion).collect()
}
