//! Checks whether an action is still wanted when it is about to be sent.

use trainyard_api::TrainingJob;
use trainyard_core::model::Action;

use super::{RequestError, Result, Target, Writer};

impl Writer {
    /// Checks that an action is still to be carried out. This runs before each of what may be
    /// thousands of creates, so it looks at nothing but the job itself.
    pub(super) fn check(&self, target: Target<'_>, decided_for: &TrainingJob, action: &Action) -> Result<()> {
        if target.term.is_cancelled() || !self.leadership.may_write() {
            return Err(RequestError::NotLeader);
        }
        // Other writes name the UID of their object, and do no harm if the job has changed.
        if !action.creates() && *action != Action::CreateBudget {
            return Ok(());
        }
        let known = self.index.job(target.key);
        match known.filter(|known| may_have_children(known, target.uid, decided_for)) {
            Some(_) => Ok(()),
            None => Err(RequestError::Outdated),
        }
    }
}

/// Returns true if a job is the one that actions were decided for, has the same spec, and may have
/// children.
fn may_have_children(known: &TrainingJob, uid: &str, decided_for: &TrainingJob) -> bool {
    let metadata = &known.metadata;
    metadata.uid.as_deref() == Some(uid)
        && metadata.generation == decided_for.metadata.generation
        && metadata.deletion_timestamp.is_none()
        && !known.is_suspended()
}
