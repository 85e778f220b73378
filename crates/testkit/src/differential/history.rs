//! The statuses of a small pod from its creation to its end, without what differs between runs.

#![allow(
    clippy::panic,
    reason = "this is the vocabulary of tests, which fail by panicking"
)]

use std::collections::{BTreeMap, VecDeque};
use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::pods::{SmallPod, Until, referenced_objects, small_pods, volume};
use crate::lab::{Change, Lab};

/// With more pods at once, a small machine would be too busy for their probes.
const MAX_PARALLEL: usize = 16;

/// Something that changed, in the order in which it did.
pub type Timeline = Vec<String>;

/// What was seen of a pod.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct History {
    /// Its phases.
    pub phases: Timeline,
    /// Its conditions, by their types.
    pub conditions: BTreeMap<String, Timeline>,
    /// What its containers did, by their names.
    pub containers: BTreeMap<String, Timeline>,
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
        format!(
            "{}\nreal:     {}\nembedded: {}",
            changes.join("\n"),
            json!(self),
            json!(embedded)
        )
    }

    fn record_status(&mut self, object: &Value) {
        let status = &object["status"];
        note(&mut self.phases, text(&status["phase"]).to_owned());
        for condition in items(&status["conditions"]) {
            let timeline = self.conditions.entry(text(&condition["type"]).to_owned());
            let state = format!("{} {}", text(&condition["status"]), text(&condition["reason"]));
            note(timeline.or_default(), state.trim_end().to_owned());
        }
        for container in containers(status) {
            let timeline = self.containers.entry(text(&container["name"]).to_owned());
            note(timeline.or_default(), described(&container["state"]));
        }
        self.end = tidy(object);
    }
}

fn note(timeline: &mut Timeline, state: String) {
    if timeline.last() != Some(&state) {
        timeline.push(state);
    }
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn items(list: &Value) -> impl Iterator<Item = &Value> {
    list.as_array().into_iter().flatten()
}

fn containers(status: &Value) -> impl Iterator<Item = &Value> {
    items(&status["initContainerStatuses"]).chain(items(&status["containerStatuses"]))
}

fn described(state: &Value) -> String {
    let (waiting, terminated) = (&state["waiting"], &state["terminated"]);
    if waiting.is_object() {
        format!("waiting {}", text(&waiting["reason"]))
    } else if terminated.is_object() {
        format!(
            "terminated {} {}",
            text(&terminated["reason"]),
            terminated["exitCode"]
        )
    } else {
        "running".to_owned()
    }
}

/// What is being recorded.
struct Recorder<'a> {
    lab: &'a Lab,
    pods: BTreeMap<&'static str, SmallPod>,
    /// Not created yet.
    waiting: VecDeque<SmallPod>,
    histories: BTreeMap<String, History>,
    /// Those that are being run, with their last status.
    open: BTreeMap<&'static str, Value>,
    /// Deletion was requested.
    deleting: Vec<&'static str>,
}

/// Runs all small pods, and says what was seen of each. `directory` is an empty directory, for
/// volumes.
///
/// # Panics
/// If one never comes to its end.
pub fn record(lab: &Lab, directory: &Path) -> BTreeMap<String, History> {
    let volume = (!lab.is_embedded()).then(|| volume(&lab.namespace, directory));
    for object in referenced_objects().into_iter().chain(volume) {
        lab.apply_one(object).unwrap_or_else(|error| panic!("{error}"));
    }
    let mut changes = lab.follow("pods");
    let mut recorder = Recorder::new(lab);
    loop {
        recorder.make_more();
        if recorder.is_done() {
            if !lab.is_embedded() {
                lab.delete(&format!("persistentvolume {}", lab.namespace));
            }
            return recorder.histories;
        }
        let change = changes.next(&recorder.describe_open());
        recorder.apply(&change);
    }
}

impl<'a> Recorder<'a> {
    fn new(lab: &'a Lab) -> Self {
        let mut waiting = small_pods();
        // Pods that must stay in a phase come first, so that they are observed longest.
        waiting.sort_by_key(|pod| !matches!(pod.until, Until::Stays(_)));
        Self {
            lab,
            pods: waiting.iter().map(|pod| (pod.name, pod.clone())).collect(),
            waiting: waiting.into(),
            histories: BTreeMap::new(),
            open: BTreeMap::new(),
            deleting: Vec::new(),
        }
    }

