//! Defaults and validation as admission sees them: the rules of every job, and those of its framework.

use trainyard_api::{FieldError, TrainingJob};

/// Writes into the job what the user left out. Idempotent.
pub fn default(job: &mut TrainingJob) {
    trainyard_api::default(&mut job.spec);
}

/// All that is wrong with a job, and with the way it was changed where `old` is given.
///
/// Defaults are assumed where the job leaves something out, so that it can be called before or after [`default`].
pub fn validate(old: Option<&TrainingJob>, new: &TrainingJob) -> Vec<FieldError> {
    trainyard_api::validate(old, new)
}
