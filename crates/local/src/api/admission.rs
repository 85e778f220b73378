//! Admission: who else may look at an object before it is stored, and change or refuse it. In this
//! process, in place of the webhooks of a real cluster.

use std::sync::Arc;

use serde_json::{Map, Value};

use super::Shared;
use super::error::{FieldError, StatusError};
use super::kinds::Kind;
use super::meta;
use super::status;

/// What is about to happen to an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// It is created.
    Create,
    /// It is changed.
    Update,
    /// It is removed.
    Delete,
}

/// Something that is about to happen.
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
    /// The object as it will be, which may be changed; none if it is removed.
    pub object: Option<&'a mut Map<String, Value>>,
    /// The object as it is; none if it is created.
    pub old: Option<&'a Map<String, Value>>,
}

/// A refusal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejection {
    /// Why, for people.
    pub message: String,
    /// The fields that are wrong, if it is about fields; the answer is then 422 rather than 403.
    pub causes: Vec<FieldError>,
}

/// Looks at objects before they are stored.
pub trait Admission: Send + Sync {
    /// Lets an object pass, changed or not, or refuses it. Asked about every kind: let pass what is
    /// not yours.
    fn admit(&self, review: Review<'_>) -> Result<(), Rejection>;
}

impl Shared {
    /// A copy, so that whoever is asked may ask the API in turn.
    fn admissions(&self) -> Vec<Arc<dyn Admission>> {
        self.admission.read().clone()
    }

    /// Asks everybody about an object that is to be stored.
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

    /// Asks everybody about an object that is to be removed.
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
