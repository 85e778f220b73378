//! Whose an object is that has a name we need.

use http::Method;
use trainyard_api::names::{ANNOTATION_START, LABEL_JOB, LABEL_MANAGED_BY, MANAGED_BY, START_NOW};
use trainyard_core::build;
use trainyard_core::job::Job;
use trainyard_core::local_state::SecretState;
use trainyard_core::model::Identity;
use trainyard_core::model::{Action, PodKey};
use trainyard_core::view::Conflict;

use super::request::{Answer, Path, request};
use super::{Failure, Target, Writer};
use crate::clock::monotonic;
use crate::slim::{Meta, SlimPod};

impl Writer {
    /// An object of the name exists. Whose is it?
    pub(super) async fn exists(&self, target: Target<'_>, child: Child, name: &str) -> Result<(), Failure> {
        let found = self.claim(target, child, name).await?;
        // Our own, of a request whose answer was lost, or of a former leader.
        // Nobody looks by its labels for what is not watched.
        if found.metadata.is_labelled() || !child.is_watched() {
            self.record(target, child, found);
            Ok(())
        } else {
            self.restore_labels(target, child, name, &found.metadata).await
        }
    }

    /// Looks whether the Secret that pods of a job have is still there.
    pub(super) async fn find_secret(&self, target: Target<'_>, identity: Identity) -> Result<(), Failure> {
        let name = identity.secret_name(&target.key.name);
        let now = monotonic();
        self.index
            .remember(target.uid, |local| local.secret_checked_at = Some(now));
        if let Some(found) = self.get_owned(target, Child::Secret, &name).await? {
            self.record(target, Child::Secret, found);
        } else {
            tracing::warn!(job = %target.key, secret = name, "the Secret that the job's pods have is gone");
            self.index
                .remember(target.uid, |local| local.secret = SecretState::Missing(identity));
        }
        Ok(())
    }

    /// An object of the name that exists, if it is ours. Whoever else's it is, is kept in mind.
    pub(super) async fn claim(
        &self,
        target: Target<'_>,
        child: Child,
        name: &str,
    ) -> Result<SlimPod, Failure> {
        let found = self.get_owned(target, child, name).await?;
        found.ok_or_else(|| Failure::Transient("it was there and is gone".to_owned(), None))
    }

    /// The same of one of which nobody has said that it exists.
    pub(super) async fn get_owned(
        &self,
        target: Target<'_>,
        child: Child,
        name: &str,
    ) -> Result<Option<SlimPod>, Failure> {
        let path = child.path(&target.key.namespace, name);
        match self.read(&path, child.answer()).await {
            Err(Failure::Gone) => Ok(None),
            found => self.check_owner(target, child, name, found?).map(Some),
        }
    }

