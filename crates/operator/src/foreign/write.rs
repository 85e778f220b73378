//! The writes. The leadership is checked right before each. Each names the version it was decided
//! on.

use std::sync::Arc;

use http::Method;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use serde::Serialize;
use serde::de::{DeserializeOwned, IgnoredAny};
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use trainyard_api::{ScaleKind, TrainingJob};
use trainyard_core::foreign::{ForeignKind, ForeignNote, NewRequest};

use super::ForeignReconciler;
use super::store::Entry;
use crate::act::request::{Answer, DeleteOptions, Path, request};
use crate::act::{Class, RequestError, Result};
use crate::index::JobKey;

/// The members of a condition that are times.
const TIMES: [&str; 2] = ["lastTransitionTime", "lastUpdateTime"];

fn group(kind: &dyn ForeignKind) -> String {
    format!("/apis/{}/{}", kind.group(), kind.version())
}

/// Returns the path of all objects of a kind, in one namespace or in all.
pub(super) fn collection(kind: &dyn ForeignKind, namespace: Option<&str>) -> String {
    match namespace {
        Some(namespace) => format!("{}/namespaces/{namespace}/{}", group(kind), kind.plural()),
        None => format!("{}/{}", group(kind), kind.plural()),
    }
}

impl ForeignReconciler {
    fn path(&self, key: &JobKey) -> Path {
        Path::of(&group(self.kind), &key.namespace, self.kind.plural(), &key.name)
    }

    pub(super) async fn create(
        &self,
        key: &JobKey,
        job: &TrainingJob,
        term: &CancellationToken,
    ) -> Result<()> {
        let path = Path::job(&key.namespace, "").by_us();
        let sent = self
            .send::<IgnoredAny>(Method::POST, &path, Class::Urgent, Some(job), term)
            .await;
        sent.map(drop)
    }

    pub(super) async fn create_request(
        &self,
        key: &JobKey,
        request: &NewRequest,
        term: &CancellationToken,
    ) -> Result<()> {
        let (kind, body) = match request {
            NewRequest::ScaleIn(request) => (ScaleKind::ScaleIn, json!(request)),
            NewRequest::ScaleOut(request) => (ScaleKind::ScaleOut, json!(request)),
        };
        let group = format!("/apis/{}/{}", trainyard_api::GROUP, trainyard_api::VERSION);
        let path = Path::of(&group, &key.namespace, kind.plural(), "").by_us();
        let sent = self
            .send::<IgnoredAny>(Method::POST, &path, Class::Urgent, Some(&body), term)
            .await;
        sent.map(drop)
    }

    /// Gives an object more owners, if it still has the version that was seen.
    pub(super) async fn add_owners(
        &self,
        key: &JobKey,
        entry: &Entry,
        more: &[OwnerReference],
        term: &CancellationToken,
    ) -> Result<()> {
        let of_object = |field: &str| entry.object.pointer(&format!("/metadata/{field}")).cloned();
        let owners = of_object("ownerReferences");
        let mut owners = owners
            .and_then(|owners| owners.as_array().cloned())
            .unwrap_or_default();
        owners.extend(more.iter().map(|owner| json!(owner)));
        let change = json!({"metadata": {
            "uid": of_object("uid"),
            "resourceVersion": of_object("resourceVersion"),
            "ownerReferences": owners,
        }});
        let path = self.path(key).by_us();
        let answer: Box<RawValue> = self
            .send(Method::PATCH, &path, Class::Status, Some(&change), term)
            .await?;
        self.answered(key, &answer).map(drop)
    }

    pub(super) async fn replace(
        &self,
        key: &JobKey,
        job: &TrainingJob,
        term: &CancellationToken,
    ) -> Result<()> {
        let path = Path::job(&key.namespace, &key.name).by_us();
        let sent = self
            .send::<IgnoredAny>(Method::PUT, &path, Class::Urgent, Some(job), term)
            .await;
        sent.map(drop)
    }

