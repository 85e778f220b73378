//! The CEL rules of a schema (`x-kubernetes-validations`), compiled once and evaluated for every
//! object.

use std::cell::OnceCell;

use kube::core::cel::{CompiledSchema, ErrorKind, Validator, compile_schema};
use serde_json::{Map, Value};

use crate::api::error::FieldError;

const RULES: &str = "x-kubernetes-validations";

thread_local! {
    /// The functions of CEL. They are costly to create and can't be shared between threads.
    static VALIDATOR: OnceCell<Validator> = const { OnceCell::new() };
}

/// The expressions of one part of a schema.
#[derive(Debug)]
pub(super) struct Expressions {
    compiled: CompiledSchema,
    /// Rules with a fieldPath, and that path.
    fields: Vec<(String, String)>,
}

impl Expressions {
    /// Compiles the rules of one level of a schema; None if it has none.
    pub(super) fn read(schema: &Value) -> Result<Option<Self>, String> {
        let Some(rules) = schema
            .get(RULES)
            .and_then(Value::as_array)
            .filter(|rules| !rules.is_empty())
        else {
            return Ok(None);
        };
        let mut slim = slimmed(schema).unwrap_or_default();
        slim.insert(RULES.into(), rules.clone().into());
        let compiled = compile_schema(&Value::Object(slim));
        if let Some(error) = compiled.compilation_errors().first() {
            return Err(format!("{RULES}: {error}"));
        }
        let fields = rules.iter().filter_map(|rule| {
            let text = |name: &str| rule.get(name).and_then(Value::as_str).map(ToOwned::to_owned);
            Some((text("rule")?, text("fieldPath")?))
        });
        let fields = fields.collect();
        Ok(Some(Self { compiled, fields }))
    }

    /// Evaluates every rule for a value.
    pub(super) fn validate(
        &self,
        value: &Value,
        old: Option<&Value>,
        path: &str,
        errors: &mut Vec<FieldError>,
    ) {
        let result = VALIDATOR.with(|validator| {
            validator
                .get_or_init(Validator::new)
                .validate_compiled(&self.compiled, value, old)
        });
        for error in result.err().into_iter().flatten() {
            let field = self.fields.iter().find(|(rule, _)| *rule == error.rule);
            let field = format!("{path}{}", field.map_or("", |(_, field)| field));
            let detail = match error.kind {
                ErrorKind::ValidationFailure => error.message,
                _ => format!("{} evaluating rule: {}", error.message, error.rule),
            };
            errors.push(failure(field, value, &detail, error.reason.as_deref()));
        }
    }
}

fn failure(field: String, value: &Value, detail: &str, reason: Option<&str>) -> FieldError {
    match reason {
        Some("FieldValueRequired") => FieldError::required(field, detail),
        Some("FieldValueForbidden") => FieldError::forbidden(field, detail),
        Some("FieldValueDuplicate") => FieldError::duplicate(field, value),
        // Whole objects are too long for a message.
        _ if value.is_object() || value.is_array() => FieldError {
            field,
            reason: "FieldValueInvalid",
            body: format!("Invalid value: {detail}"),
        },
        _ => FieldError::invalid(field, value, detail),
    }
}

/// The part of a schema that matters for converting values to CEL: formats that are not plain text,
/// and maps whose keys are data. None if there is nothing, so that most objects need no walk.
fn slimmed(schema: &Value) -> Option<Map<String, Value>> {
    let mut slim = Map::new();
    let format = schema.get("format").and_then(Value::as_str);
    if let Some(format @ ("date-time" | "duration" | "byte")) = format {
        slim.insert("format".into(), format.into());
    }
    if schema.get("x-kubernetes-embedded-resource") == Some(&Value::Bool(true)) {
        slim.insert("x-kubernetes-embedded-resource".into(), true.into());
    }
    let properties = schema
        .get("properties")
        .and_then(Value::as_object)
        .into_iter()
        .flatten();
    let properties =
        properties.filter_map(|(name, property)| Some((name.clone(), slimmed(property)?.into())));
    let properties: Map<String, Value> = properties.collect();
    if !properties.is_empty() {
        slim.insert("properties".into(), properties.into());
    }
    if let Some(items) = schema.get("items").and_then(slimmed) {
        slim.insert("items".into(), items.into());
    }
    match schema.get("additionalProperties") {
        None | Some(Value::Bool(false)) => {}
        Some(additional) => {
            let additional = slimmed(additional).unwrap_or_default();
            slim.insert("additionalProperties".into(), additional.into());
        }
    }
    if slim.is_empty() {
        return None;
    }
    if let Some(kind) = schema.get("type") {
        slim.insert("type".into(), kind.clone());
    }
    Some(slim)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn ask(schema: &Value, value: &Value, old: Option<&Value>) -> Vec<String> {
        let expressions = Expressions::read(schema).unwrap().unwrap();
        let mut errors = Vec::new();
        expressions.validate(value, old, "spec", &mut errors);
        errors.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn expressions_are_asked_of_the_value_and_of_what_it_was() {
        let schema = json!({"type": "object", RULES: [
            {"rule": "self.min <= self.max", "message": "min is above max", "fieldPath": ".min"},
            {"rule": "self.name == oldSelf.name", "message": "the name stays"},
        ], "properties": {
            "labels": {"type": "object", "additionalProperties": {"type": "string"}},
            "inner": {"type": "object", RULES: [{"rule": "false"}]},
        }});
        let value = json!({"min": 1, "max": 2, "name": "a", "inner": {}, "labels": {"a/b": "c"}});
        assert!(
            ask(&schema, &value, Some(&value)).is_empty(),
            "what is said of a part is asked of the part"
        );
        assert!(
            ask(&schema, &value, None).is_empty(),
            "nothing has changed about what is new"
        );
        let wrong = json!({"min": 3, "max": 2, "name": "b"});
        assert_eq!(
            ask(&schema, &wrong, Some(&value)),
            [
                "spec.min: Invalid value: min is above max",
                "spec: Invalid value: the name stays"
            ]
        );
    }

    #[test]
    fn what_is_no_expression_is_refused() {
        let schema = json!({RULES: [{"rule": "self. +"}]});
        assert!(Expressions::read(&schema).is_err());
    }

    #[test]
    fn only_what_is_needed_to_read_values_is_kept() {
        let schema = json!({"type": "object", "properties": {
            "a": {"type": "string"}, "at": {"type": "string", "format": "date-time"},
            "deep": {"type": "object", "properties": {"b": {"type": "integer"}}},
        }});
        let slim = slimmed(&schema).unwrap();
        assert_eq!(
            slim["properties"],
            json!({"at": {"type": "string", "format": "date-time"}})
        );
    }
}
