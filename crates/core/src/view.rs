//! What a decision may look at: one job, its children as slim rows, facts of nodes, and the time.

use std::fmt;
use std::net::IpAddr;
use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Instant;

use jiff::Timestamp;
use trainyard_api::{Progress, TrainingJob};

use crate::local_state::LocalState;

/// Settings of the operator that decisions depend on.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The cluster's DNS domain.
    pub cluster_domain: String,
    /// The agent that works inside of pods; `None` where there is no image that has it.
    pub agent: Option<Agent>,
    /// Whether jobs may be given the right to start programs in their pods through the API server.
    pub allows_exec: bool,
}

/// The agent: a program that is put into pods.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Agent {
    /// The image that has it.
    pub image: String,
    /// When that image is pulled.
    pub image_pull_policy: Option<String>,
    /// Whether that image may run as root: one that is a machine's own files does, where root has started it.
    pub may_be_root: bool,
    /// How it is called in that image.
    pub command: Vec<String>,
    /// Who tells it about its job; `None` where pods can't reach the operator.
    pub observer: Option<Observer>,
}

/// Who tells the agent about its job: the operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Observer {
    /// Where it is served.
    pub address: String,
    /// The certificates by which the agent knows it, as PEM.
    pub authority: String,
}

impl Settings {
    /// The agent and who tells it about its job, where there are both: then it can wait for other roles.
    pub fn told_agent(&self) -> Option<(&Agent, &Observer)> {
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
        }
    }
}

/// Everything that is known of one job at one moment.
pub struct View<'a> {
    /// The job as last seen or written.
    pub job: &'a TrainingJob,
    /// The pods whose controller, by UID, is this job.
    pub pods: &'a [PodRow],
    /// The Services whose controller, by UID, is this job.
    pub services: &'a [ServiceRow],
    /// Pods of this job that are gone and had ended when they were last seen. Whoever looks keeps them until a status has been
    /// written that was computed with them, or there is another pod of that name.
    pub departed: &'a [PodRow],
    /// Objects of somebody else that have a name this job needs.
    pub conflicts: &'a [Conflict],
    /// What only this process knows about the job.
    pub local: &'a LocalState,
    /// Whether the server has confirmed, in this reconcile, that pods which are not there are gone.
    pub absence_is_confirmed: bool,
    /// Why the server does not take a child of this job.
    pub refusal: Option<&'a Refusal>,
    /// What its programs last said of their progress.
    pub progress: Option<&'a Progress>,
    /// What is known of nodes.
    pub nodes: &'a dyn Nodes,
    /// Settings of the operator.
    pub settings: &'a Settings,
    /// The time.
    pub now: Timestamp,
    /// The same moment by the clock that `local` is told in.
    pub instant: Instant,
}

impl View<'_> {
    /// The state of the node that a pod is on.
    pub(crate) fn node(&self, row: &PodRow) -> NodeState {
        row.node
            .as_deref()
            .map_or(NodeState::Up, |node| self.nodes.state(node))
    }

    /// The time of a moment to come; `None` beyond the end of the calendar.
    pub(crate) fn time_of(&self, instant: Instant) -> Option<Timestamp> {
        let away = instant.saturating_duration_since(self.instant);
        self.now.checked_add(away).ok()
    }
}

/// What is known of nodes.
pub trait Nodes {
    /// The state of a node.
    fn state(&self, name: &str) -> NodeState;
}

/// The state of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeState {
    /// It is ready, or nothing is known of it.
    Up,
    /// It has not been heard of, or says that it is not ready.
    Down,
    /// It was removed, or declared out of service: what ran there has ended.
    Gone,
}

/// Nodes of which nothing is known.
#[derive(Clone, Copy, Debug)]
pub struct AllUp;

impl Nodes for AllUp {
    fn state(&self, _: &str) -> NodeState {
        NodeState::Up
    }
}

