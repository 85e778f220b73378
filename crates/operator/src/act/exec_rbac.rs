//! The right of a job to start programs in its pods through the API server: a ServiceAccount, a
//! Role and a RoleBinding.

use http::Method;
use serde::Serialize;
use serde_json::{Value, json};
use trainyard_api::names;
use trainyard_core::exec;
use trainyard_core::job::Job;
use trainyard_core::local_state::ExecRightState;
use trainyard_core::model::PodNames;

use super::ownership::ChildKind;
use super::request::{Answer, request};
use super::{Class, Creation, Refused, RequestError, Result, Target, Writer};
use crate::slim::SlimPod;

impl Writer {
    /// Creates the account, a right that covers no pod, and what gives the one the other. The order
    /// makes sure that no object refers to one that does not exist. Objects of somebody else are
    /// left alone. If this leader has seen them before, it only checks that they still exist.
    pub(super) async fn create_exec_right(
        &self,
        target: Target<'_>,
        job: &Job<'_>,
        refused: &Refused,
    ) -> Result<()> {
        let local = self.index.local(target.uid).unwrap_or_default();
        let was_seen = matches!(local.exec_right, ExecRightState::Covers(_));
        let ensure = |child, parts| Ensure {
            child,
            parts,
            was_seen,
            refused,
        };
        self.ensure(
            target,
            ensure(ChildKind::ServiceAccount, None),
            &exec::account(job),
        )
        .await?;
        let is_new = self
            .ensure(target, ensure(ChildKind::Role, None), &exec::role(job))
            .await?;
        let binding = exec::binding(job);
        // The Role that it binds never changes.
        let subjects = json!({"subjects": binding.subjects});
        self.ensure(target, ensure(ChildKind::RoleBinding, Some(subjects)), &binding)
            .await?;
        self.index
            .update_local(target.uid, |local| local.record_exec_right(is_new));
        Ok(())
    }

    /// Lets the right cover exactly these pods. Where this job has no right, it covers none.
    pub(super) async fn grant(&self, target: Target<'_>, pods: PodNames) -> Result<()> {
        let name = names::mpi_account(&target.key.name);
        let state = match self.find_ours(target, ChildKind::Role, &name).await? {
            Some(found) => {
                // The UID makes sure that a later object of this name is not patched.
                let changes = json!({"metadata": {"uid": found.metadata.uid}, "rules": exec::rules(&pods)});
                self.patch(target, ChildKind::Role, &name, &changes).await?;
                ExecRightState::Covers(pods)
            }
            None => ExecRightState::Missing,
        };
        self.index
            .update_local(target.uid, |local| local.record_grant(state));
        Ok(())
    }

    /// Takes the right away from a job that can't be read: nobody sees which of its pods are left,
    /// and whose the others of these names are.
    pub async fn withdraw_exec_right(&self, target: Target<'_>, known: &ExecRightState) -> Result<()> {
        let may_cover = match known {
            ExecRightState::Unknown => true,
            ExecRightState::Missing => false,
            ExecRightState::Covers(pods) => !pods.is_empty(),
        };
        if may_cover && self.settings.now().allows_exec {
            let _permit = self.limiter.enter(Class::Urgent).await;
            self.grant(target, PodNames::default()).await?;
        }
        Ok(())
    }

    /// Creates an object, or patches the given parts of ours if it exists. Returns true if it was
    /// created.
    async fn ensure(&self, target: Target<'_>, ensure: Ensure<'_>, object: &impl Serialize) -> Result<bool> {
        let Ensure {
            child,
            parts,
            was_seen,
            refused,
        } = ensure;
        let name = names::mpi_account(&target.key.name);
        if was_seen && self.get_owned(target, child, &name).await?.is_some() {
            return Ok(false);
        }
        let create = Creation::new(target, child, name.clone(), object)?;
        match self.send_creation(target, create.request, refused).await {
            Err(RequestError::Exists) => {
                let found = self.require_owned(target, child, &name).await?;
                if let Some(mut changes) = parts {
                    changes["metadata"] = json!({"uid": found.metadata.uid});
                    self.patch(target, child, &name, &changes).await?;
                }
                Ok(false)
            }
            sent => sent.map(|_| true),
        }
    }

    async fn patch(&self, target: Target<'_>, child: ChildKind, name: &str, changes: &Value) -> Result<()> {
        let path = child.path(&target.key.namespace, name).by_us();
        let request = request(Method::PATCH, &path, Answer::Metadata, Some(changes))?;
        self.send::<SlimPod>(target.term, request).await.map(drop)
    }
}

/// How an object is made sure of.
struct Ensure<'a> {
    child: ChildKind,
    /// What is patched if it exists.
    parts: Option<Value>,
    /// This leader has seen it before.
    was_seen: bool,
    refused: &'a Refused,
}