    /// Writes the status of an object and records events about what has changed. Returns false if
    /// that status was written before and the server did not keep it: its definition may lack
    /// fields.
    pub(super) async fn write_status(
        &self,
        key: &JobKey,
        entry: &Entry,
        status: Value,
        term: &CancellationToken,
    ) -> Result<bool> {
        let timeless = timeless(&status);
        let shown = entry.object.get("status").cloned().unwrap_or_default();
        let written = entry.local.written_status.as_deref();
        // It counts while the server shows what it kept of it.
        let written = written
            .filter(|(_, kept)| *kept == shown)
            .map(|(written, _)| written);
        if written == Some(&timeless) {
            return Ok(false);
        }
        let mut object = (*entry.object).clone();
        if let Some(members) = object.as_object_mut() {
            members.insert("status".to_owned(), status);
        }
        let path = self.path(key).status().by_us();
        let sent: Result<Box<RawValue>> = self
            .send(Method::PUT, &path, Class::Status, Some(&object), term)
            .await;
        let kept = match sent {
            Ok(answer) => {
                let kept = self.answered(key, &answer)?;
                let keeps = self::timeless(&kept) == timeless;
                // If the status is not kept, nobody knows what a former process wrote.
                let before = written.or_else(|| (keeps || entry.local.created.is_some()).then_some(&shown));
                self.note(entry, &self.kind.notes(before, &timeless));
                kept
            }
            // The definition has no status. It is tried again when the status changes.
            Err(RequestError::Gone) => shown,
            Err(error) => return Err(error),
        };
        let written = Some(Arc::new((timeless, kept)));
        self.store.remember(key, &entry.uid, |local| {
            local.written_status = written;
            local.unwritten_since = None;
        });
        Ok(true)
    }

    /// Takes the answer to a write. Returns the status that the server kept.
    fn answered(&self, key: &JobKey, answer: &RawValue) -> Result<Value> {
        let kept = self.store.answered(key, answer.get());
        kept.map_err(|error| RequestError::Transient(error.to_string(), None))
    }

    /// Records events about an object.
    pub(super) fn note(&self, entry: &Entry, notes: &[ForeignNote]) {
        if notes.is_empty() {
            return;
        }
        let text = |field: &str| Some(entry.object.get("metadata")?.get(field)?.as_str()?.to_owned());
        let metadata = ObjectMeta {
            name: text("name"),
            namespace: text("namespace"),
            uid: text("uid"),
            resource_version: text("resourceVersion"),
            ..ObjectMeta::default()
        };
        let now = self.context.clock.now();
        let recorder = &self.context.recorder;
        for note in notes {
            recorder.record_foreign(self.kind, &metadata, note, now);
        }
    }

    /// Deletes an object, if it still has the version that was seen.
    pub(super) async fn delete(&self, key: &JobKey, entry: &Entry, term: &CancellationToken) -> Result<()> {
        let version = entry
            .object
            .pointer("/metadata/resourceVersion")
            .and_then(Value::as_str);
        let options = DeleteOptions::new(&entry.uid, None).of_version(version.unwrap_or_default());
        let path = self.path(key);
        let sent = self
            .send::<IgnoredAny>(Method::DELETE, &path, Class::Urgent, Some(&options), term)
            .await;
        match sent {
            Ok(_) | Err(RequestError::Gone | RequestError::Replaced) => Ok(()),
            Err(error) => Err(error),
        }
    }

    pub(super) async fn send<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &Path,
        class: Class,
        body: Option<&impl Serialize>,
        term: &CancellationToken,
    ) -> Result<T> {
        let request = request(method, path, Answer::Whole, body)?;
        self.context.send(class, request, term).await
    }
}

/// Returns a status without the times of its conditions.
fn timeless(status: &Value) -> Value {
    let mut status = status.clone();
    let conditions = status.get_mut("conditions").and_then(Value::as_array_mut);
    for condition in conditions.into_iter().flatten().filter_map(Value::as_object_mut) {
        condition.retain(|member, _| !TIMES.contains(&member.as_str()));
    }
    status
}
