//! Actions that the operator takes only when what should happen by itself is overdue.

use std::time::Duration;

use tokio::time::Instant;
use trainyard_core::model::Action;
use trainyard_core::plan::Plan;

use super::{Reconciler, RoundResult};
use crate::act::Target;
use crate::index::LocalState;

/// How long pods may take to hear from the observer that they may start, or to start at all.
pub(super) const OVERDUE_AFTER: Duration = Duration::from_secs(10);
/// How often the operator looks for the Secret that pods seem to wait for. They may as well wait
/// for a volume or a network.
const SECRET_CHECK_INTERVAL: Duration = Duration::from_mins(5);

impl Reconciler {
    /// Moves overdue actions into the plan once they have been overdue for [`OVERDUE_AFTER`].
    pub(super) fn act_on_overdue(
        &self,
        target: Target<'_>,
        local: LocalState,
        plan: &mut Plan,
        progress: &mut RoundResult,
        now: Instant,
    ) {
        let seeks = |action: &Action| matches!(action, Action::FindSecret(_));
        let next = local
            .secret_checked_at
            .map(|sought| sought + SECRET_CHECK_INTERVAL);
        if let Some(next) = next.filter(|next| *next > now && plan.late.iter().any(seeks)) {
            plan.late.retain(|action| !seeks(action));
            progress.at(next);
        }
        let since = (!plan.late.is_empty()).then(|| local.overdue_since.unwrap_or(now));
        if since != local.overdue_since {
            self.index
                .remember(target.uid, |local| local.overdue_since = since);
        }
        let Some(due) = since.map(|since| since + OVERDUE_AFTER) else {
            return;
        };
        if due > now {
            progress.at(due);
            return;
        }
        let pods = plan.late.iter().filter(|action| !seeks(action)).count();
        if pods > 0 {
            tracing::info!(job = %target.key, pods, "pods wait that may start: they are told so by an annotation");
        }
        plan.actions.append(&mut plan.late);
    }
}
