//! Whether what was decided is still to be done.

use trainyard_api::TrainingJob;
use trainyard_core::model::Action;

use super::{Failure, Target, Writer};

impl Writer {
    /// Checks that an action is still to be carried out. It is asked before each of what may be thousands of creations, and so
    /// looks at nothing but the job itself.
    pub(super) fn check(
        &self,
        target: Target<'_>,
        decided_for: &TrainingJob,
        action: &Action,
    ) -> Result<(), Failure> {
        if target.term.is_cancelled() || !self.leadership.may_write() {
            return Err(Failure::NotLeader);
        }
        // Other writes name the UID of what they are about, and do no harm to a job that has changed.
        if !action.creates() {
            return Ok(());
        }
        let known = self.index.job(target.key);
        match known.filter(|known| may_have_children(known, target.uid, decided_for)) {
            Some(_) => Ok(()),
            None => Err(Failure::Outdated),
        }
    }
}

/// Whether a job is the one that something was decided for, has the same spec, and may have children.
fn may_have_children(known: &TrainingJob, uid: &str, decided_for: &TrainingJob) -> bool {
    let metadata = &known.metadata;
    metadata.uid.as_deref() == Some(uid)
        && metadata.generation == decided_for.metadata.generation
        && metadata.deletion_timestamp.is_none()
        && !known.is_suspended()
}
