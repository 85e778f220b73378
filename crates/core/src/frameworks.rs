//! What each framework says about a job. One file each, one table, in one order.
//!
//! A framework says; it does not do. It sees a parsed job and answers questions, and it can't change the spec. To add
//! one: a file here, a line in [`FRAMEWORKS`], an example and a page in `docs/frameworks/`.

mod accelerators;
mod custom;
mod deepspeed;
mod horovod;
mod hostfiles;
mod launching;
mod mounts;
mod mpi;
mod pytorch;

use k8s_openapi::api::core::v1::Container;
use serde::Serialize;
use trainyard_api::{Dependency, FieldError, HostFile, RestartPolicy, RoleSpec, TrainingJob};

use crate::attach::{SILENCE, SILENCES};
use crate::build;
use crate::exec::ExecRight;
use crate::job::{Job, Role};
use crate::plan::{PodKey, ServiceKey};
use crate::view::Settings;

pub use accelerators::accelerators;
pub use mounts::{Content, Place};

/// Every framework, in the order in which they are listed to users.
pub static FRAMEWORKS: &[&dyn Framework] = &[
    &pytorch::Pytorch,
    &mpi::Mpi,
    &horovod::Horovod,
    &deepspeed::Deepspeed,
    &custom::Custom,
];

/// The framework that says the least.
pub(crate) static ANY: &dyn Framework = &custom::Custom;

/// What a framework may say.
pub trait Framework: Sync {
    /// Its name in `spec.framework.name`.
    fn name(&self) -> &'static str;

    /// The framework that says all that this one does not. Default: none.
    fn base(&self) -> Option<&'static dyn Framework> {
        None
    }

    /// The roles a job of this framework may have; `None`: any.
    fn roles(&self) -> Option<&'static [RoleRule]> {
        self.base()?.roles()
    }

    /// The restart policy of a role whose user gave none.
    fn restart_policy(&self, role: &str) -> RestartPolicy;

    /// The sets of roles, by position, any of which makes the job succeed. Default: all roles.
    fn succeeded_when(&self, roles: &[Role<'_>]) -> Vec<Vec<usize>> {
        match self.base() {
            Some(base) => base.succeeded_when(roles),
            None => vec![(0..roles.len()).collect()],
        }
    }

    /// The sets of roles, by position, any of which makes the job fail. Default: any role.
    fn failed_when(&self, roles: &[Role<'_>]) -> Vec<Vec<usize>> {
        match self.base() {
            Some(base) => base.failed_when(roles),
            None => (0..roles.len()).map(|role| vec![role]).collect(),
        }
    }

    /// What a role waits for whose user says nothing; `roles` are the names of all roles of the job. Default: nothing.
    fn dependencies(&self, role: &str, roles: &[&str]) -> Vec<Dependency> {
        let base = self.base();
        base.map(|base| base.dependencies(role, roles))
            .unwrap_or_default()
    }

    /// Whether the pods of a job train as one: where one ends, the others can't go on, and end too. Default: each trains for itself.
    fn trains_as_one(&self) -> bool {
        self.base().is_some_and(Framework::trains_as_one)
    }

    /// Variables that users must not set, because a wrong value keeps the pods from finding each other. One that ends in
    /// `*` stands for all that begin so.
    fn reserved_env(&self, job: &TrainingJob) -> Vec<&'static str> {
        self.base().map(|base| base.reserved_env(job)).unwrap_or_default()
    }

    /// What a pod finds in its containers.
    fn contribution(&self, job: &Job<'_>, settings: &Settings, pod: PodKey) -> Contribution;

    /// The Services a job needs besides its headless one.
    fn services(&self, job: &Job<'_>) -> Vec<ExtraService> {
        self.base().map(|base| base.services(job)).unwrap_or_default()
    }

    /// What the agent does in a pod besides waiting; its pods can't be made without. Default: nothing.
    fn attachment(&self, job: &Job<'_>, settings: &Settings, pod: PodKey) -> Option<Attachment> {
        self.base()?.attachment(job, settings, pod)
    }

    /// Whether pods that run go on when the number of pods of a role changes: what they were told at their start still holds
    /// then, or is kept current. Default: they do.
    fn resizes(&self) -> bool {
        self.base().is_none_or(Framework::resizes)
    }

    /// The credentials by which the pods of a job know each other, without which none of them starts. Default: none.
    fn credentials(&self, job: &TrainingJob) -> Option<Credentials> {
        self.base()?.credentials(job)
    }

    /// The right of some pods to start programs in others through the API server. Default: none.
    fn exec(&self, job: &Job<'_>) -> Option<ExecRight> {
        self.base()?.exec(job)
    }

    /// The places where the operator mounts something into the containers of a role: volumes of users keep clear of them.
    fn places(&self, job: &TrainingJob, role: &str) -> Vec<Place> {
        self.base().map(|base| base.places(job, role)).unwrap_or_default()
    }

    /// What is wrong with a job beyond the rules of every job, [`Framework::roles`], [`Framework::reserved_env`] and
    /// [`Framework::places`].
    fn check(&self, job: &TrainingJob) -> Vec<FieldError> {
        self.base().map(|base| base.check(job)).unwrap_or_default()
    }

    /// All that is wrong with a job as far as the framework can tell.
    fn validate(&self, job: &TrainingJob) -> Vec<FieldError> {
        let mut errors = Vec::new();
        if let Some(rules) = self.roles() {
            check_roles(self.name(), rules, job, &mut errors);
        }
        check_env(self.name(), &self.reserved_env(job), job, &mut errors);
        errors.extend(mounts::check(job, |role| self.places(job, role)));
        errors.extend(self.check(job));
        errors
    }
}

/// A role that a framework knows.
#[derive(Clone, Copy, Debug)]
pub struct RoleRule {
    /// Its name.
    pub name: &'static str,
    /// The most pods it may have.
    pub max: Option<i32>,
    /// Whether every job has it.
    pub required: bool,
}

/// What a framework adds to a pod.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Contribution {
    /// Variables for every container. One that the user has set wins.
    pub env: Vec<(String, String)>,
    /// The command of the main container, where the user gave neither command nor arguments.
    pub command: Option<Vec<String>>,
    /// Ports of the main container, by name, added unless the user has named that number.
    pub ports: Vec<(&'static str, i32)>,
}

/// What the agent does in a pod besides waiting: it puts itself and the lists of the job's hosts there, so that programs can be
/// started in other pods, and lets other pods start programs in the main container.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Attachment {
    /// The hosts that are listed, in order.
    pub hosts: Vec<Hosts>,
    /// The files that list them, where the pod's containers find them.
    pub files: Vec<HostFile>,
    /// Whether other pods start programs in this one.
    pub serves: bool,
    /// Whether the lists follow the pods that the job has while it runs.
    pub follows: bool,
    /// Programs that are the agent under another name, where the pod's containers find them.
    pub programs: &'static [&'static str],
}

