//! The writes. Each is sent only while this replica leads, has preconditions so that it does no
//! harm if it is late, and updates the index when it is answered.

mod budget;
mod current;
mod delete;
mod exec_rbac;
mod limiter;
mod ownership;
pub(crate) mod request;
mod request_error;
mod results;
mod status;

use std::num::NonZeroU64;
use std::sync::{Arc, OnceLock};

use futures::future::{Fuse, FusedFuture};
use futures::stream::FuturesUnordered;
use futures::{FutureExt, StreamExt};
use http::Method;
use jiff::Timestamp;
use kube::ResourceExt;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio_util::sync::CancellationToken;
use trainyard_api::TrainingJob;
use trainyard_core::build;
use trainyard_core::job::Job;
use trainyard_core::local_state::SecretState;
use trainyard_core::model::Action;
use trainyard_core::model::Identity;
use trainyard_core::view::Settings;

use crate::identity;
use crate::index::{Index, JobKey, Kind, Source};
use crate::leader::Leadership;
use crate::settings::SharedSettings;
use crate::slim::{SlimMeta, SlimPod};

pub use limiter::{Class, Permit, WriteLimiter};
use ownership::ChildKind;
use request::{Answer, Path, request, send_while_leading};
pub use request_error::{RequestError, Result};
pub use results::ActionResults;

/// How many writes are under way at once, over all jobs.
pub(crate) const IN_FLIGHT: usize = 64;

/// Carries out planned writes.
pub struct Writer {
    client: kube::Client,
    index: Arc<Index>,
    leadership: Leadership,
    settings: SharedSettings,
    limiter: WriteLimiter,
}

/// The job that writes are for, and how long they may be sent.
#[derive(Clone, Copy, Debug)]
pub struct Target<'a> {
    /// The job's namespace and name.
    pub key: &'a JobKey,
    pub uid: &'a str,
    /// Cancelled when this replica does not lead any more.
    pub term: &'a CancellationToken,
}

/// Set when the server refuses a child.
type Refused = OnceLock<()>;

/// A child that is about to be created.
struct Creation {
    child: ChildKind,
    name: String,
    request: http::Request<Vec<u8>>,
}

impl Creation {
    #[expect(
        clippy::needless_pass_by_value,
        reason = "the object is dropped here, and not kept in memory while the request is under way"
    )]
    fn of(target: Target<'_>, child: ChildKind, object: impl Serialize + ResourceExt) -> Result<Self> {
        Self::new(target, child, object.name_any(), &object)
    }

    fn new(target: Target<'_>, child: ChildKind, name: String, object: &impl Serialize) -> Result<Self> {
        let path = child.path(&target.key.namespace, "").by_us();
        // Only the metadata of the answer is new to us.
        let request = request(Method::POST, &path, Answer::Metadata, Some(object))?;
        Ok(Self { child, name, request })
    }
}

/// What actions were decided on.
#[derive(Clone, Copy)]
struct Basis<'a> {
    /// The job, if it has children to create.
    job: Option<&'a Job<'a>>,
    /// A hash of its spec, where no status records that.
    spec: Option<NonZeroU64>,
    /// Its version.
    version: Option<&'a str>,
}

