//! One version of an object: its JSON, encoded once, and what is needed without decoding it.

use std::sync::Arc;

use bytes::Bytes;
use serde_json::{Map, Value};

pub(crate) type Object = Map<String, Value>;

/// What selectors, the garbage collector and watches need of an object.
#[derive(Debug, Default)]
pub(crate) struct Head {
    /// Empty for cluster-scoped objects.
    pub(crate) namespace: Box<str>,
    pub(crate) name: Box<str>,
    pub(crate) uid: Box<str>,
    pub(crate) labels: Box<[(Box<str>, Box<str>)]>,
    /// UIDs.
    pub(crate) owners: Box<[Box<str>]>,
    /// Selectable fields besides name and namespace.
    pub(crate) fields: Box<[(&'static str, Box<str>)]>,
    pub(crate) terminating: bool,
}

impl Head {
    pub(crate) fn of(object: &Object, fields: Vec<(&'static str, Box<str>)>) -> Self {
        let metadata = object.get("metadata");
        let text = |name: &str| -> Box<str> {
            let text = metadata.and_then(|metadata| metadata.get(name)?.as_str());
            text.unwrap_or_default().into()
        };
        let labels = metadata
            .and_then(|metadata| metadata.get("labels")?.as_object())
            .into_iter()
            .flatten()
            .map(|(name, value)| (name.as_str().into(), value.as_str().unwrap_or_default().into()));
        let owners = metadata
            .and_then(|metadata| metadata.get("ownerReferences")?.as_array())
            .into_iter()
            .flatten()
            .filter_map(|owner| Some(owner.get("uid")?.as_str()?.into()));
        Self {
            namespace: text("namespace"),
            name: text("name"),
            uid: text("uid"),
            labels: labels.collect(),
            owners: owners.collect(),
            fields: fields.into(),
            terminating: metadata.is_some_and(|metadata| metadata.get("deletionTimestamp").is_some()),
        }
    }

    pub(crate) fn label(&self, name: &str) -> Option<&str> {
        let at = self
            .labels
            .binary_search_by(|(label, _)| (**label).cmp(name))
            .ok()?;
        self.labels.get(at).map(|(_, value)| &**value)
    }

    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        match name {
            "metadata.name" => Some(&self.name),
            "metadata.namespace" => Some(&self.namespace),
            _ => self
                .fields
                .iter()
                .find(|(field, _)| *field == name)
                .map(|(_, value)| &**value),
        }
    }

    /// Its key in its table. Lists are in the order of keys.
    pub(crate) fn key(&self) -> Arc<str> {
        key(&self.namespace, &self.name)
    }
}

pub(crate) fn key(namespace: &str, name: &str) -> Arc<str> {
    if namespace.is_empty() {
        return name.into();
    }
    let mut key = String::with_capacity(namespace.len() + 1 + name.len());
    key.push_str(namespace);
    key.push('/');
    key.push_str(name);
    key.into()
}

/// An encoded object without its version.
#[derive(Debug)]
pub(crate) struct Draft {
    pub(crate) head: Arc<Head>,
    json: Vec<u8>,
    offsets: Offsets,
}

/// Positions in the JSON of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Offsets {
    metadata: usize,
    /// The start of the version.
    version: usize,
    /// The end of the metadata, from the end of the version.
    metadata_left: usize,
}

impl Draft {
    /// Encodes an object. The version is inserted when it is stored, so that the lock is not held
    /// while encoding.
    pub(crate) fn new(api_version: &str, kind: &str, object: &Object, head: Head) -> Self {
        let mut json = Vec::with_capacity(2048);
        json.extend_from_slice(b"{\"kind\":");
        write(&mut json, &kind);
        json.extend_from_slice(b",\"apiVersion\":");
        write(&mut json, &api_version);
        json.extend_from_slice(b",\"metadata\":");
        let metadata = json.len();
        json.extend_from_slice(b"{\"resourceVersion\":\"");
        let version = json.len();
        json.push(b'"');
        let of_object = object.get("metadata").and_then(Value::as_object);
        for (name, value) in of_object
            .into_iter()
            .flatten()
            .filter(|(name, _)| *name != "resourceVersion")
        {
            member(&mut json, name, value);
        }
        json.push(b'}');
        let metadata_left = json.len() - version;
        let apart = ["apiVersion", "kind", "metadata"];
        for (name, value) in object.iter().filter(|(name, _)| !apart.contains(&name.as_str())) {
            member(&mut json, name, value);
        }
        json.push(b'}');
        Self {
            head: Arc::new(head),
            json,
            offsets: Offsets {
                metadata,
                version,
                metadata_left,
            },
        }
    }

