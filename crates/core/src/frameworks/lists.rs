//! Variables that list pods, and how long they may get.

use trainyard_api::{FieldError, RoleSpec, TrainingJob};

/// The longest value of a variable: Linux starts no program with a longer one.
pub(super) const MAX_VARIABLE: usize = 131_071;

/// How long the list of a role's addresses gets, each as
/// `"<job>-<role>-<index>.<job>.<namespace>.svc.<domain>:<port>",` with a usual domain.
pub(super) fn size(job: &TrainingJob, role: &RoleSpec) -> usize {
    let length = |text: Option<&String>| text.map_or(0, String::len);
    let (name, namespace) = (
        length(job.metadata.name.as_ref()),
        length(job.metadata.namespace.as_ref()),
    );
    let address = 2 * name + namespace + role.name.len() + 40;
    let pods = usize::try_from(role.replicas.unwrap_or(1)).unwrap_or(0);
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
