//! The requests as the server last showed them, by the job that they are about.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::Value;
use tokio::sync::mpsc;
use trainyard_api::{FieldError, JobRef, ScaleIn, ScaleKind, ScaleOut, ScaleRequestStatus};
use trainyard_core::bounds;
use trainyard_core::scale_request::ScaleRequest;

use crate::index::{JobKey, Source};
use crate::list_scopes::{ListScopes, Sighting};
use crate::slim::{SlimMeta, Version};

/// The longest name that an object can have.
const MAX_NAME: usize = 253;

/// A request.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub request: Arc<ScaleRequest>,
    job: JobKey,
    seen: Sighting,
}

/// The kind and the name of a request.
type Id = (ScaleKind, JobKey);

#[derive(Debug)]
pub(crate) struct Store {
    inner: Mutex<Inner>,
}

#[derive(Debug)]
struct Inner {
    entries: HashMap<Id, Entry>,
    /// The requests of each job; jobs without requests are not in it.
    by_job: HashMap<JobKey, BTreeSet<Id>>,
    scopes: ListScopes,
    /// Where the names of changed requests go.
    listeners: Vec<(ScaleKind, mpsc::UnboundedSender<JobKey>)>,
}

impl Store {
    /// Makes a store of some scopes: for each kind one of each namespace, or one for all.
    pub(crate) fn new(scopes: usize) -> Self {
        Self {
            inner: Mutex::new(Inner {
                entries: HashMap::new(),
                by_job: HashMap::new(),
                scopes: ListScopes::new(scopes),
                listeners: Vec::new(),
            }),
        }
    }

    /// Returns the requests of a job, in any order.
    pub(super) fn of_job(&self, job: &JobKey) -> Vec<Entry> {
        let inner = self.inner.lock();
        let ids = inner.by_job.get(job).into_iter().flatten();
        ids.filter_map(|id| inner.entries.get(id).cloned()).collect()
    }

    /// Returns a request by its own name.
    pub(crate) fn get(&self, kind: ScaleKind, key: &JobKey) -> Option<Arc<ScaleRequest>> {
        let inner = self.inner.lock();
        let entry = inner.entries.get(&(kind, key.clone()));
        entry.map(|entry| entry.request.clone())
    }

    /// Returns the names of requests of a kind, each when something about it has changed.
    pub(crate) fn listen(&self, kind: ScaleKind) -> mpsc::UnboundedReceiver<JobKey> {
        let (sender, receiver) = mpsc::unbounded_channel();
        self.inner.lock().listeners.push((kind, sender));
        receiver
    }

    pub(super) fn has_requests(&self, job: &JobKey) -> bool {
        self.inner.lock().by_job.contains_key(job)
    }

    /// Returns the jobs that have requests, whether these jobs exist or not.
    pub(super) fn jobs(&self) -> Vec<JobKey> {
        self.inner.lock().by_job.keys().cloned().collect()
    }

    /// Returns true if all scopes have been listed.
    pub(crate) fn is_listed(&self) -> bool {
        self.inner.lock().scopes.is_listed()
    }

    /// Takes a request. Returns its version, and the key of its job if it has changed.
    pub(crate) fn apply(
        &self,
        kind: ScaleKind,
        json: &str,
        scope: usize,
        source: Source,
    ) -> serde_json::Result<(Version, Option<JobKey>)> {
        let (id, job, request) = decode(kind, json)?;
        let version = crate::slim::version(&request.metadata);
        let mut inner = self.inner.lock();
        let seen = inner.scopes.see(scope, version, source);
        if let Some(known) = inner.entries.get_mut(&id)
            && known.request.metadata.uid == request.metadata.uid
            && known.seen.covers(&seen)
        {
            return Ok((version, None));
        }
        if inner.remove(&id).is_none() {
            inner.notify_listeners(&id);
        }
        inner.by_job.entry(job.clone()).or_default().insert(id.clone());
        let entry = Entry {
            request: Arc::new(request),
            job: job.clone(),
            seen,
        };
        inner.entries.insert(id, entry);
        Ok((version, Some(job)))
    }

    /// Takes the answer to a write of a request, unless it is deleted meanwhile.
    pub(super) fn answered(&self, kind: ScaleKind, entry: &Entry, answer: &str) -> serde_json::Result<()> {
        let (id, ..) = decode(kind, answer)?;
        if self.inner.lock().entries.contains_key(&id) {
            self.apply(kind, answer, entry.seen.scope(), Source::Answer)?;
        }
        Ok(())
    }

    /// Forgets a request that we have deleted.
    pub(super) fn deleted(&self, entry: &Entry) {
        let request = &entry.request;
        let mut inner = self.inner.lock();
        let id = id(request.kind, &request.metadata);
        let known = inner.entries.get(&id);
        if known.is_some_and(|known| known.request.metadata.uid == request.metadata.uid) {
            inner.remove(&id);
        }
    }

