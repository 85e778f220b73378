//! How many pods each role has, and which of them are ready.

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
    /// How many pods it should have.
    pub replicas: u32,
    /// The numbers of those that are ready: `0-3,7`.
    #[serde(default)]
    pub ready: String,
}

impl RoleHosts {
    /// Of a role whose pods of these numbers are ready, in order.
    pub fn new(name: &str, replicas: u32, ready: impl IntoIterator<Item = u32>) -> Self {
        Self {
            name: name.to_owned(),
            replicas,
            ready: indices::format(ready),
        }
    }

    /// The numbers of the pods that are ready and that the role should have.
    pub fn ready(&self) -> impl Iterator<Item = u32> {
        indices::parse(&self.ready, self.replicas)
    }
}
