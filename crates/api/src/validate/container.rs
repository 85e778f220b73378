//! The rules for one container.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::{Container, ContainerPort, EnvVar};

use super::at::At;
use super::{FieldError, object_name_problem, resources};

/// The rules for a container in a pod with these volumes.
pub(super) fn check(
    at: &At<'_>,
    container: &Container,
    volumes: &BTreeSet<&str>,
    errors: &mut Vec<FieldError>,
) {
    if container.name.is_empty() {
        errors.push(at.field("name").error("the container has no name: give it one"));
    } else if let Some(problem) = object_name_problem(&container.name) {
        errors.push(at.field("name").error(format!("the container's name {problem}")));
    }
    let image = container.image.as_deref().unwrap_or_default();
    if image.is_empty() {
        errors.push(
            at.field("image")
                .error("the container has no image: name the one to run"),
        );
    } else if image != image.trim() {
        errors.push(
            at.field("image")
                .error(format!("{image:?} has blanks at an end: remove them")),
        );
    }
    let words: [(_, _, &[&str]); 2] = [
        (
            "imagePullPolicy",
            &container.image_pull_policy,
            &["Always", "IfNotPresent", "Never"],
        ),
        (
            "terminationMessagePolicy",
            &container.termination_message_policy,
            &["File", "FallbackToLogsOnError"],
        ),
    ];
    for (field, word, allowed) in words {
        if let Some(word) = word {
            one_of(&at.field(field), word, allowed, errors);
        }
    }
    if let Some(resources) = &container.resources {
        resources::check(&at.field("resources"), resources, errors);
    }
    env(&at.field("env"), container, errors);
    mounts(at, container, volumes, errors);
    let ports = at.field("ports");
    let mut names = BTreeSet::new();
    for (i, port) in container.ports.iter().flatten().enumerate() {
        let at = ports.index(i);
        self::port(&at, port, errors);
        if let Some(name) = port.name.as_deref()
            && !names.insert(name)
        {
            errors.push(at.field("name").error(format!(
                "there is a port {name:?} already: give each its own name"
            )));
        }
    }
}

/// The rule for the ports of containers that run together: they have one network. `taken` are those
/// of the containers before.
pub(super) fn shared_ports<'a>(
    at: &At<'_>,
    container: &'a Container,
    taken: &mut BTreeMap<(i32, &'a str), &'a str>,
    errors: &mut Vec<FieldError>,
) {
    let key = |port: &'a ContainerPort| {
        let protocol = port.protocol.as_deref().filter(|protocol| !protocol.is_empty());
        (port.container_port, protocol.unwrap_or("TCP"))
    };
    let ports = at.field("ports");
    for (i, port) in container.ports.iter().flatten().enumerate() {
        if let Some(owner) = taken.get(&key(port)) {
            errors.push(ports.index(i).field("containerPort").error(format!(
                "{} is a port of the container {owner:?} already, and the containers of a pod share one network: give \
                 another number",
                port.container_port
            )));
        }
    }
    for port in container.ports.iter().flatten() {
        taken.entry(key(port)).or_insert(&container.name);
    }
}

/// The rule for restarts in place, of which the operator would know nothing: it takes the end of a
/// container for the end of its pod.
pub(super) fn restarts(
    role: &At<'_>,
    at: &At<'_>,
    container: &Container,
    init: bool,
    errors: &mut Vec<FieldError>,
) {
    if let Some(policy) = &container.restart_policy {
        if !init {
            let message = format!(
                "pods are replaced, not restarted in place: remove this and set {role}.restartPolicy"
            );
            errors.push(at.field("restartPolicy").error(message));
        } else if policy != "Always" {
            let message = format!("{policy:?} is not possible: give Always, for a sidecar, or leave it out");
            errors.push(at.field("restartPolicy").error(message));
        }
    }
    if container.restart_policy_rules.is_some() {
        let message =
            format!("pods are replaced, not restarted in place: remove this and see {role}.restartPolicy");
        errors.push(at.field("restartPolicyRules").error(message));
    }
}

pub(super) fn one_of(at: &At<'_>, word: &str, allowed: &[&str], errors: &mut Vec<FieldError>) {
    if !allowed.contains(&word) {
        errors.push(at.error(format!(
            "{word:?} is not possible: give one of {}",
            allowed.join(", ")
        )));
    }
}

