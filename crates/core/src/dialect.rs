//! Whose names, labels and host lists the pods of a job have. It is one table with a line for each
//! dialect.
//!
//! Users of other operators have scripts that look for a pod by name, or for pods by label. If the
//! operator serves their kinds, pods look as these scripts expect. The labels and Services that
//! Trainyard itself uses are the same in every dialect.

use trainyard_api::{Dialect, FieldError, TrainingJob, names};

/// What differs from one dialect to another.
struct NamingScheme {
    /// The framework that it is for; `None` if it is for any.
    framework: Option<&'static str>,
    /// The role whose pod has no index in its name, because there is never a second one.
    single: Option<&'static str>,
    /// How host lists name a pod.
    hosts: HostNames,
    /// Labels that pods have besides ours.
    labels: fn(&TrainingJob, role: &str, index: i32) -> Vec<(&'static str, String)>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum HostNames {
    /// The name of the pod with the domain of the job's pods.
    Full,
    /// The name of the pod alone.
    Pod,
}

const LAUNCHER: &str = "launcher";

const NATIVE: NamingScheme = NamingScheme {
    framework: None,
    single: None,
    hosts: HostNames::Full,
    labels: |_, _, _| Vec::new(),
};

const KUBEFLOW_MPI: NamingScheme = NamingScheme {
    framework: Some("mpi"),
    // In that operator a Job creates the launcher, with five random characters in its name. Ours is
    // predictable.
    single: Some(LAUNCHER),
    hosts: HostNames::Full,
    labels: kubeflow_labels,
};

const BDAP_MPI: NamingScheme = NamingScheme {
    framework: Some("mpi"),
    single: Some(LAUNCHER),
    hosts: HostNames::Pod,
    labels: |_, _, _| Vec::new(),
};

const fn naming_scheme(dialect: Dialect) -> &'static NamingScheme {
    match dialect {
        Dialect::Native => &NATIVE,
        Dialect::KubeflowMpi => &KUBEFLOW_MPI,
        Dialect::BdapMpi => &BDAP_MPI,
    }
}

/// The dialect of a job.
pub(crate) fn of(job: &TrainingJob) -> Dialect {
    job.spec.dialect.unwrap_or_default()
}

/// Returns true if the pods of a role have no index in their names.
pub(crate) fn is_single(dialect: Dialect, role: &str) -> bool {
    naming_scheme(dialect).single == Some(role)
}

/// The name of a pod.
pub(crate) fn pod_name(dialect: Dialect, job: &str, role: &str, index: i32) -> String {
    if is_single(dialect, role) {
        format!("{job}-{role}")
    } else {
        names::pod(job, role, index)
    }
}

/// How host lists name the pods of a role, with `{}` for the index. `domain` is the domain of the
/// job's pods.
pub(crate) fn host_pattern(dialect: Dialect, job: &str, role: &str, domain: &str) -> String {
    let pod = if is_single(dialect, role) {
        format!("{job}-{role}")
    } else {
        format!("{job}-{role}-{{}}")
    };
    match naming_scheme(dialect).hosts {
        HostNames::Full => format!("{pod}.{domain}"),
        HostNames::Pod => pod,
    }
}

/// The labels that a pod has besides ours.
pub(crate) fn labels(job: &TrainingJob, role: &str, index: i32) -> Vec<(&'static str, String)> {
    (naming_scheme(of(job)).labels)(job, role, index)
}

/// Returns everything that is wrong with a job because of its dialect.
pub(crate) fn check(job: &TrainingJob) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let dialect = of(job);
    let given = &job.spec.framework.name;
    if let Some(framework) = naming_scheme(dialect)
        .framework
        .filter(|framework| framework != given)
    {
        errors.push(FieldError::new(
            "spec.dialect",
            format!(
                "{} is for jobs of {framework}, and this one is of {given}: remove it",
                dialect.as_str()
            ),
        ));
    }
    if dialect == Dialect::Native {
        return errors;
    }
    let name = job.metadata.name.as_deref().unwrap_or_default();
    let last = |replicas: Option<i32>| replicas.unwrap_or(1).max(1) - 1;
    let pods = job.spec.roles.iter();
    let pods = pods.map(|role| pod_name(dialect, name, &role.name, last(role.replicas)));
    if let Some(longest) = pods.max_by_key(String::len)
        && longest.len() > names::MAX_NAME
    {
        errors.push(FieldError::new(
            "metadata.name",
            format!(
                "the pod name {longest:?} would have {} characters; at most {} are possible: shorten the name by {}",
                longest.len(),
                names::MAX_NAME,
                longest.len() - names::MAX_NAME
            ),
        ));
    }
    errors
}

/// Workers are counted from 0. If the launcher is a worker too, it is number 0.
fn kubeflow_labels(job: &TrainingJob, role: &str, index: i32) -> Vec<(&'static str, String)> {
    let options = job.spec.framework.mpi.as_ref();
    let launcher_works = options.is_some_and(|options| options.launcher_as_worker == Some(true));
    let name = job.metadata.name.clone().unwrap_or_default();
    let index = match (role == LAUNCHER, launcher_works) {
        (true, false) => None,
        (true, true) => Some(0),
        (false, works) => Some(index + i32::from(works)),
    };
    let mut labels = vec![
        ("training.kubeflow.org/job-name", name),
        ("training.kubeflow.org/job-role", role.to_owned()),
        ("training.kubeflow.org/operator-name", "mpi-operator".to_owned()),
    ];
    labels.extend(index.map(|index| ("training.kubeflow.org/replica-index", index.to_string())));
    labels
}
