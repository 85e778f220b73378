//! Why a write failed, and what follows from that.

use std::time::Duration;

use kube::core::Status;

use crate::metrics::Outcome;

/// Why a write failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
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
    Conflict,
    /// Another object has the name by now.
    Replaced,
    /// An object of that name exists.
    Exists,
    /// An object of that name exists, and is about to be deleted.
    Former,
    /// An object of that name exists, and somebody else owns it.
    InTheWay,
    /// The object does not exist.
    Gone,
    /// It was not tried, because another child was refused.
    Skipped,
    /// The job has changed since the write was decided.
    Outdated,
}

impl Failure {
    /// Returns the failure that matters more for what to do next.
    #[must_use]
    pub fn graver(one: Option<Self>, other: Self) -> Self {
        match one {
            Some(one) if one.gravity() >= other.gravity() => one,
            _ => other,
        }
    }

    /// The outcome of a reconcile that ends with this failure.
    pub(crate) fn outcome(&self) -> Outcome {
        match self {
            Self::NotLeader | Self::Refused(_) | Self::Transient(..) => Outcome::Error,
            Self::Former | Self::NamespaceEnds => Outcome::Waiting,
            _ => Outcome::Conflict,
        }
    }

    /// Returns true if another failure matters more for what to do next.
    pub(super) fn is_less_grave_than(&self, other: &Self) -> bool {
        self.gravity() < other.gravity()
    }

    fn gravity(&self) -> u8 {
        match self {
            Self::NotLeader => 9,
            Self::NamespaceEnds => 8,
            Self::Refused(_) => 7,
            Self::Transient(..) => 6,
            Self::Conflict | Self::Replaced => 5,
            Self::Former => 4,
            Self::InTheWay => 3,
            Self::Exists | Self::Gone => 2,
            Self::Outdated => 1,
            Self::Skipped => 0,
        }
    }

    /// The failure as a message.
    pub fn words(&self) -> &str {
        match self {
            Self::Refused(words) | Self::Transient(words, _) => words,
            Self::NotLeader => "this replica does not lead any more",
            Self::NamespaceEnds => "the namespace is being removed",
            Self::Conflict => "the server says that somebody else was faster",
            Self::Replaced => "another object has its name",
            Self::Exists => "an object of its name exists",
            Self::Former => "an object of its name, left by a former job, is still being removed",
            Self::InTheWay => "an object of its name is somebody else's",
            Self::Gone => "it is not there",
            Self::Skipped => "another of its kind was refused",
            Self::Outdated => "the job has changed since it was decided",
        }
    }

    fn from_status(status: &Status) -> Self {
        let words = || {
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
                Self::Refused(words())
            }
            403 if cause("NamespaceTerminating")
                || status.message.contains("because it is being terminated") =>
            {
                Self::NamespaceEnds
            }
            // The default account of a new namespace is created a moment later.
            403 if status.message.contains("serviceaccount \"default\" not found") => {
                Self::Transient(words(), None)
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
            409 => Self::Conflict,
            // Somebody has to repair a webhook that can't be called, and the user should know.
            500 if status.message.contains("failed calling webhook") => Self::Refused(words()),
            400 | 403 | 405 | 413 | 415 | 422 => Self::Refused(words()),
            _ => {
                let retry_after = status
                    .details
                    .as_ref()
                    .map_or(0, |details| details.retry_after_seconds);
                Self::Transient(
                    words(),
                    (retry_after > 0).then(|| Duration::from_secs(u64::from(retry_after))),
                )
            }
        }
    }
}

impl From<kube::Error> for Failure {
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
        let failure = |code: u16, reason: &str, message: &str| {
            let body = serde_json::json!({"code": code, "reason": reason, "message": message});
            Failure::from(kube::Error::Api(serde_json::from_value(body).unwrap()))
        };
        assert_eq!(failure(409, "Conflict", "quota was modified"), Failure::Conflict);
        for words in [
            "Precondition failed: UID in precondition: a, UID in object meta: b",
            "the UID in the precondition (a) does not match the UID in record (b)",
        ] {
            assert_eq!(failure(409, "Conflict", words), Failure::Replaced);
        }
        for code in [404, 409] {
            let words = "admission webhook \"w\" denied the request: not now";
            assert_eq!(
                failure(code, "Conflict", words),
                Failure::Refused(words.to_owned())
            );
        }
        assert_eq!(
            failure(403, "Forbidden", "ns is forbidden because it is being terminated"),
            Failure::NamespaceEnds
        );
        assert!(matches!(
            failure(422, "Invalid", "spec.containers"),
            Failure::Refused(_)
        ));
        assert!(matches!(
            failure(500, "InternalError", "failed calling webhook \"w\""),
            Failure::Refused(_)
        ));
        assert!(matches!(
            failure(500, "InternalError", "etcd"),
            Failure::Transient(..)
        ));
        assert!(matches!(
            failure(429, "TooManyRequests", ""),
            Failure::Transient(..)
        ));
    }
}
