//! The binding and eviction subresources of pods.

use k8s_openapi::api::core::v1::Binding;
use k8s_openapi::api::policy::v1::Eviction;
use serde_json::{Value, json};

use crate::api::error::{FieldError, StatusError};
use crate::api::meta;
use crate::api::selector::Selector;
use crate::api::semantics::delete::{Removal, Removed};
use crate::api::semantics::{Target, WriteOptions};
use crate::api::status;
use crate::api::store::Object;

/// Binds a pod to a node, once.
pub(crate) fn bind(
    target: &Target<'_>,
    name: &str,
    body: &[u8],
    options: WriteOptions,
) -> Result<(), StatusError> {
    let binding: Binding = serde_json::from_slice(body)
        .map_err(|error| status::bad_request(format!("the body is no Binding: {error}")))?;
    let node = binding.target.name.unwrap_or_default();
    let kind = binding.target.kind.unwrap_or_default();
    let mut errors = Vec::new();
    if !kind.is_empty() && kind != "Node" {
        errors.push(FieldError::unsupported(
            "target.kind",
            &kind.into(),
            ["Node", "<empty>"],
        ));
    }
    if node.is_empty() {
        errors.push(FieldError::required("target.name", ""));
    }
    if !errors.is_empty() {
        return Err(status::invalid_named("Binding", "", "Binding", name, &errors));
    }
    let (uid, annotations) = (
        binding.metadata.uid,
        binding.metadata.annotations.unwrap_or_default(),
    );
    let now = meta::time(target.shared.environment.now());
    let change = |pod: &mut Object| {
        let conflict = |why: &str| Err(status::conflict_named("", "pods/binding", name, why));
        if uid.as_deref().is_some_and(|uid| uid != meta::text(pod, "uid")) {
            let why = format!(
                "Precondition failed: UID in precondition: {}, UID in object meta: {}",
                uid.as_deref().unwrap_or_default(),
                meta::text(pod, "uid")
            );
            return conflict(&why);
        }
        if meta::is_terminating(pod) {
            return conflict(&format!(
                "pod {name} is being deleted, cannot be assigned to a host"
            ));
        }
        if super::gated(pod) {
            return conflict(&format!("pod {name} has non-empty .spec.schedulingGates"));
        }
        let spec = meta::member(pod, "spec");
        let bound = spec.get("nodeName").and_then(Value::as_str).unwrap_or_default();
        if !bound.is_empty() {
            return conflict(&format!("pod {name} is already assigned to node {bound:?}"));
        }
        spec.insert("nodeName".into(), node.clone().into());
        if !annotations.is_empty() {
            let members = meta::member(meta::metadata(pod), "annotations");
            members.extend(
                annotations
                    .iter()
                    .map(|(name, value)| (name.clone(), value.clone().into())),
            );
        }
        set_condition(pod, json!({"type": "PodScheduled", "status": "True"}), &now);
        Ok(())
    };
    target.amend(name, change, options)?;
    Ok(())
}

/// Replaces the condition of a type, or appends it. lastTransitionTime is kept if the status does
/// not change.
fn set_condition(pod: &mut Object, mut condition: Value, now: &str) {
    let status = meta::member(pod, "status");
    let conditions = status.entry("conditions").or_insert_with(|| json!([]));
    let Some(conditions) = conditions.as_array_mut() else {
        return;
    };
    condition["lastProbeTime"] = Value::Null;
    condition["lastTransitionTime"] = now.into();
    match conditions
        .iter_mut()
        .find(|one| one.get("type") == condition.get("type"))
    {
        Some(old) => {
            if old.get("status") == condition.get("status") {
                condition["lastTransitionTime"] = old.get("lastTransitionTime").cloned().unwrap_or_default();
            }
            *old = condition;
        }
        None => conditions.push(condition),
    }
}

/// Deletes a pod, unless a disruption budget forbids it.
pub(crate) fn evict(target: &Target<'_>, name: &str, body: &[u8]) -> Result<(), StatusError> {
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
    let pod = target.stored(name)?;
    let object = pod.object();
    let phase = object
        .get("status")
        .and_then(|status| status.get("phase")?.as_str());
    // A pod that is not running, or is terminating, needs no budget.
    let missed = !meta::is_terminating(&object) && !matches!(phase, Some("Succeeded" | "Failed" | "Pending"));
    if missed {
        spend_budget(target, &pod.head, removal.dry_run)?;
    }
    if !removal.dry_run {
        tell_of_eviction(target, name, &mut removal)?;
    }
    match target.delete(name, &removal)? {
        Removed::Gone(_) | Removed::Going(_) => Ok(()),
    }
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

fn spend_budget(
    target: &Target<'_>,
    pod: &crate::api::store::Head,
    dry_run: bool,
) -> Result<(), StatusError> {
    let Some(budgets) = target.shared.kinds.get("policy/v1", "poddisruptionbudgets") else {
        return Ok(());
    };
    let all = target
        .shared
        .store
        .list(budgets.table, target.namespace, None, None);
    let all = all.map(|page| page.objects).unwrap_or_default();
    let mut matching = all.iter().filter(|budget| {
        let selector = budget
            .object()
            .get("spec")
            .and_then(|spec| spec.get("selector").cloned());
        selector.is_some_and(|selector| Selector::of_labels(&selector).selects(pod))
    });
    let Some(budget) = matching.next() else {
        return Ok(());
    };
    if matching.next().is_some() {
        let why = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.";
        return Err(status::internal(why));
    }
    let name = &*budget.head.name;
    let of_budget = Target {
        kind: &budgets,
        ..*target
    };
    let change = |budget: &mut Object| {
        let status = meta::member(budget, "status");
        let number = |name: &str| status.get(name).and_then(Value::as_i64).unwrap_or(0);
        let (allowed, healthy, needed) = (
            number("disruptionsAllowed"),
            number("currentHealthy"),
            number("desiredHealthy"),
        );
        if allowed <= 0 {
            return Err(status::no_disruption_allowed(name, healthy, needed));
        }
        status.insert("disruptionsAllowed".into(), (allowed - 1).into());
        Ok(())
    };
    of_budget.amend(
        name,
        change,
        WriteOptions {
            dry_run,
            strict: false,
        },
    )?;
    Ok(())
}
