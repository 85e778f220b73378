//! Events of the scheduler and the kubelet about pods.
//!
//! They are written in the background: nothing waits for them, and one that can't be written is
//! dropped. Repeated events are counted, and too many are not written.

mod correlate;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Event, EventSeries, EventSource, ObjectReference, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, Time};
use kube::api::{ObjectMeta, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::{Value, json};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::env::Environment;
use correlate::{Correlator, Occurrences};

const SCHEDULER: &str = "default-scheduler";

/// The component that reports an event.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Source {
    /// The kubelet of a node.
    Kubelet {
        /// The node.
        node: String,
    },
    /// The scheduler.
    Scheduler {
        /// Its action, in one word.
        action: &'static str,
    },
}

/// The type of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EventType {
    /// Expected.
    Normal,
    /// Unexpected.
    Warning,
}

/// An event about a pod.
#[derive(Clone, Debug, PartialEq)]
pub struct PodEvent {
    /// The component that reports it.
    pub source: Source,
    /// The pod, or a part of it.
    pub regarding: ObjectReference,
    /// Its type.
    pub kind: EventType,
    /// Its reason, in one word.
    pub reason: &'static str,
    /// Its message.
    pub message: String,
}

/// A reference to a pod, or to a part of it.
pub fn reference(pod: &Pod, part: Option<String>) -> ObjectReference {
    ObjectReference {
        api_version: Some("v1".to_owned()),
        kind: Some("Pod".to_owned()),
        namespace: pod.metadata.namespace.clone(),
        name: pod.metadata.name.clone(),
        uid: pod.metadata.uid.clone(),
        resource_version: pod.metadata.resource_version.clone(),
        field_path: part,
    }
}

/// Queues events.
#[derive(Clone, Debug)]
pub struct Recorder(UnboundedSender<PodEvent>);

impl Recorder {
    /// A recorder and its writer.
    pub fn new(client: Client, environment: Environment) -> (Self, Writer) {
        let (send, pod_event) = unbounded_channel();
        let writer = Writer {
            client,
            environment,
            pod_event,
            correlator: Correlator::default(),
        };
        (Self(send), writer)
    }

    /// Queues an event.
    pub fn record(&self, pod_event: PodEvent) {
        // Fails when the node has ended.
        drop(self.0.send(pod_event));
    }
}

/// Writes events to the API.
pub struct Writer {
    client: Client,
    environment: Environment,
    pod_event: UnboundedReceiver<PodEvent>,
    correlator: Correlator,
}

impl Writer {
    /// Runs until it is dropped.
    pub async fn run(mut self) {
        while let Some(pod_event) = self.pod_event.recv().await {
            let now = self.environment.now();
            let Some((pod_event, occurrences)) = self.correlator.take(pod_event, now) else {
                continue;
            };
            if let Err(error) = self.write(&pod_event, &occurrences, now).await {
                tracing::debug!(%error, reason = pod_event.reason, "an event was not written");
            }
        }
    }

    async fn write(
        &self,
        pod_event: &PodEvent,
        occurrences: &Occurrences,
        now: Timestamp,
    ) -> Result<(), kube::Error> {
        let namespace = pod_event.regarding.namespace.as_deref().unwrap_or_default();
        let api = Api::<Event>::namespaced(self.client.clone(), namespace);
        if occurrences.count > 1 {
            let patch = Patch::Merge(again(pod_event, occurrences, now));
            match api
                .patch(&occurrences.name, &PatchParams::default(), &patch)
                .await
            {
                // The event has expired.
                Err(kube::Error::Api(status)) if status.code == 404 => {}
                patched => return patched.map(drop),
            }
        }
        api.create(&PostParams::default(), &event(pod_event, occurrences, now))
            .await
            .map(drop)
    }
}

