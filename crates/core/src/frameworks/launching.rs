//! What frameworks of a launcher and workers have in common. They all start their processes as MPI does, so what a user says
//! of one of them is told to `mpi` in its own words.

use k8s_openapi::api::core::v1::Container;
use trainyard_api::{DeepspeedOptions, HorovodOptions, MpiOptions, RoleSpec, TrainingJob};

/// The role that starts processes in the others.
pub(super) const LAUNCHER: &str = "launcher";
/// The role in which they are started.
pub(super) const WORKER: &str = "worker";

/// What the user says, of whichever framework the job is.
pub(super) fn options(job: &TrainingJob) -> MpiOptions {
    let framework = &job.spec.framework;
    match &*framework.name {
        "horovod" => of_horovod(framework.horovod.clone().unwrap_or_default()),
        "deepspeed" => of_deepspeed(framework.deepspeed.clone().unwrap_or_default()),
        _ => framework.mpi.clone().unwrap_or_default(),
    }
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

// Both are taken apart, and what is made of them is given field by field, so that a new field can't be forgotten here.

fn of_horovod(options: HorovodOptions) -> MpiOptions {
    let HorovodOptions {
        controller: _,
        implementation,
        slots_per_worker,
        attach,
        ssh_auth_mount_path,
        ssh_auth_secret_name,
        launcher_as_worker,
        host_files,
    } = options;
    MpiOptions {
        implementation,
        slots_per_worker,
        attach,
        ssh_auth_mount_path,
        ssh_auth_secret_name,
        launcher_as_worker,
        host_files,
    }
}

fn of_deepspeed(options: DeepspeedOptions) -> MpiOptions {
    let DeepspeedOptions {
        slots_per_worker,
        attach,
        ssh_auth_mount_path,
        ssh_auth_secret_name,
        host_files,
    } = options;
    MpiOptions {
        // Whose mpirun is called, if any, is said on the command line of deepspeed.
        implementation: None,
        slots_per_worker,
        attach,
        ssh_auth_mount_path,
        ssh_auth_secret_name,
        launcher_as_worker: None,
        host_files,
    }
}
