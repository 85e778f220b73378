//! Everything that a decision may look at: one job, its children as rows, the state of nodes, and
//! the time.

use std::fmt;
use std::net::IpAddr;
use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Instant;

use jiff::Timestamp;
use k8s_openapi::api::policy::v1::PodDisruptionBudgetSpec;
use trainyard_api::{Progress, TrainingJob};

use crate::local_state::LocalState;
use crate::notice::Notice;
use crate::registry::Frameworks;

pub use crate::settings::{Agent, ObserverEndpoint, Settings, SpotLabel};

/// Everything that is known about one job at one moment.
pub struct View<'a> {
    /// The job as it was last seen or written.
    pub job: &'a TrainingJob,
    /// The frameworks that the job can name.
    pub frameworks: &'a Frameworks,
    /// The pods whose controller, by UID, is this job.
    pub pods: &'a [PodRow],
    /// The Services whose controller, by UID, is this job.
    pub services: &'a [ServiceRow],
    /// Pods of this job that are deleted and had ended when they were last seen. The caller keeps
    /// them until it has written a status that was computed with them, or until another pod has
    /// that name.
    pub departed: &'a [PodRow],
    /// Objects of somebody else that have a name this job needs.
    pub conflicts: &'a [Conflict],
    /// What only this process knows about the job.
    pub local: &'a LocalState,
    /// The server has confirmed, in this reconcile, that the missing pods are deleted.
    pub absence_is_confirmed: bool,
    /// Why the server refuses a child of this job.
    pub refusal: Option<&'a Refusal>,
    /// The progress that its programs last reported.
    pub progress: Option<&'a Progress>,
    /// The state of nodes.
    pub nodes: &'a dyn Nodes,
    /// The disruption budgets that concern the job. `None` as long as they or nodes have not been
    /// listed, and where budgets may not be and the job has none.
    pub budgets: Option<&'a Budgets>,
    /// Settings of the operator.
    pub settings: &'a Settings,
    /// The time.
    pub now: Timestamp,
    /// The same moment on the monotonic clock that `local` uses.
    pub instant: Instant,
}

impl View<'_> {
    /// The state of the node that a pod is on.
    pub(crate) fn node(&self, row: &PodRow) -> NodeState {
        row.node
            .as_deref()
            .map_or(NodeState::Up, |node| self.nodes.state(node))
    }

    /// That the node of a pod is about to go, if it is.
    pub(crate) fn notice(&self, row: &PodRow) -> Option<&Notice> {
        self.nodes.notice(row.node.as_deref()?)
    }

    /// When a moment in the future is; `None` beyond the end of the calendar.
    pub(crate) fn time_of(&self, instant: Instant) -> Option<Timestamp> {
        let away = instant.saturating_duration_since(self.instant);
        self.now.checked_add(away).ok()
    }
}

/// Knows the state of nodes.
pub trait Nodes {
    /// The state of a node.
    fn state(&self, name: &str) -> NodeState;

    /// That a node is about to go, if it is.
    fn notice(&self, name: &str) -> Option<&Notice>;

    /// Returns true if the operator may see nodes, and has.
    fn are_known(&self) -> bool;
}

/// The state of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeState {
    /// It is ready, or nothing is known about it.
    Up,
    /// It does not report, or reports that it is not ready.
    Down,
    /// It was deleted or declared out of service, so whatever ran there has ended.
    Gone,
}

/// Nodes about which nothing is known.
#[derive(Clone, Copy, Debug)]
pub struct AllUp;

impl Nodes for AllUp {
    fn state(&self, _: &str) -> NodeState {
        NodeState::Up
    }

    fn notice(&self, _: &str) -> Option<&Notice> {
        None
    }

