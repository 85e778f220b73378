//! `mpi`: a launcher that calls mpirun, and workers in which mpirun starts processes.
//!
//! The launcher decides how the job ends. It starts when the workers are ready, and reaches them through the agent, which
//! is in every pod: an image needs an MPI and nothing else. A worker that fails for good fails the job too: the launcher could
//! not go on, and what the others hold would be held in vain.

use trainyard_api::{
    Dependency, DependencyState, FieldError, HostFile, HostFileFormat, MpiAttach, MpiImplementation,
    MpiOptions, RestartPolicy, TrainingJob, names,
};

use super::hostfiles::{is_within, misspelt};
use super::launching::{LAUNCHER, WORKER, field, options};
use super::{
    Attachment, Contribution, Credentials, Framework, Hosts, Identity, RoleRule, accelerators, hostfiles,
    mounts,
};
use crate::attach::{DIRECTORY, HOST_FILE, IDENTITY, PORT, PROGRAM, ROOT_SSH, SHELL};
use crate::exec::{ExecRight, check_account};
use crate::job::{Job, Role};
use crate::plan::PodKey;
use crate::view::Settings;

/// A worker's SSH server may start a moment after the worker is ready. One that hangs, on a host that is still there, would be
/// waited for for ever; like this it is given up after a minute. No sooner: SSH gives the other side no more time to agree on
/// keys, and a machine may be busy. That a host is lost is noticed by the connection, which the agent opens.
const SSH_ARGS: &str = "-o ConnectionAttempts=10 -o ServerAliveInterval=15 -o ServerAliveCountMax=3";
const SSH_SERVER: [&str; 2] = ["/usr/sbin/sshd", "-De"];
/// Tells the agent whom to leave remote commands to.
const SSH_CLIENT: &str = "TRAINYARD_SSH";
const SSH: &str = "ssh";

pub(super) struct Mpi;

fn implementation(job: &TrainingJob) -> MpiImplementation {
    options(job).implementation.unwrap_or_default()
}

fn launcher_works(job: &TrainingJob) -> bool {
    options(job).launcher_as_worker == Some(true)
}

pub(super) fn is_launcher(job: &Job<'_>, pod: PodKey) -> bool {
    job.roles.get(pod.role).is_some_and(|role| role.name == LAUNCHER)
}

/// Processes in each pod of a role: the user's number, else one per accelerator, else one.
fn slots(job: &Job<'_>, role: &Role<'_>) -> i32 {
    options(job.object)
        .slots_per_worker
        .unwrap_or_else(|| accelerators(role.main).max(1))
}

/// The hosts in which mpirun starts processes, in order.
pub(super) fn hosts(job: &Job<'_>, settings: &Settings) -> Vec<Hosts> {
    let launcher = job.role(LAUNCHER).filter(|_| launcher_works(job.object));
    let roles = launcher.into_iter().chain(job.role(WORKER));
    roles
        .map(|(_, role)| Hosts {
            pattern: job.host_pattern(role, &settings.cluster_domain),
            from: 0,
            count: role.replicas,
            slots: slots(job, role),
            role: (role.name == WORKER && job.object.rolls()).then(|| role.name.to_owned()),
        })
        .collect()
}

/// The files that list the hosts: the one that mpirun reads, and those that the user wants.
fn files(job: &TrainingJob) -> Vec<HostFile> {
    let format = match implementation(job) {
        MpiImplementation::OpenMPI => HostFileFormat::OpenMPI,
        MpiImplementation::MPICH => HostFileFormat::MPICH,
        MpiImplementation::Intel => HostFileFormat::Intel,
    };
    let own = HostFile {
        path: HOST_FILE.to_owned(),
        format,
    };
    let more = options(job).host_files.unwrap_or_default();
    std::iter::once(own).chain(more).collect()
}

/// What a worker runs whose user gave nothing, where that is not left to the agent.
fn idle(attach: MpiAttach) -> Option<[&'static str; 2]> {
    match attach {
        MpiAttach::Agent => None,
        MpiAttach::Ssh => Some(SSH_SERVER),
        MpiAttach::Exec => Some([PROGRAM, "stay"]),
    }
}

pub(super) fn attach(job: &TrainingJob) -> MpiAttach {
    options(job).attach.unwrap_or_default()
}

/// Where main containers find the job's credentials.
fn identity_directory(options: &MpiOptions) -> &str {
    match options.attach.unwrap_or_default() {
        MpiAttach::Agent | MpiAttach::Exec => IDENTITY,
        MpiAttach::Ssh => options.ssh_auth_mount_path.as_deref().unwrap_or(ROOT_SSH),
    }
}

