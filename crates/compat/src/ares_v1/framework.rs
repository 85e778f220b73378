//! What AresOperator says of each framework: what it fills in, and what it refuses.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, ContainerPort};
use trainyard_api::{
    BaguaOptions, DaskOptions, FieldError, FrameworkSpec, HostFile, HostFileFormat, LauncherOptions,
    MpiAttach, MpiImplementation, PytorchOptions, RestartPolicy, TensorflowOptions, UpdatePolicy,
};

use super::{HOST_FILES, Implementation, ROLES, Spec, TheirFramework, TheirRole};

const CHIEF: &str = "chief";
const ETCD: &str = "etcd";
pub const LAUNCHER: &str = "launcher";
const LEAD_WORKER: &str = "leadworker";
const MASTER: &str = "master";
const SCHEDULER: &str = "scheduler";
pub const WORKER: &str = "worker";

/// Where a launcher finds its hosts in any case.
const HOST_FILE: &str = "/etc/mpi/hostfile";

/// What its `frameworkType` says about a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framework {
    Bagua {
        elastic: bool,
    },
    Custom,
    Dask {
        leads: bool,
        works: bool,
    },
    Mpi,
    Pytorch,
    Standalone,
    Tensorflow {
        dynamic: bool,
        has_chief: bool,
    },
    /// None, or one that there is not: what else is wrong with the job is found all the same.
    Unknown,
}

type Roles = BTreeMap<String, TheirRole>;

impl Framework {
    pub fn of(spec: &Spec, roles: &Roles) -> Result<Self, FieldError> {
        let options = spec.framework.as_ref();
        let has = |role: &str| roles.contains_key(role);
        let bagua = || options?.bagua.as_ref()?.enable_elastic;
        let tensorflow = || options?.tensorflow.as_ref()?.enable_dynamic_worker;
        Ok(match spec.framework_type.as_deref() {
            Some("bagua") => Self::Bagua {
                elastic: bagua().unwrap_or_default(),
            },
            Some("custom") => Self::Custom,
            Some("dask") => Self::Dask {
                leads: has(LEAD_WORKER),
                works: has(WORKER),
            },
            Some("mpi") => Self::Mpi,
            Some("pytorch") => Self::Pytorch,
            Some("standalone") => Self::Standalone,
            Some("tensorflow") => Self::Tensorflow {
                dynamic: tensorflow().unwrap_or_default(),
                has_chief: has(CHIEF),
            },
            other => return Err(no_framework(other)),
        })
    }