fn event(pod_event: &PodEvent, occurrences: &Occurrences, now: Timestamp) -> Event {
    let mut event = Event {
        metadata: ObjectMeta {
            name: Some(occurrences.name.clone()),
            namespace: pod_event.regarding.namespace.clone(),
            ..ObjectMeta::default()
        },
        involved_object: pod_event.regarding.clone(),
        reason: Some(pod_event.reason.to_owned()),
        message: Some(pod_event.message.clone()),
        type_: Some(format!("{:?}", pod_event.kind)),
        ..Event::default()
    };
    match &pod_event.source {
        Source::Kubelet { node } => {
            event.source = Some(EventSource {
                component: Some("kubelet".to_owned()),
                host: Some(node.clone()),
            });
            event.reporting_component = Some("kubelet".to_owned());
            event.reporting_instance = Some(node.clone());
            event.first_timestamp = Some(Time(occurrences.first));
            event.last_timestamp = Some(Time(now));
            event.count = Some(occurrences.count);
        }
        // The scheduler uses the fields of events.k8s.io, the kubelet those of the core group.
        Source::Scheduler { action } => {
            event.action = Some((*action).to_owned());
            event.event_time = Some(MicroTime(occurrences.first));
            event.reporting_component = Some(SCHEDULER.to_owned());
            event.reporting_instance = Some(SCHEDULER.to_owned());
            event.series = (occurrences.count > 1).then_some(EventSeries {
                count: Some(occurrences.count),
                last_observed_time: Some(MicroTime(now)),
            });
        }
    }
    event
}

/// The patch for a repeated event.
fn again(pod_event: &PodEvent, occurrences: &Occurrences, now: Timestamp) -> Value {
    match &pod_event.source {
        Source::Kubelet { .. } => {
            json!({"count": occurrences.count, "lastTimestamp": Time(now), "message": pod_event.message})
        }
        Source::Scheduler { .. } => {
            json!({"series": {"count": occurrences.count, "lastObservedTime": MicroTime(now)}})
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod_event(source: Source) -> PodEvent {
        let pod: Pod =
            serde_json::from_value(json!({"metadata": {"name": "p", "namespace": "n", "uid": "u"}})).unwrap();
        PodEvent {
            source,
            regarding: reference(&pod, Some("spec.containers{main}".to_owned())),
            kind: EventType::Warning,
            reason: "BackOff",
            message: "words".to_owned(),
        }
    }

    fn occurrences(count: i32) -> Occurrences {
        Occurrences {
            name: "p.1".to_owned(),
            count,
            first: Timestamp::UNIX_EPOCH,
        }
    }

    #[test]
    fn each_speaks_as_its_real_counterpart_does() {
        let kubelet = pod_event(Source::Kubelet {
            node: "one".to_owned(),
        });
        let now = Timestamp::from_second(5).unwrap();
        let written = serde_json::to_value(event(&kubelet, &occurrences(1), now)).unwrap();
        assert_eq!(
            written["involvedObject"],
            json!({"apiVersion": "v1", "kind": "Pod", "name": "p", "namespace": "n", "uid": "u",
                "fieldPath": "spec.containers{main}"})
        );
        assert_eq!(written["source"], json!({"component": "kubelet", "host": "one"}));
        assert_eq!(
            (&written["type"], &written["count"]),
            (&json!("Warning"), &json!(1))
        );
        assert_eq!(
            again(&kubelet, &occurrences(2), now),
            json!({"count": 2, "lastTimestamp": "1970-01-01T00:00:05Z", "message": "words"})
        );
        let scheduler = pod_event(Source::Scheduler { action: "Binding" });
        let written = serde_json::to_value(event(&scheduler, &occurrences(1), now)).unwrap();
        assert_eq!(
            (&written["eventTime"], &written["action"], written.get("count")),
            (&json!("1970-01-01T00:00:00.000000Z"), &json!("Binding"), None)
        );
        assert_eq!(again(&scheduler, &occurrences(2), now)["series"]["count"], 2);
    }
}
