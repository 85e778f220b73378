//! A framework: what it says about its roles, and the capabilities that it has besides.
//!
//! It is a value, so that one can also be made at run time. It sees a parsed job and answers
//! questions; it can't change the spec. Those who ask call the methods of [`Framework`], which know
//! what holds where a framework lacks a capability.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Volume;
use trainyard_api::{Dependency, Dialect, FieldError, PodQuorum, RestartPolicy, RestartScope, TrainingJob};

use super::{Credentials, Env, ExecRight, Job, Place, RemoteAccess, RemoteShell, Replica, Role, RoleRule};
use crate::dialect;
use crate::model::{PodKey, ServiceKey};
use crate::settings::Settings;

/// What there is to know about a framework. Begin with [`Framework::new`], and set what differs.
#[expect(
    clippy::struct_excessive_bools,
    reason = "each answers a question of its own, and a framework sets those that differ"
)]
pub struct Framework {
    /// Its name in `spec.framework.name`.
    pub name: Cow<'static, str>,
    /// The roles that its jobs may have, in the order in which pods are ranked ([`Job::rank`]).
    /// Default: any roles.
    pub roles: Vec<RoleRule>,
    /// What happens when a pod ends, where neither the user nor the role's rule says so.
    /// Default: a pod that failed is replaced.
    pub restart_policy: RestartPolicy,
    /// Whether the pods of a job train as one: where one ends, the others can't go on, and end too.
    /// Default: each trains for itself.
    pub trains_as_one: bool,
    /// Whether pods that train as one go on all the same until one that ended is replaced. Default:
    /// they don't, and all start anew.
    pub tolerates_loss: bool,
    /// Whether pods that run go on when the number of pods of a role changes: what they were told
    /// at their start still holds then, or is kept current. Default: they do.
    pub resizes: bool,
    /// How its jobs come to another size while they train (`spec.elastic`). Default: all pods start
    /// anew.
    pub elasticity: Elasticity,
    /// Whether pods are told at their start between which sizes an elastic job may be, so that the
    /// bounds can change only while the job is suspended. Default: they are not.
    pub tells_bounds: bool,
    /// Whether the name of a pod of an elastic role that was lost can't be used again, so that
    /// another index takes its place. Default: it can.
    pub renames_lost_pods: bool,
    /// Whether pods have names by which others find them, which takes a Service. Default: they do.
    pub has_service: bool,
    /// What pods are told.
    pub environment: Box<dyn Environment>,
    /// The ports on which pods serve others. Default: none.
    pub ports: Option<Box<dyn Ports>>,
    /// How pods start programs in others. Default: not at all.
    pub remote_access: Option<Box<dyn RemoteAccess>>,
    /// What else can be wrong with a job. Default: nothing.
    pub validation: Option<Box<dyn Validation>>,
    /// Files and directories that pods find. Default: none.
    pub files: Option<Box<dyn Files>>,
    /// What it was declared as, as JSON. `None`: it is built in.
    pub declaration: Option<Arc<str>>,
    /// What it is for jobs of another shape: the first variant that applies takes its place.
    pub variants: Vec<Variant>,
}

/// How the jobs of a framework come to another size while they train.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Elasticity {
    /// Pods join and leave, and the others train on.
    Live,
    /// Pods were told at their start how many there are: all leave and start anew.
    Rigid,
}

/// A framework that takes the place of another one of the same name, for some jobs.
pub struct Variant {
    /// Whether a job is one of these. It may be invalid.
    pub applies: fn(&TrainingJob) -> bool,
    /// What the framework is for them.
    pub framework: Framework,
}

