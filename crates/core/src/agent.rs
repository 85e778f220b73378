//! The containers in which the agent does something before all others start, and the one of them
//! that waits for roles.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{
    Capabilities, Container, DownwardAPIProjection, DownwardAPIVolumeFile, EmptyDirVolumeSource,
    ObjectFieldSelector, PodSpec, ProjectedVolumeSource, ResourceRequirements, SeccompProfile,
    SecurityContext, ServiceAccountTokenProjection, Volume, VolumeMount, VolumeProjection,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use trainyard_contract::directories::agent::{DIRECTORY, names};
use trainyard_contract::directories::{drain, progress};
use trainyard_contract::observer::AUDIENCE;
use trainyard_contract::{environment, modes};

use crate::container::variable;
use crate::job::{Job, Role};
use crate::view::{Agent, ObserverEndpoint};

/// The container that waits for other roles.
pub const WAIT_CONTAINER: &str = "trainyard-wait";

/// What belongs to the agent in a pod; `trainyard_api::validate` keeps users from names that begin
/// like this.
const VOLUME: &str = "trainyard-agent";
/// A kubelet replaces a token when a fifth of its life is left, and the agent reads it for every
/// connection.
const TOKEN_SECONDS: i64 = 3600;

/// Whether an agent in a pod of this role can find the operator: by a name, which takes the
/// cluster's DNS.
pub(crate) fn can_be_reached(pod: &PodSpec) -> bool {
    match pod.dns_policy.as_deref().unwrap_or("ClusterFirst") {
        "ClusterFirst" => pod.host_network != Some(true),
        policy => policy == "ClusterFirstWithHostNet",
    }
}

/// The container in which the agent waits for other roles, whose volume the pod is given.
pub(crate) fn add_wait(
    job: &Job<'_>,
    role: &Role<'_>,
    agent: &Agent,
    observer: &ObserverEndpoint,
    spec: &mut PodSpec,
) -> Container {
    let mount = token(spec);
    let mut env = whom_to_ask(job, observer).to_vec();
    env.push((environment::ROLE, role.name));
    container(agent, WAIT_CONTAINER, modes::WAIT, &env, mount, spec)
}

/// How an agent finds the operator, and what it asks about.
pub(crate) fn whom_to_ask<'a>(job: &Job<'a>, observer: &'a ObserverEndpoint) -> [(&'static str, &'a str); 4] {
    [
        (environment::OBSERVER, &*observer.address),
        (environment::AUTHORITY, &*observer.authority),
        (environment::NAMESPACE, job.namespace),
        (environment::JOB, job.name),
    ]
}

/// Gives a pod the volume with its token, once; where containers that ask find it.
pub(crate) fn token(spec: &mut PodSpec) -> VolumeMount {
    let volumes = spec.volumes.get_or_insert_default();
    if !volumes.iter().any(|volume| volume.name == VOLUME) {
        volumes.push(volume());
    }
    VolumeMount {
        name: VOLUME.to_owned(),
        mount_path: DIRECTORY.to_owned(),
        read_only: Some(true),
        ..VolumeMount::default()
    }
}

/// A container that runs one command of the agent beside the others, from before they start until
/// after they have ended, and is told of its job.
pub(crate) fn sidecar(
    job: &Job<'_>,
    (agent, observer): (&Agent, &ObserverEndpoint),
    name: &str,
    command: &str,
    env: &[(&str, &str)],
    mount: VolumeMount,
    spec: &mut PodSpec,
) -> Container {
    let token = token(spec);
    let mut all = whom_to_ask(job, observer).to_vec();
    all.extend(env);
    let mut container = container(agent, name, command, &all, mount, spec);
    container.volume_mounts.get_or_insert_default().push(token);
    container.restart_policy = Some("Always".to_owned());
    // These are needed besides what the others ask for.
    container.resources = Some(amounts("20m", "16Mi"));
    container
}

/// An init container that runs one command of the agent.
pub(crate) fn container(
    agent: &Agent,
    name: &str,
    command: &str,
    env: &[(&str, &str)],
    mount: VolumeMount,
    spec: &PodSpec,
) -> Container {
    let command = agent.command.iter().cloned().chain([command.to_owned()]);
    Container {
        name: name.to_owned(),
        image: Some(agent.image.clone()),
        image_pull_policy: agent.image_pull_policy.clone(),
        command: Some(command.collect()),
        env: Some(env.iter().copied().map(variable).collect()),
        volume_mounts: Some(vec![mount]),
        // These cost nothing: a pod needs the larger of what its init containers and its containers
        // ask for.
        resources: Some(amounts("100m", "32Mi")),
        security_context: Some(security(agent, spec)),
        termination_message_policy: Some("FallbackToLogsOnError".to_owned()),
        ..Container::default()
    }
}

/// The container that reports progress.
pub const PROGRESS_CONTAINER: &str = "trainyard-progress";
const PROGRESS_VOLUME: &str = "trainyard-progress";

