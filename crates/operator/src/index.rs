//! Everything that is known about all jobs: one synchronous index, fed by watches and by the
//! answers to our own writes.
//!
//! Jobs are found by name and by UID, children by their namespace and the UID of the job that owns
//! them. So children of a former job of the same name never appear in the view of a new one, and
//! children in another namespace never appear at all.
//!
//! The index sees our writes before the watches do: the answer to a create adds the row, the answer
//! to a delete marks it as terminating, the answer to a status write replaces the status. So every
//! decision includes our own writes, and nothing has to wait for a watch. Two rules make that exact
//! without timeouts. Both compare resource versions, which grow with every write:
//!
//! - An answer creates a row only if it is newer than what the watch has reached. If the watch has
//!   passed it and the row is missing, the object is deleted already.
//! - A list removes only rows that are not newer than the list.

mod budgets;
mod children;
mod declarations;
mod entry;
mod inner;
mod jobs;
mod rows;
mod watch_cursors;

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use parking_lot::{Mutex, MutexGuard, RwLock};
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;
use trainyard_api::{JobPhase, Progress, TrainingJob, TrainingJobStatus};
use trainyard_contract::drain::DrainReport;
use trainyard_contract::script::ScriptReport;
use trainyard_core::local_state::{LocalState, ScriptTask};
use trainyard_core::notice::NoticeRules;
use trainyard_core::observe;
use trainyard_core::registry::Registry;
use trainyard_core::view::{BudgetRow, Budgets, Conflict, PodRow, Refusal, ServiceRow};

use crate::clock::monotonic;
use crate::nodes::{NodeFacts, NodeTable};
use crate::slim::{JobObject, Malformed, Meta, SlimBudget, SlimMeta, SlimNode, SlimPod, Version};

use entry::{Owner, ProgressReport, Uid};
use rows::Rows;
pub use watch_cursors::Kind;
use watch_cursors::WatchCursors;

/// The namespace and name of a job.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct JobKey {
    pub namespace: Arc<str>,
    pub name: Arc<str>,
}

impl JobKey {
    /// Creates the key of a namespace and a name.
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

/// What is known about a job.
#[derive(Clone, Debug)]
pub enum Lookup {
    Job(Box<Snapshot>),
    /// An object that could not be decoded.
    Malformed(Arc<Malformed>, Box<LocalState>),
}

/// Everything that is known about one job at one moment. Taking it copies only references.
#[derive(Clone, Debug)]
pub struct Snapshot {
    pub uid: Arc<str>,
    pub job: Arc<TrainingJob>,
    pub pods: Arc<Vec<PodRow>>,
    pub services: Arc<Vec<ServiceRow>>,
    /// Its pods that are deleted and had ended, as long as its status may not say so.
    pub departed: Vec<PodRow>,
    /// Objects of somebody else that have a name the job needs.
    pub conflicts: Vec<Conflict>,
    /// Why the server refuses a child of it.
    pub refusal: Option<Arc<Refusal>>,
    /// The progress that its programs last reported.
    pub progress: Option<Arc<Progress>>,
    pub nodes: NodeFacts,
    /// The disruption budgets that concern it, as far as they are known.
    pub budgets: Option<Budgets>,
    /// What only this process knows about it.
    pub local: LocalState,
}

/// A pod has reported its progress a moment ago.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooOften;

/// A pod may not report its progress more often than this.
const MIN_REPORT_INTERVAL: Duration = Duration::from_millis(500);

/// Where an object comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// A list, which is not complete until [`Index::listed`] is called.
    List,
    /// A watch: everything that happened before is known.
    Watch,
    /// The answer to one of our own requests.
    Answer,
}

/// Everything that is known about all jobs.
#[derive(Debug)]
pub struct Index {
    inner: Mutex<Inner>,
    /// The frameworks that were declared.
    declarations: RwLock<Registry>,
    declarations_listed: watch::Sender<bool>,
}

