//! The admission of TrainingJobs and Frameworks, in place of the webhooks of a real cluster.

use parking_lot::RwLock;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use trainyard_api::{DeclaredFramework, TrainingJob};
use trainyard_core::registry::Registry;
use trainyard_core::{admission, registry};

use crate::api::{Admission, FieldError, Operation, Rejection, Review};

/// Defaults and validates TrainingJobs, validates Frameworks, and admits everything else.
#[derive(Debug, Default)]
pub struct JobRules {
    /// The Frameworks that were admitted.
    registry: RwLock<Registry>,
}

impl Admission for JobRules {
    fn admit(&self, review: Review<'_>) -> Result<(), Rejection> {
        if is_framework(review.group, review.kind) {
            return self.admit_framework(&review);
        }
        let (Some(object), true) = (review.object, is_job(review.group, review.kind)) else {
            return Ok(());
        };
        if review.operation == Operation::Delete {
            return Ok(());
        }
        // The operator reports a job that the schema allows and that can't be read.
        let Some(mut job) = read::<TrainingJob>(object) else {
            return Ok(());
        };
        let old: Option<TrainingJob> = review.old.and_then(read);
        let frameworks = self.registry.read().for_job(old.as_ref().unwrap_or(&job));
        let errors = admission::review_with(old, &mut job, &frameworks);
        if !errors.is_empty() {
            return Err(rejection(&errors));
        }
        if let Ok(spec) = serde_json::to_value(&job.spec) {
            object.insert("spec".to_owned(), spec);
        }
        Ok(())
    }
}

impl JobRules {
    fn admit_framework(&self, review: &Review<'_>) -> Result<(), Rejection> {
        let object = review.object.as_deref().or(review.old);
        let Some(framework) = object.and_then(read::<DeclaredFramework>) else {
            return Ok(());
        };
        if review.operation == Operation::Delete {
            let name = framework.metadata.name.unwrap_or_default();
            self.registry.write().remove(&name);
            return Ok(());
        }
        let errors = registry::check(&framework);
        if !errors.is_empty() {
            return Err(rejection(&errors));
        }
        self.registry.write().declare(&framework);
        Ok(())
    }
}

fn is_framework(group: &str, kind: &str) -> bool {
    group == trainyard_api::GROUP && kind == "Framework"
}

fn is_job(group: &str, kind: &str) -> bool {
    group == trainyard_api::GROUP && kind == "TrainingJob"
}

fn read<T: DeserializeOwned>(object: &Map<String, Value>) -> Option<T> {
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn job(replicas: i32) -> Value {
        json!({
            "apiVersion": "trainyard.dev/v1alpha1", "kind": "TrainingJob", "metadata": {"name": "mnist"},
            "spec": {"framework": {"name": "pytorch"}, "roles": [{
                "name": "worker", "replicas": replicas,
                "template": {"spec": {"containers": [{"name": "train", "image": "i"}]}},
            }]},
        })
    }

    /// What is said of a change.
    fn said(old: &Value, new: &Value) -> String {
        let mut object = new.as_object().unwrap().clone();
        let review = Review {
            operation: Operation::Update,
            group: trainyard_api::GROUP,
            version: "v1alpha1",
            kind: "TrainingJob",
            object: Some(&mut object),
            old: old.as_object(),
        };
        let refused = JobRules::default().admit(review).err();
        refused.map(|refused| refused.message).unwrap_or_default()
    }

    #[test]
    fn a_stored_job_that_the_rules_refuse_can_be_labelled_suspended_and_let_go() {
        let running = job(0);
        let mut new = running.clone();
        new["metadata"]["labels"] = json!({"a": "b"});
        assert_eq!(said(&running, &new), "");
        new["spec"]["suspend"] = json!(true);
        assert_eq!(said(&running, &new), "");
        let suspended = new.clone();
        new["spec"]["roles"][0]["replicas"] = json!(-1);
        assert!(said(&running, &new).starts_with("spec.roles[0].replicas: -1 pods"));
        assert!(said(&suspended, &running).starts_with("spec.roles[0].replicas: 0 pods"));
        new["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        assert_eq!(said(&running, &new), "");
    }
}
