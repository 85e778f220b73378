//! Events, which are sent in the background, after all other writes.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use jiff::{Timestamp, Unit};
use k8s_openapi::api::core::v1::{Event as CoreEvent, EventSource, ObjectReference};
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, MicroTime, ObjectMeta, Time};
use kube::Resource;
use kube::api::PostParams;
use kube::core::Request;
use serde::de::IgnoredAny;
use tokio::sync::{Mutex, mpsc};
use tokio::task::JoinSet;
use trainyard_api::{GROUP, MANAGED_BY_TRAINYARD, ScaleKind, ScalePhase, ScaleReason, VERSION};
use trainyard_core::foreign::{ForeignKind, ForeignNote};
use trainyard_core::model::JobEvent;

use crate::act::{Class, WriteLimiter};
use crate::leader::Leadership;
use crate::metrics::Metrics;

/// How many events may wait to be sent.
const CAPACITY: usize = 10_000;
/// How many events are sent at once.
const SENDERS: usize = 4;
/// The limits of the API server, in bytes.
const NOTE_LIMIT: usize = 1024;
const REASON_LIMIT: usize = 128;
const INSTANCE_LIMIT: usize = 128;
const NAME_LIMIT: usize = 253;
/// Where the API server wants events about objects that belong to no namespace.
const CLUSTER_NAMESPACE: &str = "default";
/// How long the last events may take to be sent when the process ends.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(3);

/// An event that is to be sent.
#[derive(Clone, Debug)]
pub(crate) struct Outgoing {
    pub event: Event,
    /// It is sent in the form of the core group. Clients of other operators read the source, the
    /// times and the count that only those have; the server refuses them in the other group.
    pub is_core: bool,
}

/// Records events, to be sent by the [`Senders`].
#[derive(Clone, Debug)]
pub struct Recorder {
    queue: mpsc::Sender<Outgoing>,
    instance: Arc<str>,
    dropped: Arc<AtomicU64>,
    metrics: Option<Arc<Metrics>>,
    number: Arc<AtomicU64>,
}

/// The tasks that send events.
#[derive(Debug)]
pub struct Senders {
    tasks: JoinSet<()>,
}

impl Recorder {
    /// Starts the senders. Events name `instance` as the one that reports them.
    pub fn start(
        client: &kube::Client,
        limiter: &WriteLimiter,
        leadership: &Leadership,
        instance: &str,
    ) -> (Self, Senders) {
        let (queue, receiver) = mpsc::channel(CAPACITY);
        let receiver = Arc::new(Mutex::new(receiver));
        let mut tasks = JoinSet::new();
        for _ in 0..SENDERS {
            tasks.spawn(send(
                client.clone(),
                limiter.clone(),
                leadership.clone(),
                receiver.clone(),
            ));
        }
        (Self::new(queue, instance), Senders { tasks })
    }

    fn new(queue: mpsc::Sender<Outgoing>, instance: &str) -> Self {
        Self {
            queue,
            instance: instance.into(),
            dropped: Arc::default(),
            metrics: None,
            number: Arc::default(),
        }
    }

    /// Makes a recorder whose events are not sent but received by the caller.
    #[cfg(test)]
    pub(crate) fn unsent() -> (Self, mpsc::Receiver<Outgoing>) {
        let (queue, taken) = mpsc::channel(CAPACITY);
        (Self::new(queue, "operator-1"), taken)
    }

    /// Counts the events that are dropped.
    #[must_use]
    pub fn with_metrics(self, metrics: Arc<Metrics>) -> Self {
        Self {
            metrics: Some(metrics),
            ..self
        }
    }

    /// Records an event about a job. It is dropped if too many wait to be sent.
    pub fn record(&self, job: &ObjectMeta, event: &JobEvent, now: Timestamp) {
        let words = Words {
            warning: event.warning,
            reason: event.reason.as_str(),
            message: &event.message,
        };
        let regarding = reference(format!("{GROUP}/{VERSION}"), "TrainingJob", job);
        self.send(regarding, words, now, None);
    }

    /// Records an event about an object of another operator's kind.
    pub fn record_foreign(
        &self,
        kind: &dyn ForeignKind,
        object: &ObjectMeta,
        note: &ForeignNote,
        now: Timestamp,
    ) {
        let words = Words {
            warning: note.warning,
            reason: &note.reason,
            message: &note.message,
        };
        let api_version = format!("{}/{}", kind.group(), kind.version());
        let regarding = reference(api_version, kind.kind(), object);
        self.send(regarding, words, now, Some(kind.component()));
    }

    /// Records an event about a `Framework`, whose condition has changed to this.
    pub(crate) fn record_framework(&self, framework: &ObjectMeta, condition: &Condition, now: Timestamp) {
        let words = Words {
            warning: condition.status != "True",
            reason: &condition.reason,
            message: &condition.message,
        };
        let regarding = reference(format!("{GROUP}/{VERSION}"), "Framework", framework);
        self.send(regarding, words, now, None);
    }

