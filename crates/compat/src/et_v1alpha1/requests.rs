//! The requests of et-operator. Each owns a request of ours of the same name.

mod script;

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::EnvVar;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use trainyard_api::names::{ANNOTATION_CREATED, MANAGED_BY};
use trainyard_api::scale_request::{JobRef, SCRIPT_EXECUTED, TIMEOUT_SECONDS, ToAdd, ToDelete};
use trainyard_api::validate::{validate_scale_in, validate_scale_out};
use trainyard_api::{
    FieldError, ScaleIn, ScaleInSpec, ScaleKind, ScaleOut, ScaleOutSpec, ScalePhase, ScaleRequestStatus,
    TrainingJob,
};
use trainyard_core::foreign::{
    Child, ChildAction, ChildKind, ForeignKind, ForeignNote, ForeignPlan, ForeignView, NewRequest,
};
use trainyard_core::scale_request::ScaleRequest;

use self::script::Script;
use super::status::{CREATED, REASON_SCALING, SCALE_FAILED, SCALE_SUCCEEDED, SCALING, full_name, reason};
use super::{FLAG, GROUP, KIND, VERSION, definition};
use crate::child::{KindId, Kinship, kinship, owner};
use crate::notes::{self, Condition, Tone};
use crate::report::{Conditions, Problem, is_true};
use crate::{Purpose, lines, paths, read};

/// Where users wrote what is elsewhere in a request of ours.
const PATHS: [(&str, &str); 2] = [
    ("spec.jobRef", "spec.selector"),
    ("spec.timeoutSeconds", "spec.timeout"),
];

/// A kind of requests.
pub struct RequestKind(ScaleKind);

pub static SCALE_IN: RequestKind = RequestKind(ScaleKind::ScaleIn);
pub static SCALE_OUT: RequestKind = RequestKind(ScaleKind::ScaleOut);

#[derive(Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
struct Spec {
    selector: Option<Selector>,
    to_delete: Option<TheirToDelete>,
    to_add: Option<TheirToAdd>,
    timeout: Option<i32>,
    script: Option<String>,
    env: Option<Vec<EnvVar>>,
    backoff_limit: Option<i32>,
}

#[derive(Deserialize, Serialize)]
struct Selector {
    name: Option<String>,
}

#[derive(Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
struct TheirToDelete {
    count: Option<i32>,
    pod_names: Option<Vec<String>>,
}

#[derive(Deserialize, Serialize)]
struct TheirToAdd {
    count: Option<i32>,
}

/// A request of another operator, as one of ours.
#[derive(Clone, Debug, PartialEq)]
pub struct ConvertedRequest {
    /// The request. It is valid.
    pub request: NewRequest,
    /// What is different from what the other operator does: the path of a field, and a sentence.
    pub notes: Vec<String>,
}

impl ForeignKind for RequestKind {
    fn flag(&self) -> &'static str {
        FLAG
    }

    fn group(&self) -> &'static str {
        GROUP
    }

    fn version(&self) -> &'static str {
        VERSION
    }

    fn kind(&self) -> &'static str {
        self.0.as_str()
    }

    fn plural(&self) -> &'static str {
        self.0.plural()
    }

    fn component(&self) -> &'static str {
        MANAGED_BY
    }

    fn definition(&self) -> Value {
        definition::request(self.id(), self.0)
    }

    fn child_kind(&self) -> ChildKind {
        ChildKind::Request(self.0)
    }

    fn has_config(&self) -> bool {
        false
    }

    fn plan(&self, view: &ForeignView<'_>) -> ForeignPlan {
        let metadata = read::identity(view.object);
        let found = match view.child {
            Child::Request { request, job } => Some((request, job)),
            _ => None,
        };
        let child = found.map(|(request, _)| &request.metadata);
        match (kinship(self.id(), &metadata, child), found) {
            _ if metadata.deletion_timestamp.is_some() => ForeignPlan::default(),
            (Kinship::Ours, Some((request, job))) => self.with_child(view, &metadata, request, job),
            _ if has_ended(view.object) => ForeignPlan::default(),
            (Kinship::Stranger, _) => {
                let message = format!(
                    "there is a {} of {} of this name that is somebody else's, and it is not touched: rename this one, or \
                     delete that one, and create it anew",
                    self.0,
                    trainyard_api::GROUP
                );
                self.failed(view, &metadata, &message)
            }
            (Kinship::Former | Kinship::Ours, _) => ForeignPlan::default(),
            (Kinship::None, _) => self.childless(view, &metadata),
        }
    }

    fn refuse(&self, view: &ForeignView<'_>, why: &str) -> ForeignPlan {
        let metadata = read::identity(view.object);
        if metadata.deletion_timestamp.is_some() || has_ended(view.object) {
            return ForeignPlan::default();
        }
        self.failed(view, &metadata, why)
    }

    fn notes(&self, before: Option<&Value>, after: &Value) -> Vec<ForeignNote> {
        notes::notes(before, after, event)
    }

    fn review(&self, old: Option<&Value>, new: &Value) -> Vec<FieldError> {
        if old.is_some_and(|old| old.get("spec") != new.get("spec")) {
            let message = "can't be changed: create another request instead";
            return vec![FieldError::new("spec", message)];
        }
        self.convert(new, Purpose::Serve).err().unwrap_or_default()
    }
}

