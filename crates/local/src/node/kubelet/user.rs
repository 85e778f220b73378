//! The user of a container.

use k8s_openapi::api::core::v1::{Container, Pod, PodSecurityContext};

use crate::node::runtime::User;

fn of_pod(pod: &Pod) -> Option<&PodSecurityContext> {
    pod.spec.as_ref()?.security_context.as_ref()
}

/// The user of a container whose image has a user of its own, or none.
pub fn of(pod: &Pod, spec: &Container, of_image: Option<u32>) -> User {
    let of_pod = of_pod(pod);
    let own = spec.security_context.as_ref();
    let number = |id: i64| u32::try_from(id).ok();
    let capabilities = own.and_then(|own| own.capabilities.as_ref());
    let user = own
        .and_then(|own| own.run_as_user)
        .or(of_pod.and_then(|pod| pod.run_as_user))
        .and_then(number);
    let group = own
        .and_then(|own| own.run_as_group)
        .or(of_pod.and_then(|pod| pod.run_as_group))
        .and_then(number);
    User {
        uid: user.or(of_image),
        // A user whom the pod names does not have the group of the image's user.
        gid: group.or(of_image.filter(|_| user.is_none())),
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
pub fn forbidden(pod: &Pod, spec: &Container, of_image: Option<u32>) -> Option<&'static str> {
    forbidden_to(of_image.unwrap_or_else(machine_user), pod, spec)
}

fn forbidden_to(default: u32, pod: &Pod, spec: &Container) -> Option<&'static str> {
    let own = spec.security_context.as_ref();
    let non_root = own
        .and_then(|own| own.run_as_non_root)
        .or(of_pod(pod).and_then(|pod| pod.run_as_non_root));
    if non_root != Some(true) {
        return None;
    }
    match of(pod, spec, None).uid {
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

    #[rstest]
    #[case(json!({}), None, (None, None))]
    #[case(json!({}), Some(7), (Some(7), Some(7)))]
    #[case(json!({"runAsUser": 5}), Some(7), (Some(5), None))]
    #[case(json!({"runAsGroup": 6}), Some(7), (Some(7), Some(6)))]
    fn a_pod_that_names_no_user_has_that_of_its_image(
        #[case] context: serde_json::Value,
        #[case] of_image: Option<u32>,
        #[case] wanted: (Option<u32>, Option<u32>),
    ) {
        let pod = json!({"spec": {"containers": [], "securityContext": context}});
        let pod: Pod = serde_json::from_value(pod).unwrap();
        let user = of(&pod, &Container::default(), of_image);
        assert_eq!((user.uid, user.gid), wanted);
    }
}
