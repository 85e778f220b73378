//! One job in the index.

use std::sync::Arc;

use tokio::time::Instant;
use trainyard_api::{JobPhase, Progress, TrainingJob};
use trainyard_core::view::{Conflict, PodRow, Refusal, SecretState, ServiceRow};

use super::pauses::Pauses;
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
    pub(super) pauses: Pauses,
    pub(super) said: Option<Said>,
}

/// What the pod says that speaks for its job.
#[derive(Debug)]
pub(super) struct Said {
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
            pauses: Pauses::default(),
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
    pub(super) fn hide(&mut self, kind: Kind, name: &str, uid: &str, version: Version) {
        match kind {
            Kind::Pod => {
                let gone = self.pods.hide(name, uid, version);
                self.keep_ended(gone);
            }
            _ => {
                self.services.hide(name, uid, version);
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
    pub(super) memory: Memory,
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

/// What this process remembers of a job, and may forget without harm.
#[derive(Clone, Copy, Debug, Default)]
pub struct Memory {
    /// When its status was last written.
    pub status_written: Option<Instant>,
    /// Since when there are successes that its status does not have.
    pub unwritten: Option<Instant>,
    /// Since when pods wait although they may start.
    pub late: Option<Instant>,
    /// Its children could not be created; it is not tried again for a while.
    pub hold: Option<Hold>,
    /// A fingerprint of the last thing the user was told about children that could not be created, and when.
    pub told: Option<(u64, Instant)>,
    /// A fingerprint of the last failure of a write that was logged.
    pub warned: Option<u64>,
    /// When it was last looked whether what is in its way still is.
    pub probed: Option<Instant>,
    /// What is known of the Secret by which its pods know each other. That it is there holds for one reconcile.
    pub secret: SecretState,
    /// When it was last looked for.
    pub sought: Option<Instant>,
    /// For how many pods it has the right to start programs through the API server, if that was given, or seen.
    pub granted: Option<i32>,
    /// Whether it was made sure that it still is. That holds for one reconcile.
    pub grant_is_sure: bool,
    /// It has been deleted by us.
    pub deleted: bool,
    /// The generation for which it was reported as malformed.
    pub reported: Option<i64>,
}

impl Memory {
    /// Forgets that objects are there that are not watched.
    pub fn doubt(&mut self) {
        if matches!(self.secret, SecretState::There(_)) {
            self.secret = SecretState::Unknown;
        }
        self.grant_is_sure = false;
    }

    /// Forgets what is known of objects that are not watched.
    pub fn forget_unwatched(&mut self) {
        (self.secret, self.sought) = (SecretState::Unknown, None);
        (self.granted, self.grant_is_sure) = (None, false);
    }
}

/// A pause in creating children.
#[derive(Clone, Copy, Debug)]
pub struct Hold {
    /// Until when.
    pub until: Instant,
    /// How often in a row children could not be created.
    pub failures: u32,
    /// The generation of the job: a change of the spec ends the pause.
    pub generation: Option<i64>,
    /// The kind of the child that was not taken: that others are says nothing about it.
    pub kind: Option<&'static str>,
}
