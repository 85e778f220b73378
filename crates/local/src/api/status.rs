//! Errors for clients: Status objects with the codes, reasons, messages and causes that clients of
//! Kubernetes check.

use kube::core::Status;
use kube::core::response::{StatusCause, StatusDetails, StatusSummary};
use serde_json::Value;

use super::error::{FieldError, StatusError};
use super::kinds::Kind;

fn failure(code: u16, reason: &str, message: impl Into<String>) -> StatusError {
    Box::new(Status {
        status: Some(StatusSummary::Failure),
        code,
        message: message.into(),
        metadata: None,
        reason: reason.to_owned(),
        details: None,
    })
}

fn details(group: &str, kind: &str, name: &str) -> StatusDetails {
    StatusDetails {
        name: name.to_owned(),
        group: group.to_owned(),
        kind: kind.to_owned(),
        uid: String::new(),
        causes: Vec::new(),
        retry_after_seconds: 0,
    }
}

fn about(kind: &Kind, name: &str) -> StatusDetails {
    details(&kind.group, &kind.plural, name)
}

fn with(mut failure: StatusError, details: StatusDetails) -> StatusError {
    failure.details = Some(details);
    failure
}

pub(crate) fn bad_request(message: impl Into<String>) -> StatusError {
    failure(400, "BadRequest", message)
}

pub(crate) fn not_found(kind: &Kind, name: &str) -> StatusError {
    let message = format!("{} {name:?} not found", kind.qualified());
    with(failure(404, "NotFound", message), about(kind, name))
}

pub(crate) fn namespace_not_found(name: &str) -> StatusError {
    let message = format!("namespaces {name:?} not found");
    with(failure(404, "NotFound", message), details("", "namespaces", name))
}

pub(crate) fn unknown_path() -> StatusError {
    failure(
        404,
        "NotFound",
        "the server could not find the requested resource",
    )
}

pub(crate) fn already_exists(kind: &Kind, name: &str) -> StatusError {
    let message = format!("{} {name:?} already exists", kind.qualified());
    with(failure(409, "AlreadyExists", message), about(kind, name))
}

pub(crate) fn conflict(kind: &Kind, name: &str, why: &str) -> StatusError {
    let message = format!(
        "Operation cannot be fulfilled on {} {name:?}: {why}",
        kind.qualified()
    );
    with(failure(409, "Conflict", message), about(kind, name))
}

/// Like [`conflict`], with another name for the kind.
pub(crate) fn conflict_named(group: &str, word: &str, name: &str, why: &str) -> StatusError {
    let qualified = match group {
        "" => word.to_owned(),
        group => format!("{word}.{group}"),
    };
    let message = format!("Operation cannot be fulfilled on {qualified} {name:?}: {why}");
    with(failure(409, "Conflict", message), details(group, word, name))
}

/// resourceVersion was set on a creation.
pub(crate) fn version_given() -> StatusError {
    failure(
        500,
        "",
        "resourceVersion should not be set on objects to be created",
    )
}

pub(crate) fn modified(kind: &Kind, name: &str) -> StatusError {
    conflict(
        kind,
        name,
        "the object has been modified; please apply your changes to the latest version and try again",
    )
}

pub(crate) fn forbidden(kind: &Kind, name: &str, why: &str) -> StatusError {
    let message = format!("{} {name:?} is forbidden: {why}", kind.qualified());
    with(failure(403, "Forbidden", message), about(kind, name))
}

/// For an object, or all objects of a kind.
pub(crate) fn forbidden_to(kind: &Kind, name: Option<&str>, why: &str) -> StatusError {
    let Some(name) = name else {
        let message = format!("{} is forbidden: {why}", kind.qualified());
        return with(failure(403, "Forbidden", message), about(kind, ""));
    };
    forbidden(kind, name, why)
}

pub(crate) fn forbidden_budget(name: &str, why: &str) -> StatusError {
    let message = format!("poddisruptionbudget.policy {name:?} is forbidden: {why}");
    let details = details("policy", "poddisruptionbudget", name);
    with(failure(403, "Forbidden", message), details)
}

pub(crate) fn unauthorized() -> StatusError {
    failure(401, "Unauthorized", "Unauthorized")
}