    fn describe_open(&self) -> String {
        let open = self.open.iter();
        let open = open.map(|(name, status)| format!("{name} ({})", text(&status["phase"])));
        format!(
            "these come to their ends: {}",
            open.collect::<Vec<_>>().join(", ")
        )
    }

    fn stays(&self, name: &str) -> bool {
        matches!(self.pods[name].until, Until::Stays(_))
    }

    fn make_more(&mut self) {
        while self.open.keys().filter(|name| !self.stays(name)).count() < MAX_PARALLEL {
            let Some(pod) = self.waiting.pop_front() else {
                return;
            };
            self.lab
                .apply_one(manifest(&pod))
                .unwrap_or_else(|error| panic!("{}: {error}", pod.name));
            self.open.insert(pod.name, Value::Null);
        }
    }

    fn is_done(&self) -> bool {
        let stays = |(name, status): (&&'static str, &Value)| match self.pods[*name].until {
            Until::Stays(phase) => status["phase"] == phase,
            _ => false,
        };
        self.waiting.is_empty() && self.open.iter().all(stays)
    }

    fn apply(&mut self, change: &Change) {
        let (Change::Applied(object) | Change::Deleted(object)) = change;
        let name = text(&object["metadata"]["name"]);
        // Later changes are ignored: a container in back-off is restarted at some time.
        let Some((&name, status)) = self.open.iter_mut().find(|(open, _)| **open == name) else {
            return;
        };
        *status = object["status"].clone();
        self.histories
            .entry(name.to_owned())
            .or_default()
            .record_status(object);
        let until = self.pods[name].until;
        let is_over = match (until, change) {
            (Until::Deleted(when), Change::Applied(_)) => {
                if !self.deleting.contains(&name) && has_reached(*when, &object["status"]) {
                    self.deleting.push(name);
                    self.lab.delete(&format!("pod {name}"));
                }
                false
            }
            (Until::Deleted(_), Change::Deleted(_)) => true,
            (_, Change::Deleted(_)) => panic!("{name} is gone: {object:#}"),
            (until, Change::Applied(_)) => has_reached(until, &object["status"]),
        };
        if is_over {
            self.open.remove(name);
        }
    }
}

fn manifest(pod: &SmallPod) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": pod.name, "labels": {"tier": "small"}},
        "spec": pod.spec,
    })
}

fn has_reached(until: Until, status: &Value) -> bool {
    let is = |kind: &str, value: &str| {
        items(&status["conditions"])
            .any(|condition| condition["type"] == kind && condition["status"] == value)
    };
    let runs = || containers(status).any(|container| container["state"]["running"].is_object());
    let waits =
        |reason: &str| containers(status).any(|container| container["state"]["waiting"]["reason"] == reason);
    match until {
        // A real kubelet removes the sandbox, and its condition, after it has reported the end of
        // the pod.
        Until::Ended => {
            let phase = text(&status["phase"]);
            matches!(phase, "Succeeded" | "Failed") && is("PodReadyToStartContainers", "False") && !runs()
        }
        Until::Ready => is("Ready", "True"),
        Until::Waits(reason) => waits(reason),
        Until::WaitsBeside(reason) => waits(reason) && runs(),
        Until::Stays(_) | Until::Deleted(_) => false,
    }
}

/// The status of a pod without times, addresses and identifiers.
fn tidy(object: &Value) -> Value {
    let mut status = object["status"].clone();
    let metadata = &object["metadata"];
    scrub(
        &mut status,
        &[
            (text(&metadata["uid"]), "UID"),
            (text(&metadata["namespace"]), "NAMESPACE"),
        ],
    );
    status
}

fn scrub(value: &mut Value, names: &[(&str, &str)]) {
    match value {
        Value::Object(fields) => {
            for name in [
                "startTime",
                "startedAt",
                "finishedAt",
                "lastTransitionTime",
                "lastProbeTime",
                "containerID",
                "podIP",
                "podIPs",
                "hostIP",
                "hostIPs",
            ] {
                fields.remove(name);
            }
            for value in fields.values_mut() {
                scrub(value, names);
            }
        }
        Value::Array(items) => {
            for value in &mut *items {
                scrub(value, names);
            }
            if items.iter().all(|item| item["type"].is_string()) {
                items.sort_by_key(|item| item["type"].to_string());
            }
        }
        Value::String(words) => {
            for (name, instead) in names {
                *words = words.replace(name, instead);
            }
        }
        _ => {}
    }
}