impl RequestKind {
    pub const fn id(&self) -> KindId {
        KindId {
            group: GROUP,
            version: VERSION,
            name: self.0.as_str(),
            plural: self.0.plural(),
        }
    }

    /// The request of ours that does what a request of et-operator does.
    pub fn convert(&self, object: &Value, purpose: Purpose) -> Result<ConvertedRequest, Vec<FieldError>> {
        let read::Object {
            metadata,
            mut spec,
            mut notes,
        } = read::object::<Spec>(object, purpose)?;
        let mut errors = Vec::new();
        let script = Script::of(&mut spec, &mut notes, &mut errors);
        let name = spec.selector.as_ref().and_then(|selector| selector.name.clone());
        let job_ref = JobRef {
            name: name.unwrap_or_default(),
        };
        let timeout_seconds = Some(spec.timeout.map_or(TIMEOUT_SECONDS, i64::from));
        let (request, found) = match self.0 {
            ScaleKind::ScaleIn => {
                errors.extend(misplaced("spec.toAdd", spec.to_add.is_some(), "toDelete"));
                let spec = ScaleInSpec {
                    job_ref,
                    to_delete: Some(victims(spec.to_delete, &mut errors)),
                    timeout_seconds,
                    script: script.program,
                    args: script.args,
                    env: script.env,
                    backoff_limit: script.backoff_limit,
                    ..ScaleInSpec::default()
                };
                let found = validate_scale_in(None, &spec);
                let mut request = ScaleIn::new("", spec);
                request.metadata = metadata;
                (NewRequest::ScaleIn(request), found)
            }
            ScaleKind::ScaleOut => {
                errors.extend(misplaced("spec.toDelete", spec.to_delete.is_some(), "toAdd"));
                let count = spec.to_add.and_then(|to_add| to_add.count);
                let spec = ScaleOutSpec {
                    job_ref,
                    to_add: count.map(|count| ToAdd { count }),
                    timeout_seconds,
                    script: script.program,
                    args: script.args,
                    env: script.env,
                    backoff_limit: script.backoff_limit,
                    ..ScaleOutSpec::default()
                };
                let found = validate_scale_out(None, &spec);
                let mut request = ScaleOut::new("", spec);
                request.metadata = metadata;
                (NewRequest::ScaleOut(request), found)
            }
        };
        let theirs = found.into_iter().map(theirs);
        // What is wrong with a field as it is written says more.
        let is_new = |error: &FieldError| !errors.iter().any(|known| error.path.starts_with(&known.path));
        let more: Vec<FieldError> = theirs.filter(is_new).collect();
        errors.extend(more);
        if errors.is_empty() {
            Ok(ConvertedRequest { request, notes })
        } else {
            Err(errors)
        }
    }

    /// There is no child: it is made, unless it was there and had begun.
    fn childless(&self, view: &ForeignView<'_>, metadata: &ObjectMeta) -> ForeignPlan {
        if let Some(writer) = view.other_writer {
            let message = format!(
                "its status is written by {writer}: another operator runs it. Stop that operator, and create this request anew"
            );
            return self.failed(view, metadata, &message);
        }
        if is_true(view.object, SCALING) {
            let message = format!(
                "its {} was deleted before it had ended: what it had begun goes on",
                self.0
            );
            return self.failed(view, metadata, &message);
        }
        match self.convert(view.object, Purpose::Serve) {
            Err(errors) => self.failed(view, metadata, &lines(&errors)),
            Ok(ConvertedRequest { mut request, .. }) => {
                let own = match &mut request {
                    NewRequest::ScaleIn(request) => &mut request.metadata,
                    NewRequest::ScaleOut(request) => &mut request.metadata,
                };
                *own = ObjectMeta {
                    name: metadata.name.clone(),
                    namespace: metadata.namespace.clone(),
                    owner_references: Some(vec![owner(self.id(), metadata)]),
                    annotations: created_at(view.object),
                    ..ObjectMeta::default()
                };
                let obstacle = view
                    .obstacle
                    .map(|obstacle| Problem::blocked(obstacle, "its request", ""));
                ForeignPlan {
                    child: ChildAction::CreateRequest(Box::new(request)),
                    status: obstacle.and_then(|problem| {
                        let created = self.created(view, metadata, Some(&problem.message));
                        news(view, status(vec![created], CREATED, Map::new()))
                    }),
                    ..ForeignPlan::default()
                }
            }
        }
    }

