//! Everything that watches tell of a life, and what only the test knows of it, in one order.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::{Client, Resource, ResourceExt};
use parking_lot::Mutex;
use serde::de::DeserializeOwned;
use trainyard_api::{ScaleIn, ScaleOut, ScaleRequestStatus, TrainingJob};
use trainyard_core::members::Members;
use trainyard_testkit::load::{Change, Target, follow};

use crate::clock::PausedClock;

/// The namespace of a life, and the name of its job.
pub const NAMESPACE: &str = "life";
pub const JOB: &str = "j";

/// Indices of pods are below this.
pub const MAX_INDEX: i32 = 1000;

#[derive(Clone)]
pub enum Event {
    Job(Box<TrainingJob>),
    Pod(Box<Pod>),
    PodRemoved(Box<Pod>),
    Request(String, Box<ScaleRequestStatus>),
    OperatorStarted,
    OperatorKilled,
    /// The operator can't reach the API server.
    CutOff,
    /// It can again.
    Reconnected,
    /// The test does something to the pod of this UID, which is none of the operator's removals.
    Struck(String),
    /// The program of the pod of this UID has said that it knows that it should leave.
    Acknowledged(String),
    Happened(String),
}

pub struct Entry {
    /// The version of the object; what has none has the latest.
    version: u64,
    pub age: Duration,
    pub event: Event,
}

#[derive(Default)]
struct Entries {
    new: Vec<Entry>,
    latest: u64,
}

/// What is told, and not yet taken.
#[derive(Clone)]
pub struct Record {
    entries: Arc<Mutex<Entries>>,
    clock: PausedClock,
}

impl Record {
    pub fn new(clock: PausedClock) -> Self {
        Self {
            entries: Arc::default(),
            clock,
        }
    }

    pub fn add(&self, event: Event) {
        self.add_at(0, event);
    }

    fn add_at(&self, version: u64, event: Event) {
        let mut entries = self.entries.lock();
        entries.latest = entries.latest.max(version);
        let version = if version == 0 { entries.latest } else { version };
        let age = self.clock.age();
        entries.new.push(Entry { version, age, event });
    }

    /// What was told since the last call. The watches of several kinds are told one after the
    /// other, and versions say what was first.
    pub fn take(&self) -> Vec<Entry> {
        let mut new = std::mem::take(&mut self.entries.lock().new);
        new.sort_by_key(|entry| entry.version);
        new
    }

    /// Follows a kind. `entry` makes an event of an object, and hears whether it was removed.
    pub fn follow<K>(
        &self,
        client: &Client,
        path: &str,
        mut entry: impl FnMut(K, bool) -> Event + Send + 'static,
    ) where
        K: Resource + DeserializeOwned + Clone + Send + 'static,
    {
        let target = Target {
            path: path.replace("NAMESPACE", NAMESPACE),
            labels: String::new(),
        };
        let record = self.clone();
        let mut add = move |object: K, is_removed| {
            let version = object.resource_version().and_then(|version| version.parse().ok());
            let event = entry(object, is_removed);
            record.add_at(version.unwrap_or_default(), event);
        };
        tokio::spawn(follow(client.clone(), target, move |change| match change {
            Change::Listed(objects) => objects.into_iter().for_each(|object| add(object, false)),
            Change::Applied(object) => add(object, false),
            Change::Deleted(object) => add(object, true),
        }));
    }

    pub fn follow_requests(&self, client: &Client) {
        let group = "/apis/trainyard.dev/v1alpha1/namespaces/NAMESPACE";
        self.follow(client, &format!("{group}/scaleins"), |request: ScaleIn, _| {
            Event::Request(request.name_any(), Box::new(request.status.unwrap_or_default()))
        });
        self.follow(client, &format!("{group}/scaleouts"), |request: ScaleOut, _| {
            Event::Request(request.name_any(), Box::new(request.status.unwrap_or_default()))
        });
    }
}

/// The index of a worker.
pub fn index(pod: &Pod) -> Option<i32> {
    let name = pod.metadata.name.as_deref()?;
    name.strip_prefix(&format!("{JOB}-worker-"))?.parse().ok()
}

/// The indices of the pods that a job should have, once it was accepted.
pub fn members(job: &TrainingJob) -> Option<Members> {
    let rules = job.status.as_ref()?.accepted.rules.as_ref()?;
    let worker = rules.roles.iter().find(|role| role.name == "worker")?;
    Some(match &worker.members {
        Some(listed) => Members::parse(listed, MAX_INDEX),
        None => Members::first(worker.replicas),
    })
}

/// The indices of the pods that are to leave.
pub fn victims(job: &TrainingJob) -> BTreeSet<i32> {
    let scaling = job.status.as_ref().and_then(|status| status.scaling.as_ref());
    let victims = scaling.and_then(|scaling| scaling.victims.as_deref());
    trainyard_core::indices::parse(victims.unwrap_or_default(), MAX_INDEX)
}

pub fn phase(pod: &Pod) -> &str {
    let status = pod.status.as_ref();
    status
        .and_then(|status| status.phase.as_deref())
        .unwrap_or_default()
}

impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:9.3} {:5} ", self.age.as_secs_f64(), self.version)?;
        match &self.event {
            Event::Job(job) => {
                let elastic = job.spec.elastic.clone().unwrap_or_default();
                write!(
                    f,
                    "job: {} of {}..{}",
                    elastic.replicas,
                    elastic.min(),
                    elastic.max()
                )?;
                if job.is_suspended() {
                    write!(f, ", to be suspended")?;
                }
                let Some(status) = &job.status else { return Ok(()) };
                let members = members(job).and_then(|members| members.format());
                write!(f, " | {:?}, pods {}", status.phase, members.unwrap_or_default())?;
                let Some(scaling) = &status.scaling else {
                    return Ok(());
                };
                let text = |text: &Option<String>| text.clone().unwrap_or_default();
                write!(
                    f,
                    " | {:?} {} to {}, leave [{}] join [{}] know [{}] saved [{}] until {:?} for {:?}",
                    scaling.step,
                    scaling.from,
                    scaling.to,
                    text(&scaling.victims),
                    text(&scaling.joining),
                    text(&scaling.acknowledged),
                    text(&scaling.checkpointed),
                    scaling.deadline.as_ref().map(|deadline| deadline.0.to_string()),
                    scaling
                        .request
                        .as_ref()
                        .map(|request| (&request.name, request.rollback)),
                )
            }
            Event::Pod(pod) => {
                let terminating = pod.metadata.deletion_timestamp.is_some();
                let more = if terminating { ", terminating" } else { "" };
                write!(f, "{}: {}{more}", pod.name_any(), phase(pod))
            }
            Event::PodRemoved(pod) => write!(f, "{}: removed", pod.name_any()),
            Event::Request(name, status) => {
                let message = status.message.as_deref().unwrap_or_default();
                write!(f, "{name}: {:?} {message}", status.phase)
            }
            Event::OperatorStarted => write!(f, "operator started"),
            Event::OperatorKilled => write!(f, "operator killed"),
            Event::CutOff => write!(f, "operator cut off"),
            Event::Reconnected => write!(f, "operator connected again"),
            Event::Struck(uid) => write!(f, "test strikes {uid}"),
            Event::Acknowledged(uid) => write!(f, "program knows: {uid}"),
            Event::Happened(what) => write!(f, "--- {what}"),
        }
    }
}
