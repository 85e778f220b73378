//! The job that expressions are about.

use std::sync::{Arc, OnceLock};

use super::fault::Fault;
use super::value::Value;
use crate::members::Members;

/// A job as expressions see it, with what was computed for all of its pods.
#[derive(Debug)]
pub(crate) struct Subject {
    pub(super) name: Arc<str>,
    pub(super) namespace: Arc<str>,
    /// Where rank 0 is found.
    pub(super) master: Arc<str>,
    /// In the order in which pods are ranked.
    pub(super) roles: Vec<RoleFacts>,
    /// By the position of their declarations.
    pub(super) params: Vec<Value>,
    domain: String,
    total: i64,
    all_hosts: OnceLock<Value>,
    /// What expressions keep for the other pods of the job.
    pub(super) kept: Vec<OnceLock<Result<Value, Fault>>>,
}

/// The names of a job.
pub(crate) struct Names<'a> {
    pub(crate) job: &'a str,
    pub(crate) namespace: &'a str,
    /// The domain of its pods.
    pub(crate) domain: String,
    /// The host of the Service in front of rank 0. `None`: there is none.
    pub(crate) master: Option<String>,
}

/// A role of the job.
#[derive(Debug)]
pub(crate) struct RoleFacts {
    pub(super) name: Arc<str>,
    /// The indices of its pods, in order. Where pods have left there are gaps.
    indices: Vec<i64>,
    /// The rank of its first pod.
    first_rank: i64,
    /// The names of its pods, with the index in place of `{}`, or as they are.
    pattern: String,
    hosts: OnceLock<Value>,
}

impl RoleFacts {
    /// A role whose pods have names by a pattern, with `{}` for the index.
    pub(crate) fn new(name: &str, members: &Members, pattern: String) -> Self {
        Self {
            name: name.into(),
            indices: members.iter().map(i64::from).collect(),
            first_rank: 0,
            pattern,
            hosts: OnceLock::new(),
        }
    }

    pub(super) fn replicas(&self) -> i64 {
        i64::try_from(self.indices.len()).unwrap_or(i64::MAX)
    }
}

impl Subject {
    /// A job; `roles` are in the order in which pods are ranked, and expressions keep as many
    /// values as `kept`.
    pub(crate) fn new(names: Names<'_>, mut roles: Vec<RoleFacts>, params: Vec<Value>, kept: usize) -> Self {
        let mut total = 0;
        for role in &mut roles {
            role.first_rank = total;
            total += role.replicas();
        }
        let mut subject = Self {
            name: names.job.into(),
            namespace: names.namespace.into(),
            master: names.master.as_deref().unwrap_or_default().into(),
            roles,
            params,
            domain: names.domain,
            total,
            all_hosts: OnceLock::new(),
            kept: (0..kept).map(|_| OnceLock::new()).collect(),
        };
        if names.master.is_none()
            && let Some(Value::Text(host)) = subject.host_of_rank(0)
        {
            subject.master = host;
        }
        subject
    }

    /// The role of a name.
    pub(crate) fn role(&self, name: &str) -> Option<usize> {
        self.roles.iter().position(|role| *role.name == *name)
    }

    /// All pods: the position of the role, and the index.
    pub(crate) fn pods(&self) -> impl Iterator<Item = (usize, i64)> {
        let roles = self.roles.iter().enumerate();
        roles.flat_map(|(position, role)| role.indices.iter().map(move |index| (position, *index)))
    }

    pub(crate) fn role_name(&self, role: usize) -> &str {
        self.roles.get(role).map_or("", |role| &role.name)
    }

    pub(super) fn total(&self) -> i64 {
        self.total
    }

    /// The rank of a pod. An index that has left leaves no rank out.
    pub(super) fn rank(&self, role: usize, index: i64) -> i64 {
        self.roles.get(role).map_or(0, |role| {
            let before = role.indices.partition_point(|other| *other < index);
            role.first_rank + i64::try_from(before).unwrap_or(i64::MAX)
        })
    }

    /// The host of the pod of an index.
    pub(super) fn host(&self, role: usize, index: i64) -> Option<Value> {
        let facts = self.roles.get(role)?;
        let name = facts.pattern.replace("{}", &index.to_string());
        Some(Value::text(format!("{name}.{}", self.domain)))
    }

    /// The host at a position of the list of a role's hosts, if that is so long.
    pub(super) fn host_at(&self, role: usize, position: i64) -> Option<Value> {
        let position = usize::try_from(position).ok()?;
        self.host(role, *self.roles.get(role)?.indices.get(position)?)
    }

    /// The host of the pod of a rank, if there is one.
    pub(super) fn host_of_rank(&self, rank: i64) -> Option<Value> {
        let after = |role: &RoleFacts| role.first_rank + role.replicas();
        let role = self.roles.iter().position(|role| rank < after(role))?;
        self.host_at(role, rank - self.roles.get(role)?.first_rank)
    }

    pub(super) fn hosts(&self, role: usize) -> Value {
        let Some(facts) = self.roles.get(role) else {
            return Value::list(Vec::new());
        };
        let all = || facts.indices.iter().filter_map(|index| self.host(role, *index));
        facts.hosts.get_or_init(|| Value::list(all().collect())).clone()
    }

    pub(super) fn all_hosts(&self) -> Value {
        let all = || self.pods().filter_map(|(role, index)| self.host(role, index));
        self.all_hosts
            .get_or_init(|| Value::list(all().collect()))
            .clone()
    }
}
