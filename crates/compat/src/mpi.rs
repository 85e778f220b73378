//! What launchers and workers of other MPI operators have in common.

use k8s_openapi::api::core::v1::{Container, PodTemplateSpec};

pub const LAUNCHER: &str = "launcher";
pub const WORKER: &str = "worker";

const SSH_SERVER: &str = "sshd";

/// What a worker without a command runs elsewhere.
#[derive(Clone, Copy)]
pub enum Otherwise {
    /// An SSH server.
    SshServer,
    /// What its image says.
    Image,
}

/// Makes a worker one that is reached through the agent.
pub fn worker(template: &mut PodTemplateSpec, at: &str, otherwise: Otherwise, notes: &mut Vec<String>) {
    let pod = template.spec.as_mut();
    let Some(main) = pod.and_then(|pod| pod.containers.first_mut()) else {
        return;
    };
    let at = format!("{at}.spec.containers[0]");
    let first = words(main).next().map(str::to_owned);
    match (first, otherwise) {
        (None, Otherwise::SshServer) => {}
        (None, Otherwise::Image) => notes.push(format!(
            "{at}: has no command, and what its image would run does not run: the agent waits there alone for what mpirun \
             starts; if the worker needs its program, give it as command"
        )),
        (Some(first), _) if program(&first) == SSH_SERVER => {
            main.command = None;
            main.args = None;
            notes.push(format!(
                "{at}.command: the SSH server is not started; the agent takes its place"
            ));
        }
        (Some(_), _) => {
            if words(main).any(|word| word.contains(SSH_SERVER)) {
                notes.push(format!(
                    "{at}.command: runs as it is, beside the agent; if it does nothing but start an SSH server, remove it"
                ));
            }
            return;
        }
    }
    // They probe a program that does not run here, so the launcher would wait for ever.
    let probes = [
        ("livenessProbe", main.liveness_probe.take()),
        ("readinessProbe", main.readiness_probe.take()),
        ("startupProbe", main.startup_probe.take()),
    ];
    for (field, _) in probes.iter().filter(|(_, probe)| probe.is_some()) {
        notes.push(format!(
            "{at}.{field}: asks for a program that is not started; left out, and the worker is ready when the agent is"
        ));
    }
}

/// The words of a container's command line.
pub fn words(container: &Container) -> impl Iterator<Item = &str> {
    let lists = [&container.command, &container.args];
    lists.into_iter().flatten().flatten().map(String::as_str)
}

/// The name of a program without its directory.
fn program(path: &str) -> &str {
    path.rsplit_once('/').map_or(path, |(_, name)| name)
}
