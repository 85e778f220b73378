//! Admission: plug-ins that may change or reject an object before it is stored. They run in this
//! process, in place of the webhooks of a real cluster.

use std::sync::Arc;

use serde_json::{Map, Value};

use super::Shared;
use super::error::{FieldError, StatusError};
use super::kinds::Kind;
use super::meta;
use super::status;

/// What a request does to an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// It is created.
    Create,
    /// It is changed.
    Update,
    /// It is removed.
    Delete,
}

/// A request under review.
#[derive(Debug)]
pub struct Review<'a> {
    /// What.
    pub operation: Operation,
    /// The group of the object's kind; empty for the core.
    pub group: &'a str,
    /// The version in which the object is written.
    pub version: &'a str,
    /// The object's kind.
    pub kind: &'a str,
    /// The new object, which may be changed; None for a deletion.
    pub object: Option<&'a mut Map<String, Value>>,
    /// The stored object; None for a creation.
    pub old: Option<&'a Map<String, Value>>,
}

/// Why a request is rejected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejection {
    /// Why, for people.
    pub message: String,
    /// Invalid fields; with any, the answer is 422 rather than 403.
    pub causes: Vec<FieldError>,
}

/// Reviews objects before they are stored.
pub trait Admission: Send + Sync {
    /// Admits an object, changed or not, or rejects it. It is called for objects of every kind.
    fn admit(&self, review: Review<'_>) -> Result<(), Rejection>;
}

impl Shared {
    /// A copy, so that plug-ins may call the API.
    fn admissions(&self) -> Vec<Arc<dyn Admission>> {
        self.admission.read().clone()
    }

    pub(super) fn admit(
        &self,
        kind: &Kind,
        operation: Operation,
        object: &mut Map<String, Value>,
        old: Option<&Map<String, Value>>,
    ) -> Result<(), StatusError> {
        for admission in self.admissions() {
            let review = Review {
                operation,
                group: &kind.group,
                version: &kind.version,
                kind: &kind.kind,
                object: Some(&mut *object),
                old,
            };
            if let Err(rejection) = admission.admit(review) {
                return Err(refusal(kind, meta::text(object, "name"), &rejection));
            }
        }
        Ok(())
    }

    pub(super) fn admit_removal(&self, kind: &Kind, object: &Map<String, Value>) -> Result<(), StatusError> {
        for admission in self.admissions() {
            let review = Review {
                operation: Operation::Delete,
                group: &kind.group,
                version: &kind.version,
                kind: &kind.kind,
                object: None,
                old: Some(object),
            };
            if let Err(rejection) = admission.admit(review) {
                return Err(refusal(kind, meta::text(object, "name"), &rejection));
            }
        }
        Ok(())
    }
}

fn refusal(kind: &Kind, name: &str, rejection: &Rejection) -> StatusError {
    if rejection.causes.is_empty() {
        return status::forbidden(kind, name, &rejection.message);
    }
    let mut refusal = status::invalid(kind, name, &rejection.causes);
    if !rejection.message.is_empty() {
        refusal.message.clone_from(&rejection.message);
    }
    refusal
}
