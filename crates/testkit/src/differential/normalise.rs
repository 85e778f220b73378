//! Removes what differs between servers from answers: identifiers, versions, times, addresses, and
//! messages.

use std::collections::BTreeSet;
use std::fmt;

use serde_json::{Map, Value, json};

/// How the name of the volume begins that pods are given; the rest is random.
const TOKEN_VOLUME: &str = "kube-api-access-";

/// What a server answered.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    /// The HTTP status.
    pub code: u16,
    /// Of an error, what programs look at.
    pub error: Option<Error>,
    /// Of success, the object.
    pub object: Value,
}

/// What programs look at in an error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    /// `reason`.
    pub reason: String,
    /// The fields that are wrong, and how.
    pub causes: BTreeSet<(String, String)>,
    /// Shown, but not compared.
    pub message: Message,
}

/// A message for people. Any two are equal.
#[derive(Clone, Debug, Eq)]
pub struct Message(pub String);

impl PartialEq for Message {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Answer {
    /// From what came over the wire.
    pub fn of(code: u16, body: Value) -> Self {
        if code < 400 {
            return Self {
                code,
                error: None,
                object: object(body),
            };
        }
        let word = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let causes = body["details"]["causes"].as_array().into_iter().flatten();
        let error = Error {
            reason: word(&body["reason"]),
            causes: causes
                .map(|cause| (word(&cause["field"]), word(&cause["reason"])))
                .collect(),
            message: Message(word(&body["message"])),
        };
        Self {
            code,
            error: Some(error),
            object: Value::Null,
        }
    }
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.error {
            Some(error) => write!(
                f,
                "{} {} {:?} {}",
                self.code, error.reason, error.causes, error.message.0
            ),
            None => write!(f, "{} {}", self.code, self.object),
        }
    }
}

/// Removes from an object what differs between servers.
pub fn object(mut value: Value) -> Value {
    tidy(&mut value);
    value
}

fn tidy(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            if let Some(Value::Object(metadata)) = fields.get_mut("metadata") {
                tidy_metadata(metadata);
            }
            for (name, field) in fields.iter_mut() {
                tidy_field(name, field);
                tidy(field);
            }
        }
        Value::Array(items) => items.iter_mut().for_each(tidy),
        Value::String(text) if text.starts_with(TOKEN_VOLUME) => {
            *text = format!("{TOKEN_VOLUME}*");
        }
        _ => {}
    }
}

fn tidy_metadata(metadata: &mut Map<String, Value>) {
    metadata.remove("managedFields");
    if let Some(prefix) = metadata.get("generateName").and_then(Value::as_str) {
        metadata.insert("name".to_owned(), json!(format!("{prefix}*")));
    }
    for name in [
        "uid",
        "resourceVersion",
        "creationTimestamp",
        "deletionTimestamp",
        "continue",
    ] {
        if metadata.get(name).is_some_and(|value| value.as_str() != Some("")) {
            metadata.insert(name.to_owned(), json!("*"));
        }
    }
}

fn tidy_field(name: &str, field: &mut Value) {
    let address = |text: &str| text.parse::<std::net::IpAddr>().is_ok();
    match (name, &mut *field) {
        ("clusterIP", Value::String(text)) if address(text) => "*".clone_into(text),
        ("clusterIPs", Value::Array(items)) => {
            for item in items {
                if item.as_str().is_some_and(address) {
                    *item = json!("*");
                }
            }
        }
        // The UID of an object that was deleted, in the answer to its deletion.
        ("uid", Value::String(text)) => "*".clone_into(text),
        // Other times are the client's.
        ("lastTransitionTime", Value::String(text)) => "*".clone_into(text),
        _ => {}
    }
}