    fn are_known(&self) -> bool {
        false
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
    /// Its phase; once its main container has ended, that of the container.
    pub phase: PodPhase,
    /// Its main container has ended and others still run, so it still occupies its node.
    pub lingers: bool,
    /// Whether its Ready condition holds.
    pub ready: bool,
    /// Its address.
    pub address: Option<IpAddr>,
    /// Whether it is being deleted.
    pub terminating: bool,
    /// Whether it has the labels that Services select it by.
    pub labelled: bool,
    /// The fingerprint of what it carries of a job's annotations; see [`crate::passed_on`].
    pub passed_on: u64,
    /// Whether its agent has finished waiting for other roles and let its programs start.
    pub released: bool,
    /// Whether its agent waits for other roles, and no annotation tells it to stop.
    pub waits: bool,
    /// A hash of the template that it was created from, if changes of the template roll through the
    /// job.
    pub template: Option<NonZeroU64>,
    /// A hash of the spec that it was created from, if its job had no status then.
    pub spec: Option<NonZeroU64>,
    /// How often the pods of its role had started anew together when it was created.
    pub attempt: i32,
    /// How it ended, or how it was disrupted.
    pub end: Option<Box<PodEnd>>,
    /// What keeps it from running.
    pub trouble: Option<Box<Trouble>>,
}

impl PodRow {
    /// Returns true if it has ended.
    pub fn has_ended(&self) -> bool {
        matches!(self.phase, PodPhase::Succeeded | PodPhase::Failed)
    }

    /// Returns true if it runs or may start to.
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
    /// Its main container succeeded, or all containers did.
    Succeeded,
    /// Its main container failed, or a container without which that could not start, or the system
    /// ended it.
    Failed,
    /// Its node has not reported.
    Unknown,
}

/// How a pod ended. Pods that failed or are being deleted have it, whatever became of them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PodEnd {
    /// The container that ended: the main one; or, if other containers kept it from starting or
    /// failed alone, the first of those.
    pub container: Option<String>,
    /// Its exit code.
    pub exit_code: Option<i32>,
    /// The signal that ended it.
    pub signal: Option<i32>,
    /// The reason, in one word.
    pub reason: Option<String>,
    /// The container's termination message, or the pod's.
    pub message: Option<String>,
    /// When the container ended.
    pub finished_at: Option<Timestamp>,
    /// When the pod was asked to terminate or the system began to evict it. `None` if it was not,
    /// or if the time is not known.
    pub asked_at: Option<Timestamp>,
    /// The resource version that first showed this end; 0 if unknown. It orders ends within a
    /// second: the times of Kubernetes are no more exact.
    pub seen_version: u64,
    /// The system evicted or preempted the pod, or lost its node: not the program's fault.
    pub disrupted: bool,
}

/// What keeps a pod from running, as the scheduler or the kubelet reports it.
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
    /// Whether it is being deleted.
    pub terminating: bool,
}

/// The disruption budgets that concern a job.
#[derive(Clone, Debug, Default)]
pub struct Budgets {
    /// Those whose controller, by UID, is this job.
    pub own: Arc<Vec<BudgetRow>>,
    /// Those in its namespace that are of no job.
    pub foreign: Arc<Vec<BudgetRow>>,
    /// Whether the operator may see budgets and nodes, and so when one is about to go.
    pub sees_all: bool,
}

/// One disruption budget.
#[derive(Clone, Debug, PartialEq)]
pub struct BudgetRow {
    /// Its name.
    pub name: Box<str>,
    /// Its UID.
    pub uid: Box<str>,
    /// Whether it is being deleted.
    pub terminating: bool,
    /// Whether it has no owner, but a label that says that the operator has made it for the job
    /// whose name it has.
    pub is_orphan: bool,
    /// Which pods it is about, and how many of them must stay.
    pub spec: PodDisruptionBudgetSpec,
}

/// An object of somebody else that has a name this job needs.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Conflict {
    /// Its kind.
    pub kind: &'static str,
    /// Its name.
    pub name: String,
    /// Its owner in words: `nobody`, or a kind and a name.
    pub owner: String,
}

/// A child that the server refused to create. The message stays the same from one try to the next
/// as long as the cause does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Its kind.
    pub kind: &'static str,
    /// Its name.
    pub name: String,
    /// The server's message.
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
