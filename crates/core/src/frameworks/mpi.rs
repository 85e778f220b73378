//! `mpi`: a launcher that calls mpirun, and workers in which mpirun starts processes.

mod env;

use trainyard_api::{MpiAttach, TrainingJob};

use super::accelerators;
use super::launcher::{
    Launcher, WORKER, attach, implementation, is_launcher, launcher_works, slots, workers,
};
use crate::job::{Env, Environment, Framework, Replica};

pub(super) use env::{IMPLEMENTATIONS, flat, is_of_ssh_client, reserved, shell};

pub(super) fn framework() -> Framework {
    Launcher::default().framework("mpi", Mpi)
}

struct Mpi;

impl Environment for Mpi {
    fn variables(&self, replica: &Replica<'_>) -> Env {
        variables(replica)
    }

    fn reserved(&self, job: &TrainingJob) -> Vec<&str> {
        env::reserved(attach(job) != MpiAttach::Agent)
    }
}

/// What pods find in which mpirun is called, or starts processes.
pub(super) fn variables(replica: &Replica<'_>) -> Env {
    let job = replica.job.object;
    let (implementation, attach) = (implementation(job), attach(job));
    let mut env = Env::from([("K_MPI_JOB_ROLE", replica.role.name)]);
    env.extend(shell(implementation, attach).iter().copied());
    if is_launcher(replica) {
        let worker = replica.job.role(WORKER);
        let slots = worker.map_or(1, |(_, worker)| slots(job, worker.main));
        env.extend(env::places(implementation, slots));
        if attach == MpiAttach::Ssh {
            env.extend(env::ssh_client(implementation).iter().copied());
        }
        if attach != MpiAttach::Agent {
            env.extend(flat(implementation, workers(replica.job)));
        }
    }
    env.extend(hidden_devices(replica));
    env
}

/// Hides devices from a launcher that asks for none: some runtimes show it all of them.
pub(super) fn hidden_devices(replica: &Replica<'_>) -> impl Iterator<Item = (&'static str, &'static str)> {
    let trains = launcher_works(replica.job.object) || accelerators(replica.role.main) > 0;
    let hidden = ["NVIDIA_VISIBLE_DEVICES", "NVIDIA_DRIVER_CAPABILITIES"];
    let hidden = hidden.into_iter().map(|name| (name, ""));
    hidden.filter(move |_| is_launcher(replica) && !trains)
}
