//! A job, parsed: every default resolved, every name checked, every role found. Decisions take this form only.

use std::collections::HashSet;
use std::fmt;
use std::num::NonZeroU64;
use std::sync::LazyLock;

use k8s_openapi::api::core::v1::{Container, PodSpec, PodTemplateSpec};
use sha2::{Digest, Sha256};
use trainyard_api::{
    AcceptedRole, AcceptedRules, CleanPodPolicy, CreatePolicy, Dependency, FieldError, NodeDownPolicy,
    Placement, PodQuorum, RestartPolicy, RoleSet, RoleSpec, TrainingJob, default, names,
};

use crate::admission;
use crate::depends::Awaited;
use crate::dialect;
use crate::frameworks::{self, Framework};
use crate::plan::PodKey;
use crate::status;

/// A valid job.
pub struct Job<'a> {
    /// The object it was parsed from.
    pub object: &'a TrainingJob,
    /// Its name.
    pub name: &'a str,
    /// Its namespace.
    pub namespace: &'a str,
    /// Its framework.
    pub framework: &'static dyn Framework,
    /// Its roles, in the order of `spec.roles`.
    pub roles: Vec<Role<'a>>,
    /// The sets of roles, by position, any of which makes the job succeed.
    pub succeeded_when: Vec<Vec<usize>>,
    /// The sets of roles, by position, any of which makes the job fail.
    pub failed_when: Vec<Vec<usize>>,
    /// Which pods are deleted at the end.
    pub clean_pod_policy: CleanPodPolicy,
    /// How many failed pods may be replaced.
    pub backoff_limit: i32,
    /// How long the job may run.
    pub active_deadline_seconds: Option<i64>,
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
    /// How many pods it has; at least 1.
    pub replicas: i32,
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

impl<'a> Job<'a> {
    /// Parses a job, or says all that is wrong with it. One that was accepted and not changed since is not judged again: a rule
    /// that came with a newer operator does not stop what runs.
    pub fn parse(object: &'a TrainingJob) -> Result<Self, Vec<FieldError>> {
        let framework = frameworks::find(&object.spec.framework.name);
        let read = framework.map(|framework| Self::read(object, framework));
        let errors = if status::is_settled(object) && read.as_ref().is_some_and(Self::is_sound) {
            Vec::new()
        } else {
            // The webhooks may have been away when it was stored.
            admission::validate(None, &admission::defaulted(object))
        };
        match read {
            Some(read) if errors.is_empty() => Ok(read),
            _ => Err(errors),
        }
    }

    /// Whether all of it could be read, and its pods can be told apart.
    fn is_sound(&self) -> bool {
        let has_pods = |role: &Role<'_>| (1..=MAX_REPLICAS).contains(&role.replicas);
        !self.roles.is_empty()
            && self.roles.len() == self.object.spec.roles.len()
            && self.roles.iter().all(has_pods)
            && are_told_apart(self.object, &self.roles)
    }

