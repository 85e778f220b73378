//! One job in the index.

use std::sync::Arc;

use tokio::time::Instant;
use trainyard_api::{JobPhase, TrainingJob};
use trainyard_core::view::{Conflict, PodRow, ServiceRow};

use super::JobKey;
use super::rows::Rows;
use crate::slim::{Malformed, Version};

pub(super) type Uid = Arc<str>;

/// Everything under one UID: a job, and what it owns. The one may be known without the other.
#[derive(Debug)]
pub(super) struct Owner {
    pub(super) key: JobKey,
    pub(super) job: Option<JobEntry>,
    pub(super) pods: Rows<PodRow>,
    pub(super) services: Rows<ServiceRow>,
    pub(super) conflicts: Vec<Conflict>,
}

impl Owner {
    pub(super) fn new(key: JobKey) -> Self {
        Self {
            key,
            job: None,
            pods: Rows::default(),
            services: Rows::default(),
            conflicts: Vec::new(),
        }
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
    /// Its children could not be created; it is not tried again for a while.
    pub hold: Option<Hold>,
    /// A fingerprint of the last thing the user was told about children that could not be created.
    pub told: Option<u64>,
    /// When it was last looked whether what is in its way still is.
    pub probed: Option<Instant>,
    /// It has been deleted by us.
    pub deleted: bool,
    /// The generation for which it was reported as malformed.
    pub reported: Option<i64>,
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
}