    /// Removes a deleted request. Returns its version, and the key of its job if it was known.
    pub(super) fn gone(
        &self,
        kind: ScaleKind,
        json: &str,
        scope: usize,
    ) -> serde_json::Result<(Version, Option<JobKey>)> {
        let SlimMeta { metadata } = serde_json::from_str(json)?;
        let version = metadata.resource_version;
        let mut inner = self.inner.lock();
        inner.scopes.reach(scope, version);
        let id = (kind, JobKey::new(&metadata.namespace, &metadata.name));
        let known = inner.entries.get(&id);
        let is_known =
            known.is_some_and(|known| known.request.metadata.uid.as_deref() == Some(&*metadata.uid));
        let job = is_known.then(|| inner.remove(&id)).flatten();
        Ok((version, job))
    }

    /// A list of a version begins.
    pub(super) fn listing(&self, scope: usize, version: Version) {
        let mut inner = self.inner.lock();
        if inner.scopes.begin_list(scope, version) {
            let here = inner.entries.values_mut().filter(|entry| entry.seen.is_in(scope));
            here.for_each(|entry| entry.seen.version = Version(0));
        }
    }

    /// A list is complete: requests that it did not have are gone. Returns the keys of their jobs.
    pub(super) fn listed(&self, scope: usize, version: Version) -> Vec<JobKey> {
        let mut inner = self.inner.lock();
        let is_gone = inner.scopes.complete_list(scope, version);
        inner.remove_where(|entry| is_gone(&entry.seen))
    }

    /// The kind does not exist, or may not be listed: there are no requests to reconcile.
    pub(super) fn refused(&self, scope: usize) {
        let mut inner = self.inner.lock();
        inner.remove_where(|entry| entry.seen.is_in(scope));
        inner.scopes.give_up(scope);
    }
}

impl Inner {
    fn notify_listeners(&mut self, (kind, key): &Id) {
        self.listeners
            .retain(|(wanted, sender)| wanted != kind || sender.send(key.clone()).is_ok());
    }

    /// Removes a request. Returns the key of its job, if it was known.
    fn remove(&mut self, id: &Id) -> Option<JobKey> {
        let entry = self.entries.remove(id)?;
        self.notify_listeners(id);
        if let Some(ids) = self.by_job.get_mut(&entry.job) {
            ids.remove(id);
            if ids.is_empty() {
                self.by_job.remove(&entry.job);
            }
        }
        Some(entry.job)
    }

    fn remove_where(&mut self, is_gone: impl Fn(&Entry) -> bool) -> Vec<JobKey> {
        let gone = self.entries.iter().filter(|(_, entry)| is_gone(entry));
        let gone: Vec<Id> = gone.map(|(id, _)| id.clone()).collect();
        gone.iter().filter_map(|id| self.remove(id)).collect()
    }
}

fn id(kind: ScaleKind, metadata: &ObjectMeta) -> Id {
    let namespace = metadata.namespace.as_deref().unwrap_or_default();
    (
        kind,
        JobKey::new(namespace, metadata.name.as_deref().unwrap_or_default()),
    )
}

/// Decodes a request. One that does not have the type, or is too large, is a request that is not
/// valid. Fails only if the metadata can't be decoded.
fn decode(kind: ScaleKind, json: &str) -> serde_json::Result<(Id, JobKey, ScaleRequest)> {
    let request = if let Some(excess) = bounds::excess(json) {
        let error = FieldError::new(excess.path, excess.message);
        invalid(kind, &bounds::decode_small(json)?, error)?
    } else {
        let object = bounds::decode(json)?;
        let request = match kind {
            ScaleKind::ScaleIn => ScaleIn::deserialize(&object).map(ScaleRequest::from),
            ScaleKind::ScaleOut => ScaleOut::deserialize(&object).map(ScaleRequest::from),
        };
        match request {
            Ok(request) => request,
            Err(error) => invalid(kind, &object, FieldError::new("spec", error.to_string()))?,
        }
    };
    let id = id(kind, &request.metadata);
    let job = match &request.spec {
        Ok(spec) => JobKey::new(&id.1.namespace, &spec.job),
        Err(_) => JobKey::new(&id.1.namespace, &job_of(json)),
    };
    Ok((id, job, request))
}

/// A request that is not valid, of what could be decoded of its object.
fn invalid(kind: ScaleKind, object: &Value, error: FieldError) -> serde_json::Result<ScaleRequest> {
    let part = |name: &str| object.get(name).unwrap_or(&Value::Null);
    Ok(ScaleRequest {
        kind,
        metadata: ObjectMeta::deserialize(part("metadata"))?,
        spec: Err(vec![error]),
        status: ScaleRequestStatus::deserialize(part("status")).unwrap_or_default(),
    })
}

/// The name of the job that a request is about, whatever else is in it. Empty if there is none that
/// a job can have.
fn job_of(json: &str) -> String {
    #[derive(Deserialize)]
    struct Object {
        spec: Spec,
    }
    #[derive(Deserialize)]
    struct Spec {
        #[serde(rename = "jobRef")]
        job: JobRef,
    }
    let name = serde_json::from_str::<Object>(json).map(|object| object.spec.job.name);
    name.ok()
        .filter(|name| name.len() <= MAX_NAME)
        .unwrap_or_default()
}
