//! What a framework says about one of its roles.

use std::borrow::Cow;

use trainyard_api::{Dependency, DependencyState, PodQuorum, RestartPolicy};

/// A role that a framework knows.
#[derive(Clone, Debug, PartialEq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each answers a question of its own, and a framework sets those that differ"
)]
pub struct RoleRule {
    /// Its name.
    pub name: Cow<'static, str>,
    /// Whether every job has it.
    pub is_required: bool,
    /// The most pods it may have. Default: any number.
    pub max: Option<i32>,
    /// What happens when a pod ends. Default: what the framework says for all roles.
    pub restart_policy: Option<RestartPolicy>,
    /// The roles that it waits for, where a job has them. Default: none.
    pub depends_on: Vec<Dependency>,
    /// How many of its pods make it succeed, where the user does not say. Default: all.
    pub succeeded_when: PodQuorum,
    /// Whether the job succeeds when this role does. Where a job has several such roles, the first
    /// of them decides; where it has none, all roles must succeed but those that serve. Default:
    /// false.
    pub decides: bool,
    /// Whether it only serves other roles, and need not end: a job can't have this role alone, and
    /// succeeds without it. Default: false.
    pub serves: bool,
    /// Whether a job goes on without it, where another role decides. Default: false, a job fails
    /// when this role does.
    pub is_expendable: bool,
}

impl RoleRule {
    /// A role that jobs may have.
    pub fn optional(name: impl Into<Cow<'static, str>>) -> Self {
        Self {
            name: name.into(),
            is_required: false,
            max: None,
            restart_policy: None,
            depends_on: Vec::new(),
            succeeded_when: PodQuorum::AllPods,
            decides: false,
            serves: false,
            is_expendable: false,
        }
    }

    /// A role that every job has.
    pub fn required(name: impl Into<Cow<'static, str>>) -> Self {
        Self {
            is_required: true,
            ..Self::optional(name)
        }
    }

    /// The same role, which waits until another one runs.
    #[must_use]
    pub fn after(mut self, role: &str) -> Self {
        self.depends_on.push(Dependency {
            role: role.to_owned(),
            state: DependencyState::Running,
        });
        self
    }

    /// The same role, with one pod.
    #[must_use]
    pub fn single(self) -> Self {
        Self { max: Some(1), ..self }
    }
}
