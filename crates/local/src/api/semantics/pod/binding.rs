//! The binding subresource of pods.

use k8s_openapi::api::core::v1::Binding;
use serde_json::{Value, json};

use crate::api::error::{FieldError, StatusError};
use crate::api::meta;
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
pub(super) fn set_condition(pod: &mut Object, mut condition: Value, now: &str) {
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