#[derive(Debug)]
struct Inner {
    names: HashMap<JobKey, Uid>,
    owners: HashMap<Uid, Owner>,
    nodes: NodeTable,
    /// Disruption budgets that are of no job, by their namespaces.
    foreign_budgets: HashMap<Box<str>, Rows<BudgetRow>>,
    cursors: WatchCursors,
    phases: [i64; JobPhase::ALL.len()],
    /// Senders that count the changes of a job and its pods.
    followers: HashMap<JobKey, watch::Sender<u64>>,
    /// Senders of the keys of jobs that have changed themselves.
    listeners: Vec<mpsc::UnboundedSender<JobKey>>,
}

impl Index {
    /// Creates an empty index of some namespaces; of all, if none is given.
    pub fn new(namespaces: &[String]) -> Self {
        Self {
            declarations: RwLock::default(),
            declarations_listed: watch::Sender::new(false),
            inner: Mutex::new(Inner {
                names: HashMap::new(),
                owners: HashMap::new(),
                nodes: NodeTable::default(),
                foreign_budgets: HashMap::new(),
                cursors: WatchCursors::new(namespaces),
                phases: [0; JobPhase::ALL.len()],
                followers: HashMap::new(),
                listeners: Vec::new(),
            }),
        }
    }

    /// The same index, which hears by these rules that nodes are about to go.
    #[must_use]
    pub fn with_notices(self, rules: NoticeRules) -> Self {
        self.lock().nodes.set_rules(rules);
        self
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock()
    }

    /// Looks up a job. `None` also if a list of its namespace was refused: children that are not
    /// listed there must not count as deleted.
    pub fn get(&self, key: &JobKey) -> Option<Lookup> {
        let inner = self.lock();
        inner
            .get(key)
            .filter(|_| !inner.cursors.is_refused(&key.namespace))
    }

    /// Looks up a job without its children, which is cheap enough before each of many writes.
    /// `None` if [`get`](Self::get) returns `None`.
    pub fn job(&self, key: &JobKey) -> Option<Arc<TrainingJob>> {
        let inner = self.lock();
        let entry = inner.owners.get(inner.names.get(key)?)?.job.as_ref()?;
        match &entry.job {
            entry::Job::Ok(job) if !inner.cursors.is_refused(&key.namespace) => Some(job.clone()),
            _ => None,
        }
    }

    /// Returns true if a list of a namespace was refused, so that [`get`](Self::get) says nothing
    /// about its jobs.
    pub fn is_refused(&self, namespace: &str) -> bool {
        self.lock().cursors.is_refused(namespace)
    }

    /// Signals every change of a job or its pods from now on, whether the job exists or not.
    pub fn follow(&self, key: &JobKey) -> watch::Receiver<u64> {
        let mut inner = self.lock();
        let sender = inner
            .followers
            .entry(key.clone())
            .or_insert_with(|| watch::Sender::new(0));
        sender.subscribe()
    }

    /// Returns true if somebody follows a job.
    #[cfg(test)]
    pub(crate) fn is_followed(&self, key: &JobKey) -> bool {
        let followers = &self.lock().followers;
        followers
            .get(key)
            .is_some_and(|followers| followers.receiver_count() > 0)
    }

    /// Receives the keys of all jobs that change from now on. A change of a pod counts only when it
    /// changes the job's status, or if the job starts and its pods are counted by somebody else.
    pub fn listen(&self) -> mpsc::UnboundedReceiver<JobKey> {
        let (sender, receiver) = mpsc::unbounded_channel();
        self.lock().listeners.push(sender);
        receiver
    }

    /// Returns true if a job has the pod with this name and UID.
    pub fn has_pod(&self, key: &JobKey, name: &str, uid: &str) -> bool {
        let inner = self.lock();
        let owner = inner.names.get(key).and_then(|job| inner.owners.get(job));
        owner.is_some_and(|owner| owner.pods.contains(name, uid))
    }

    /// Returns true if a pod of a job is of an attempt before the last of its role.
    pub fn is_former_pod(&self, key: &JobKey, name: &str, uid: &str) -> bool {
        let inner = self.lock();
        let owner = inner.names.get(key).and_then(|job| inner.owners.get(job));
        owner.is_some_and(|owner| {
            let job = owner.job.as_ref().map(|entry| &entry.job);
            let row = owner.pods.get(name, uid);
            matches!((job, row), (Some(entry::Job::Ok(job)), Some(row)) if observe::is_former(job, row))
        })
    }

    pub fn keys(&self) -> Vec<JobKey> {
        self.lock().names.keys().cloned().collect()
    }

