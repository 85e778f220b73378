//! A strict check of an object against the schema of its definition, as the API server does it for
//! `kubectl apply`: fields that do not exist, values of the wrong type, missing and doubled ones.
//!
//! The embedded API server has a check of its own, with the messages of a Kubernetes API server.
//! This one is for authors of manifests: it says what to do, tells unreadable values from values
//! that are out of bounds, and guesses typos. `agreement.rs` tests that both refuse the same.

use std::collections::BTreeSet;

use serde_json::{Map, Value};
use trainyard_api::FieldError;

#[derive(Default)]
pub struct Findings {
    /// Errors that keep an object from being read, or that would lose something: unknown fields,
    /// wrong types, missing values.
    pub shape: Vec<FieldError>,
    /// Values that can be read and are out of bounds.
    pub bounds: Vec<FieldError>,
}

pub fn check(schema: &Value, value: &Value, path: &str, findings: &mut Findings) {
    match value {
        Value::Null => {
            if !has_flag(schema, "nullable") {
                findings
                    .shape
                    .push(FieldError::new(path, "is empty: give it a value, or remove it"));
            }
            return;
        }
        _ if !type_fits(schema, value) => {
            let wanted = schema
                .get("type")
                .and_then(Value::as_str)
                .unwrap_or("integer or string");
            let message = match beyond_integers(wanted, value) {
                Some(which) => format!("is too {which} for a number of this field"),
                None => format!(
                    "must be of type {wanted}, not {}{}",
                    type_name(value),
                    quoting_hint(wanted, value)
                ),
            };
            findings.shape.push(FieldError::new(path, message));
            return;
        }
        Value::Object(object) => check_object(schema, object, path, findings),
        Value::Array(items) => check_list(schema, items, path, findings),
        Value::String(text) => bound(
            schema,
            ["minLength", "maxLength"],
            text.chars().count(),
            "characters",
            path,
            findings,
        ),
        Value::Number(number) => {
            check_number(schema, number.as_f64(), in_range(schema, value), path, findings);
        }
        Value::Bool(_) => {}
    }
    check_enum(schema, value, path, findings);
}

fn check_object(schema: &Value, object: &Map<String, Value>, path: &str, findings: &mut Findings) {
    let properties = schema.get("properties").and_then(Value::as_object);
    let others = schema.get("additionalProperties");
    for (name, value) in object {
        let at = join(path, name);
        if value.is_null() && required(schema).any(|required| required == name) {
            findings
                .shape
                .push(FieldError::new(at, "is empty: it must be given"));
        } else if let Some(property) = properties.and_then(|properties| properties.get(name)) {
            check(property, value, &at, findings);
        } else if let Some(others) = others.filter(|others| others.is_object()) {
            check(others, value, &format!("{path}[{name}]"), findings);
        } else if properties.is_some() && !has_flag(schema, "x-kubernetes-preserve-unknown-fields") {
            let known = properties.into_iter().flat_map(Map::keys);
            findings.shape.push(FieldError::new(at, unknown(name, known)));
        }
    }
    for required in required(schema).filter(|name| !object.contains_key(*name)) {
        findings.shape.push(FieldError::new(
            join(path, required),
            "is missing: it must be given",
        ));
    }
}

fn check_list(schema: &Value, items: &[Value], path: &str, findings: &mut Findings) {
    bound(
        schema,
        ["minItems", "maxItems"],
        items.len(),
        "items",
        path,
        findings,
    );
    let Some(item_schema) = schema.get("items") else {
        return;
    };
    for (i, item) in items.iter().enumerate() {
        check(item_schema, item, &format!("{path}[{i}]"), findings);
    }
    let keys: Vec<&str> = strings(schema, "x-kubernetes-list-map-keys").collect();
    let is_set = schema.get("x-kubernetes-list-type").and_then(Value::as_str) == Some("set");
    let mut seen = BTreeSet::new();
    for (i, item) in items.iter().enumerate() {
        let default = |key: &str| item_schema.pointer(&format!("/properties/{key}/default"));
        let part = |key: &&str| item.get(key).or_else(|| default(key));
        let (id, problem) = if is_set {
            (
                vec![item.to_string()],
                format!("{item} is there already: remove it"),
            )
        } else if item.is_object() && !keys.is_empty() {
            let id = keys
                .iter()
                .map(|key| part(key).map(ToString::to_string).unwrap_or_default());
            let names = keys.join(" and ");
            (
                id.collect(),
                format!("there is an item with the same {names} already"),
            )
        } else {
            continue;
        };
        if !seen.insert(id) {
            findings
                .bounds
                .push(FieldError::new(format!("{path}[{i}]"), problem));
        }
    }
}

