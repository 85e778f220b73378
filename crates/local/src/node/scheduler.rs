//! The scheduler: binds each pod to a node on which it fits, or reports why there is none.

mod fit;

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::{Binding, Node, ObjectReference, PersistentVolumeClaim, Pod, PodCondition};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::{Patch, PatchParams, PostParams};
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client};

use super::events::{EventType, PodEvent, Recorder, Source, reference};
use crate::env::Environment;

const RETRY_INTERVAL: Duration = Duration::from_millis(100);

#[derive(Default)]
struct ClusterState {
    pods: HashMap<String, Pod>,
    nodes: HashMap<String, Node>,
    claims: HashSet<(String, String)>,
}

/// Runs until it is dropped.
pub async fn run(client: Client, environment: Environment, recorder: Recorder) {
    let pods = watcher(Api::<Pod>::all(client.clone()), watcher::Config::default());
    let nodes = watcher(Api::<Node>::all(client.clone()), watcher::Config::default());
    let claims = Api::<PersistentVolumeClaim>::all(client.clone());
    let claims = watcher(claims, watcher::Config::default()).map_ok(Either::Claim);
    let nodes = nodes.map_ok(Either::Node);
    let pods = pods.map_ok(Either::Pod);
    let others = futures::stream::select(nodes, claims);
    let mut events = std::pin::pin!(futures::stream::select(pods, others).ready_chunks(1000));
    let mut state = ClusterState::default();
    while let Some(batch) = events.next().await {
        for event in batch {
            match event {
                Ok(event) => state.take(event),
                Err(error) => {
                    tracing::warn!(%error, "could not watch pods, nodes or claims");
                    tokio::time::sleep(RETRY_INTERVAL).await;
                }
            }
        }
        state.schedule(&client, &environment, &recorder).await;
    }
}

#[expect(clippy::large_enum_variant, reason = "few at a time, and none is kept")]
enum Either {
    Pod(Event<Pod>),
    Node(Event<Node>),
    Claim(Event<PersistentVolumeClaim>),
}

impl ClusterState {
    fn take(&mut self, event: Either) {
        match event {
            Either::Pod(Event::Apply(pod) | Event::InitApply(pod)) => {
                let uid = pod.metadata.uid.clone().unwrap_or_default();
                // The watch may not show a binding of this scheduler yet.
                let assumed = self
                    .pods
                    .get(&uid)
                    .and_then(|state| state.spec.as_ref()?.node_name.clone());
                let mut pod = pod;
                if let Some(spec) = &mut pod.spec
                    && spec.node_name.is_none()
                {
                    spec.node_name = assumed;
                }
                self.pods.insert(uid, pod);
            }
            Either::Pod(Event::Delete(pod)) => {
                self.pods.remove(pod.metadata.uid.as_deref().unwrap_or_default());
            }
            Either::Pod(Event::Init) => self.pods.clear(),
            Either::Node(Event::Apply(node) | Event::InitApply(node)) => {
                self.nodes
                    .insert(node.metadata.name.clone().unwrap_or_default(), node);
            }
            Either::Node(Event::Delete(node)) => {
                self.nodes
                    .remove(node.metadata.name.as_deref().unwrap_or_default());
            }
            Either::Node(Event::Init) => self.nodes.clear(),
            Either::Claim(Event::Apply(claim) | Event::InitApply(claim)) => {
                self.claims.insert(key(claim.metadata));
            }
            Either::Claim(Event::Delete(claim)) => {
                self.claims.remove(&key(claim.metadata));
            }
            Either::Claim(Event::Init) => self.claims.clear(),
            Either::Pod(Event::InitDone) | Either::Node(Event::InitDone) | Either::Claim(Event::InitDone) => {
            }
        }
    }

    async fn schedule(&mut self, client: &Client, environment: &Environment, recorder: &Recorder) {
        let mut waiting: Vec<Pod> = self
            .pods
            .values()
            .filter(|pod| is_waiting(pod))
            .cloned()
            .collect();
        waiting.sort_by_key(|pod| {
            let priority = pod.spec.as_ref().and_then(|spec| spec.priority).unwrap_or(0);
            (
                -priority,
                pod.metadata.creation_timestamp.clone(),
                pod.metadata.name.clone(),
            )
        });
        for pod in waiting {
            let all: Vec<_> = self.pods.values().collect();
            let nodes: Vec<_> = self.nodes.values().collect();
            match fit::choose(&pod, &nodes, &all, &self.claims) {
                Ok(node) => {
                    if bind(client, &pod, &node).await {
                        recorder.record(bound(&pod, &node));
                        let uid = pod.metadata.uid.as_deref().unwrap_or_default();
                        if let Some(spec) = self.pods.get_mut(uid).and_then(|pod| pod.spec.as_mut()) {
                            spec.node_name = Some(node);
                        }
                    }
                }
                Err(message) => {
                    if is_new_reason(&pod, &message) {
                        recorder.record(pod_event(
                            &pod,
                            EventType::Warning,
                            "Scheduling",
                            "FailedScheduling",
                            message.clone(),
                        ));
                        write_unschedulable(client, environment, &pod, message).await;
                    }
                }
            }
        }
    }
}

