//! Names and labels of what a job owns. They are part of the vocabulary: users select and resolve
//! by them.

pub use trainyard_contract::start::{ANNOTATION_START, START_NOW};

/// The longest name a pod may have so that it is also a host name.
pub const MAX_NAME: usize = 63;

/// Label: the job's name.
pub const LABEL_JOB: &str = "trainyard.dev/job";
/// Label: the role's name.
pub const LABEL_ROLE: &str = "trainyard.dev/role";
/// Label: the pod's index within its role.
pub const LABEL_INDEX: &str = "trainyard.dev/index";
/// Label that every child carries.
pub const LABEL_MANAGED_BY: &str = "app.kubernetes.io/managed-by";
/// The value of [`LABEL_MANAGED_BY`].
pub const MANAGED_BY: &str = "trainyard";

/// Annotation of a pod: its container that trains.
pub const ANNOTATION_CONTAINER: &str = "trainyard.dev/container";
/// Annotation of a pod: a hash of the template that it was made from, where pods of other templates
/// are replaced.
pub const ANNOTATION_TEMPLATE: &str = "trainyard.dev/template";
/// Annotation of a pod that was created before its job had a status: a hash of the spec that it was
/// made from.
pub const ANNOTATION_SPEC: &str = "trainyard.dev/spec";

/// Annotation of a pod of a role whose pods start anew together: how often they have.
pub const ANNOTATION_ATTEMPT: &str = "trainyard.dev/attempt";

/// Annotation of a job that was made of an object of another operator: the generation of that
/// object's spec that it follows.
pub const ANNOTATION_GENERATION: &str = "trainyard.dev/generation";
/// Annotation of such a job: what is different from what the other operator would do, a line for
/// each field of the object.
pub const ANNOTATION_NOTES: &str = "trainyard.dev/notes";
/// Annotation of such a job: when its launcher was created, where the deadline of that object
/// begins then.
pub const ANNOTATION_LAUNCHED: &str = "trainyard.dev/launched";
/// Annotation of such a job that is elastic: the number of pods that the object last asked for. A
/// target that somebody has set since holds until the object asks for another number.
pub const ANNOTATION_ASKED_FOR: &str = "trainyard.dev/asked-for";

/// Annotation of a ScaleIn or a ScaleOut that was made of a request of another operator: when that
/// was created. It has its turn as if it had been created then.
pub const ANNOTATION_CREATED: &str = "trainyard.dev/created";

/// Annotation of a job: the size that a ScaleIn or a ScaleOut has given it, and who leaves.
pub const ANNOTATION_SCALE_REQUEST: &str = "trainyard.dev/scale-request";

/// Annotations of a job in the dialect of AresOperator that its pods carry too, as annotations and
/// as labels.
pub const ARES_PASSED_ON: [&str; 3] = [
    "ares.io/ares-queue",
    "ares.io/preemptable",
    "ares.io/job-priority",
];

/// The name of a pod: `<job>-<role>-<index>`.
pub fn pod(job: &str, role: &str, index: i32) -> String {
    format!("{job}-{role}-{index}")
}

/// The name of the job's headless Service, which is also the subdomain of its pods.
pub fn service(job: &str) -> String {
    job.to_owned()
}

/// The name of the Secret with the certificate of an MPI job.
pub fn mpi_secret(job: &str) -> String {
    format!("{job}-mpi")
}

/// The name of the service account, the Role and its binding by which an MPI job starts programs
/// through the API server.
pub fn mpi_account(job: &str) -> String {
    format!("{job}-mpi")
}

/// Returns true if a name is one that [`mpi_account`] gives to some job.
pub fn is_mpi_account(name: &str) -> bool {
    name.strip_suffix("-mpi").is_some_and(|job| !job.is_empty())
}

/// The name of the Secret with the SSH key of an MPI job.
pub fn ssh_secret(job: &str) -> String {
    format!("{job}-ssh")
}

/// The name of the ConfigMap in which users of mpi-operator look for the list of hosts.
pub fn mpi_config(job: &str) -> String {
    format!("{job}-config")
}

/// The name of the job's disruption budget.
pub fn disruption_budget(job: &str) -> String {
    format!("{job}-drain")
}

/// The name of the Service that gives rank 0 an address of its own.
pub fn master_service(job: &str) -> String {
    format!("{job}-master")
}
