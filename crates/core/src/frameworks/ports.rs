//! Ports of frameworks: what users may say about them.

use k8s_openapi::api::core::v1::Container;
use trainyard_api::FieldError;

/// The number of the container's port of a name.
pub(super) fn named(container: &Container, name: &str) -> Option<i32> {
    let mut ports = container.ports.iter().flatten();
    let port = ports.find(|port| port.name.as_deref() == Some(name));
    port.map(|port| port.container_port)
}

/// What is wrong with a port that the user gave.
pub(super) fn check(path: &str, port: Option<i32>) -> Option<FieldError> {
    let port = port.filter(|port| !(1..=65535).contains(port))?;
    Some(FieldError::new(
        path,
        format!("{port} is no port: give a number from 1 to 65535, or leave it out"),
    ))
}
