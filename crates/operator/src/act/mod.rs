//! The writes. Each is allowed by the leadership right before it is sent, preconditioned so that it can do no harm if
//! it comes late, and told to the index when it is answered.

mod failure;
mod gate;
mod request;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures::StreamExt;
use http::Method;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Serialize;
use serde::de::{DeserializeOwned, IgnoredAny};
use tokio_util::sync::CancellationToken;
use trainyard_api::{TrainingJob, TrainingJobSpec, TrainingJobStatus};
use trainyard_core::build;
use trainyard_core::job::Job;
use trainyard_core::plan::Action;
use trainyard_core::view::{Conflict, Settings};

use crate::index::{Index, JobKey, Kind, Source};
use crate::leader::Leadership;
use crate::slim::{Malformed, Meta, MetadataAnswer, SlimMeta, SlimPod};

pub use failure::Failure;
pub use gate::{Class, Gate, Place};
use request::{Answer, Path, request};

/// How many writes are under way at once, over all jobs.
const IN_FLIGHT: usize = 64;

/// Carries out what was decided.
pub struct Hands {
    client: kube::Client,
    index: Arc<Index>,
    leadership: Leadership,
    settings: Settings,
    gate: Gate,
}

/// For which job something is done, and how long it may be done.
#[derive(Clone, Copy, Debug)]
pub struct Target<'a> {
    /// The job's place.
    pub key: &'a JobKey,
    /// Its UID.
    pub uid: &'a str,
    /// Ends when this replica does not lead any more.
    pub term: &'a CancellationToken,
}

/// What became of some actions.
#[derive(Debug, Default)]
pub struct Done {
    /// How many were carried out.
    pub acted: usize,
    /// Whether something is in the way that belongs to somebody else.
    pub conflict: bool,
    /// The gravest of the failures.
    pub failure: Option<Failure>,
}

impl Hands {
    /// Hands that write with a client, as long as the leadership lets them, and tell an index.
    pub fn new(client: kube::Client, index: Arc<Index>, leadership: Leadership, settings: Settings) -> Self {
        Self {
            client,
            index,
            leadership,
            settings,
            gate: Gate::new(IN_FLIGHT),
        }
    }

    /// The settings that children are built with.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// What limits the number of requests that are under way.
    pub fn gate(&self) -> &Gate {
        &self.gate
    }

    /// Carries out actions, in parallel and in no order.
    pub async fn act(&self, target: Target<'_>, job: &TrainingJob, actions: Vec<Action>) -> Done {
        // Where the server refuses one child it refuses its siblings too: the rest need not be tried.
        let refused = AtomicBool::new(false);
        let creates = actions
            .iter()
            .any(|action| matches!(action, Action::CreatePod(_) | Action::CreateService(_)));
        // Only a valid job has children to create.
        let job = creates.then(|| Job::parse(job).ok()).flatten();
        let job = job.as_ref();
        let results = futures::stream::iter(actions).map(|action| self.one(target, job, action, &refused));
        let mut results = results.buffer_unordered(IN_FLIGHT);
        let mut done = Done::default();
        while let Some(result) = results.next().await {
            match result {
                Ok(()) => done.acted += 1,
                Err(Failure::InTheWay) => done.conflict = true,
                Err(failure) => done.failure = Some(Failure::graver(done.failure.take(), failure)),
            }
        }
        done
    }

    async fn one(
        &self,
        target: Target<'_>,
        job: Option<&Job<'_>>,
        action: Action,
        refused: &AtomicBool,
    ) -> Result<(), Failure> {
        let namespace = &target.key.namespace;
        // Nothing is built before it can be sent: what waits here takes no memory.
        let _place = self.gate.enter(Class::Urgent).await;
        match action {
            Action::CreatePod(_) | Action::CreateService(_) if refused.load(Ordering::Relaxed) => {
                Err(Failure::Skipped)
            }
            Action::CreatePod(key) => {
                let Some(pod) = job.and_then(|job| build::pod(job, &self.settings, key)) else {
                    return Ok(());
                };
                let name = pod.metadata.name.clone().unwrap_or_default();
                self.create(target, Child::Pod, &name, &pod, refused).await
            }
            Action::CreateService(key) => {
                let Some(service) = job.and_then(|job| build::service(job, key)) else {
                    return Ok(());
                };
                let name = service.metadata.name.clone().unwrap_or_default();
                self.create(target, Child::Service, &name, &service, refused)
                    .await
            }
            Action::DeletePod { name, uid, force } => {
                let path = Path::pod(namespace, &name);
                self.delete_child(target, Kind::Pod, path, &name, &uid, force.then_some(0))
                    .await
            }
            Action::DeleteService { name, uid } => {
                let path = Path::service(namespace, &name);
                self.delete_child(target, Kind::Service, path, &name, &uid, None)
                    .await
            }
            Action::DeleteJob => {
                self.delete(target, Path::job(namespace, &target.key.name), target.uid, None)
                    .await?;
                self.index.remember(target.uid, |memory| memory.deleted = true);
                Ok(())
            }
        }
    }

