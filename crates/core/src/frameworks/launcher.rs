//! What frameworks of a launcher and workers have in common: the launcher starts processes in the
//! workers, by itself or through mpirun, and decides how the job ends.
//!
//! It starts when the workers are ready, and reaches them through the agent, which is in every pod:
//! an image needs no SSH. A worker that fails for good fails the job too: the launcher could not go
//! on, and what the others hold would be held in vain.

mod check;

use std::sync::LazyLock;

use k8s_openapi::api::core::v1::Container;
use trainyard_api::{
    Dependency, DependencyState, FieldError, HostFile, HostFileFormat, LauncherOptions, MpiAttach,
    MpiImplementation, RemoteShellName, RestartPolicy, RoleSpec, TrainingJob,
};
use trainyard_contract::host_list::Hosts;

use super::accelerators::processes;
use super::hostfiles;
use crate::job::{
    Content, Credentials, Environment, ExecRight, Framework, Job, Place, RemoteAccess, RemoteShell, Replica,
    Role, RoleRule,
};
use crate::model::Identity;
use crate::remote_shell::{DIRECTORY, HOST_FILE, IDENTITY, PROGRAM, ROOT_SSH, directory};

pub(super) use check::check_slots;

/// The role that starts processes in the others.
pub(super) const LAUNCHER: &str = "launcher";
/// The role in which they are started.
pub(super) const WORKER: &str = "worker";

const SSH_SERVER: [&str; 2] = ["/usr/sbin/sshd", "-De"];

/// How the launcher of a framework reaches its workers, as far as that differs from `mpi`.
#[derive(Default)]
pub(super) struct Launcher {
    /// The list of hosts that the framework looks for besides the one of mpirun.
    pub own_list: Option<HostFile>,
    /// Programs that the framework calls and that are the agent, besides those that the user wants,
    /// unless the image's own SSH is used.
    pub shells: &'static [RemoteShellName],
    /// Whether hosts are listed by the names that they have for themselves, without a domain.
    pub short_names: bool,
}

impl Launcher {
    /// The framework of a name whose launcher this is.
    pub fn framework(self, name: &'static str, environment: impl Environment + 'static) -> Framework {
        let launcher = RoleRule {
            restart_policy: Some(RestartPolicy::OnFailure),
            decides: true,
            depends_on: vec![Dependency {
                role: WORKER.to_owned(),
                state: DependencyState::Ready,
            }],
            ..RoleRule::required(LAUNCHER).single()
        };
        Framework {
            roles: vec![launcher, RoleRule::required(WORKER)],
            // Workers are servers, and the launcher decides: one that is drained has lost its place
            // in the job however well its program ended, as sshd does on SIGTERM.
            restart_policy: RestartPolicy::Always,
            trains_as_one: true,
            remote_access: Some(Box::new(self)),
            ..Framework::new(name, environment)
        }
    }

    /// The files that list the hosts: the one that mpirun reads, those that the user wants, and the
    /// framework's own.
    fn files(&self, job: &TrainingJob) -> Vec<HostFile> {
        let of_mpirun = HostFile {
            path: HOST_FILE.to_owned(),
            format: match implementation(job) {
                MpiImplementation::OpenMPI => HostFileFormat::OpenMPI,
                MpiImplementation::MPICH => HostFileFormat::MPICH,
                MpiImplementation::Intel => HostFileFormat::Intel,
            },
        };
        let given = options(job).host_files.iter().flatten();
        let more = given.chain(&self.own_list).cloned();
        std::iter::once(of_mpirun).chain(more).collect()
    }

    fn hosts(&self, replica: &Replica<'_>) -> Vec<Hosts> {
        let mut all = hosts(replica);
        for hosts in all.iter_mut().filter(|_| self.short_names) {
            let name = hosts.pattern.split('.').next().unwrap_or_default();
            hosts.pattern = name.to_owned();
        }
        all
    }

    /// Where the launcher finds the agent under the names of other remote shells.
    fn programs(&self, job: &TrainingJob) -> Vec<&'static str> {
        if attach(job) == MpiAttach::Ssh {
            return Vec::new();
        }
        let given = options(job).remote_shells.iter().flatten();
        let mut programs: Vec<_> = self.shells.iter().chain(given).copied().map(program).collect();
        programs.sort_unstable();
        programs.dedup();
        programs
    }
}

/// A directory that images have on their path, before that of their own programs of these names.
const fn program(shell: RemoteShellName) -> &'static str {
    match shell {
        RemoteShellName::Ssh => "/usr/local/bin/ssh",
        RemoteShellName::Pdsh => "/usr/local/bin/pdsh",
    }
}

static NO_OPTIONS: LazyLock<LauncherOptions> = LazyLock::new(LauncherOptions::default);

/// What the user says, of whichever framework the job is.
pub(super) fn options(job: &TrainingJob) -> &LauncherOptions {
    job.spec.framework.launcher().unwrap_or(&NO_OPTIONS)
}

/// The path of an option of the job's framework.
pub(super) fn field(job: &TrainingJob, name: &str) -> String {
    format!("spec.framework.{}.{name}", job.spec.framework.name)
}

/// The container of a role that trains.
pub(super) fn main_of(role: &RoleSpec) -> Option<&Container> {
    let mut containers = role.template.spec.iter().flat_map(|pod| &pod.containers);
    match &role.container {
        Some(main) => containers.find(|container| container.name == *main),
        None => containers.next(),
    }
}

pub(super) fn attach(job: &TrainingJob) -> MpiAttach {
    options(job).attach.unwrap_or_default()
}

pub(super) fn implementation(job: &TrainingJob) -> MpiImplementation {
    options(job).implementation.unwrap_or_default()
}