fn env(at: &At<'_>, container: &Container, errors: &mut Vec<FieldError>) {
    for (i, variable) in container.env.iter().flatten().enumerate() {
        let printable = |b: u8| (b' '..=b'~').contains(&b) && b != b'=';
        if variable.name.is_empty() {
            errors.push(
                at.index(i)
                    .field("name")
                    .error("the variable has no name: give it one"),
            );
        } else if !variable.name.bytes().all(printable) {
            errors.push(at.index(i).field("name").error(format!(
                "{:?} is no name of a variable: use printable ASCII characters without '='",
                variable.name
            )));
        }
        if variable.value.as_ref().is_some_and(|value| value.contains('\0')) {
            errors.push(
                at.index(i)
                    .field("value")
                    .error("has the character NUL, which no variable can have: remove it"),
            );
        }
        source(&at.index(i).field("valueFrom"), variable, errors);
    }
}

/// The rules for where the value of a variable comes from.
fn source(at: &At<'_>, variable: &EnvVar, errors: &mut Vec<FieldError>) {
    let Some(from) = &variable.value_from else {
        return;
    };
    let sources = [
        from.config_map_key_ref.is_some(),
        from.field_ref.is_some(),
        from.file_key_ref.is_some(),
        from.resource_field_ref.is_some(),
        from.secret_key_ref.is_some(),
    ];
    let problem = match sources.into_iter().filter(|given| *given).count() {
        _ if variable.value.as_ref().is_some_and(|value| !value.is_empty()) => {
            "may not be specified when `value` is not empty: remove one of the two"
        }
        0 => {
            "must specify one of fieldRef, resourceFieldRef, configMapKeyRef, secretKeyRef or fileKeyRef: say where the value is, \
             or remove it"
        }
        1 => return,
        _ => "may not have more than one field specified at a time: keep one of them",
    };
    errors.push(at.error(problem));
}

fn mounts(at: &At<'_>, container: &Container, volumes: &BTreeSet<&str>, errors: &mut Vec<FieldError>) {
    let absent = |name: &str| {
        (!volumes.contains(name)).then(|| {
            format!("there is no volume {name:?} in the template's volumes: add it there, or name one that is there")
        })
    };
    let mounts = at.field("volumeMounts");
    let mut paths = BTreeSet::new();
    for (i, mount) in container.volume_mounts.iter().flatten().enumerate() {
        let at = mounts.index(i);
        errors.extend(absent(&mount.name).map(|problem| at.field("name").error(problem)));
        let path = mount.mount_path.as_str();
        if path.is_empty() {
            errors.push(
                at.field("mountPath")
                    .error("say where in the container the volume is to appear"),
            );
        } else if !paths.insert(path) {
            errors.push(at.field("mountPath").error(format!(
                "there is a volume at {path:?} already: mount each in its own place"
            )));
        } else if path.contains(':') {
            errors.push(at.field("mountPath").error(format!(
                "{path:?} must not contain ':': mount the volume somewhere else"
            )));
        }
    }
    let devices = at.field("volumeDevices");
    for (i, device) in container.volume_devices.iter().flatten().enumerate() {
        errors.extend(absent(&device.name).map(|problem| devices.index(i).field("name").error(problem)));
    }
}

fn port(at: &At<'_>, port: &ContainerPort, errors: &mut Vec<FieldError>) {
    let numbers = [
        ("containerPort", Some(port.container_port)),
        ("hostPort", port.host_port),
    ];
    for (field, number) in numbers {
        if let Some(number) = number.filter(|number| !(1..=65535).contains(number)) {
            errors.push(
                at.field(field)
                    .error(format!("{number} is no port: give a number from 1 to 65535")),
            );
        }
    }
    if let Some(protocol) = &port.protocol {
        one_of(&at.field("protocol"), protocol, &["TCP", "UDP", "SCTP"], errors);
    }
    if let Some(name) = port.name.as_deref()
        && !is_port_name(name)
    {
        errors.push(at.field("name").error(format!(
            "{name:?} is no name of a port: use at most 15 lower-case letters, digits and single '-', with a letter \
             among them"
        )));
    }
}

fn is_port_name(name: &str) -> bool {
    name.len() <= 15
        && object_name_problem(name).is_none()
        && !name.contains("--")
        && name.contains(|c: char| c.is_ascii_lowercase())
}
