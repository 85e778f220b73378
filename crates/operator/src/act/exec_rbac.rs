//! The right of a job to start programs in its pods through the API server: a ServiceAccount, a
//! Role and a RoleBinding.

use http::Method;
use serde::Serialize;
use serde_json::{Value, json};
use trainyard_api::names;
use trainyard_core::exec;
use trainyard_core::job::Job;

use super::ownership::ChildKind;
use super::request::{Answer, request};
use super::{Creation, Refused, RequestError, Result, Target, Writer};
use crate::slim::SlimPod;

impl Writer {
    /// Grants the right, or corrects it. The order makes sure that no object refers to one that
    /// does not exist. Objects of somebody else are left alone. If this leader has granted the
    /// right for the same pods before, it only checks that the objects still exist.
    pub(super) async fn grant(&self, target: Target<'_>, job: &Job<'_>, refused: &Refused) -> Result<()> {
        let (Some(extent), Some(role)) = (exec::extent(job), exec::role(job)) else {
            return Ok(());
        };
        let account = exec::account(job);
        let was_granted = self.index.local(target.uid).unwrap_or_default().granted.as_ref() == Some(&extent);
        self.ensure(
            target,
            ChildKind::ServiceAccount,
            &account,
            None,
            was_granted,
            refused,
        )
        .await?;
        let rules = json!({"rules": role.rules});
        self.ensure(target, ChildKind::Role, &role, Some(rules), was_granted, refused)
            .await?;
        let binding = exec::binding(job);
        // The Role that it binds never changes.
        let subjects = json!({"subjects": binding.subjects});
        self.ensure(
            target,
            ChildKind::RoleBinding,
            &binding,
            Some(subjects),
            was_granted,
            refused,
        )
        .await?;
        self.index
            .update_local(target.uid, |local| local.record_grant(extent));
        Ok(())
    }

    /// Creates an object, or patches the given parts of ours if it exists.
    async fn ensure(
        &self,
        target: Target<'_>,
        child: ChildKind,
        object: &impl Serialize,
        parts: Option<Value>,
        was_granted: bool,
        refused: &Refused,
    ) -> Result<()> {
        let name = names::mpi_account(&target.key.name);
        if was_granted && self.get_owned(target, child, &name).await?.is_some() {
            return Ok(());
        }
        let create = Creation::new(target, child, name.clone(), object)?;
        match self.send_creation(target, create.request, refused).await {
            Err(RequestError::Exists) => {
                let found = self.require_owned(target, child, &name).await?;
                let Some(mut changes) = parts else { return Ok(()) };
                // The UID makes sure that a later object of this name is not patched.
                changes["metadata"] = json!({"uid": found.metadata.uid});
                let path = child.path(&target.key.namespace, &name).by_us();
                let request = request(Method::PATCH, &path, Answer::Metadata, Some(&changes))?;
                self.send::<SlimPod>(target.term, request).await.map(drop)
            }
            sent => sent.map(drop),
        }
    }
}