    async fn create(
        &self,
        target: Target<'_>,
        child: Child,
        name: &str,
        object: &impl Serialize,
        refused: &AtomicBool,
    ) -> Result<(), Failure> {
        let path = child.path(&target.key.namespace, "");
        // Metadata is all of the answer that is new to us.
        let request = request(Method::POST, &path.by_us(), Answer::Metadata, Some(object))?;
        match self.send::<SlimPod>(target.term, request).await {
            Ok(created) => {
                self.see(child, created);
                Ok(())
            }
            Err(Failure::Exists) => self.exists(target, child, name).await,
            Err(failure) => {
                if matches!(failure, Failure::Refused(_) | Failure::NamespaceEnds) {
                    refused.store(true, Ordering::Relaxed);
                }
                Err(failure)
            }
        }
    }

    fn see(&self, child: Child, object: SlimPod) {
        match child {
            Child::Pod => self.index.apply_pod(object, Source::Answer),
            Child::Service => self.index.apply_service(
                &SlimMeta {
                    metadata: object.metadata,
                },
                Source::Answer,
            ),
        };
    }

    /// An object of the name exists. Whose is it?
    async fn exists(&self, target: Target<'_>, child: Child, name: &str) -> Result<(), Failure> {
        let path = child.path(&target.key.namespace, name);
        let found: SlimPod = match self.read(&path).await {
            Err(Failure::Gone) => {
                return Err(Failure::Transient("it was there and is gone".to_owned(), None));
            }
            found => found?,
        };
        match Claim::of(&found.metadata, target) {
            // Our own, of a request whose answer was lost, or of a former leader.
            Claim::Ours if found.metadata.is_labelled() => {
                self.see(child, found);
                Ok(())
            }
            Claim::Ours => self.label(target, child, name, &found.metadata).await,
            Claim::Former => Err(Failure::Former),
            Claim::Foreign(owner) => {
                let conflict = Conflict {
                    kind: child.kind(),
                    name: name.to_owned(),
                    owner,
                };
                self.index.conflict(target.uid, conflict);
                Err(Failure::InTheWay)
            }
        }
    }

    /// Gives a child of ours back the label that somebody took from it, without which the watch does not see it.
    async fn label(&self, target: Target<'_>, child: Child, name: &str, found: &Meta) -> Result<(), Failure> {
        use trainyard_api::names::{LABEL_JOB, LABEL_MANAGED_BY, MANAGED_BY};
        let labels = serde_json::json!({"metadata": {
            "uid": found.uid,
            "resourceVersion": found.resource_version.0.to_string(),
            "labels": {LABEL_MANAGED_BY: MANAGED_BY, LABEL_JOB: &*target.key.name},
        }});
        let path = child.path(&target.key.namespace, name);
        let request = request(Method::PATCH, &path, Answer::Whole, Some(&labels))?;
        let labelled = self.send::<SlimPod>(target.term, request).await?;
        self.see(child, labelled);
        Ok(())
    }

    /// Looks whether what was in a job's way still is. Whether anything has changed.
    pub async fn probe(&self, target: Target<'_>, conflicts: &[Conflict]) -> Result<bool, Failure> {
        let mut changed = false;
        for conflict in conflicts {
            let child = if conflict.kind == Child::Pod.kind() {
                Child::Pod
            } else {
                Child::Service
            };
            let path = child.path(&target.key.namespace, &conflict.name);
            let found = match self.read::<SlimPod>(&path).await {
                Err(Failure::Gone) => None,
                found => Some(found?),
            };
            let claim = found.as_ref().map(|found| Claim::of(&found.metadata, target));
            match (claim, found) {
                (Some(Claim::Foreign(owner)), _) if owner == conflict.owner => continue,
                (Some(Claim::Foreign(owner)), _) => {
                    self.index.conflict(
                        target.uid,
                        Conflict {
                            owner,
                            ..conflict.clone()
                        },
                    );
                }
                (Some(Claim::Ours), Some(found)) => {
                    self.index.resolve(target.uid, conflict.kind, &conflict.name);
                    self.see(child, found);
                }
                _ => self.index.resolve(target.uid, conflict.kind, &conflict.name),
            }
            changed = true;
        }
        Ok(changed)
    }

    async fn delete_child(
        &self,
        target: Target<'_>,
        kind: Kind,
        path: Path,
        name: &str,
        uid: &str,
        grace: Option<u32>,
    ) -> Result<(), Failure> {
        match self.delete(target, path, uid, grace).await? {
            Some(Meta { resource_version, .. }) => {
                self.index.went(kind, target.uid, name, uid, resource_version);
            }
            // On its way, or gone before: the watch will say.
            None => self.index.terminate(kind, target.uid, name, uid),
        }
        Ok(())
    }