    /// An object that was found, if it is ours.
    fn check_owner(
        &self,
        target: Target<'_>,
        child: Child,
        name: &str,
        found: SlimPod,
    ) -> Result<SlimPod, Failure> {
        match Claim::of(&found.metadata, target) {
            // That one which nobody watches is gone would never be noticed.
            Claim::Ours if !child.is_watched() && found.metadata.terminating() => Err(Failure::Former),
            Claim::Ours => Ok(found),
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
    async fn restore_labels(
        &self,
        target: Target<'_>,
        child: Child,
        name: &str,
        found: &Meta,
    ) -> Result<(), Failure> {
        let labels = serde_json::json!({"metadata": {
            "uid": found.uid,
            "resourceVersion": found.resource_version.0.to_string(),
            "labels": {LABEL_MANAGED_BY: MANAGED_BY, LABEL_JOB: &*target.key.name},
        }});
        let path = child.path(&target.key.namespace, name);
        let request = request(Method::PATCH, &path, Answer::Whole, Some(&labels))?;
        let labelled = self.send::<SlimPod>(target.term, request).await?;
        self.record(target, child, labelled);
        Ok(())
    }

    /// Gives a pod back the labels by which it is found.
    pub(super) async fn label(
        &self,
        target: Target<'_>,
        job: &Job<'_>,
        key: PodKey,
        uid: &str,
    ) -> Result<(), Failure> {
        let body = serde_json::json!({"metadata": {"uid": uid, "labels": build::pod_labels(job, key)}});
        let path = Path::pod(&target.key.namespace, &job.pod_name(key));
        let request = request(Method::PATCH, &path, Answer::Whole, Some(&body))?;
        let labelled = self.send::<SlimPod>(target.term, request).await?;
        let stays = labelled.metadata.is_fully_labelled();
        self.record(target, Child::Pod, labelled);
        if stays {
            Ok(())
        } else {
            let words = "somebody changes the labels of a pod as they are written";
            Err(Failure::Transient(words.to_owned(), None))
        }
    }

    /// Tells the agent of a pod, through the kubelet, that the pod's programs may start.
    pub(super) async fn start(&self, target: Target<'_>, name: &str, uid: &str) -> Result<(), Failure> {
        let body =
            serde_json::json!({"metadata": {"uid": uid, "annotations": {ANNOTATION_START: START_NOW}}});
        let path = Path::pod(&target.key.namespace, name);
        let request = request(Method::PATCH, &path, Answer::Whole, Some(&body))?;
        let told = self.send::<SlimPod>(target.term, request).await?;
        self.record(target, Child::Pod, told);
        Ok(())
    }

    /// Looks for pods that the watch shows as gone, and shows it those that are not. Whether there were any.
    pub async fn find(&self, target: Target<'_>, missing: &[String]) -> Result<bool, Failure> {
        let mut any = false;
        for name in missing {
            let path = Child::Pod.path(&target.key.namespace, name);
            let found = match self.read::<SlimPod>(&path, Answer::Whole).await {
                Err(Failure::Gone) => continue,
                found => found?,
            };
            if found.metadata.terminating() || !matches!(Claim::of(&found.metadata, target), Claim::Ours) {
                continue;
            }
            if found.metadata.is_labelled() {
                // Somebody gave it its label back, and the watch is about to say so.
                self.record(target, Child::Pod, found);
            } else {
                self.restore_labels(target, Child::Pod, name, &found.metadata)
                    .await?;
            }
            any = true;
        }
        Ok(any)
    }

    /// Looks whether what was in a job's way still is. Whether anything has changed.
    pub async fn probe(&self, target: Target<'_>, conflicts: &[Conflict]) -> Result<bool, Failure> {
        let mut changed = false;
        for conflict in conflicts {
            let Some(child) = Child::of(conflict.kind) else {
                continue;
            };
            let path = child.path(&target.key.namespace, &conflict.name);
            let found = match self.read::<SlimPod>(&path, child.answer()).await {
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
                    self.record(target, child, found);
                }
                _ => self.index.resolve(target.uid, conflict.kind, &conflict.name),
            }
            changed = true;
        }
        Ok(changed)
    }
}

/// The kinds of children.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Child {
    Pod,
    Service,
    Secret,
    ServiceAccount,
    Role,
    RoleBinding,
}

impl Child {
    const ALL: [Self; 6] = [
        Self::Pod,
        Self::Service,
        Self::Secret,
        Self::ServiceAccount,
        Self::Role,
        Self::RoleBinding,
    ];

    /// Whether the operator is told of every change.
    const fn is_watched(self) -> bool {
        matches!(self, Self::Pod | Self::Service)
    }

    /// The kind of a name.
    fn of(kind: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|child| child.kind() == kind)
    }

    /// What an action creates, or finds.
    pub(super) const fn made_by(action: &Action) -> Option<Self> {
        match action {
            Action::CreatePod(_) => Some(Self::Pod),
            Action::CreateService(_) => Some(Self::Service),
            Action::CreateSecret(_) | Action::FindSecret(_) => Some(Self::Secret),
            Action::Grant => Some(Self::Role),
            _ => None,
        }
    }

    /// What is read of one that exists: of a Secret never what it holds.
    const fn answer(self) -> Answer {
        match self {
            Self::Pod | Self::Service => Answer::Whole,
            Self::Secret | Self::ServiceAccount | Self::Role | Self::RoleBinding => Answer::Metadata,
        }
    }

    pub(super) const fn kind(self) -> &'static str {
        match self {
            Self::Pod => "Pod",
            Self::Service => "Service",
            Self::Secret => "Secret",
            Self::ServiceAccount => "ServiceAccount",
            Self::Role => "Role",
            Self::RoleBinding => "RoleBinding",
        }
    }

    pub(super) fn path(self, namespace: &str, name: &str) -> Path {
        match self {
            Self::Pod => Path::pod(namespace, name),
            Self::Service => Path::service(namespace, name),
            Self::Secret => Path::secret(namespace, name),
            Self::ServiceAccount => Path::service_account(namespace, name),
            Self::Role => Path::role(namespace, name),
            Self::RoleBinding => Path::role_binding(namespace, name),
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
            None => Self::Foreign("nobody".to_owned()),
        }
    }
}
