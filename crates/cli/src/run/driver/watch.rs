//! Follows a job and its pods.

use std::collections::BTreeSet;

use futures::StreamExt;
use k8s_openapi::api::core::v1::{Event, Pod};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, Resource, ResourceExt};
use tokio::sync::mpsc::UnboundedSender;
use tokio::task::JoinSet;
use trainyard_api::{TrainingJob, names};
use trainyard_operator::backoff::WatchBackoff;

#[derive(Debug)]
pub enum Change {
    Job(Box<TrainingJob>),
    JobGone,
    Pod(Box<Pod>),
    /// The uid of a pod that is gone.
    PodGone(String),
    /// The uids of all pods; others are gone.
    Pods(BTreeSet<String>),
    /// A node can't start a pod, or ends a container, for a reason that the pod's status does not
    /// name.
    Warning {
        uid: String,
        pod: String,
        why: String,
    },
    /// The server did not answer; the watch is retried.
    Failed(String),
}

/// Reasons that only events have: the status of such a pod just says ContainerCreating.
const ONLY_IN_EVENTS: &[&str] = &[
    "FailedAttachVolume",
    "FailedCreatePodSandBox",
    "FailedMapVolume",
    "FailedMount",
];

/// Whether an event says what the status does not: a container killed by its probe just shows a
/// signal there.
fn is_relevant(reason: &str, message: &str) -> bool {
    let probes = ["Liveness probe failed", "Startup probe failed"];
    ONLY_IN_EVENTS.contains(&reason)
        || (reason == "Unhealthy" && probes.iter().any(|probe| message.starts_with(probe)))
}

/// The label selector for the pods of a job.
pub fn pods_of(job: &str) -> String {
    format!("{}={job}", names::LABEL_JOB)
}

/// Watches until the returned set is dropped.
pub fn start(client: &Client, job: &TrainingJob, changes: &UnboundedSender<Change>) -> JoinSet<()> {
    let mut tasks = JoinSet::new();
    let namespace = job.namespace().unwrap_or_default();
    let jobs: Api<TrainingJob> = Api::namespaced(client.clone(), &namespace);
    let pods: Api<Pod> = Api::namespaced(client.clone(), &namespace);
    tasks.spawn(follow_job(jobs, job.name_any(), changes.clone()));
    tasks.spawn(follow_pods(pods, job.clone(), changes.clone()));
    let events: Api<Event> = Api::namespaced(client.clone(), &namespace);
    tasks.spawn(follow_warnings(events, job.name_any(), changes.clone()));
    tasks
}

async fn follow_job(jobs: Api<TrainingJob>, name: String, changes: UnboundedSender<Change>) {
    let config = watcher::Config::default().fields(&format!("metadata.name={name}"));
    let mut events = watcher(jobs, config).backoff(WatchBackoff::default()).boxed();
    let mut listed = false;
    while let Some(event) = events.next().await {
        let change = match event {
            Ok(watcher::Event::Apply(job) | watcher::Event::InitApply(job)) => {
                listed = true;
                Change::Job(Box::new(job))
            }
            Ok(watcher::Event::Delete(_)) => Change::JobGone,
            Ok(watcher::Event::Init) => {
                listed = false;
                continue;
            }
            // Deleted while there was no watch.
            Ok(watcher::Event::InitDone) if !listed => Change::JobGone,
            Ok(watcher::Event::InitDone) => continue,
            Err(error) => Change::Failed(error.to_string()),
        };
        if changes.send(change).is_err() {
            return;
        }
    }
}

async fn follow_pods(pods: Api<Pod>, job: TrainingJob, changes: UnboundedSender<Change>) {
    let config = watcher::Config::default().labels(&pods_of(&job.name_any()));
    let mut events = watcher(pods, config).backoff(WatchBackoff::default()).boxed();
    let owner = job.uid().unwrap_or_default();
    // An earlier job of the same name may have left pods.
    let is_ours = |pod: &Pod| {
        pod.owner_references()
            .iter()
            .any(|reference| reference.uid == owner)
    };
    let mut listed = BTreeSet::new();
    while let Some(event) = events.next().await {
        let change = match event {
            Ok(watcher::Event::Apply(pod)) if is_ours(&pod) => Change::Pod(Box::new(pod)),
            Ok(watcher::Event::InitApply(pod)) if is_ours(&pod) => {
                listed.extend(pod.meta().uid.clone());
                Change::Pod(Box::new(pod))
            }
            Ok(watcher::Event::Delete(pod)) => Change::PodGone(pod.uid().unwrap_or_default()),
            Ok(watcher::Event::InitDone) => Change::Pods(std::mem::take(&mut listed)),
            Ok(_) => continue,
            Err(error) => Change::Failed(error.to_string()),
        };
        if changes.send(change).is_err() {
            return;
        }
    }
}

async fn follow_warnings(events: Api<Event>, job: String, changes: UnboundedSender<Change>) {
    let config = watcher::Config::default().fields("involvedObject.kind=Pod,type=Warning");
    let mut events = watcher(events, config).backoff(WatchBackoff::default()).boxed();
    let prefix = format!("{job}-");
    while let Some(event) = events.next().await {
        // A user without the right to watch events gets no warnings.
        let Ok(watcher::Event::Apply(event) | watcher::Event::InitApply(event)) = event else {
            continue;
        };
        let reason = event.reason.unwrap_or_default();
        let message = event.message.unwrap_or_default();
        let pod = event.involved_object.name.unwrap_or_default();
        if !pod.starts_with(&prefix) || !is_relevant(&reason, &message) {
            continue;
        }
        let warning = Change::Warning {
            uid: event.involved_object.uid.unwrap_or_default(),
            pod,
            why: format!("{reason}: {}", message.trim_end()),
        };
        if changes.send(warning).is_err() {
            return;
        }
    }
}
