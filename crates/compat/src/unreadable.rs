//! Says why a field can't be read, in the words of manifests and not in those of a parser.

use serde_json::Value;
use serde_path_to_error::{Path, Segment};

/// The sentence for what stands at the path where reading an object ended.
pub fn explain(object: &Value, path: &Path, error: &serde_json::Error) -> String {
    let problem = error.to_string();
    let Some((_, expected)) = problem.split_once(", expected ") else {
        return format!("can't be read: {problem}");
    };
    let Some(found) = at(object, path) else {
        return format!("can't be read: {problem}");
    };
    if found.is_null() {
        return "is empty: give it a value, or remove it".to_owned();
    }
    if problem.starts_with("unknown variant") {
        let possible: Vec<&str> = expected.split('`').skip(1).step_by(2).collect();
        return format!("{found} is not possible: give one of {}", possible.join(", "));
    }
    let wanted = type_named(expected);
    match found {
        Value::Number(number) if problem.starts_with("invalid value") => {
            let is_negative = number.as_i64().is_some_and(|number| number < 0);
            let (least, most) = limits(expected);
            if is_negative {
                format!("{number} is too small: give at least {least}")
            } else {
                format!("{number} is too large: give at most {most}")
            }
        }
        Value::Number(_) | Value::Bool(_) if wanted == "string" => {
            format!("must be of type string, not {}: put it in quotes", type_of(found))
        }
        _ => format!("must be of type {wanted}, not {}", type_of(found)),
    }
}

fn at<'a>(object: &'a Value, path: &Path) -> Option<&'a Value> {
    path.iter().try_fold(object, |value, segment| match segment {
        Segment::Seq { index } => value.get(index),
        Segment::Map { key } => value.get(key),
        Segment::Enum { .. } | Segment::Unknown => Some(value),
    })
}

/// The least and the greatest number of a type of integers that a parser expects.
fn limits(expected: &str) -> (i64, u64) {
    match expected {
        "i32" => (i32::MIN.into(), i32::MAX.unsigned_abs().into()),
        "u16" => (0, u16::MAX.into()),
        "u32" => (0, u32::MAX.into()),
        "u64" => (0, u64::MAX),
        _ => (i64::MIN, i64::MAX.unsigned_abs()),
    }
}

/// The type of a schema that a parser describes. What it does not name otherwise is a structure.
fn type_named(expected: &str) -> &'static str {
    match expected {
        "a string" => "string",
        "a boolean" => "boolean",
        "a sequence" => "array",
        "f32" | "f64" => "number",
        "i32" | "i64" | "u16" | "u32" | "u64" => "integer",
        _ => "object",
    }
}

fn type_of(value: &Value) -> &'static str {
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
