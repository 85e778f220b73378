//! Finds out who owns an object that has a name we need.

use http::Method;
use trainyard_api::names::{
    ANNOTATION_START, ARES_PASSED_ON, LABEL_JOB, LABEL_MANAGED_BY, MANAGED_BY, START_NOW,
};
use trainyard_core::build;
use trainyard_core::job::Job;
use trainyard_core::local_state::SecretState;
use trainyard_core::model::Identity;
use trainyard_core::model::{Action, PodKey};
use trainyard_core::passed_on::PassedOn;
use trainyard_core::view::Conflict;

use super::request::{Answer, Path, request};
use super::{RequestError, Result, Target, Writer};
use crate::clock::monotonic;
use crate::slim::{Meta, SlimPod};

impl Writer {
    /// Handles a create that failed because an object of the name exists.
    pub(super) async fn adopt_existing(
        &self,
        target: Target<'_>,
        child: ChildKind,
        name: &str,
    ) -> Result<()> {
        let found = self.require_owned(target, child, name).await?;
        // It is ours: the answer to our request was lost, or a former leader created it. Labels
        // matter only for kinds that are watched.
        if found.metadata.is_labelled() || !child.is_watched() {
            self.record(target, child, found);
            Ok(())
        } else {
            self.restore_labels(target, child, name, &found.metadata).await
        }
    }

    /// Checks whether the Secret that a job's pods have still exists.
    pub(super) async fn find_secret(&self, target: Target<'_>, identity: Identity) -> Result<()> {
        let name = identity.secret_name(&target.key.name);
        let now = monotonic();
        self.index
            .update_local(target.uid, |local| local.record_secret_check(now));
        if let Some(found) = self.get_owned(target, ChildKind::Secret, &name).await? {
            self.record(target, ChildKind::Secret, found);
        } else {
            tracing::warn!(job = %target.key, secret = name, "the Secret that the job's pods have is gone");
            self.index.update_local(target.uid, |local| {
                local.record_secret(SecretState::Missing(identity));
            });
        }
        Ok(())
    }

    /// Gets an existing object of a name if it is ours. If somebody else owns it, records a
    /// conflict.
    pub(super) async fn require_owned(
        &self,
        target: Target<'_>,
        child: ChildKind,
        name: &str,
    ) -> Result<SlimPod> {
        let found = self.get_owned(target, child, name).await?;
        found.ok_or_else(|| RequestError::Transient("it was there and is gone".to_owned(), None))
    }

    /// Gets an object of a name if it is ours. `None` if it does not exist. If somebody else owns
    /// it, records a conflict.
    pub(super) async fn get_owned(
        &self,
        target: Target<'_>,
        child: ChildKind,
        name: &str,
    ) -> Result<Option<SlimPod>> {
        let found = self.find(target, child, name).await?;
        let checked = found.map(|found| self.check_owner(target, child, name, found));
        checked.transpose()
    }

    /// Gets an existing object of a name if it is ours and stays. One of somebody else is no
    /// conflict: nothing is created.
    pub(super) async fn find_ours(
        &self,
        target: Target<'_>,
        child: ChildKind,
        name: &str,
    ) -> Result<Option<SlimPod>> {
        let found = self.find(target, child, name).await?;
        let is_ours = |found: &SlimPod| matches!(Ownership::of(&found.metadata, target), Ownership::Ours);
        Ok(found.filter(|found| is_ours(found) && !found.metadata.terminating()))
    }

    /// Gets an object of a name, whoever owns it. `None` if it does not exist.
    async fn find(&self, target: Target<'_>, child: ChildKind, name: &str) -> Result<Option<SlimPod>> {
        let path = child.path(&target.key.namespace, name);
        match self.read(&path, child.answer()).await {
            Err(RequestError::Gone) => Ok(None),
            found => found.map(Some),
        }
    }

    /// Checks that an object is ours. If somebody else owns it, records a conflict.
    fn check_owner(
        &self,
        target: Target<'_>,
        child: ChildKind,
        name: &str,
        found: SlimPod,
    ) -> Result<SlimPod> {
        match Ownership::of(&found.metadata, target) {
            // Nobody would notice the deletion of an object that is not watched.
            Ownership::Ours if !child.is_watched() && found.metadata.terminating() => {
                Err(RequestError::Former)
            }
            Ownership::Ours => Ok(found),
            Ownership::Former => Err(RequestError::Former),
            Ownership::Foreign(owner) => {
                let conflict = Conflict {
                    kind: child.kind(),
                    name: name.to_owned(),
                    owner,
                };
                self.index.add_conflict(target.uid, conflict);
                Err(RequestError::NameTaken)
            }
        }
    }

