//! All that is known of all jobs: one synchronous index, fed by watches and by the answers to our own writes.
//!
//! Jobs are found by name and by UID, children by their namespace and the UID of the job that owns them, so that what
//! belonged to a former job of the same name never shows up in the view of a new one, and what somebody made in another
//! namespace never shows up at all.
//!
//! The index sees our writes before the watches do: the answer to a create puts the row in, the answer to a delete
//! marks it as going, the answer to a status write replaces the status. So a decision is never taken on a state
//! that lacks our own writes, and nothing has to be waited for. Two rules make that exact without memories that time
//! out, both by comparing resource versions, which grow with every write:
//!
//! - An answer creates a row only if it is newer than what the watch has reached. If the watch has passed it and the
//!   row is not there, the object is gone already.
//! - A list removes only rows that are not newer than the list.

mod children;
mod entry;
mod inner;
mod jobs;
mod progress;
mod rows;

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;
use trainyard_api::{JobPhase, Progress, TrainingJob, TrainingJobStatus};
use trainyard_core::local_state::LocalState;
use trainyard_core::observe;
use trainyard_core::view::{Conflict, PodRow, Refusal, ServiceRow};

use crate::nodes::{NodeFacts, NodeTable};
use crate::slim::{JobObject, Malformed, Meta, SlimMeta, SlimNode, SlimPod, Version};

use entry::{Owner, ProgressReport, Uid};
pub use progress::Kind;
use progress::WatchCursors;

/// A job's place: namespace and name.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct JobKey {
    /// The namespace.
    pub namespace: Arc<str>,
    /// The name.
    pub name: Arc<str>,
}

impl JobKey {
    /// The key of a namespace and a name.
    pub fn new(namespace: &str, name: &str) -> Self {
        Self {
            namespace: namespace.into(),
            name: name.into(),
        }
    }
}

impl fmt::Display for JobKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// What is known under a job's key.
#[derive(Clone, Debug)]
pub enum Lookup {
    /// A job.
    Job(Box<Snapshot>),
    /// An object that could not be decoded.
    Malformed(Arc<Malformed>, Box<LocalState>),
}

/// All that is known of one job at one moment. Taking it copies nothing but references.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// The job's UID.
    pub uid: Arc<str>,
    /// The job.
    pub job: Arc<TrainingJob>,
    /// Its pods.
    pub pods: Arc<Vec<PodRow>>,
    /// Its Services.
    pub services: Arc<Vec<ServiceRow>>,
    /// Its pods that were seen to succeed and are gone, where its status may not say so yet.
    pub departed: Vec<PodRow>,
    /// What is in its way.
    pub conflicts: Vec<Conflict>,
    /// Why the server does not take a child of it.
    pub refusal: Option<Arc<Refusal>>,
    /// What its programs last said of their progress.
    pub progress: Option<Arc<Progress>>,
    /// The nodes of its pods.
    pub nodes: NodeFacts,
    /// What this process remembers of it.
    pub local: LocalState,
}

/// A pod has spoken a moment ago.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooOften;

/// A pod is not listened to more often than this.
const SHORTEST_SAYING: Duration = Duration::from_millis(500);

/// Where an object comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// From a list, which is not complete before [`Index::listed`] is called.
    List,
    /// From a watch: all that happened before is known.
    Watch,
    /// From the answer to one of our own requests.
    Answer,
}

/// All that is known of all jobs.
#[derive(Debug)]
pub struct Index {
    inner: Mutex<Inner>,
}

#[derive(Debug)]
struct Inner {
    names: HashMap<JobKey, Uid>,
    owners: HashMap<Uid, Owner>,
    nodes: NodeTable,
    progress: WatchCursors,
    phases: [i64; JobPhase::ALL.len()],
    /// Those who want to hear of changes to a job.
    followers: HashMap<JobKey, watch::Sender<u64>>,
    /// Those who want to hear which jobs themselves have changed.
    listeners: Vec<mpsc::UnboundedSender<JobKey>>,
}

