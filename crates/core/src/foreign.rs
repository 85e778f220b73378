//! Kinds of other operators, as the operator's hands see them: what they show, and what they are told to do.
//!
//! An object of such a kind owns a TrainingJob of its name, the child, which owns the pods. The engine knows nothing of
//! that: it runs the child. `trainyard-compat` says, for one object at a time, what its child should be and what the
//! object's status should say.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::Value;
use trainyard_api::{FieldError, TrainingJob};

use crate::view::Settings;

/// A kind of another operator that is served.
pub trait ForeignKind: Send + Sync {
    /// The word by which users ask for it to be served.
    fn flag(&self) -> &'static str;
    /// Its group.
    fn group(&self) -> &'static str;
    /// Its version.
    fn version(&self) -> &'static str;
    /// Its name.
    fn kind(&self) -> &'static str;
    /// What its objects are called in paths.
    fn plural(&self) -> &'static str;
    /// Its definition, for clusters that have none.
    fn definition(&self) -> Value;
    /// Whether its objects have a ConfigMap, besides their child.
    fn has_config(&self) -> bool;
    /// What should be done about an object. Total: what is wrong with it is told on itself.
    fn plan(&self, view: &ForeignView<'_>) -> ForeignPlan;
    /// What its users are told of a change of an object's status, once that has been written. Without `before`, which is what
    /// they were told last, it is not known what they know: then only what is wrong is told.
    fn notes(&self, before: Option<&Value>, after: &Value) -> Vec<ForeignNote>;
    /// All that is wrong with an object, and with the way it was changed where `old` is given, with the paths of its own
    /// fields.
    fn review(&self, old: Option<&Value>, new: &Value) -> Vec<FieldError>;
}

/// All that is known of one object of another operator's kind.
#[derive(Clone, Copy, Debug)]
pub struct ForeignView<'a> {
    /// The object.
    pub object: &'a Value,
    /// The TrainingJob of its name.
    pub child: Child<'a>,
    /// What keeps its child from being written.
    pub obstacle: Option<&'a Obstacle>,
    /// Who else writes its status.
    pub other_writer: Option<&'a str>,
    /// Settings of the operator.
    pub settings: &'a Settings,
    /// The time.
    pub now: Timestamp,
}

/// What keeps the child of an object from being written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Obstacle {
    /// The server refuses it, in its words.
    Refused(String),
    /// The ConfigMap that must be there first has a name that is somebody else's: this one.
    Taken(String),
}

/// The TrainingJob that has the name of an object's child.
#[derive(Clone, Copy, Debug)]
pub enum Child<'a> {
    /// There is none.
    None,
    /// A job, perhaps of somebody else.
    Job(&'a TrainingJob),
    /// One that can't be read, and why.
    Malformed(&'a ObjectMeta, &'a str),
}

/// What should be done about an object.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ForeignPlan {
    /// What becomes of its child.
    pub child: ChildAction,
    /// The ConfigMap that is seen to first, where the child is written. It is not watched.
    pub config: Option<Box<ConfigMap>>,
    /// What its users are told once that has been done.
    pub notes: Vec<ForeignNote>,
    /// Its status, if that is not what it should be.
    pub status: Option<Value>,
    /// Whether it is to be deleted, because its time after its end is over. What its status says is told first.
    pub delete: bool,
    /// When to look again.
    pub wake_at: Option<Timestamp>,
}

/// What becomes of the child of an object.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum ChildAction {
    /// It is as it should be, or not to be touched.
    #[default]
    Leave,
    /// It is created.
    Create(Box<TrainingJob>),
    /// It is replaced by this, if it is still of the version that this names.
    Replace(Box<TrainingJob>),
}

/// What to tell users of an object: an event, in the words that they know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForeignNote {
    /// Whether something is wrong.
    pub warning: bool,
    /// One word.
    pub reason: String,
    /// A sentence.
    pub message: String,
}