/// A capability: the variables of pods.
pub trait Environment: Send + Sync {
    /// Variables for every container of a pod. One that the user has set wins.
    fn variables(&self, replica: &Replica<'_>) -> Env;

    /// Variables that users must not set, because a wrong value keeps the pods from finding each
    /// other. One that ends in `*` stands for all that begin so.
    fn reserved(&self, job: &TrainingJob) -> Vec<&str>;
}

/// A capability: ports on which pods serve others.
pub trait Ports: Send + Sync {
    /// The ports of a pod's main container, added unless the user has named that number.
    fn ports(&self, replica: &Replica<'_>) -> Vec<Port>;

    /// The Services that a job needs besides its headless one.
    fn services(&self, _: &Job<'_>) -> Vec<ExtraService> {
        Vec::new()
    }
}

/// A capability: rules for jobs, beyond those of every job and those that follow from what else the
/// framework says: its roles, reserved variables and remote access.
pub trait Validation: Send + Sync {
    /// What is wrong with a job whose defaults are written.
    fn check(&self, job: &TrainingJob) -> Vec<FieldError>;
}

/// A capability: files and directories of main containers.
pub trait Files: Send + Sync {
    /// The files of a pod.
    fn files(&self, replica: &Replica<'_>) -> Vec<File>;

    /// The directories of a pod.
    fn directories(&self, replica: &Replica<'_>) -> Vec<Directory>;

    /// Where they are in the pods of a role: volumes of users keep clear of them.
    fn places(&self, role: &str) -> Vec<Place>;
}

/// A file of a main container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct File {
    /// Its path.
    pub path: String,
    /// What is in it.
    pub content: String,
}

/// A directory of a main container.
#[derive(Clone, Debug, PartialEq)]
pub struct Directory {
    /// Its path.
    pub path: String,
    /// What is there; it has no name yet.
    pub volume: Volume,
}

/// A port of a main container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Port {
    /// Its name.
    pub name: Cow<'static, str>,
    /// Its number.
    pub number: i32,
}

/// A Service besides the headless one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExtraService {
    /// Which one.
    pub key: ServiceKey,
    /// The pod behind it.
    pub pod: PodKey,
    /// Its port.
    pub port: Port,
}

/// What a framework adds to a pod.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Contribution {
    /// Variables for every container.
    pub env: Env,
    /// The command of the main container, where the user gave neither command nor arguments.
    pub command: Option<Vec<String>>,
    /// Ports of the main container.
    pub ports: Vec<Port>,
    /// Files of the main container.
    pub files: Vec<File>,
    /// Directories of the main container.
    pub directories: Vec<Directory>,
}

impl Framework {
    /// A framework of a name that gives pods an environment and nothing else.
    pub fn new(name: impl Into<Cow<'static, str>>, environment: impl Environment + 'static) -> Self {
        Self {
            name: name.into(),
            roles: Vec::new(),
            restart_policy: RestartPolicy::OnFailure,
            trains_as_one: false,
            tolerates_loss: false,
            resizes: true,
            elasticity: Elasticity::Rigid,
            tells_bounds: false,
            renames_lost_pods: false,
            has_service: true,
            environment: Box::new(environment),
            ports: None,
            remote_access: None,
            validation: None,
            files: None,
            declaration: None,
            variants: Vec::new(),
        }
    }

    /// Its name in `spec.framework.name`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What it is for a job.
    pub(crate) fn variant(&self, job: &TrainingJob) -> &Self {
        let variant = self.variants.iter().find(|variant| (variant.applies)(job));
        variant.map_or(self, |variant| &variant.framework)
    }

    fn rule(&self, role: &str) -> Option<&RoleRule> {
        self.roles.iter().find(|rule| rule.name == role)
    }

    /// The restart policy of a role whose user gave none.
    pub fn restart_policy(&self, role: &str) -> RestartPolicy {
        let own = self.rule(role).and_then(|rule| rule.restart_policy);
        own.unwrap_or(self.restart_policy)
    }

    /// Which pods start anew when a pod ends, where the user does not say: all those that can't go
    /// on without it. Jobs of other operators keep the ways of those.
    pub(crate) fn restart_scope(&self, job: &TrainingJob) -> RestartScope {
        let is_native = dialect::of(job) == Dialect::Native;
        let joins = job.spec.elastic.is_some() && self.elasticity == Elasticity::Live;
        if self.trains_as_one && !self.tolerates_loss && is_native && !joins {
            RestartScope::Job
        } else {
            RestartScope::Pod
        }
    }

    /// How many pods of a role make it succeed, where the user does not say.
    pub fn pod_quorum(&self, role: &str) -> PodQuorum {
        self.rule(role)
            .map_or(PodQuorum::AllPods, |rule| rule.succeeded_when)
    }

    /// The role of a job that is nothing but a command: the one that trains, if it can do so alone.
    pub fn role_of_command(&self) -> Option<&str> {
        let others = |name: &str| {
            self.roles
                .iter()
                .any(|rule| rule.is_required && rule.name != name)
        };
        let alone = |rule: &&RoleRule| rule.max.is_none() && !rule.serves;
        let role = self.roles.iter().find(alone);
        let name = role.map_or("worker", |rule| &*rule.name);
        let own = ((self.roles.is_empty() || role.is_some()) && !others(name)).then_some(name);
        let mut variants = self.variants.iter();
        own.or_else(|| variants.find_map(|variant| variant.framework.role_of_command()))
    }

