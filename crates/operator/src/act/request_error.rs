//! Why a write failed, and what follows from that.

use std::time::Duration;

use kube::core::Status;

use crate::metrics::Outcome;

/// The result of requests.
pub type Result<T, E = RequestError> = std::result::Result<T, E>;

/// Why a write failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RequestError {
    /// This replica does not lead any more.
    NotLeader,
    /// The server refuses the object itself: a quota, a webhook, a rule. The write is retried with
    /// a long backoff.
    Refused(String),
    /// The namespace is being deleted.
    NamespaceEnds,
    /// The server could not be reached or was too busy. The write may or may not have been carried
    /// out. The duration is the pause that the server asks for.
    Transient(String, Option<Duration>),
    /// The server says that the object has changed since it was read.
    VersionConflict,
    /// Another object has the name by now.
    Replaced,
    /// An object of that name exists.
    Exists,
    /// An object of that name exists, and is about to be deleted.
    Former,
    /// An object of that name exists, and somebody else owns it.
    NameTaken,
    /// The object does not exist.
    Gone,
    /// It was not tried, because another child was refused.
    Skipped,
    /// The job has changed since the write was decided.
    Outdated,
}

impl RequestError {
    /// Returns the error that matters more for what to do next.
    #[must_use]
    pub fn graver(one: Option<Self>, other: Self) -> Self {
        match one {
            Some(one) if one.gravity() >= other.gravity() => one,
            _ => other,
        }
    }

    /// The outcome of a reconcile that ends with this error.
    pub(crate) fn outcome(&self) -> Outcome {
        match self {
            Self::NotLeader | Self::Refused(_) | Self::Transient(..) => Outcome::Error,
            Self::Former | Self::NamespaceEnds => Outcome::Waiting,
            _ => Outcome::Conflict,
        }
    }

    /// Returns true if another error matters more for what to do next.
    pub(super) fn is_less_grave_than(&self, other: &Self) -> bool {
        self.gravity() < other.gravity()
    }

    fn gravity(&self) -> u8 {
        match self {
            Self::NotLeader => 9,
            Self::NamespaceEnds => 8,
            Self::Refused(_) => 7,
            Self::Transient(..) => 6,
            Self::VersionConflict | Self::Replaced => 5,
            Self::Former => 4,
            Self::NameTaken => 3,
            Self::Exists | Self::Gone => 2,
            Self::Outdated => 1,
            Self::Skipped => 0,
        }
    }

    /// The error as a message.
    pub fn message(&self) -> &str {
        match self {
            Self::Refused(message) | Self::Transient(message, _) => message,
            Self::NotLeader => "this replica does not lead any more",
            Self::NamespaceEnds => "the namespace is being removed",
            Self::VersionConflict => "the server says that somebody else was faster",
            Self::Replaced => "another object has its name",
            Self::Exists => "an object of its name exists",
            Self::Former => "an object of its name, left by a former job, is still being removed",
            Self::NameTaken => "an object of its name is somebody else's",
            Self::Gone => "it is not there",
            Self::Skipped => "another of its kind was refused",
            Self::Outdated => "the job has changed since it was decided",
        }
    }

    fn from_status(status: &Status) -> Self {
        let message = || {
            if status.message.is_empty() {
                status.reason.clone()
            } else {
                status.message.clone()
            }
        };
        let cause = |reason: &str| {
            let causes = status
                .details
                .as_ref()
                .map(|details| details.causes.as_slice())
                .unwrap_or_default();
            causes.iter().any(|cause| cause.reason == reason)
        };
        match status.code {
            // The webhook has chosen the code, so it says nothing about the object.
            _ if status.message.starts_with("admission webhook ")
                && status.message.contains(" denied the request") =>
            {
                Self::Refused(message())
            }
            403 if cause("NamespaceTerminating")
                || status.message.contains("because it is being terminated") =>
            {
                Self::NamespaceEnds
            }
            // The default account of a new namespace is created a moment later.
            403 if status.message.contains("serviceaccount \"default\" not found") => {
                Self::Transient(message(), None)
            }
            404 if status
                .details
                .as_ref()
                .is_some_and(|details| details.kind == "namespaces") =>
            {
                Self::NamespaceEnds
            }
            404 => Self::Gone,
            409 if status.reason == "AlreadyExists" => Self::Exists,
            // "Precondition failed: UID in ...", or "the UID in the precondition ... does not match
            // ...".
            409 if status.message.contains("recondition") && status.message.contains("UID") => Self::Replaced,
            409 => Self::VersionConflict,
            // Somebody has to repair a webhook that can't be called, and the user should know.
            500 if status.message.contains("failed calling webhook") => Self::Refused(message()),
            400 | 403 | 405 | 413 | 415 | 422 => Self::Refused(message()),
            _ => {
                let retry_after = status
                    .details
                    .as_ref()
                    .map_or(0, |details| details.retry_after_seconds);
                Self::Transient(
                    message(),
                    (retry_after > 0).then(|| Duration::from_secs(u64::from(retry_after))),
                )
            }
        }
    }
}

impl From<kube::Error> for RequestError {
    fn from(error: kube::Error) -> Self {
        match error {
            kube::Error::Api(status) => Self::from_status(&status),
            other => Self::Transient(other.to_string(), None),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_told_apart() {
        let error = |code: u16, reason: &str, message: &str| {
            let body = serde_json::json!({"code": code, "reason": reason, "message": message});
            RequestError::from(kube::Error::Api(serde_json::from_value(body).unwrap()))
        };
        assert_eq!(
            error(409, "Conflict", "quota was modified"),
            RequestError::VersionConflict
        );
        for message in [
            "Precondition failed: UID in precondition: a, UID in object meta: b",
            "the UID in the precondition (a) does not match the UID in record (b)",
        ] {
            assert_eq!(error(409, "Conflict", message), RequestError::Replaced);
        }
        for code in [404, 409] {
            let message = "admission webhook \"w\" denied the request: not now";
            assert_eq!(
                error(code, "Conflict", message),
                RequestError::Refused(message.to_owned())
            );
        }
        assert_eq!(
            error(403, "Forbidden", "ns is forbidden because it is being terminated"),
            RequestError::NamespaceEnds
        );
        assert!(matches!(
            error(422, "Invalid", "spec.containers"),
            RequestError::Refused(_)
        ));
        assert!(matches!(
            error(500, "InternalError", "failed calling webhook \"w\""),
            RequestError::Refused(_)
        ));
        assert!(matches!(
            error(500, "InternalError", "etcd"),
            RequestError::Transient(..)
        ));
        assert!(matches!(
            error(429, "TooManyRequests", ""),
            RequestError::Transient(..)
        ));
    }
}
