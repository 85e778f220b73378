//! The right of a job to start programs in its pods through the API server: an account, what it may, and that it may.

use http::Method;
use serde::Serialize;
use serde_json::{Value, json};
use trainyard_api::names;
use trainyard_core::exec;
use trainyard_core::job::Job;

use super::ownership::Child;
use super::request::{Answer, request};
use super::{Creation, Failure, Refused, Target, Writer};
use crate::slim::SlimPod;

impl Writer {
    /// Gives the right, or makes what was given what it should be. In this order, so that nothing ever names what is not
    /// there; what is somebody else's is left alone. What this leader has given for the same pods is only looked for.
    pub(super) async fn grant(
        &self,
        target: Target<'_>,
        job: &Job<'_>,
        refused: &Refused,
    ) -> Result<(), Failure> {
        let (Some(extent), Some(role)) = (exec::extent(job), exec::role(job)) else {
            return Ok(());
        };
        let account = exec::account(job);
        let known = self.index.local(target.uid).unwrap_or_default().granted == Some(extent);
        self.ensure(target, Child::ServiceAccount, &account, None, known, refused)
            .await?;
        let rules = json!({"rules": role.rules});
        self.ensure(target, Child::Role, &role, Some(rules), known, refused)
            .await?;
        let binding = exec::binding(job);
        // To what it is bound never changes.
        let subjects = json!({"subjects": binding.subjects});
        self.ensure(
            target,
            Child::RoleBinding,
            &binding,
            Some(subjects),
            known,
            refused,
        )
        .await?;
        self.index
            .remember(target.uid, |local| local.record_grant(extent));
        Ok(())
    }

    /// Creates an object, or gives one of ours that is there the parts that it should have.
    async fn ensure(
        &self,
        target: Target<'_>,
        child: Child,
        object: &impl Serialize,
        parts: Option<Value>,
        known: bool,
        refused: &Refused,
    ) -> Result<(), Failure> {
        let name = names::mpi_account(&target.key.name);
        if known && self.get_owned(target, child, &name).await?.is_some() {
            return Ok(());
        }
        let create = Creation::new(target, child, Some(&name), object)?;
        match self.send::<SlimPod>(target.term, create.request).await {
            Ok(_) => Ok(()),
            Err(Failure::Exists) => {
                let found = self.claim(target, child, &name).await?;
                let Some(mut changes) = parts else { return Ok(()) };
                // Another one of this name, made meanwhile, is not touched.
                changes["metadata"] = json!({"uid": found.metadata.uid});
                let path = child.path(&target.key.namespace, &name).by_us();
                let request = request(Method::PATCH, &path, Answer::Metadata, Some(&changes))?;
                self.send::<SlimPod>(target.term, request).await.map(drop)
            }
            Err(failure) => {
                if matches!(failure, Failure::Refused(_) | Failure::NamespaceEnds) {
                    let _ = refused.set(());
                }
                Err(failure)
            }
        }
    }
}
