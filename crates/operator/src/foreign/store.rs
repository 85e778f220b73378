//! The objects of one kind, as the server last showed them, and the local state of each.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::Value;
use tokio::time::Instant;
use trainyard_core::bounds;
use trainyard_core::foreign::Obstacle;

use crate::index::{JobKey, Source};
use crate::list_scopes::{ListScopes, Sighting};
use crate::slim::{SlimMeta, Version};

/// The field manager of our writes.
const OURS: &str = "trainyard";

#[derive(Clone, Debug)]
pub(super) struct Entry {
    /// The object without its `managedFields`, and without its spec if it is too large.
    pub object: Arc<Value>,
    /// What is too large in it.
    pub excess: Option<Arc<str>>,
    pub uid: Arc<str>,
    /// Another field manager that writes the status.
    pub other_writer: Option<Arc<str>>,
    pub local: LocalState,
    seen: Sighting,
}

/// What this process remembers of an object and the server does not know.
#[derive(Clone, Debug, Default)]
pub(super) struct LocalState {
    /// When the child was created.
    pub created: Option<Instant>,
    /// Why the child can't be written.
    pub obstacle: Option<Arc<Obstacle>>,
    /// The status that was last written, and what the server kept of it.
    pub written_status: Option<Arc<(Value, Value)>>,
    /// Since when there is a status that was not written because it can wait.
    pub unwritten_since: Option<Instant>,
    /// We have deleted the object.
    pub deleted: bool,
}

#[derive(Debug)]
pub(super) struct Store {
    inner: Mutex<Inner>,
}

#[derive(Debug)]
struct Inner {
    entries: HashMap<JobKey, Entry>,
    scopes: ListScopes,
}

