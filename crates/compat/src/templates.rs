//! Pod templates of other operators.

use k8s_openapi::api::core::v1::PodTemplateSpec;
use trainyard_api::{FieldError, RestartPolicy};

/// What is wrong with an object that does not have a field that it needs.
pub fn missing(path: &str) -> FieldError {
    FieldError::new(path, "is missing: it must be given")
}

/// The template at a path, without what the operator sets by itself. `None` if it is missing, which
/// is an error.
pub fn given(
    template: Option<PodTemplateSpec>,
    at: &str,
    notes: &mut Vec<String>,
    errors: &mut Vec<FieldError>,
) -> Option<PodTemplateSpec> {
    let Some(mut template) = template else {
        errors.push(missing(at));
        return None;
    };
    strip(&mut template, at, notes);
    Some(template)
}

/// Removes from a template what the operator sets by itself.
pub fn strip(template: &mut PodTemplateSpec, at: &str, notes: &mut Vec<String>) {
    let Some(pod) = &mut template.spec else { return };
    let own = [
        ("hostname", &mut pod.hostname, "pods are named by the operator"),
        ("subdomain", &mut pod.subdomain, "pods are named by the operator"),
        (
            "restartPolicy",
            &mut pod.restart_policy,
            "the restartPolicy of the role decides",
        ),
    ];
    for (field, value, why) in own {
        if value.take().is_some() {
            notes.push(format!("{at}.spec.{field}: {why}; left out"));
        }
    }
}

/// The restart policy of a role whose operator made plain pods, for which the kubelet reads the
/// policy in the template.
pub fn restart_policy(
    template: &mut PodTemplateSpec,
    at: &str,
    notes: &mut Vec<String>,
) -> Result<RestartPolicy, FieldError> {
    let given = template.spec.as_mut().and_then(|pod| pod.restart_policy.take());
    match given.as_deref() {
        Some("Never") => Ok(RestartPolicy::Never),
        Some("OnFailure") => Ok(RestartPolicy::OnFailure),
        // Of a plain pod, Always is the default: a launcher that has succeeded would begin again.
        None | Some("Always") => {
            notes.push(format!(
                "{at}.spec.restartPolicy: OnFailure and not Always, so that the job can succeed"
            ));
            Ok(RestartPolicy::OnFailure)
        }
        Some(other) => Err(FieldError::new(
            format!("{at}.spec.restartPolicy"),
            format!("{other:?} is not possible: give one of Never, OnFailure, Always"),
        )),
    }
}
