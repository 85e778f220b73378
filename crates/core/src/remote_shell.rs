//! What a pod has more because programs are started in it, or from it, by other pods: the agent
//! itself, lists of hosts, and the credentials by which both sides know each other.

use k8s_openapi::api::core::v1::{
    Container, EmptyDirVolumeSource, KeyToPath, PodSpec, Probe, SecretVolumeSource, TCPSocketAction, Volume,
    VolumeMount,
};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use trainyard_api::{HostFile, HostFileFormat};
use trainyard_contract::directories::mpi::paths;
use trainyard_contract::host_list::{self, Format};
use trainyard_contract::installation::{Installation, ListFile};
use trainyard_contract::{environment, modes, shell};

pub use trainyard_contract::directories::identity::DIRECTORY as IDENTITY;
pub use trainyard_contract::directories::mpi::DIRECTORY;
pub use trainyard_contract::directories::mpi::paths::{HOST_FILE, PROGRAM, SHELL};

use crate::agent;
use crate::container::{add_port, variable};
use crate::job::{Credentials, RemoteShell};
use crate::job::{Job, Role};
use crate::model::Identity;
use crate::view::{Agent, ObserverEndpoint, Settings};

/// The container that puts the agent and the lists of hosts into the pod.
pub const INSTALL_CONTAINER: &str = "trainyard-install";
/// The container that keeps the lists of hosts current.
pub const HOSTS_CONTAINER: &str = "trainyard-hosts";
/// Where SSH looks for keys of root.
pub const ROOT_SSH: &str = "/root/.ssh";
/// The port on which programs are started from elsewhere, as Kubernetes has ports.
pub const PORT: i32 = shell::PORT as i32;

/// Names in [`DIRECTORY`] by which the agent may be called. It takes no host files of these names,
/// whether it is or not.
pub(crate) const OTHER_NAMES: [&str; 2] = [paths::PDSH, paths::SSH];

/// These belong to the agent; `trainyard_api::validate` keeps users from names that begin like
/// this.
const VOLUME: &str = "trainyard-mpi";
const IDENTITY_VOLUME: &str = "trainyard-identity";
const PORT_NAME: &str = "trainyard-mpi";

/// What is in the Secret of an SSH key, and what SSH wants it to be called. One name will do for
/// any kind of key.
const SSH_FILES: [(&str, &str); 3] = [
    ("ssh-privatekey", "id_rsa"),
    ("ssh-publickey", "id_rsa.pub"),
    ("ssh-publickey", "authorized_keys"),
];

/// The name of a file: all after the last `/`.
pub(crate) fn name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or_default()
}

/// The directory of a file: all before the last `/`.
pub(crate) fn directory(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(directory, _)| directory)
}

/// Gives the main container the credentials by which it knows other pods.
pub(crate) fn identify(job: &Job<'_>, role: &Role<'_>, credentials: &Credentials, spec: &mut PodSpec) {
    let mut source = SecretVolumeSource {
        secret_name: Some(credentials.secret_name(job.name)),
        // Programs run as any user.
        default_mode: Some(0o444),
        ..SecretVolumeSource::default()
    };
    if credentials.identity == Identity::SshKey {
        source.items = Some(SSH_FILES.map(ssh_file).into());
        if credentials.directory == ROOT_SSH {
            // SSH takes a key that others can read only if it is not its user's own.
            source.default_mode = Some(0o600);
        }
    }
    spec.volumes.get_or_insert_default().push(Volume {
        name: IDENTITY_VOLUME.to_owned(),
        secret: Some(source),
        ..Volume::default()
    });
    let Some(main) = spec.containers.iter_mut().find(|c| c.name == role.main.name) else {
        return;
    };
    main.volume_mounts.get_or_insert_default().push(VolumeMount {
        name: IDENTITY_VOLUME.to_owned(),
        mount_path: credentials.directory.clone(),
        read_only: Some(true),
        ..VolumeMount::default()
    });
    if credentials.identity == Identity::Certificate {
        let env = [
            (environment::SHELL_PORT, &*PORT.to_string()),
            (environment::IDENTITY, &*credentials.directory),
        ];
        let own = main.env.get_or_insert_default();
        own.splice(0..0, env.map(variable));
        if let Some(attempt) = job.common_attempt().filter(|attempt| *attempt > 0) {
            own.insert(0, variable((environment::SHELL_ATTEMPT, &*attempt.to_string())));
        }
    }
}

fn ssh_file((key, path): (&str, &str)) -> KeyToPath {
    KeyToPath {
        key: key.to_owned(),
        path: path.to_owned(),
        mode: None,
    }
}

