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
#[path = "../common/fixture.rs"]
mod fixture;

mod bugs;
mod examples;
mod job;
mod life;
mod requests;

use common::{stored, view};
use serde_json::Value;
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
    fixture::changed(object(), pointer, value)
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
    fixture::at(child(object), status)
}

/// The object after the status was written that its child gives it.
fn told(object: &Value, child: &TrainingJob) -> Value {
    fixture::told(kind_of(object), object, child)
}

/// The types of the conditions of a status that hold, in their order.
fn holding(status: &Value) -> Vec<&str> {
    let conditions = status["conditions"].as_array().unwrap().iter();
    let true_ones = conditions.filter(|condition| condition["status"] == "True");
    true_ones
        .map(|condition| condition["type"].as_str().unwrap())
        .collect()
}
