//! The check of one job: first its shape, then its rules.

use std::collections::BTreeSet;

use anyhow::{Context, Result};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::Value;
use trainyard_api::{FieldError, TrainingJob};

use super::schema::{self, Findings};

/// Stands for what the API server appends to `generateName`.
const GENERATED_SUFFIX: &str = "xxxxx";

/// The check of jobs, with the schema they are held to.
pub struct Checker {
    schema: Value,
}

impl Checker {
    /// A checker with the schema of this version.
    pub fn new() -> Result<Self> {
        let crd = trainyard_api::crd::training_job().and_then(serde_json::to_value);
        let crd = crd.context("cannot make the schema of TrainingJob")?;
        let schema = crd.pointer("/spec/versions/0/schema/openAPIV3Schema");
        let mut schema = schema
            .cloned()
            .context("the definition of TrainingJob has no schema")?;
        // The definition leaves to the API server what every object has.
        for field in ["apiVersion", "kind"] {
            schema["properties"][field] = serde_json::json!({"type": "string"});
        }
        schema["properties"]["metadata"] = serde_json::json!({"type": "object"});
        Ok(Self { schema })
    }

    /// All that is wrong with a job.
    pub fn check(&self, object: &Value) -> Vec<FieldError> {
        let mut findings = Findings::default();
        schema::check(&self.schema, object, "", &mut findings);
        metadata(object, &mut findings);
        let Findings {
            shape: mut errors,
            bounds,
        } = findings;
        let rules = match serde_json::from_value::<TrainingJob>(object.clone()) {
            Ok(job) => rules(job),
            // A wrong shape is why it can't be read, and has been said.
            Err(_) if !errors.is_empty() => Vec::new(),
            Err(error) => vec![FieldError::new(
                "",
                format!("cannot be read as a TrainingJob: {error}"),
            )],
        };
        // A rule says better than a bound what to do about the same field; both would be noise.
        let told = |bound: &FieldError| rules.iter().any(|rule| rule.path.starts_with(&bound.path));
        errors.extend(bounds.into_iter().filter(|bound| !told(bound)));
        // What is missing is default to the rules, which would find it missing again.
        let said: BTreeSet<String> = errors.iter().map(|error| error.path.clone()).collect();
        errors.extend(rules.into_iter().filter(|rule| !said.contains(&rule.path)));
        errors
    }
}

/// The rules of every job and of its framework, which the operator and its webhooks apply too.
fn rules(mut job: TrainingJob) -> Vec<FieldError> {
    if job.metadata.name.is_none()
        && let Some(prefix) = &job.metadata.generate_name
    {
        job.metadata.name = Some(format!("{prefix}{GENERATED_SUFFIX}"));
    }
    trainyard_core::admission::default(&mut job);
    trainyard_core::admission::validate(None, &job)
}

/// Fields of `metadata` that do not exist are lost when it is read, and found by that.
fn metadata(object: &Value, findings: &mut Findings) {
    let Some(given) = object.get("metadata").and_then(Value::as_object) else {
        return;
    };
    let read =
        serde_json::from_value::<ObjectMeta>(Value::Object(given.clone())).and_then(serde_json::to_value);
    match read {
        Ok(read) => {
            for (name, _) in given
                .iter()
                .filter(|(name, value)| !value.is_null() && read.get(name).is_none())
            {
                let known = [
                    "name",
                    "namespace",
                    "labels",
                    "annotations",
                    "generateName",
                    "finalizers",
                ];
                let known: Vec<String> = known.iter().map(ToString::to_string).collect();
                let message = schema::unknown(name, known.iter());
                findings
                    .shape
                    .push(FieldError::new(format!("metadata.{name}"), message));
            }
        }
        Err(error) => findings
            .shape
            .push(FieldError::new("metadata", format!("cannot be read: {error}"))),
    }
}
