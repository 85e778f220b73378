//! The rules of kinds: every kind implements [`Rules`], most of them with its defaults.

use std::marker::PhantomData;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::Shared;
use super::error::{FieldError, StatusError};
use super::store::Object;

/// The rules of a kind.
pub(crate) trait Rules: Send + Sync {
    /// Decodes what a client sent: checks types and removes unknown fields. The error says what
    /// can't be read.
    fn shape(&self, source: Source<'_>) -> Result<Object, String>;

    /// Applies defaults to everything that a client sends.
    fn default(&self, _object: &mut Object) {}

    /// Prepares an object for its creation: fields that the server sets, and defaults that depend
    /// on other objects.
    fn prepare(&self, _object: &mut Object, _shared: &Shared) -> Result<(), StatusError> {
        Ok(())
    }

    /// The errors of an object.
    fn check(&self, _object: &Object) -> Vec<FieldError> {
        Vec::new()
    }

    /// Prepares an update: restores fields whose changes are ignored.
    fn change(&self, _new: &mut Object, _old: &Object, _shared: &Shared) -> Result<(), StatusError> {
        Ok(())
    }

    /// The errors of an update.
    fn check_change(&self, _new: &Object, _old: &Object) -> Vec<FieldError> {
        Vec::new()
    }

    /// All errors of an updated object.
    fn check_update(&self, new: &Object, old: &Object) -> Vec<FieldError> {
        let mut errors = self.check(new);
        errors.extend(self.check_change(new, old));
        errors
    }

    /// Prepares an update of the status.
    fn change_status(&self, new: &mut Object, old: &Object) {
        restore_all_but(new, old, &["metadata", "status"]);
    }

    /// The errors of a new status.
    fn check_status(&self, _new: &Object, _old: &Object) -> Vec<FieldError> {
        Vec::new()
    }

    /// The grace period of a deletion; None if the kind has none.
    fn grace(&self, _object: &Object, _wanted: Option<i64>) -> Option<i64> {
        None
    }

    /// Refuses a deletion.
    fn may_go(&self, _object: &Object) -> Result<(), &'static str> {
        Ok(())
    }

    /// Called when an object becomes terminating and is not removed yet.
    fn goes(&self, _object: &mut Object) {}

    /// Whether a deleted object without finalizers is kept for now.
    fn lingers(&self, _object: &Object) -> bool {
        false
    }

    /// Called after a creation, an update or a deletion.
    fn after(&self, _now: Option<&Object>, _shared: &Shared) {}

    /// Called if a prepared object is not created: frees what [`Self::prepare`] took.
    fn abandon(&self, _object: &Object, _shared: &Shared) {}

    /// Called when an object was removed: frees what it held.
    fn release(&self, _object: &Object, _shared: &Shared) {}

    /// Fields for field selectors.
    fn selectable(&self) -> &'static [&'static str] {
        &[]
    }

    /// Converts from the served to the stored version.
    fn inward(&self, object: Object) -> Object {
        object
    }

    /// Converts from the stored to the served version; None where they are the same.
    fn outward(&self) -> Option<fn(Object) -> Object> {
        None
    }
}

/// The value of every selectable field.
pub(crate) fn selectable(rules: &dyn Rules, object: &Object) -> Vec<(&'static str, Box<str>)> {
    let value = |path: &str| -> Box<str> {
        let mut parts = path.split('.');
        let first = parts.next().and_then(|part| object.get(part));
        match parts.fold(first, |value, part| value?.get(part)) {
            Some(Value::String(text)) => text.as_str().into(),
            Some(Value::Bool(value)) => value.to_string().into(),
            // Absent means false.
            None if path == "spec.unschedulable" => "false".into(),
            _ => "".into(),
        }
    };
    rules
        .selectable()
        .iter()
        .map(|path| (*path, value(path)))
        .collect()
}

/// What a client sent, or what a patch made of an object.
pub(crate) enum Source<'a> {
    Text(&'a [u8]),
    Value(Value),
}