/// How processes are started in other pods. Workers are told too: with many of them mpirun has some start others.
pub(super) fn shell(
    implementation: MpiImplementation,
    attach: MpiAttach,
) -> &'static [(&'static str, &'static str)] {
    match (implementation, attach) {
        (MpiImplementation::OpenMPI, MpiAttach::Ssh) => &[
            ("OMPI_MCA_plm_rsh_args", SSH_ARGS),
            ("OMPI_MCA_orte_keep_fqdn_hostnames", "true"),
            ("PRTE_MCA_plm_ssh_args", SSH_ARGS),
            ("PRTE_MCA_prte_keep_fqdn_hostnames", "true"),
        ],
        (MpiImplementation::MPICH, MpiAttach::Ssh) => {
            &[("HYDRA_LAUNCHER", "ssh"), ("HYDRA_LAUNCH_EXTRA_ARGS", SSH_ARGS)]
        }
        (MpiImplementation::Intel, MpiAttach::Ssh) => &[
            ("I_MPI_HYDRA_BOOTSTRAP", "ssh"),
            ("I_MPI_HYDRA_BOOTSTRAP_EXEC_EXTRA_ARGS", SSH_ARGS),
        ],
        (MpiImplementation::OpenMPI, MpiAttach::Agent | MpiAttach::Exec) => &[
            ("OMPI_MCA_plm_rsh_agent", SHELL),
            ("OMPI_MCA_orte_keep_fqdn_hostnames", "true"),
            // Open MPI 5 knows none of the names above, and would start all processes in the launcher.
            ("PRTE_MCA_plm_ssh_agent", SHELL),
            ("PRTE_MCA_plm_rsh_agent", SHELL),
            ("PRTE_MCA_prte_keep_fqdn_hostnames", "true"),
        ],
        (MpiImplementation::MPICH, MpiAttach::Agent | MpiAttach::Exec) => {
            &[("HYDRA_LAUNCHER", "ssh"), ("HYDRA_LAUNCHER_EXEC", SHELL)]
        }
        (MpiImplementation::Intel, MpiAttach::Agent | MpiAttach::Exec) => &[
            ("I_MPI_HYDRA_BOOTSTRAP", "ssh"),
            ("I_MPI_HYDRA_BOOTSTRAP_EXEC", SHELL),
        ],
    }
}

/// By what the launcher calls the SSH of its image: the agent opens the connection for it. Workers have no agent.
pub(super) fn ssh_client(implementation: MpiImplementation) -> &'static [(&'static str, &'static str)] {
    match implementation {
        MpiImplementation::OpenMPI => &[
            (SSH_CLIENT, SSH),
            ("OMPI_MCA_plm_rsh_agent", SHELL),
            ("PRTE_MCA_plm_ssh_agent", SHELL),
            ("PRTE_MCA_plm_rsh_agent", SHELL),
        ],
        MpiImplementation::MPICH => &[(SSH_CLIENT, SSH), ("HYDRA_LAUNCHER_EXEC", SHELL)],
        MpiImplementation::Intel => &[(SSH_CLIENT, SSH), ("I_MPI_HYDRA_BOOTSTRAP_EXEC", SHELL)],
    }
}

/// Has the launcher itself start something in every worker. Where there are many, it would have some start others, and none
/// but the launcher may do that through the API server, or has an agent for its SSH.
pub(super) fn flat(implementation: MpiImplementation, workers: i32) -> Vec<(&'static str, String)> {
    /// What Open MPI starts from one place without being told.
    const USUAL: i32 = 64;
    let width = workers.max(USUAL).to_string();
    match implementation {
        MpiImplementation::OpenMPI => vec![
            ("OMPI_MCA_routed_radix", width.clone()),
            ("PRTE_MCA_rml_base_radix", width),
        ],
        MpiImplementation::MPICH => Vec::new(),
        MpiImplementation::Intel => vec![("I_MPI_HYDRA_BRANCH_COUNT", "-1".to_owned())],
    }
}

/// Whether a variable has the launcher reach workers through the agent, with the SSH of its image.
pub(super) fn is_of_ssh_client(implementation: MpiImplementation, name: &str) -> bool {
    let client = ssh_client(implementation).iter().map(|(name, _)| *name);
    let flat = flat(implementation, 0).into_iter().map(|(name, _)| name);
    client.chain(flat).any(|one| one == name)
}

/// Where processes are started.
fn places(implementation: MpiImplementation, slots: i32) -> Vec<(&'static str, String)> {
    let file = HOST_FILE.to_owned();
    match implementation {
        MpiImplementation::OpenMPI => vec![
            ("OMPI_MCA_orte_default_hostfile", file.clone()),
            ("OMPI_MCA_orte_set_default_slots", slots.to_string()),
            ("PRTE_MCA_prte_default_hostfile", file),
        ],
        MpiImplementation::MPICH => vec![("HYDRA_HOST_FILE", file)],
        MpiImplementation::Intel => vec![
            ("I_MPI_HYDRA_HOST_FILE", file),
            ("I_MPI_PERHOST", slots.to_string()),
        ],
    }
}