    /// What a role waits for whose user says nothing; `roles` are the names of all roles of the
    /// job.
    pub fn dependencies(&self, role: &str, roles: &[&str]) -> Vec<Dependency> {
        let all = self.rule(role).into_iter().flat_map(|rule| &rule.depends_on);
        all.filter(|on| roles.contains(&&*on.role)).cloned().collect()
    }

    /// The position of the role that decides whether the job succeeds, if one does.
    fn decisive(&self, roles: &[Role<'_>]) -> Option<usize> {
        let position = |rule: &RoleRule| roles.iter().position(|role| role.name == rule.name);
        self.roles.iter().filter(|rule| rule.decides).find_map(position)
    }

    /// The positions of the roles that have no rule, or one without a property.
    fn roles_without(&self, roles: &[Role<'_>], property: fn(&RoleRule) -> bool) -> Vec<usize> {
        let roles = roles.iter().enumerate();
        let found = roles.filter(|(_, role)| !self.rule(role.name).is_some_and(property));
        found.map(|(position, _)| position).collect()
    }

    /// The sets of roles, by position, any of which makes the job succeed.
    pub fn succeeded_when(&self, roles: &[Role<'_>]) -> Vec<Vec<usize>> {
        let train = || self.roles_without(roles, |rule| rule.serves);
        vec![self.decisive(roles).map_or_else(train, |role| vec![role])]
    }

    /// The sets of roles, by position, any of which makes the job fail: each role by itself, but
    /// those without which the job goes on.
    pub fn failed_when(&self, roles: &[Role<'_>]) -> Vec<Vec<usize>> {
        let needed = match self.decisive(roles) {
            Some(_) => self.roles_without(roles, |rule| rule.is_expendable),
            None => (0..roles.len()).collect(),
        };
        needed.into_iter().map(|role| vec![role]).collect()
    }

    /// What a pod finds in its containers.
    pub fn contribution(&self, job: &Job<'_>, settings: &Settings, pod: PodKey) -> Contribution {
        let Some(replica) = Replica::of(job, settings, pod) else {
            return Contribution::default();
        };
        let (ports, remote) = (self.ports.as_ref(), self.remote_access.as_ref());
        let files = self.files.as_ref();
        Contribution {
            files: files.map(|files| files.files(&replica)).unwrap_or_default(),
            directories: files.map(|files| files.directories(&replica)).unwrap_or_default(),
            env: self.environment.variables(&replica),
            command: remote.and_then(|remote| remote.command(&replica)),
            ports: ports.map(|ports| ports.ports(&replica)).unwrap_or_default(),
        }
    }

    /// The Services that a job needs besides its headless one.
    pub fn services(&self, job: &Job<'_>) -> Vec<ExtraService> {
        let ports = self.ports.as_ref();
        ports.map(|ports| ports.services(job)).unwrap_or_default()
    }

    /// What the agent does in a pod besides waiting; the pod can't be made without it.
    pub fn remote_shell(&self, job: &Job<'_>, settings: &Settings, pod: PodKey) -> Option<RemoteShell> {
        let remote = self.remote_access.as_ref()?;
        remote.shell(&Replica::of(job, settings, pod)?)
    }

    /// The credentials by which the pods of a job know each other, without which none of them
    /// starts.
    pub fn credentials(&self, job: &TrainingJob) -> Option<Credentials> {
        self.remote_access.as_ref()?.credentials(job)
    }

    /// The right of some pods to start programs in others through the API server.
    pub fn exec(&self, job: &Job<'_>) -> Option<ExecRight> {
        self.remote_access.as_ref()?.exec(job)
    }

    /// The places where the operator mounts something into the containers of a role.
    pub fn places(&self, job: &TrainingJob, role: &str) -> Vec<Place> {
        let remote = self
            .remote_access
            .iter()
            .flat_map(|remote| remote.places(job, role));
        let files = self.files.iter().flat_map(|files| files.places(role));
        remote.chain(files).collect()
    }

    /// What is wrong with a job by the rules of the framework's capabilities.
    pub(crate) fn check(&self, job: &TrainingJob) -> Vec<FieldError> {
        let remote = self.remote_access.iter().flat_map(|remote| remote.check(job));
        let own = self.validation.iter().flat_map(|own| own.check(job));
        remote.chain(own).collect()
    }
}

impl fmt::Debug for Framework {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Framework({})", self.name)
    }
}
