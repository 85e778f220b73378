//! How many pods each role has, and which of them are ready.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::indices;

/// One line of the observer's answer, as JSON. Without roles, the job has no pods that anybody
/// could count.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobHosts {
    /// The roles of the job.
    pub roles: Vec<RoleHosts>,
}

/// The pods of one role. Numbers and not names: a line stays short however many pods there are.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RoleHosts {
    /// The name of the role.
    pub name: String,
    /// The number after the highest of its pods.
    pub replicas: u32,
    /// The numbers of the pods that it should have and that are not to leave, `0-3,7`, where they
    /// are not all of those below `replicas`. Agents of former versions do not read it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub members: Option<String>,
    /// The numbers of those that are ready: `0-3,7`.
    #[serde(default)]
    pub ready: String,
}

impl RoleHosts {
    /// Of a role with so many pods, of which those of these numbers are ready, in order.
    pub fn new(name: &str, replicas: u32, ready: impl IntoIterator<Item = u32>) -> Self {
        Self {
            name: name.to_owned(),
            replicas,
            members: None,
            ready: indices::format(ready),
        }
    }

    /// The numbers of the pods that the role should have.
    pub fn members(&self) -> BTreeSet<u32> {
        match &self.members {
            Some(listed) => indices::parse(listed, self.replicas).collect(),
            None => (0..self.replicas).collect(),
        }
    }

    /// The numbers of the pods that are ready and that the role should have.
    pub fn ready(&self) -> impl Iterator<Item = u32> {
        let members = self.members.as_ref().map(|_| self.members());
        let is_member = move |number: &u32| members.as_ref().is_none_or(|members| members.contains(number));
        indices::parse(&self.ready, self.replicas).filter(is_member)
    }
}
