//! Adds children to the index, and removes them.

use std::sync::Arc;

use super::entry::{Owner, Uid, unknown_job_key};
use super::{Inner, JobKey, Kind, Source};
use crate::clock::monotonic;
use crate::slim::{Meta, OwnerRef, SlimMeta, SlimPod, Version};

impl Inner {
    pub(super) fn apply_pod(&mut self, pod: SlimPod, source: Source) -> Option<JobKey> {
        let version = pod.metadata.resource_version;
        let (uid, epoch) = match self.find_owner(Kind::Pod, &pod.metadata, source) {
            Ok(found) => found,
            Err(former) => return former,
        };
        let mut row = pod.into_row();
        row.node = row.node.map(|name| self.nodes.intern(name));
        let owner = self.owners.get_mut(&uid)?;
        let changed = owner.put_pod(row, version, epoch);
        let key = owner.key.clone();
        (changed && self.names.contains_key(&key)).then_some(key)
    }

    pub(super) fn apply_service(&mut self, service: &SlimMeta, source: Source) -> Option<JobKey> {
        let (uid, epoch) = match self.find_owner(Kind::Service, &service.metadata, source) {
            Ok(found) => found,
            Err(former) => return former,
        };
        let owner = self.owners.get_mut(&uid)?;
        let changed = owner
            .services
            .put(service.service_row(), service.metadata.resource_version, epoch);
        let key = owner.key.clone();
        (changed && self.names.contains_key(&key)).then_some(key)
    }

    /// Finds the owner that a child is stored under, and the epoch of its list. If the child must
    /// not be stored, returns the key of the job that has lost it.
    pub(super) fn find_owner(
        &mut self,
        kind: Kind,
        metadata: &Meta,
        source: Source,
    ) -> Result<(Uid, u32), Option<JobKey>> {
        let version = metadata.resource_version;
        let passed = self.cursors.version(kind, &metadata.namespace);
        let epoch = self.cursors.record(kind, &metadata.namespace, version, source);
        let Some(owner) = metadata.job() else {
            // Somebody removed its owner reference, so it is nobody's child any more.
            return Err(self.detach(kind, metadata, None));
        };
        let stored_under = self.stored_under(&metadata.namespace, &owner.uid);
        if metadata.labels.as_ref().and_then(|labels| labels.job.as_deref()) != Some(&*owner.name) {
            self.detach(kind, metadata, stored_under.as_deref());
        }
        let known = stored_under.as_ref().and_then(|uid| self.owners.get(uid));
        let known = known.is_some_and(|owner| match kind {
            Kind::Pod => owner.pods.contains(&metadata.name, &metadata.uid),
            Kind::Budget => owner.budgets.contains(&metadata.name, &metadata.uid),
            _ => owner.services.contains(&metadata.name, &metadata.uid),
        });
        if source == Source::Answer && !known && version <= passed && version != Version(0) {
            // The watch has seen it created, and deleted.
            return Err(None);
        }
        let uid = stored_under.unwrap_or_else(|| self.add_unknown_job(&metadata.namespace, owner));
        Ok((uid, epoch))
    }

    /// The key under which children of an owner in a namespace are stored, if there are any. Owners
    /// and children share a namespace: a child that names a job in another namespace as its owner
    /// does not belong to that job, whatever the UID says.
    fn stored_under(&self, namespace: &str, uid: &str) -> Option<Uid> {
        let is_in_namespace = |(_, owner): &(&Uid, &Owner)| *owner.key.namespace == *namespace;
        let stored_under = self.owners.get_key_value(uid).filter(is_in_namespace);
        let stored_under =
            stored_under.or_else(|| self.owners.get_key_value(&*unknown_job_key(namespace, uid)));
        stored_under.map(|(uid, _)| uid.clone())
    }

    /// Stores an owner whose job is not known yet.
    fn add_unknown_job(&mut self, namespace: &str, owner: &OwnerRef) -> Uid {
        let uid: Uid = Arc::from(unknown_job_key(namespace, &owner.uid));
        self.owners
            .insert(uid.clone(), Owner::new(JobKey::new(namespace, &owner.name)));
        uid
    }

    /// Removes a child from all owners except one.
    fn detach(&mut self, kind: Kind, metadata: &Meta, except: Option<&str>) -> Option<JobKey> {
        let elsewhere = self.owners.iter_mut().find_map(|(uid, owner)| {
            let candidate = Some(&**uid) != except && *owner.key.namespace == *metadata.namespace;
            let removed = candidate && owner.remove(kind, &metadata.name, &metadata.uid);
            removed.then(|| uid.clone())
        })?;
        self.drop_if_empty(&elsewhere)
    }

    pub(super) fn delete_child(&mut self, kind: Kind, metadata: &Meta) -> Option<JobKey> {
        self.cursors.record(
            kind,
            &metadata.namespace,
            metadata.resource_version,
            Source::Watch,
        );
        let owner = metadata.job();
        let owner = owner.and_then(|owner| self.stored_under(&metadata.namespace, &owner.uid));
        if let Some(uid) = owner
            && let Some(owner) = self.owners.get_mut(&uid)
        {
            let removed = owner.remove(kind, &metadata.name, &metadata.uid);
            return if removed { self.drop_if_empty(&uid) } else { None };
        }
        self.detach(kind, metadata, None)
    }

    /// Ends the create backoff of the job that has this name now, because nothing is left of a
    /// former job.
    fn end_create_backoff(&mut self, key: &JobKey) {
        let job = self.names.get(key).and_then(|uid| self.owners.get_mut(uid));
        let job = job.and_then(|owner| owner.job.as_mut());
        if let Some(entry) = job {
            entry.local.end_create_backoff(monotonic());
        }
    }

    /// Drops an owner that has nothing left. Returns the key of the job that has the owner's name
    /// now: it may be a later job that waits for the children of the former one to be deleted.
    pub(super) fn drop_if_empty(&mut self, uid: &Uid) -> Option<JobKey> {
        let owner = self.owners.get(uid)?;
        let key = owner.key.clone();
        if owner.is_empty() {
            self.owners.remove(uid);
            self.end_create_backoff(&key);
        }
        self.names.contains_key(&key).then_some(key)
    }
}