/// One pod of a job, reduced to what decisions need.
#[derive(Clone, Debug, PartialEq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "facts that hold or do not, each on its own"
)]
pub struct PodRow {
    /// Its name.
    pub name: Box<str>,
    /// Its UID.
    pub uid: Box<str>,
    /// The node it is bound to.
    pub node: Option<Arc<str>>,
    /// Its phase, as its main container has it once that has ended.
    pub phase: PodPhase,
    /// Its main container has ended and others still run: it holds its node.
    pub lingers: bool,
    /// Whether its Ready condition holds.
    pub ready: bool,
    /// Its address.
    pub address: Option<IpAddr>,
    /// Whether it has been asked to go.
    pub terminating: bool,
    /// Whether it has the labels by which it is found.
    pub labelled: bool,
    /// Whether its agent has waited for other roles and let its programs start.
    pub released: bool,
    /// Whether its agent waits for other roles, and nothing on the pod tells it to stop.
    pub waits: bool,
    /// A hash of the template that it was made from, where its job's pods are replaced when that changes.
    pub template: Option<NonZeroU64>,
    /// How it ended, or by what it was disrupted.
    pub end: Option<Box<PodEnd>>,
    /// What keeps it from running.
    pub trouble: Option<Box<Trouble>>,
}

impl PodRow {
    /// Whether it has ended.
    pub fn has_ended(&self) -> bool {
        matches!(self.phase, PodPhase::Succeeded | PodPhase::Failed)
    }

    /// Whether it runs, or is about to.
    pub(crate) fn may_run(&self) -> bool {
        !self.has_ended()
    }
}

/// A pod's phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PodPhase {
    /// Not all containers have started.
    Pending,
    /// At least one container runs.
    Running,
    /// Its main container ended well, or all did.
    Succeeded,
    /// Its main container, or another without which the main one did not start, ended badly, or the system ended it.
    Failed,
    /// Its node has not reported.
    Unknown,
}

/// How a pod ended. Present on pods that failed, and on pods that were asked to go, whatever has become of them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PodEnd {
    /// The container that ended: the main one, or, if another kept it from starting or ended badly alone, the first of those.
    pub container: Option<String>,
    /// Its exit code.
    pub exit_code: Option<i32>,
    /// The signal that ended it.
    pub signal: Option<i32>,
    /// Why, in one word.
    pub reason: Option<String>,
    /// The container's termination message, or the pod's.
    pub message: Option<String>,
    /// When the container ended.
    pub finished_at: Option<Timestamp>,
    /// When the pod was asked to go, or the system began to take it away; `None` if nobody did, or if it is not known when.
    pub asked_at: Option<Timestamp>,
    /// The resource version that first showed this end; 0 if unknown. It orders ends within a
    /// second, which is as exact as Kubernetes tells times.
    pub seen_version: u64,
    /// The system took the pod away (eviction, preemption, lost node): not the program's fault.
    pub disrupted: bool,
}

/// What keeps a pod from running, as the scheduler or the kubelet says.
#[derive(Clone, Debug, PartialEq)]
pub struct Trouble {
    /// One word, such as `Unschedulable` or `ImagePullBackOff`.
    pub reason: String,
    /// A sentence.
    pub message: String,
}

/// One Service of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceRow {
    /// Its name.
    pub name: Box<str>,
    /// Its UID.
    pub uid: Box<str>,
    /// Whether it has been asked to go.
    pub terminating: bool,
}

/// An object of somebody else that has a name this job needs.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Conflict {
    /// Its kind.
    pub kind: &'static str,
    /// Its name.
    pub name: String,
    /// Whose it is, in words: `nobody`, or a kind and a name.
    pub owner: String,
}

/// A child that the server did not take. The words stay the same from one try to the next, as long as they say the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Its kind.
    pub kind: &'static str,
    /// Its name.
    pub name: String,
    /// What the server said.
    pub message: String,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} {:?} could not be created: {}",
            self.kind, self.name, self.message
        )
    }
}
