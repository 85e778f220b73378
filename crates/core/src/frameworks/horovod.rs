//! `horovod`: a launcher that calls horovodrun, and workers in which it starts processes, over MPI
//! or over Gloo.
//!
//! All is as with `mpi`, whose remote shell horovodrun takes too: it looks at
//! `OMPI_MCA_plm_rsh_agent`, and only if that is `/etc/mpi/kubexec.sh` does it use it, for its own
//! checks and for Gloo as well; with any other value it calls ssh.

use trainyard_api::{FieldError, HorovodController, MpiAttach, MpiImplementation, TrainingJob};

use super::containers;
use super::launcher::{Launcher, attach, field, hosts, implementation, is_launcher, options, slots};
use super::mpi;
use crate::job::{Elasticity, Env, Environment, Framework, Job, Replica, Validation, Variant};
use crate::remote_shell::SHELL;

/// By this horovodrun knows the agent, also where there is no MPI.
const REMOTE_SHELL: &str = "OMPI_MCA_plm_rsh_agent";

/// What else pods find that has nothing to do with MPI.
const WITHOUT_MPI: [&str; 4] = [
    "K_MPI_JOB_ROLE",
    REMOTE_SHELL,
    "NVIDIA_VISIBLE_DEVICES",
    "NVIDIA_DRIVER_CAPABILITIES",
];

/// Seconds in which all workers must have answered horovodrun. Its own 30 are few for many workers
/// that all load Python at once; one that is lost is told at once by the remote shell.
const START_TIMEOUT: &str = "300";

/// What horovodrun gives each process. Its own values come before those of the launcher's
/// environment, which would win.
const OF_PROCESSES: [&str; 10] = [
    "HOROVOD_CONTROLLER",
    "HOROVOD_CROSS_RANK",
    "HOROVOD_CROSS_SIZE",
    "HOROVOD_GLOO_RENDEZVOUS_ADDR",
    "HOROVOD_GLOO_RENDEZVOUS_PORT",
    "HOROVOD_HOSTNAME",
    "HOROVOD_LOCAL_RANK",
    "HOROVOD_LOCAL_SIZE",
    "HOROVOD_RANK",
    "HOROVOD_SIZE",
];

pub(super) fn framework() -> Framework {
    let elastic = Variant {
        applies: |job| job.spec.elastic.is_some(),
        framework: Framework {
            elasticity: Elasticity::Live,
            tells_bounds: true,
            // horovodrun never again uses a host that has failed.
            renames_lost_pods: true,
            ..of_fixed_size()
        },
    };
    Framework {
        variants: vec![elastic],
        ..of_fixed_size()
    }
}

fn of_fixed_size() -> Framework {
    let launcher = Launcher {
        // horovodrun tells mpirun the hosts in its own words, and Open MPI then takes no other
        // names than those by which the hosts call themselves. Pods search the domain of the job.
        short_names: true,
        ..Launcher::default()
    };
    Framework {
        validation: Some(Box::new(Horovod)),
        ..launcher.framework("horovod", Horovod)
    }
}

/// The fewest and the most processes of an elastic job. What is in the launcher besides is there
/// always.
fn bounds(job: &Job<'_>, processes: u32) -> Option<(u32, u32)> {
    let elastic = job.elastic?;
    let role = job.roles.get(elastic.role)?;
    let number = |number: i32| u32::try_from(number).unwrap_or_default();
    let slots = number(slots(job.object, role.main));
    let others = processes.saturating_sub(number(role.replicas()).saturating_mul(slots));
    let of = |pods: i32| number(pods).saturating_mul(slots).saturating_add(others);
    Some((of(elastic.spec.min()), of(elastic.spec.max())))
}

struct Horovod;

fn has_gloo(job: &TrainingJob) -> bool {
    options(job).controller == Some(HorovodController::Gloo)
}

impl Environment for Horovod {
    fn variables(&self, replica: &Replica<'_>) -> Env {
        let job = replica.job.object;
        let implementation = implementation(job);
        let mut env = mpi::variables(replica);
        if attach(job) == MpiAttach::Ssh {
            // horovodrun calls the SSH of the image by itself, with options for ports, keys and
            // host names that it gives to nothing else. Where it finds the agent it takes that for
            // a cluster without SSH, and gives it none of them. So mpirun is to call SSH as
            // horovodrun does, and workers can then start something in others, too.
            env.retain(|name| !mpi::is_of_ssh_client(implementation, name));
        }
        if has_gloo(job) {
            env.retain(|name| WITHOUT_MPI.contains(&name));
        }
        if implementation != MpiImplementation::OpenMPI && attach(job) != MpiAttach::Ssh {
            env.set(REMOTE_SHELL, SHELL);
        }
        if is_launcher(replica) {
            let hosts = hosts(replica);
            let processes = hosts.iter().map(|some| some.count.saturating_mul(some.slots));
            let processes = processes.fold(0, u32::saturating_add);
            env.set("TRAINYARD_PROCESSES", processes);
            if let Some((min, max)) = bounds(replica.job, processes) {
                env.set("TRAINYARD_MIN_PROCESSES", min);
                env.set("TRAINYARD_MAX_PROCESSES", max);
            }
            env.set("HOROVOD_START_TIMEOUT", START_TIMEOUT);
        }
        env
    }

    fn reserved(&self, job: &TrainingJob) -> Vec<&str> {
        mpi::reserved(attach(job) == MpiAttach::Exec)
    }
}

/// Forbids what an elastic job can't have.
fn check_elastic(job: &TrainingJob) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if !has_gloo(job) {
        errors.push(FieldError::new(
            field(job, "controller"),
            "over MPI the number of processes can't change: set controller to Gloo, or remove spec.elastic",
        ));
    }
    if attach(job) != MpiAttach::Agent {
        errors.push(FieldError::new(
            field(job, "attach"),
            "only the agent knows when nothing runs any more in a worker that leaves: remove this, or spec.elastic",
        ));
    }
    errors
}

impl Validation for Horovod {
    fn check(&self, job: &TrainingJob) -> Vec<FieldError> {
        let mut errors = Vec::new();
        if job.spec.elastic.is_some() {
            errors.extend(check_elastic(job));
        }
        if options(job).implementation.is_some() && has_gloo(job) {
            errors.push(FieldError::new(
                field(job, "implementation"),
                "there is no MPI with the controller Gloo: remove this, or set controller to MPI",
            ));
        }
        for (path, _, container) in containers(job) {
            for (e, var) in container.env.iter().flatten().enumerate() {
                if OF_PROCESSES.contains(&&*var.name) {
                    errors.push(FieldError::new(
                        format!("{path}.env[{e}].name"),
                        format!(
                            "{} is what horovodrun gives each process, and with one value for all they would train each for \
                             itself: remove it",
                            var.name
                        ),
                    ));
                }
            }
        }
        errors
    }
}
