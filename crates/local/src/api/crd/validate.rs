//! Validates an object against its schema.

use serde_json::{Map, Value};

use super::path::Path;
use super::schema::{Format, List, Schema, Type};
use crate::api::error::FieldError;
use crate::api::store::Object;

/// The errors of an object. `old` is its stored version, if there is one.
pub(super) fn validate(schema: &Schema, new: &Object, old: Option<&Object>) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if schema.is_plain() {
        of_object(schema, new, &Path::Root, &mut errors);
    } else {
        structure(schema, &Value::Object(new.clone()), &Path::Root, &mut errors);
    }
    if block(&errors) {
        errors.extend(schema.asks.then(not_asked));
        return errors;
    }
    if schema.asks {
        ask_whole(schema, new, old, &mut errors);
        ask_members(schema, new, old, &Path::Root, &mut errors);
    }
    errors
}

/// Evaluates the CEL rules of a whole object.
fn ask_whole(schema: &Schema, new: &Object, old: Option<&Object>, errors: &mut Vec<FieldError>) {
    if let Some(expressions) = &schema.expressions {
        let (new, old) = (
            Value::Object(new.clone()),
            old.map(|old| Value::Object(old.clone())),
        );
        expressions.validate(&new, old.as_ref(), "", errors);
    }
}

/// Whether the errors keep CEL rules from being evaluated: a wrong shape, or too many items.
fn block(errors: &[FieldError]) -> bool {
    let blocking = [
        "FieldValueRequired",
        "FieldValueTypeInvalid",
        "FieldValueTooLong",
        "FieldValueTooMany",
        "FieldValueNotSupported",
    ];
    errors.iter().any(|error| blocking.contains(&error.reason))
}

fn not_asked() -> FieldError {
    FieldError {
        field: "<nil>".to_owned(),
        reason: "FieldValueInvalid",
        body: "Invalid value: null: some validation rules were not checked because the object was invalid; correct \
               the existing errors to complete validation"
            .to_owned(),
    }
}

/// The errors of a new status. The rest of the object is stored and valid.
pub(super) fn validate_status(schema: &Schema, new: &Object, old: &Object) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let path = Path::Member(&Path::Root, "status");
    let status = (schema.properties.get("status"), new.get("status"));
    if let (Some(schema), Some(status)) = status {
        structure(schema, status, &path, &mut errors);
    }
    if block(&errors) {
        errors.extend(schema.asks.then(not_asked));
        return errors;
    }
    if let (Some(schema), Some(status)) = status {
        ask(schema, status, old.get("status"), &path, &mut errors);
    }
    ask_whole(schema, new, Some(old), &mut errors);
    errors
}

/// Evaluates all CEL rules of a schema.
fn ask(schema: &Schema, value: &Value, old: Option<&Value>, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    if !schema.asks || value.is_null() {
        return;
    }
    if let Some(expressions) = &schema.expressions {
        expressions.validate(value, old, &path.to_string(), errors);
    }
    match value {
        Value::Object(object) => {
            ask_members(schema, object, old.and_then(Value::as_object), path, errors);
        }
        Value::Array(items) => {
            let Some(of_items) = &schema.items else { return };
            for (at, item) in items.iter().enumerate() {
                let path = Path::Item(path, at);
                ask(of_items, item, former(schema, item, old), &path, errors);
            }
        }
        _ => {}
    }
}

fn ask_members(
    schema: &Schema,
    object: &Object,
    old: Option<&Object>,
    path: &Path<'_>,
    errors: &mut Vec<FieldError>,
) {
    for (name, value) in object {
        if let Some(schema) = schema.properties.get(name).or(schema.additional.as_deref()) {
            let old = old.and_then(|old| old.get(name));
            ask(schema, value, old, &Path::Member(path, name), errors);
        }
    }
}

/// The stored version of an item of a list, if items have keys.
fn former<'a>(schema: &Schema, item: &Value, old: Option<&'a Value>) -> Option<&'a Value> {
    let List::Map(keys) = &schema.list else {
        return None;
    };
    let mut all = old.and_then(Value::as_array)?.iter();
    all.find(|old| keys_of(old, keys) == keys_of(item, keys))
}

