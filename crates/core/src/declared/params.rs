//! Params: what jobs may give, and what they gave.

use std::collections::BTreeMap;

use trainyard_api::FieldError;
use trainyard_api::declaration::{DeclaredParam, ParamType};

use crate::cel::{Type, Value};

/// The longest text that a job may give.
const MAX_TEXT: usize = 1024;

pub(super) fn kind(param: &DeclaredParam) -> Type {
    match param.kind {
        ParamType::String => Type::Text,
        ParamType::Integer => Type::Int,
        ParamType::Boolean => Type::Bool,
    }
}

/// The value of every param for a job. One that is missing or wrong is empty: validation has
/// refused it before.
pub(super) fn values(
    declared: &[(String, DeclaredParam)],
    given: &BTreeMap<String, serde_json::Value>,
) -> Vec<Value> {
    let value = |(name, param): &(String, DeclaredParam)| {
        let value = given.get(name).or(param.default.as_ref());
        let value = value.and_then(|value| read(param, value).ok());
        value.unwrap_or_else(|| match param.kind {
            ParamType::String => Value::text(""),
            ParamType::Integer => Value::Int(0),
            ParamType::Boolean => Value::Bool(false),
        })
    };
    declared.iter().map(value).collect()
}

/// What is wrong with what a job gives.
pub(super) fn check(
    declared: &[(String, DeclaredParam)],
    given: &BTreeMap<String, serde_json::Value>,
) -> Vec<FieldError> {
    let path = |name: &str| format!("spec.framework.params.{name}");
    let mut errors = Vec::new();
    for (name, value) in given {
        let param = declared.iter().find(|(known, _)| known == name);
        let problem = param.map_or_else(|| Some(unknown(declared)), |(_, param)| read(param, value).err());
        errors.extend(problem.map(|problem| FieldError::new(path(name), problem)));
    }
    let missing = declared
        .iter()
        .filter(|(name, param)| param.default.is_none() && !given.contains_key(name));
    errors.extend(missing.map(|(name, param)| {
        let about = param.description.as_deref().map(|about| format!(" ({about})"));
        let about = about.unwrap_or_default();
        FieldError::new(path(name), format!("the framework needs this{about}: give it"))
    }));
    errors
}

fn unknown(declared: &[(String, DeclaredParam)]) -> String {
    let known: Vec<&str> = declared.iter().map(|(known, _)| &**known).collect();
    match &*known {
        [] => "the framework has no params: remove it".to_owned(),
        known => format!("the framework has no such param: use {}", known.join(", ")),
    }
}

/// The value that was given for a param, or what is wrong with it.
pub(super) fn read(param: &DeclaredParam, value: &serde_json::Value) -> Result<Value, String> {
    match (param.kind, value) {
        (ParamType::Boolean, serde_json::Value::Bool(value)) => Ok(Value::Bool(*value)),
        (ParamType::Integer, serde_json::Value::Number(number)) if number.is_i64() => {
            let number = number.as_i64().unwrap_or_default();
            check_range(param, number)?;
            Ok(Value::Int(number))
        }
        (ParamType::String, serde_json::Value::String(text)) => {
            check_text(param, text)?;
            Ok(Value::text(&**text))
        }
        (ParamType::Boolean, other) => Err(format!("{other} is neither true nor false: give one of them")),
        (ParamType::Integer, other) => Err(format!("{} is no whole number: give one", short(other))),
        (ParamType::String, other) => Err(format!("{} is no string: put it in quotes", short(other))),
    }
}

fn short(value: &serde_json::Value) -> String {
    match value {
        serde_json::Value::Array(_) => "a list".to_owned(),
        serde_json::Value::Object(_) => "an object".to_owned(),
        other => {
            let mut text = other.to_string();
            crate::status::truncate(&mut text, 64);
            text
        }
    }
}

fn check_range(param: &DeclaredParam, number: i64) -> Result<(), String> {
    let (least, most) = (param.minimum, param.maximum);
    if least.is_none_or(|least| least <= number) && most.is_none_or(|most| number <= most) {
        return Ok(());
    }
    let range = match (least, most) {
        (Some(least), Some(most)) => format!("a number from {least} to {most}"),
        (Some(least), None) => format!("at least {least}"),
        _ => format!("at most {}", most.unwrap_or_default()),
    };
    Err(format!("{number} is out of range: give {range}"))
}

fn check_text(param: &DeclaredParam, text: &str) -> Result<(), String> {
    if text.len() > MAX_TEXT {
        return Err(format!(
            "the text is longer than {MAX_TEXT} characters: shorten it"
        ));
    }
    if param.one_of.is_empty() || param.one_of.iter().any(|possible| possible == text) {
        return Ok(());
    }
    Err(format!(
        "{text:?} is not possible: use {}",
        param.one_of.join(", ")
    ))
}
