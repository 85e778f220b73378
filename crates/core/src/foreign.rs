//! The interface to kinds of other operators: what the operator sees of an object, and what it does
//! about it.
//!
//! An object of such a kind owns an object of ours of the same name, its child. The child of a job
//! is a TrainingJob, which owns the pods; the child of a request is a ScaleIn or a ScaleOut. The
//! engine runs the child and knows nothing of the object. `trainyard-compat` decides, for one
//! object at a time, what its child should be and what the object's status should say.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use serde_json::Value;
use trainyard_api::{Dialect, FieldError, ScaleIn, ScaleKind, ScaleOut, TrainingJob};

use crate::dialect;
use crate::scale_request::ScaleRequest;
use crate::view::{PodRow, Settings};

/// Returns true if a job is the child of an object of such a kind. The object has events of its own
/// that tell that the job runs and that it has succeeded.
pub fn is_child(job: &TrainingJob) -> bool {
    let mut owners = job.metadata.owner_references.iter().flatten();
    dialect::of(job) != Dialect::Native && owners.any(|owner| owner.controller == Some(true))
}

/// The role of a job that a pod with this name belongs to.
pub fn role_of<'a>(job: &TrainingJob, pod: &'a str) -> Option<&'a str> {
    let name = job.metadata.name.as_deref()?;
    dialect::split(dialect::of(job), name, pod).map(|(role, _)| role)
}

/// A served kind of another operator.
pub trait ForeignKind: Send + Sync {
    /// The word with which users ask to serve it.
    fn flag(&self) -> &'static str;
    /// Its group.
    fn group(&self) -> &'static str;
    /// Its version.
    fn version(&self) -> &'static str;
    /// Its name.
    fn kind(&self) -> &'static str;
    /// The name of the kind in paths.
    fn plural(&self) -> &'static str;
    /// The name under which its users know who reports events.
    fn component(&self) -> &'static str;
    /// Its definition, for clusters that have none.
    fn definition(&self) -> Value;
    /// What the children of its objects are.
    fn child_kind(&self) -> ChildKind;
    /// Returns true if its objects have a ConfigMap besides their child.
    fn has_config(&self) -> bool;
    /// Plans what should be done about an object. It is total: whatever is wrong with an object
    /// becomes a part of its status.
    fn plan(&self, view: &ForeignView<'_>) -> ForeignPlan;
    /// Plans what should be done about an object whose spec is not decoded, and why it is not. The
    /// object in the view has none. Its child is left as it is.
    fn refuse(&self, view: &ForeignView<'_>, why: &str) -> ForeignPlan;
    /// The events for a change of an object's status, which are sent when that is written. `before`
    /// is the last status that users have had events about. Without it, only what is wrong is
    /// reported, because nobody knows which events were sent.
    fn notes(&self, before: Option<&Value>, after: &Value) -> Vec<ForeignNote>;
    /// Returns everything that is wrong with an object, and with its change if `old` is given. The
    /// paths are those of its own fields.
    fn review(&self, old: Option<&Value>, new: &Value) -> Vec<FieldError>;
}

/// What the children of a kind's objects are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChildKind {
    /// TrainingJobs.
    Job,
    /// Requests to change the size of a TrainingJob.
    Request(ScaleKind),
}

/// Everything that is known about one object of another operator's kind.
#[derive(Clone, Copy, Debug)]
pub struct ForeignView<'a> {
    /// The object.
    pub object: &'a Value,
    /// The object of ours that has the same name.
    pub child: Child<'a>,
    /// Why its child can't be written.
    pub obstacle: Option<&'a Obstacle>,
    /// Another program that writes its status.
    pub other_writer: Option<&'a str>,
    /// Settings of the operator.
    pub settings: &'a Settings,
    /// The time.
    pub now: Timestamp,
}

/// Why the child of an object can't be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Obstacle {
    /// The server refuses it, with this message.
    Refused(String),
    /// Somebody else owns the ConfigMap of this name, which must exist before the child.
    Taken(String),
}

/// The object that has the name of an object's child.
#[derive(Clone, Copy, Debug)]
pub enum Child<'a> {
    /// There is none.
    None,
    /// A job, which may be somebody else's.
    Job {
        /// The job.
        job: &'a TrainingJob,
        /// Its pods.
        pods: &'a [PodRow],
    },
    /// A job that can't be parsed, and why.
    Malformed(&'a ObjectMeta, &'a str),
    /// A request, which may be somebody else's.
    Request {
        /// The request.
        request: &'a ScaleRequest,
        /// The job that it is about, if there is one.
        job: Option<&'a TrainingJob>,
    },
}

/// What should be done about an object.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ForeignPlan {
    /// What to do about its child.
    pub child: ChildAction,
    /// Owners that the object should have besides those that it has.
    pub owners: Vec<OwnerReference>,
    /// The ConfigMap to write before the child. It is not watched.
    pub config: Option<Box<ConfigMap>>,
    /// Events to send when that is done.
    pub notes: Vec<ForeignNote>,
    /// The status to write, if it differs.
    pub status: Option<Value>,
    /// Whether the status says nothing that users wait for, so that it may be written a little
    /// later, together with what comes next.
    pub status_can_wait: bool,
    /// Whether to delete the object, because its TTL after the end is over. Its status is written
    /// first.
    pub delete: bool,
    /// When to plan again.
    pub wake_at: Option<Timestamp>,
}

/// What to do about the child of an object.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum ChildAction {
    /// It is as it should be, or belongs to somebody else.
    #[default]
    Leave,
    /// Create this job.
    Create(Box<TrainingJob>),
    /// Replace it by this job, if it still has the resource version that this names.
    Replace(Box<TrainingJob>),
    /// Create this request. A request never changes.
    CreateRequest(Box<NewRequest>),
}

/// A request that is to be created.
#[derive(Clone, Debug, PartialEq)]
pub enum NewRequest {
    /// For fewer pods.
    ScaleIn(ScaleIn),
    /// For more pods.
    ScaleOut(ScaleOut),
}

/// An event about an object, in the words that its users know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForeignNote {
    /// Whether something is wrong.
    pub warning: bool,
    /// One word.
    pub reason: String,
    /// A sentence.
    pub message: String,
}
