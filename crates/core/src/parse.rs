//! Parses a job: resolves every default, checks every name, finds every role.

use std::collections::HashSet;
use std::num::NonZeroU64;
use std::sync::LazyLock;

use k8s_openapi::api::core::v1::{Container, PodSpec, PodTemplateSpec};
use sha2::{Digest, Sha256};
use trainyard_api::{
    AcceptedRole, CreatePolicy, Dependency, FieldError, PodQuorum, RestartScope, RoleSet, RoleSpec,
    TrainingJob, TrainingJobSpec, default, names,
};

use crate::admission;
use crate::defaults;
use crate::dialect;
use crate::job::{
    Common, ElasticRole, Framework, Job, Role, attempt_of, first_size, members_of, recorded_members,
};
use crate::members::Members;
use crate::model::Awaited;
use crate::passed_on::PassedOn;
use crate::registry::Frameworks;
use crate::status;

impl<'a> Job<'a> {
    /// Parses a job, or returns everything that is wrong with it. A job that was accepted and is
    /// unchanged is not validated again: a new rule of a newer operator does not stop a job that
    /// runs.
    pub fn parse_with(object: &'a TrainingJob, frameworks: &'a Frameworks) -> Result<Self, Vec<FieldError>> {
        let framework = frameworks.of(object);
        let read = framework.map(|framework| Self::read(object, framework));
        let errors = if status::is_accepted(object) && read.as_ref().is_some_and(Self::is_complete) {
            Vec::new()
        } else {
            // The webhooks may not have been served when the job was stored.
            admission::validate_with(None, &defaults::defaulted(object, frameworks), frameworks)
        };
        match read {
            Some(read) if errors.is_empty() => Ok(read),
            _ => Err(errors),
        }
    }

    /// Parses a job of a framework that is built in. See [`Job::parse_with`].
    pub fn parse(object: &'a TrainingJob) -> Result<Self, Vec<FieldError>> {
        Self::parse_with(object, Frameworks::built_in())
    }

    /// Returns true if all of the job could be read and its pods have distinct names.
    fn is_complete(&self) -> bool {
        let is_size = |size: i32| (1..=MAX_REPLICAS).contains(&size);
        let has_pods = |role: &Role<'_>| is_size(role.replicas()) && is_size(role.target);
        !self.roles.is_empty()
            && self.roles.len() == self.object.spec.roles.len()
            && self.roles.iter().all(has_pods)
            && have_distinct_names(self.object, &self.roles)
    }

