//! How often the pods of a role have started anew together, and which pods are of before.

use trainyard_api::TrainingJob;

use super::Role;

/// How often the pods of a role have started anew together.
pub(crate) fn attempt_of(object: &TrainingJob, role: &str) -> i32 {
    let restarts = object.status.as_ref().and_then(|status| status.restarts.as_ref());
    let mut attempts = restarts.into_iter().flat_map(|restarts| &restarts.attempts);
    attempts
        .find(|known| known.role == role)
        .map_or(0, |known| known.attempt)
}

impl Role<'_> {
    /// Returns true if an attempt, of one of its pods, is not the last.
    pub(crate) fn is_former(&self, attempt: i32) -> bool {
        attempt < self.attempt
    }
}