/// The container that reports what the main one says of its progress, which finds a file for that.
pub(crate) fn add_progress(
    job: &Job<'_>,
    role: &Role<'_>,
    agent_and_observer: (&Agent, &ObserverEndpoint),
    spec: &mut PodSpec,
) -> Container {
    let mount = |read_only: Option<bool>| VolumeMount {
        name: PROGRESS_VOLUME.to_owned(),
        mount_path: progress::DIRECTORY.to_owned(),
        read_only,
        ..VolumeMount::default()
    };
    spec.volumes.get_or_insert_default().push(Volume {
        name: PROGRESS_VOLUME.to_owned(),
        empty_dir: Some(EmptyDirVolumeSource::default()),
        ..Volume::default()
    });
    if let Some(main) = spec.containers.iter_mut().find(|c| c.name == role.main.name) {
        main.volume_mounts.get_or_insert_default().push(mount(None));
        let env = main.env.get_or_insert_default();
        if !env.iter().any(|given| given.name == environment::PROGRESS) {
            env.insert(0, variable((environment::PROGRESS, progress::paths::LINES)));
        }
    }
    let env = [(environment::PROGRESS_FILE, progress::paths::LINES)];
    sidecar(
        job,
        agent_and_observer,
        PROGRESS_CONTAINER,
        modes::PROGRESS,
        &env,
        mount(Some(true)),
        spec,
    )
}

/// The container that tells the main one to leave.
pub const DRAIN_CONTAINER: &str = "trainyard-drain";
const DRAIN_VOLUME: &str = "trainyard-drain";

/// The container that tells the main one to leave when its role gets smaller, by a file.
pub(crate) fn add_drain(
    job: &Job<'_>,
    role: &Role<'_>,
    agent_and_observer: (&Agent, &ObserverEndpoint),
    spec: &mut PodSpec,
) -> Container {
    let mount = || VolumeMount {
        name: DRAIN_VOLUME.to_owned(),
        mount_path: drain::DIRECTORY.to_owned(),
        ..VolumeMount::default()
    };
    spec.volumes.get_or_insert_default().push(Volume {
        name: DRAIN_VOLUME.to_owned(),
        empty_dir: Some(EmptyDirVolumeSource::default()),
        ..Volume::default()
    });
    if let Some(main) = spec.containers.iter_mut().find(|c| c.name == role.main.name) {
        main.volume_mounts.get_or_insert_default().push(mount());
        let env = main.env.get_or_insert_default();
        env.insert(0, variable((environment::DRAIN, drain::DIRECTORY)));
    }
    let env = [(environment::DRAIN_DIRECTORY, drain::DIRECTORY)];
    sidecar(
        job,
        agent_and_observer,
        DRAIN_CONTAINER,
        modes::DRAIN,
        &env,
        mount(),
        spec,
    )
}

/// Limits and requests are the same, so that a pod that is `Guaranteed` stays so.
fn amounts(cpu: &str, memory: &str) -> ResourceRequirements {
    let amounts = [("cpu", cpu), ("memory", memory)];
    let amounts: BTreeMap<_, _> = amounts
        .into_iter()
        .map(|(name, amount)| (name.to_owned(), Quantity(amount.to_owned())))
        .collect();
    ResourceRequirements {
        limits: Some(amounts.clone()),
        requests: Some(amounts),
        ..ResourceRequirements::default()
    }
}

/// As the restricted profile wants it. Who it runs as is left to the pod: only then can it always
/// read its token.
fn security(agent: &Agent, spec: &PodSpec) -> SecurityContext {
    let of_pod = spec.security_context.as_ref();
    let is_root = agent.may_be_root || of_pod.and_then(|of_pod| of_pod.run_as_user) == Some(0);
    SecurityContext {
        allow_privilege_escalation: Some(false),
        capabilities: Some(Capabilities {
            drop: Some(vec!["ALL".to_owned()]),
            add: None,
        }),
        read_only_root_filesystem: Some(true),
        run_as_non_root: (!is_root).then_some(true),
        seccomp_profile: Some(SeccompProfile {
            type_: "RuntimeDefault".to_owned(),
            localhost_profile: None,
        }),
        ..SecurityContext::default()
    }
}

fn volume() -> Volume {
    let token = VolumeProjection {
        service_account_token: Some(ServiceAccountTokenProjection {
            audience: Some(AUDIENCE.to_owned()),
            expiration_seconds: Some(TOKEN_SECONDS),
            path: names::TOKEN.to_owned(),
        }),
        ..VolumeProjection::default()
    };
    let annotations = VolumeProjection {
        downward_api: Some(DownwardAPIProjection {
            items: Some(vec![DownwardAPIVolumeFile {
                path: names::ANNOTATIONS.to_owned(),
                field_ref: Some(ObjectFieldSelector {
                    field_path: "metadata.annotations".to_owned(),
                    api_version: None,
                }),
                ..DownwardAPIVolumeFile::default()
            }]),
        }),
        ..VolumeProjection::default()
    };
    Volume {
        name: VOLUME.to_owned(),
        projected: Some(ProjectedVolumeSource {
            sources: Some(vec![token, annotations]),
            default_mode: None,
        }),
        ..Volume::default()
    }
}
