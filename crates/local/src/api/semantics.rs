//! The verbs: creation, update, deletion and what follows from them, the same for all kinds. What
//! differs between kinds is in [`rules`](super::rules) and in one file for each kind with rules of
//! its own.

pub(crate) mod claim;
pub(crate) mod config;
pub(crate) mod create;
pub(crate) mod delete;
pub(crate) mod event;
pub(crate) mod expiry;
pub(crate) mod garbage;
pub(crate) mod garbage_collector;
pub(crate) mod lease;
pub(crate) mod namespace;
pub(crate) mod patch;
pub(crate) mod pod;
pub(crate) mod policy;
pub(crate) mod scale;
pub(crate) mod service;
pub(crate) mod slice;
pub(crate) mod token;
pub(crate) mod update;

use std::sync::Arc;

use serde_json::Value;

use super::Shared;
use super::error::{FieldError, StatusError};
use super::kinds::Kind;
use super::meta;
use super::rules::{self, Source};
use super::status;
use super::store::{Draft, Head, Object, Stored};
use garbage::Garbage;

/// The kind of a request, and its namespace, which is empty for cluster-scoped kinds.
#[derive(Clone, Copy)]
pub(crate) struct Target<'a> {
    pub(crate) shared: &'a Shared,
    pub(crate) kind: &'a Arc<Kind>,
    pub(crate) namespace: &'a str,
}

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct WriteOptions {
    pub(crate) dry_run: bool,
    /// Whether an unknown field is an error rather than dropped.
    pub(crate) strict: bool,
}

impl Target<'_> {
    pub(crate) fn stored(&self, name: &str) -> Result<Arc<Stored>, StatusError> {
        let key = super::store::key(self.namespace, name);
        let found = self.shared.store.get(self.kind.table, &key);
        found.ok_or_else(|| status::not_found(self.kind, name))
    }

    /// Decodes, defaults and converts what a client sent to the stored version.
    fn shaped(&self, source: Source<'_>, options: WriteOptions) -> Result<Object, StatusError> {
        let unreadable = |why: String| {
            let Kind { kind, version, .. } = &**self.kind;
            status::bad_request(format!(
                "{kind} in version {version:?} cannot be handled as a {kind}: {why}"
            ))
        };
        let (source, sent) = if options.strict {
            let value = source.value().map_err(unreadable)?;
            (Source::Value(value.clone()), Some(value))
        } else {
            (source, None)
        };
        let rules = &self.kind.rules;
        let mut object = rules.shape(source).map_err(unreadable)?;
        if let Some(Value::Object(sent)) = sent {
            let mut unknown = Vec::new();
            lost("", &sent, &object, &mut unknown);
            if !unknown.is_empty() {
                return Err(unreadable(format!(
                    "strict decoding error: {}",
                    unknown.join(", ")
                )));
            }
        }
        self.check_kind(&object)?;
        rules.default(&mut object);
        Ok(rules.inward(object))
    }

    /// Runs the garbage collector after a write.
    fn collect(&self, garbage: Garbage) {
        garbage_collector::collect(garbage, self.shared);
    }

    fn check_kind(&self, object: &Object) -> Result<(), StatusError> {
        let Kind {
            kind, api_version, ..
        } = &**self.kind;
        for (name, wanted) in [("kind", kind), ("apiVersion", api_version)] {
            match object.get(name).and_then(Value::as_str) {
                Some(given) if *given != **wanted && self.shared.is_custom(self.kind) => {
                    let error = FieldError::invalid(name, &given.into(), &format!("must be {wanted}"));
                    let object_name = meta::text(object, "name");
                    let refusal = status::invalid(self.kind, object_name, &[error]);
                    return Err(refusal);
                }
                Some(given) if *given != **wanted => {
                    let why = format!(
                        "the {name} in the data ({given}) does not match the expected {name} ({wanted})"
                    );
                    return Err(status::bad_request(why));
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn draft(&self, object: &Object) -> Draft {
        let fields = rules::selectable(&*self.kind.rules, object);
        Draft::new(
            &self.kind.stored_as,
            &self.kind.kind,
            object,
            Head::of(object, fields),
        )
    }
}

/// Collects the fields that were sent and dropped.
fn lost(path: &str, sent: &Object, kept: &Object, unknown: &mut Vec<String>) {
    for (name, value) in sent {
        let at = if path.is_empty() {
            name.clone()
        } else {
            format!("{path}.{name}")
        };
        // Empty values may be dropped without being unknown.
        let empty = match value {
            Value::Null => true,
            Value::Array(items) => items.is_empty(),
            Value::Object(members) => members.is_empty(),
            _ => false,
        };
        match (value, kept.get(name)) {
            (_, None) if empty => {}
            (_, None) => unknown.push(format!("unknown field {at:?}")),
            (Value::Object(sent), Some(Value::Object(kept))) => lost(&at, sent, kept, unknown),
            (Value::Array(sent), Some(Value::Array(kept))) => {
                for (i, pair) in sent.iter().zip(kept).enumerate() {
                    if let (Value::Object(sent), Value::Object(kept)) = pair {
                        lost(&format!("{at}[{i}]"), sent, kept, unknown);
                    }
                }
            }
            _ => {}
        }
    }
}