#[derive(Deserialize)]
struct Managed {
    metadata: ManagedFields,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ManagedFields {
    #[serde(default)]
    managed_fields: Option<Vec<Written>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Written {
    #[serde(default)]
    manager: String,
    #[serde(default)]
    subresource: Option<String>,
}

struct ObjectVersion {
    key: JobKey,
    uid: Arc<str>,
    version: Version,
}

impl ObjectVersion {
    fn of(object: &Value) -> Option<Self> {
        let text = |field: &str| object.get("metadata")?.get(field)?.as_str();
        Some(Self {
            key: JobKey::new(text("namespace").unwrap_or_default(), text("name")?),
            uid: text("uid")?.into(),
            version: Version::parse(text("resourceVersion").unwrap_or_default()),
        })
    }
}

impl Store {
    /// Makes a store of some scopes: of namespaces, or of one for all.
    pub(super) fn new(scopes: usize) -> Self {
        Self {
            inner: Mutex::new(Inner {
                entries: HashMap::new(),
                scopes: ListScopes::new(scopes),
            }),
        }
    }

    pub(super) fn get(&self, key: &JobKey) -> Option<Entry> {
        self.inner.lock().entries.get(key).cloned()
    }

    pub(super) fn contains(&self, key: &JobKey) -> bool {
        self.inner.lock().entries.contains_key(key)
    }

    pub(super) fn keys(&self) -> Vec<JobKey> {
        self.inner.lock().entries.keys().cloned().collect()
    }

    /// Returns true if all scopes have been listed.
    pub(super) fn is_listed(&self) -> bool {
        self.inner.lock().scopes.is_listed()
    }

    /// Takes an object. Returns its version, and its key if it has changed.
    pub(super) fn apply(
        &self,
        json: &str,
        scope: usize,
        source: Source,
    ) -> serde_json::Result<(Version, Option<JobKey>)> {
        let Managed { metadata } = serde_json::from_str(json)?;
        let (object, excess) = decode(json)?;
        let written = metadata.managed_fields.unwrap_or_default();
        let other_writer = written
            .into_iter()
            .find(|written| written.subresource.as_deref() == Some("status") && written.manager != OURS)
            .map(|written| Arc::from(written.manager));
        let Some(identity) = ObjectVersion::of(&object) else {
            return Err(serde::de::Error::custom("it has neither name nor UID"));
        };
        let version = identity.version;
        let changed = self
            .inner
            .lock()
            .put(identity, (object, excess), other_writer, scope, source);
        Ok((version, changed))
    }

    /// Takes the answer to a write, unless a newer version is known. Returns the status that the
    /// server kept.
    pub(super) fn answered(&self, key: &JobKey, answer: &str) -> serde_json::Result<Value> {
        let (answer, _) = decode(answer)?;
        let kept = answer.get("status").cloned().unwrap_or_default();
        let identity = ObjectVersion::of(&answer);
        if let (Some(identity), Some(entry)) = (identity, self.inner.lock().entries.get_mut(key))
            && identity.uid == entry.uid
            && identity.version > entry.seen.version
        {
            entry.seen.version = identity.version;
            entry.object = Arc::new(answer);
        }
        Ok(kept)
    }

    /// Changes the local state of an object.
    pub(super) fn remember(&self, key: &JobKey, uid: &str, change: impl FnOnce(&mut LocalState)) {
        if let Some(entry) = self
            .inner
            .lock()
            .entries
            .get_mut(key)
            .filter(|entry| *entry.uid == *uid)
        {
            change(&mut entry.local);
        }
    }

    /// Removes a deleted object. Returns its version.
    pub(super) fn gone(&self, json: &str, scope: usize) -> serde_json::Result<Version> {
        let SlimMeta { metadata } = serde_json::from_str(json)?;
        if metadata.name.is_empty() || metadata.uid.is_empty() {
            return Ok(Version::default());
        }
        let (key, version) = (
            JobKey::new(&metadata.namespace, &metadata.name),
            metadata.resource_version,
        );
        let mut inner = self.inner.lock();
        inner.scopes.reach(scope, version);
        if inner
            .entries
            .get(&key)
            .is_some_and(|entry| *entry.uid == *metadata.uid)
        {
            inner.entries.remove(&key);
        }
        Ok(version)
    }

    /// A list of a version begins.
    pub(super) fn listing(&self, scope: usize, version: Version) {
        let mut inner = self.inner.lock();
        if inner.scopes.begin_list(scope, version) {
            let here = inner.entries.values_mut().filter(|entry| entry.seen.is_in(scope));
            here.for_each(|entry| entry.seen.version = Version(0));
        }
    }

    /// A list is complete: objects that it did not have are gone.
    pub(super) fn listed(&self, scope: usize, version: Version) {
        let mut inner = self.inner.lock();
        let is_gone = inner.scopes.complete_list(scope, version);
        inner.entries.retain(|_, entry| !is_gone(&entry.seen));
    }

    /// The kind does not exist, or may not be listed: there are no objects to reconcile.
    pub(super) fn refused(&self, scope: usize) {
        let mut inner = self.inner.lock();
        inner.entries.retain(|_, entry| !entry.seen.is_in(scope));
        inner.scopes.give_up(scope);
    }
}

/// Decodes an object without its `managedFields`, and without its spec if it is too large. Returns
/// what is too large in it, too.
fn decode(json: &str) -> serde_json::Result<(Value, Option<Arc<str>>)> {
    let excess = bounds::excess(json);
    let object = match &excess {
        Some(_) => bounds::decode_small(json)?,
        None => bounds::decode(json)?,
    };
    let excess = excess.map(|excess| Arc::from(format!("{}: {}", excess.path, excess.message)));
    Ok((object, excess))
}

impl Inner {
    fn put(
        &mut self,
        identity: ObjectVersion,
        (object, excess): (Value, Option<Arc<str>>),
        other_writer: Option<Arc<str>>,
        scope: usize,
        source: Source,
    ) -> Option<JobKey> {
        let ObjectVersion { key, uid, version } = identity;
        let seen = self.scopes.see(scope, version, source);
        let local = match self.entries.get_mut(&key) {
            Some(known) if known.uid == uid => {
                if known.seen.covers(&seen) {
                    return None;
                }
                std::mem::take(&mut known.local)
            }
            _ => LocalState::default(),
        };
        let entry = Entry {
            object: Arc::new(object),
            excess,
            uid,
            other_writer,
            local,
            seen,
        };
        self.entries.insert(key.clone(), entry);
        Some(key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::budget::KIB;
    use crate::budget::tests::peak_growth;

    #[test]
    fn of_what_is_gone_only_its_identity_is_decoded() {
        let object = |spec: &str| {
            let metadata = r#"{"name":"a","namespace":"b","uid":"u","resourceVersion":"7"}"#;
            format!(r#"{{"metadata":{metadata},"spec":{spec}}}"#)
        };
        let store = Store::new(1);
        let large = object(&format!("[{}{{}}]", "{},".repeat(300_000)));
        // What is made once is not of an object.
        store.gone(&object("[]"), 0).unwrap();
        store.apply(&object("{}"), 0, Source::Watch).unwrap();
        let (growth, version) = peak_growth(|| store.gone(&large, 0).unwrap());
        assert_eq!(version, Version(7));
        assert!(!store.contains(&JobKey::new("b", "a")));
        assert!(growth <= 64 * KIB, "{} KiB", growth / KIB);
    }
}
