//! The writes. Each is allowed by the leadership right before it is sent, preconditioned so that it can do no harm if
//! it comes late, and told to the index when it is answered.

mod claim;
mod failure;
mod gate;
mod grant;
pub(crate) mod request;
mod status;

use std::collections::HashSet;
use std::sync::{Arc, OnceLock};

use futures::future::{Fuse, FusedFuture};
use futures::stream::FuturesUnordered;
use futures::{FutureExt, StreamExt};
use http::Method;
use jiff::Timestamp;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio_util::sync::CancellationToken;
use trainyard_api::{TrainingJob, names};
use trainyard_core::build;
use trainyard_core::frameworks::Identity;
use trainyard_core::job::Job;
use trainyard_core::plan::Action;
use trainyard_core::view::{Refusal, SecretState, Settings};

use crate::identity;
use crate::index::{Index, JobKey, Kind, Source};
use crate::leader::Leadership;
use crate::settings::SharedSettings;
use crate::slim::{Meta, SlimMeta, SlimPod};

use claim::Child;
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
    settings: SharedSettings,
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
    /// The kinds of children that were created, or found.
    pub taken: HashSet<&'static str>,
    /// Whether something is in the way that belongs to somebody else.
    pub conflict: bool,
    /// The gravest of the failures to create children, or that nothing may be written any more.
    pub failure: Option<Failure>,
    /// The child of which that failure says most.
    pub refusal: Option<Refusal>,
    /// Other writes that failed, and those that may have changed nothing though the server took them: they are not to be
    /// sent again at once.
    pub tried: Vec<(Action, Option<Failure>)>,
}

/// Set once children are refused.
type Refused = OnceLock<()>;

impl Done {
    fn note(&mut self, job: Option<&Job<'_>>, action: Action, result: Result<(), Failure>) {
        match result {
            Ok(()) => {
                self.acted += 1;
                self.taken.extend(Child::made_by(&action).map(Child::kind));
                // A pod that is on its way out stays there until its finalizers are gone, however often it is asked.
                if matches!(action, Action::DeletePod { force: true, .. }) {
                    self.tried.push((action, None));
                }
            }
            Err(Failure::InTheWay) => self.conflict = true,
            Err(failure) if action.creates() || failure == Failure::NotLeader => {
                self.explain(job, &action, &failure);
                self.failure = Some(Failure::graver(self.failure.take(), failure));
            }
            Err(failure) => self.tried.push((action, Some(failure))),
        }
    }

    /// Names the child that a failure is about: of those for which the gravest holds the first refused, or the one whose
    /// name comes first, so that it stays the same from one try to the next.
    fn explain(&mut self, job: Option<&Job<'_>>, action: &Action, failure: &Failure) {
        let (kind, name) = match (action, job) {
            (Action::CreatePod(key), Some(job)) => (Child::Pod.kind(), job.pod_name(*key)),
            (Action::CreateService(key), Some(job)) => {
                (Child::Service.kind(), build::service_name(job.name, *key))
            }
            (Action::CreateSecret(identity) | Action::FindSecret(identity), Some(job)) => {
                (Child::Secret.kind(), build::secret_name(job.name, *identity))
            }
            (Action::Grant, Some(job)) => (Child::Role.kind(), names::mpi_account(job.name)),
            _ => return,
        };
        let known = self.failure.as_ref().zip(self.refusal.as_ref());
        let says_more = known.is_none_or(|(gravest, refusal)| {
            let same = gravest == failure && !matches!(failure, Failure::Refused(_));
            gravest.is_less_than(failure) || same && name < refusal.name
        });
        if says_more {
            let message = failure.words().to_owned();
            self.refusal = Some(Refusal { kind, name, message });
        }
    }
}

/// A child that is about to be created.
struct Creation {
    child: Child,
    name: String,
    request: http::Request<Vec<u8>>,
}

impl Creation {
    fn new(
        target: Target<'_>,
        child: Child,
        name: Option<&str>,
        object: &impl Serialize,
    ) -> Result<Self, Failure> {
        let path = child.path(&target.key.namespace, "").by_us();
        // Metadata is all of the answer that is new to us.
        let request = request(Method::POST, &path, Answer::Metadata, Some(object))?;
        let name = name.unwrap_or_default().to_owned();
        Ok(Self { child, name, request })
    }
}

impl Hands {
    /// Hands that write with a client, as long as the leadership lets them, and tell an index.
    pub fn new(
        client: kube::Client,
        index: Arc<Index>,
        leadership: Leadership,
        settings: SharedSettings,
    ) -> Self {
        Self {
            client,
            index,
            leadership,
            settings,
            gate: Gate::new(IN_FLIGHT),
        }
    }

    /// The settings that children are built with.
    pub fn settings(&self) -> Arc<Settings> {
        self.settings.now()
    }

    /// What limits the number of requests that are under way.
    pub fn gate(&self) -> &Gate {
        &self.gate
    }

