//! Variables that list pods, and how long they may get.

use trainyard_api::{FieldError, RoleSpec, TrainingJob};

use crate::dialect;

/// The longest value of a variable: Linux starts no program with a longer one.
pub(super) const MAX_VARIABLE: usize = 131_071;

/// How long the list of a role's addresses gets, each as
/// `"<job>-<role>-<index>.<service>.<namespace>.svc.<domain>:<port>",` with a usual domain.
pub(super) fn size(job: &TrainingJob, role: &RoleSpec) -> usize {
    let (name, namespace) = (job.metadata.name.as_deref(), job.metadata.namespace.as_deref());
    let (name, namespace) = (name.unwrap_or_default(), namespace.unwrap_or_default());
    let service = dialect::service(dialect::of(job), name, &role.name);
    let address = name.len() + role.name.len() + service.len() + namespace.len() + 40;
    let pods = usize::try_from(job.spec.most_replicas(role)).unwrap_or(0);
    pods.saturating_mul(address)
}

/// What is wrong with a job that has a variable of this length.
pub(super) fn check(variable: &str, size: usize, advice: &str) -> Option<FieldError> {
    (size > MAX_VARIABLE).then(|| {
        FieldError::new(
            "spec.roles",
            format!(
                "{variable} would have some {size} characters, and Linux starts no program with a variable of more than \
                 {MAX_VARIABLE}: {advice}"
            ),
        )
    })
}