    fn with_child(
        &self,
        view: &ForeignView<'_>,
        metadata: &ObjectMeta,
        request: &ScaleRequest,
        job: Option<&TrainingJob>,
    ) -> ForeignPlan {
        let owners = job.and_then(|job| missing_owner(view.object, job));
        let status = (!has_ended(view.object)).then(|| self.mirror(view, metadata, request));
        let status = status.and_then(|status| news(view, status));
        ForeignPlan {
            owners: owners.into_iter().collect(),
            status_can_wait: status.as_ref().is_some_and(|status| status["phase"] == CREATED),
            status,
            ..ForeignPlan::default()
        }
    }

    /// The status that says what the child's says.
    fn mirror(&self, view: &ForeignView<'_>, metadata: &ObjectMeta, request: &ScaleRequest) -> Value {
        let child = &request.status;
        let phase = child.phase.unwrap_or(ScalePhase::Created);
        let message = child.message.as_deref().unwrap_or_default();
        let waits = (phase == ScalePhase::Created).then_some(message);
        let mut conditions = vec![self.created(view, metadata, waits.filter(|message| !message.is_empty()))];
        let mut add = |kind: &str, holds: bool, reason: &str, message: &str| {
            conditions.push(condition(view, kind, holds, reason, message));
        };
        let has_begun = child.start_time.is_some();
        if has_begun {
            let decided = child.conditions.iter().find(|known| known.type_ == SCALING);
            let decided = decided.map_or("", |known| &*known.message);
            add(SCALING, phase == ScalePhase::Scaling, REASON_SCALING, decided);
        }
        // There, the list of hosts is what is changed where there is no script.
        let follows = (phase == ScalePhase::ScaleSucceeded && has_begun)
            .then_some("The list of hosts of the launcher follows the workers.");
        if let Some(message) = executed(child).or(follows) {
            add(SCRIPT_EXECUTED, true, SCRIPT_EXECUTED, message);
        }
        match phase {
            ScalePhase::Created | ScalePhase::Scaling => {}
            ScalePhase::ScaleSucceeded => {
                add(SCALE_SUCCEEDED, true, &reason(self.0, "Succeeded"), message);
            }
            ScalePhase::ScaleFailed => add(SCALE_FAILED, true, &reason(self.0, "Failed"), message),
        }
        let mut more = Map::new();
        let pods = match self.0 {
            ScaleKind::ScaleIn => ("toDeletePods", &child.victims),
            ScaleKind::ScaleOut => ("addPods", &child.joining),
        };
        let times = [
            ("startTime", &child.start_time),
            ("completionTime", &child.completion_time),
        ];
        if !pods.1.is_empty() {
            more.insert(pods.0.to_owned(), json!(pods.1));
        }
        for (field, time) in times {
            more.extend(
                time.as_ref()
                    .map(|time| (field.to_owned(), json!(time.0.to_string()))),
            );
        }
        status(conditions, phase.as_str(), more)
    }

    /// The request ends before anything was done.
    fn failed(&self, view: &ForeignView<'_>, metadata: &ObjectMeta, message: &str) -> ForeignPlan {
        let conditions = vec![
            self.created(view, metadata, None),
            condition(view, SCALE_FAILED, true, &reason(self.0, "Failed"), message),
        ];
        let time = history(view).time();
        let more = Map::from_iter([("completionTime".to_owned(), time)]);
        ForeignPlan {
            status: news(view, status(conditions, SCALE_FAILED, more)),
            ..ForeignPlan::default()
        }
    }

    fn created(&self, view: &ForeignView<'_>, metadata: &ObjectMeta, waits: Option<&str>) -> Value {
        let named = full_name(
            self.0,
            metadata.namespace.as_deref().unwrap_or_default(),
            metadata.name.as_deref().unwrap_or_default(),
        );
        let job = view.object.pointer("/spec/selector/name").and_then(Value::as_str);
        let mut message = format!("{named} is created for {}.", job.unwrap_or("no job"));
        if let Some(waits) = waits {
            message = format!("{message} {waits}");
        }
        condition(view, CREATED, true, CREATED, &message)
    }
}