    /// Restores the label of a child that somebody removed. Without it the watch does not see the
    /// child.
    async fn restore_labels(
        &self,
        target: Target<'_>,
        child: ChildKind,
        name: &str,
        found: &Meta,
    ) -> Result<()> {
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

    /// Restores all labels of a pod, and what it carries of the job's annotations.
    pub(super) async fn label(
        &self,
        target: Target<'_>,
        job: &Job<'_>,
        key: PodKey,
        uid: &str,
    ) -> Result<()> {
        let mut metadata = serde_json::json!({"uid": uid, "labels": build::pod_labels(job, key)});
        if let Some(passed) = PassedOn::of(job.object) {
            let places = [("labels", passed.labels), ("annotations", passed.annotations)];
            for (place, values) in places {
                for (key, value) in ARES_PASSED_ON.into_iter().zip(values) {
                    // Without a value it is removed.
                    metadata[place][key] = value.into();
                }
            }
        }
        let body = serde_json::json!({"metadata": metadata});
        let path = Path::pod(&target.key.namespace, &job.pod_name(key));
        let request = request(Method::PATCH, &path, Answer::Whole, Some(&body))?;
        let labelled = self.send::<SlimPod>(target.term, request).await?;
        let is_passed_on = job
            .passed_on
            .is_none_or(|wanted| wanted == labelled.metadata.passed_on());
        let is_labelled = labelled.metadata.is_fully_labelled() && is_passed_on;
        self.record(target, ChildKind::Pod, labelled);
        if is_labelled {
            Ok(())
        } else {
            let words = "somebody changes the labels of a pod as they are written";
            Err(RequestError::Transient(words.to_owned(), None))
        }
    }

    /// Tells the agent in a pod, by an annotation, that the pod's programs may start.
    pub(super) async fn start(&self, target: Target<'_>, name: &str, uid: &str) -> Result<()> {
        let body =
            serde_json::json!({"metadata": {"uid": uid, "annotations": {ANNOTATION_START: START_NOW}}});
        let path = Path::pod(&target.key.namespace, name);
        let request = request(Method::PATCH, &path, Answer::Whole, Some(&body))?;
        let annotated = self.send::<SlimPod>(target.term, request).await?;
        self.record(target, ChildKind::Pod, annotated);
        Ok(())
    }

    /// Looks for pods that the watch shows as deleted, and restores those that exist in the index.
    /// Returns true if there are any.
    pub async fn confirm_absence(&self, target: Target<'_>, missing: &[String]) -> Result<bool> {
        let mut found_any = false;
        for name in missing {
            let path = ChildKind::Pod.path(&target.key.namespace, name);
            let found = match self.read::<SlimPod>(&path, Answer::Whole).await {
                Err(RequestError::Gone) => continue,
                found => found?,
            };
            if found.metadata.terminating()
                || !matches!(Ownership::of(&found.metadata, target), Ownership::Ours)
            {
                continue;
            }
            if found.metadata.is_labelled() {
                // Somebody restored its label, and the watch is about to show it.
                self.record(target, ChildKind::Pod, found);
            } else {
                self.restore_labels(target, ChildKind::Pod, name, &found.metadata)
                    .await?;
            }
            found_any = true;
        }
        Ok(found_any)
    }

    /// Checks whether the conflicting objects still exist and who owns them. Returns true if
    /// anything has changed.
    pub async fn check_conflicts(&self, target: Target<'_>, conflicts: &[Conflict]) -> Result<bool> {
        let mut changed = false;
        for conflict in conflicts {
            let Some(child) = ChildKind::of(conflict.kind) else {
                continue;
            };
            let path = child.path(&target.key.namespace, &conflict.name);
            let found = match self.read::<SlimPod>(&path, child.answer()).await {
                Err(RequestError::Gone) => None,
                found => Some(found?),
            };
            let ownership = found.as_ref().map(|found| Ownership::of(&found.metadata, target));
            match (ownership, found) {
                (Some(Ownership::Foreign(owner)), _) if owner == conflict.owner => continue,
                (Some(Ownership::Foreign(owner)), _) => {
                    self.index.add_conflict(
                        target.uid,
                        Conflict {
                            owner,
                            ..conflict.clone()
                        },
                    );
                }
                (Some(Ownership::Ours), Some(found)) => {
                    self.index
                        .remove_conflict(target.uid, conflict.kind, &conflict.name);
                    self.record(target, child, found);
                }
                _ => self
                    .index
                    .remove_conflict(target.uid, conflict.kind, &conflict.name),
            }
            changed = true;
        }
        Ok(changed)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ChildKind {
    Pod,
    Service,
    Secret,
    ServiceAccount,
    Role,
    RoleBinding,
}

impl ChildKind {
    const ALL: [Self; 6] = [
        Self::Pod,
        Self::Service,
        Self::Secret,
        Self::ServiceAccount,
        Self::Role,
        Self::RoleBinding,
    ];

    /// Returns true if the operator watches this kind.
    const fn is_watched(self) -> bool {
        matches!(self, Self::Pod | Self::Service)
    }

    /// Finds a kind by its name.
    fn of(kind: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|child| child.kind() == kind)
    }

    /// The kind that an action creates or finds.
    pub(super) const fn created_by(action: &Action) -> Option<Self> {
        match action {
            Action::CreatePod(_) => Some(Self::Pod),
            Action::CreateService(_) => Some(Self::Service),
            Action::CreateSecret(_) | Action::FindSecret(_) => Some(Self::Secret),
            Action::CreateExecRight => Some(Self::Role),
            _ => None,
        }
    }

    /// How much of an existing object is read. The content of a Secret is never read.
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

/// Who owns an object.
enum Ownership {
    Ours,
    /// It belongs to a former job of the same name, or is terminating. Either way it will be
    /// deleted.
    Former,
    /// Somebody else, in words.
    Foreign(String),
}

impl Ownership {
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