impl Framework for Mpi {
    fn name(&self) -> &'static str {
        "mpi"
    }

    fn roles(&self) -> Option<&'static [RoleRule]> {
        Some(&[
            RoleRule {
                name: LAUNCHER,
                max: Some(1),
                required: true,
            },
            RoleRule {
                name: WORKER,
                max: None,
                required: true,
            },
        ])
    }

    fn restart_policy(&self, role: &str) -> RestartPolicy {
        // Workers are servers, and the launcher decides: one that is drained has lost its place in the job however well
        // its program ended, as sshd does on SIGTERM.
        if role == LAUNCHER {
            RestartPolicy::OnFailure
        } else {
            RestartPolicy::Always
        }
    }

    fn succeeded_when(&self, roles: &[Role<'_>]) -> Vec<Vec<usize>> {
        let launcher = roles.iter().position(|role| role.name == LAUNCHER);
        launcher.map(|launcher| vec![launcher]).into_iter().collect()
    }

    fn dependencies(&self, role: &str, roles: &[&str]) -> Vec<Dependency> {
        if role != LAUNCHER || !roles.contains(&WORKER) {
            return Vec::new();
        }
        vec![Dependency {
            role: WORKER.to_owned(),
            state: DependencyState::Ready,
        }]
    }

    fn reserved_env(&self) -> &'static [&'static str] {
        &[
            "OMPI_MCA_plm_rsh_agent",
            "OMPI_MCA_orte_default_hostfile",
            "OMPI_MCA_orte_keep_fqdn_hostnames",
            "PRTE_MCA_plm_ssh_agent",
            "PRTE_MCA_plm_rsh_agent",
            "PRTE_MCA_prte_default_hostfile",
            "PRTE_MCA_prte_keep_fqdn_hostnames",
            "HYDRA_HOST_FILE",
            "HYDRA_LAUNCHER",
            "HYDRA_LAUNCHER_EXEC",
            "I_MPI_HYDRA_HOST_FILE",
            "I_MPI_HYDRA_BOOTSTRAP",
            "I_MPI_HYDRA_BOOTSTRAP_EXEC",
            "TRAINYARD_*",
        ]
    }

    fn contribution(&self, job: &Job<'_>, _: &Settings, pod: PodKey) -> Contribution {
        let implementation = implementation(job.object);
        let Some(role) = job.roles.get(pod.role) else {
            return Contribution::default();
        };
        let mut env = vec![("K_MPI_JOB_ROLE", role.name.to_owned())];
        let shell = shell(implementation, attach(job.object)).iter();
        env.extend(shell.map(|(name, value)| (*name, (*value).to_owned())));
        if is_launcher(job, pod) {
            let slots = job.role(WORKER).map_or(1, |(_, worker)| slots(job, worker));
            env.extend(places(implementation, slots));
            if attach(job.object) == MpiAttach::Ssh {
                let client = ssh_client(implementation).iter();
                env.extend(client.map(|(name, value)| (*name, (*value).to_owned())));
            }
            if attach(job.object) != MpiAttach::Agent {
                let workers = job.role(WORKER).map_or(0, |(_, worker)| worker.replicas);
                env.extend(flat(implementation, workers));
            }
            if !launcher_works(job.object) && accelerators(role.main) == 0 {
                // Some runtimes show all devices to a container that asks for none.
                let hidden = ["NVIDIA_VISIBLE_DEVICES", "NVIDIA_DRIVER_CAPABILITIES"];
                env.extend(hidden.map(|name| (name, String::new())));
            }
        }
        Contribution {
            env: env
                .into_iter()
                .map(|(name, value)| (name.to_owned(), value))
                .collect(),
            command: (role.name == WORKER)
                .then(|| idle(attach(job.object)))
                .flatten()
                .map(|words| words.map(str::to_owned).into()),
            ports: Vec::new(),
        }
    }

    fn attachment(&self, job: &Job<'_>, settings: &Settings, pod: PodKey) -> Option<Attachment> {
        if is_launcher(job, pod) {
            return Some(Attachment {
                hosts: hosts(job, settings),
                files: files(job.object),
                follows: job.object.rolls(),
                ..Attachment::default()
            });
        }
        match attach(job.object) {
            MpiAttach::Agent => Some(Attachment {
                serves: true,
                ..Attachment::default()
            }),
            // Programs are started by the agent that is there, and none waits for them.
            MpiAttach::Exec => Some(Attachment::default()),
            MpiAttach::Ssh => None,
        }
    }

    fn exec(&self, job: &Job<'_>) -> Option<ExecRight> {
        if attach(job.object) != MpiAttach::Exec {
            return None;
        }
        Some(ExecRight {
            holder: job.role(LAUNCHER)?.0,
            into: job.role(WORKER)?.0,
        })
    }

    fn credentials(&self, job: &TrainingJob) -> Option<Credentials> {
        let options = options(job);
        Some(Credentials {
            identity: match options.attach.unwrap_or_default() {
                MpiAttach::Agent => Identity::Certificate,
                MpiAttach::Ssh => Identity::SshKey,
                MpiAttach::Exec => return None,
            },
            directory: identity_directory(&options).to_owned(),
            caller: LAUNCHER,
        })
    }

    fn check(&self, job: &TrainingJob) -> Vec<FieldError> {
        let mut errors = Vec::new();
        let options = options(job);
        if let Some(slots) = options.slots_per_worker.filter(|slots| *slots < 1) {
            errors.push(FieldError::new(
                field(job, "slotsPerWorker"),
                format!("{slots} processes can't train: give at least 1, or leave it out"),
            ));
        }
        let name = job.metadata.name.as_deref().unwrap_or_default();
        let secret = names::mpi_secret(name);
        if secret.len() > names::MAX_NAME {
            errors.push(FieldError::new(
                "metadata.name",
                format!(
                    "the Secret name {secret:?} is longer than {} characters: shorten it",
                    names::MAX_NAME
                ),
            ));
        }
        errors.extend(check_ssh(job, &options));
        if options.attach == Some(MpiAttach::Exec) {
            errors.extend(check_account(job, LAUNCHER));
        }
        let identity = identity_directory(&options);
        let given = options.host_files.as_deref().unwrap_or_default();
        errors.extend(hostfiles::check(&field(job, "hostFiles"), given, identity));
        errors.extend(mounts::check(job, given, LAUNCHER, identity));
        for (i, role) in job.spec.roles.iter().enumerate() {
            if role.name == WORKER {
                errors.extend(check_worker(job, i));
            }
        }
        errors
    }
}

