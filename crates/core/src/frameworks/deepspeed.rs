//! `deepspeed`: a launcher that calls deepspeed, and workers in which it starts processes.
//!
//! deepspeed reads the hosts from `/job/hostfile`, asks the first of them for its address by `ssh`, and has `pdsh` start one
//! process on each, which starts the others there. Both are the agent, in a directory that is on the path of images. With
//! `--launcher openmpi`, `mpich` or `impi` it calls mpirun, which finds the agent as it does with `mpi`.

use trainyard_api::{FieldError, HostFile, HostFileFormat, MpiAttach, RestartPolicy, RoleSpec, TrainingJob};

use super::hostfiles;
use super::hostfiles::is_within;
use super::launching::{LAUNCHER, WORKER, field, main_of, options};
use super::mpi::{self, Mpi};
use crate::job::{Content, Contribution, Framework, Job, Place, RemoteShell};
use crate::model::PodKey;
use crate::remote_shell::directory;
use crate::view::Settings;

/// Where deepspeed looks for hosts.
const HOST_FILE: &str = "/job/hostfile";

/// What deepspeed calls. Images have this directory on their path, before that of their own programs of these names.
const PROGRAMS: &[&str] = &["/usr/local/bin/pdsh", "/usr/local/bin/ssh"];

pub(super) struct Deepspeed;

fn host_file() -> HostFile {
    HostFile {
        path: HOST_FILE.to_owned(),
        format: HostFileFormat::DeepSpeed,
    }
}

/// What the operator puts into the launcher besides what every launcher has.
fn programs(job: &TrainingJob) -> &'static [&'static str] {
    if mpi::attach(job) == MpiAttach::Ssh {
        &[]
    } else {
        PROGRAMS
    }
}

impl Framework for Deepspeed {
    fn name(&self) -> &'static str {
        "deepspeed"
    }

    fn base(&self) -> Option<&'static dyn Framework> {
        Some(&Mpi)
    }

    fn restart_policy(&self, role: &str) -> RestartPolicy {
        Mpi.restart_policy(role)
    }

    fn reserved_env(&self, job: &TrainingJob) -> Vec<&'static str> {
        mpi::reserved(mpi::attach(job) == MpiAttach::Exec)
    }

    fn contribution(&self, job: &Job<'_>, settings: &Settings, pod: PodKey) -> Contribution {
        let mut given = Mpi.contribution(job, settings, pod);
        // Whose mpirun it is, if any, is said on the command line of deepspeed, and so are the hosts.
        let of_devices = |name: &str| name.starts_with("NVIDIA_");
        given.env.retain(|(name, _)| of_devices(name));
        let shells = mpi::IMPLEMENTATIONS.map(|one| mpi::shell(one, mpi::attach(job.object)));
        let shells = shells.into_iter().flatten();
        given
            .env
            .extend(shells.map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
        if mpi::attach(job.object) == MpiAttach::Exec && mpi::is_launcher(job, pod) {
            let workers = job.role(WORKER).map_or(0, |(_, worker)| worker.replicas);
            let flat = mpi::IMPLEMENTATIONS
                .into_iter()
                .flat_map(|one| mpi::flat(one, workers));
            given
                .env
                .extend(flat.map(|(name, value)| (name.to_owned(), value)));
        }
        given
    }

    fn remote_shell(&self, job: &Job<'_>, settings: &Settings, pod: PodKey) -> Option<RemoteShell> {
        let mut shell = Mpi.remote_shell(job, settings, pod)?;
        if mpi::is_launcher(job, pod) {
            shell.files.push(host_file());
            shell.programs = programs(job.object);
        }
        Some(shell)
    }

    fn places(&self, job: &TrainingJob, role: &str) -> Vec<Place> {
        let more = programs(job).iter().copied().chain([directory(HOST_FILE)]);
        let more = more.filter(|_| role == LAUNCHER);
        let more = more.map(|path| Place::of_all(path, Content::Program));
        Mpi.places(job, role).into_iter().chain(more).collect()
    }

    fn check(&self, job: &TrainingJob) -> Vec<FieldError> {
        let mut errors = Mpi.check(job);
        let given = options(job).host_files.unwrap_or_default();
        for (i, file) in given.iter().enumerate() {
            let problem = hostfiles::clash(&file.path, &[host_file()]);
            let at = format!("{}[{i}].path", field(job, "hostFiles"));
            errors.extend(problem.map(|problem| FieldError::new(at, problem)));
        }
        errors.extend(check_one_worker(job));
        errors.extend(check_key(job));
        errors
    }
}

/// The key can't be where deepspeed looks for hosts.
fn check_key(job: &TrainingJob) -> Option<FieldError> {
    let path = options(job).ssh_auth_mount_path?;
    let taken = directory(HOST_FILE);
    (is_within(&path, taken) || is_within(taken, &path)).then(|| {
        FieldError::new(
            field(job, "sshAuthMountPath"),
            format!("{taken} is where deepspeed looks for its hosts: give the directory .ssh of a user"),
        )
    })
}

/// deepspeed starts everything where it is called itself if its list has one host.
fn check_one_worker(job: &TrainingJob) -> Option<FieldError> {
    let role = |name| {
        job.spec
            .roles
            .iter()
            .position(|role: &RoleSpec| role.name == name)
    };
    let (launcher, worker) = (role(LAUNCHER)?, role(WORKER)?);
    if job.spec.roles.get(worker)?.replicas.unwrap_or(1) != 1 {
        return None;
    }
    let main = main_of(job.spec.roles.get(launcher)?)?;
    let mut words = main.command.iter().chain(&main.args).flatten();
    let calls = words.clone().any(|word| word.contains("deepspeed"));
    if !calls || words.any(|word| word.contains("--force_multi")) {
        return None;
    }
    Some(FieldError::new(
        format!("spec.roles[{worker}].replicas"),
        "deepspeed trains in the launcher itself when there is one worker: call it with --force_multi, or have more workers",
    ))
}