fn structure(schema: &Schema, value: &Value, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    if value.is_null() && schema.nullable {
        return;
    }
    if let Some(kind) = schema.kind.filter(|kind| !fits(*kind, value)) {
        let given = type_name(value);
        let why = format!("{path} in body must be of type {}: {given:?}", kind.name());
        errors.push(FieldError::wrong_type(path.to_string(), &given.into(), &why));
        return;
    }
    match value {
        Value::Object(object) => of_object(schema, object, path, errors),
        Value::Array(items) => of_list(schema, items, path, errors),
        Value::String(text) => of_text(schema, text, path, errors),
        Value::Number(number) => of_number(schema, number, path, errors),
        Value::Bool(_) | Value::Null => {}
    }
    if !schema.possible.is_empty() && !schema.possible.contains(value) {
        let words: Vec<String> = schema
            .possible
            .iter()
            .map(|one| one.as_str().map_or_else(|| one.to_string(), ToOwned::to_owned))
            .collect();
        errors.push(FieldError::unsupported(
            path.to_string(),
            value,
            words.iter().map(String::as_str),
        ));
    }
    of_branches(schema, value, path, errors);
}

fn of_branches(schema: &Schema, value: &Value, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    let holds = |branch: &Schema| {
        let mut found = Vec::new();
        structure(branch, value, path, &mut found);
        found.is_empty()
    };
    for branch in &schema.all_of {
        structure(branch, value, path, errors);
    }
    let invalid =
        |words: &str| FieldError::invalid(path.to_string(), value, &format!("{path} in body {words}"));
    if !schema.any_of.is_empty() && !schema.any_of.iter().any(holds) {
        errors.push(invalid("must validate at least one schema (anyOf)"));
    }
    if !schema.one_of.is_empty() && schema.one_of.iter().filter(|branch| holds(branch)).count() != 1 {
        errors.push(invalid("must validate one and only one schema (oneOf)"));
    }
    if schema.not.as_deref().is_some_and(holds) {
        errors.push(invalid("must not validate the schema (not)"));
    }
}

fn of_object(schema: &Schema, object: &Map<String, Value>, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    for name in schema.required.iter().filter(|name| !object.contains_key(*name)) {
        errors.push(FieldError::required(Path::Member(path, name).to_string(), ""));
    }
    let count = object.len();
    if let Some(least) = schema
        .bounds
        .min_properties
        .filter(|least| (count as u64) < *least)
    {
        let why = format!("{path} in body should have at least {least} properties");
        errors.push(FieldError::invalid(path.to_string(), &count.into(), &why));
    }
    if let Some(most) = schema.bounds.max_properties.filter(|most| count as u64 > *most) {
        errors.push(FieldError::too_many(path.to_string(), count, most));
    }
    for (name, value) in object {
        if let Some(property) = schema.properties.get(name) {
            structure(property, value, &Path::Member(path, name), errors);
        } else if let Some(additional) = &schema.additional {
            structure(additional, value, &Path::Member(path, name), errors);
        }
    }
    if schema.embedded {
        for name in ["apiVersion", "kind"] {
            if object
                .get(name)
                .and_then(Value::as_str)
                .unwrap_or_default()
                .is_empty()
            {
                errors.push(FieldError::required(
                    Path::Member(path, name).to_string(),
                    "must not be empty",
                ));
            }
        }
    }
}

fn of_list(schema: &Schema, items: &[Value], path: &Path<'_>, errors: &mut Vec<FieldError>) {
    let count = items.len();
    if let Some(least) = schema.bounds.min_items.filter(|least| (count as u64) < *least) {
        let why = format!("{path} in body should have at least {least} items");
        errors.push(FieldError::invalid(path.to_string(), &count.into(), &why));
    }
    if let Some(most) = schema.bounds.max_items.filter(|most| count as u64 > *most) {
        errors.push(FieldError::too_many(path.to_string(), count, most));
        return;
    }
    let mut seen: Vec<Vec<&Value>> = Vec::new();
    for (at, item) in items.iter().enumerate() {
        let path = &Path::Item(path, at);
        let id = match &schema.list {
            List::Atomic => None,
            List::Set => Some(vec![item]),
            List::Map(keys) => Some(keys_of(item, keys)),
        };
        if let Some(items) = &schema.items {
            structure(items, item, path, errors);
        }
        if let Some(id) = id {
            if seen.contains(&id) {
                let shown = match &schema.list {
                    List::Map(keys) => Value::Object(
                        keys.iter()
                            .cloned()
                            .zip(id.iter().map(|value| (*value).clone()))
                            .collect(),
                    ),
                    _ => item.clone(),
                };
                errors.push(FieldError::duplicate(path.to_string(), &shown));
            } else {
                seen.push(id);
            }
        }
    }
}

