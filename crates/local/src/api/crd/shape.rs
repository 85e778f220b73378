//! Pruning of unknown fields, and defaulting.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::Value;

use super::schema::Schema;
use crate::api::rules::{Source, drop_empty, typed};
use crate::api::store::Object;

/// Removes unknown fields.
pub(super) fn prune(schema: &Schema, object: &mut Object) -> Result<(), String> {
    prune_object(schema, object, true)
}

fn prune_object(schema: &Schema, object: &mut Object, whole: bool) -> Result<(), String> {
    let mut unreadable = None;
    object.retain(|name, value| {
        if whole && matches!(name.as_str(), "apiVersion" | "kind") {
            return true;
        }
        if whole && name == "metadata" {
            match typed::<ObjectMeta>(Source::Value(value.take())) {
                Ok(metadata) => {
                    *value = Value::Object(metadata);
                    drop_empty(value);
                }
                Err(why) => unreadable = Some(format!("metadata: {why}")),
            }
            return true;
        }
        let within = schema.properties.get(name).or(schema.additional.as_deref());
        match within {
            Some(within) => {
                if let Err(why) = prune_value(within, value) {
                    unreadable = Some(format!("{name}.{why}"));
                }
                true
            }
            None => schema.preserve,
        }
    });
    unreadable.map_or(Ok(()), Err)
}

fn prune_value(schema: &Schema, value: &mut Value) -> Result<(), String> {
    match value {
        Value::Object(object) => prune_object(schema, object, schema.embedded),
        Value::Array(items) => {
            let Some(schema) = &schema.items else {
                return Ok(());
            };
            items.iter_mut().try_for_each(|item| prune_value(schema, item))
        }
        _ => Ok(()),
    }
}

pub(super) fn default(schema: &Schema, object: &mut Object) {
    // Null is dropped, unless the schema allows it.
    object.retain(|name, value| {
        !value.is_null()
            || schema
                .properties
                .get(name)
                .or(schema.additional.as_deref())
                .is_none_or(|schema| schema.nullable)
    });
    for (name, property) in &schema.properties {
        match object.get_mut(name) {
            Some(value) => default_value(property, value),
            None => {
                if let Some(default) = &property.default {
                    let mut value = default.clone();
                    default_value(property, &mut value);
                    object.insert(name.clone(), value);
                }
            }
        }
    }
    if let Some(additional) = &schema.additional {
        let others = object
            .iter_mut()
            .filter(|(name, _)| !schema.properties.contains_key(*name));
        others.for_each(|(_, value)| default_value(additional, value));
    }
}

fn default_value(schema: &Schema, value: &mut Value) {
    match value {
        Value::Object(object) => default(schema, object),
        Value::Array(items) => {
            if let Some(schema) = &schema.items {
                for item in items {
                    match (&schema.default, &item) {
                        (Some(default), Value::Null) if !schema.nullable => *item = default.clone(),
                        _ => default_value(schema, item),
                    }
                }
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn shaped(object: Value) -> Value {
        let schema = Schema::read(&json!({"type": "object", "properties": {
            "spec": {"type": "object", "default": {}, "properties": {
                "size": {"type": "integer", "default": 3},
                "list": {"type": "array", "items": {"type": "object", "properties": {
                    "a": {"type": "string", "default": "x"}}}},
                "map": {"type": "object", "additionalProperties": {"type": "object", "properties": {"b": {"type": "string"}}}},
                "any": {"type": "object", "x-kubernetes-preserve-unknown-fields": true,
                    "properties": {"known": {"type": "object"}}},
                "maybe": {"type": "string", "nullable": true, "default": "y"},
            }},
        }}))
        .unwrap();
        let Value::Object(mut object) = object else {
            unreachable!()
        };
        prune(&schema, &mut object).unwrap();
        default(&schema, &mut object);
        Value::Object(object)
    }

    #[test]
    fn what_is_not_known_is_left_out() {
        let object = json!({
            "apiVersion": "v", "kind": "K", "metadata": {"name": "n", "nonsense": 1, "finalizers": []}, "other": 1,
            "spec": {"size": 1, "other": 1, "maybe": "z", "list": [{"a": "b", "c": 1}], "map": {"k": {"b": "1", "c": 1}},
                "any": {"known": {"x": 1}, "unknown": {"x": 1}}},
        });
        assert_eq!(
            shaped(object),
            json!({
                "apiVersion": "v", "kind": "K", "metadata": {"name": "n"},
                "spec": {"size": 1, "maybe": "z", "list": [{"a": "b"}], "map": {"k": {"b": "1"}},
                    "any": {"known": {}, "unknown": {"x": 1}}},
            })
        );
    }

    #[test]
    fn what_is_open_is_filled_in() {
        assert_eq!(shaped(json!({})), json!({"spec": {"size": 3, "maybe": "y"}}));
        assert_eq!(
            shaped(json!({"spec": {"size": null, "maybe": null, "list": [{}]}})),
            json!({"spec": {"size": 3, "maybe": null, "list": [{"a": "x"}]}})
        );
    }
}