    fn read(object: &'a TrainingJob, framework: &'static dyn Framework) -> Self {
        let spec = &object.spec;
        let names: Vec<&str> = spec.roles.iter().map(|role| &*role.name).collect();
        let roles: Vec<Role<'a>> = spec
            .roles
            .iter()
            .filter_map(|role| Role::parse(framework, role, &names))
            .map(|role| Role {
                rolls_to: object.rolls().then(|| template_hash(role.template)),
                ..role
            })
            .collect();
        let completion = spec.completion.as_ref();
        let choose = |sets: Option<&Vec<RoleSet>>,
                      default: fn(&dyn Framework, &[Role<'_>]) -> Vec<Vec<usize>>| {
            match sets.filter(|sets| !sets.is_empty()) {
                Some(sets) => sets.iter().map(|set| positions(&roles, set)).collect(),
                None => default(framework, &roles),
            }
        };
        let succeeded_when = choose(completion.map(|c| &c.succeeded_when), |f, roles| {
            f.succeeded_when(roles)
        });
        let failed_when = choose(completion.map(|c| &c.failed_when), |f, roles| {
            f.failed_when(roles)
        });
        let run = spec.run_policy.as_ref();
        Self {
            object,
            name: object.metadata.name.as_deref().unwrap_or_default(),
            namespace: object.metadata.namespace.as_deref().unwrap_or_default(),
            framework,
            roles,
            succeeded_when,
            failed_when,
            clean_pod_policy: run.and_then(|run| run.clean_pod_policy).unwrap_or_default(),
            backoff_limit: run
                .and_then(|run| run.backoff_limit)
                .unwrap_or(default::BACKOFF_LIMIT),
            active_deadline_seconds: run.and_then(|run| run.active_deadline_seconds),
        }
    }

    /// The job as it was when its spec was last accepted, whatever its spec is now. Nothing can be made of it, but its
    /// pods can be counted. `None` if it never was.
    pub fn accepted(object: &'a TrainingJob) -> Option<Self> {
        let by = object.status.as_ref()?.accepted_rules.as_ref()?;
        let names_of: Vec<&str> = by.roles.iter().map(|role| &*role.name).collect();
        let roles: Vec<Role<'a>> = by
            .roles
            .iter()
            .map(|role| Role::accepted(role, &names_of))
            .collect();
        let name = object.metadata.name.as_deref()?;
        // A status may have been edited by anybody.
        if roles.is_empty() || !are_told_apart(object, &roles) {
            return None;
        }
        let sets = |sets: &[RoleSet]| sets.iter().map(|set| positions(&roles, set)).collect();
        let run = object.spec.run_policy.as_ref();
        Some(Self {
            object,
            name,
            namespace: object.metadata.namespace.as_deref().unwrap_or_default(),
            framework: frameworks::find(&object.spec.framework.name).unwrap_or(frameworks::ANY),
            succeeded_when: sets(&by.succeeded_when),
            failed_when: sets(&by.failed_when),
            clean_pod_policy: by.clean_pod_policy,
            // These may be changed at any time.
            backoff_limit: run
                .and_then(|run| run.backoff_limit)
                .filter(|limit| *limit >= 0)
                .unwrap_or(default::BACKOFF_LIMIT),
            active_deadline_seconds: run
                .and_then(|run| run.active_deadline_seconds)
                .filter(|seconds| *seconds > 0),
            roles,
        })
    }

    /// The rules by which its pods are counted.
    pub(crate) fn rules(&self) -> AcceptedRules {
        let name = |role: &usize| self.roles.get(*role).map(|role| role.name.to_owned());
        let set = |set: &Vec<usize>| RoleSet {
            all_of: set.iter().filter_map(name).collect(),
        };
        let role = |role: &Role<'_>| AcceptedRole {
            name: role.name.to_owned(),
            replicas: role.replicas,
            restart_policy: role.restart_policy,
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
            succeeded_when: self.succeeded_when.iter().map(set).collect(),
            failed_when: self.failed_when.iter().map(set).collect(),
            clean_pod_policy: self.clean_pod_policy,
        }
    }

    fn dependency(&self, awaited: &Awaited) -> Option<Dependency> {
        Some(Dependency {
            role: self.roles.get(awaited.role)?.name.to_owned(),
            state: awaited.state,
        })
    }

    /// The role of a name, with its position.
    pub fn role(&self, name: &str) -> Option<(usize, &Role<'a>)> {
        self.roles.iter().enumerate().find(|(_, role)| role.name == name)
    }

    /// How many pods the job has in all.
    pub fn total(&self) -> i32 {
        self.roles.iter().map(|role| role.replicas).sum()
    }

    /// Every pod of the job, role by role.
    pub fn keys(&self) -> impl Iterator<Item = PodKey> + '_ {
        let indices =
            |(role, r): (usize, &Role<'_>)| (0..r.replicas).map(move |index| PodKey { role, index });
        self.roles.iter().enumerate().flat_map(indices)
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
        let rest = pod.strip_prefix(self.name)?.strip_prefix('-')?;
        let is_single = |role: &str| dialect::is_single(dialect::of(self.object), role);
        if is_single(rest) {
            return self.role(rest).map(|(role, _)| PodKey { role, index: 0 });
        }
        let (role, index) = rest.rsplit_once('-')?;
        let (role, r) = self.role(role).filter(|_| !is_single(role))?;
        // Only the one spelling of a number that we use ourselves: not "+1", not "01".
        let key = PodKey {
            role,
            index: index.parse().ok()?,
        };
        (key.index < r.replicas && index == key.index.to_string()).then_some(key)
    }

    /// The names by which lists of hosts know a role's pods, with `{}` for the index.
    pub fn host_pattern(&self, role: &Role<'_>, domain: &str) -> String {
        let domain = format!("{}.{}.svc.{domain}", names::service(self.name), self.namespace);
        dialect::host_pattern(dialect::of(self.object), self.name, role.name, &domain)
    }

