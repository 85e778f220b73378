//! How children come into the index, and leave it.

use std::sync::Arc;

use super::entry::{Owner, Uid, without_job};
use super::{Inner, JobKey, Kind, Source};
use crate::clock::monotonic;
use crate::slim::{Meta, OwnerRef, SlimMeta, SlimPod, Version};

impl Inner {
    pub(super) fn apply_pod(&mut self, pod: SlimPod, source: Source) -> Option<JobKey> {
        let version = pod.metadata.resource_version;
        let (uid, epoch) = match self.place(Kind::Pod, &pod.metadata, source) {
            Ok(place) => place,
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
        let (uid, epoch) = match self.place(Kind::Service, &service.metadata, source) {
            Ok(place) => place,
            Err(former) => return former,
        };
        let owner = self.owners.get_mut(&uid)?;
        let changed = owner
            .services
            .put(service.service_row(), service.metadata.resource_version, epoch);
        let key = owner.key.clone();
        (changed && self.names.contains_key(&key)).then_some(key)
    }

    /// The owner under which a child is to be kept, and the epoch of its list; or, if it is not to be kept, the key
    /// of the job that has lost it.
    fn place(&mut self, kind: Kind, metadata: &Meta, source: Source) -> Result<(Uid, u32), Option<JobKey>> {
        let version = metadata.resource_version;
        let passed = self.progress.version(kind, &metadata.namespace);
        let epoch = self.progress.reached(kind, &metadata.namespace, version, source);
        let Some(owner) = metadata.job() else {
            // Its owner was taken from it: it is nobody's child any more.
            return Err(self.detach(kind, metadata, None));
        };
        let filed = self.filed(&metadata.namespace, &owner.uid);
        if metadata.labels.as_ref().and_then(|labels| labels.job.as_deref()) != Some(&*owner.name) {
            self.detach(kind, metadata, filed.as_deref());
        }
        let known = filed.as_ref().and_then(|uid| self.owners.get(uid));
        let known = known.is_some_and(|owner| match kind {
            Kind::Pod => owner.pods.contains(&metadata.name, &metadata.uid),
            _ => owner.services.contains(&metadata.name, &metadata.uid),
        });
        if source == Source::Answer && !known && version <= passed && version != Version(0) {
            // The watch has seen it come, and go.
            return Err(None);
        }
        let place = filed.unwrap_or_else(|| self.await_job(&metadata.namespace, owner));
        Ok((place, epoch))
    }

    /// Under what the children in a namespace of an owner are kept, if any are. An owner is of the namespace of its
    /// children: what names a job of another one as its owner is not that job's, whatever the UID says.
    fn filed(&self, namespace: &str, uid: &str) -> Option<Uid> {
        let here = |(_, owner): &(&Uid, &Owner)| *owner.key.namespace == *namespace;
        let filed = self.owners.get_key_value(uid).filter(here);
        let filed = filed.or_else(|| self.owners.get_key_value(&*without_job(namespace, uid)));
        filed.map(|(uid, _)| uid.clone())
    }

    /// Makes an owner known of which there is no job yet.
    fn await_job(&mut self, namespace: &str, owner: &OwnerRef) -> Uid {
        let uid: Uid = Arc::from(without_job(namespace, &owner.uid));
        self.owners
            .insert(uid.clone(), Owner::new(JobKey::new(namespace, &owner.name)));
        uid
    }

    /// Removes a child from all owners but one, wherever it is.
    fn detach(&mut self, kind: Kind, metadata: &Meta, except: Option<&str>) -> Option<JobKey> {
        let elsewhere = self.owners.iter_mut().find_map(|(uid, owner)| {
            let candidate = Some(&**uid) != except && *owner.key.namespace == *metadata.namespace;
            let removed = candidate && owner.remove(kind, &metadata.name, &metadata.uid);
            removed.then(|| uid.clone())
        })?;
        self.tidy(&elsewhere)
    }

    pub(super) fn delete_child(&mut self, kind: Kind, metadata: &Meta) -> Option<JobKey> {
        self.progress.reached(
            kind,
            &metadata.namespace,
            metadata.resource_version,
            Source::Watch,
        );
        let owner = metadata.job();
        let owner = owner.and_then(|owner| self.filed(&metadata.namespace, &owner.uid));
        if let Some(uid) = owner
            && let Some(owner) = self.owners.get_mut(&uid)
        {
            let removed = owner.remove(kind, &metadata.name, &metadata.uid);
            return if removed { self.tidy(&uid) } else { None };
        }
        self.detach(kind, metadata, None)
    }

    /// Nothing is left of a former job of this name: a later one need not wait out its pause.
    fn end_hold(&mut self, key: &JobKey) {
        let job = self.names.get(key).and_then(|uid| self.owners.get_mut(uid));
        let job = job.and_then(|owner| owner.job.as_mut());
        if let Some(entry) = job {
            entry.local.end_create_backoff(monotonic());
        }
    }

    /// Drops an owner of which nothing is left. The key to look at: that of the job now known by the owner's name,
    /// which may be a later one that waits for what an earlier one left behind.
    pub(super) fn tidy(&mut self, uid: &Uid) -> Option<JobKey> {
        let owner = self.owners.get(uid)?;
        let key = owner.key.clone();
        if owner.is_empty() {
            self.owners.remove(uid);
            self.end_hold(&key);
        }
        self.names.contains_key(&key).then_some(key)
    }
}
