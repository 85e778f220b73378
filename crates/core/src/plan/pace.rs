//! Decides which parts of a plan are due now: backoffs, overdue writes, and how often a status is
//! written.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use super::Plan;
use crate::model::{Action, Urgency};
use crate::view::View;

/// How often the operator checks whether conflicting objects still exist.
pub const CONFLICT_CHECK_INTERVAL: Duration = Duration::from_secs(30);
/// How long the observer may take to start pods that wait, and kubelets to mount their volumes,
/// before the operator steps in.
pub const OVERDUE_AFTER: Duration = Duration::from_secs(10);
/// How often the operator looks for the Secret that pods seem to wait for. They may as well wait
/// for a volume or a network.
pub const SECRET_CHECK_INTERVAL: Duration = Duration::from_mins(5);
/// A status in which only counters or messages differ is not written more often than this.
pub const STATUS_INTERVAL: Duration = Duration::from_secs(10);
/// How long the first of several successes waits for the others, and for the end of the job, so
/// that all cost one write.
pub const SUCCESS_INTERVAL: Duration = Duration::from_secs(2);
/// How long the first of several pods that leave waits for the others. They usually do so at the
/// same step of the training.
pub const LEAVING_INTERVAL: Duration = Duration::from_secs(1);
/// How long the first status of a job that starts waits for the next one, which tells that the job
/// runs, once nothing is left to create.
pub const STARTING_INTERVAL: Duration = Duration::from_secs(2);
/// How long a job that starts is without a status at most, however long it takes to create its
/// pods: many jobs at once wait for each other.
pub const FIRST_STATUS_TIMEOUT: Duration = Duration::from_secs(10);

/// Removes from a plan what is not due yet, and sets when to plan again.
pub(super) fn pace(plan: &mut Plan, view: &View<'_>) {
    check_conflicts(plan, view);
    if !plan.after_status.is_empty() && !plan.others_leave {
        plan.status.write_now();
    }
    if view.absence_is_confirmed {
        plan.unconfirmed.clear();
    }
    // Overdue writes first: backoffs hold for them, too.
    act_on_overdue(plan, view);
    pace_actions(plan, view);
    pace_status(plan, view);
}

/// Removes the writes that are not due yet.
pub(super) fn pace_actions(plan: &mut Plan, view: &View<'_>) {
    find_moot_backoffs(plan, view);
    drop_backed_off(plan, view);
}

fn check_conflicts(plan: &mut Plan, view: &View<'_>) {
    if view.conflicts.is_empty() {
        return;
    }
    let checked_at = view.local.conflicts_checked_at;
    let due = checked_at.map_or(view.instant, |at| at + CONFLICT_CHECK_INTERVAL);
    plan.checks_conflicts = due <= view.instant;
    if !plan.checks_conflicts {
        plan.wake_no_later(view.time_of(due));
    }
}

/// Finds the backoffs of writes that are not wanted any more, so that such a write starts with a
/// short pause if it is wanted again.
fn find_moot_backoffs(plan: &mut Plan, view: &View<'_>) {
    if view.local.write_backoffs.is_empty() {
        return;
    }
    // A large job may have as many backoffs as pods.
    let wanted: HashSet<&Action> = plan.actions().collect();
    let backoffs = view.local.write_backoffs.actions();
    let moot = backoffs.filter(|action| !wanted.contains(action)).cloned();
    plan.moot_backoffs = moot.collect();
}

/// Removes the writes that are in backoff. All creates share one backoff; every other write has its
/// own.
fn drop_backed_off(plan: &mut Plan, view: &View<'_>) {
    let generation = view.job.metadata.generation;
    let creates = view.local.create_backoff_until(generation, view.instant);
    let others = &view.local.write_backoffs;
    if creates.is_none() && others.is_empty() {
        return;
    }
    let mut next: Option<Instant> = None;
    let mut is_due = |action: &Action| {
        let until = if action.creates() {
            creates
        } else {
            let backoff = others.get(action).map(|backoff| backoff.until);
            backoff.filter(|until| *until > view.instant)
        };
        if let Some(until) = until {
            next = Some(next.map_or(until, |next| next.min(until)));
        }
        until.is_none()
    };
    plan.at_once.retain(&mut is_due);
    plan.after_status.retain(&mut is_due);
    if let Some(next) = next {
        plan.wake_no_later(view.time_of(next));
    }
}

/// Adds the writes for what should have happened by itself, once that is overdue.
fn act_on_overdue(plan: &mut Plan, view: &View<'_>) {
    let finds_secret = |action: &Action| matches!(action, Action::FindSecret(_));
    let next = view.local.secret_checked_at.map(|at| at + SECRET_CHECK_INTERVAL);
    if let Some(next) = next.filter(|next| *next > view.instant && plan.when_overdue.iter().any(finds_secret))
    {
        plan.when_overdue.retain(|action| !finds_secret(action));
        plan.wake_no_later(view.time_of(next));
    }
    if plan.when_overdue.is_empty() {
        return;
    }
    let since = view.local.waits.overdue_since.unwrap_or(view.instant);
    plan.waits.overdue_since = Some(since);
    let due = since + OVERDUE_AFTER;
    if due > view.instant {
        plan.when_overdue.clear();
        plan.wake_no_later(view.time_of(due));
    } else {
        plan.at_once.append(&mut plan.when_overdue);
    }
}

/// When the first status of a job is due that has been starting since then. Creates in backoff are
/// not waited for: they may be refused for ever.
fn starting_status_due(plan: &mut Plan, view: &View<'_>, since: Instant) -> Instant {
    let latest = since + FIRST_STATUS_TIMEOUT;
    let nothing_is_left = !plan.actions().any(Action::creates);
    let created = view.local.waits.created_since;
    let created = created.or(nothing_is_left.then_some(view.instant));
    plan.waits.created_since = created;
    created.map_or(latest, |created| latest.min(created + STARTING_INTERVAL))
}

fn pace_status(plan: &mut Plan, view: &View<'_>) {
    let since = view.local.waits.unwritten_since.unwrap_or(view.instant);
    let due = match plan.status.urgency() {
        None | Some(Urgency::Now) => return,
        Some(Urgency::Succeeding) => since + SUCCESS_INTERVAL,
        Some(Urgency::Leaving) => since + LEAVING_INTERVAL,
        Some(Urgency::Starting) => starting_status_due(plan, view, since),
        Some(Urgency::Paced) => match view.local.status_written_at {
            Some(written_at) => written_at + STATUS_INTERVAL,
            None => return,
        },
    };
    if plan.status.urgency() != Some(Urgency::Paced) {
        plan.waits.unwritten_since = Some(since);
    }
    plan.status_is_early = due > view.instant;
    if plan.status_is_early {
        plan.wake_no_later(view.time_of(due));
    }
}
