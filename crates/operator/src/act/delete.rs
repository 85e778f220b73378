//! Deletions.

use http::Method;

use super::request::{Answer, DeleteOptions, Path, request};
use super::{RequestError, Result, Target, Writer};
use crate::index::Kind;
use crate::slim::{Meta, SlimMeta};
use trainyard_core::local_state::LocalState;

impl Writer {
    pub(super) async fn delete_child(
        &self,
        target: Target<'_>,
        kind: Kind,
        path: Path,
        name: &str,
        uid: &str,
        grace: Option<u32>,
    ) -> Result<()> {
        let options = DeleteOptions::new(uid, grace);
        match self.delete(target, path, uid, &options).await? {
            Some(Meta { resource_version, .. }) => {
                self.index
                    .deleted_by_us(kind, target.uid, name, uid, resource_version);
            }
            // It is terminating, or was deleted before. The watch will say which.
            None => self.index.terminate(kind, target.uid, name, uid),
        }
        Ok(())
    }

    /// Deletes the job itself, if it still has the version that this was decided on. Somebody who
    /// has changed it since may have prolonged its TTL.
    pub(super) async fn delete_job(&self, target: Target<'_>, version: Option<&str>) -> Result<()> {
        let mut options = DeleteOptions::new(target.uid, None);
        if let Some(version) = version {
            options = options.of_version(version);
        }
        let path = Path::job(&target.key.namespace, &target.key.name);
        match self.delete(target, path, target.uid, &options).await {
            Err(RequestError::VersionConflict) => return Err(RequestError::Outdated),
            deleted => deleted?,
        };
        self.index.update_local(target.uid, LocalState::record_deletion);
        Ok(())
    }

    /// Deletes an object. Returns its last metadata if it is deleted at once.
    async fn delete(
        &self,
        target: Target<'_>,
        path: Path,
        uid: &str,
        options: &DeleteOptions<'_>,
    ) -> Result<Option<Meta>> {
        let request = request(Method::DELETE, &path, Answer::Metadata, Some(options))?;
        match self.send::<SlimMeta>(target.term, request).await {
            Ok(SlimMeta { metadata }) => {
                Ok(Some(metadata).filter(|last| *last.uid == *uid && last.is_gone()))
            }
            // It is deleted already, or another object has its name.
            Err(RequestError::Gone | RequestError::Replaced) => Ok(None),
            Err(error) => Err(error),
        }
    }
}