pub(crate) fn namespace_terminates(kind: &Kind, name: &str, namespace: &str) -> StatusError {
    let why = format!("unable to create new content in namespace {namespace} because it is being terminated");
    let mut failure = forbidden(kind, name, &why);
    if let Some(details) = &mut failure.details {
        details.causes.push(StatusCause {
            reason: "NamespaceTerminating".to_owned(),
            message: format!("namespace {namespace} is being terminated"),
            field: "metadata.namespace".to_owned(),
        });
    }
    failure
}

pub(crate) fn invalid(kind: &Kind, name: &str, errors: &[FieldError]) -> StatusError {
    let qualified = match &*kind.group {
        "" => kind.kind.to_string(),
        group => format!("{}.{group}", kind.kind),
    };
    invalid_named(&qualified, &kind.group, &kind.kind, name, errors)
}

/// For what is not a stored object, such as options.
pub(crate) fn invalid_named(
    qualified: &str,
    group: &str,
    kind: &str,
    name: &str,
    errors: &[FieldError],
) -> StatusError {
    let words: Vec<String> = errors.iter().map(ToString::to_string).collect();
    let words = match words.as_slice() {
        [one] => one.clone(),
        many => format!("[{}]", many.join(", ")),
    };
    let mut details = details(group, kind, name);
    details.causes = errors
        .iter()
        .map(|error| StatusCause {
            reason: error.reason.to_owned(),
            message: error.body.clone(),
            field: error.field.clone(),
        })
        .collect();
    with(
        failure(
            422,
            "Invalid",
            format!("{qualified} {name:?} is invalid: {words}"),
        ),
        details,
    )
}

pub(crate) fn unfit_patch(message: impl Into<String>) -> StatusError {
    failure(422, "Invalid", message)
}

pub(crate) fn method_not_allowed(message: impl Into<String>) -> StatusError {
    failure(405, "MethodNotAllowed", message)
}

pub(crate) fn unsupported_media_type(message: impl Into<String>) -> StatusError {
    failure(415, "UnsupportedMediaType", message)
}

pub(crate) fn not_implemented(message: impl Into<String>) -> StatusError {
    failure(501, "NotImplemented", message)
}

/// The requested version is too old.
pub(crate) fn expired(message: impl Into<String>) -> StatusError {
    failure(410, "Expired", message)
}

pub(crate) fn version_too_large(wanted: u64, current: u64) -> StatusError {
    let message = format!("Too large resource version: {wanted}, current: {current}");
    let mut details = details("", "", "");
    details.causes.push(StatusCause {
        reason: "ResourceVersionTooLarge".to_owned(),
        message: "Too large resource version".to_owned(),
        field: String::new(),
    });
    details.retry_after_seconds = 1;
    with(failure(504, "Timeout", message), details)
}

/// A disruption budget allows no eviction.
pub(crate) fn no_disruption_allowed(why: &str) -> StatusError {
    eviction_refused(why, 0)
}

/// The disruption controller has not seen a budget as it is.
pub(crate) fn budget_not_ready(budget: &str) -> StatusError {
    let why = format!("The disruption budget {budget} is still being processed by the server.");
    eviction_refused(&why, 10)
}

fn eviction_refused(why: &str, retry_after_seconds: u32) -> StatusError {
    let mut details = details("", "", "");
    details.causes.push(StatusCause {
        reason: "DisruptionBudget".to_owned(),
        message: why.to_owned(),
        field: String::new(),
    });
    details.retry_after_seconds = retry_after_seconds;
    let message = "Cannot evict pod as it would violate the pod's disruption budget.";
    with(failure(429, "TooManyRequests", message), details)
}

pub(crate) fn internal(message: impl Into<String>) -> StatusError {
    failure(500, "InternalError", message)
}

/// The answer to a success without an object.
pub(crate) fn success(code: u16, about: Option<StatusDetails>) -> Box<Status> {
    Box::new(Status {
        status: Some(StatusSummary::Success),
        code,
        details: about,
        ..Status::default()
    })
}

pub(crate) fn gone(kind: &Kind, name: &str, uid: &str) -> StatusDetails {
    let mut details = about(kind, name);
    uid.clone_into(&mut details.uid);
    details
}

pub(crate) fn to_json(status: &Status) -> Value {
    let mut value = serde_json::to_value(status).unwrap_or_default();
    if let Some(object) = value.as_object_mut() {
        object.insert("kind".into(), "Status".into());
        object.insert("apiVersion".into(), "v1".into());
        object
            .entry("metadata")
            .or_insert_with(|| Value::Object(serde_json::Map::new()));
        if status.code == 0 {
            object.remove("code");
        }
    }
    value
}
