//! `horovod`: a launcher that calls horovodrun, and workers in which it starts processes, over MPI or over Gloo.
//!
//! All is as with `mpi`, whose remote shell horovodrun takes too: it looks at `OMPI_MCA_plm_rsh_agent`, and only if that is
//! `/etc/mpi/kubexec.sh` does it use it, for its own checks and for Gloo as well; with any other value it calls ssh.

use trainyard_api::{
    FieldError, HorovodController, HorovodOptions, MpiAttach, MpiImplementation, RestartPolicy, TrainingJob,
};

use super::containers;
use super::launching::field;
use super::mpi::{self, Mpi};
use crate::job::{Contribution, Framework, Job, RemoteShell};
use crate::model::PodKey;
use crate::remote_shell::SHELL;
use crate::view::Settings;

/// By this horovodrun knows the agent, also where there is no MPI.
const REMOTE_SHELL: &str = "OMPI_MCA_plm_rsh_agent";

/// What else pods find that has nothing to do with MPI.
const WITHOUT_MPI: [&str; 4] = [
    "K_MPI_JOB_ROLE",
    REMOTE_SHELL,
    "NVIDIA_VISIBLE_DEVICES",
    "NVIDIA_DRIVER_CAPABILITIES",
];

/// Seconds in which all workers must have answered horovodrun. Its own 30 are few for many workers that all load Python at once;
/// one that is lost is told at once by the remote shell.
const START_TIMEOUT: &str = "300";

/// What horovodrun gives each process. Its own values come before those of the launcher's environment, which would win.
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

pub(super) struct Horovod;

fn options(job: &TrainingJob) -> HorovodOptions {
    job.spec.framework.horovod.clone().unwrap_or_default()
}

impl Framework for Horovod {
    fn name(&self) -> &'static str {
        "horovod"
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
        let implementation = options(job.object).implementation.unwrap_or_default();
        if mpi::attach(job.object) == MpiAttach::Ssh {
            // horovodrun calls the SSH of the image by itself, with options for ports, keys and host names that it gives to
            // nothing else. Where it finds the agent it takes that for a cluster without SSH, and gives it none of them. So
            // mpirun is to call SSH as horovodrun does, and workers can then start something in others, too.
            given
                .env
                .retain(|(name, _)| !mpi::is_of_ssh_client(implementation, name));
        }
        if options(job.object).controller == Some(HorovodController::Gloo) {
            given.env.retain(|(name, _)| WITHOUT_MPI.contains(&&**name));
        }
        let mut add = |name: &str, value: String| given.env.push((name.to_owned(), value));
        if implementation != MpiImplementation::OpenMPI && mpi::attach(job.object) != MpiAttach::Ssh {
            add(REMOTE_SHELL, SHELL.to_owned());
        }
        if mpi::is_launcher(job, pod) {
            let hosts = mpi::hosts(job, settings);
            let processes = hosts.iter().map(|some| some.count.saturating_mul(some.slots));
            add(
                "TRAINYARD_PROCESSES",
                processes.fold(0, i32::saturating_add).to_string(),
            );
            add("HOROVOD_START_TIMEOUT", START_TIMEOUT.to_owned());
        }
        given
    }

    fn remote_shell(&self, job: &Job<'_>, settings: &Settings, pod: PodKey) -> Option<RemoteShell> {
        let mut shell = Mpi.remote_shell(job, settings, pod)?;
        for hosts in &mut shell.hosts {
            // horovodrun tells mpirun the hosts in its own words, and Open MPI then takes no other names than those by which
            // the hosts call themselves. Pods search the domain of the job.
            let name = hosts.pattern.split('.').next().unwrap_or_default();
            hosts.pattern = name.to_owned();
        }
        Some(shell)
    }

    fn check(&self, job: &TrainingJob) -> Vec<FieldError> {
        let mut errors = Mpi.check(job);
        let options = options(job);
        if options.implementation.is_some() && options.controller == Some(HorovodController::Gloo) {
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