impl Index {
    /// An empty index of some namespaces; of all, if none is given.
    pub fn new(namespaces: &[String]) -> Self {
        Self {
            inner: Mutex::new(Inner {
                names: HashMap::new(),
                owners: HashMap::new(),
                nodes: NodeTable::default(),
                progress: WatchCursors::new(namespaces),
                phases: [0; JobPhase::ALL.len()],
                followers: HashMap::new(),
                listeners: Vec::new(),
            }),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // Nothing here panics half-way through a change; a poisoned lock means that a caller did.
        self.inner.lock()
    }

    /// What is known under a key. Nothing, where a list of its namespace was refused: what is not known there must not
    /// be taken for gone.
    pub fn get(&self, key: &JobKey) -> Option<Lookup> {
        let inner = self.lock();
        inner
            .get(key)
            .filter(|_| !inner.progress.is_refused(&key.namespace))
    }

    /// The job under a key, without anything of its children: cheap enough to be asked before each of many writes. None where
    /// [`get`](Self::get) knows of none.
    pub fn job(&self, key: &JobKey) -> Option<Arc<TrainingJob>> {
        let inner = self.lock();
        let entry = inner.owners.get(inner.names.get(key)?)?.job.as_ref()?;
        match &entry.job {
            entry::Job::Ok(job) if !inner.progress.is_refused(&key.namespace) => Some(job.clone()),
            _ => None,
        }
    }

    /// Tells of each change to a job or to its pods from now on, whether there is such a job or not.
    pub fn follow(&self, key: &JobKey) -> watch::Receiver<u64> {
        let mut inner = self.lock();
        let sender = inner
            .followers
            .entry(key.clone())
            .or_insert_with(|| watch::Sender::new(0));
        sender.subscribe()
    }

    /// Whether somebody follows a job.
    #[cfg(test)]
    pub(crate) fn is_followed(&self, key: &JobKey) -> bool {
        let followers = &self.lock().followers;
        followers
            .get(key)
            .is_some_and(|followers| followers.receiver_count() > 0)
    }

    /// Tells the keys of all jobs that change from now on. What their pods do changes them only through their status.
    pub fn listen(&self) -> mpsc::UnboundedReceiver<JobKey> {
        let (sender, receiver) = mpsc::unbounded_channel();
        self.lock().listeners.push(sender);
        receiver
    }

    /// Whether a job has this very pod.
    pub fn has_pod(&self, key: &JobKey, name: &str, uid: &str) -> bool {
        let inner = self.lock();
        let owner = inner.names.get(key).and_then(|job| inner.owners.get(job));
        owner.is_some_and(|owner| owner.pods.contains(name, uid))
    }

    /// The keys of all jobs.
    pub fn keys(&self) -> Vec<JobKey> {
        self.lock().names.keys().cloned().collect()
    }

    /// How many jobs are in each phase.
    pub fn phases(&self) -> impl Iterator<Item = (JobPhase, i64)> {
        let counts = self.lock().phases;
        JobPhase::ALL.into_iter().zip(counts)
    }

    /// Takes a job in. The key to look at, if anything changed.
    pub fn apply_job(&self, job: JobObject, source: Source) -> Option<JobKey> {
        let mut inner = self.lock();
        let changed = inner.apply_job(job, source);
        inner.notify_followers(changed.as_slice());
        inner.notify_listeners(changed.as_slice());
        changed
    }

    /// Takes in the answer to a write of a job's status.
    pub fn apply_status(&self, uid: &str, metadata: ObjectMeta, status: Option<TrainingJobStatus>) {
        let mut inner = self.lock();
        inner.apply_status(uid, metadata, status);
        inner.tell_of(uid);
        let changed = inner.owners.get(uid).map(|owner| owner.key.clone());
        inner.notify_listeners(changed.as_slice());
    }

    /// Removes a job. The key to look at, if it was there.
    pub fn delete_job(&self, metadata: &ObjectMeta) -> Option<JobKey> {
        let mut inner = self.lock();
        let changed = inner.delete_job(metadata);
        inner.notify_followers(changed.as_slice());
        inner.notify_listeners(changed.as_slice());
        changed
    }

    /// Takes a pod in. The key to look at, if anything changed.
    pub fn apply_pod(&self, pod: SlimPod, source: Source) -> Option<JobKey> {
        let mut inner = self.lock();
        let changed = inner.apply_pod(pod, source);
        inner.notify_followers(changed.as_slice());
        changed
    }

    /// Takes a Service in. The key to look at, if anything changed.
    pub fn apply_service(&self, service: &SlimMeta, source: Source) -> Option<JobKey> {
        self.lock().apply_service(service, source)
    }

    /// Removes a child that the watch says is gone. The key to look at, if it was there.
    pub fn delete_child(&self, kind: Kind, metadata: &Meta) -> Option<JobKey> {
        let mut inner = self.lock();
        let changed = inner.delete_child(kind, metadata);
        inner.notify_followers(changed.as_slice());
        changed
    }

    /// Marks a child as asked to go.
    pub fn terminate(&self, kind: Kind, owner: &str, name: &str, uid: &str) {
        let mut inner = self.lock();
        if let Some(owner) = inner.owners.get_mut(owner) {
            match kind {
                Kind::Pod => owner.pods.terminate(name, uid),
                _ => owner.services.terminate(name, uid),
            };
        }
        inner.tell_of(owner);
    }

    /// Removes a child of which the answer to a delete says that it went at a version.
    pub fn deleted_by_us(&self, kind: Kind, owner: &str, name: &str, uid: &str, version: Version) {
        let mut inner = self.lock();
        if let Some(owner) = inner.owners.get_mut(owner) {
            owner.tombstone(kind, name, uid, version);
        }
        inner.tell_of(owner);
    }

    /// Notes that something is in a job's way. The key to look at, if that is news.
    pub fn conflict(&self, owner: &str, conflict: Conflict) -> Option<JobKey> {
        let mut inner = self.lock();
        let owner = inner.owners.get_mut(owner)?;
        if owner.conflicts.contains(&conflict) {
            return None;
        }
        owner
            .conflicts
            .retain(|known| (known.kind, &known.name) != (conflict.kind, &conflict.name));
        owner.conflicts.push(conflict);
        owner.conflicts.sort();
        Some(owner.key.clone())
    }

    /// Notes that something is not in a job's way any more.
    pub fn resolve(&self, owner: &str, kind: &str, name: &str) {
        if let Some(owner) = self.lock().owners.get_mut(owner) {
            owner
                .conflicts
                .retain(|known| (known.kind, known.name.as_str()) != (kind, name));
        }
    }

    /// Notes why the server does not take a child of a job, or that it does.
    pub fn refuse(&self, owner: &str, refusal: Option<Refusal>) {
        if let Some(owner) = self.lock().owners.get_mut(owner) {
            owner.refusal = refusal.map(Arc::new);
        }
    }

    /// Forgets pods that were seen to end and are gone: the job's status has been written with them in mind.
    pub fn forget_departed(&self, owner: &str, noted: &[PodRow]) {
        if let Some(owner) = self.lock().owners.get_mut(owner) {
            owner
                .departed
                .retain(|pod| !noted.iter().any(|noted| noted.uid == pod.uid));
        }
    }

    /// Forgets what this replica knew before it leads again: pods that are gone may be of a former run of a job, and another leader
    /// may have made or removed what is not watched.
    pub fn forget_former_terms(&self) {
        for owner in self.lock().owners.values_mut() {
            owner.departed.clear();
            if let Some(entry) = &mut owner.job {
                entry.local.forget_unwatched();
            }
        }
    }

    /// What this process remembers of a job.
    pub fn local(&self, uid: &str) -> Option<LocalState> {
        Some(self.lock().owners.get(uid)?.job.as_ref()?.local.clone())
    }

    /// Changes what this process remembers of a job. Returns what the change returns, or None if the
    /// job is not known any more.
    pub fn remember<R>(&self, uid: &str, change: impl FnOnce(&mut LocalState) -> R) -> Option<R> {
        let mut inner = self.lock();
        let entry = inner.owners.get_mut(uid)?.job.as_mut()?;
        Some(change(&mut entry.local))
    }

    /// Takes in what a pod of a job says of its progress; what another pod says that comes before it in the job stands. The key
    /// to look at, if that is news.
    pub fn record_progress(
        &self,
        key: &JobKey,
        pod: &str,
        progress: Progress,
    ) -> Result<Option<JobKey>, TooOften> {
        let mut inner = self.lock();
        let Some(owner) = inner
            .names
            .get(key)
            .cloned()
            .and_then(|uid| inner.owners.get_mut(&uid))
        else {
            return Ok(None);
        };
        let Some(entry::Job::Ok(job)) = owner.job.as_ref().map(|entry| &entry.job) else {
            return Ok(None);
        };
        let Some(by) = observe::place(job, pod).filter(|_| job.reports_progress()) else {
            return Ok(None);
        };
        let now = Instant::now();
        if let Some(said) = &owner.said {
            if said.by < by {
                return Ok(None);
            }
            if said.by == by && now.duration_since(said.at) < SHORTEST_SAYING {
                return Err(TooOften);
            }
        }
        let is_new = owner.said.as_ref().is_none_or(|said| *said.progress != progress);
        owner.said = Some(ProgressReport {
            by,
            at: now,
            progress: Arc::new(progress),
        });
        let changed = is_new.then(|| key.clone());
        inner.notify_followers(changed.as_slice());
        Ok(changed)
    }

    /// Forgets what programs of a job said.
    pub fn forget_progress(&self, uid: &str) {
        if let Some(owner) = self.lock().owners.get_mut(uid) {
            owner.said = None;
        }
    }

    /// Takes a node in. The keys of jobs with pods on it, if its state changed.
    pub fn apply_node(&self, node: &SlimNode, source: Source) -> Vec<JobKey> {
        let mut inner = self.lock();
        let epoch = inner
            .progress
            .reached(Kind::Node, "", node.metadata.resource_version, source);
        if source == Source::Watch {
            inner.nodes.reach(node.metadata.resource_version);
        }
        let changed = inner.nodes.apply(node, epoch);
        let affected = inner.on_nodes(changed.as_slice());
        inner.notify_followers(&affected);
        affected
    }

    /// Removes a node. The keys of jobs with pods on it.
    pub fn delete_node(&self, metadata: &Meta) -> Vec<JobKey> {
        let mut inner = self.lock();
        inner
            .progress
            .reached(Kind::Node, "", metadata.resource_version, Source::Watch);
        inner.nodes.reach(metadata.resource_version);
        let gone = inner.nodes.delete(&metadata.name);
        let affected = inner.on_nodes(gone.as_slice());
        inner.notify_followers(&affected);
        affected
    }

    /// A list of a scope has a first answer, of a version. Called before its objects are taken in.
    pub fn listing(&self, kind: Kind, scope: usize, listed: Version) {
        let mut inner = self.lock();
        if inner.progress.begin(kind, scope, listed) {
            // Versions grow, unless the cluster was restored from a backup: then what we know is of another history.
            tracing::warn!(
                ?kind,
                listed = listed.0,
                "the server's versions went back: taking its word for everything"
            );
            inner.forget_versions(kind, scope);
        }
    }

    /// A list of a scope, begun at `began`, is complete. The keys to look at, because something of theirs is gone.
    pub fn listed(&self, kind: Kind, scope: usize, listed: Version, began: Instant) -> Vec<JobKey> {
        let mut inner = self.lock();
        let refused = inner.refused_keys();
        let mut changed = inner.listed(kind, scope, listed, began);
        changed.extend(inner.back(refused));
        inner.notify_followers(&changed);
        inner.notify_listeners(&changed);
        changed
    }

    /// A list of a scope was refused: its jobs are left alone until it is not.
    pub fn refused(&self, kind: Kind, scope: usize) {
        self.lock().progress.refuse(kind, scope);
    }

    /// The watch of a scope has reached a version without an object of ours having changed.
    pub fn bookmark(&self, kind: Kind, scope: usize, version: Version) {
        let mut inner = self.lock();
        inner.progress.bookmark(kind, scope, version);
        if kind == Kind::Node {
            inner.nodes.reach(version);
        }
    }

    /// Whether everything but nodes has been listed completely, by lists that began no earlier than `since`.
    pub fn is_listed_since(&self, since: Option<Instant>) -> bool {
        self.lock().progress.is_listed_since(since)
    }
}

#[cfg(test)]
mod tests;
