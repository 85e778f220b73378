//! The part of the API server's validation that a status could fail.

use std::sync::OnceLock;

use serde_json::Value;
use trainyard_api::{TrainingJobStatus, crd};

/// Panics with all that the API server would reject in a status.
pub fn check_status(status: &TrainingJobStatus) {
    let errors = errors(status);
    assert!(errors.is_empty(), "the API server would reject: {errors:#?}");
}

/// Panics with all that the API server would reject in a status and that was not there before.
pub fn check_written(old: Option<&TrainingJobStatus>, new: &TrainingJobStatus) {
    let before = old.map(errors).unwrap_or_default();
    let new: Vec<String> = errors(new)
        .into_iter()
        .filter(|error| !before.contains(error))
        .collect();
    assert!(new.is_empty(), "the API server would reject: {new:#?}");
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
    let limit = |name: &str| schema.get(name).and_then(Value::as_f64);
    let mut at_most = |what: &str, size: Option<usize>| {
        if let (Some(max), Some(size)) = (limit(what), size)
            && f64::from(u32::try_from(size).unwrap()) > max
        {
            errors.push(format!("{path}: {what} {max}, is {size}"));
        }
    };
    at_most("maxLength", value.as_str().map(|text| text.chars().count()));
    at_most("maxItems", value.as_array().map(Vec::len));
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