    pub fn name(self) -> &'static str {
        match self {
            Self::Bagua { .. } => "bagua",
            Self::Custom => "custom",
            Self::Dask { .. } => "dask",
            Self::Mpi => "mpi",
            Self::Pytorch => "pytorch",
            Self::Standalone => "standalone",
            Self::Tensorflow { .. } => "tensorflow",
            Self::Unknown => "unknown",
        }
    }

    /// The roles that must succeed for the job to, of those that it has; empty for all.
    pub fn must_succeed(self) -> &'static [&'static str] {
        match self {
            Self::Bagua { elastic: true } | Self::Standalone => &[WORKER],
            Self::Bagua { elastic: false } | Self::Pytorch => &[MASTER, WORKER],
            Self::Dask { .. } | Self::Mpi => &[LAUNCHER],
            Self::Tensorflow { .. } => &[MASTER, CHIEF, WORKER],
            Self::Custom | Self::Unknown => &[],
        }
    }

    /// Whether the job goes on when a role has failed: workers of TensorFlow that have a chief.
    pub fn goes_on_without(self, role: &str) -> bool {
        matches!(self, Self::Tensorflow { has_chief: true, .. }) && role == WORKER
    }

    /// The restart policy of a role.
    pub fn restart_policy(self, role: &str, given: Option<RestartPolicy>) -> RestartPolicy {
        let is_scheduler = matches!(self, Self::Dask { .. }) && role == SCHEDULER;
        let is_expendable = self.goes_on_without(role) && given != Some(RestartPolicy::Always);
        if is_scheduler || is_expendable {
            RestartPolicy::OnFailure
        } else {
            given.unwrap_or(RestartPolicy::Never)
        }
    }

    /// What a role waits for whose user does not say.
    pub fn depends_on(self, role: &str) -> Option<&'static str> {
        match (self, role) {
            (Self::Bagua { elastic: false } | Self::Pytorch, WORKER) => Some(MASTER),
            (Self::Bagua { elastic: true }, WORKER) => Some(ETCD),
            (Self::Mpi | Self::Dask { works: true, .. }, LAUNCHER) => Some(WORKER),
            (Self::Dask { leads: true, .. }, LAUNCHER | WORKER) => Some(LEAD_WORKER),
            (Self::Dask { .. }, LAUNCHER | LEAD_WORKER) => Some(SCHEDULER),
            _ => None,
        }
    }

    /// The name of the container that trains, where a role has one of that name.
    pub fn main_container(self) -> Option<&'static str> {
        match self {
            // Lists of hosts are in the first container.
            Self::Mpi | Self::Custom | Self::Standalone | Self::Unknown => None,
            _ => Some(self.name()),
        }
    }

    /// Whether pods may be added and removed while the job runs.
    pub fn update_policy(self) -> Option<UpdatePolicy> {
        let rolls = match self {
            Self::Custom | Self::Standalone | Self::Dask { .. } => true,
            Self::Tensorflow { dynamic, .. } => dynamic,
            Self::Bagua { .. } | Self::Mpi | Self::Pytorch | Self::Unknown => false,
        };
        rolls.then_some(UpdatePolicy::Roll)
    }

    /// What AresOperator refuses, or what it could not stand, beyond what is refused of every job
    /// of the framework.
    pub fn check(self, spec: &Spec, roles: &Roles) -> Vec<FieldError> {
        let mut errors = Vec::new();
        if roles.is_empty() {
            errors.push(FieldError::new(
                ROLES,
                "is missing: a job needs at least one role",
            ));
        }
        let mut need = |names: &[&str]| {
            for name in names.iter().filter(|name| !roles.contains_key(**name)) {
                let which = if *name == LEAD_WORKER { " with workers" } else { "" };
                errors.push(FieldError::new(
                    format!("{ROLES}.{name}"),
                    format!("is missing: a job of {}{which} needs this role", self.name()),
                ));
            }
        };
        match self {
            Self::Bagua { elastic: true } => need(&[ETCD, WORKER]),
            Self::Bagua { elastic: false } | Self::Pytorch => need(&[MASTER]),
            Self::Dask { works: true, .. } => need(&[LAUNCHER, SCHEDULER, LEAD_WORKER]),
            Self::Dask { .. } => need(&[LAUNCHER, SCHEDULER]),
            Self::Mpi => need(&[LAUNCHER, WORKER]),
            Self::Standalone => need(&[WORKER]),
            Self::Custom | Self::Tensorflow { .. } | Self::Unknown => {}
        }
        match self {
            Self::Bagua { elastic } => errors.extend(check_bagua(elastic, spec, roles)),
            Self::Dask { .. } => errors.extend(check_dask(roles)),
            Self::Pytorch => errors.extend(roles.get(MASTER).and_then(check_master)),
            Self::Tensorflow { .. } => {
                let missing = roles
                    .iter()
                    .filter(|(_, role)| container(role, self.name()).is_none());
                errors.extend(missing.map(|(name, _)| no_container(name, self.name())));
            }
            Self::Custom | Self::Mpi | Self::Standalone | Self::Unknown => {}
        }
        errors
    }

    /// The options of the framework.
    pub fn options(self, spec: &Spec, roles: &Roles, notes: &mut Vec<String>) -> FrameworkSpec {
        let mut options = FrameworkSpec {
            name: self.name().to_owned(),
            ..FrameworkSpec::default()
        };
        let is_bagua = matches!(self, Self::Bagua { .. });
        if spec.available_ports.is_some() && !is_bagua {
            notes.push("spec.availablePorts: are for bagua; left out".to_owned());
        }
        notes.extend(self.options_of_others(spec));
        match self {
            Self::Bagua { elastic } => options.bagua = Some(bagua(elastic, spec, notes)),
            Self::Dask { .. } => {
                let scheduler = ports(roles.get(SCHEDULER), self.name());
                let leader = roles.get(LEAD_WORKER).or_else(|| roles.get(LAUNCHER));
                let number = |port: Option<&ContainerPort>| port.map(|port| port.container_port);
                options.dask = Some(DaskOptions {
                    port: number(scheduler.first()),
                    dashboard_port: number(scheduler.get(1)),
                    master_port: number(ports(leader, self.name()).first()),
                    adaptive: None,
                });
            }
            Self::Mpi => options.mpi = Some(mpi(spec, roles)),
            Self::Pytorch => {
                options.pytorch = Some(PytorchOptions {
                    // Whatever accelerators a pod asks for.
                    procs_per_node: Some(1),
                    port: roles.get(MASTER).and_then(master_port),
                    ..PytorchOptions::default()
                });
            }
            Self::Tensorflow { dynamic, .. } => {
                options.tensorflow = dynamic.then(|| TensorflowOptions {
                    dynamic_workers: Some(true),
                    ..TensorflowOptions::default()
                });
            }
            Self::Custom | Self::Standalone | Self::Unknown => {}
        }
        options
    }

    /// What is to be told of options that belong to other frameworks.
    fn options_of_others(self, spec: &Spec) -> Vec<String> {
        let none = TheirFramework::default();
        let given = spec.framework.as_ref().unwrap_or(&none);
        let blocks = [
            ("bagua", given.bagua.is_some()),
            ("mpi", given.mpi.is_some()),
            ("tensorflow", given.tensorflow.is_some()),
        ];
        let others = blocks
            .into_iter()
            .filter(|(name, is_given)| *is_given && *name != self.name());
        others
            .map(|(name, _)| {
                format!(
                    "spec.framework.{name}: is of no use to a job of {}; left out",
                    self.name()
                )
            })
            .collect()
    }
}

