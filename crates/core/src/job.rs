//! A job, parsed. Decisions take this form only; `crate::parse` makes it.

mod attempt;
mod elastic;
mod env;
mod framework;
mod remote_access;
mod replica;
mod role_rule;

use std::any::Any;
use std::fmt;
use std::num::NonZeroU64;
use std::sync::OnceLock;

use k8s_openapi::api::core::v1::{Container, PodSpec, PodTemplateSpec};
use trainyard_api::{
    AcceptedRole, AcceptedRules, CleanPodPolicy, CreatePolicy, Dependency, Dialect, NodeDownPolicy,
    Placement, PodQuorum, RestartPolicy, RestartScope, RoleSet, TrainingJob,
};

use crate::dialect;
use crate::members::Members;
use crate::model::{Awaited, PodKey};

pub(crate) use attempt::attempt_of;
pub use elastic::ElasticRole;
pub(crate) use elastic::{first_size, members_of, recorded_members, retired_indices};
pub use env::Env;
pub use framework::{
    Contribution, Directory, Elasticity, Environment, ExtraService, File, Files, Framework, Port, Ports,
    Validation, Variant,
};
pub use remote_access::{Content, Credentials, ExecRight, Place, RemoteAccess, RemoteShell};
pub use replica::Replica;
pub use role_rule::RoleRule;

/// A valid job.
pub struct Job<'a> {
    /// The object it was parsed from.
    pub object: &'a TrainingJob,
    /// Its name.
    pub name: &'a str,
    /// Its namespace.
    pub namespace: &'a str,
    /// Its framework.
    pub framework: &'a Framework,
    /// Its roles, in the order of `spec.roles`.
    pub roles: Vec<Role<'a>>,
    /// The role that grows and shrinks, if one does.
    pub elastic: Option<ElasticRole<'a>>,
    /// The sets of roles, by position, any of which makes the job succeed.
    pub succeeded_when: Vec<Vec<usize>>,
    /// The sets of roles, by position, any of which makes the job fail.
    pub failed_when: Vec<Vec<usize>>,
    /// Which pods are deleted at the end.
    pub clean_pod_policy: CleanPodPolicy,
    /// How many failed pods may be replaced.
    pub backoff_limit: i32,
    /// How long pods that are told to leave may take, where the user says so.
    pub drain_timeout_seconds: Option<i64>,
    /// How long the job may run.
    pub active_deadline_seconds: Option<i64>,
    /// The fingerprint of what its pods carry of the job's annotations, if they carry any. See
    /// [`crate::passed_on`].
    pub passed_on: Option<u64>,
    /// See [`Job::common`].
    pub common: Common,
}

/// What a framework computes once for all pods of a job, because it may grow with the job.
#[derive(Default)]
pub struct Common {
    text: OnceLock<String>,
    value: OnceLock<Box<dyn Any + Send + Sync>>,
}

impl fmt::Debug for Job<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Job({}/{}, {})",
            self.namespace,
            self.name,
            self.framework.name()
        )
    }
}

/// A role of a valid job.
pub struct Role<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its pods, by their indices. While the job runs, those that the status has: `scaling` alone
    /// decides whether it has others from now on.
    pub members: Members,
    /// How many pods the spec gives it.
    pub target: i32,
    /// The pod of each replica.
    pub template: &'a PodTemplateSpec,
    /// A hash of it, where pods that were made from another are replaced while the job runs.
    pub rolls_to: Option<NonZeroU64>,
    /// The template's pod.
    pub pod: &'a PodSpec,
    /// The container that trains.
    pub main: &'a Container,
    /// What happens when a pod ends.
    pub restart_policy: RestartPolicy,
    /// Which pods start anew when one ends.
    pub restart_scope: RestartScope,
    /// How often its pods have started anew together. Pods that are created now have this number.
    pub attempt: i32,
    /// How many pods make the role succeed.
    pub succeeded_when: PodQuorum,
    /// How many pods make the role fail.
    pub failed_when: PodQuorum,
    /// What a pod counts for whose node is down.
    pub node_down_policy: NodeDownPolicy,
    /// Where the pods may be placed.
    pub placement: Option<&'a Placement>,
    /// The roles that its programs wait for.
    pub depends_on: Vec<Awaited>,
    /// When its pods are created, if it waits for others.
    pub create_policy: CreatePolicy,
}

impl Role<'_> {
    /// How many pods it has.
    pub fn replicas(&self) -> i32 {
        self.members.count()
    }
}