    fn read(object: &'a TrainingJob, framework: &'a Framework) -> Self {
        let spec = &object.spec;
        let names: Vec<&str> = spec.roles.iter().map(|role| &*role.name).collect();
        let elastic = ElasticRole::of(object);
        let roles: Vec<Role<'a>> = spec
            .roles
            .iter()
            .enumerate()
            .filter_map(|(position, role)| {
                let elastic = elastic.filter(|elastic| elastic.role == position);
                let (target, first) = match elastic {
                    Some(elastic) => (elastic.spec.replicas, first_size(elastic.spec)),
                    None => (role.replicas.unwrap_or(1), role.replicas.unwrap_or(1)),
                };
                let members = recorded_members(object, &role.name);
                Some(Role {
                    members: members.unwrap_or_else(|| Members::first(first)),
                    target,
                    ..Role::parse(framework, role, &names)?
                })
            })
            .map(|role| Role {
                rolls_to: object.rolls().then(|| template_hash(role.template)),
                restart_scope: role_scope(object, framework, role.name),
                attempt: attempt_of(object, role.name),
                ..role
            })
            .collect();
        let completion = spec.completion.as_ref();
        let choose = |sets: Option<&Vec<RoleSet>>,
                      default: fn(&Framework, &[Role<'_>]) -> Vec<Vec<usize>>| {
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
            elastic,
            succeeded_when,
            failed_when,
            clean_pod_policy: run.and_then(|run| run.clean_pod_policy).unwrap_or_default(),
            backoff_limit: run
                .and_then(|run| run.backoff_limit)
                .unwrap_or(default::BACKOFF_LIMIT),
            drain_timeout_seconds: drain_timeout(&object.spec),
            active_deadline_seconds: run.and_then(|run| run.active_deadline_seconds),
            passed_on: PassedOn::of(object).map(|passed| passed.fingerprint()),
            common: Common::default(),
        }
    }

    /// The job as it was when its spec was last accepted, whatever its spec is now. Its pods can be
    /// counted, but nothing can be created from it. `None` if it was never accepted.
    pub fn accepted(object: &'a TrainingJob, frameworks: &'a Frameworks) -> Option<Self> {
        let accepted = object.status.as_ref()?.accepted.rules.as_ref()?;
        let names: Vec<&str> = accepted.roles.iter().map(|role| &*role.name).collect();
        let roles: Vec<Role<'a>> = accepted
            .roles
            .iter()
            .map(|role| Role {
                attempt: attempt_of(object, &role.name),
                ..Role::accepted(role, &names)
            })
            .collect();
        let name = object.metadata.name.as_deref()?;
        // Anybody may have edited the status.
        if roles.is_empty() || !have_distinct_names(object, &roles) {
            return None;
        }
        let sets = |sets: &[RoleSet]| sets.iter().map(|set| positions(&roles, set)).collect();
        let run = object.spec.run_policy.as_ref();
        Some(Self {
            object,
            name,
            namespace: object.metadata.namespace.as_deref().unwrap_or_default(),
            framework: frameworks.of(object).unwrap_or(&crate::frameworks::ANY),
            elastic: ElasticRole::of(object).filter(|elastic| elastic.role < roles.len()),
            succeeded_when: sets(&accepted.succeeded_when),
            failed_when: sets(&accepted.failed_when),
            clean_pod_policy: accepted.clean_pod_policy,
            // These may change at any time.
            backoff_limit: run
                .and_then(|run| run.backoff_limit)
                .filter(|limit| *limit >= 0)
                .unwrap_or(default::BACKOFF_LIMIT),
            drain_timeout_seconds: drain_timeout(&object.spec),
            active_deadline_seconds: run
                .and_then(|run| run.active_deadline_seconds)
                .filter(|seconds| *seconds > 0),
            passed_on: PassedOn::of(object).map(|passed| passed.fingerprint()),
            common: Common::default(),
            roles,
        })
    }
}

/// How long pods that are told to leave may take, where the user says so.
fn drain_timeout(spec: &TrainingJobSpec) -> Option<i64> {
    let elastic = spec.elastic.as_ref();
    let of_elastic = elastic.and_then(|elastic| elastic.drain_timeout_seconds);
    let of_job = || spec.run_policy.as_ref()?.drain_timeout_seconds;
    of_elastic.or_else(of_job).filter(|seconds| *seconds >= 0)
}

/// Returns true if all pods of a job have distinct names, and none is too long.
fn have_distinct_names(object: &TrainingJob, roles: &[Role<'_>]) -> bool {
    let dialect = dialect::of(object);
    let name = object.metadata.name.as_deref().unwrap_or_default();
    let mut names_so_far = HashSet::new();
    roles.iter().all(|role| {
        let (end, most) = (
            role.members.end().max(role.target),
            role.replicas().max(role.target),
        );
        let longest = dialect::pod_name(dialect, name, role.name, end - 1);
        // Pods without an index would all have the same name.
        let are_distinct = most <= 1 || !dialect::is_single(dialect, role.name);
        let fits = role.name.len() <= MAX_ROLE && longest.len() <= names::MAX_NAME;
        are_distinct && fits && names_so_far.insert(role.name)
    })
}

/// A hash of a template, which must be the same in all versions of the operator.
fn template_hash(template: &PodTemplateSpec) -> NonZeroU64 {
    let digest = Sha256::digest(serde_json::to_vec(template).unwrap_or_default());
    let first = digest
        .iter()
        .take(8)
        .fold(0, |hash, byte| hash << 8 | u64::from(*byte));
    NonZeroU64::new(first).unwrap_or(NonZeroU64::MIN)
}

/// Which pods start anew when a pod of a role ends: as the user says, or as it was when the running
/// pods were accepted, so that a newer operator does not change that, or as the framework says.
fn role_scope(object: &TrainingJob, framework: &Framework, name: &str) -> RestartScope {
    let given = object.spec.roles.iter().find(|role| role.name == name);
    let status = object.status.as_ref();
    let accepted = status.and_then(|status| status.accepted.rules.as_ref());
    let mut accepted = accepted.into_iter().flat_map(|rules| &rules.roles);
    let accepted = accepted.find(|role| role.name == name);
    given
        .and_then(|role| role.restart_scope)
        .or(accepted.map(|role| role.restart_scope))
        .unwrap_or_else(|| framework.restart_scope(object))
}

fn positions(roles: &[Role<'_>], set: &RoleSet) -> Vec<usize> {
    set.all_of
        .iter()
        .filter_map(|name| roles.iter().position(|role| role.name == name))
        .collect()
}

/// The roles that a role waits for, by position. Unknown names are ignored, because anybody may
/// have edited the status.
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

/// The longest name of a role that the schema allows.
const MAX_ROLE: usize = 32;
/// The most pods of a role that the schema allows.
const MAX_REPLICAS: i32 = 10_000;

/// The template of a role that is known only by its accepted rules.
static UNKNOWN: LazyLock<(PodTemplateSpec, PodSpec, Container)> = LazyLock::new(Default::default);

impl<'a> Role<'a> {
    fn accepted(rules: &'a AcceptedRole, names: &[&str]) -> Self {
        let (template, pod, main) = &*UNKNOWN;
        Self {
            name: &rules.name,
            members: members_of(rules.replicas.clamp(0, MAX_REPLICAS), rules.members.as_deref()),
            target: rules.replicas.clamp(0, MAX_REPLICAS),
            template,
            rolls_to: None,
            pod,
            main,
            restart_policy: rules.restart_policy,
            restart_scope: rules.restart_scope,
            attempt: 0,
            succeeded_when: rules.succeeded_when,
            failed_when: rules.failed_when,
            node_down_policy: rules.node_down_policy,
            placement: None,
            depends_on: awaited(&rules.depends_on, names),
            create_policy: CreatePolicy::default(),
        }
    }

    /// `None` only for a template without containers, which validation has refused before.
    fn parse(framework: &Framework, role: &'a RoleSpec, names: &[&str]) -> Option<Self> {
        let pod = role.template.spec.as_ref()?;
        let main = match &role.container {
            Some(name) => pod.containers.iter().find(|container| container.name == *name)?,
            None => pod.containers.first()?,
        };
        Some(Self {
            name: &role.name,
            members: Members::first(0),
            target: 0,
            template: &role.template,
            rolls_to: None,
            pod,
            main,
            restart_policy: role
                .restart_policy
                .unwrap_or_else(|| framework.restart_policy(&role.name)),
            restart_scope: RestartScope::Pod,
            attempt: 0,
            succeeded_when: role
                .succeeded_when
                .unwrap_or_else(|| framework.pod_quorum(&role.name)),
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
