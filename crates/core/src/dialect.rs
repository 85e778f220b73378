//! Whose names, labels and host lists the pods of a job have. It is one table with a line for each
//! dialect.
//!
//! Users of other operators have scripts that look for a pod by name, or for pods by label. If the
//! operator serves their kinds, pods look as these scripts expect. The labels and Services that
//! Trainyard itself uses are the same in every dialect.

use std::fmt;

use trainyard_api::{Dialect, FieldError, MasterService, RoleSpec, TrainingJob, names};

/// What differs from one dialect to another.
struct NamingScheme {
    /// The frameworks that it is for; empty if it is for any.
    frameworks: &'static [&'static str],
    /// What comes first in the names of pods.
    order: NameOrder,
    /// The role whose pod has no index in its name, because there is never a second one.
    single: Option<&'static str>,
    /// How host lists name a pod.
    hosts: HostNames,
    /// Whether pods resolve the names of other pods without a domain.
    short_names: bool,
    /// Which headless Services give pods their names.
    services: Services,
    /// Whether a leader finds 0.0.0.0 where the others find its name, and so listens on all of its
    /// addresses.
    leaders_listen: bool,
    /// Labels that pods have besides ours.
    labels: fn(&TrainingJob, role: &str, index: i32) -> Vec<(&'static str, String)>,
    /// Labels that the Service of a role has besides ours.
    service_labels: fn(&TrainingJob, role: &str) -> Vec<(&'static str, String)>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum NameOrder {
    /// `<job>-<role>-<index>`
    JobFirst,
    /// `<role>-<job>-<index>`
    RoleFirst,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Services {
    /// One for the job.
    OfJob,
    /// One for each role.
    OfRoles,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum HostNames {
    /// The name of the pod with the domain of the job's pods.
    Full,
    /// The name of the pod alone.
    Pod,
}

const LAUNCHER: &str = "launcher";

/// Frameworks and those of their roles that have no Service where other roles have one each: no pod
/// looks for their pods.
const WITHOUT_SERVICE: [(&str, &str); 2] = [("dask", LAUNCHER), ("dask", "worker")];

const NATIVE: NamingScheme = NamingScheme {
    frameworks: &[],
    order: NameOrder::JobFirst,
    single: None,
    hosts: HostNames::Full,
    short_names: false,
    services: Services::OfJob,
    leaders_listen: false,
    labels: |_, _, _| Vec::new(),
    service_labels: |_, _| Vec::new(),
};

const KUBEFLOW_MPI: NamingScheme = NamingScheme {
    frameworks: &["mpi"],
    // In that operator a Job creates the launcher, with five random characters in its name. Ours is
    // predictable.
    single: Some(LAUNCHER),
    labels: kubeflow_labels,
    ..NATIVE
};

const BDAP_MPI: NamingScheme = NamingScheme {
    frameworks: &["mpi"],
    single: Some(LAUNCHER),
    hosts: HostNames::Pod,
    ..NATIVE
};

const DL: NamingScheme = NamingScheme {
    frameworks: &["mxnet", "tensorflow"],
    order: NameOrder::RoleFirst,
    // In that operator each pod has a Service of its name.
    short_names: true,
    labels: dl_labels,
    ..NATIVE
};

const ARES: NamingScheme = NamingScheme {
    services: Services::OfRoles,
    leaders_listen: true,
    labels: ares_labels,
    service_labels: ares_role_labels,
    ..NATIVE
};

const ET: NamingScheme = NamingScheme {
    frameworks: &["horovod"],
    single: Some(LAUNCHER),
    hosts: HostNames::Pod,
    // In that operator each worker has a Service of its name.
    short_names: true,
    labels: et_labels,
    ..NATIVE
};

const fn naming_scheme(dialect: Dialect) -> &'static NamingScheme {
    match dialect {
        Dialect::Native => &NATIVE,
        Dialect::KubeflowMpi => &KUBEFLOW_MPI,
        Dialect::BdapMpi => &BDAP_MPI,
        Dialect::Dl => &DL,
        Dialect::Ares => &ARES,
        Dialect::Et => &ET,
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

/// Returns true if pods resolve the names of other pods of their job without a domain.
pub(crate) fn has_short_names(dialect: Dialect) -> bool {
    naming_scheme(dialect).short_names
}

/// The name of a pod.
pub(crate) fn pod_name(dialect: Dialect, job: &str, role: &str, index: i32) -> String {
    join(dialect, job, role, &index)
}

/// The name of a pod, with the index as it is written unless the pod is single.
fn join(dialect: Dialect, job: &str, role: &str, index: &dyn fmt::Display) -> String {
    let (first, second) = match naming_scheme(dialect).order {
        NameOrder::JobFirst => (job, role),
        NameOrder::RoleFirst => (role, job),
    };
    if is_single(dialect, role) {
        format!("{first}-{second}")
    } else {
        format!("{first}-{second}-{index}")
    }
}

/// The role and the index in the name of a pod, of which a single pod has none. `None` if no pod of
/// the job can have that name. Neither the role nor the index need exist.
pub(crate) fn split<'a>(dialect: Dialect, job: &str, pod: &'a str) -> Option<(&'a str, Option<&'a str>)> {
    let role_of = |name: &'a str| match naming_scheme(dialect).order {
        NameOrder::JobFirst => name.strip_prefix(job)?.strip_prefix('-'),
        NameOrder::RoleFirst => name.strip_suffix(job)?.strip_suffix('-'),
    };
    let single = role_of(pod).filter(|role| is_single(dialect, role));
    let indexed = || {
        let (name, index) = pod.rsplit_once('-')?;
        let role = role_of(name).filter(|role| !is_single(dialect, role))?;
        Some((role, Some(index)))
    };
    single.map(|role| (role, None)).or_else(indexed)
}

/// How host lists name the pods of a role, with `{}` for the index. `domain` is the domain of the
/// job's pods.
pub(crate) fn host_pattern(dialect: Dialect, job: &str, role: &str, domain: &str) -> String {
    let pod = join(dialect, job, role, &"{}");
    match naming_scheme(dialect).hosts {
        HostNames::Full => format!("{pod}.{domain}"),
        HostNames::Pod => pod,
    }
}

/// The positions of the roles that have a headless Service of their own. `None` if there is one for
/// all of them.
pub(crate) fn roles_with_services(job: &TrainingJob) -> Option<impl Iterator<Item = usize>> {
    let framework = &*job.spec.framework.name;
    let roles = job.spec.roles.iter().enumerate();
    let found = roles.filter(move |(_, role)| !WITHOUT_SERVICE.contains(&(framework, &role.name)));
    (naming_scheme(of(job)).services == Services::OfRoles).then(|| found.map(|(role, _)| role))
}

/// Returns true if a Service of a job is a headless one, which never changes.
pub(crate) fn is_headless(job: &TrainingJob, service: &str) -> bool {
    let name = job.metadata.name.as_deref().unwrap_or_default();
    let mut roles = job.spec.roles.iter();
    match naming_scheme(of(job)).services {
        Services::OfJob => service == names::service(name),
        Services::OfRoles => roles.any(|role| service == self::service(of(job), name, &role.name)),
    }
}

/// The labels that the Service of a role has besides ours.
pub(crate) fn service_labels(job: &TrainingJob, role: &str) -> Vec<(&'static str, String)> {
    (naming_scheme(of(job)).service_labels)(job, role)
}

/// Returns true if the only pod of a role is found by the name of the role's Service.
pub(crate) fn has_role_services(dialect: Dialect) -> bool {
    naming_scheme(dialect).services == Services::OfRoles
}

/// Returns true if a leader finds 0.0.0.0 where the others find its name.
pub(crate) fn leaders_listen(dialect: Dialect) -> bool {
    naming_scheme(dialect).leaders_listen
}

/// The name of the headless Service that gives the pods of a role their names.
pub(crate) fn service(dialect: Dialect, job: &str, role: &str) -> String {
    match naming_scheme(dialect).services {
        Services::OfJob => names::service(job),
        Services::OfRoles => format!("{job}-{role}"),
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
    let frameworks = naming_scheme(dialect).frameworks;
    if !frameworks.is_empty() && !frameworks.contains(&given.as_str()) {
        errors.push(FieldError::new(
            "spec.dialect",
            format!(
                "{} is for jobs of {}, and this one is of {given}: remove it",
                dialect.as_str(),
                frameworks.join(" or ")
            ),
        ));
    }
    if dialect == Dialect::Native {
        return errors;
    }
    let name = job.metadata.name.as_deref().unwrap_or_default();
    let pytorch = job.spec.framework.pytorch.as_ref();
    let has_master = pytorch.is_some_and(|options| options.master_service == Some(MasterService::ClusterIP));
    if has_master && naming_scheme(dialect).services == Services::OfRoles {
        errors.push(FieldError::new(
            "spec.framework.pytorch.masterService",
            format!(
                "in the dialect {} the Service {} is that of a role: remove this",
                dialect.as_str(),
                names::master_service(name)
            ),
        ));
    }
    let last = |role: &RoleSpec| job.spec.most_replicas(role).max(1) - 1;
    let pods = job.spec.roles.iter();
    let pods = pods.map(|role| pod_name(dialect, name, &role.name, last(role)));
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

fn ares_labels(job: &TrainingJob, role: &str, index: i32) -> Vec<(&'static str, String)> {
    let mut labels = ares_role_labels(job, role);
    labels.push(("ares.io/replica-index", index.to_string()));
    labels
}

fn ares_role_labels(job: &TrainingJob, role: &str) -> Vec<(&'static str, String)> {
    vec![
        ("ares.io/group-name", "ares.io".to_owned()),
        ("ares.io/job-name", job.metadata.name.clone().unwrap_or_default()),
        ("ares.io/replica-type", role.to_owned()),
    ]
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

fn dl_labels(job: &TrainingJob, role: &str, index: i32) -> Vec<(&'static str, String)> {
    let name = job.metadata.name.as_deref().unwrap_or_default();
    vec![
        ("job_name", name.to_owned()),
        ("pod_name", pod_name(Dialect::Dl, name, role, index)),
    ]
}

/// The launcher, of which there is one, is not counted.
fn et_labels(job: &TrainingJob, role: &str, index: i32) -> Vec<(&'static str, String)> {
    let name = job.metadata.name.clone().unwrap_or_default();
    let mut labels = vec![
        ("group-name", "kai.alibabacloud.com".to_owned()),
        ("training-job-name", name),
        ("training-job-role", role.to_owned()),
    ];
    labels.extend((role != LAUNCHER).then(|| ("replica-index", index.to_string())));
    labels
}
