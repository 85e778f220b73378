//! How often the pods of a role have started anew together, and which pods are of before.

use trainyard_api::{RestartPolicy, RestartScope, TrainingJob};

use super::{Job, Role};

/// How often the pods of a role have started anew together.
pub(crate) fn attempt_of(object: &TrainingJob, role: &str) -> i32 {
    let restarts = object.status.as_ref().and_then(|status| status.restarts.as_ref());
    let mut attempts = restarts.into_iter().flat_map(|restarts| &restarts.attempts);
    attempts
        .find(|known| known.role == role)
        .map_or(0, |known| known.attempt)
}

impl Job<'_> {
    /// A number that is the same for all pods of the job that may exist at the same time, and grows
    /// whenever they start anew together. `None` if some of them may start anew without the others.
    pub(crate) fn common_attempt(&self) -> Option<i32> {
        let starts_with_all = |role: &Role<'_>| {
            role.restart_scope != RestartScope::Role && role.restart_policy != RestartPolicy::Never
        };
        let attempts = self.roles.iter().map(|role| role.attempt);
        attempts.max().filter(|_| self.roles.iter().all(starts_with_all))
    }
}

impl Role<'_> {
    /// Returns true if an attempt, of one of its pods, is not the last.
    pub(crate) fn is_former(&self, attempt: i32) -> bool {
        attempt < self.attempt
    }
}