    /// Deletes an object. Its last state, if it was there and is gone now.
    async fn delete(
        &self,
        target: Target<'_>,
        path: Path,
        uid: &str,
        grace: Option<u32>,
    ) -> Result<Option<Meta>, Failure> {
        let options = request::DeleteOptions::new(uid, grace);
        let request = request(Method::DELETE, &path, Answer::Metadata, Some(&options))?;
        match self.send::<SlimMeta>(target.term, request).await {
            Ok(SlimMeta { metadata }) => {
                Ok(Some(metadata).filter(|left| *left.uid == *uid && left.is_gone()))
            }
            // Gone, or another object has the name by now: what was to be deleted is not there.
            Err(Failure::Gone | Failure::Conflict) => Ok(None),
            // That is not about what the user wrote, so it is not for the user to hear.
            Err(Failure::Refused(words)) => Err(Failure::Transient(words, None)),
            Err(failure) => Err(failure),
        }
    }

    /// Writes a job's status, if the job is still as it was when the status was computed.
    ///
    /// Whoever calls it has a [`Place`], and has computed the status since.
    pub async fn write_status(
        &self,
        target: Target<'_>,
        job: Arc<TrainingJob>,
        status: &TrainingJobStatus,
    ) -> Result<(), Failure> {
        let body = StatusBody {
            api_version: API_VERSION,
            kind: KIND,
            metadata: &job.metadata,
            spec: &job.spec,
            status,
        };
        let path = Path::job(&target.key.namespace, &target.key.name).status();
        let request = request(Method::PUT, &path.by_us(), Answer::Metadata, Some(&body))?;
        // The index can then change its copy in place.
        drop(job);
        let answer = self.send::<MetadataAnswer>(target.term, request).await?;
        // The server keeps times by the second; what we keep must be what it keeps.
        let kept = serde_json::to_vec(status).and_then(|json| serde_json::from_slice(&json));
        let kept = kept.map_err(|error| Failure::Transient(error.to_string(), None))?;
        self.index
            .apply_status(target.uid, answer.into_metadata(), Some(kept));
        Ok(())
    }

    /// Writes, on an object that is no job, that it is none.
    pub async fn write_malformed(
        &self,
        term: &CancellationToken,
        malformed: &Malformed,
        report: &serde_json::Value,
    ) -> Result<(), Failure> {
        let _place = self.gate.enter(Class::Status).await;
        let ObjectMeta { name, namespace, .. } = &malformed.metadata;
        let path = Path::job(
            namespace.as_deref().unwrap_or_default(),
            name.as_deref().unwrap_or_default(),
        )
        .status();
        let request = request(Method::PATCH, &path, Answer::Metadata, Some(report))?;
        self.send::<IgnoredAny>(term, request).await.map(|_| ())
    }

    async fn send<T: DeserializeOwned>(
        &self,
        term: &CancellationToken,
        request: http::Request<Vec<u8>>,
    ) -> Result<T, Failure> {
        if term.is_cancelled() || !self.leadership.may_write() {
            return Err(Failure::NotLeader);
        }
        tokio::select! {
            biased;
            () = term.cancelled() => Err(Failure::NotLeader),
            answer = self.client.request(request) => answer.map_err(Failure::from),
        }
    }

    async fn read<T: DeserializeOwned>(&self, path: &Path) -> Result<T, Failure> {
        let request = request(Method::GET, path, Answer::Whole, None::<&()>)?;
        self.client.request(request).await.map_err(Failure::from)
    }
}

/// The kinds of children.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Child {
    Pod,
    Service,
}

impl Child {
    const fn kind(self) -> &'static str {
        match self {
            Self::Pod => "Pod",
            Self::Service => "Service",
        }
    }

    fn path(self, namespace: &str, name: &str) -> Path {
        match self {
            Self::Pod => Path::pod(namespace, name),
            Self::Service => Path::service(namespace, name),
        }
    }
}

/// Whose an object is.
enum Claim {
    Ours,
    /// A former job's of the same name, or it is being removed: it will be gone.
    Former,
    /// Somebody else's, in words.
    Foreign(String),
}

impl Claim {
    fn of(metadata: &Meta, target: Target<'_>) -> Self {
        match metadata.controller() {
            Some(owner) if *owner.uid == *target.uid => Self::Ours,
            Some(owner) if owner.is_job() && *owner.name == *target.key.name => Self::Former,
            _ if metadata.terminating() => Self::Former,
            Some(owner) => Self::Foreign(format!("{} {}", owner.kind, owner.name)),
            None => Self::Foreign("nobody's".to_owned()),
        }
    }
}

const API_VERSION: &str = "trainyard.dev/v1alpha1";
const KIND: &str = "TrainingJob";

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct StatusBody<'a> {
    api_version: &'static str,
    kind: &'static str,
    metadata: &'a ObjectMeta,
    spec: &'a TrainingJobSpec,
    status: &'a TrainingJobStatus,
}

#[cfg(test)]
mod tests;
