//! What is not done at once, because it mostly comes by itself.

use std::time::Duration;

use tokio::time::Instant;
use trainyard_core::model::Action;
use trainyard_core::plan::Plan;

use super::{Progress, Reconciler};
use crate::act::Target;
use crate::index::Memory;

/// How long pods may take to learn from the observer that they may start, or to start at all.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);
/// How often a Secret is looked for that pods may wait for: they may as well wait for a volume, or a network.
const SEEK_INTERVAL: Duration = Duration::from_mins(5);

impl Reconciler {
    /// Does what is late, once it has been late for a while.
    pub(super) fn hurry(
        &self,
        target: Target<'_>,
        memory: Memory,
        plan: &mut Plan,
        progress: &mut Progress,
        now: Instant,
    ) {
        let seeks = |action: &Action| matches!(action, Action::FindSecret(_));
        let next = memory.sought.map(|sought| sought + SEEK_INTERVAL);
        if let Some(next) = next.filter(|next| *next > now && plan.late.iter().any(seeks)) {
            plan.late.retain(|action| !seeks(action));
            progress.at(next);
        }
        let since = (!plan.late.is_empty()).then(|| memory.late.unwrap_or(now));
        if since != memory.late {
            self.index.remember(target.uid, |memory| memory.late = since);
        }
        let Some(due) = since.map(|since| since + PATIENCE) else {
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
