//! The part of the API server's validation that a status could fail.

use std::sync::OnceLock;

use serde_json::Value;
use trainyard_api::{TrainingJobStatus, crd};

/// Panics with all that the API server would reject in a status.
pub fn check_status(status: &TrainingJobStatus) {
    let errors = errors(status);
    assert!(errors.is_empty(), "the API server would reject: {errors:#?}");
}

/// Panics with all that the API server would reject in a status and that was not there before, in
/// whichever place of a list.
pub fn check_written(old: Option<&TrainingJobStatus>, new: &TrainingJobStatus) {
    let before: Vec<String> = old.map(errors).unwrap_or_default();
    let before: Vec<String> = before.iter().map(|error| anywhere(error)).collect();
    let new: Vec<String> = errors(new)
        .into_iter()
        .filter(|error| !before.contains(&anywhere(error)))
        .collect();
    assert!(new.is_empty(), "the API server would reject: {new:#?}");
}

/// An error without the positions in lists that its path has.
fn anywhere(error: &str) -> String {
    let (path, what) = error.split_once(": ").unwrap_or_default();
    let path: String = path.chars().filter(|c| !c.is_ascii_digit()).collect();
    format!("{path}: {what}")
}

fn errors(status: &TrainingJobStatus) -> Vec<String> {
    static SCHEMA: OnceLock<Value> = OnceLock::new();
    let schema = SCHEMA.get_or_init(|| {
        let crd = serde_json::to_value(crd::training_job().unwrap()).unwrap();
        let status = crd.pointer("/spec/versions/0/schema/openAPIV3Schema/properties/status");
        status.expect("the definition has a status").clone()
    });
    let mut errors = Vec::new();
    check(
        schema,
        &serde_json::to_value(status).unwrap(),
        "status",
        &mut errors,
    );
    errors
}

fn check(schema: &Value, value: &Value, path: &str, errors: &mut Vec<String>) {
    let count = |items: usize| f64::from(u32::try_from(items).unwrap());
    let chars = value.as_str().map(|text| count(text.chars().count()));
    let items = value.as_array().map(|items| count(items.len()));
    let sizes = [
        ("minLength", "maxLength", chars),
        ("minItems", "maxItems", items),
        (
            "minProperties",
            "maxProperties",
            value.as_object().map(|all| count(all.len())),
        ),
        ("minimum", "maximum", value.as_f64()),
    ];
    for (least, most, size) in sizes {
        let limit = |name: &str| schema.get(name).and_then(Value::as_f64);
        let Some(size) = size else { continue };
        if let Some(min) = limit(least).filter(|min| size < *min) {
            errors.push(format!("{path}: {least} {min}, is {size}"));
        }
        if let Some(max) = limit(most).filter(|max| size > *max) {
            errors.push(format!("{path}: {most} {max}, is {size}"));
        }
    }
    if let Some(allowed) = schema.get("enum").and_then(Value::as_array)
        && !allowed.contains(value)
    {
        errors.push(format!("{path}: {value} is none of {allowed:?}"));
    }
    if let Some(keys) = schema.get("x-kubernetes-list-map-keys").and_then(Value::as_array) {
        let key = |item: &Value| {
            keys.iter()
                .map(|k| item[k.as_str().unwrap()].clone())
                .collect::<Vec<_>>()
        };
        let items = value.as_array().into_iter().flatten();
        let mut seen = Vec::new();
        for key in items.map(key) {
            if seen.contains(&key) {
                errors.push(format!("{path}: {key:?} is there twice"));
            }
            seen.push(key);
        }
    }
    for (i, item) in value.as_array().into_iter().flatten().enumerate() {
        check(&schema["items"], item, &format!("{path}[{i}]"), errors);
    }
    for (name, field) in value.as_object().into_iter().flatten() {
        let any = schema.get("additionalProperties");
        match schema["properties"].get(name).or(any) {
            Some(property) => check(property, field, &format!("{path}.{name}"), errors),
            None => errors.push(format!("{path}.{name}: unknown field")),
        }
    }
}
