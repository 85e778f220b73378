//! The vocabulary of decisions: the children of a job, and the writes that a plan consists of.
//!
//! Every other module of this crate may use it, and it uses none of them.

use std::collections::BTreeMap;
use std::sync::Arc;

use trainyard_api::{DependencyState, Reason, TrainingJobStatus, names};

/// One pod of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PodKey {
    /// The position of its role in `spec.roles`.
    pub role: usize,
    /// Its index within the role.
    pub index: i32,
}

/// One Service of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ServiceKey {
    /// The headless Service that gives every pod its DNS name.
    Headless,
    /// The headless Service that gives the pods of one role their DNS names: the role's position in
    /// `spec.roles`. Jobs of some dialects have these in the place of [`ServiceKey::Headless`].
    Role(usize),
    /// The Service that gives rank 0 an address of its own.
    Master,
}

/// Names of pods, sorted.
pub type PodNames = Arc<[Box<str>]>;

/// A status, and when to write it.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum StatusWrite {
    /// The status is as it should be.
    #[default]
    Unchanged,
    /// It differs.
    Changed(Box<TrainingJobStatus>, Urgency),
}

/// Why a pod that was told to leave is deleted while it runs, which asks it by SIGTERM.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ForcedRemoval {
    /// Its program has said nothing, or has no agent from which it could hear.
    Silent,
    /// Its program has said that it knows, and the time of the drain is over.
    TimedOut,
}

impl ForcedRemoval {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::Silent, Self::TimedOut];

    /// The word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Silent => "Silent",
            Self::TimedOut => "TimedOut",
        }
    }
}

/// Why pods were told to leave.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum DrainCause {
    /// The elastic role has fewer pods.
    #[default]
    Scale,
    /// All pods of a rigid job start anew with another size.
    Restart,
    /// Their node is about to go, or one of them is taken away and the others can't go on.
    Disruption,
    /// The job is suspended.
    Suspend,
}

impl DrainCause {
    /// The word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Scale => "Scale",
            Self::Restart => "Restart",
            Self::Disruption => "Disruption",
            Self::Suspend => "Suspend",
        }
    }
}

/// What has become of pods that were told to leave, as a status tells it. It is counted when that
/// status is written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DrainSummary {
    /// Why they were told.
    pub cause: DrainCause,
    /// How long the drain took, if it is over.
    pub seconds: Option<i64>,
    /// How many pods are deleted while they run.
    pub forced: BTreeMap<ForcedRemoval, u64>,
    /// How many steps were done since the last checkpoint, if all pods have left and both are
    /// known.
    pub steps_lost: Option<i64>,
}

/// How soon a status is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Urgency {
    /// Only counters or messages differ. It is written when the last write is some seconds old.
    Paced,
    /// Pods have succeeded. If they are deleted, only the status knows that. It is written two
    /// seconds after the first success, so that many successes cost one write.
    Succeeding,
    /// Pods have left by a change of size, and those that leave together cost one write.
    Leaving,
    /// It is the first, and says only that the job starts. Most jobs run soon, and one write tells
    /// both.
    Starting,
    /// Something differs that users or decisions depend on. It is written now.
    Now,
}

impl StatusWrite {
    /// The status that differs.
    pub(crate) fn status(&self) -> Option<&TrainingJobStatus> {
        match self {
            Self::Unchanged => None,
            Self::Changed(status, _) => Some(status),
        }
    }

    /// The same, to be changed.
    pub(crate) fn status_mut(&mut self) -> Option<&mut TrainingJobStatus> {
        match self {
            Self::Unchanged => None,
            Self::Changed(status, _) => Some(status),
        }
    }

    /// How soon it is written; `None` if it is unchanged.
    pub(crate) fn urgency(&self) -> Option<Urgency> {
        match self {
            Self::Unchanged => None,
            Self::Changed(_, urgency) => Some(*urgency),
        }
    }

    /// Writes the status now if it would be written later.
    pub(crate) fn write_now(&mut self) {
        if let Self::Changed(_, urgency) = self {
            *urgency = Urgency::Now;
        }
    }
}

/// One request for a job: a write, or a look at an object that is not watched.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// Create a pod.
    CreatePod(PodKey),
    /// Restore the labels of a pod that somebody removed.
    LabelPod {
        /// The pod.
        key: PodKey,
        /// Its UID.
        uid: String,
    },
    /// Tell the agent in a pod, by an annotation, that its programs may start.
    StartPod {
        /// The pod's name.
        name: String,
        /// Its UID.
        uid: String,
    },
    /// Create a Service.
    CreateService(ServiceKey),
    /// Create the Secret with the identity of the job's pods, or find that it exists. Done only
    /// while no pod runs that has another one.
    CreateSecret(Identity),
    /// Find out whether that Secret still exists, because pods that exist have it or wait for it.
    FindSecret(Identity),
    /// Create the account of the pods that start programs through the API server, with a right that
    /// covers no pod yet; or find that all of it exists.
    CreateExecRight,
    /// Let that right cover exactly these pods of the job; none takes it away.
    Grant(PodNames),
    /// Delete a pod.
    DeletePod {
        /// Its name.
        name: String,
        /// Its UID, so that a later pod of the same name is not deleted.
        uid: String,
        /// Do not wait for its node, which does not exist any more.
        force: bool,
    },
    /// Delete a Service.
    DeleteService {
        /// Its name.
        name: String,
        /// Its UID.
        uid: String,
    },
    /// Create the disruption budget. Unlike other children it is missed by no pod, so that a job
    /// goes on as it is where that fails.
    CreateBudget,
    /// Delete a disruption budget.
    DeleteBudget {
        /// Its name.
        name: String,
        /// Its UID.
        uid: String,
    },
    /// Delete the job itself.
    DeleteJob,
}

impl Action {
    /// Returns true if this creates a child, or prepares for children that are to be created.
    pub fn creates(&self) -> bool {
        matches!(
            self,
            Self::CreatePod(_)
                | Self::CreateService(_)
                | Self::CreateSecret(_)
                | Self::FindSecret(_)
                | Self::CreateExecRight
        )
    }
}

/// An event for the user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobEvent {
    /// Whether something is wrong.
    pub warning: bool,
    /// One word.
    pub reason: Reason,
    /// A sentence.
    pub message: String,
}

/// How the pods of a job identify themselves to each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Identity {
    /// A certificate for servers and clients, of an authority that has signed nothing else.
    Certificate,
    /// An SSH key for servers and clients.
    SshKey,
}

impl Identity {
    /// All kinds of identity.
    pub const ALL: [Self; 2] = [Self::Certificate, Self::SshKey];

    /// The name of the Secret that holds it. Each identity has a Secret of its own, because a
    /// suspended job may change from one to the other.
    pub fn secret_name(self, job: &str) -> String {
        match self {
            Self::Certificate => names::mpi_secret(job),
            Self::SshKey => names::ssh_secret(job),
        }
    }
}

/// A role that another one waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Awaited {
    /// Its position in `spec.roles`.
    pub role: usize,
    /// The state that it must reach.
    pub state: DependencyState,
}
