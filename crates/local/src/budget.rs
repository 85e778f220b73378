//! What a disruption budget allows, as its status says it. The API spends it when pods are evicted,
//! and the disruption controller fills it again.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::policy::v1::PodDisruptionBudgetStatus;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

const ALLOWED: &str = "DisruptionAllowed";
const SYNC_FAILED: &str = "SyncFailed";

/// A pod that was evicted and is not deleted after this long counts again.
pub(crate) const DELETION_TIMEOUT: SignedDuration = SignedDuration::from_secs(120);

/// Writes into the condition of a status whether it allows a disruption.
pub(crate) fn tell(status: &mut PodDisruptionBudgetStatus, now: Timestamp) {
    let (state, reason) = match status.disruptions_allowed.unwrap_or_default() {
        1.. => ("True", "SufficientPods"),
        _ => ("False", "InsufficientPods"),
    };
    set_condition(status, state, reason, String::new(), now);
}

/// Lets a status allow nothing, because it can't be computed.
pub(crate) fn fail_safe(status: &mut PodDisruptionBudgetStatus, why: String, now: Timestamp) {
    status.disruptions_allowed = Some(0);
    set_condition(status, "False", SYNC_FAILED, why, now);
}

/// Why a status can't be computed.
pub(crate) fn failure(status: &PodDisruptionBudgetStatus) -> Option<&str> {
    let mut conditions = status.conditions.iter().flatten();
    let condition = conditions.find(|one| one.type_ == ALLOWED && one.reason == SYNC_FAILED)?;
    Some(&condition.message)
}

fn set_condition(
    status: &mut PodDisruptionBudgetStatus,
    state: &str,
    reason: &str,
    message: String,
    now: Timestamp,
) {
    let conditions = status.conditions.get_or_insert_default();
    let known = conditions.iter().position(|one| one.type_ == ALLOWED);
    let known = known.map(|at| conditions.remove(at));
    let since = known
        .filter(|known| known.status == state)
        .map(|known| known.last_transition_time);
    conditions.push(Condition {
        type_: ALLOWED.to_owned(),
        status: state.to_owned(),
        reason: reason.to_owned(),
        message,
        observed_generation: status.observed_generation,
        last_transition_time: since.unwrap_or(Time(now)),
    });
}