/// Whether processes are started in the launcher too.
pub(super) fn launcher_works(job: &TrainingJob) -> bool {
    options(job).launcher_as_worker == Some(true)
}

pub(super) fn is_launcher(replica: &Replica<'_>) -> bool {
    replica.role.name == LAUNCHER
}

/// Whether the hosts may change while the launcher runs, so that its lists have to follow.
fn hosts_change(job: &Job<'_>) -> bool {
    job.object.rolls() || job.elastic.is_some() && !job.is_rigid()
}

/// How many workers a job has.
pub(super) fn workers(job: &Job<'_>) -> i32 {
    job.role(WORKER).map_or(0, |(_, worker)| worker.replicas())
}

/// How many processes are started in each pod with a main container.
pub(super) fn slots(job: &TrainingJob, main: &Container) -> i32 {
    processes(options(job).slots_per_worker, main)
}

/// The hosts in which processes are started, in order.
pub(super) fn hosts(replica: &Replica<'_>) -> Vec<Hosts> {
    let job = replica.job;
    let launcher = job.role(LAUNCHER).filter(|_| launcher_works(job.object));
    let roles = launcher.into_iter().chain(job.role(WORKER));
    let number = |number: i32| u32::try_from(number).unwrap_or_default();
    let hosts_of = |role: &Role<'_>| -> Vec<Hosts> {
        let all = Hosts {
            pattern: job.host_pattern(role, replica.cluster_domain),
            from: 0,
            count: 0,
            slots: number(slots(job.object, role.main)),
            role: (role.name == WORKER && hosts_change(job)).then(|| role.name.to_owned()),
        };
        // Some may have left.
        let runs = role.members.runs().into_iter();
        runs.map(|(from, count)| Hosts {
            from: number(from),
            count: number(count),
            ..all.clone()
        })
        .collect()
    };
    roles.flat_map(|(_, role)| hosts_of(role)).collect()
}

/// Where main containers find the job's credentials.
fn identity_directory(options: &LauncherOptions) -> &str {
    match options.attach.unwrap_or_default() {
        MpiAttach::Agent | MpiAttach::Exec => IDENTITY,
        MpiAttach::Ssh => options.ssh_auth_mount_path.as_deref().unwrap_or(ROOT_SSH),
    }
}

/// The directories of host files that the user wants outside of [`DIRECTORY`].
fn places_of_files(job: &TrainingJob) -> impl Iterator<Item = Place> {
    let files = options(job).host_files.iter().flatten().enumerate();
    let places = files.map(|(i, file)| {
        let content = Content::HostFile {
            file: file.path.clone(),
            field: format!("{}[{i}]", field(job, "hostFiles")),
        };
        Place::of_all(directory(&file.path), content)
    });
    places.filter(|place| place.path != DIRECTORY)
}

impl RemoteAccess for Launcher {
    fn shell(&self, replica: &Replica<'_>) -> Option<RemoteShell> {
        let job = replica.job.object;
        if is_launcher(replica) {
            return Some(RemoteShell {
                hosts: self.hosts(replica),
                files: self.files(job),
                follows: hosts_change(replica.job),
                programs: self.programs(job),
                ..RemoteShell::default()
            });
        }
        match attach(job) {
            MpiAttach::Agent => Some(RemoteShell {
                serves: true,
                ..RemoteShell::default()
            }),
            // Programs are started by the agent that is there, and none waits for them.
            MpiAttach::Exec => Some(RemoteShell::default()),
            MpiAttach::Ssh => None,
        }
    }

    fn command(&self, replica: &Replica<'_>) -> Option<Vec<String>> {
        let idle = match attach(replica.job.object) {
            MpiAttach::Agent => return None,
            MpiAttach::Ssh => SSH_SERVER,
            MpiAttach::Exec => [PROGRAM, trainyard_contract::modes::STAY],
        };
        (replica.role.name == WORKER).then(|| idle.map(str::to_owned).into())
    }

    fn credentials(&self, job: &TrainingJob) -> Option<Credentials> {
        let options = options(job);
        let (identity, given) = match attach(job) {
            MpiAttach::Agent => (Identity::Certificate, None),
            MpiAttach::Ssh => (Identity::SshKey, options.ssh_auth_secret_name.clone()),
            MpiAttach::Exec => return None,
        };
        Some(Credentials {
            identity,
            directory: identity_directory(options).to_owned(),
            caller: LAUNCHER,
            given,
        })
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

    fn places(&self, job: &TrainingJob, role: &str) -> Vec<Place> {
        let launches = role == LAUNCHER;
        let mut places = Vec::new();
        if launches || attach(job) != MpiAttach::Ssh {
            places.push(Place::of_all(DIRECTORY, Content::Mpi));
        }
        if launches || attach(job) != MpiAttach::Exec {
            places.push(Place::of_main(identity_directory(options(job)), Content::Mpi));
        }
        if launches {
            places.extend(places_of_files(job));
            let programs = self.programs(job).into_iter();
            let own = programs.chain(self.own_list.iter().map(|file| directory(&file.path)));
            places.extend(own.map(|path| Place::of_all(path, Content::Program)));
        }
        places
    }

    fn check(&self, job: &TrainingJob) -> Vec<FieldError> {
        let mut errors = check::check(job);
        for (i, file) in options(job).host_files.iter().flatten().enumerate() {
            let problem = hostfiles::clash(&file.path, self.own_list.as_slice());
            let at = format!("{}[{i}].path", field(job, "hostFiles"));
            errors.extend(problem.map(|problem| FieldError::new(at, problem)));
        }
        errors
    }
}
