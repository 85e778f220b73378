//! Settings of the operator that decisions depend on.

use crate::notice::NoticeRules;

/// Settings of the operator that decisions depend on.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The cluster's DNS domain.
    pub cluster_domain: String,
    /// The agent that runs inside of pods; `None` if the operator has no image with it.
    pub agent: Option<Agent>,
    /// Whether jobs may be granted the right to start programs in their pods through the
    /// API server.
    pub allows_exec: bool,
    /// Whether launchers run the scripts of requests. Whoever may create a request can then run
    /// programs in them, unless the right to do so is asked for when a request is created.
    pub runs_scripts: bool,
    /// Whether pods of roles that wait for others are created at once and wait inside, where the
    /// observer can let them go. Otherwise they are created when it is their turn.
    pub waits_inside: bool,
    /// By what nodes say that they are about to go.
    pub notices: NoticeRules,
    /// The labels of spot nodes, which pods that others need avoid.
    pub spot_labels: Vec<SpotLabel>,
}

/// A label of spot nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpotLabel {
    /// Its key.
    pub key: String,
    /// Its value.
    pub value: String,
}

/// The agent: a program that the operator puts into pods.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Agent {
    /// The image that contains it.
    pub image: String,
    /// When that image is pulled.
    pub image_pull_policy: Option<String>,
    /// The image may run as root. An image that is a machine's own files does, if root has started
    /// it.
    pub may_be_root: bool,
    /// The command that starts it in that image.
    pub command: Vec<String>,
    /// Whom the agent asks about its job; `None` if pods can't reach the operator.
    pub observer: Option<ObserverEndpoint>,
}

/// How the agent reaches the observer, which tells it about its job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObserverEndpoint {
    /// The address at which it is served.
    pub address: String,
    /// The certificates that the agent trusts, as PEM.
    pub authority: String,
}

impl Settings {
    /// The agent and its observer, if both exist: then agents can wait for other roles.
    pub fn agent_and_observer(&self) -> Option<(&Agent, &ObserverEndpoint)> {
        let agent = self.agent.as_ref()?;
        Some((agent, agent.observer.as_ref()?))
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            cluster_domain: "cluster.local".to_owned(),
            agent: None,
            allows_exec: false,
            runs_scripts: false,
            waits_inside: true,
            notices: NoticeRules::default(),
            spot_labels: Vec::new(),
        }
    }
}
