//! What differs from kind to kind: every kind implements [`Rules`], most of them by leaving nearly
//! all as it is.

use std::marker::PhantomData;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::Shared;
use super::error::{FieldError, StatusError};
use super::store::Object;

/// The rules of a kind.
pub(crate) trait Rules: Send + Sync {
    /// Brings what a client sent into the shape of the kind: checks types, and leaves out what the
    /// kind does not know. Fails with a sentence that says what can't be read.
    fn shape(&self, source: Source<'_>) -> Result<Object, String>;

    /// Fills in what was left open. Applied to everything that a client sends.
    fn default(&self, _object: &mut Object) {}

    /// Makes an object ready to be created: what only the server sets, and what depends on the rest
    /// of the cluster.
    fn prepare(&self, _object: &mut Object, _shared: &Shared) -> Result<(), StatusError> {
        Ok(())
    }

    /// What is wrong with an object.
    fn check(&self, _object: &Object) -> Vec<FieldError> {
        Vec::new()
    }

    /// Makes an object ready to replace another: restores what may not change without a word.
    fn change(&self, _new: &mut Object, _old: &Object, _shared: &Shared) -> Result<(), StatusError> {
        Ok(())
    }

    /// What is wrong with replacing an object by another.
    fn check_change(&self, _new: &Object, _old: &Object) -> Vec<FieldError> {
        Vec::new()
    }

    /// All that is wrong with an object that replaces another.
    fn check_update(&self, new: &Object, old: &Object) -> Vec<FieldError> {
        let mut errors = self.check(new);
        errors.extend(self.check_change(new, old));
        errors
    }

    /// Makes an object whose status alone is written ready to replace another.
    fn change_status(&self, new: &mut Object, old: &Object) {
        restore_all_but(new, old, &["metadata", "status"]);
    }

    /// What is wrong with a new status.
    fn check_status(&self, _new: &Object, _old: &Object) -> Vec<FieldError> {
        Vec::new()
    }

    /// How long an object may take to go, if the kind knows such a time.
    fn grace(&self, _object: &Object, _wanted: Option<i64>) -> Option<i64> {
        None
    }

    /// Why an object may not be removed, if so.
    fn may_go(&self, _object: &Object) -> Result<(), &'static str> {
        Ok(())
    }

    /// An object has been asked to go and waits for something.
    fn goes(&self, _object: &mut Object) {}

    /// Whether an object of the kind, though deleted and without finalizers, is not removed at
    /// once.
    fn lingers(&self, _object: &Object) -> bool {
        false
    }

    /// Something has been created, changed or removed.
    fn after(&self, _now: Option<&Object>, _shared: &Shared) {}

    /// An object that was made ready is not created after all: what was taken for it is free.
    fn abandon(&self, _object: &Object, _shared: &Shared) {}

    /// An object was removed: what it held is free.
    fn release(&self, _object: &Object, _shared: &Shared) {}

    /// The names of the fields that can be selected by.
    fn selectable(&self) -> &'static [&'static str] {
        &[]
    }

    /// From the form in which the kind is served to the one in which it is stored.
    fn inward(&self, object: Object) -> Object {
        object
    }

    /// From the form in which the kind is stored to the one in which it is served; none where they
    /// are the same.
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
            // An absent flag is one that is not set.
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
    /// It as a JSON value.
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

/// Where and why something can't be read: the path is only looked for once it is needed.
fn why_not<T: DeserializeOwned>(text: &[u8]) -> String {
    let mut reader = serde_json::Deserializer::from_slice(text);
    match serde_path_to_error::deserialize::<_, T>(&mut reader) {
        Err(error) => error.to_string(),
        Ok(_) => "it can't be read".to_owned(),
    }
}

/// Reads an object as a type and writes it again: whatever the type does not know is gone.
pub(crate) fn typed<T: DeserializeOwned + Serialize>(source: Source<'_>) -> Result<Object, String> {
    let typed: T = source.read()?;
    match serde_json::to_value(&typed) {
        Ok(Value::Object(object)) => Ok(object),
        Ok(_) => Err("it is no object".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

/// As [`typed`], and without lists and maps that are empty.
pub(crate) fn through<T: DeserializeOwned + Serialize>(source: Source<'_>) -> Result<Object, String> {
    let mut object = typed::<T>(source)?;
    object.values_mut().for_each(drop_empty);
    Ok(object)
}

/// Maps whose being empty is the same as their not being there.
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

/// Lists and maps that are empty are not written, as by Kubernetes itself.
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

/// Makes everything but some members what it was.
pub(crate) fn restore_all_but(new: &mut Object, old: &Object, members: &[&str]) {
    let free = |name: &str| members.contains(&name);
    new.retain(|name, _| free(name) || old.contains_key(name));
    for (name, value) in old.iter().filter(|(name, _)| !free(name)) {
        if new.get(name) != Some(value) {
            new.insert(name.clone(), value.clone());
        }
    }
}

/// Makes a member what it was.
pub(crate) fn restore(new: &mut Object, old: &Object, member: &str) {
    match old.get(member) {
        Some(value) => new.insert(member.to_owned(), value.clone()),
        None => new.remove(member),
    };
}

/// The rules of a kind that has none but its shape.
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
