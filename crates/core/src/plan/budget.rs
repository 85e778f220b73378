//! Plans the disruption budget of a job: it has one while it goes on and the operator sees when a
//! node is about to go.

use trainyard_api::{Reason, names};

use super::event;
use crate::disruption_budget;
use crate::job::Job;
use crate::model::{Action, JobEvent};
use crate::view::{BudgetRow, Budgets, View};

/// Lets a job have its budget if it should, and no other.
pub(super) fn correction(job: &Job<'_>, view: &View<'_>) -> Vec<Action> {
    let Some(budgets) = view.budgets else {
        return Vec::new();
    };
    let name = names::disruption_budget(job.name);
    let wanted = is_wanted(job, view, budgets).then(|| disruption_budget::spec(job, view.settings));
    let Some(wanted) = wanted.flatten() else {
        return withdrawal(view);
    };
    let is_right = |row: &BudgetRow| *row.name == *name && row.spec == wanted;
    let mut actions = deletions(budgets, |row| !is_right(row));
    // One that is about to be deleted still has the name.
    if budgets.own.is_empty() && !is_taken(budgets, &name) {
        actions.push(Action::CreateBudget);
    }
    actions
}

/// Takes all its budgets from a job.
pub(super) fn withdrawal(view: &View<'_>) -> Vec<Action> {
    let deleted = view.budgets.map(|budgets| deletions(budgets, |_| true));
    deleted.unwrap_or_default()
}

/// Says that a job which begins to run goes without its budget, because somebody else has its name.
pub(super) fn conflict(job: &Job<'_>, view: &View<'_>) -> Option<JobEvent> {
    let budgets = view.budgets?;
    let name = names::disruption_budget(job.name);
    let is_missed = disruption_budget::spec(job, view.settings).is_some()
        && budgets.sees_nodes
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

/// An operator that does not see nodes would never free one, and evictions would be refused for
/// ever. Pods of two budgets can't be evicted at all.
fn is_wanted(job: &Job<'_>, view: &View<'_>, budgets: &Budgets) -> bool {
    disruption_budget::may_need(job.object) && budgets.sees_nodes && !has_foreign(job, view, budgets)
}

fn has_foreign(job: &Job<'_>, view: &View<'_>, budgets: &Budgets) -> bool {
    let mut foreign = budgets.foreign.iter();
    foreign.any(|row| disruption_budget::overlaps(row, job, view.settings))
}

fn is_taken(budgets: &Budgets, name: &str) -> bool {
    budgets.foreign.iter().any(|row| *row.name == *name)
}

fn deletions(budgets: &Budgets, is_deleted: impl Fn(&BudgetRow) -> bool) -> Vec<Action> {
    let rows = budgets.own.iter();
    let rows = rows.filter(|row| !row.terminating && is_deleted(row));
    let deletion = |row: &BudgetRow| Action::DeleteBudget {
        name: row.name.to_string(),
        uid: row.uid.to_string(),
    };
    rows.map(deletion).collect()
}