    /// Carries out actions, in parallel and in no order.
    pub async fn act(&self, target: Target<'_>, job: &TrainingJob, actions: Vec<Action>) -> Done {
        // Where the server refuses one child it refuses its siblings too: the rest need not be tried.
        let refused = Refused::new();
        let parsed = |action: &Action| action.creates() || matches!(action, Action::LabelPod { .. });
        // Only a valid job has children to create.
        let job = actions.iter().any(parsed).then(|| Job::parse(job).ok()).flatten();
        let job = job.as_ref();
        let mut done = Done::default();
        let mut actions = actions.into_iter();
        let mut running = FuturesUnordered::new();
        let mut entering = std::pin::pin!(Fuse::terminated());
        loop {
            // A request is made only once there is a place for it: what waits here takes no memory.
            if entering.is_terminated() && !actions.as_slice().is_empty() {
                entering.set(self.gate.enter(Class::Urgent).fuse());
            }
            tokio::select! {
                Some((action, result)) = running.next() => done.note(job, action, result),
                place = &mut entering, if !entering.is_terminated() => {
                    if let Some(action) = actions.next() {
                        let refused = &refused;
                        running.push(async move {
                            let result = self.one(target, job, action.clone(), refused, place).await;
                            (action, result)
                        });
                    }
                }
                else => break,
            }
        }
        done
    }

    async fn one(
        &self,
        target: Target<'_>,
        job: Option<&Job<'_>>,
        action: Action,
        refused: &Refused,
        _place: Place,
    ) -> Result<(), Failure> {
        let namespace = &target.key.namespace;
        match action {
            action if action.creates() && refused.get().is_some() => Err(Failure::Skipped),
            Action::CreatePod(key) => {
                let pod = job.and_then(|job| build::pod(job, &self.settings.now(), key));
                let Some(pod) = pod else { return Ok(()) };
                let create = Creation::new(target, Child::Pod, pod.metadata.name.as_deref(), &pod)?;
                drop(pod);
                self.create(target, create, refused).await
            }
            Action::LabelPod { key, uid } => match job {
                Some(job) => self.label(target, job, key, &uid).await,
                None => Ok(()),
            },
            Action::StartPod { name, uid } => self.start(target, &name, &uid).await,
            Action::CreateService(key) => {
                let service = job.and_then(|job| build::service(job, key));
                let Some(service) = service else { return Ok(()) };
                let create =
                    Creation::new(target, Child::Service, service.metadata.name.as_deref(), &service)?;
                drop(service);
                self.create(target, create, refused).await
            }
            Action::CreateSecret(identity) => {
                let Some(job) = job else { return Ok(()) };
                // Made anew for every try, and thrown away where there is one already.
                let content = identity::make(identity, Timestamp::now())
                    .map_err(|error| Failure::Refused(error.to_string()))?;
                let secret = build::secret(job, identity, content);
                let create = Creation::new(target, Child::Secret, secret.metadata.name.as_deref(), &secret)?;
                drop(secret);
                self.create(target, create, refused).await
            }
            Action::FindSecret(identity) => self.find_secret(target, identity).await,
            Action::Grant => match job {
                Some(job) => self.grant(target, job, refused).await,
                None => Ok(()),
            },
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

    async fn create(&self, target: Target<'_>, create: Creation, refused: &Refused) -> Result<(), Failure> {
        let Creation { child, name, request } = create;
        match self.send::<SlimPod>(target.term, request).await {
            Ok(created) => {
                self.see(target, child, created);
                Ok(())
            }
            Err(Failure::Exists) => self.exists(target, child, &name).await,
            Err(failure) => {
                if matches!(failure, Failure::Refused(_) | Failure::NamespaceEnds) {
                    let _ = refused.set(());
                }
                Err(failure)
            }
        }
    }

    fn see(&self, target: Target<'_>, child: Child, object: SlimPod) {
        match child {
            Child::Pod => {
                self.index.apply_pod(object, Source::Answer);
            }
            Child::Service => {
                let SlimPod { metadata, .. } = object;
                self.index.apply_service(&SlimMeta { metadata }, Source::Answer);
            }
            Child::Secret => {
                let name = object.metadata.name;
                let identity = Identity::ALL
                    .into_iter()
                    .find(|identity| build::secret_name(&target.key.name, *identity) == *name);
                let state = identity.map_or(SecretState::Unknown, SecretState::There);
                self.index.remember(target.uid, |memory| memory.secret = state);
            }
            // What is known of them is known of all three together.
            Child::ServiceAccount | Child::Role | Child::RoleBinding => {}
        }
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
            Err(Failure::Gone | Failure::Replaced) => Ok(None),
            Err(failure) => Err(failure),
        }
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

    async fn read<T: DeserializeOwned>(&self, path: &Path, answer: Answer) -> Result<T, Failure> {
        let request = request(Method::GET, path, answer, None::<&()>)?;
        self.client.request(request).await.map_err(Failure::from)
    }
}

#[cfg(test)]
mod tests;