fn no_framework(given: Option<&str>) -> FieldError {
    let problem = match given {
        Some("demo") => {
            "demo creates no pods: it shows developers of AresOperator where to begin. Give".to_owned()
        }
        Some(other) => format!("there is no framework {other:?}: give"),
        None => "is missing: give".to_owned(),
    };
    FieldError::new(
        "spec.frameworkType",
        format!("{problem} bagua, custom, dask, mpi, pytorch, standalone or tensorflow"),
    )
}

fn bagua(elastic: bool, spec: &Spec, notes: &mut Vec<String>) -> BaguaOptions {
    let ports = spec.available_ports.clone().unwrap_or_default();
    let given = spec.framework.as_ref().and_then(|given| given.bagua.as_ref());
    let sizes = given.map(|given| (given.min_replicas, given.max_replicas));
    let (min_replicas, max_replicas) = sizes.unwrap_or_default();
    if !elastic && (min_replicas.or(max_replicas)).is_some() {
        notes.push(
            "spec.framework.bagua: minReplicas and maxReplicas are for enableElastic; left out".to_owned(),
        );
    }
    BaguaOptions {
        ports,
        min_replicas: min_replicas.filter(|_| elastic),
        max_replicas: max_replicas.filter(|_| elastic),
    }
}

fn mpi(spec: &Spec, roles: &Roles) -> LauncherOptions {
    let given = spec.framework.as_ref().and_then(|given| given.mpi.as_ref());
    let implementation = given.and_then(|given| given.implementation).unwrap_or_default();
    let (implementation, format) = match implementation {
        Implementation::OpenMpi => (MpiImplementation::OpenMPI, HostFileFormat::OpenMPI),
        Implementation::Mpich => (MpiImplementation::MPICH, HostFileFormat::MPICH),
    };
    let slots = given.and_then(|given| given.replicas_per_node);
    let launcher = roles.get(LAUNCHER).and_then(|role| role.dependence.as_ref());
    let paths = launcher.and_then(|dependence| dependence.mpi_host_file.as_deref());
    let paths = paths.unwrap_or_default().split(',').map(str::trim);
    let paths = paths.filter(|path| !path.is_empty() && *path != HOST_FILE);
    let files: Vec<HostFile> = paths
        .map(|path| HostFile {
            path: path.to_owned(),
            format,
        })
        .collect();
    LauncherOptions {
        implementation: Some(implementation),
        // To their operator, 0 is what is not given.
        slots_per_worker: Some(slots.filter(|slots| *slots != 0).unwrap_or(1)),
        // Theirs leaves it to the image how mpirun reaches workers. This works with any.
        attach: Some(MpiAttach::Agent),
        host_files: (!files.is_empty()).then_some(files),
        ..LauncherOptions::default()
    }
}

