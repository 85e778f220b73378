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

/// The request makes no sense.
pub(crate) fn bad_request(message: impl Into<String>) -> StatusError {
    failure(400, "BadRequest", message)
}

/// There is no such object.
pub(crate) fn not_found(kind: &Kind, name: &str) -> StatusError {
    let message = format!("{} {name:?} not found", kind.qualified());
    with(failure(404, "NotFound", message), about(kind, name))
}

/// There is no such namespace.
pub(crate) fn namespace_not_found(name: &str) -> StatusError {
    let message = format!("namespaces {name:?} not found");
    with(failure(404, "NotFound", message), details("", "namespaces", name))
}

/// Nothing is served under that path.
pub(crate) fn unknown_path() -> StatusError {
    failure(
        404,
        "NotFound",
        "the server could not find the requested resource",
    )
}

/// An object of that name is there already.
pub(crate) fn already_exists(kind: &Kind, name: &str) -> StatusError {
    let message = format!("{} {name:?} already exists", kind.qualified());
    with(failure(409, "AlreadyExists", message), about(kind, name))
}

/// The object is not as the request takes it to be.
pub(crate) fn conflict(kind: &Kind, name: &str, why: &str) -> StatusError {
    let message = format!(
        "Operation cannot be fulfilled on {} {name:?}: {why}",
        kind.qualified()
    );
    with(failure(409, "Conflict", message), about(kind, name))
}

/// As [`conflict`], said of something that goes by another name.
pub(crate) fn conflict_named(group: &str, word: &str, name: &str, why: &str) -> StatusError {
    let qualified = match group {
        "" => word.to_owned(),
        group => format!("{word}.{group}"),
    };
    let message = format!("Operation cannot be fulfilled on {qualified} {name:?}: {why}");
    with(failure(409, "Conflict", message), details(group, word, name))
}

/// A client wrote what only the server writes.
pub(crate) fn version_given() -> StatusError {
    failure(
        500,
        "",
        "resourceVersion should not be set on objects to be created",
    )
}

/// The object was changed since the client read it.
pub(crate) fn modified(kind: &Kind, name: &str) -> StatusError {
    conflict(
        kind,
        name,
        "the object has been modified; please apply your changes to the latest version and try again",
    )
}

/// Something forbids it.
pub(crate) fn forbidden(kind: &Kind, name: &str, why: &str) -> StatusError {
    let message = format!("{} {name:?} is forbidden: {why}", kind.qualified());
    with(failure(403, "Forbidden", message), about(kind, name))
}

/// The same, of an object or of all of a kind.
pub(crate) fn forbidden_to(kind: &Kind, name: Option<&str>, why: &str) -> StatusError {
    let Some(name) = name else {
        let message = format!("{} is forbidden: {why}", kind.qualified());
        return with(failure(403, "Forbidden", message), about(kind, ""));
    };
    forbidden(kind, name, why)
}

/// It is not known who asks.
pub(crate) fn unauthorized() -> StatusError {
    failure(401, "Unauthorized", "Unauthorized")
}

/// The namespace is on its way out and takes nothing new.
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

/// The object breaks rules.
pub(crate) fn invalid(kind: &Kind, name: &str, errors: &[FieldError]) -> StatusError {
    let qualified = match &*kind.group {
        "" => kind.kind.to_string(),
        group => format!("{}.{group}", kind.kind),
    };
    invalid_named(&qualified, &kind.group, &kind.kind, name, errors)
}

/// Something that is no stored object breaks rules, such as options.
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

/// A JSON patch does not fit.
pub(crate) fn unfit_patch(message: impl Into<String>) -> StatusError {
    failure(422, "Invalid", message)
}

/// The verb is not served for the resource.
pub(crate) fn method_not_allowed(message: impl Into<String>) -> StatusError {
    failure(405, "MethodNotAllowed", message)
}

/// The body is in a format that is not taken.
pub(crate) fn unsupported_media_type(message: impl Into<String>) -> StatusError {
    failure(415, "UnsupportedMediaType", message)
}

/// Not served, and perhaps never will be.
pub(crate) fn not_implemented(message: impl Into<String>) -> StatusError {
    failure(501, "NotImplemented", message)
}

/// The version that a watch or a list wants is not known any more.
pub(crate) fn expired(message: impl Into<String>) -> StatusError {
    failure(410, "Expired", message)
}

/// The client asks for a version that is not there yet.
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

/// A disruption budget has nothing left.
pub(crate) fn no_disruption_allowed(budget: &str, healthy: i64, needed: i64) -> StatusError {
    let mut details = details("", "", "");
    details.causes.push(StatusCause {
        reason: "DisruptionBudget".to_owned(),
        message: format!(
            "The disruption budget {budget} needs {needed} healthy pods and has {healthy} currently"
        ),
        field: String::new(),
    });
    let message = "Cannot evict pod as it would violate the pod's disruption budget.";
    with(failure(429, "TooManyRequests", message), details)
}

/// The server is at fault, or the client sent what no client should.
pub(crate) fn internal(message: impl Into<String>) -> StatusError {
    failure(500, "InternalError", message)
}

/// The answer to something that was done and has no object to show.
pub(crate) fn success(code: u16, about: Option<StatusDetails>) -> Box<Status> {
    Box::new(Status {
        status: Some(StatusSummary::Success),
        code,
        details: about,
        ..Status::default()
    })
}

/// The details of an object that is gone.
pub(crate) fn gone(kind: &Kind, name: &str, uid: &str) -> StatusDetails {
    let mut details = about(kind, name);
    uid.clone_into(&mut details.uid);
    details
}

/// A Status as clients read it.
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