    /// How many jobs are in each phase.
    pub fn phases(&self) -> impl Iterator<Item = (JobPhase, i64)> {
        let counts = self.lock().phases;
        JobPhase::ALL.into_iter().zip(counts)
    }

    /// Adds or updates a job. Returns the key to reconcile, if anything changed.
    pub fn apply_job(&self, job: JobObject, source: Source) -> Option<JobKey> {
        let mut inner = self.lock();
        let changed = inner.apply_job(job, source);
        inner.notify_followers(changed.as_slice());
        inner.notify_listeners(changed.as_slice());
        changed
    }

    /// Applies the answer to a write of a job's status.
    pub fn apply_status(&self, uid: &str, metadata: ObjectMeta, status: Option<TrainingJobStatus>) {
        let mut inner = self.lock();
        inner.apply_status(uid, metadata, status);
        inner.notify_followers_of(uid);
        let changed = inner.owners.get(uid).map(|owner| owner.key.clone());
        inner.notify_listeners(changed.as_slice());
    }

    /// Removes a job. Returns the key to reconcile, if it was known.
    pub fn delete_job(&self, metadata: &ObjectMeta) -> Option<JobKey> {
        let mut inner = self.lock();
        let changed = inner.delete_job(metadata);
        inner.notify_followers(changed.as_slice());
        inner.notify_listeners(changed.as_slice());
        changed
    }

    /// Adds or updates a pod. Returns the key to reconcile, if anything changed.
    pub fn apply_pod(&self, pod: SlimPod, source: Source) -> Option<JobKey> {
        let mut inner = self.lock();
        let changed = inner.apply_pod(pod, source);
        inner.notify_followers(changed.as_slice());
        inner.notify_listeners_of_starting(changed.as_ref());
        changed
    }

    /// Adds or updates a Service. Returns the key to reconcile, if anything changed.
    pub fn apply_service(&self, service: &SlimMeta, source: Source) -> Option<JobKey> {
        self.lock().apply_service(service, source)
    }

    /// Removes a child that the watch shows as deleted. Returns the key to reconcile, if it was
    /// known.
    pub fn delete_child(&self, kind: Kind, metadata: &Meta) -> Option<JobKey> {
        let mut inner = self.lock();
        let changed = inner.delete_child(kind, metadata);
        inner.notify_followers(changed.as_slice());
        if kind == Kind::Pod {
            inner.notify_listeners_of_starting(changed.as_ref());
        }
        changed
    }

    /// Marks a child as terminating.
    pub fn terminate(&self, kind: Kind, owner: &str, name: &str, uid: &str) {
        let mut inner = self.lock();
        if let Some(owner) = inner.owners.get_mut(owner) {
            match kind {
                Kind::Pod => owner.pods.terminate(name, uid),
                Kind::Budget => owner.budgets.terminate(name, uid),
                _ => owner.services.terminate(name, uid),
            };
        }
        inner.notify_followers_of(owner);
    }

    /// Removes a child that was deleted at a version, as the answer to our delete says.
    pub fn deleted_by_us(&self, kind: Kind, owner: &str, name: &str, uid: &str, version: Version) {
        let mut inner = self.lock();
        if let Some(owner) = inner.owners.get_mut(owner) {
            owner.tombstone(kind, name, uid, version);
        }
        inner.notify_followers_of(owner);
    }

