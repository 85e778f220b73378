//! `deepspeed`: a launcher that calls deepspeed, and workers in which it starts processes. Without
//! a launcher, workers that are nodes of torchrun.
//!
//! deepspeed reads the hosts from `/job/hostfile`, asks the first of them for its address by `ssh`,
//! and has `pdsh` start one process on each, which starts the others there. Both are the agent, in
//! a directory that is on the path of images. With `--launcher openmpi`, `mpich` or `impi` it calls
//! mpirun, which finds the agent as it does with `mpi`.

use trainyard_api::{
    FieldError, HostFile, HostFileFormat, MpiAttach, RemoteShellName, RoleSpec, TrainingJob,
};

use super::hostfiles::is_within;
use super::launcher::{
    LAUNCHER, Launcher, WORKER, attach, check_slots, field, is_launcher, main_of, options, workers,
};
use super::mpi;
use super::pytorch;
use crate::job::{Env, Environment, Framework, Replica, RoleRule, Validation, Variant};
use crate::remote_shell::directory;

/// Where deepspeed looks for hosts.
const HOST_FILE: &str = "/job/hostfile";

/// What deepspeed calls.
const SHELLS: &[RemoteShellName] = &[RemoteShellName::Pdsh, RemoteShellName::Ssh];

pub(super) fn framework() -> Framework {
    let launcher = Launcher {
        own_list: Some(HostFile {
            path: HOST_FILE.to_owned(),
            format: HostFileFormat::DeepSpeed,
        }),
        shells: SHELLS,
        ..Launcher::default()
    };
    let torchrun = Framework {
        validation: Some(Box::new(WithoutLauncher)),
        ..pytorch::torchrun("deepspeed", vec![RoleRule::required(WORKER)])
    };
    let without_launcher = Variant {
        applies: |job| !job.spec.roles.iter().any(|role| role.name == LAUNCHER),
        framework: torchrun,
    };
    Framework {
        validation: Some(Box::new(Deepspeed)),
        variants: vec![without_launcher],
        ..launcher.framework("deepspeed", Deepspeed)
    }
}

struct Deepspeed;

impl Environment for Deepspeed {
    /// Whose mpirun it is, if any, is said on the command line of deepspeed, and so are the hosts.
    fn variables(&self, replica: &Replica<'_>) -> Env {
        let attach = attach(replica.job.object);
        let mut env = Env::default();
        env.extend(mpi::hidden_devices(replica));
        for implementation in mpi::IMPLEMENTATIONS {
            env.extend(mpi::shell(implementation, attach).iter().copied());
        }
        if attach == MpiAttach::Exec && is_launcher(replica) {
            for implementation in mpi::IMPLEMENTATIONS {
                env.extend(mpi::flat(implementation, workers(replica.job)));
            }
        }
        env
    }

    fn reserved(&self, job: &TrainingJob) -> Vec<&str> {
        mpi::reserved(attach(job) == MpiAttach::Exec)
    }
}

impl Validation for Deepspeed {
    fn check(&self, job: &TrainingJob) -> Vec<FieldError> {
        let errors = [check_one_worker(job), check_key(job)];
        errors.into_iter().flatten().collect()
    }
}

struct WithoutLauncher;

impl Validation for WithoutLauncher {
    fn check(&self, job: &TrainingJob) -> Vec<FieldError> {
        let given = serde_json::to_value(options(job)).unwrap_or_default();
        let fields = given.as_object().into_iter().flat_map(serde_json::Map::keys);
        let moot = fields.filter(|name| *name != "slotsPerWorker");
        let error = |name: &String| {
            FieldError::new(
                field(job, name),
                "says how a launcher reaches the workers, and there is none: add a role \"launcher\", or remove this",
            )
        };
        moot.map(error).chain(check_slots(job)).collect()
    }
}

/// The key can't be where deepspeed looks for hosts.
fn check_key(job: &TrainingJob) -> Option<FieldError> {
    let path = options(job).ssh_auth_mount_path.as_deref()?;
    let taken = directory(HOST_FILE);
    (is_within(path, taken) || is_within(taken, path)).then(|| {
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
    let elastic = job
        .spec
        .elastic
        .as_ref()
        .filter(|_| job.spec.elastic_role() == Some(worker));
    let (fewest, field) = match elastic {
        Some(elastic) => (elastic.min(), "spec.elastic.minReplicas".to_owned()),
        None => (
            job.spec.roles.get(worker)?.replicas.unwrap_or(1),
            format!("spec.roles[{worker}].replicas"),
        ),
    };
    if fewest != 1 {
        return None;
    }
    let main = main_of(job.spec.roles.get(launcher)?)?;
    let mut words = main.command.iter().chain(&main.args).flatten();
    let calls = words.clone().any(|word| word.contains("deepspeed"));
    if !calls || words.any(|word| word.contains("--force_multi")) {
        return None;
    }
    Some(FieldError::new(
        field,
        "deepspeed trains in the launcher itself when there is one worker: call it with --force_multi, or have more workers",
    ))
}
