//! Validates one job or Framework: its shape, and the rules for every part of it that can be read.

use anyhow::{Context, Result};
use serde_json::{Value, json};
use trainyard_api::{DeclaredFramework, FieldError, TrainingJob};
use trainyard_compat::{ConvertError, Converted};
use trainyard_core::bounds;
use trainyard_core::registry::{self, Registry};

use super::readable::readable;
use super::schema::{self, Findings};
use super::{Recognized, recognize, text};

pub struct Checker {
    schema: Value,
    framework_schema: Value,
    /// The frameworks that jobs may name besides those that are built in.
    registry: Registry,
}

impl Checker {
    pub fn new() -> Result<Self> {
        Ok(Self {
            schema: schema_of(trainyard_api::crd::TRAINING_JOB)?,
            framework_schema: schema_of(trainyard_api::crd::FRAMEWORK)?,
            registry: Registry::default(),
        })
    }

    /// Makes a framework known to the jobs that are checked, also one with something wrong, so that
    /// its jobs say so. Other objects are ignored. [`check_framework`](Self::check_framework)
    /// returns what is wrong with the framework.
    pub fn declare(&mut self, object: &Value) {
        if !matches!(recognize(object), Recognized::Framework) {
            return;
        }
        let errors = self.check_framework(object);
        let mut object = object.clone();
        object["status"] = Value::Null;
        match serde_json::from_value::<DeclaredFramework>(object.clone()) {
            Ok(framework) if errors.is_empty() => {
                self.registry.declare(&framework);
            }
            _ => {
                let name = text(&object, "/metadata/name").unwrap_or_default();
                self.registry.declare_unreadable(name, errors);
            }
        }
    }

    pub fn registry(&self) -> &Registry {
        &self.registry
    }

    pub fn into_registry(self) -> Registry {
        self.registry
    }

    pub fn check_framework(&self, object: &Value) -> Vec<FieldError> {
        let mut findings = Findings::default();
        schema::check(&self.framework_schema, object, "", &mut findings);
        let mut errors = findings.shape;
        errors.extend(too_large(object));
        if errors.is_empty() {
            match serde_json::from_value::<DeclaredFramework>(object.clone()) {
                Ok(framework) => errors.extend(registry::check(&framework)),
                Err(error) => errors.push(FieldError::new(
                    "",
                    format!("cannot be read as a Framework: {error}"),
                )),
            }
        }
        let mut bounds = findings.bounds;
        bounds.retain(|bound| !has_error(&errors, &bound.path));
        errors.extend(bounds);
        errors
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
        errors.extend(too_large(object));
        // An error of shape must not hide errors elsewhere.
        let readable = readable(&self.schema, object).unwrap_or_default();
        let rules = match serde_json::from_value::<TrainingJob>(readable) {
            Ok(job) => self.rules(job),
            // It can't be read because of its shape, which is reported.
            Err(_) if !errors.is_empty() => Vec::new(),
            Err(error) => vec![FieldError::new(
                "",
                format!("cannot be read as a TrainingJob: {error}"),
            )],
        };
        // The message of a rule is better than that of a bound for the same field.
        errors.extend(bounds.into_iter().filter(|bound| !has_error(&rules, &bound.path)));
        // The rules see a placeholder for a field that is missing or can't be read: errors about it
        // are dropped.
        let reported: Vec<String> = errors.iter().map(|error| error.path.clone()).collect();
        let is_new = |rule: &FieldError| !reported.iter().any(|path| is_within(&rule.path, path));
        errors.extend(rules.into_iter().filter(is_new));
        errors
    }

    /// The rules of every job and of its framework, which the operator and its webhooks apply too.
    fn rules(&self, mut job: TrainingJob) -> Vec<FieldError> {
        let frameworks = self.registry.for_job(&job);
        trainyard_core::admission::review_with(None, &mut job, &frameworks)
    }

    /// Converts a job of another operator, and checks the TrainingJob that it becomes. Errors have
    /// the paths of the fields in the given object.
    pub fn convert(&self, object: &Value) -> Result<Converted, Vec<FieldError>> {
        if let Some(error) = too_large(object) {
            return Err(vec![error]);
        }
        let converted = trainyard_compat::convert(object).map_err(ConvertError::into_errors)?;
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

/// What nobody decodes on a cluster, or here: the operator's webhooks refuse it.
pub fn too_large(object: &Value) -> Option<FieldError> {
    let excess = bounds::excess(&object.to_string())?;
    Some(FieldError::new(excess.path, excess.message))
}

/// The schema of a definition.
fn schema_of(definition: &str) -> Result<Value> {
    let crd: Value = serde_json::from_str(definition).context("cannot read a definition")?;
    let schema = crd.pointer("/spec/versions/0/schema/openAPIV3Schema");
    let mut schema = schema.cloned().context("a definition has no schema")?;
    // The definition does not describe the fields that every object has.
    for field in ["apiVersion", "kind"] {
        schema["properties"][field] = json!({"type": "string"});
    }
    schema["properties"]["metadata"] = metadata();
    Ok(schema)
}

/// Whether one of some errors is about a field, or about a part of it.
fn has_error(errors: &[FieldError], path: &str) -> bool {
    errors.iter().any(|error| is_within(&error.path, path))
}

/// Whether a path is that of another field, or below it.
fn is_within(path: &str, whole: &str) -> bool {
    let rest = path.strip_prefix(whole);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
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
