//! The kinds of et-operator, as their users write them: the job, and the requests to change its
//! size.
//!
//! Snapshots are under `snapshots/`; `cargo insta review` shows what changed.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests are tests, which clippy.toml lets unwrap"
)]

#[path = "../common/mod.rs"]
mod common;

mod bugs;
mod job;
mod life;
mod requests;

use common::{of_job, stored, view};
use serde_json::{Value, json};
use trainyard_api::TrainingJob;
use trainyard_compat::served;
use trainyard_core::foreign::{Child, ChildAction, ForeignKind, ForeignPlan};

const JOB: &str = include_str!("../manifests/et/job.yaml");

/// The job as a server shows it.
fn object() -> Value {
    stored(serde_saphyr::from_str(JOB).unwrap())
}

/// The job of which one field was changed; `null` removes it.
fn with(pointer: &str, value: Value) -> Value {
    changed(object(), pointer, value)
}

fn changed(mut object: Value, pointer: &str, value: Value) -> Value {
    let (parent, member) = pointer.rsplit_once('/').unwrap();
    let parent = object.pointer_mut(parent).unwrap().as_object_mut().unwrap();
    if value.is_null() {
        parent.remove(member).unwrap();
    } else {
        parent.insert(member.to_owned(), value);
    }
    object
}

fn kind_of(object: &Value) -> &'static dyn ForeignKind {
    let mut kinds = served().into_iter().filter(|kind| kind.flag() == "et");
    kinds.find(|kind| object["kind"] == kind.kind()).unwrap()
}

fn plan(object: &Value, child: Child<'_>) -> ForeignPlan {
    kind_of(object).plan(&view(object, child))
}

/// The child of a new job.
fn child(object: &Value) -> TrainingJob {
    match plan(object, Child::None).child {
        ChildAction::Create(job) => *job,
        other => panic!("{other:?}"),
    }
}

/// A child with a status as the engine writes it.
fn at(object: &Value, status: Value) -> TrainingJob {
    let mut job = child(object);
    let mut whole = json!({
        "conditions": [{
            "type": "Accepted", "status": "True", "reason": "Valid", "message": "",
            "lastTransitionTime": "2026-02-03T04:00:00Z",
        }],
        "roles": [],
        "startTime": "2026-02-03T04:00:01Z",
    });
    let Value::Object(members) = status else {
        panic!("{status}")
    };
    whole.as_object_mut().unwrap().extend(members);
    job.status = Some(serde_json::from_value(whole).unwrap());
    job
}

/// The object after the status was written that its child gives it.
fn told(object: &Value, child: &TrainingJob) -> Value {
    let mut object = object.clone();
    if let Some(status) = plan(&object, of_job(child)).status {
        object["status"] = status;
    }
    object
}

/// The types of the conditions of a status that hold, in their order.
fn holding(status: &Value) -> Vec<&str> {
    let conditions = status["conditions"].as_array().unwrap().iter();
    let true_ones = conditions.filter(|condition| condition["status"] == "True");
    true_ones
        .map(|condition| condition["type"].as_str().unwrap())
        .collect()
}