fn keys_of<'a>(item: &'a Value, keys: &[String]) -> Vec<&'a Value> {
    keys.iter()
        .map(|key| item.get(key).unwrap_or(&Value::Null))
        .collect()
}

fn of_text(schema: &Schema, text: &str, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    let bounds = &schema.bounds;
    let value = || Value::from(text);
    let invalid =
        |why: String| FieldError::invalid(path.to_string(), &value(), &format!("{path} in body {why}"));
    if bounds.min_length.is_some() || bounds.max_length.is_some() {
        let length = text.chars().count() as u64;
        if let Some(least) = bounds.min_length.filter(|least| length < *least) {
            errors.push(invalid(format!("should be at least {least} chars long")));
        }
        if let Some(most) = bounds.max_length.filter(|most| length > *most) {
            errors.push(FieldError::too_long(path.to_string(), most));
        }
    }
    if let Some(pattern) = bounds.pattern.as_ref().filter(|pattern| !pattern.is_match(text)) {
        errors.push(invalid(format!("should match '{}'", pattern.as_str())));
    }
    let (format, right) = match bounds.format {
        Some(Format::DateTime) => ("date-time", text.parse::<jiff::Timestamp>().is_ok()),
        Some(Format::Date) => ("date", text.parse::<jiff::civil::Date>().is_ok()),
        _ => return,
    };
    if !right {
        let why = format!("{path} in body must be of type {format}: {text:?}");
        errors.push(FieldError::wrong_type(path.to_string(), &value(), &why));
    }
}

fn of_number(schema: &Schema, number: &serde_json::Number, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    let bounds = &schema.bounds;
    let value = Value::Number(number.clone());
    let Some(float) = number.as_f64() else { return };
    let mut invalid = |why: String| {
        errors.push(FieldError::invalid(
            path.to_string(),
            &value,
            &format!("{path} in body {why}"),
        ));
    };
    if let Some((least, exclusive)) = bounds.minimum
        && (float < least || exclusive && float <= least)
    {
        let or_equal = if exclusive { "" } else { " or equal to" };
        invalid(format!("should be greater than{or_equal} {least}"));
    }
    if let Some((most, exclusive)) = bounds.maximum
        && (float > most || exclusive && float >= most)
    {
        let or_equal = if exclusive { "" } else { " or equal to" };
        invalid(format!("should be less than{or_equal} {most}"));
    }
    if let Some(factor) = bounds
        .multiple_of
        .filter(|factor| (float / factor).fract() != 0.0)
    {
        invalid(format!("should be a multiple of {factor}"));
    }
    let whole = number.as_i64();
    let outside = match bounds.format {
        Some(Format::Int32) => whole.is_none_or(|whole| i32::try_from(whole).is_err()),
        Some(Format::Int64) => whole.is_none(),
        _ => false,
    };
    if outside && schema.kind == Some(Type::Integer) {
        let format = if bounds.format == Some(Format::Int32) {
            "int32"
        } else {
            "int64"
        };
        invalid(format!("must be of type {format}: {number}"));
    }
}

fn fits(kind: Type, value: &Value) -> bool {
    match kind {
        Type::Object => value.is_object(),
        Type::Array => value.is_array(),
        Type::String => value.is_string(),
        Type::Boolean => value.is_boolean(),
        Type::Number => value.is_number(),
        Type::Integer => is_whole(value),
        Type::IntOrString => value.is_string() || is_whole(value),
    }
}

/// Whether a number is whole, such as `1` or `1.0`.
fn is_whole(value: &Value) -> bool {
    value.is_i64() || value.is_u64() || value.as_f64().is_some_and(|float| float.fract() == 0.0)
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
