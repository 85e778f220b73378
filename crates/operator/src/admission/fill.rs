//! Applies a change of a typed object to the JSON that it was read from.

use serde_json::{Map, Value};

/// Applies to `raw` the change from `before` to `after`, both of which were written from the type
/// that `raw` was read as.
///
/// The type does not write everything as it was read: unknown fields are missing, `null` and absent
/// are the same, and there may be empty lists where there were none. None of that is a change, and
/// `raw` keeps it. Where `raw` lacks a value that changes, it gets all of `after`.
pub(super) fn fill(raw: &mut Value, before: &Value, after: &Value) {
    if before == after {
        return;
    }
    match (raw, before, after) {
        (Value::Object(raw), Value::Object(before), Value::Object(after)) => fill_object(raw, before, after),
        (Value::Array(raw), Value::Array(before), Value::Array(after))
            if raw.len() == before.len() && before.len() <= after.len() =>
        {
            for (raw, (before, after)) in raw.iter_mut().zip(before.iter().zip(after)) {
                fill(raw, before, after);
            }
            raw.extend(after.iter().skip(before.len()).cloned());
        }
        (raw, _, after) => raw.clone_from(after),
    }
}

fn fill_object(raw: &mut Map<String, Value>, before: &Map<String, Value>, after: &Map<String, Value>) {
    for (key, after) in after {
        match before.get(key) {
            Some(before) if before == after => {}
            Some(before) => fill(raw.entry(key).or_insert(Value::Null), before, after),
            None => {
                raw.insert(key.clone(), after.clone());
            }
        }
    }
    for key in before.keys().filter(|key| !after.contains_key(*key)) {
        raw.remove(key);
    }
}