/// The container that prepares the pod for programs from elsewhere, or for starting them there. All
/// else that this takes is added to the pod.
pub(crate) fn add(role: &Role<'_>, agent: &Agent, shell: &RemoteShell, spec: &mut PodSpec) -> Container {
    let directories = directories(&shell.files);
    for container in spec
        .init_containers
        .iter_mut()
        .flatten()
        .chain(&mut spec.containers)
    {
        let mounts = container.volume_mounts.get_or_insert_default();
        mounts.push(mount(DIRECTORY, None));
        mounts.extend(directories.iter().enumerate().map(|(n, directory)| {
            let within = format!("files/{n}");
            mount(directory, Some(within))
        }));
        mounts.extend(
            shell
                .programs
                .iter()
                .map(|path| mount(path, Some(name(path).to_owned()))),
        );
    }
    let main = spec.containers.iter_mut().find(|c| c.name == role.main.name);
    if let Some(main) = main.filter(|_| shell.serves) {
        serve(main);
    }
    spec.volumes.get_or_insert_default().push(Volume {
        name: VOLUME.to_owned(),
        empty_dir: Some(EmptyDirVolumeSource::default()),
        ..Volume::default()
    });
    install(agent, shell, spec)
}

/// The directories of files that are not where the agent is, each once.
fn directories(files: &[HostFile]) -> Vec<&str> {
    let mut directories = Vec::new();
    for file in files {
        let directory = directory(&file.path);
        if directory != DIRECTORY && !directories.contains(&directory) {
            directories.push(directory);
        }
    }
    directories
}

fn mount(path: &str, within: Option<String>) -> VolumeMount {
    VolumeMount {
        name: VOLUME.to_owned(),
        mount_path: path.to_owned(),
        read_only: Some(true),
        sub_path: within,
        ..VolumeMount::default()
    }
}

/// Lets other pods start programs in a container.
fn serve(main: &mut Container) {
    let given = main.command.take().filter(|command| !command.is_empty());
    let ours: &[&str] = match given {
        Some(_) => &[PROGRAM, modes::RUN, modes::RUN_SERVE, "--"],
        None => &[PROGRAM, modes::SERVE],
    };
    let ours = ours.iter().map(|word| (*word).to_owned());
    main.command = Some(ours.chain(given.into_iter().flatten()).collect());
    add_port(main, PORT_NAME, PORT);
    main.readiness_probe.get_or_insert_with(|| Probe {
        tcp_socket: Some(TCPSocketAction {
            port: IntOrString::Int(PORT),
            host: None,
        }),
        period_seconds: Some(1),
        failure_threshold: Some(3),
        ..Probe::default()
    });
}

/// Has the remote shell in a main container say nothing when the pod is to leave, for the programs
/// that are started in it.
pub(crate) fn drain_silently(role: &Role<'_>, spec: &mut PodSpec) {
    if let Some(main) = spec.containers.iter_mut().find(|c| c.name == role.main.name) {
        let env = main.env.get_or_insert_default();
        env.push(variable((environment::DRAIN_SILENTLY, "true")));
    }
}

fn install(agent: &Agent, shell: &RemoteShell, spec: &PodSpec) -> Container {
    let env = [(environment::INSTALL, &*lists(shell))];
    agent::container(agent, INSTALL_CONTAINER, modes::INSTALL, &env, writable(), spec)
}

/// The container that keeps the lists of hosts current, as long as the others run.
pub(crate) fn follow(
    job: &Job<'_>,
    agent_and_observer: (&Agent, &ObserverEndpoint),
    shell: &RemoteShell,
    spec: &mut PodSpec,
) -> Container {
    let env = [(environment::HOSTS, &*lists(shell))];
    agent::sidecar(
        job,
        agent_and_observer,
        HOSTS_CONTAINER,
        modes::HOSTS,
        &env,
        writable(),
        spec,
    )
}

fn writable() -> VolumeMount {
    VolumeMount {
        read_only: None,
        ..mount(DIRECTORY, None)
    }
}

/// The list of hosts that a job's launcher finds in [`HOST_FILE`] when it starts, if it has one.
pub fn host_list(job: &Job<'_>, settings: &Settings) -> Option<String> {
    let (shell, format) = job.keys().find_map(|key| {
        let shell = job.framework.remote_shell(job, settings, key)?;
        let file = shell.files.iter().find(|file| file.path == HOST_FILE)?;
        let format = format(file.format);
        Some((shell, format))
    })?;
    Some(host_list::list(&host_list::all(&shell.hosts), format))
}

fn format(format: HostFileFormat) -> Format {
    match format {
        HostFileFormat::OpenMPI => Format::OpenMPI,
        HostFileFormat::MPICH => Format::MPICH,
        HostFileFormat::Intel => Format::Intel,
        HostFileFormat::DeepSpeed => Format::DeepSpeed,
        HostFileFormat::Hosts => Format::Hosts,
    }
}

/// What the agent is to list where.
fn lists(shell: &RemoteShell) -> String {
    let directories = directories(&shell.files);
    let file = |file: &HostFile| ListFile {
        format: format(file.format),
        path: inside(&file.path, &directories),
    };
    let programs = shell.programs.iter();
    Installation {
        directory: DIRECTORY.to_owned(),
        hosts: shell.hosts.clone(),
        files: shell.files.iter().map(file).collect(),
        programs: programs.map(|path| name(path).to_owned()).collect(),
    }
    .write()
}

/// Where the agent writes a file, all of whose places are within its own directory.
fn inside(path: &str, directories: &[&str]) -> String {
    match directories.iter().position(|other| *other == directory(path)) {
        Some(n) => format!("{}/{n}/{}", paths::FILES, name(path)),
        None => path.to_owned(),
    }
}