fn check_number(schema: &Value, number: Option<f64>, readable: bool, path: &str, findings: &mut Findings) {
    let Some(number) = number else { return };
    let limit = |name: &str, otherwise: i32| {
        let limit = schema.get(name).and_then(Value::as_f64);
        limit.or((!readable).then_some(f64::from(otherwise)))
    };
    let least = limit("minimum", i32::MIN).filter(|least| number < *least);
    let most = limit("maximum", i32::MAX).filter(|most| number > *most);
    let least = least.map(|least| format!("{number} is too small: give at least {least}"));
    let most = most.map(|most| format!("{number} is too large: give at most {most}"));
    let list = if readable {
        &mut findings.bounds
    } else {
        &mut findings.shape
    };
    list.extend(least.or(most).map(|message| FieldError::new(path, message)));
}

fn bound(
    schema: &Value,
    [min, max]: [&str; 2],
    size: usize,
    unit: &str,
    path: &str,
    findings: &mut Findings,
) {
    let limit = |name: &str| {
        schema
            .get(name)
            .and_then(Value::as_u64)
            .and_then(|limit| usize::try_from(limit).ok())
    };
    if let Some(least) = limit(min).filter(|least| size < *least) {
        findings.bounds.push(FieldError::new(
            path,
            format!("has {size} {unit}: give at least {least}"),
        ));
    }
    if let Some(most) = limit(max).filter(|most| size > *most) {
        findings.bounds.push(FieldError::new(
            path,
            format!("has {size} {unit}: at most {most} are possible"),
        ));
    }
}

fn check_enum(schema: &Value, value: &Value, path: &str, findings: &mut Findings) {
    let Some(allowed) = schema.get("enum").and_then(Value::as_array) else {
        return;
    };
    if !allowed.contains(value) {
        let words: Vec<&str> = allowed.iter().filter_map(Value::as_str).collect();
        findings.shape.push(FieldError::new(
            path,
            format!("{value} is not possible: give one of {}", words.join(", ")),
        ));
    }
}

/// Whether a value has the type of its schema, its members aside.
pub fn fits(schema: &Value, value: &Value) -> bool {
    let allowed = schema.get("enum").and_then(Value::as_array);
    type_fits(schema, value)
        && in_range(schema, value)
        && allowed.is_none_or(|allowed| allowed.contains(value))
}

/// Whether an integer fits into the format of its schema.
fn in_range(schema: &Value, value: &Value) -> bool {
    let narrow = schema.get("format").and_then(Value::as_str) == Some("int32");
    match (value.as_i64(), value.is_u64()) {
        (Some(number), _) => !narrow || i32::try_from(number).is_ok(),
        (None, too_large) => !too_large,
    }
}

fn type_fits(schema: &Value, value: &Value) -> bool {
    if has_flag(schema, "x-kubernetes-int-or-string") {
        return value.is_string() || value.is_i64() || value.is_u64();
    }
    match schema.get("type").and_then(Value::as_str) {
        Some("object") => value.is_object(),
        Some("array") => value.is_array(),
        Some("string") => value.is_string(),
        Some("boolean") => value.is_boolean(),
        Some("integer") => value.is_i64() || value.is_u64(),
        Some("number") => value.is_number(),
        _ => true,
    }
}

fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// Whether a whole number has too many digits for any integer. Such a one is read as a number with
/// a fraction.
fn beyond_integers(wanted: &str, value: &Value) -> Option<&'static str> {
    let number = value.as_f64().filter(|_| wanted == "integer")?;
    let is_beyond = number.fract() == 0.0 && number.abs() >= 2f64.powi(63);
    is_beyond.then_some(if number < 0.0 { "small" } else { "large" })
}

/// Values that YAML reads as numbers or booleans are often meant as text, above all in `env`. The
/// original spelling is lost, so the hint can't quote it.
fn quoting_hint(wanted: &str, value: &Value) -> &'static str {
    if wanted == "string" && (value.is_number() || value.is_boolean()) {
        ": put it in quotes"
    } else {
        ""
    }
}

/// The message for a field that does not exist.
pub fn unknown<'a>(name: &str, known: impl Iterator<Item = &'a String>) -> String {
    let score = |candidate: &str| strsim::jaro_winkler(&name.to_lowercase(), &candidate.to_lowercase());
    let best = known
        .map(|candidate| (score(candidate), candidate))
        .max_by(|a, b| a.0.total_cmp(&b.0));
    match best {
        Some((score, candidate)) if score > 0.85 => {
            format!("there is no field {name:?} here: did you mean {candidate:?}?")
        }
        _ => format!("there is no field {name:?} here: remove it"),
    }
}

fn has_flag(schema: &Value, flag: &str) -> bool {
    schema.get(flag).and_then(Value::as_bool) == Some(true)
}

pub fn required(schema: &Value) -> impl Iterator<Item = &str> {
    strings(schema, "required")
}

fn strings<'a>(schema: &'a Value, list: &str) -> impl Iterator<Item = &'a str> {
    schema
        .get(list)
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
}

fn join(path: &str, name: &str) -> String {
    if path.is_empty() {
        name.to_owned()
    } else {
        format!("{path}.{name}")
    }
}
