//! Follows a job and its pods.

use std::collections::BTreeSet;

use futures::StreamExt;
use k8s_openapi::api::core::v1::{Event, Pod};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, Resource, ResourceExt};
use tokio::sync::mpsc::UnboundedSender;
use tokio::task::JoinSet;
use trainyard_api::{TrainingJob, names};

/// What was seen.
#[derive(Debug)]
pub enum Change {
    /// The job, as it is now.
    Job(Box<TrainingJob>),
    /// The job is gone.
    JobGone,
    /// A pod, as it is now.
    Pod(Box<Pod>),
    /// A pod is gone, by its uid.
    PodGone(String),
    /// All pods there are, by their uids: others are gone.
    Pods(BTreeSet<String>),
    /// A node can't start a pod, or ends a container, for a reason that the pod's status does not name.
    Warning {
        /// The pod's uid.
        uid: String,
        /// The pod's name.
        pod: String,
        /// Why, in words.
        why: String,
    },
    /// The server did not answer; we go on asking.
    Failed(String),
}

/// What nodes tell in events alone: a pod that waits for this says no more than that it is being created.
const ONLY_IN_EVENTS: &[&str] = &[
    "FailedAttachVolume",
    "FailedCreatePodSandBox",
    "FailedMapVolume",
    "FailedMount",
];

/// Whether only events tell this, or why: a container that its probe ends seems to have been killed by somebody.
fn is_worth_telling(reason: &str, message: &str) -> bool {
    let probes = ["Liveness probe failed", "Startup probe failed"];
    ONLY_IN_EVENTS.contains(&reason)
        || (reason == "Unhealthy" && probes.iter().any(|probe| message.starts_with(probe)))
}

/// Selects the pods of a job.
pub fn pods_of(job: &str) -> String {
    format!("{}={job}", names::LABEL_JOB)
}

/// Watches until what comes back is dropped.
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
    let mut events = watcher(jobs, config).default_backoff().boxed();
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
            // Deleted while nobody looked.
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
    let mut events = watcher(pods, config).default_backoff().boxed();
    let owner = job.uid().unwrap_or_default();
    // An earlier job of the same name may have left some.
    let ours = |pod: &Pod| {
        pod.owner_references()
            .iter()
            .any(|reference| reference.uid == owner)
    };
    let mut listed = BTreeSet::new();
    while let Some(event) = events.next().await {
        let change = match event {
            Ok(watcher::Event::Apply(pod)) if ours(&pod) => Change::Pod(Box::new(pod)),
            Ok(watcher::Event::InitApply(pod)) if ours(&pod) => {
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
    let mut events = watcher(events, config).default_backoff().boxed();
    let prefix = format!("{job}-");
    while let Some(event) = events.next().await {
        // Who may not see events is told the rest all the same.
        let Ok(watcher::Event::Apply(event) | watcher::Event::InitApply(event)) = event else {
            continue;
        };
        let reason = event.reason.unwrap_or_default();
        let message = event.message.unwrap_or_default();
        let pod = event.involved_object.name.unwrap_or_default();
        if !pod.starts_with(&prefix) || !is_worth_telling(&reason, &message) {
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