impl Writer {
    /// Creates a writer that sends requests with a client while this replica leads, and updates an
    /// index.
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
            limiter: WriteLimiter::new(IN_FLIGHT),
        }
    }

    /// The settings that children are built with.
    pub fn settings(&self) -> Arc<Settings> {
        self.settings.now()
    }

    /// Limits the number of requests that are under way.
    pub fn limiter(&self) -> &WriteLimiter {
        &self.limiter
    }

    /// Carries out actions for the job that they were decided for, in parallel and in no order. If
    /// that job changes or the term ends, the remaining children are not created.
    pub async fn act(
        &self,
        target: Target<'_>,
        decided_for: &TrainingJob,
        actions: Vec<Action>,
    ) -> ActionResults {
        // If the server refuses one child it refuses the others too, so the rest is not tried.
        let refused = Refused::new();
        let needs_job = |action: &Action| {
            action.creates() || matches!(action, Action::LabelPod { .. } | Action::CreateBudget)
        };
        // Only a valid job has children to create.
        let frameworks = self.index.frameworks_for(decided_for);
        let job = actions
            .iter()
            .any(needs_job)
            .then(|| Job::parse_with(decided_for, &frameworks).ok())
            .flatten();
        let job = job.as_ref();
        let basis = Basis {
            job,
            spec: job.and_then(|_| build::unrecorded_spec(decided_for, &frameworks)),
            version: decided_for.metadata.resource_version.as_deref(),
        };
        let mut results = ActionResults::default();
        let mut actions = actions.into_iter();
        let mut running = FuturesUnordered::new();
        let mut next_permit = std::pin::pin!(Fuse::terminated());
        loop {
            // A request is built only when there is a permit for it, so that waiting actions take
            // no memory.
            if next_permit.is_terminated() && !actions.as_slice().is_empty() {
                next_permit.set(self.limiter.enter(Class::Urgent).fuse());
            }
            tokio::select! {
                Some((action, result)) = running.next() => results.record(job, action, result),
                permit = &mut next_permit, if !next_permit.is_terminated() => {
                    let Some(action) = actions.next() else { continue };
                    if let Err(error) = self.check(target, decided_for, &action) {
                        actions = Vec::new().into_iter();
                        results.record(job, action, Err(error));
                        continue;
                    }
                    let refused = &refused;
                    running.push(async move {
                        let result = self.carry_out(target, basis, action.clone(), refused, permit).await;
                        (action, result)
                    });
                }
                else => break,
            }
        }
        results
    }

    async fn carry_out(
        &self,
        target: Target<'_>,
        Basis { job, spec, version }: Basis<'_>,
        action: Action,
        refused: &Refused,
        _permit: Permit,
    ) -> Result<()> {
        let namespace = &target.key.namespace;
        match action {
            action if action.creates() && refused.get().is_some() => Err(RequestError::Skipped),
            Action::CreatePod(key) => {
                let pod = job.and_then(|job| build::new_pod(job, &self.settings.now(), key, spec));
                let Some(pod) = pod else { return Ok(()) };
                let create = Creation::of(target, ChildKind::Pod, pod)?;
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
                let create = Creation::of(target, ChildKind::Service, service)?;
                self.create(target, create, refused).await
            }
            Action::CreateSecret(identity) => {
                let Some(job) = job else { return Ok(()) };
                // It is made again for every try, and dropped if a Secret exists already.
                let content = identity::make(identity, Timestamp::now())
                    .map_err(|error| RequestError::Refused(error.to_string()))?;
                let secret = build::secret(job, identity, content);
                let create = Creation::of(target, ChildKind::Secret, secret)?;
                self.create(target, create, refused).await
            }
            Action::FindSecret(identity) => self.find_secret(target, identity).await,
            Action::CreateExecRight => match job {
                Some(job) => self.create_exec_right(target, job, refused).await,
                None => Ok(()),
            },
            Action::Grant(pods) => self.grant(target, pods).await,
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
            Action::CreateBudget => match job {
                Some(job) => self.create_budget(target, job).await,
                None => Ok(()),
            },
            Action::DeleteBudget { name, uid } => {
                let path = Path::budget(namespace, &name);
                self.delete_child(target, Kind::Budget, path, &name, &uid, None)
                    .await
            }
            Action::DeleteJob => self.delete_job(target, version).await,
        }
    }

    async fn create(&self, target: Target<'_>, create: Creation, refused: &Refused) -> Result<()> {
        let Creation { child, name, request } = create;
        match self.send_creation(target, request, refused).await {
            Err(RequestError::Exists) => self.adopt_existing(target, child, &name).await,
            sent => sent.map(|created| self.record(target, child, created)),
        }
    }

    /// Creates an object. If the server refuses it, other children are not tried.
    async fn send_creation(
        &self,
        target: Target<'_>,
        request: http::Request<Vec<u8>>,
        refused: &Refused,
    ) -> Result<SlimPod> {
        let sent = self.send::<SlimPod>(target.term, request).await;
        if let Err(RequestError::Refused(_) | RequestError::NamespaceEnds) = sent {
            let _ = refused.set(());
        }
        sent
    }

    fn record(&self, target: Target<'_>, child: ChildKind, object: SlimPod) {
        match child {
            ChildKind::Pod => {
                self.index.apply_pod(object, Source::Answer);
            }
            ChildKind::Service => {
                let SlimPod { metadata, .. } = object;
                self.index.apply_service(&SlimMeta { metadata }, Source::Answer);
            }
            ChildKind::Secret => {
                let name = object.metadata.name;
                let identity = Identity::ALL
                    .into_iter()
                    .find(|identity| identity.secret_name(&target.key.name) == *name);
                let state = identity.map_or(SecretState::Unknown, SecretState::Exists);
                self.index
                    .update_local(target.uid, |local| local.record_secret(state));
            }
            // These are recorded together, when all three exist.
            ChildKind::ServiceAccount | ChildKind::Role | ChildKind::RoleBinding => {}
        }
    }

    async fn send<T: DeserializeOwned>(
        &self,
        term: &CancellationToken,
        request: http::Request<Vec<u8>>,
    ) -> Result<T> {
        send_while_leading(&self.client, &self.leadership, term, request).await
    }

    async fn read<T: DeserializeOwned>(&self, path: &Path, answer: Answer) -> Result<T> {
        let request = request(Method::GET, path, answer, None::<&()>)?;
        self.client.request(request).await.map_err(RequestError::from)
    }
}

#[cfg(test)]
mod tests;