/// Hosts of one role.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Hosts {
    /// Their names, with `{}` for the index.
    pub pattern: String,
    /// The first index.
    pub from: i32,
    /// How many there are.
    pub count: i32,
    /// How many processes each may have.
    pub slots: i32,
    /// The role whose pods they are, where their number may change.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub role: Option<String>,
}

/// Credentials by which the pods of a job know each other, and where main containers find them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Credentials {
    /// What they are.
    pub identity: Identity,
    /// The directory in which they are.
    pub directory: String,
    /// The role that starts programs in the others: as long as its pods run, the job may come to its end.
    pub caller: &'static str,
    /// The Secret of the user's in which they are. `None`: one is made for the job.
    pub given: Option<String>,
}

impl Credentials {
    /// The name of the Secret in which they are.
    pub fn secret_name(&self, job: &str) -> String {
        match &self.given {
            Some(name) => name.clone(),
            None => build::secret_name(job, self.identity),
        }
    }

    /// What the Secret holds that is made for the job and kept the same for all of its pods. One of the user's is the user's
    /// affair: nobody makes it, looks for it or asks whose it is.
    pub fn made(&self) -> Option<Identity> {
        self.given.is_none().then_some(self.identity)
    }
}

/// By what the pods of a job know each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Identity {
    /// A certificate, for servers and clients alike, of an authority that has signed nothing else.
    Certificate,
    /// A key for SSH, for servers and clients alike.
    SshKey,
}

impl Identity {
    /// All there are.
    pub const ALL: [Self; 2] = [Self::Certificate, Self::SshKey];
}