    /// Records an event about a ScaleIn or a ScaleOut, whose condition has come true.
    pub(crate) fn record_scale_request(
        &self,
        kind: ScaleKind,
        request: &ObjectMeta,
        condition: &Condition,
        now: Timestamp,
    ) {
        let is_rollback = condition.reason == ScaleReason::RollingBack.as_str();
        let words = Words {
            warning: is_rollback || condition.type_ == ScalePhase::ScaleFailed.as_str(),
            reason: &condition.type_,
            message: &condition.message,
        };
        let regarding = reference(format!("{GROUP}/{VERSION}"), kind.as_str(), request);
        self.send(regarding, words, now, None);
    }

    /// `component` is the name under which users of another operator know who reports.
    fn send(
        &self,
        regarding: ObjectReference,
        words: Words<'_>,
        now: Timestamp,
        component: Option<&'static str>,
    ) {
        let number = self.number.fetch_add(1, Ordering::Relaxed);
        let mut event = event(regarding, words, now, &self.instance, number);
        if let Some(component) = component {
            event.reporting_controller = Some(component.to_owned());
        }
        let is_core = component.is_some();
        if self.queue.try_send(Outgoing { event, is_core }).is_err() {
            if let Some(metrics) = &self.metrics {
                metrics.event_dropped();
            }
            let dropped = self.dropped.fetch_add(1, Ordering::Relaxed) + 1;
            if dropped.is_power_of_two() {
                tracing::warn!(dropped, "more events than can be sent");
            }
        }
    }
}

impl Senders {
    /// Sends the last events. All recorders must have been dropped.
    pub async fn finish(mut self) {
        let all = async { while self.tasks.join_next().await.is_some() {} };
        if tokio::time::timeout(FLUSH_TIMEOUT, all).await.is_err() {
            tracing::warn!("not all events could be sent before the end");
        }
    }
}

async fn send(
    client: kube::Client,
    limiter: WriteLimiter,
    leadership: Leadership,
    queue: Arc<Mutex<mpsc::Receiver<Outgoing>>>,
) {
    loop {
        let next = queue.lock().await.recv().await;
        let Some(event) = next else { return };
        let _permit = limiter.enter(Class::Event).await;
        if !leadership.may_write() {
            continue;
        }
        let sent = match request(event) {
            Ok(request) => client.request::<IgnoredAny>(request).await.map(|_| ()),
            Err(error) => Err(error),
        };
        if let Err(error) = sent {
            // Nothing depends on an event: it is not sent again.
            tracing::debug!(%error, "an event could not be sent");
        }
    }
}

fn request(Outgoing { event, is_core }: Outgoing) -> kube::Result<http::Request<Vec<u8>>> {
    let namespace = event.metadata.namespace.clone();
    let (path, body) = if is_core {
        let path = CoreEvent::url_path(&(), namespace.as_deref());
        (path, serde_json::to_vec(&core_event(event)))
    } else {
        let path = Event::url_path(&(), namespace.as_deref());
        (path, serde_json::to_vec(&event))
    };
    let body = body.map_err(kube::Error::SerdeError)?;
    let request = Request::new(path).create(&PostParams::default(), body);
    request.map_err(kube::Error::BuildRequest)
}

/// The same event in the form of the core group.
fn core_event(event: Event) -> CoreEvent {
    let time = event.event_time.map(|MicroTime(time)| seconds(time));
    CoreEvent {
        metadata: event.metadata,
        involved_object: event.regarding.unwrap_or_default(),
        reason: event.reason,
        message: event.note,
        type_: event.type_,
        source: Some(EventSource {
            component: event.reporting_controller.clone(),
            host: None,
        }),
        first_timestamp: time.clone(),
        last_timestamp: time,
        count: Some(1),
        reporting_component: event.reporting_controller,
        reporting_instance: event.reporting_instance,
        ..CoreEvent::default()
    }
}

/// A time as the API writes it, in whole seconds.
fn seconds(time: Timestamp) -> Time {
    Time(time.round(Unit::Second).unwrap_or(time))
}

#[derive(Clone, Copy)]
struct Words<'a> {
    warning: bool,
    reason: &'a str,
    message: &'a str,
}

fn reference(api_version: String, kind: &str, object: &ObjectMeta) -> ObjectReference {
    ObjectReference {
        api_version: Some(api_version),
        kind: Some(kind.to_owned()),
        name: object.name.clone(),
        namespace: object.namespace.clone(),
        uid: object.uid.clone(),
        resource_version: object.resource_version.clone(),
        ..ObjectReference::default()
    }
}

