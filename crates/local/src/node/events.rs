//! Events: what the scheduler and the kubelet have to say about pods, for whoever asks why.
//!
//! They are written beside everything else: nothing waits for them, and one that can't be written is left out. What is
//! said again is counted, and what is said too often is not written.

mod correlate;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Event, EventSeries, EventSource, ObjectReference, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, Time};
use kube::api::{ObjectMeta, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::{Value, json};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::env::Environment;
use correlate::{Correlator, Known};

const SCHEDULER: &str = "default-scheduler";

/// Who says something.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Source {
    /// The kubelet of a node.
    Kubelet {
        /// The node.
        node: String,
    },
    /// The scheduler, while it does something.
    Scheduler {
        /// What it does, in one word.
        action: &'static str,
    },
}

/// Whether it is as it should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// It is.
    Normal,
    /// It is not.
    Warning,
}

/// Something that is said about a pod.
#[derive(Clone, Debug, PartialEq)]
pub struct Told {
    /// Who says it.
    pub source: Source,
    /// About which pod, or which part of it.
    pub regarding: ObjectReference,
    /// Whether that is as it should be.
    pub kind: Kind,
    /// In one word.
    pub reason: &'static str,
    /// In a sentence.
    pub message: String,
}

/// A pod, or a part of it, as events name it.
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

/// Takes what is to be told.
#[derive(Clone, Debug)]
pub struct Recorder(UnboundedSender<Told>);

impl Recorder {
    /// A recorder, and what it leaves for the [`Writer`].
    pub fn new(client: Client, environment: Environment) -> (Self, Writer) {
        let (send, told) = unbounded_channel();
        let writer = Writer {
            client,
            environment,
            told,
            correlator: Correlator::default(),
        };
        (Self(send), writer)
    }

    /// Has something written some time.
    pub fn tell(&self, told: Told) {
        // Without a writer the node has ended, and nobody listens.
        drop(self.0.send(told));
    }
}

/// Writes events to the API.
pub struct Writer {
    client: Client,
    environment: Environment,
    told: UnboundedReceiver<Told>,
    correlator: Correlator,
}

impl Writer {
    /// Writes for as long as it is polled.
    pub async fn run(mut self) {
        while let Some(told) = self.told.recv().await {
            let now = self.environment.now();
            let Some((told, known)) = self.correlator.take(told, now) else {
                continue;
            };
            if let Err(error) = self.write(&told, &known, now).await {
                tracing::debug!(%error, reason = told.reason, "an event was not written");
            }
        }
    }

    async fn write(&self, told: &Told, known: &Known, now: Timestamp) -> Result<(), kube::Error> {
        let namespace = told.regarding.namespace.as_deref().unwrap_or_default();
        let api = Api::<Event>::namespaced(self.client.clone(), namespace);
        if known.count > 1 {
            let patch = Patch::Merge(again(told, known, now));
            match api.patch(&known.name, &PatchParams::default(), &patch).await {
                // Events do not last for ever.
                Err(kube::Error::Api(status)) if status.code == 404 => {}
                patched => return patched.map(drop),
            }
        }
        api.create(&PostParams::default(), &event(told, known, now))
            .await
            .map(drop)
    }
}

fn event(told: &Told, known: &Known, now: Timestamp) -> Event {
    let mut event = Event {
        metadata: ObjectMeta {
            name: Some(known.name.clone()),
            namespace: told.regarding.namespace.clone(),
            ..ObjectMeta::default()
        },
        involved_object: told.regarding.clone(),
        reason: Some(told.reason.to_owned()),
        message: Some(told.message.clone()),
        type_: Some(format!("{:?}", told.kind)),
        ..Event::default()
    };
    match &told.source {
        Source::Kubelet { node } => {
            event.source = Some(EventSource {
                component: Some("kubelet".to_owned()),
                host: Some(node.clone()),
            });
            event.reporting_component = Some("kubelet".to_owned());
            event.reporting_instance = Some(node.clone());
            event.first_timestamp = Some(Time(known.first));
            event.last_timestamp = Some(Time(now));
            event.count = Some(known.count);
        }
        // The scheduler speaks as events are meant to be now, the kubelet as they were.
        Source::Scheduler { action } => {
            event.action = Some((*action).to_owned());
            event.event_time = Some(MicroTime(known.first));
            event.reporting_component = Some(SCHEDULER.to_owned());
            event.reporting_instance = Some(SCHEDULER.to_owned());
            event.series = (known.count > 1).then_some(EventSeries {
                count: Some(known.count),
                last_observed_time: Some(MicroTime(now)),
            });
        }
    }
    event
}

/// What changes when something is said again.
fn again(told: &Told, known: &Known, now: Timestamp) -> Value {
    match &told.source {
        Source::Kubelet { .. } => {
            json!({"count": known.count, "lastTimestamp": Time(now), "message": told.message})
        }
        Source::Scheduler { .. } => {
            json!({"series": {"count": known.count, "lastObservedTime": MicroTime(now)}})
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(source: Source) -> Told {
        let pod: Pod =
            serde_json::from_value(json!({"metadata": {"name": "p", "namespace": "n", "uid": "u"}})).unwrap();
        Told {
            source,
            regarding: reference(&pod, Some("spec.containers{main}".to_owned())),
            kind: Kind::Warning,
            reason: "BackOff",
            message: "words".to_owned(),
        }
    }

    fn known(count: i32) -> Known {
        Known {
            name: "p.1".to_owned(),
            count,
            first: Timestamp::UNIX_EPOCH,
        }
    }

    #[test]
    fn each_speaks_as_its_real_counterpart_does() {
        let kubelet = told(Source::Kubelet {
            node: "one".to_owned(),
        });
        let now = Timestamp::from_second(5).unwrap();
        let written = serde_json::to_value(event(&kubelet, &known(1), now)).unwrap();
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
            again(&kubelet, &known(2), now),
            json!({"count": 2, "lastTimestamp": "1970-01-01T00:00:05Z", "message": "words"})
        );
        let scheduler = told(Source::Scheduler { action: "Binding" });
        let written = serde_json::to_value(event(&scheduler, &known(1), now)).unwrap();
        assert_eq!(
            (&written["eventTime"], &written["action"], written.get("count")),
            (&json!("1970-01-01T00:00:00.000000Z"), &json!("Binding"), None)
        );
        assert_eq!(again(&scheduler, &known(2), now)["series"]["count"], 2);
    }
}
