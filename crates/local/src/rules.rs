//! The rules of jobs at admission: what the webhooks do in a real cluster, called in process.

use serde_json::{Map, Value};
use trainyard_api::TrainingJob;
use trainyard_core::admission;

use crate::api::{Admission, FieldError, Operation, Rejection, Review};

/// Defaults and checks TrainingJobs, and lets everything else pass.
#[derive(Clone, Copy, Debug, Default)]
pub struct JobRules;

impl Admission for JobRules {
    fn admit(&self, review: Review<'_>) -> Result<(), Rejection> {
        let (Some(object), true) = (review.object, is_job(review.group, review.kind)) else {
            return Ok(());
        };
        if review.operation == Operation::Delete {
            return Ok(());
        }
        // What can't be read was let through by the schema; the operator reports it on the job itself.
        let Some(mut job) = read(object) else {
            return Ok(());
        };
        let old = review.old.and_then(read).map(|mut old| {
            admission::default(&mut old);
            old
        });
        admission::default(&mut job);
        let errors = admission::validate(old.as_ref(), &job);
        if !errors.is_empty() {
            return Err(rejection(&errors));
        }
        if let Ok(spec) = serde_json::to_value(&job.spec) {
            object.insert("spec".to_owned(), spec);
        }
        Ok(())
    }
}

fn is_job(group: &str, kind: &str) -> bool {
    group == trainyard_api::GROUP && kind == "TrainingJob"
}

fn read(object: &Map<String, Value>) -> Option<TrainingJob> {
    serde_json::from_value(Value::Object(object.clone())).ok()
}

fn rejection(errors: &[trainyard_api::FieldError]) -> Rejection {
    let words: Vec<String> = errors
        .iter()
        .map(|error| format!("{}: {}", error.path, error.message))
        .collect();
    Rejection {
        message: words.join("\n"),
        causes: errors
            .iter()
            .map(|error| FieldError {
                field: error.path.clone(),
                reason: "FieldValueInvalid",
                body: error.message.clone(),
            })
            .collect(),
    }
}
