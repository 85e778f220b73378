//! What a pod has more because programs are started in it, or from it, by other pods: the agent itself, lists of hosts, and
//! the credentials by which both sides know each other.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use k8s_openapi::api::core::v1::{
    Container, EmptyDirVolumeSource, KeyToPath, PodSpec, Probe, SecretVolumeSource, TCPSocketAction, Volume,
    VolumeMount,
};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use serde::Serialize;
use trainyard_api::{HostFile, HostFileFormat};

use crate::agent;
use crate::container::{add_port, variable};
use crate::job::{Credentials, Hosts, RemoteShell};
use crate::job::{Job, Role};
use crate::model::Identity;
use crate::view::{Agent, Observer, Settings};

/// The container that puts the agent and the lists of hosts into the pod.
pub const INSTALL_CONTAINER: &str = "trainyard-install";
/// The container that keeps the lists of hosts current.
pub const HOSTS_CONTAINER: &str = "trainyard-hosts";
/// Where they are put. horovodrun leaves out its own checks only for a shell in this very place.
pub const DIRECTORY: &str = "/etc/mpi";
/// What starts a program in another pod, as `ssh` would be called.
pub const SHELL: &str = "/etc/mpi/kubexec.sh";
/// The list of hosts that every job has.
pub const HOST_FILE: &str = "/etc/mpi/hostfile";
/// Where the credentials are.
pub const IDENTITY: &str = "/var/run/trainyard-identity";
/// Where SSH looks for keys of root.
pub const ROOT_SSH: &str = "/root/.ssh";
/// The port on which programs are started from elsewhere.
pub const PORT: i32 = 7522;

/// After how much silence of the other side a program that was started from elsewhere is given up: users may say so.
pub(crate) const IDLE_TIMEOUT_VARIABLE: &str = "TRAINYARD_SHELL_SILENCE_SECONDS";
/// What it may be, as the agent has it.
pub(crate) const IDLE_TIMEOUT_SECONDS: RangeInclusive<u64> = 2..=86_400;

/// What else is in [`DIRECTORY`].
pub(crate) const PROGRAM: &str = "/etc/mpi/trainyard-agent";
pub(crate) const FILES: &str = "/etc/mpi/files";
/// What prints the hosts that can be used now, and the list that it prints.
pub(crate) const DISCOVERY: &str = "/etc/mpi/discover_hosts.sh";
pub(crate) const USABLE: &str = "/etc/mpi/discover_hosts";

/// Names in [`DIRECTORY`] by which the agent may be called. It takes no host files of these names, whether it is or not.
pub(crate) const OTHER_NAMES: [&str; 2] = ["/etc/mpi/pdsh", "/etc/mpi/ssh"];
/// The agent makes a file under a name that ends like this, and then gives it its own.
pub(crate) const UNFINISHED: &str = ".trainyard-new";

/// These belong to the agent; `trainyard_api::validate` keeps users from names that begin like this.
const VOLUME: &str = "trainyard-mpi";
const IDENTITY_VOLUME: &str = "trainyard-identity";
const PORT_NAME: &str = "trainyard-mpi";

/// What is in the Secret of an SSH key, and what SSH wants it to be called. One name will do for any kind of key.
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
            ("TRAINYARD_SHELL_PORT", &*PORT.to_string()),
            ("TRAINYARD_IDENTITY", &*credentials.directory),
        ];
        main.env.get_or_insert_default().splice(0..0, env.map(variable));
    }
}

fn ssh_file((key, path): (&str, &str)) -> KeyToPath {
    KeyToPath {
        key: key.to_owned(),
        path: path.to_owned(),
        mode: None,
    }
}

/// The container that prepares the pod for programs from elsewhere, or for starting them there. All else that this takes is
/// added to the pod.
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
        Some(_) => &[PROGRAM, "run", "--serve", "--"],
        None => &[PROGRAM, "serve"],
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

/// What the agent is to put into its directory.
#[derive(Serialize)]
struct Install<'a> {
    directory: &'a str,
    hosts: &'a [Hosts],
    files: Vec<BTreeMap<&'a str, String>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    programs: Vec<&'a str>,
}

fn install(agent: &Agent, shell: &RemoteShell, spec: &PodSpec) -> Container {
    let env = [("TRAINYARD_INSTALL", &*lists(shell))];
    agent::container(agent, INSTALL_CONTAINER, "install", &env, writable(), spec)
}

/// The container that keeps the lists of hosts current, as long as the others run.
pub(crate) fn follow(
    job: &Job<'_>,
    told: (&Agent, &Observer),
    shell: &RemoteShell,
    spec: &mut PodSpec,
) -> Container {
    let env = [("TRAINYARD_HOSTS", &*lists(shell))];
    agent::beside(job, told, HOSTS_CONTAINER, "hosts", &env, writable(), spec)
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
        let format = file.format;
        Some((shell, format))
    })?;
    // As the agent writes it.
    let line = |some: &Hosts, index: i32| {
        let host = some.pattern.replace("{}", &index.to_string());
        match format {
            HostFileFormat::OpenMPI | HostFileFormat::DeepSpeed => format!("{host} slots={}\n", some.slots),
            HostFileFormat::MPICH | HostFileFormat::Intel => format!("{host}:{}\n", some.slots),
            HostFileFormat::Hosts => {
                format!("{host}\n").repeat(usize::try_from(some.slots).unwrap_or_default())
            }
        }
    };
    let hosts = shell.hosts.iter();
    let lines =
        hosts.flat_map(|some| (some.from..some.from + some.count).map(move |index| line(some, index)));
    Some(lines.collect())
}

/// What the agent is to list where.
fn lists(shell: &RemoteShell) -> String {
    let directories = directories(&shell.files);
    let file = |file: &HostFile| {
        BTreeMap::from([
            ("path", inside(&file.path, &directories)),
            ("format", file.format.as_str().to_owned()),
        ])
    };
    let install = Install {
        directory: DIRECTORY,
        hosts: &shell.hosts,
        files: shell.files.iter().map(file).collect(),
        programs: shell.programs.iter().map(|path| name(path)).collect(),
    };
    // Strings and numbers can always be written.
    serde_json::to_string(&install).unwrap_or_default()
}

/// Where the agent writes a file, all of whose places are within its own directory.
fn inside(path: &str, directories: &[&str]) -> String {
    match directories.iter().position(|other| *other == directory(path)) {
        Some(n) => format!("{FILES}/{n}/{}", name(path)),
        None => path.to_owned(),
    }
}
