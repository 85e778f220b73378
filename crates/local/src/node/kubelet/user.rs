//! The user of a container.

use k8s_openapi::api::core::v1::{Container, Pod, PodSecurityContext};

use crate::node::runtime::User;

fn of_pod(pod: &Pod) -> Option<&PodSecurityContext> {
    pod.spec.as_ref()?.security_context.as_ref()
}

pub fn of(pod: &Pod, spec: &Container) -> User {
    let of_pod = of_pod(pod);
    let own = spec.security_context.as_ref();
    let number = |id: i64| u32::try_from(id).ok();
    let capabilities = own.and_then(|own| own.capabilities.as_ref());
    User {
        uid: own
            .and_then(|own| own.run_as_user)
            .or(of_pod.and_then(|pod| pod.run_as_user))
            .and_then(number),
        gid: own
            .and_then(|own| own.run_as_group)
            .or(of_pod.and_then(|pod| pod.run_as_group))
            .and_then(number),
        groups: of_pod
            .iter()
            .flat_map(|pod| pod.supplemental_groups.iter().flatten().chain(&pod.fs_group))
            .filter_map(|group| number(*group))
            .collect(),
        dropped: capabilities
            .and_then(|capabilities| capabilities.drop.clone())
            .unwrap_or_default(),
    }
}

/// Why runAsNonRoot forbids a container, in the words of a kubelet.
pub fn forbidden(pod: &Pod, spec: &Container) -> Option<&'static str> {
    forbidden_to(machine_user(), pod, spec)
}

fn forbidden_to(default: u32, pod: &Pod, spec: &Container) -> Option<&'static str> {
    let own = spec.security_context.as_ref();
    let non_root = own
        .and_then(|own| own.run_as_non_root)
        .or(of_pod(pod).and_then(|pod| pod.run_as_non_root));
    if non_root != Some(true) {
        return None;
    }
    match of(pod, spec).uid {
        Some(0) => Some("container's runAsUser breaks non-root policy"),
        None if default == 0 => Some("container has runAsNonRoot and image will run as root"),
        _ => None,
    }
}

/// The user of this process outside of its user namespace.
fn machine_user() -> u32 {
    let map = std::fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    let fields: Vec<u32> = map
        .split_whitespace()
        .filter_map(|field| field.parse().ok())
        .collect();
    match fields[..] {
        [_, outside, 1] => outside,
        _ => nix::unistd::geteuid().as_raw(),
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    #[rstest]
    #[case(0, json!({}), None)]
    #[case(0, json!({"runAsNonRoot": true}), Some("container has runAsNonRoot and image will run as root"))]
    #[case(0, json!({"runAsNonRoot": true, "runAsUser": 5}), None)]
    #[case(0, json!({"runAsNonRoot": true, "runAsUser": 0}), Some("container's runAsUser breaks non-root policy"))]
    #[case(1000, json!({"runAsNonRoot": true}), None)]
    #[case(1000, json!({"runAsNonRoot": true, "runAsUser": 0}), Some("container's runAsUser breaks non-root policy"))]
    fn root_is_refused(
        #[case] default: u32,
        #[case] context: serde_json::Value,
        #[case] wanted: Option<&'static str>,
    ) {
        let pod = json!({"spec": {"containers": [], "securityContext": context}});
        let pod: Pod = serde_json::from_value(pod).unwrap();
        assert_eq!(forbidden_to(default, &pod, &Container::default()), wanted);
        let container = json!({"name": "main", "securityContext": context});
        let container: Container = serde_json::from_value(container).unwrap();
        assert_eq!(forbidden_to(default, &Pod::default(), &container), wanted);
    }
}