    /// The host name by which other pods find a pod.
    pub fn host(&self, key: PodKey, domain: &str) -> String {
        format!(
            "{}.{}.{}.svc.{domain}",
            self.pod_name(key),
            names::service(self.name),
            self.namespace
        )
    }
}

/// Whether no two pods of a job have the same name, and none has one that is too long.
fn are_told_apart(object: &TrainingJob, roles: &[Role<'_>]) -> bool {
    let dialect = dialect::of(object);
    let name = object.metadata.name.as_deref().unwrap_or_default();
    let mut names_so_far = HashSet::new();
    roles.iter().all(|role| {
        let longest = dialect::pod_name(dialect, name, role.name, role.replicas - 1);
        // Pods without an index would all have one name.
        let told_apart = role.replicas <= 1 || !dialect::is_single(dialect, role.name);
        let fits = role.name.len() <= MAX_ROLE && longest.len() <= names::MAX_NAME;
        told_apart && fits && names_so_far.insert(role.name)
    })
}

/// A hash of a template that is the same in all versions of the operator.
fn template_hash(template: &PodTemplateSpec) -> NonZeroU64 {
    let digest = Sha256::digest(serde_json::to_vec(template).unwrap_or_default());
    let first = digest
        .iter()
        .take(8)
        .fold(0, |hash, byte| hash << 8 | u64::from(*byte));
    NonZeroU64::new(first).unwrap_or(NonZeroU64::MIN)
}

fn positions(roles: &[Role<'_>], set: &RoleSet) -> Vec<usize> {
    set.all_of
        .iter()
        .filter_map(|name| roles.iter().position(|role| role.name == name))
        .collect()
}

/// The roles that are waited for, by position. A status may have been edited by anybody: a name that is not there waits
/// for nothing.
fn awaited(given: &[Dependency], names: &[&str]) -> Vec<Awaited> {
    let find = |on: &Dependency| {
        let role = names.iter().position(|name| *name == on.role)?;
        Some(Awaited {
            role,
            state: on.state,
        })
    };
    given.iter().filter_map(find).collect()
}

/// The longest name that the schema lets a role have.
const MAX_ROLE: usize = 32;
/// The most pods that the schema lets a role have.
const MAX_REPLICAS: i32 = 10_000;

/// The template of a role of which only the rules are known.
static UNKNOWN: LazyLock<(PodTemplateSpec, PodSpec, Container)> = LazyLock::new(Default::default);

impl<'a> Role<'a> {
    fn accepted(rules: &'a AcceptedRole, names: &[&str]) -> Self {
        let (template, pod, main) = &*UNKNOWN;
        Self {
            name: &rules.name,
            replicas: rules.replicas.clamp(0, MAX_REPLICAS),
            template,
            rolls_to: None,
            pod,
            main,
            restart_policy: rules.restart_policy,
            succeeded_when: rules.succeeded_when,
            failed_when: rules.failed_when,
            node_down_policy: rules.node_down_policy,
            placement: None,
            depends_on: awaited(&rules.depends_on, names),
            create_policy: CreatePolicy::default(),
        }
    }

    /// `None` only for a template without containers, which validation has refused before.
    fn parse(framework: &dyn Framework, role: &'a RoleSpec, names: &[&str]) -> Option<Self> {
        let pod = role.template.spec.as_ref()?;
        let main = match &role.container {
            Some(name) => pod.containers.iter().find(|container| container.name == *name)?,
            None => pod.containers.first()?,
        };
        Some(Self {
            name: &role.name,
            replicas: role.replicas.unwrap_or(1),
            template: &role.template,
            rolls_to: None,
            pod,
            main,
            restart_policy: role
                .restart_policy
                .unwrap_or_else(|| framework.restart_policy(&role.name)),
            succeeded_when: role.succeeded_when.unwrap_or(PodQuorum::AllPods),
            failed_when: role.failed_when.unwrap_or(PodQuorum::AnyPod),
            node_down_policy: role.node_down_policy.unwrap_or_default(),
            placement: role.placement.as_ref(),
            depends_on: match &role.depends_on {
                Some(given) => awaited(given, names),
                None => awaited(&framework.dependencies(&role.name, names), names),
            },
            create_policy: role.create_policy.unwrap_or_default(),
        })
    }
}
