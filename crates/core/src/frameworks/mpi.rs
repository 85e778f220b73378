//! `mpi`: a launcher that calls mpirun, and workers in which mpirun starts processes.
//!
//! The launcher decides how the job ends. It starts when the workers are ready, and reaches them through the agent, which
//! is in every pod: an image needs an MPI and nothing else. A worker that fails for good fails the job too: the launcher could
//! not go on, and what the others hold would be held in vain.

mod check;
mod env;

use k8s_openapi::api::core::v1::Container;
use trainyard_api::{
    Dependency, DependencyState, FieldError, HostFile, HostFileFormat, MpiAttach, MpiImplementation,
    MpiOptions, RestartPolicy, TrainingJob,
};

use super::accelerators;
use super::launching::{LAUNCHER, WORKER, field, options};
use crate::job::{
    Content, Contribution, Credentials, ExecRight, Framework, Hosts, Job, Place, RemoteShell, Role, RoleRule,
};
use crate::model::{Identity, PodKey};
use crate::remote_shell::{DIRECTORY, HOST_FILE, IDENTITY, PROGRAM, ROOT_SSH, directory};
use crate::view::Settings;

pub(super) use env::{IMPLEMENTATIONS, flat, is_of_ssh_client, reserved, shell};

const SSH_SERVER: [&str; 2] = ["/usr/sbin/sshd", "-De"];

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

/// Processes in each pod with a main container: the user's number, else one per accelerator, else one.
fn slots(job: &TrainingJob, main: &Container) -> i32 {
    options(job)
        .slots_per_worker
        .unwrap_or_else(|| accelerators(main).max(1))
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
            slots: slots(job.object, role.main),
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

    fn trains_as_one(&self) -> bool {
        true
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

    fn reserved_env(&self, job: &TrainingJob) -> Vec<&'static str> {
        env::reserved(attach(job) != MpiAttach::Agent)
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
            let slots = job
                .role(WORKER)
                .map_or(1, |(_, worker)| slots(job.object, worker.main));
            env.extend(env::places(implementation, slots));
            if attach(job.object) == MpiAttach::Ssh {
                let client = env::ssh_client(implementation).iter();
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

    fn remote_shell(&self, job: &Job<'_>, settings: &Settings, pod: PodKey) -> Option<RemoteShell> {
        if is_launcher(job, pod) {
            return Some(RemoteShell {
                hosts: hosts(job, settings),
                files: files(job.object),
                follows: job.object.rolls(),
                ..RemoteShell::default()
            });
        }
        match attach(job.object) {
            MpiAttach::Agent => Some(RemoteShell {
                serves: true,
                ..RemoteShell::default()
            }),
            // Programs are started by the agent that is there, and none waits for them.
            MpiAttach::Exec => Some(RemoteShell::default()),
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
        let directory = identity_directory(&options).to_owned();
        let (identity, given) = match options.attach.unwrap_or_default() {
            MpiAttach::Agent => (Identity::Certificate, None),
            MpiAttach::Ssh => (Identity::SshKey, options.ssh_auth_secret_name),
            MpiAttach::Exec => return None,
        };
        Some(Credentials {
            identity,
            directory,
            caller: LAUNCHER,
            given,
        })
    }

    fn places(&self, job: &TrainingJob, role: &str) -> Vec<Place> {
        let options = options(job);
        let attach = options.attach.unwrap_or_default();
        let launches = role == LAUNCHER;
        let mut places = Vec::new();
        if launches || attach != MpiAttach::Ssh {
            places.push(Place::of_all(DIRECTORY, Content::Mpi));
        }
        if launches || attach != MpiAttach::Exec {
            places.push(Place::of_main(identity_directory(&options), Content::Mpi));
        }
        let files = options.host_files.filter(|_| launches).unwrap_or_default();
        let of_files = files.into_iter().enumerate().map(|(i, file)| {
            let field = format!("{}[{i}]", field(job, "hostFiles"));
            Place::of_all(
                directory(&file.path),
                Content::HostFile {
                    file: file.path.clone(),
                    field,
                },
            )
        });
        places.extend(of_files.filter(|place| place.path != DIRECTORY));
        places
    }

    fn check(&self, job: &TrainingJob) -> Vec<FieldError> {
        check::check(job)
    }
}
