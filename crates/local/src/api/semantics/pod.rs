//! Pods: defaults, immutable fields, and grace periods.

mod account;
pub(crate) mod binding;
mod change;
mod check;
mod defaults;
pub(crate) mod eviction;

use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};

use crate::api::Shared;
use crate::api::error::{FieldError, StatusError};
use crate::api::meta;
use crate::api::rules::{Rules, Source, restore_all_but, through};
use crate::api::status;
use crate::api::store::Object;

/// The rules of pods.
pub(crate) struct Pods;

impl Rules for Pods {
    fn shape(&self, source: Source<'_>) -> Result<Object, String> {
        let mut pod = through::<Pod>(source)?;
        let conditions = pod
            .get_mut("status")
            .and_then(|status| status.get_mut("conditions")?.as_array_mut());
        for condition in conditions.into_iter().flatten().filter_map(Value::as_object_mut) {
            // Always written, as null.
            for name in ["lastProbeTime", "lastTransitionTime"] {
                condition.entry(name).or_insert(Value::Null);
            }
        }
        Ok(pod)
    }

    fn default(&self, object: &mut Object) {
        defaults::fill(object);
    }

    fn prepare(&self, object: &mut Object, shared: &Shared) -> Result<(), StatusError> {
        account::admit(object, shared)?;
        admit_priority(object, shared)?;
        defaults::tolerate(object);
        let class = defaults::quality(object);
        let mut status = json!({"phase": "Pending", "qosClass": class});
        if gated(object) {
            status["conditions"] = json!([{
                "type": "PodScheduled", "status": "False", "reason": "SchedulingGated",
                "message": "Scheduling is blocked due to non-empty scheduling gates",
                "lastProbeTime": null, "lastTransitionTime": null,
            }]);
        }
        object.insert("status".into(), status);
        Ok(())
    }

    fn check(&self, object: &Object) -> Vec<FieldError> {
        check::spec(object)
    }

    fn check_change(&self, new: &Object, old: &Object) -> Vec<FieldError> {
        change::check(new, old)
    }

    fn change_status(&self, new: &mut Object, old: &Object) {
        restore_all_but(new, old, &["metadata", "status"]);
        let owners = old
            .get("metadata")
            .and_then(|metadata| metadata.get("ownerReferences"))
            .cloned();
        let metadata = meta::metadata(new);
        match owners {
            Some(owners) => metadata.insert("ownerReferences".into(), owners),
            None => metadata.remove("ownerReferences"),
        };
        let class = old
            .get("status")
            .and_then(|status| status.get("qosClass"))
            .cloned();
        let status = meta::member(new, "status");
        if let Some(class) = class {
            status.entry("qosClass").or_insert(class);
        }
    }

    fn check_status(&self, new: &Object, old: &Object) -> Vec<FieldError> {
        change::check_status(new, old)
    }

    fn grace(&self, object: &Object, wanted: Option<i64>) -> Option<i64> {
        let spec = object.get("spec");
        let phase = object
            .get("status")
            .and_then(|status| status.get("phase")?.as_str());
        let node = spec
            .and_then(|spec| spec.get("nodeName")?.as_str())
            .unwrap_or_default();
        if node.is_empty() || matches!(phase, Some("Succeeded" | "Failed")) {
            return Some(0);
        }
        let own = || spec.and_then(|spec| spec.get("terminationGracePeriodSeconds")?.as_i64());
        let seconds = wanted.or_else(own).unwrap_or(0);
        Some(if seconds < 0 { 1 } else { seconds })
    }

    fn selectable(&self) -> &'static [&'static str] {
        &[
            "spec.nodeName",
            "spec.restartPolicy",
            "spec.schedulerName",
            "spec.serviceAccountName",
            "spec.hostNetwork",
            "status.phase",
            "status.podIP",
            "status.nominatedNodeName",
        ]
    }
}

fn gated(object: &Object) -> bool {
    let gates = object
        .get("spec")
        .and_then(|spec| spec.get("schedulingGates")?.as_array());
    gates.is_some_and(|gates| !gates.is_empty())
}

/// Sets the priority of the pod's class.
fn admit_priority(object: &mut Object, shared: &Shared) -> Result<(), StatusError> {
    let pod = meta::text(object, "name").to_owned();
    let spec = meta::member(object, "spec");
    let (Some(classes), Some(pods)) = (
        shared.kinds.get("scheduling.k8s.io/v1", "priorityclasses"),
        shared.kinds.get("v1", "pods"),
    ) else {
        return Ok(());
    };
    let name = spec
        .get("priorityClassName")
        .and_then(Value::as_str)
        .unwrap_or_default();
    let class = if name.is_empty() {
        let all = shared
            .store
            .list(classes.table, "", None, None)
            .map(|page| page.objects);
        let all = all.unwrap_or_default();
        all.iter()
            .find(|class| class.head.field("globalDefault") == Some("true"))
            .map(|class| class.object())
    } else {
        let Some(class) = shared.store.get(classes.table, name) else {
            let why = format!("no PriorityClass with name {name} was found");
            return Err(status::forbidden(&pods, &pod, &why));
        };
        Some(class.object())
    };
    let of_class = |name: &str| class.as_ref().and_then(|class| class.get(name).cloned());
    if let Some(class) = &class {
        spec.insert("priorityClassName".into(), meta::text(class, "name").into());
    }
    spec.insert("priority".into(), of_class("value").unwrap_or_else(|| 0.into()));
    let preemption = of_class("preemptionPolicy").unwrap_or_else(|| "PreemptLowerPriority".into());
    spec.entry("preemptionPolicy").or_insert(preemption);
    Ok(())
}
