//! Adds jobs to the index, and removes them.

use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use trainyard_api::{JobPhase, TrainingJobStatus};
use trainyard_core::local_state::LocalState;

use super::entry::{Job, JobEntry, Owner, Uid, unknown_job_key};
use super::{Inner, JobKey, Kind, Source};
use crate::slim::{JobObject, Version, version};

impl Inner {
    pub(super) fn apply_job(&mut self, object: JobObject, source: Source) -> Option<JobKey> {
        let metadata = object.metadata();
        let key = key_of(metadata)?;
        let uid = metadata.uid.as_deref()?;
        let version = object.version();
        let epoch = self.cursors.record(Kind::Job, &key.namespace, version, source);
        if let Some(current) = self.names.get(&key).filter(|current| &***current != uid).cloned() {
            let newest = self
                .owners
                .get(&current)
                .and_then(|owner| owner.job.as_ref())
                .map(|entry| entry.version);
            if newest.is_some_and(|newest| version < newest && version != Version(0)) {
                // This is a late version of a former job of this name.
                return None;
            }
            self.forget_job(&current);
        }
        let uid: Uid = match self.owners.get_key_value(uid) {
            Some((uid, _)) => uid.clone(),
            None => Arc::from(uid),
        };
        if !self.owners.contains_key(&uid) {
            let waiting = self.owners.remove(&*unknown_job_key(&key.namespace, &uid));
            let mut owner = waiting.unwrap_or_else(|| Owner::new(key.clone()));
            // The name in the owner references of its children may be wrong.
            owner.key = key.clone();
            self.owners.insert(uid.clone(), owner);
        }
        let owner = self.owners.get_mut(&uid)?;
        let local = match &mut owner.job {
            Some(entry) if version <= entry.version && version != Version(0) => {
                entry.epoch = epoch;
                return None;
            }
            Some(entry) => std::mem::take(&mut entry.local),
            None => LocalState::default(),
        };
        let job = match object {
            JobObject::Ok(job) => Job::Ok(Arc::from(job)),
            JobObject::Malformed(malformed) => Job::Malformed(Arc::from(malformed)),
        };
        let entry = JobEntry {
            job,
            version,
            epoch,
            local,
        };
        let phase = entry.phase();
        let old = owner.job.replace(entry);
        self.count(old.map(|entry| entry.phase()), Some(phase));
        self.names.insert(key.clone(), uid);
        Some(key)
    }

    pub(super) fn apply_status(
        &mut self,
        uid: &str,
        metadata: ObjectMeta,
        status: Option<TrainingJobStatus>,
    ) {
        let Some(entry) = self.owners.get_mut(uid).and_then(|owner| owner.job.as_mut()) else {
            return;
        };
        let answered = version(&metadata);
        let before = entry.phase();
        let Job::Ok(job) = &mut entry.job else { return };
        // The answer contains only metadata and status. If the spec has changed as well, the watch
        // brings all of it.
        if answered <= entry.version || job.metadata.generation != metadata.generation {
            return;
        }
        let job = Arc::make_mut(job);
        job.metadata = metadata;
        job.status = status;
        entry.version = answered;
        let after = entry.phase();
        self.count(Some(before), Some(after));
    }

    pub(super) fn delete_job(&mut self, metadata: &ObjectMeta) -> Option<JobKey> {
        let key = key_of(metadata)?;
        self.cursors
            .record(Kind::Job, &key.namespace, version(metadata), Source::Watch);
        let uid = metadata.uid.as_deref()?;
        let (uid, owner) = self.owners.get_key_value(uid)?;
        owner.job.as_ref()?;
        let uid = uid.clone();
        self.forget_job(&uid);
        Some(key)
    }

    pub(super) fn sweep_jobs(&mut self, scope: usize, epoch: u32, listed: Version) -> Vec<JobKey> {
        let cursors = &self.cursors;
        let deleted: Vec<(Uid, JobKey)> = self
            .owners
            .iter()
            .filter(|(_, owner)| cursors.scope(Kind::Job, &owner.key.namespace) == scope)
            .filter(|(_, owner)| {
                owner
                    .job
                    .as_ref()
                    .is_some_and(|job| job.epoch != epoch && job.version <= listed)
            })
            .map(|(uid, owner)| (uid.clone(), owner.key.clone()))
            .collect();
        for (uid, _) in &deleted {
            self.forget_job(uid);
        }
        deleted.into_iter().map(|(_, key)| key).collect()
    }

    /// Removes a job. Its children stay until they are deleted themselves.
    fn forget_job(&mut self, uid: &Uid) {
        let Some(mut owner) = self.owners.remove(uid) else {
            return;
        };
        let old = owner.job.take();
        owner.conflicts.clear();
        owner.departed.clear();
        owner.refusal = None;
        if self.names.get(&owner.key) == Some(uid) {
            self.names.remove(&owner.key);
        }
        if !owner.is_empty() {
            let uid = unknown_job_key(&owner.key.namespace, uid);
            self.owners.insert(Arc::from(uid), owner);
        }
        self.count(old.map(|entry| entry.phase()), None);
    }

    fn count(&mut self, before: Option<JobPhase>, after: Option<JobPhase>) {
        for (phase, change) in [(before, -1), (after, 1)] {
            let position = JobPhase::ALL.iter().position(|known| Some(*known) == phase);
            if let Some(count) = position.and_then(|position| self.phases.get_mut(position)) {
                *count += change;
            }
        }
    }
}

fn key_of(metadata: &ObjectMeta) -> Option<JobKey> {
    Some(JobKey::new(
        metadata.namespace.as_deref().unwrap_or_default(),
        metadata.name.as_deref()?,
    ))
}