fn status(conditions: Vec<Value>, phase: &str, more: Map<String, Value>) -> Value {
    let mut status = Map::from_iter([
        ("phase".to_owned(), phase.into()),
        ("conditions".to_owned(), conditions.into()),
        // Their definition demands it.
        ("replicaStatuses".to_owned(), json!({})),
    ]);
    status.extend(more);
    status.into()
}

/// What the condition says of a script that has succeeded. Attempts that fail are in the message of
/// ours alone.
fn executed(child: &ScaleRequestStatus) -> Option<&str> {
    let mut conditions = child.conditions.iter();
    let known = conditions.find(|known| known.type_ == SCRIPT_EXECUTED && known.status == "True");
    known.map(|known| &*known.message)
}

fn misplaced(path: &str, is_given: bool, instead: &str) -> Option<FieldError> {
    is_given.then(|| FieldError::new(path, format!("is of another kind: this one has {instead}")))
}

/// Who leaves. What says nothing is as good as nothing: et-operator leaves out what is 0 or empty.
fn victims(given: Option<TheirToDelete>, errors: &mut Vec<FieldError>) -> ToDelete {
    let given = given.unwrap_or_default();
    let count = given.count.filter(|count| *count != 0);
    let pod_names = given.pod_names.filter(|names| !names.is_empty());
    let mut wrong = |message: String| errors.push(FieldError::new("spec.toDelete", message));
    let named = pod_names
        .as_ref()
        .map(|names| i32::try_from(names.len()).unwrap_or(i32::MAX));
    match (count, named) {
        (None, None) => wrong("says of nobody that they leave: give count or podNames".to_owned()),
        // Some versions of et-operator want both.
        (Some(count), Some(named)) if count != named => wrong(format!(
            "says that {count} leave, and names {named}: give one of count and podNames"
        )),
        _ => {}
    }
    ToDelete {
        count: count.filter(|_| named.is_none()),
        pod_names,
        node_names: None,
    }
}

/// An error as users of these kinds read it.
fn theirs(error: FieldError) -> FieldError {
    let mut rules = PATHS.iter();
    let path = rules.find_map(|(from, to)| paths::translate(&Value::Null, &error.path, from, to));
    FieldError::new(path.unwrap_or(error.path), error.message)
}

fn history<'a>(view: &ForeignView<'a>) -> Conditions<'a> {
    Conditions {
        object: view.object,
        now: view.now,
    }
}

fn condition(view: &ForeignView<'_>, kind: &str, holds: bool, reason: &str, message: &str) -> Value {
    let history = history(view);
    history.updated(history.make(kind, holds, reason, message))
}

/// The annotation that says when an object was created.
fn created_at(object: &Value) -> Option<BTreeMap<String, String>> {
    let time = object.pointer("/metadata/creationTimestamp")?.as_str()?;
    Some(BTreeMap::from([(ANNOTATION_CREATED.to_owned(), time.to_owned())]))
}

/// A status, if it is another than the object has.
fn news(view: &ForeignView<'_>, status: Value) -> Option<Value> {
    (view.object.get("status") != Some(&status)).then_some(status)
}

fn has_ended(object: &Value) -> bool {
    [SCALE_SUCCEEDED, SCALE_FAILED]
        .iter()
        .any(|kind| is_true(object, kind))
}

/// The TrainingJob of et-operator whose child a job is, if it does not own the object yet: the
/// object is deleted with it.
fn missing_owner(object: &Value, job: &TrainingJob) -> Option<OwnerReference> {
    let mut owners = job.metadata.owner_references.iter().flatten();
    let owner = owners.find(|owner| {
        let group = owner.api_version.split_once('/').map(|(group, _)| group);
        owner.controller == Some(true) && (group, &*owner.kind) == (Some(GROUP), KIND.name)
    })?;
    let known = object
        .pointer("/metadata/ownerReferences")
        .and_then(Value::as_array);
    let mut known = known.into_iter().flatten();
    if known.any(|known| known["uid"] == *owner.uid) {
        return None;
    }
    Some(OwnerReference {
        controller: None,
        block_owner_deletion: None,
        ..owner.clone()
    })
}

/// The event that reports a condition that comes to hold.
fn event<'a>(condition: &Condition<'a>) -> Option<(Tone, &'a str)> {
    let tone = match (condition.kind, condition.holds) {
        (SCALING | SCALE_SUCCEEDED, true) => Tone::Normal,
        (SCALE_FAILED, true) => Tone::Warning,
        _ => return None,
    };
    Some((tone, condition.reason))
}
