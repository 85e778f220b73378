//! Removes from an object what can't be read, so that the rest can be validated.
//!
//! What is removed, or replaced by a placeholder, is reported by [`super::schema::check`].

use serde_json::{Map, Value, json};

use super::schema;

/// The object without values that its schema does not allow, and with placeholders for required
/// ones.
pub fn readable(schema: &Value, value: &Value) -> Option<Value> {
    if value.is_null() || !schema::fits(schema, value) {
        return None;
    }
    Some(match value {
        Value::Object(object) => Value::Object(members(schema, object)),
        Value::Array(items) => {
            let item = schema.get("items").unwrap_or(&Value::Null);
            // Items keep their positions, which are in the paths of errors.
            let items = items
                .iter()
                .map(|value| readable(item, value).unwrap_or_else(|| placeholder(item)));
            Value::Array(items.collect())
        }
        scalar => scalar.clone(),
    })
}

fn members(schema: &Value, object: &Map<String, Value>) -> Map<String, Value> {
    let properties = schema.get("properties").and_then(Value::as_object);
    let property = |name: &str| {
        let known = properties.and_then(|properties| properties.get(name));
        known.or_else(|| schema.get("additionalProperties"))
    };
    let read = object.iter().filter_map(|(name, value)| {
        let value = property(name).map_or_else(|| Some(value.clone()), |schema| readable(schema, value));
        Some((name.clone(), value?))
    });
    let mut members: Map<String, Value> = read.collect();
    for name in schema::required(schema) {
        if !members.contains_key(name) {
            let value = placeholder(property(name).unwrap_or(&Value::Null));
            members.insert(name.to_owned(), value);
        }
    }
    members
}

/// A neutral value that the schema allows.
fn placeholder(schema: &Value) -> Value {
    let first = schema.pointer("/enum/0").cloned();
    first.unwrap_or_else(|| match schema.get("type").and_then(Value::as_str) {
        Some("object") => Value::Object(members(schema, &Map::new())),
        Some("array") => json!([]),
        Some("boolean") => json!(false),
        Some("integer" | "number") => json!(0),
        _ => json!(""),
    })
}