fn event(regarding: ObjectReference, words: Words<'_>, now: Timestamp, instance: &str, number: u64) -> Event {
    let name = regarding.name.as_deref().unwrap_or_default();
    // Other components use the object and the time. Here a counter makes the name unique.
    let unique = format!(".{:x}{:x}", now.as_microsecond(), number & 0xff);
    let event_name = format!("{}{unique}", cut(name, NAME_LIMIT - unique.len()));
    Event {
        metadata: ObjectMeta {
            name: Some(event_name),
            namespace: Some(
                regarding
                    .namespace
                    .as_deref()
                    .unwrap_or(CLUSTER_NAMESPACE)
                    .to_owned(),
            ),
            ..ObjectMeta::default()
        },
        action: Some("Reconcile".to_owned()),
        event_time: Some(MicroTime(now)),
        note: Some(cut(words.message, NOTE_LIMIT).to_owned()),
        reason: Some(cut(words.reason, REASON_LIMIT).to_owned()),
        regarding: Some(regarding),
        reporting_controller: Some(MANAGED_BY_TRAINYARD.to_owned()),
        reporting_instance: Some(cut(instance, INSTANCE_LIMIT).to_owned()),
        type_: Some(if words.warning { "Warning" } else { "Normal" }.to_owned()),
        ..Event::default()
    }
}

/// Returns the beginning of a text, of at most `limit` bytes, without splitting a character.
fn cut(text: &str, limit: usize) -> &str {
    let mut end = text.len().min(limit);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.get(..end).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use trainyard_api::Reason;

    use super::*;

    #[test]
    fn what_is_dropped_is_counted() {
        let (queue, _waiting) = mpsc::channel(1);
        let metrics = Arc::new(Metrics::new());
        let recorder = Recorder::new(queue, "operator-1").with_metrics(metrics.clone());
        let note = JobEvent {
            warning: false,
            reason: Reason::PodFailed,
            message: String::new(),
        };
        for _ in 0..3 {
            recorder.record(&ObjectMeta::default(), &note, Timestamp::UNIX_EPOCH);
        }
        assert_eq!(recorder.dropped.load(Ordering::Relaxed), 2);
        let text = metrics.render();
        assert!(text.contains("trainyard_events_dropped_total 2\n"), "{text}");
    }

    #[test]
    fn an_event_is_what_the_server_takes() {
        let job = ObjectMeta {
            name: Some("mnist".into()),
            namespace: Some("team".into()),
            uid: Some("u1".into()),
            ..ObjectMeta::default()
        };
        let note = JobEvent {
            warning: true,
            reason: Reason::PodFailed,
            message: "ü".repeat(1000),
        };
        let (queue, mut taken) = mpsc::channel(1);
        let recorder = Recorder::new(queue, "operator-1");
        recorder.number.store(7, Ordering::Relaxed);
        recorder.record(&job, &note, Timestamp::UNIX_EPOCH);
        let Outgoing { event, is_core } = taken.try_recv().unwrap();
        assert!(!is_core);
        assert_eq!(event.metadata.name.as_deref(), Some("mnist.07"));
        assert_eq!(event.metadata.namespace.as_deref(), Some("team"));
        assert_eq!(event.note.as_deref().map(str::len), Some(NOTE_LIMIT));
        assert_eq!(event.type_.as_deref(), Some("Warning"));
        let regarding = event.regarding.unwrap();
        assert_eq!(
            (regarding.kind.as_deref(), regarding.uid.as_deref()),
            (Some("TrainingJob"), Some("u1"))
        );
    }

    #[test]
    fn an_event_of_the_core_group_has_its_source_its_times_and_a_count() {
        let job = ObjectMeta {
            name: Some("pi".into()),
            namespace: Some("team".into()),
            ..ObjectMeta::default()
        };
        let regarding = reference("kubeflow.org/v2beta1".to_owned(), "MPIJob", &job);
        let words = Words {
            warning: false,
            reason: "MPIJobRunning",
            message: "It runs.",
        };
        let (queue, mut taken) = mpsc::channel(1);
        let now = Timestamp::from_millisecond(1_700).unwrap();
        Recorder::new(queue, "operator-1").send(regarding, words, now, Some("mpi-job-controller"));
        let sent = request(taken.try_recv().unwrap()).unwrap();
        assert_eq!(sent.uri().path(), "/api/v1/namespaces/team/events");
        let body: serde_json::Value = serde_json::from_slice(sent.body()).unwrap();
        assert_eq!(
            body["source"],
            serde_json::json!({"component": "mpi-job-controller"})
        );
        assert_eq!(body["reportingComponent"], "mpi-job-controller");
        assert_eq!(
            (&body["firstTimestamp"], &body["lastTimestamp"], &body["count"]),
            (
                &"1970-01-01T00:00:02Z".into(),
                &"1970-01-01T00:00:02Z".into(),
                &1.into()
            )
        );
        assert_eq!(
            (&body["message"], &body["involvedObject"]["kind"]),
            (&"It runs.".into(), &"MPIJob".into())
        );
        assert_eq!(body.get("eventTime").filter(|time| !time.is_null()), None);
    }
}