fn key(metadata: kube::api::ObjectMeta) -> (String, String) {
    let part = Option::unwrap_or_default;
    (part(metadata.namespace), part(metadata.name))
}

fn is_waiting(pod: &Pod) -> bool {
    let Some(spec) = &pod.spec else { return false };
    let gated = spec
        .scheduling_gates
        .as_ref()
        .is_some_and(|gates| !gates.is_empty());
    let ours = spec
        .scheduler_name
        .as_deref()
        .is_none_or(|name| name == "default-scheduler");
    spec.node_name.is_none() && pod.metadata.deletion_timestamp.is_none() && ours && !gated
}

async fn bind(client: &Client, pod: &Pod, node: &str) -> bool {
    let name = pod.metadata.name.clone().unwrap_or_default();
    let namespace = pod.metadata.namespace.clone().unwrap_or_default();
    let binding = Binding {
        metadata: kube::api::ObjectMeta {
            name: Some(name.clone()),
            namespace: Some(namespace.clone()),
            uid: pod.metadata.uid.clone(),
            ..Default::default()
        },
        target: ObjectReference {
            kind: Some("Node".to_owned()),
            api_version: Some("v1".to_owned()),
            name: Some(node.to_owned()),
            ..ObjectReference::default()
        },
    };
    let api = Api::<Pod>::namespaced(client.clone(), &namespace);
    let bound: Result<serde_json::Value, _> = api
        .create_subresource("binding", &name, &PostParams::default(), &binding)
        .await;
    match bound {
        Ok(_) => true,
        Err(error) => {
            tracing::debug!(pod = name, %error, "could not bind a pod");
            false
        }
    }
}

fn bound(pod: &Pod, node: &str) -> PodEvent {
    let name = |part: &Option<String>| part.clone().unwrap_or_default();
    let (namespace, pod_name) = (name(&pod.metadata.namespace), name(&pod.metadata.name));
    let message = format!("Successfully assigned {namespace}/{pod_name} to {node}");
    pod_event(pod, EventType::Normal, "Binding", "Scheduled", message)
}

fn pod_event(
    pod: &Pod,
    kind: EventType,
    action: &'static str,
    reason: &'static str,
    message: String,
) -> PodEvent {
    PodEvent {
        source: Source::Scheduler { action },
        regarding: reference(pod, None),
        kind,
        reason,
        message,
    }
}

/// The condition PodScheduled=False of a pod.
fn unscheduled(pod: &Pod) -> Option<&PodCondition> {
    let conditions = pod.status.as_ref()?.conditions.as_ref()?;
    conditions
        .iter()
        .find(|condition| condition.type_ == "PodScheduled" && condition.status == "False")
}

fn is_new_reason(pod: &Pod, message: &str) -> bool {
    unscheduled(pod).is_none_or(|state| state.message.as_deref() != Some(message))
}

async fn write_unschedulable(client: &Client, environment: &Environment, pod: &Pod, message: String) {
    let status = pod.status.clone().unwrap_or_default();
    let mut conditions = status.conditions.unwrap_or_default();
    let since = unscheduled(pod).and_then(|state| state.last_transition_time.clone());
    conditions.retain(|condition| condition.type_ != "PodScheduled");
    conditions.push(PodCondition {
        type_: "PodScheduled".to_owned(),
        status: "False".to_owned(),
        reason: Some("Unschedulable".to_owned()),
        message: Some(message),
        last_transition_time: Some(since.unwrap_or_else(|| Time(environment.now()))),
        ..PodCondition::default()
    });
    let name = pod.metadata.name.as_deref().unwrap_or_default();
    let api = Api::<Pod>::namespaced(
        client.clone(),
        pod.metadata.namespace.as_deref().unwrap_or_default(),
    );
    let patch =
        serde_json::json!({"metadata": {"uid": pod.metadata.uid}, "status": {"conditions": conditions}});
    if let Err(error) = api
        .patch_status(name, &PatchParams::default(), &Patch::Merge(&patch))
        .await
    {
        tracing::debug!(pod = name, %error, "could not write why a pod is not bound");
    }
}