/// A Service besides the headless one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExtraService {
    /// Which one.
    pub key: ServiceKey,
    /// The pod behind it.
    pub pod: PodKey,
    /// The name of its port.
    pub port_name: &'static str,
    /// Its port.
    pub port: i32,
}

/// The framework of a name.
pub fn find(name: &str) -> Option<&'static dyn Framework> {
    FRAMEWORKS
        .iter()
        .copied()
        .find(|framework| framework.name() == name)
}

/// The sentence for a framework that does not exist.
pub fn unknown(name: &str) -> String {
    let known: Vec<&str> = FRAMEWORKS.iter().map(|framework| framework.name()).collect();
    format!("there is no framework {name:?}: use one of {}", known.join(", "))
}

fn check_roles(framework: &str, rules: &[RoleRule], job: &TrainingJob, errors: &mut Vec<FieldError>) {
    let known: Vec<&str> = rules.iter().map(|rule| rule.name).collect();
    let is_there = |rule: &RoleRule| job.spec.roles.iter().any(|role| role.name == rule.name);
    for rule in rules.iter().filter(|rule| rule.required && !is_there(rule)) {
        errors.push(FieldError::new(
            "spec.roles",
            format!("{framework} jobs need a role {:?}: add it", rule.name),
        ));
    }
    for (i, role) in job.spec.roles.iter().enumerate() {
        let Some(rule) = rules.iter().find(|rule| rule.name == role.name) else {
            errors.push(FieldError::new(
                format!("spec.roles[{i}].name"),
                format!(
                    "{framework} has no role {:?}: use {}",
                    role.name,
                    known.join(" or ")
                ),
            ));
            continue;
        };
        if let Some(max) = rule
            .max
            .filter(|max| role.replicas.is_some_and(|replicas| replicas > *max))
        {
            errors.push(FieldError::new(
                format!("spec.roles[{i}].replicas"),
                format!(
                    "{framework} jobs have at most {max} {:?} pod: set replicas to {max}",
                    role.name
                ),
            ));
        }
    }
}

/// Whether a variable is one of those that users must not set.
fn is_reserved(name: &str, reserved: &[&str]) -> bool {
    reserved.iter().any(|reserved| match reserved.strip_suffix('*') {
        Some(begin) => name.starts_with(begin),
        None => name == *reserved,
    })
}

fn check_env(framework: &str, reserved: &[&str], job: &TrainingJob, errors: &mut Vec<FieldError>) {
    for (path, _, container) in containers(job) {
        for (e, var) in container.env.iter().flatten().enumerate() {
            if var.name == SILENCE {
                let value = var.value.as_deref().unwrap_or_default();
                let is_one = value.parse().is_ok_and(|seconds| SILENCES.contains(&seconds));
                // What is not written here is read, and checked, by the agent.
                if var.value_from.is_none() && !value.is_empty() && !is_one {
                    let (least, most) = (SILENCES.start(), SILENCES.end());
                    errors.push(FieldError::new(
                        format!("{path}.env[{e}].value"),
                        format!("{SILENCE} must be a whole number of seconds from {least} to {most}"),
                    ));
                }
            } else if is_reserved(&var.name, reserved) {
                errors.push(FieldError::new(
                    format!("{path}.env[{e}].name"),
                    format!(
                        "{} is set by the operator for {framework}; another value would keep the pods from finding each \
                         other: remove it",
                        var.name
                    ),
                ));
            }
        }
    }
}

/// Every container of a job, with its path and its role, in the order in which what is wrong with them is told.
fn containers(job: &TrainingJob) -> impl Iterator<Item = (String, &RoleSpec, &Container)> {
    let roles = job.spec.roles.iter().enumerate();
    roles.flat_map(|(i, role)| {
        let pod = role.template.spec.as_ref();
        let lists = [
            ("containers", pod.map(|pod| &pod.containers)),
            ("initContainers", pod.and_then(|pod| pod.init_containers.as_ref())),
        ];
        lists.into_iter().flat_map(move |(list, containers)| {
            let containers = containers.into_iter().flatten().enumerate();
            containers.map(move |(c, container)| {
                let path = format!("spec.roles[{i}].template.spec.{list}[{c}]");
                (path, role, container)
            })
        })
    })
}