    /// Records a conflict. Returns the key to reconcile, if it is new.
    pub fn add_conflict(&self, owner: &str, conflict: Conflict) -> Option<JobKey> {
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

    /// Removes a conflict that is resolved.
    pub fn remove_conflict(&self, owner: &str, kind: &str, name: &str) {
        if let Some(owner) = self.lock().owners.get_mut(owner) {
            owner
                .conflicts
                .retain(|known| (known.kind, known.name.as_str()) != (kind, name));
        }
    }

    /// Records why the server refuses a child of a job, or that it does not any more.
    pub fn set_refusal(&self, owner: &str, refusal: Option<Refusal>) {
        if let Some(owner) = self.lock().owners.get_mut(owner) {
            owner.refusal = refusal.map(Arc::new);
        }
    }

    /// Forgets departed pods, because a status was written that was computed with them.
    pub fn forget_departed(&self, owner: &str, written: &[PodRow]) {
        if let Some(owner) = self.lock().owners.get_mut(owner) {
            owner
                .departed
                .retain(|pod| !written.iter().any(|written| written.uid == pod.uid));
        }
    }

    /// Forgets what this replica knew before a new term. Departed pods may be of a former run of a
    /// job, and another leader may have created or deleted objects that are not watched.
    pub fn forget_former_terms(&self) {
        for owner in self.lock().owners.values_mut() {
            owner.departed.clear();
            if let Some(entry) = &mut owner.job {
                entry.local.forget_unwatched();
            }
        }
    }

    /// What only this process knows about a job.
    pub fn local(&self, uid: &str) -> Option<LocalState> {
        Some(self.lock().owners.get(uid)?.job.as_ref()?.local.clone())
    }

    /// Changes what only this process knows about a job. Returns what the change returns, or `None`
    /// if the job is not known any more.
    pub fn update_local<R>(&self, uid: &str, change: impl FnOnce(&mut LocalState) -> R) -> Option<R> {
        let mut inner = self.lock();
        let entry = inner.owners.get_mut(uid)?.job.as_mut()?;
        Some(change(&mut entry.local))
    }

    /// Records what a pod of a job that was told to leave reports. Returns true if it is new. Pods
    /// that were not told may say what they want.
    pub fn record_drain(&self, key: &JobKey, uid: &str, report: DrainReport) -> bool {
        let mut inner = self.lock();
        let Some(owner) = inner
            .names
            .get(key)
            .cloned()
            .and_then(|uid| inner.owners.get_mut(&uid))
        else {
            return false;
        };
        let Some(entry) = &mut owner.job else {
            return false;
        };
        let entry::Job::Ok(job) = &entry.job else {
            return false;
        };
        let status = job.status.as_ref();
        let is_told = status.is_some_and(|status| status.scaling.is_some());
        is_told && entry.local.drains.record(uid, report)
    }

    /// Has a launcher told what to run, or that there is nothing.
    pub fn offer_script(&self, key: &JobKey, task: Option<ScriptTask>) {
        let mut inner = self.lock();
        let offer = |local: &mut LocalState| local.offer_script(task, monotonic());
        if inner.local_of(key).is_some_and(offer) {
            inner.notify_followers(std::slice::from_ref(key));
        }
    }

    /// Returns what the launcher of a job was told to run.
    pub(crate) fn offered_script(&self, key: &JobKey) -> Option<ScriptTask> {
        let mut inner = self.lock();
        let offered = inner.local_of(key)?.script.offered()?;
        Some(offered.task.clone())
    }

    /// Records how an attempt of a script ended, as the pod of this UID reports it.
    pub fn record_script(&self, key: &JobKey, uid: &str, report: ScriptReport) {
        let mut inner = self.lock();
        let record = |local: &mut LocalState| local.record_script(uid, report);
        if inner.local_of(key).is_some_and(record) {
            inner.notify_listeners(std::slice::from_ref(key));
        }
    }

    /// Records the progress that a pod of a job reports, unless a pod that comes before it in the
    /// job has reported some. Returns the key to reconcile, if the progress is new.
    pub fn record_progress(
        &self,
        key: &JobKey,
        (pod, uid): (&str, &str),
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
        let Some(reporter) = observe::place(job, pod).filter(|_| job.reports_progress()) else {
            return Ok(None);
        };
        let now = Instant::now();
        if let Some(last) = &owner.progress_report {
            if last.reporter < reporter {
                return Ok(None);
            }
            if last.reporter == reporter && now.duration_since(last.at) < MIN_REPORT_INTERVAL {
                return Err(TooOften);
            }
        }
        let is_new = owner
            .progress_report
            .as_ref()
            .is_none_or(|last| *last.progress != progress);
        owner.progress_report = Some(ProgressReport {
            reporter,
            pod: (pod.into(), uid.into()),
            at: now,
            progress: Arc::new(progress),
        });
        let changed = is_new.then(|| key.clone());
        inner.notify_followers(changed.as_slice());
        Ok(changed)
    }

    /// Forgets the reported progress of a job.
    pub fn forget_progress(&self, uid: &str) {
        if let Some(owner) = self.lock().owners.get_mut(uid) {
            owner.progress_report = None;
        }
    }

    /// Adds or updates a node. Returns the keys of jobs with pods on it, if its state changed, or
    /// what it says about going.
    pub fn apply_node(&self, node: &SlimNode, source: Source) -> Vec<JobKey> {
        let mut inner = self.lock();
        let epoch = inner
            .cursors
            .record(Kind::Node, "", node.metadata.resource_version, source);
        if source == Source::Watch {
            inner.nodes.reach(node.metadata.resource_version);
        }
        let changed = inner.nodes.apply(node, epoch);
        let affected = inner.on_nodes(changed.as_slice());
        inner.notify_followers(&affected);
        affected
    }

    /// Removes a node. Returns the keys of jobs with pods on it.
    pub fn delete_node(&self, name: &str, version: Version) -> Vec<JobKey> {
        let mut inner = self.lock();
        inner.cursors.record(Kind::Node, "", version, Source::Watch);
        inner.nodes.reach(version);
        let deleted = inner.nodes.delete(name);
        let affected = inner.on_nodes(deleted.as_slice());
        inner.notify_followers(&affected);
        affected
    }

    /// Begins a list of a scope, which has this version. Must be called before its objects are
    /// applied.
    pub fn listing(&self, kind: Kind, scope: usize, listed: Version) {
        let mut inner = self.lock();
        if inner.cursors.begin(kind, scope, listed) {
            // Versions grow, unless the cluster was restored from a backup. Then the versions that
            // we know are meaningless.
            tracing::warn!(
                ?kind,
                listed = listed.0,
                "the server's versions went back: taking its word for everything"
            );
            inner.forget_versions(kind, scope);
        }
    }

    /// Ends a list of a scope that began at `began`. Returns the keys to reconcile, because objects
    /// of theirs were not listed.
    pub fn listed(&self, kind: Kind, scope: usize, listed: Version, began: Instant) -> Vec<JobKey> {
        let mut inner = self.lock();
        let refused = inner.refused_keys();
        let mut changed = inner.listed(kind, scope, listed, began);
        changed.extend(inner.listed_again(refused));
        inner.notify_followers(&changed);
        inner.notify_listeners(&changed);
        changed
    }

    /// Adds or updates a disruption budget. Returns the keys of jobs that it concerns, if anything
    /// changed.
    pub fn apply_budget(&self, budget: SlimBudget, source: Source) -> Vec<JobKey> {
        self.lock().apply_budget(budget, source)
    }

    /// Removes a disruption budget. Returns the keys of jobs that it concerns.
    pub fn delete_budget(&self, metadata: &Meta) -> Vec<JobKey> {
        self.lock().delete_budget(metadata)
    }

    /// The disruption budgets that a job owns, by its UID.
    pub fn own_budgets(&self, uid: &str) -> Arc<Vec<BudgetRow>> {
        let inner = self.lock();
        let owner = inner.owners.get(uid);
        owner.map(|owner| owner.budgets.share()).unwrap_or_default()
    }

    /// Records that a list of a scope was refused. Its jobs are left alone until a list succeeds,
    /// unless it is one of nodes or budgets. Returns the keys to reconcile.
    pub fn refused(&self, kind: Kind, scope: usize) -> Vec<JobKey> {
        let mut inner = self.lock();
        let is_new = inner.cursors.record_refusal(kind, scope);
        // Nobody frees nodes that are not seen, so nothing may refuse evictions there; nor may
        // anything whose changes are not seen.
        if is_new && matches!(kind, Kind::Node | Kind::Budget) {
            inner.keys_with_budgets()
        } else {
            Vec::new()
        }
    }

    /// Records that the watch of a scope has reached a version without a change of our objects.
    pub fn bookmark(&self, kind: Kind, scope: usize, version: Version) {
        let mut inner = self.lock();
        inner.cursors.bookmark(kind, scope, version);
        if kind == Kind::Node {
            inner.nodes.reach(version);
        }
    }

    /// Returns true if everything but nodes and budgets has been listed completely, by lists that
    /// began no earlier than `since`.
    pub fn is_listed_since(&self, since: Option<Instant>) -> bool {
        self.lock().cursors.is_listed_since(since)
    }
}

#[cfg(test)]
mod tests;