impl Source<'_> {
    pub(crate) fn value(self) -> Result<Value, String> {
        match self {
            Source::Text(text) => serde_json::from_slice(text).map_err(|error| error.to_string()),
            Source::Value(value) => Ok(value),
        }
    }

    fn read<T: DeserializeOwned>(self) -> Result<T, String> {
        match self {
            Source::Text(text) => serde_json::from_slice(text).map_err(|_| why_not::<T>(text)),
            Source::Value(value) => {
                T::deserialize(&value).map_err(|_| why_not::<T>(value.to_string().as_bytes()))
            }
        }
    }
}

/// Says where and why something can't be read. It is decoded again with the path, which would be
/// slow for valid objects.
fn why_not<T: DeserializeOwned>(text: &[u8]) -> String {
    let mut reader = serde_json::Deserializer::from_slice(text);
    match serde_path_to_error::deserialize::<_, T>(&mut reader) {
        Err(error) => error.to_string(),
        Ok(_) => "it can't be read".to_owned(),
    }
}

/// Decodes an object as a type and encodes it again, which drops unknown fields.
pub(crate) fn typed<T: DeserializeOwned + Serialize>(source: Source<'_>) -> Result<Object, String> {
    let typed: T = source.read()?;
    match serde_json::to_value(&typed) {
        Ok(Value::Object(object)) => Ok(object),
        Ok(_) => Err("it is no object".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

/// Like [`typed`], and drops empty lists and maps.
pub(crate) fn through<T: DeserializeOwned + Serialize>(source: Source<'_>) -> Result<Object, String> {
    let mut object = typed::<T>(source)?;
    object.values_mut().for_each(drop_empty);
    Ok(object)
}

/// Maps that are dropped when they are empty.
const MAPS: &[&str] = &[
    "labels",
    "annotations",
    "nodeSelector",
    "limits",
    "requests",
    "matchLabels",
    "data",
    "binaryData",
    "stringData",
];

/// Drops empty lists and maps, as Kubernetes does.
pub(crate) fn drop_empty(value: &mut Value) {
    match value {
        Value::Object(object) => {
            object.retain(|name, value| {
                drop_empty(value);
                match value {
                    Value::Array(items) => !items.is_empty(),
                    Value::Object(members) => !members.is_empty() || !MAPS.contains(&name.as_str()),
                    Value::Null => false,
                    _ => true,
                }
            });
        }
        Value::Array(items) => items.iter_mut().for_each(drop_empty),
        _ => {}
    }
}

/// Restores everything but some members.
pub(crate) fn restore_all_but(new: &mut Object, old: &Object, members: &[&str]) {
    let free = |name: &str| members.contains(&name);
    new.retain(|name, _| free(name) || old.contains_key(name));
    for (name, value) in old.iter().filter(|(name, _)| !free(name)) {
        if new.get(name) != Some(value) {
            new.insert(name.clone(), value.clone());
        }
    }
}

/// Restores a member.
pub(crate) fn restore(new: &mut Object, old: &Object, member: &str) {
    match old.get(member) {
        Some(value) => new.insert(member.to_owned(), value.clone()),
        None => new.remove(member),
    };
}

/// The rules of a kind that only has a type.
pub(crate) struct Plain<T> {
    selectable: &'static [&'static str],
    shape: PhantomData<fn() -> T>,
}

impl<T> Plain<T> {
    pub(crate) fn new() -> Self {
        Self::selecting(&[])
    }

    pub(crate) fn selecting(selectable: &'static [&'static str]) -> Self {
        Self {
            selectable,
            shape: PhantomData,
        }
    }
}

impl<T: DeserializeOwned + Serialize> Rules for Plain<T> {
    fn shape(&self, source: Source<'_>) -> Result<Object, String> {
        through::<T>(source)
    }

    fn selectable(&self) -> &'static [&'static str] {
        self.selectable
    }
}