fn check_bagua(elastic: bool, spec: &Spec, roles: &Roles) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let ports = spec.available_ports.as_deref().unwrap_or_default().len();
    let workers = roles.get(WORKER).map_or(0, |role| role.replicas.unwrap_or(1));
    let (least, why) = if elastic {
        let workers = usize::try_from(workers).unwrap_or(0);
        (workers.saturating_add(2), "two for etcd and one for each worker")
    } else {
        (2, "one for SSH and one for the master")
    };
    if ports < least {
        errors.push(FieldError::new(
            "spec.availablePorts",
            format!("{}: give at least {least}, {why}", not_enough(ports)),
        ));
    }
    if !elastic && roles.contains_key(ETCD) {
        errors.push(FieldError::new(
            format!("{ROLES}.{ETCD}"),
            "is for elastic jobs: set spec.framework.bagua.enableElastic, or remove it",
        ));
    }
    errors
}

fn check_dask(roles: &Roles) -> Vec<FieldError> {
    let wanted = [
        (SCHEDULER, 2..=2, "2 ports, its own and that of its dashboard"),
        (LEAD_WORKER, 1..=1, "1 port, which is MASTER_PORT"),
        (LAUNCHER, 1..=usize::MAX, "at least 1 port"),
    ];
    let there = wanted
        .into_iter()
        .filter_map(|(name, range, what)| Some((name, roles.get(name)?, range, what)));
    there
        .filter_map(|(name, role, range, what)| {
            let Some((at, main)) = container(role, "dask") else {
                return Some(no_container(name, "dask"));
            };
            let ports = main.ports.as_ref().map_or(0, Vec::len);
            (!range.contains(&ports)).then(|| {
                FieldError::new(
                    format!("{ROLES}.{name}.template.spec.containers[{at}].ports"),
                    format!(
                        "has {}: the container \"dask\" of the {name} needs {what}",
                        counted(ports)
                    ),
                )
            })
        })
        .collect()
}

fn counted(ports: usize) -> String {
    let plural = if ports == 1 { "" } else { "s" };
    format!("{ports} port{plural}")
}

fn not_enough(ports: usize) -> String {
    let verb = if ports == 1 { "is" } else { "are" };
    format!("{} {verb} not enough", counted(ports))
}

/// What is wrong with the master of PyTorch.
fn check_master(master: &TheirRole) -> Option<FieldError> {
    let name = Framework::Pytorch.name();
    let Some((at, _)) = container(master, name) else {
        return Some(no_container(MASTER, name));
    };
    master_port(master).is_none().then(|| {
        FieldError::new(
            format!("{ROLES}.{MASTER}.template.spec.containers[{at}].ports"),
            "has no port named \"pytorch\", which is MASTER_PORT: add it",
        )
    })
}

fn master_port(master: &TheirRole) -> Option<i32> {
    let name = Framework::Pytorch.name();
    let mut ports = ports(Some(master), name).iter();
    let port = ports.find(|port| port.name.as_deref() == Some(name))?;
    Some(port.container_port)
}

fn no_container(role: &str, name: &str) -> FieldError {
    FieldError::new(
        format!("{ROLES}.{role}.template.spec.containers"),
        format!("has no container named {name:?}, which is the one that trains: name it so"),
    )
}

/// The container of a name, and its position.
fn container<'a>(role: &'a TheirRole, name: &str) -> Option<(usize, &'a Container)> {
    let pod = role.template.as_ref()?.spec.as_ref()?;
    let mut containers = pod.containers.iter().enumerate();
    containers.find(|(_, container)| container.name == name)
}

fn ports<'a>(role: Option<&'a TheirRole>, container: &str) -> &'a [ContainerPort] {
    let found = role.and_then(|role| self::container(role, container));
    let ports = found.and_then(|(_, container)| container.ports.as_deref());
    ports.unwrap_or_default()
}

/// What is wrong with lists of hosts that a role asks for.
pub fn check_host_files(framework: Framework, role: &str) -> Option<FieldError> {
    let has_lists = framework == Framework::Mpi && role == LAUNCHER;
    (!has_lists && framework != Framework::Unknown).then(|| {
        FieldError::new(
            format!("{ROLES}.{role}.dependence.mpiHostFile"),
            format!("only the launcher of a job of mpi has lists of hosts ({HOST_FILES}): remove it"),
        )
    })
}
