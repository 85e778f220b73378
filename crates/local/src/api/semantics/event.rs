//! Events: one kind that is served in two groups, with different names for the same fields.

use k8s_openapi::api::core::v1::Event as CoreEvent;
use k8s_openapi::api::events::v1::Event as NewEvent;

use super::expiry;
use crate::api::Shared;
use crate::api::error::FieldError;
use crate::api::meta;
use crate::api::rules::{Rules, Source, through};
use crate::api::store::Object;

/// The names of a field in the core group, where events are stored, and in `events.k8s.io`.
const NAMES: &[(&str, &str)] = &[
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
    ("reportingComponent", "reportingController"),
];

const SELECTABLE: &[&str] = &[
    "involvedObject.kind",
    "involvedObject.namespace",
    "involvedObject.name",
    "involvedObject.uid",
    "involvedObject.apiVersion",
    "involvedObject.resourceVersion",
    "involvedObject.fieldPath",
    "reason",
    "reportingComponent",
    "type",
];

/// The rules of events in the core group.
pub(crate) struct CoreEvents;

impl Rules for CoreEvents {
    fn shape(&self, source: Source<'_>) -> Result<Object, String> {
        let mut event = through::<CoreEvent>(source)?;
        complete(&mut event);
        Ok(event)
    }

    fn check(&self, object: &Object) -> Vec<FieldError> {
        check(object)
    }

    fn after(&self, now: Option<&Object>, shared: &Shared) {
        if let Some(event) = now {
            expiry::written(event, shared);
        }
    }

    fn selectable(&self) -> &'static [&'static str] {
        SELECTABLE
    }
}

/// The rules of events in `events.k8s.io`.
pub(crate) struct NewEvents;

impl Rules for NewEvents {
    fn shape(&self, source: Source<'_>) -> Result<Object, String> {
        through::<NewEvent>(source)
    }

    fn check(&self, object: &Object) -> Vec<FieldError> {
        let mut errors = check(object);
        if !object.contains_key("eventTime")
            && object
                .get("firstTimestamp")
                .is_none_or(serde_json::Value::is_null)
        {
            errors.push(FieldError::required("eventTime", ""));
        }
        for name in ["reportingController", "reportingInstance", "reason", "action"] {
            let stored = NAMES
                .iter()
                .find(|(_, new)| *new == name)
                .map_or(name, |(core, _)| *core);
            let value = object
                .get(stored)
                .and_then(serde_json::Value::as_str)
                .unwrap_or_default();
            if value.is_empty() && object.contains_key("eventTime") {
                errors.push(FieldError::required(name, ""));
            }
        }
        errors
    }

    fn after(&self, now: Option<&Object>, shared: &Shared) {
        if let Some(event) = now {
            expiry::written(event, shared);
        }
    }

    fn selectable(&self) -> &'static [&'static str] {
        SELECTABLE
    }

    fn inward(&self, mut object: Object) -> Object {
        for (core, new) in NAMES {
            if let Some(value) = object.remove(*new) {
                object.insert((*core).to_owned(), value);
            }
        }
        complete(&mut object);
        object.insert("apiVersion".into(), "v1".into());
        object
    }

    fn outward(&self) -> Option<fn(Object) -> Object> {
        Some(|mut object| {
            for (core, new) in NAMES {
                if let Some(value) = object.remove(*core) {
                    object.insert((*new).to_owned(), value);
                }
            }
            object.insert("apiVersion".into(), "events.k8s.io/v1".into());
            object
        })
    }
}

/// Adds the fields that are always written.
fn complete(event: &mut Object) {
    for name in ["involvedObject", "source"] {
        event.entry(name).or_insert_with(|| serde_json::json!({}));
    }
    for name in ["reportingComponent", "reportingInstance"] {
        event.entry(name).or_insert_with(|| "".into());
    }
    for name in ["firstTimestamp", "lastTimestamp"] {
        event.entry(name).or_insert(serde_json::Value::Null);
    }
}

/// An event must be in the namespace of its object.
fn check(object: &Object) -> Vec<FieldError> {
    let about = object
        .get("involvedObject")
        .and_then(|about| about.get("namespace")?.as_str());
    let about = about.unwrap_or_default();
    let namespace = meta::text(object, "namespace");
    let fits = about == namespace || (about.is_empty() && matches!(namespace, "default" | "kube-system"));
    if fits {
        return Vec::new();
    }
    let why = "does not match event.namespace";
    vec![FieldError::invalid(
        "involvedObject.namespace",
        &about.into(),
        why,
    )]
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_event_has_two_faces() {
        let new = json!({"regarding": {"name": "a"}, "note": "n", "reportingController": "c", "metadata": {"name": "e"}});
        let new = new.as_object().unwrap().clone();
        let core = NewEvents.inward(new.clone());
        assert_eq!(
            (&core["involvedObject"]["name"], &core["message"]),
            (&json!("a"), &json!("n"))
        );
        let back = NewEvents.outward().unwrap()(core);
        assert!(
            new.iter().all(|(name, value)| back.get(name) == Some(value)),
            "{back:?}"
        );
    }
}