impl<'a> Job<'a> {
    /// The rules by which its pods are counted.
    pub(crate) fn rules(&self) -> AcceptedRules {
        let name = |role: &usize| self.roles.get(*role).map(|role| role.name.to_owned());
        // A set without roles never holds: the job named none that it has.
        let set = |set: &Vec<usize>| {
            let all_of: Vec<String> = set.iter().filter_map(name).collect();
            (!all_of.is_empty()).then_some(RoleSet { all_of })
        };
        let role = |role: &Role<'_>| AcceptedRole {
            name: role.name.to_owned(),
            replicas: role.replicas(),
            members: role.members.gaps(),
            restart_policy: role.restart_policy,
            restart_scope: role.restart_scope,
            succeeded_when: role.succeeded_when,
            failed_when: role.failed_when,
            node_down_policy: role.node_down_policy,
            depends_on: role
                .depends_on
                .iter()
                .filter_map(|on| self.dependency(on))
                .collect(),
        };
        AcceptedRules {
            roles: self.roles.iter().map(role).collect(),
            succeeded_when: self.succeeded_when.iter().filter_map(set).collect(),
            failed_when: self.failed_when.iter().filter_map(set).collect(),
            clean_pod_policy: self.clean_pod_policy,
        }
    }

    fn dependency(&self, awaited: &Awaited) -> Option<Dependency> {
        Some(Dependency {
            role: self.roles.get(awaited.role)?.name.to_owned(),
            state: awaited.state,
        })
    }

    /// A text that its framework makes for all pods: it is made once, as it may grow with the job.
    pub fn common(&self, make: impl FnOnce() -> String) -> &str {
        self.common.text.get_or_init(make)
    }

    /// A value that its framework makes for all pods. `None` if it has made one of another type
    /// before.
    pub fn common_value<T: Send + Sync + 'static>(&self, make: impl FnOnce() -> T) -> Option<&T> {
        self.common.value.get_or_init(|| Box::new(make())).downcast_ref()
    }

    /// The role of a name, with its position.
    pub fn role(&self, name: &str) -> Option<(usize, &Role<'a>)> {
        self.roles.iter().enumerate().find(|(_, role)| role.name == name)
    }

    /// Gives the roles these pods, by their positions.
    pub(crate) fn set_members(&mut self, members: Vec<Members>) {
        for (role, members) in self.roles.iter_mut().zip(members) {
            role.members = members;
        }
    }

    /// Whether all its pods start anew when its number of pods changes.
    pub(crate) fn is_rigid(&self) -> bool {
        self.elastic.is_some() && self.framework.elasticity == Elasticity::Rigid
    }

    /// Whether the pods of a role may be told to leave.
    pub(crate) fn may_leave(&self, role: usize) -> bool {
        let is_refused = || self.elastic.is_some_and(ElasticRole::refuses);
        let is_elastic = self.elastic.is_some_and(|elastic| elastic.role == role);
        let run = self.object.spec.run_policy.as_ref();
        if run.is_some_and(|run| run.drain_timeout_seconds.is_some()) {
            true
        } else if self.is_rigid() {
            !is_refused()
        } else {
            is_elastic
        }
    }

    /// Returns true if a pod of a role that fails costs nothing, and is the cause of no other end.
    /// In et-operator a worker that was lost is one worker less, and launchers alone spend the
    /// budget.
    pub(crate) fn forgives_failures(&self, role: usize) -> bool {
        let is_elastic = self.elastic.is_some_and(|elastic| elastic.role == role);
        is_elastic && dialect::of(self.object) == Dialect::Et
    }

    /// Returns true if a role can't come to its end without a pod, which decides for it.
    pub(crate) fn decides_for_role(&self, pod: PodKey) -> bool {
        let role = self.roles.get(pod.role).filter(|_| pod.index == 0);
        role.is_some_and(|role| role.succeeded_when == PodQuorum::FirstPod)
    }

    /// Why a pod of the elastic role is never told to leave a job that goes on. `None` if it may
    /// be.
    pub(crate) fn why_it_stays(&self, pod: PodKey) -> Option<&'static str> {
        if self.is_rank_zero(pod) {
            Some("is the pod of rank 0, which the others look for")
        } else if self.decides_for_role(pod) {
            Some("is the pod that decides whether its role has succeeded")
        } else {
            None
        }
    }

    /// How many pods the job has in all.
    pub fn total(&self) -> i32 {
        self.roles.iter().map(Role::replicas).sum()
    }

    /// Every pod of the job, role by role.
    pub fn keys(&self) -> impl Iterator<Item = PodKey> + '_ {
        (0..self.roles.len()).flat_map(|role| self.keys_of(role))
    }

    /// The pods of the role at a position.
    pub(crate) fn keys_of(&self, role: usize) -> impl Iterator<Item = PodKey> + '_ {
        let members = self.roles.get(role).map(|role| role.members.iter());
        members
            .into_iter()
            .flatten()
            .map(move |index| PodKey { role, index })
    }

    /// The first pod of a role that every job of the framework has.
    pub(crate) fn first_of(&self, role: &str) -> PodKey {
        let role = self.role(role).map_or(0, |(position, _)| position);
        PodKey { role, index: 0 }
    }

    /// The roles by position, in the order in which their pods are ranked: that of the framework's
    /// roles, or of the job's own where the framework takes any.
    fn ranked_roles(&self) -> impl Iterator<Item = (usize, &Role<'a>)> {
        let rules = self.framework.roles.iter();
        let by_rule = rules.filter_map(|rule| self.role(&rule.name));
        let any = self.roles.iter().enumerate();
        by_rule.chain(any.filter(|_| self.framework.roles.is_empty()))
    }

    /// The pod of rank 0, as long as no place of its role stays empty.
    pub fn rank_zero(&self) -> PodKey {
        let first = self.ranked_roles().next();
        PodKey {
            role: first.map_or(0, |(position, _)| position),
            index: 0,
        }
    }

    /// Returns true if a pod has rank 0 now. Where pods train as one, the place of index 0 is
    /// always taken. Elsewhere it may stay empty, and the next pod has rank 0.
    pub(crate) fn is_rank_zero(&self, pod: PodKey) -> bool {
        if self.framework.trains_as_one {
            pod == self.rank_zero()
        } else {
            self.rank(pod) == 0
        }
    }

    /// The rank of a pod among all pods of the job: role by role, from 0.
    pub fn rank(&self, pod: PodKey) -> i32 {
        let before = self
            .ranked_roles()
            .take_while(|(position, _)| *position != pod.role);
        let place = self
            .roles
            .get(pod.role)
            .map_or(0, |role| role.members.position(pod.index));
        before.map(|(_, role)| role.replicas()).sum::<i32>() + place
    }

    /// The name of a pod.
    pub fn pod_name(&self, key: PodKey) -> String {
        dialect::pod_name(
            dialect::of(self.object),
            self.name,
            self.roles.get(key.role).map_or("", |role| role.name),
            key.index,
        )
    }

    /// The key of a pod of that name, if the job has one.
    pub fn key(&self, pod: &str) -> Option<PodKey> {
        let (role, index) = dialect::split(dialect::of(self.object), self.name, pod)?;
        let (role, r) = self.role(role)?;
        let Some(index) = index else {
            return Some(PodKey { role, index: 0 });
        };
        // Only the one spelling of a number that we use ourselves: not "+1", not "01".
        let key = PodKey {
            role,
            index: index.parse().ok()?,
        };
        (r.members.contains(key.index) && index == key.index.to_string()).then_some(key)
    }

    /// The names by which lists of hosts know a role's pods, with `{}` for the index.
    pub fn host_pattern(&self, role: &Role<'_>, domain: &str) -> String {
        let domain = self.domain(role, domain);
        dialect::host_pattern(dialect::of(self.object), self.name, role.name, &domain)
    }

    /// The name of the headless Service that gives the pods of a role their names, which is also
    /// their subdomain.
    pub fn service(&self, role: &Role<'_>) -> String {
        dialect::service(dialect::of(self.object), self.name, role.name)
    }

    /// The domain of the pods of a role, in the domain of the cluster.
    pub fn domain(&self, role: &Role<'_>, cluster_domain: &str) -> String {
        format!("{}.{}.svc.{cluster_domain}", self.service(role), self.namespace)
    }

    /// The domains of all pods, each once.
    pub fn domains(&self, cluster_domain: &str) -> Vec<String> {
        let mut domains: Vec<String> = Vec::new();
        for domain in self.roles.iter().map(|role| self.domain(role, cluster_domain)) {
            if !domains.contains(&domain) {
                domains.push(domain);
            }
        }
        domains
    }

    /// The host name by which other pods find a pod.
    pub fn host(&self, key: PodKey, domain: &str) -> String {
        let role = self.roles.get(key.role);
        let domain = role.map(|role| self.domain(role, domain)).unwrap_or_default();
        format!("{}.{domain}", self.pod_name(key))
    }
}
