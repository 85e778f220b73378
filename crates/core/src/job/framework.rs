//! What a framework may say about a job.

use serde::Serialize;
use trainyard_api::{Dependency, FieldError, HostFile, RestartPolicy, TrainingJob};

use super::{Job, Role};
use crate::model::{Identity, PodKey, ServiceKey};
use crate::view::Settings;

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
    fn remote_shell(&self, job: &Job<'_>, settings: &Settings, pod: PodKey) -> Option<RemoteShell> {
        self.base()?.remote_shell(job, settings, pod)
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
pub struct RemoteShell {
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
            None => self.identity.secret_name(job),
        }
    }

    /// What the Secret holds that is made for the job and kept the same for all of its pods. One of the user's is the user's
    /// affair: nobody makes it, looks for it or asks whose it is.
    pub fn made(&self) -> Option<Identity> {
        self.given.is_none().then_some(self.identity)
    }
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

/// A right to start programs in pods of the same job, through the API server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExecRight {
    /// The position of the role whose pods have it.
    pub holder: usize,
    /// The position of the role in whose pods programs are started.
    pub into: usize,
}

/// A place in containers of users where the operator mounts something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// Its path.
    pub path: String,
    /// Whether the main container alone has it.
    pub main_only: bool,
    /// What is there.
    pub content: Content,
}

/// What the operator mounts into containers of users.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    /// The agent, or the credentials of the job.
    Mpi,
    /// A directory with a host file of the user's.
    HostFile {
        /// The path of the file.
        file: String,
        /// The field that asks for it.
        field: String,
    },
    /// A program, or a file that a framework looks for.
    Program,
    /// The file to which programs append their progress.
    Progress,
}

impl Place {
    /// A place that all containers have.
    pub(crate) fn of_all(path: impl Into<String>, content: Content) -> Self {
        Self {
            path: path.into(),
            main_only: false,
            content,
        }
    }

    /// A place that the main container has.
    pub(crate) fn of_main(path: impl Into<String>, content: Content) -> Self {
        Self {
            main_only: true,
            ..Self::of_all(path, content)
        }
    }
}
