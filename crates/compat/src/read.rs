//! Reads objects of other operators, and notes what it could not use.

use std::borrow::Cow;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_path_to_error::{Path, Segment};
use trainyard_api::FieldError;

use crate::{Purpose, unreadable};

/// How many fields that can't be read are told at once.
const MAX_ERRORS: usize = 16;
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// What was read, and what should be told about it.
pub struct Object<S> {
    pub metadata: ObjectMeta,
    pub spec: S,
    pub notes: Vec<String>,
}

#[derive(Deserialize)]
struct Parts<S> {
    #[serde(default)]
    metadata: Option<ObjectMeta>,
    spec: Option<S>,
}

/// Reads an object with a `spec`.
pub fn object<S: DeserializeOwned + Serialize>(
    object: &Value,
    purpose: Purpose,
) -> Result<Object<S>, Vec<FieldError>> {
    let parts: Parts<S> = parse(object)?;
    let Some(spec) = parts.spec else {
        return Err(vec![FieldError::new("spec", "is missing: it must be given")]);
    };
    let mut notes = Vec::new();
    let read = serde_json::to_value(&spec).unwrap_or_default();
    let mut unread = Vec::new();
    lost(&object["spec"], &read, "spec", &mut unread);
    notes.extend(
        unread
            .into_iter()
            .map(|path| format!("{path}: there is no such field in this kind; it is left out")),
    );
    if purpose == Purpose::Replace {
        notes.extend(left_out(object));
    }
    Ok(Object {
        metadata: metadata(parts.metadata.unwrap_or_default()),
        spec,
        notes,
    })
}

/// Parses an object, or returns all fields that can't be read.
fn parse<S: DeserializeOwned>(object: &Value) -> Result<Parts<S>, Vec<FieldError>> {
    let mut errors = Vec::new();
    // Parsing ends at the first error. Without that field, it ends at the next.
    let mut rest = Cow::Borrowed(object);
    loop {
        let error = match serde_path_to_error::deserialize(&*rest) {
            Ok(parts) if errors.is_empty() => return Ok(parts),
            Ok(_) => return Err(errors),
            Err(error) => error,
        };
        let path = error.path().to_string();
        // What is wrong with the whole is at no field.
        let path = if path == "." { String::new() } else { path };
        let problem = unreadable::explain(&rest, error.path(), error.inner());
        errors.push(FieldError::new(path, problem));
        if errors.len() == MAX_ERRORS || !forget(rest.to_mut(), error.path()) {
            return Err(errors);
        }
    }
}

/// Removes the field at a path: of an item, the whole list, so that others keep their positions.
/// Returns false if there is none.
fn forget(object: &mut Value, path: &Path) -> bool {
    let segments: Vec<&Segment> = path.iter().collect();
    let is_field = |segment: &&Segment| matches!(segment, Segment::Map { .. });
    let Some(last) = segments.iter().rposition(is_field) else {
        return false;
    };
    let (before, field) = segments.split_at(last);
    let parent = before.iter().try_fold(object, |value, segment| match segment {
        Segment::Seq { index } => value.get_mut(index),
        Segment::Map { key } => value.get_mut(key),
        Segment::Enum { .. } | Segment::Unknown => None,
    });
    match (parent, field) {
        (Some(Value::Object(members)), [Segment::Map { key }, ..]) => members.remove(key).is_some(),
        _ => false,
    }
}

/// What makes an object that one and no other. What of it can't be read is as if it were not there:
/// the server wrote it.
pub fn identity(object: &Value) -> ObjectMeta {
    #[derive(Default, Deserialize)]
    #[serde(default, rename_all = "camelCase")]
    struct Identity {
        name: Option<String>,
        namespace: Option<String>,
        uid: Option<String>,
        generation: Option<i64>,
        deletion_timestamp: Option<Time>,
    }
    let metadata = object.get("metadata").map(Identity::deserialize);
    let identity = metadata.and_then(Result::ok).unwrap_or_default();
    ObjectMeta {
        name: identity.name,
        namespace: identity.namespace,
        uid: identity.uid,
        generation: identity.generation,
        deletion_timestamp: identity.deletion_timestamp,
        ..ObjectMeta::default()
    }
}

/// The paths of what was given and is not in what was read.
fn lost(given: &Value, read: &Value, path: &str, paths: &mut Vec<String>) {
    match (given, read) {
        (Value::Object(given), Value::Object(read)) => {
            for (name, value) in given.iter().filter(|(_, value)| !value.is_null()) {
                let path = format!("{path}.{name}");
                match read.get(name) {
                    Some(read) => lost(value, read, &path, paths),
                    None => paths.push(path),
                }
            }
        }
        (Value::Array(given), Value::Array(read)) => {
            for (i, (given, read)) in given.iter().zip(read).enumerate() {
                lost(given, read, &format!("{path}[{i}]"), paths);
            }
        }
        _ => {}
    }
}

/// What the cluster that an object was in has written.
fn left_out(object: &Value) -> Option<String> {
    const KEPT: [&str; 5] = ["annotations", "generateName", "labels", "name", "namespace"];
    let members = object.get("metadata").and_then(Value::as_object);
    let members = members.into_iter().flatten();
    let mut dropped: Vec<String> = members
        .filter(|(name, value)| !KEPT.contains(&name.as_str()) && !value.is_null())
        .map(|(name, _)| format!("metadata.{name}"))
        .collect();
    if object.get("status").is_some_and(|status| !status.is_null()) {
        dropped.push("status".to_owned());
    }
    (!dropped.is_empty()).then(|| {
        format!(
            "{}: written by a cluster, or of no use to another object; left out",
            dropped.join(", ")
        )
    })
}

/// What a user writes into metadata. The rest is of the cluster that the object was in.
fn metadata(given: ObjectMeta) -> ObjectMeta {
    let annotations = given.annotations.map(|mut annotations| {
        annotations.remove(LAST_APPLIED);
        annotations
    });
    ObjectMeta {
        annotations: annotations.filter(|annotations| !annotations.is_empty()),
        generate_name: given.generate_name,
        labels: given.labels,
        name: given.name,
        namespace: given.namespace,
        ..ObjectMeta::default()
    }
}
