//! Validates one job: its shape, and the rules for every part of it that can be read.

use anyhow::{Context, Result};
use serde_json::{Value, json};
use trainyard_api::{FieldError, TrainingJob};
use trainyard_compat::{Converted, Refusal};

use super::readable::readable;
use super::schema::{self, Findings};

pub struct Checker {
    schema: Value,
}

impl Checker {
    pub fn new() -> Result<Self> {
        let crd: Value = serde_json::from_str(trainyard_api::crd::TRAINING_JOB)
            .context("cannot read the definition of TrainingJob")?;
        let schema = crd.pointer("/spec/versions/0/schema/openAPIV3Schema");
        let mut schema = schema
            .cloned()
            .context("the definition of TrainingJob has no schema")?;
        // The definition does not describe the fields that every object has.
        for field in ["apiVersion", "kind"] {
            schema["properties"][field] = json!({"type": "string"});
        }
        schema["properties"]["metadata"] = metadata();
        Ok(Self { schema })
    }

    pub fn schema(&self) -> &Value {
        &self.schema
    }

    pub fn check(&self, object: &Value) -> Vec<FieldError> {
        let mut findings = Findings::default();
        schema::check(&self.schema, object, "", &mut findings);
        let Findings {
            shape: mut errors,
            bounds,
        } = findings;
        // An error of shape must not hide errors elsewhere.
        let readable = readable(&self.schema, object).unwrap_or_default();
        let rules = match serde_json::from_value::<TrainingJob>(readable) {
            Ok(job) => rules(job),
            // It can't be read because of its shape, which is reported.
            Err(_) if !errors.is_empty() => Vec::new(),
            Err(error) => vec![FieldError::new(
                "",
                format!("cannot be read as a TrainingJob: {error}"),
            )],
        };
        // The message of a rule is better than that of a bound for the same field.
        let has_rule = |bound: &FieldError| rules.iter().any(|rule| is_within(&rule.path, &bound.path));
        errors.extend(bounds.into_iter().filter(|bound| !has_rule(bound)));
        // The rules see a placeholder for a field that is missing or can't be read: errors about it
        // are dropped.
        let reported: Vec<String> = errors.iter().map(|error| error.path.clone()).collect();
        let is_new = |rule: &FieldError| !reported.iter().any(|path| is_within(&rule.path, path));
        errors.extend(rules.into_iter().filter(is_new));
        errors
    }

    /// Converts a job of another operator, and checks the TrainingJob that it becomes. Errors have
    /// the paths of the fields in the given object.
    pub fn convert(&self, object: &Value) -> Result<Converted, Vec<FieldError>> {
        let converted = trainyard_compat::convert(object.clone()).map_err(Refusal::into_errors)?;
        let errors = match serde_json::to_value(&converted.job) {
            Ok(job) => self.check(&job),
            Err(error) => vec![FieldError::new("", format!("can't be written: {error}"))],
        };
        if errors.is_empty() {
            return Ok(converted);
        }
        let theirs = |error: FieldError| {
            let path = trainyard_compat::their_path(object, &error.path);
            FieldError::new(path, error.message)
        };
        Err(errors.into_iter().map(theirs).collect())
    }
}

/// Whether a path is that of another field, or below it.
fn is_within(path: &str, whole: &str) -> bool {
    let rest = path.strip_prefix(whole);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
}

/// The rules of every job and of its framework, which the operator and its webhooks apply too.
fn rules(mut job: TrainingJob) -> Vec<FieldError> {
    trainyard_core::admission::review(None, &mut job)
}

/// The schema of `metadata`. Fields that the API server writes may be null.
fn metadata() -> Value {
    let strings = json!({"type": "object", "additionalProperties": {"type": "string"}, "nullable": true});
    let mut properties = json!({
        "annotations": strings,
        "finalizers": {"type": "array", "items": {"type": "string"}, "nullable": true},
        "generateName": {"type": "string"},
        "labels": strings,
        "name": {"type": "string"},
        "namespace": {"type": "string"},
        "ownerReferences": {"type": "array", "nullable": true, "items": {
            "type": "object",
            "required": ["apiVersion", "kind", "name", "uid"],
            "properties": {
                "apiVersion": {"type": "string"},
                "blockOwnerDeletion": {"type": "boolean"},
                "controller": {"type": "boolean"},
                "kind": {"type": "string"},
                "name": {"type": "string"},
                "uid": {"type": "string"},
            },
        }},
    });
    let written = [
        ("creationTimestamp", json!({"type": "string", "nullable": true})),
        (
            "deletionGracePeriodSeconds",
            json!({"type": "integer", "format": "int64", "nullable": true}),
        ),
        ("deletionTimestamp", json!({"type": "string", "nullable": true})),
        (
            "generation",
            json!({"type": "integer", "format": "int64", "nullable": true}),
        ),
        ("managedFields", json!({"type": "array", "nullable": true})),
        ("resourceVersion", json!({"type": "string", "nullable": true})),
        ("selfLink", json!({"type": "string", "nullable": true})),
        ("uid", json!({"type": "string", "nullable": true})),
    ];
    for (field, schema) in written {
        properties[field] = schema;
    }
    json!({"type": "object", "properties": properties})
}
