//! One job in the index.

use std::sync::Arc;

use tokio::time::Instant;
use trainyard_api::{JobPhase, Progress, TrainingJob};
use trainyard_core::local_state::LocalState;
use trainyard_core::view::{Conflict, PodRow, Refusal, ServiceRow};

use super::rows::Rows;
use super::{JobKey, Kind};
use crate::slim::{Malformed, Version};

pub(super) type Uid = Arc<str>;

/// Under what the children in a namespace are kept that name an owner of which no job is known. Anybody may write any UID
/// into a pod of theirs: until the job comes, and says in which namespace it is, nobody can tell who is right.
pub(super) fn without_job(namespace: &str, uid: &str) -> String {
    format!("{namespace}/{uid}")
}

/// A job and what it owns, kept under its UID; or what is owned by a job that is not known, kept under its namespace and
/// the UID.
#[derive(Debug)]
pub(super) struct Owner {
    pub(super) key: JobKey,
    pub(super) job: Option<JobEntry>,
    pub(super) pods: Rows<PodRow>,
    pub(super) services: Rows<ServiceRow>,
    /// Pods that were seen to end and are gone, until the job's status has been written with them in mind, or there are others of
    /// their names.
    pub(super) departed: Vec<PodRow>,
    pub(super) conflicts: Vec<Conflict>,
    pub(super) refusal: Option<Arc<Refusal>>,
    pub(super) said: Option<ProgressReport>,
}

/// The latest progress, from the pod that speaks for its job.
#[derive(Debug)]
pub(super) struct ProgressReport {
    /// Its place among the pods of the job.
    pub(super) by: (usize, i32),
    /// When it said it.
    pub(super) at: Instant,
    pub(super) progress: Arc<Progress>,
}

impl Owner {
    pub(super) fn new(key: JobKey) -> Self {
        Self {
            key,
            job: None,
            pods: Rows::default(),
            services: Rows::default(),
            departed: Vec::new(),
            conflicts: Vec::new(),
            refusal: None,
            said: None,
        }
    }

    /// Removes a child. Whether it was there.
    pub(super) fn remove(&mut self, kind: Kind, name: &str, uid: &str) -> bool {
        match kind {
            Kind::Pod => {
                let gone = self.pods.remove(name, uid);
                self.keep_ended(gone)
            }
            _ => self.services.remove(name, uid).is_some(),
        }
    }

    /// Removes a child of which the answer to a delete says that it went at a version.
    pub(super) fn tombstone(&mut self, kind: Kind, name: &str, uid: &str, version: Version) {
        match kind {
            Kind::Pod => {
                let gone = self.pods.tombstone(name, uid, version);
                self.keep_ended(gone);
            }
            _ => {
                self.services.tombstone(name, uid, version);
            }
        }
    }

    /// Removes the children that a list did not contain. Whether any was.
    pub(super) fn sweep(&mut self, kind: Kind, epoch: u32, listed: Version) -> bool {
        match kind {
            Kind::Pod => {
                let gone = self.pods.sweep(epoch, listed);
                self.keep_ended(gone)
            }
            _ => !self.services.sweep(epoch, listed).is_empty(),
        }
    }

    /// Keeps of pods that are gone those that had ended: nothing else tells them from pods that were lost. Whether there was any
    /// pod.
    fn keep_ended(&mut self, gone: impl IntoIterator<Item = PodRow>) -> bool {
        let mut any = false;
        for row in gone {
            any = true;
            if row.has_ended() && self.job.is_some() && !self.pods.has(&row.name) {
                self.departed.retain(|known| known.name != row.name);
                self.departed.push(row);
            }
        }
        any
    }

    /// Takes a pod in, unless a newer one is there. Whether anything that decisions look at has changed.
    pub(super) fn put_pod(&mut self, row: PodRow, version: Version, epoch: u32) -> bool {
        if !self.departed.is_empty() {
            let replaced = |known: &PodRow| known.name == row.name && known.uid != row.uid;
            self.departed.retain(|known| !replaced(known));
        }
        self.pods.put(row, version, epoch)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.job.is_none() && self.pods.is_empty() && self.services.is_empty()
    }
}

#[derive(Debug)]
pub(super) struct JobEntry {
    pub(super) job: Job,
    pub(super) version: Version,
    pub(super) epoch: u32,
    pub(super) local: LocalState,
}

impl JobEntry {
    pub(super) fn phase(&self) -> JobPhase {
        let phase = match &self.job {
            Job::Ok(job) => job.status.as_ref().and_then(|status| status.phase),
            Job::Malformed(_) => None,
        };
        phase.unwrap_or(JobPhase::Pending)
    }
}

#[derive(Debug)]
pub(super) enum Job {
    Ok(Arc<TrainingJob>),
    Malformed(Arc<Malformed>),
}
