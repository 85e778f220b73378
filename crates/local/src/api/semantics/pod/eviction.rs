//! The eviction subresource of pods.

use k8s_openapi::api::policy::v1::{Eviction, PodDisruptionBudget, PodDisruptionBudgetStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::{Value, json};

use super::binding::set_condition;
use crate::api::error::StatusError;
use crate::api::meta;
use crate::api::selector::Selector;
use crate::api::semantics::delete::Removal;
use crate::api::semantics::{Target, WriteOptions};
use crate::api::status;
use crate::api::store::{Object, Stored};
use crate::budget;

/// More evictions than this are not told to a disruption controller that does not answer.
const MAX_DISRUPTED_PODS: usize = 2000;

/// Deletes a pod, unless a disruption budget forbids it.
pub(crate) fn evict(target: &Target<'_>, name: &str, body: &[u8], dry_run: bool) -> Result<(), StatusError> {
    let eviction: Eviction = serde_json::from_slice(body)
        .map_err(|error| status::bad_request(format!("the body is no Eviction: {error}")))?;
    if eviction
        .metadata
        .name
        .as_deref()
        .is_some_and(|given| given != name)
    {
        return Err(status::bad_request(
            "name in URL does not match name in Eviction object",
        ));
    }
    let mut removal = Removal::new(eviction.delete_options.unwrap_or_default())?;
    removal.dry_run |= dry_run;
    let pod = target.stored(name)?;
    if needs_budget(&pod.object()) {
        spend_budget(target, &pod, removal.dry_run)?;
    }
    if !removal.dry_run {
        tell_of_eviction(target, name, &mut removal)?;
    }
    target.delete(name, &removal).map(drop)
}

/// Returns true unless a pod has not started, has ended or is terminating: nobody misses it then.
fn needs_budget(pod: &Object) -> bool {
    let phase = pod.get("status").and_then(|status| status.get("phase")?.as_str());
    !meta::is_terminating(pod) && !matches!(phase, Some("Succeeded" | "Failed" | "Pending"))
}

/// Sets the condition DisruptionTarget.
fn tell_of_eviction(target: &Target<'_>, name: &str, removal: &mut Removal) -> Result<(), StatusError> {
    let condition = json!({
        "type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI",
        "message": "Eviction API: evicting",
    });
    let now = meta::time(target.shared.environment.now());
    let change = |pod: &mut Object| {
        set_condition(pod, condition.clone(), &now);
        Ok(())
    };
    target.check_preconditions(&*target.stored(name)?, removal)?;
    let told = target.amend(name, change, WriteOptions::default())?;
    // The condition has changed the version of the precondition.
    if removal.version.is_some() {
        removal.version = Some(told.version.to_string());
    }
    Ok(())
}

/// Takes a disruption from the budget of a pod, if there is one and the pod needs it.
fn spend_budget(target: &Target<'_>, pod: &Stored, dry_run: bool) -> Result<(), StatusError> {
    let Some(kind) = target.shared.kinds.get("policy/v1", "poddisruptionbudgets") else {
        return Ok(());
    };
    let all = target.shared.store.list(kind.table, target.namespace, None, None);
    let all = all.map(|page| page.objects).unwrap_or_default();
    let mut matching = all.iter().filter(|budget| {
        let selector = budget
            .object()
            .get("spec")
            .and_then(|spec| spec.get("selector").cloned());
        selector.is_some_and(|selector| Selector::of_labels(&selector).selects(&pod.head))
    });
    let Some(budget) = matching.next() else {
        return Ok(());
    };
    if matching.next().is_some() {
        let why = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.";
        return Err(status::internal(why));
    }
    if !is_ready(&pod.object()) && is_free_to_leave(&read(&budget.object())?) {
        return Ok(());
    }
    let of_budget = Target {
        kind: &kind,
        ..*target
    };
    let now = target.shared.environment.now();
    let change = |object: &mut Object| {
        let known = read(object)?;
        let generation = known.metadata.generation.unwrap_or_default();
        let mut status = known.status.unwrap_or_default();
        spend(&budget.head.name, generation, &mut status)?;
        if status.disruptions_allowed == Some(0) {
            budget::tell(&mut status, now);
        }
        let disrupted = status.disrupted_pods.get_or_insert_default();
        disrupted.insert(pod.head.name.to_string(), Time(now));
        let status = serde_json::to_value(status).map_err(|error| status::internal(error.to_string()))?;
        object.insert("status".into(), status);
        Ok(())
    };
    let options = WriteOptions {
        dry_run,
        strict: false,
    };
    of_budget.amend(&budget.head.name, change, options).map(drop)
}

fn read(budget: &Object) -> Result<PodDisruptionBudget, StatusError> {
    serde_json::from_value(Value::Object(budget.clone())).map_err(|error| status::internal(error.to_string()))
}

fn is_ready(pod: &Object) -> bool {
    let conditions = pod
        .get("status")
        .and_then(|status| status.get("conditions")?.as_array());
    let mut conditions = conditions.into_iter().flatten();
    conditions.any(|one| one["type"] == "Ready" && one["status"] == "True")
}

/// Returns true if pods that are not ready cost this budget nothing.
fn is_free_to_leave(budget: &PodDisruptionBudget) -> bool {
    let policy = budget
        .spec
        .as_ref()
        .and_then(|spec| spec.unhealthy_pod_eviction_policy.as_deref());
    let status = budget.status.clone().unwrap_or_default();
    let [needed, healthy] = [status.desired_healthy, status.current_healthy].map(Option::unwrap_or_default);
    policy == Some("AlwaysAllow") || needed > 0 && healthy >= needed
}

/// Takes one disruption, or says why there is none.
fn spend(name: &str, generation: i64, status: &mut PodDisruptionBudgetStatus) -> Result<(), StatusError> {
    if status.observed_generation.unwrap_or_default() < generation {
        return Err(status::budget_not_ready(name));
    }
    if status
        .disrupted_pods
        .as_ref()
        .is_some_and(|pods| pods.len() > MAX_DISRUPTED_PODS)
    {
        let why = "DisruptedPods map too big - too many evictions not confirmed by PDB controller";
        return Err(status::forbidden_budget(name, why));
    }
    let allowed = status.disruptions_allowed.unwrap_or_default();
    if allowed <= 0 {
        return Err(status::no_disruption_allowed(&why_none(name, status)));
    }
    status.disruptions_allowed = Some(allowed - 1);
    Ok(())
}

/// Why a budget allows no disruption, in the words of Kubernetes.
fn why_none(name: &str, status: &PodDisruptionBudgetStatus) -> String {
    let [needed, healthy] = [status.desired_healthy, status.current_healthy].map(Option::unwrap_or_default);
    match budget::failure(status) {
        Some(why) => format!(
            "The disruption budget {name} does not allow evicting pods currently because it failed sync: {why}"
        ),
        None if healthy <= needed => {
            format!("The disruption budget {name} needs {needed} healthy pods and has {healthy} currently")
        }
        None => format!("The disruption budget {name} does not allow evicting pods currently"),
    }
}
