//! A job that is not accepted: it is told why, and nothing of it is touched.

use trainyard_api::{ConditionType, FieldError, JobPhase, Reason};

use super::{Plan, note};
use crate::status::{condition, fingerprints, forbidden_changes as compare, set_condition, write};
use crate::view::View;

pub(super) fn plan(view: &View<'_>, reason: Reason, message: String) -> Plan {
    let old = view.job.status.as_ref();
    let mut status = old.cloned().unwrap_or_default();
    status.observed_generation = view.job.metadata.generation;
    status.phase.get_or_insert(JobPhase::Pending);
    let said = condition(&status, ConditionType::Accepted, false)
        .is_some_and(|said| said.reason == reason.as_str() && said.message == message);
    set_condition(
        &mut status,
        ConditionType::Accepted,
        false,
        reason,
        &*message,
        view.now,
    );
    let events = if said {
        Vec::new()
    } else {
        vec![note(true, reason, message)]
    };
    Plan {
        status: write(old, status),
        events,
        ..Plan::default()
    }
}

/// Changes that are possible only while the job is suspended, made where admission did not see them.
pub(super) fn forbidden_changes(view: &View<'_>) -> Vec<FieldError> {
    let Some(status) = &view.job.status else {
        return Vec::new();
    };
    let settled = status.observed_generation == view.job.metadata.generation
        && condition(status, ConditionType::Accepted, true).is_some();
    if settled || view.job.is_suspended() || status.accepted_spec.is_empty() {
        return Vec::new();
    }
    compare(&status.accepted_spec, &fingerprints(view.job))
}

pub(super) fn conflicts(view: &View<'_>) -> String {
    let each = view.conflicts.iter().map(|conflict| {
        format!(
            "{} {:?} exists and is {}",
            conflict.kind, conflict.name, conflict.owner
        )
    });
    let list = each.collect::<Vec<_>>().join("; ");
    format!("{list}. Remove or rename it, or give this job another name; the job goes on by itself then.")
}
