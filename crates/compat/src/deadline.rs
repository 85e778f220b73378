//! Deadlines that begin when the launcher is created, and not when the job is.
//!
//! The deadline of a TrainingJob begins with the job. So the child of such an object has none until
//! its launcher is there, and gets one then that ends when the object's does. When the launcher was
//! created is kept on the child: the object may get another deadline.

use jiff::Timestamp;
use serde_json::Value;
use trainyard_api::names::ANNOTATION_LAUNCHED;
use trainyard_api::{CreatePolicy, JobPhase, RolePhase, TrainingJob};

use crate::Kind;
use crate::mpi::LAUNCHER;

impl Kind {
    /// Removes the deadline of a new child whose launcher is created after its workers.
    pub(crate) fn postpone_deadline(&self, child: &mut TrainingJob) {
        if self.extras.launcher_deadline.is_some()
            && is_launched_late(child)
            && let Some(run) = &mut child.spec.run_policy
        {
            run.active_deadline_seconds = None;
        }
    }

    /// The child with a deadline, if it should get one now.
    pub(crate) fn with_deadline(
        &self,
        object: &Value,
        child: &TrainingJob,
        now: Timestamp,
    ) -> Option<TrainingJob> {
        // A deadline of a former version is kept.
        let has_one = launched_at(child).is_some() || deadline(child).is_some();
        if has_one || self.deadline_of(object).is_none() || !is_launched_late(child) || !is_launched(child) {
            return None;
        }
        let mut job = TrainingJob {
            status: None,
            ..child.clone()
        };
        let annotations = job.metadata.annotations.get_or_insert_default();
        annotations.insert(ANNOTATION_LAUNCHED.to_owned(), now.to_string());
        self.renew_deadline(object, child, &mut job);
        Some(job)
    }

    /// Gives a child that was made anew the deadline that it should have, if its launcher goes on.
    pub(crate) fn renew_deadline(&self, object: &Value, before: &TrainingJob, job: &mut TrainingJob) {
        let goes_on = !before.is_suspended() && !job.is_suspended() && is_launched_late(job);
        let start = before
            .status
            .as_ref()
            .and_then(|status| status.start_time.as_ref());
        let waited = match (start, launched_at(job)) {
            (Some(start), Some(launched)) if goes_on => {
                let waited = launched.duration_since(start.0);
                // Rounded up: too late is better than too early.
                waited.as_secs().max(0) + i64::from(waited.subsec_nanos() > 0)
            }
            // Of a former version, whose deadlines began with the job.
            (_, None) if goes_on && deadline(before).is_some() => 0,
            _ => {
                // A resumed job has another launcher.
                if let Some(annotations) = &mut job.metadata.annotations {
                    annotations.remove(ANNOTATION_LAUNCHED);
                }
                return;
            }
        };
        let deadline = self
            .deadline_of(object)
            .map(|seconds| seconds.saturating_add(waited));
        job.spec
            .run_policy
            .get_or_insert_default()
            .active_deadline_seconds = deadline;
    }

    /// The deadline that an object has.
    pub(crate) fn deadline_of(&self, object: &Value) -> Option<i64> {
        object.pointer(self.extras.launcher_deadline?)?.as_i64()
    }
}

/// The deadline that a child has.
fn deadline(child: &TrainingJob) -> Option<i64> {
    child.spec.run_policy.as_ref()?.active_deadline_seconds
}

/// When the launcher of a child was created, if its deadline began then.
pub fn launched_at(child: &TrainingJob) -> Option<Timestamp> {
    let annotations = child.metadata.annotations.as_ref()?;
    annotations.get(ANNOTATION_LAUNCHED)?.parse().ok()
}

/// Whether the launcher is created only when the workers are ready.
fn is_launched_late(child: &TrainingJob) -> bool {
    let mut roles = child.spec.roles.iter();
    roles.any(|role| role.name == LAUNCHER && role.create_policy == Some(CreatePolicy::WhenDependenciesMet))
}

/// Whether there is, or was, a launcher in this run of a child.
fn is_launched(child: &TrainingJob) -> bool {
    let Some(status) = child.status.as_ref().filter(|_| !child.is_suspended()) else {
        return false;
    };
    let runs = status.phase != Some(JobPhase::Suspended) && status.start_time.is_some();
    let mut roles = status.roles.iter();
    runs && roles.any(|role| role.name == LAUNCHER && role.phase != RolePhase::Pending)
}