    pub(crate) fn stored(&self, version: u64) -> Stored {
        let digits = version.to_string();
        let (before, after) = self.json.split_at(self.offsets.version);
        Stored {
            version,
            head: self.head.clone(),
            json: [before, digits.as_bytes(), after].concat().into(),
            digits: digits.len(),
            offsets: self.offsets,
        }
    }

    /// Whether it equals a stored object, the version aside.
    pub(crate) fn says_the_same_as(&self, stored: &Stored) -> bool {
        let (before, after) = self.json.split_at(self.offsets.version);
        self.offsets == stored.offsets && *before == *stored.before() && *after == *stored.after()
    }

    /// Its JSON without a version, for dry runs.
    pub(crate) fn unversioned(&self) -> Stored {
        let mut stored = self.stored(0);
        let member = stored.offsets.version - b"\"resourceVersion\":\"".len();
        let rest = stored.offsets.version + stored.digits + b"\",".len();
        let json = [&stored.json[..member], &stored.json[rest..]].concat();
        let gone = rest - member;
        stored.offsets.metadata_left -= b"\",".len();
        stored.offsets.version = stored.offsets.version + stored.digits + b"\",".len() - gone;
        stored.digits = 0;
        stored.json = json.into();
        stored
    }
}

fn member(json: &mut Vec<u8>, name: &str, value: &Value) {
    json.push(b',');
    write(json, &name);
    json.push(b':');
    write(json, value);
}

fn write(json: &mut Vec<u8>, value: &(impl serde::Serialize + ?Sized)) {
    // Writing a JSON value to memory can't fail.
    let written = serde_json::to_writer(&mut *json, value);
    debug_assert!(written.is_ok());
}

#[derive(Debug)]
pub(crate) struct Stored {
    pub(crate) version: u64,
    pub(crate) head: Arc<Head>,
    json: Bytes,
    digits: usize,
    offsets: Offsets,
}

impl Stored {
    pub(crate) fn json(&self) -> &Bytes {
        &self.json
    }

    pub(crate) fn metadata(&self) -> Bytes {
        let end = self.offsets.version + self.digits + self.offsets.metadata_left;
        self.json.slice(self.offsets.metadata..end)
    }

    /// What follows kind and apiVersion: `"metadata":{...},...}`.
    pub(crate) fn rest(&self) -> &[u8] {
        &self.json[self.offsets.metadata - b"\"metadata\":".len()..]
    }

    pub(crate) fn object(&self) -> Object {
        let object = serde_json::from_slice(&self.json);
        debug_assert!(object.is_ok(), "what was written can be read");
        object.unwrap_or_default()
    }

    /// The object with another version, for the event of its deletion.
    pub(crate) fn at(&self, version: u64) -> Self {
        let digits = version.to_string();
        Self {
            version,
            head: self.head.clone(),
            json: [self.before(), digits.as_bytes(), self.after()].concat().into(),
            digits: digits.len(),
            offsets: self.offsets,
        }
    }

    fn before(&self) -> &[u8] {
        &self.json[..self.offsets.version]
    }

    fn after(&self) -> &[u8] {
        &self.json[self.offsets.version + self.digits..]
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn draft() -> Draft {
        let object = json!({"metadata": {"name": "a", "labels": {"x": "1", "b": "2"}}, "spec": {"n": 1}});
        let object = object.as_object().unwrap().clone();
        let head = Head::of(&object, vec![("spec.n", "1".into())]);
        Draft::new("v1", "Thing", &object, head)
    }

    #[test]
    fn an_object_is_written_once_and_read_in_parts() {
        let stored = draft().stored(42);
        let whole = json!({"kind": "Thing", "apiVersion": "v1", "spec": {"n": 1},
            "metadata": {"name": "a", "resourceVersion": "42", "labels": {"x": "1", "b": "2"}}});
        assert_eq!(Value::Object(stored.object()), whole);
        let metadata: Value = serde_json::from_slice(&stored.metadata()).unwrap();
        assert_eq!(metadata, whole["metadata"]);
        assert!(stored.rest().starts_with(b"\"metadata\":{"));
        assert_eq!(
            (stored.head.label("b"), stored.head.label("c")),
            (Some("2"), None)
        );
        assert_eq!(stored.head.field("spec.n"), Some("1"));
    }

    #[test]
    fn only_the_version_changes() {
        let stored = draft().stored(9);
        let later = stored.at(10);
        assert_eq!(later.object()["metadata"]["resourceVersion"], "10");
        assert_eq!(later.metadata().len(), stored.metadata().len() + 1);
        assert!(draft().says_the_same_as(&later));
        let tried = draft().unversioned();
        assert_eq!(
            tried.object()["metadata"],
            json!({"name": "a", "labels": {"x": "1", "b": "2"}})
        );
        let metadata: Value = serde_json::from_slice(&tried.metadata()).unwrap();
        assert_eq!(metadata, tried.object()["metadata"]);
    }
}
