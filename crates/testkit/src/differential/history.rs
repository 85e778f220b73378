//! What a small pod was, from its creation to its end, without what differs from run to run.

#![allow(
    clippy::panic,
    reason = "this is the vocabulary of tests, which fail by panicking"
)]

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::pods::{Small, Until, small_pods, surroundings};
use crate::lab::Lab;

/// What was seen of a pod.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct History {
    /// The phases, each once, in their order.
    pub phases: Vec<String>,
    /// The status in the end.
    pub end: Value,
}

impl History {
    /// Where another differs.
    pub fn difference(&self, embedded: &Self) -> String {
        let changes = json_patch::diff(&json!(self), &json!(embedded));
        let changes: Vec<String> = changes
            .iter()
            .map(|change| format!("embedded: {change}"))
            .collect();
        changes.join("\n")
    }
}

/// Runs all small pods at once, and says what was seen of each.
///
/// # Panics
/// If one never comes to its end.
pub fn record(lab: &Lab) -> BTreeMap<String, History> {
    for object in surroundings() {
        lab.apply_one(object).unwrap_or_else(|error| panic!("{error}"));
    }
    let pods = small_pods();
    for pod in &pods {
        lab.apply_one(manifest(pod))
            .unwrap_or_else(|error| panic!("{}: {error}", pod.name));
    }
    let mut histories: BTreeMap<String, History> = BTreeMap::new();
    // What comes after is not looked at: a container that waits to be started again, for one, does not wait for ever.
    let mut over: BTreeSet<&'static str> = BTreeSet::new();
    lab.until("all small pods come to their ends", || {
        let mut open = Vec::new();
        let found = lab.get("pods");
        for object in found["items"].as_array().into_iter().flatten() {
            let name = object["metadata"]["name"].as_str().unwrap_or_default();
            let Some(pod) = pods.iter().find(|pod| pod.name == name) else {
                continue;
            };
            if over.contains(pod.name) {
                continue;
            }
            let history = histories.entry(name.to_owned()).or_default();
            let phase = object["status"]["phase"].as_str().unwrap_or_default().to_owned();
            if history.phases.last() != Some(&phase) {
                history.phases.push(phase);
            }
            history.end = tidy(object["status"].clone());
            if is_over(pod.until, &object["status"]) {
                over.insert(pod.name);
            } else {
                open.push(format!("{name}: {}", object["status"]));
            }
        }
        if over.len() == pods.len() {
            Ok(())
        } else {
            Err(open.join("\n"))
        }
    });
    histories
}

fn manifest(pod: &Small) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": pod.name, "labels": {"tier": "small"}},
        "spec": pod.spec,
    })
}

fn is_over(until: Until, status: &Value) -> bool {
    let containers = || status["containerStatuses"].as_array().into_iter().flatten();
    let ready = status["conditions"]
        .as_array()
        .into_iter()
        .flatten()
        .any(|condition| condition["type"] == "Ready" && condition["status"] == "True");
    match until {
        Until::Ended => status["phase"] == "Succeeded" || status["phase"] == "Failed",
        Until::Ready => ready,
        Until::Running => status["phase"] == "Running",
        Until::Waits(reason) => {
            containers().any(|container| container["state"]["waiting"]["reason"] == reason)
        }
    }
}

/// Takes out times, addresses and identifiers.
fn tidy(mut status: Value) -> Value {
    scrub(&mut status);
    status
}

fn scrub(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            for name in [
                "startTime",
                "startedAt",
                "finishedAt",
                "lastTransitionTime",
                "lastProbeTime",
                "containerID",
                "imageID",
                "podIP",
                "podIPs",
                "hostIP",
                "hostIPs",
                "observedGeneration",
                "allocatedResources",
                "resources",
                "user",
                "volumeMounts",
            ] {
                fields.remove(name);
            }
            fields.values_mut().for_each(scrub);
        }
        Value::Array(items) => {
            items.iter_mut().for_each(scrub);
            if items.iter().all(|item| item["type"].is_string()) {
                items.sort_by_key(|item| item["type"].to_string());
            }
        }
        _ => {}
    }
}
