//! One job in the index, with its children.

use std::sync::Arc;

use tokio::time::Instant;
use trainyard_api::{JobPhase, Progress, TrainingJob};
use trainyard_core::local_state::LocalState;
use trainyard_core::view::{BudgetRow, Conflict, PodRow, Refusal, ServiceRow};

use super::rows::Rows;
use super::{JobKey, Kind};
use crate::slim::{Malformed, Version};

pub(super) type Uid = Arc<str>;

/// The key for children whose job is not known. Anybody may write any UID into their pods. Until
/// the job is known, and with it its namespace, nobody can tell which children are really its own.
pub(super) fn unknown_job_key(namespace: &str, uid: &str) -> String {
    format!("{namespace}/{uid}")
}

/// A job and its children, stored under its UID; or the children of an unknown job, stored under
/// their namespace and that UID.
#[derive(Debug)]
pub(super) struct Owner {
    pub(super) key: JobKey,
    pub(super) job: Option<JobEntry>,
    pub(super) pods: Rows<PodRow>,
    pub(super) services: Rows<ServiceRow>,
    pub(super) budgets: Rows<BudgetRow>,
    /// Pods that are deleted and had ended, until a status is written that was computed with them,
    /// or until other pods have their names.
    pub(super) departed: Vec<PodRow>,
    pub(super) conflicts: Vec<Conflict>,
    pub(super) refusal: Option<Arc<Refusal>>,
    pub(super) progress_report: Option<ProgressReport>,
}

/// The latest progress, and the pod that reported it.
#[derive(Debug)]
pub(super) struct ProgressReport {
    /// The role and index of the pod. Reports of a lower one win.
    pub(super) reporter: (usize, i32),
    /// Its name and UID.
    pub(super) pod: (Box<str>, Box<str>),
    /// When it was reported.
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
            budgets: Rows::default(),
            departed: Vec::new(),
            conflicts: Vec::new(),
            refusal: None,
            progress_report: None,
        }
    }

    /// Removes a child. Returns true if it was known.
    pub(super) fn remove(&mut self, kind: Kind, name: &str, uid: &str) -> bool {
        match kind {
            Kind::Pod => {
                let deleted = self.pods.remove(name, uid);
                self.keep_departed(deleted)
            }
            Kind::Budget => self.budgets.remove(name, uid).is_some(),
            _ => self.services.remove(name, uid).is_some(),
        }
    }

    /// Removes a child that was deleted at a version, as the answer to our delete says.
    pub(super) fn tombstone(&mut self, kind: Kind, name: &str, uid: &str, version: Version) {
        match kind {
            Kind::Pod => {
                let deleted = self.pods.tombstone(name, uid, version);
                self.keep_departed(deleted);
            }
            Kind::Budget => {
                self.budgets.tombstone(name, uid, version);
            }
            _ => {
                self.services.tombstone(name, uid, version);
            }
        }
    }

    /// Removes the children that a list did not contain. Returns true if there were any.
    pub(super) fn sweep(&mut self, kind: Kind, epoch: u32, listed: Version) -> bool {
        match kind {
            Kind::Pod => {
                let deleted = self.pods.sweep(epoch, listed);
                self.keep_departed(deleted)
            }
            Kind::Budget => !self.budgets.sweep(epoch, listed).is_empty(),
            _ => !self.services.sweep(epoch, listed).is_empty(),
        }
    }

    /// Keeps those of the deleted pods that had ended: otherwise they would count as lost. Returns
    /// true if any pod was deleted.
    fn keep_departed(&mut self, deleted: impl IntoIterator<Item = PodRow>) -> bool {
        let mut any = false;
        for row in deleted {
            any = true;
            if row.has_ended() && self.job.is_some() && !self.pods.has(&row.name) {
                self.departed.retain(|known| known.name != row.name);
                self.departed.push(row);
            }
        }
        any
    }

    /// Adds or updates a pod, unless a newer version is known. Returns true if anything changed
    /// that decisions depend on.
    pub(super) fn put_pod(&mut self, row: PodRow, version: Version, epoch: u32) -> bool {
        if !self.departed.is_empty() {
            let replaced = |known: &PodRow| known.name == row.name && known.uid != row.uid;
            self.departed.retain(|known| !replaced(known));
        }
        if let Some(report) = &self.progress_report
            && *report.pod.0 == *row.name
            && *report.pod.1 != *row.uid
        {
            // The new pod has reported nothing.
            self.progress_report = None;
        }
        self.pods.put(row, version, epoch)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.job.is_none() && self.pods.is_empty() && self.services.is_empty() && self.budgets.is_empty()
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
