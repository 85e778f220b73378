//! From an `AdmissionReview` with a request to one with an answer. No IO.

use k8s_openapi::ByteString;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use trainyard_api::{FieldError, JobPhase, TrainingJob, TrainingJobStatus};
use trainyard_core::admission;
use trainyard_core::foreign::ForeignKind;

use super::fill::fill;
use crate::metrics;

/// Which webhook is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hook {
    /// The one that writes defaults.
    Mutate,
    /// The one that refuses.
    Validate,
}

impl Hook {
    /// Its name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Mutate => "mutate",
            Self::Validate => "validate",
        }
    }
}

/// The request is no review: whoever sent it is no API server.
#[derive(Debug, thiserror::Error)]
pub enum BadReview {
    /// It is not JSON, or not of this shape.
    #[error("this is no AdmissionReview: {0}; only the API server is expected here")]
    Shape(#[from] serde_json::Error),
    /// It asks nothing.
    #[error("this AdmissionReview has no request; only the API server is expected here")]
    Empty,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Review {
    api_version: String,
    request: Option<Request>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Request {
    uid: String,
    operation: String,
    kind: GroupKind,
    #[serde(default)]
    sub_resource: Option<String>,
    #[serde(default)]
    name: String,
    #[serde(default)]
    object: Value,
    #[serde(default)]
    old_object: Value,
}

#[derive(Deserialize)]
struct GroupKind {
    #[serde(default)]
    group: String,
    kind: String,
}

// kube's own types can't carry causes with fields, which is what kubectl shows as a list.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Reply<'a> {
    api_version: &'a str,
    kind: &'static str,
    response: Answer<'a>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Answer<'a> {
    uid: &'a str,
    allowed: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    patch_type: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    patch: Option<ByteString>,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<Status<'a>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Status<'a> {
    #[serde(rename = "status")]
    outcome: &'static str,
    code: u16,
    reason: &'static str,
    message: String,
    details: Details<'a>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Details<'a> {
    name: &'a str,
    group: &'a str,
    kind: &'a str,
    causes: Vec<Cause>,
}

#[derive(Serialize)]
struct Cause {
    reason: &'static str,
    field: String,
    message: String,
}

/// What a request is about.
enum Concern {
    None,
    Job,
    Foreign(&'static dyn ForeignKind),
}

/// What was decided about an object.
enum Verdict {
    Allow,
    Patch(Vec<u8>),
    Deny(Vec<FieldError>),
}

/// Knows what to answer.
#[derive(Clone, Default)]
pub struct Reviewer {
    /// The kinds of other operators that are looked at, too.
    kinds: Vec<&'static dyn ForeignKind>,
}

impl Reviewer {
    /// One that knows some kinds of other operators, too.
    pub fn new(kinds: Vec<&'static dyn ForeignKind>) -> Self {
        Self { kinds }
    }

    /// Answers a review; and what became of it.
    pub fn review(&self, hook: Hook, body: &[u8]) -> Result<(metrics::Review, Vec<u8>), BadReview> {
        let review: Review = serde_json::from_slice(body)?;
        let request = review.request.ok_or(BadReview::Empty)?;
        let verdict = match (self.concern(&request), hook) {
            (Concern::None, _) | (Concern::Foreign(_), Hook::Mutate) => Verdict::Allow,
            (Concern::Job, Hook::Mutate) => mutate(&request.object),
            (Concern::Job, Hook::Validate) => validate(&request.object, &request.old_object),
            (Concern::Foreign(kind), Hook::Validate) => validate_foreign(kind, &request),
        };
        let mut response = Answer {
            uid: &request.uid,
            allowed: true,
            patch_type: None,
            patch: None,
            status: None,
        };
        let result = match verdict {
            Verdict::Allow => metrics::Review::Allowed,
            Verdict::Patch(patch) => {
                response.patch_type = Some("JSONPatch");
                response.patch = Some(ByteString(patch));
                metrics::Review::Patched
            }
            Verdict::Deny(errors) => {
                response.allowed = false;
                response.status = Some(refusal(&request, errors));
                metrics::Review::Denied
            }
        };
        let reply = Reply {
            api_version: &review.api_version,
            kind: "AdmissionReview",
            response,
        };
        Ok((result, serde_json::to_vec(&reply)?))
    }

    /// Only what changes the specification of an object that is to stay. One on its way out is let go whatever is wrong with
    /// it; else its finalizers could not be removed.
    fn concern(&self, request: &Request) -> Concern {
        let changes = matches!(request.operation.as_str(), "CREATE" | "UPDATE")
            && request.sub_resource.as_deref().unwrap_or_default().is_empty();
        let goes = request.object.pointer("/metadata/deletionTimestamp");
        if !changes || goes.is_some_and(|time| !time.is_null()) {
            return Concern::None;
        }
        let named = (request.kind.group.as_str(), request.kind.kind.as_str());
        if named == (trainyard_api::GROUP, "TrainingJob") {
            return Concern::Job;
        }
        let mut kinds = self.kinds.iter();
        let kind = kinds.find(|kind| (kind.group(), kind.kind()) == named);
        kind.map_or(Concern::None, |kind| Concern::Foreign(*kind))
    }
}

fn validate_foreign(kind: &dyn ForeignKind, request: &Request) -> Verdict {
    let old = Some(&request.old_object).filter(|old| !old.is_null());
    let errors = kind.review(old, &request.object);
    if errors.is_empty() {
        Verdict::Allow
    } else {
        Verdict::Deny(errors)
    }
}

fn mutate(object: &Value) -> Verdict {
    let mut job = match decode(object) {
        Ok(job) => job,
        Err(error) => return Verdict::Deny(vec![error]),
    };
    let before = serde_json::to_value(&job.spec);
    admission::default(&mut job);
    let after = serde_json::to_value(&job.spec);
    let (Ok(before), Ok(after)) = (before, after) else {
        // Types that were read can be written; and without defaults nothing is lost, as the engine assumes them too.
        return Verdict::Allow;
    };
    let mut filled = object.clone();
    if let Some(spec) = filled.get_mut("spec") {
        fill(spec, &before, &after);
    }
    let patch = json_patch::diff(object, &filled);
    match serde_json::to_vec(&patch) {
        Ok(bytes) if !patch.is_empty() => Verdict::Patch(bytes),
        _ => Verdict::Allow,
    }
}

fn validate(object: &Value, old: &Value) -> Verdict {
    let mut new = match decode(object) {
        Ok(job) => job,
        Err(error) => return Verdict::Deny(vec![error]),
    };
    let status = status(old);
    // A stored job that can't be read any more may be replaced by one that can.
    let old = decode(old).ok().map(|old| TrainingJob {
        status: Some(status),
        ..old
    });
    let errors = admission::review(old, &mut new);
    if errors.is_empty() {
        Verdict::Allow
    } else {
        Verdict::Deny(errors)
    }
}

/// What the rules need of a stored job's status: how far it is, and what its pods were made from. Nothing else matters here, nor
/// whether it can be read.
fn status(object: &Value) -> TrainingJobStatus {
    let read = |field: &str| object.get("status")?.get(field);
    let phase = read("phase").and_then(|phase| JobPhase::deserialize(phase).ok());
    let accepted = read("acceptedSpec").and_then(|spec| Vec::deserialize(spec).ok());
    TrainingJobStatus {
        phase,
        accepted_spec: accepted.unwrap_or_default(),
        ..TrainingJobStatus::default()
    }
}

/// Reads a job; what can't be read is named by its path. Status is not looked at: it is not the user's.
fn decode(object: &Value) -> Result<TrainingJob, FieldError> {
    let metadata: ObjectMeta = part(object, "metadata")?;
    Ok(TrainingJob {
        metadata,
        spec: part(object, "spec")?,
        status: None,
    })
}

fn part<T: DeserializeOwned>(object: &Value, name: &str) -> Result<T, FieldError> {
    let value = object
        .get(name)
        .ok_or_else(|| FieldError::new(name, "this is missing: add it"))?;
    serde_path_to_error::deserialize(value).map_err(|error| {
        let path = error.path().to_string();
        let path = if path == "." {
            name.to_owned()
        } else {
            format!("{name}.{path}")
        };
        FieldError::new(path, format!("this can't be read: {}", error.inner()))
    })
}

fn refusal(request: &Request, errors: Vec<FieldError>) -> Status<'_> {
    let lines: Vec<_> = errors.iter().map(ToString::to_string).collect();
    let causes = errors.into_iter().map(|error| Cause {
        reason: "FieldValueInvalid",
        field: error.path,
        message: error.message,
    });
    Status {
        outcome: "Failure",
        code: 422,
        reason: "Invalid",
        message: lines.join("\n"),
        details: Details {
            name: &request.name,
            group: &request.kind.group,
            kind: &request.kind.kind,
            causes: causes.collect(),
        },
    }
}

#[cfg(test)]
mod tests;