/// What is wrong with where the SSH key is to be.
fn check_ssh(job: &TrainingJob, options: &MpiOptions) -> Option<FieldError> {
    let path = options.ssh_auth_mount_path.as_deref()?;
    let problem = if options.attach != Some(MpiAttach::Ssh) {
        Some("there is a key only with attach Ssh: remove this, or set attach to Ssh".to_owned())
    } else if is_within(path, DIRECTORY) || is_within(DIRECTORY, path) {
        Some(format!(
            "{DIRECTORY} is for what MPI needs: give the directory .ssh of a user"
        ))
    } else {
        misspelt(path)
    };
    problem.map(|problem| FieldError::new(field(job, "sshAuthMountPath"), problem))
}

/// What is wrong with the workers.
fn check_worker(job: &TrainingJob, position: usize) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let Some(role) = job.spec.roles.get(position) else {
        return errors;
    };
    let at = format!("spec.roles[{position}]");
    let launcher = job.spec.roles.iter().find(|role| role.name == LAUNCHER);
    if launcher.is_some_and(|launcher| launcher.depends_on.is_none()) {
        for (d, on) in role.depends_on.iter().flatten().enumerate() {
            if on.role == LAUNCHER {
                errors.push(FieldError::new(
                    format!("{at}.dependsOn[{d}].role"),
                    "the launcher waits for the workers, and they would wait for each other for ever: remove it, or give \
                     the launcher an empty dependsOn",
                ));
            }
        }
    }
    // Otherwise the worker's program is its own affair.
    let Some(pod) = role
        .template
        .spec
        .as_ref()
        .filter(|_| attach(job) == MpiAttach::Agent)
    else {
        return errors;
    };
    for (c, container) in pod.containers.iter().enumerate() {
        let at = format!("{at}.template.spec.containers[{c}]");
        let is_main = match &role.container {
            Some(main) => *main == container.name,
            None => c == 0,
        };
        let given = |words: &Option<Vec<String>>| words.as_ref().is_some_and(|words| !words.is_empty());
        if is_main && given(&container.args) && !given(&container.command) {
            errors.push(FieldError::new(
                format!("{at}.args"),
                "the agent starts the worker's program, and can't know the command that is in its image: give command \
                 too, or remove args, and the worker only waits for what is started in it",
            ));
        }
        for (p, port) in container.ports.iter().flatten().enumerate() {
            if port.container_port == PORT && port.protocol.as_deref().unwrap_or("TCP") == "TCP" {
                errors.push(FieldError::new(
                    format!("{at}.ports[{p}].containerPort"),
                    format!("the agent listens on port {PORT}: give another one"),
                ));
            }
        }
    }
    errors
}
