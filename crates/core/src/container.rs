//! What the operator adds to containers.

use k8s_openapi::api::core::v1::{Container, ContainerPort, EnvVar};

/// Adds environment variables. Ours come first, so that the user's can refer to them as `$(NAME)`.
/// A variable that the user has set wins.
pub(crate) fn add_env(container: &mut Container, ours: &[EnvVar]) {
    let theirs = container.env.take().unwrap_or_default();
    let set = |name: &str| theirs.iter().any(|var| var.name == name);
    let mut env: Vec<EnvVar> = ours.iter().filter(|var| !set(&var.name)).cloned().collect();
    env.extend(theirs);
    container.env = Some(env);
}

/// Adds a port, unless the user has declared that number.
pub(crate) fn add_port(main: &mut Container, name: &str, number: i32) {
    let ports = main.ports.get_or_insert_default();
    let tcp = |port: &ContainerPort| port.protocol.as_deref().unwrap_or("TCP") == "TCP";
    if !ports
        .iter()
        .any(|port| port.container_port == number && tcp(port))
    {
        // The user may have given the name to another port. A port needs no name.
        let free = !ports.iter().any(|port| port.name.as_deref() == Some(name));
        ports.push(ContainerPort {
            name: free.then(|| name.to_owned()),
            container_port: number,
            ..ContainerPort::default()
        });
    }
}

pub(crate) fn variable((name, value): (&str, &str)) -> EnvVar {
    EnvVar {
        name: name.to_owned(),
        // `$$` is a dollar sign. Nothing here is meant to be expanded.
        value: Some(value.replace('$', "$$")),
        value_from: None,
    }
}
