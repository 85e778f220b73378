//! The ConfigMap that objects of some kinds have. It is written before the child is, and not
//! watched: if users change it, it stays so until the object changes.

use http::Method;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use serde::de::IgnoredAny;
use tokio_util::sync::CancellationToken;

use super::ForeignReconciler;
use super::store::Entry;
use crate::act::request::Path;
use crate::act::{Class, RequestError, Result};
use crate::index::JobKey;

const CORE: &str = "/api/v1";
const PLURAL: &str = "configmaps";

impl ForeignReconciler {
    /// Creates or updates the ConfigMap of an object, if it has one. Fails with
    /// [`RequestError::NameTaken`] if the ConfigMap belongs to another owner.
    pub(super) async fn configure(
        &self,
        key: &JobKey,
        entry: &Entry,
        wanted: Option<&ConfigMap>,
        term: &CancellationToken,
    ) -> Result<()> {
        let Some(wanted) = wanted else { return Ok(()) };
        let all = Path::of(CORE, &key.namespace, PLURAL, "").by_us();
        let created = self
            .send::<IgnoredAny>(Method::POST, &all, Class::Urgent, Some(wanted), term)
            .await;
        match created {
            Err(RequestError::Exists) => {}
            created => return created.map(drop),
        }
        let name = wanted.metadata.name.as_deref().unwrap_or_default();
        let path = Path::of(CORE, &key.namespace, PLURAL, name);
        let found = self
            .send::<ConfigMap>(Method::GET, &path, Class::Urgent, None::<&()>, term)
            .await;
        let found = match found {
            Err(RequestError::Gone) => return Err(RequestError::Former),
            found => found?,
        };
        let owners = found.metadata.owner_references.iter().flatten();
        let owner = owners.into_iter().find(|owner| owner.controller == Some(true));
        let ends = found.metadata.deletion_timestamp.is_some();
        match owner {
            _ if ends => return Err(RequestError::Former),
            Some(owner) if *owner.uid == *entry.uid => {}
            Some(owner) if self.is_former(owner, key) => return Err(RequestError::Former),
            _ => return Err(RequestError::NameTaken),
        }
        if found.data == wanted.data {
            return Ok(());
        }
        let changed = ConfigMap {
            data: wanted.data.clone(),
            ..found
        };
        let sent = self
            .send::<IgnoredAny>(Method::PUT, &path.by_us(), Class::Urgent, Some(&changed), term)
            .await;
        sent.map(drop)
    }

    /// Returns true if the owner is a former object of the same name: its ConfigMap will be
    /// deleted.
    fn is_former(&self, owner: &OwnerReference, key: &JobKey) -> bool {
        let group = owner.api_version.split_once('/').map(|(group, _)| group);
        (group, &*owner.kind, &*owner.name) == (Some(self.kind.group()), self.kind.kind(), &*key.name)
    }
}
