//! Objects of other operators' kinds as a cluster shows them, and what the operator sees of them.

use std::sync::LazyLock;

use jiff::Timestamp;
use serde_json::Value;
use trainyard_api::TrainingJob;
use trainyard_core::foreign::{Child, ForeignView};
use trainyard_core::view::{Agent, PodPhase, PodRow, Settings};

static DEFAULT_SETTINGS: LazyLock<Settings> = LazyLock::new(Settings::default);

pub fn now() -> Timestamp {
    "2026-02-03T04:05:06Z".parse().unwrap()
}

/// An object as a server shows it that has stored it.
pub fn stored(mut object: Value) -> Value {
    object["metadata"]["namespace"] = "research".into();
    object["metadata"]["uid"] = "object-uid".into();
    object["metadata"]["generation"] = 1.into();
    object["metadata"]["resourceVersion"] = "7".into();
    object
}

/// What the operator sees of an object that nothing keeps from being run.
pub fn view<'a>(object: &'a Value, child: Child<'a>) -> ForeignView<'a> {
    ForeignView {
        object,
        child,
        obstacle: None,
        other_writer: None,
        settings: &DEFAULT_SETTINGS,
        now: now(),
    }
}

/// Settings of an operator that has an agent.
pub fn settings() -> Settings {
    Settings {
        agent: Some(Agent {
            image: "registry.example/trainyard:v1".to_owned(),
            image_pull_policy: None,
            may_be_root: false,
            command: vec!["/trainyard-agent".to_owned()],
            observer: None,
        }),
        ..Settings::default()
    }
}

/// A child that is a job, of whose pods nothing is known.
pub fn of_job(job: &TrainingJob) -> Child<'_> {
    Child::Job { job, pods: &[] }
}

/// A pod, as the operator sees it.
#[allow(dead_code, reason = "not all who use this module look at pods")]
pub fn pod(name: &str, phase: PodPhase) -> PodRow {
    PodRow {
        name: name.into(),
        uid: name.into(),
        node: None,
        phase,
        lingers: false,
        ready: true,
        address: None,
        terminating: false,
        labelled: true,
        passed_on: 0,
        released: true,
        waits: false,
        template: None,
        spec: None,
        attempt: 0,
        end: None,
        trouble: None,
    }
}
