//! AresJobs, as their users write them: what becomes of them when they are converted and when they
//! are served.
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
mod children;
mod life;
mod refusals;

use common::{stored, view};
use serde_json::Value;
use trainyard_api::TrainingJob;
use trainyard_compat::served;
use trainyard_core::foreign::{Child, ChildAction, ForeignKind, ForeignPlan};

/// One job of each type.
const OURS: [(&str, &str); 8] = [
    ("bagua", include_str!("../manifests/ares/bagua.yaml")),
    (
        "bagua-elastic",
        include_str!("../manifests/ares/bagua-elastic.yaml"),
    ),
    ("custom", include_str!("../manifests/ares/custom.yaml")),
    ("dask", include_str!("../manifests/ares/dask.yaml")),
    ("mpi", include_str!("../manifests/ares/mpi.yaml")),
    ("pytorch", include_str!("../manifests/ares/pytorch.yaml")),
    ("standalone", include_str!("../manifests/ares/standalone.yaml")),
    ("tensorflow", include_str!("../manifests/ares/tensorflow.yaml")),
];

/// The samples of AresOperator.
const SAMPLES: [(&str, &str); 6] = [
    (
        "sample-bagua",
        include_str!("../manifests/ares/sample-bagua.yaml"),
    ),
    (
        "sample-custom",
        include_str!("../manifests/ares/sample-custom.yaml"),
    ),
    ("sample-mpi", include_str!("../manifests/ares/sample-mpi.yaml")),
    (
        "sample-pytorch",
        include_str!("../manifests/ares/sample-pytorch.yaml"),
    ),
    (
        "sample-standalone",
        include_str!("../manifests/ares/sample-standalone.yaml"),
    ),
    (
        "sample-tensorflow",
        include_str!("../manifests/ares/sample-tensorflow.yaml"),
    ),
];

/// A manifest as its user wrote it.
fn manifest(name: &str) -> Value {
    let all = OURS.into_iter().chain(SAMPLES);
    let (_, text) = all.into_iter().find(|(known, _)| *known == name).unwrap();
    serde_saphyr::from_str(text).unwrap()
}

/// An object as a server shows it.
fn object(name: &str) -> Value {
    stored(manifest(name))
}

/// An object of which one field was changed; `null` removes it.
fn with(name: &str, pointer: &str, value: Value) -> Value {
    fixture::changed(object(name), pointer, value)
}

fn kind() -> &'static dyn ForeignKind {
    served().into_iter().find(|kind| kind.flag() == "ares").unwrap()
}

fn plan(object: &Value, child: Child<'_>) -> ForeignPlan {
    kind().plan(&view(object, child))
}

/// The child of a new object.
fn child(object: &Value) -> TrainingJob {
    match plan(object, Child::None) {
        ForeignPlan {
            child: ChildAction::Create(job),
            ..
        } => *job,
        other => panic!("{other:?}"),
    }
}

/// The object after the status was written that its child gives it.
fn told(object: &Value, child: &TrainingJob) -> Value {
    fixture::told(kind(), object, child)
}

/// A child with a status as the engine writes it.
fn at(object: &Value, status: Value) -> TrainingJob {
    fixture::at(child(object), status)
}

/// Why an object is not run: its phase, and the reason and message of its last condition.
fn refused(object: &Value) -> (String, String, String) {
    let plan = plan(object, Child::None);
    assert_eq!(plan.child, ChildAction::Leave);
    let status = plan.status.unwrap();
    let last = status["conditions"].as_array().unwrap().last().unwrap();
    assert_eq!(last["type"], status["phase"]);
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    (
        text(&status["phase"]),
        text(&last["reason"]),
        text(&last["message"]),
    )
}
