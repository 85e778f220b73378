//! The vocabulary of decisions: the children of a job, and the writes that a plan is made of.
//!
//! Everything else in this crate may use it, and it uses nothing else.

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
    /// The headless Service that gives every pod its name.
    Headless,
    /// The Service that gives rank 0 an address of its own.
    Master,
}

/// A status to write.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum StatusWrite {
    /// It is as it should be.
    #[default]
    Unchanged,
    /// Only counters or messages differ: write it when the last write is some seconds old.
    Soon(Box<TrainingJobStatus>),
    /// Pods have succeeded, which an operator that starts anew could not know if they were removed: write it a second after
    /// the first of them, so that many that succeed together cost one write.
    Early(Box<TrainingJobStatus>),
    /// Something that users or decisions depend on differs: write it now.
    Now(Box<TrainingJobStatus>),
}

impl StatusWrite {
    /// Writes now what would be written later.
    pub(crate) fn hurry(&mut self) {
        *self = match std::mem::take(self) {
            Self::Soon(status) | Self::Early(status) => Self::Now(status),
            write => write,
        };
    }
}

/// One write.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// Create a pod.
    CreatePod(PodKey),
    /// Give a pod back the labels that somebody took from it.
    LabelPod {
        /// The pod.
        key: PodKey,
        /// Its UID.
        uid: String,
    },
    /// Tell the agent of a pod, by an annotation, that its programs may start.
    StartPod {
        /// The pod's name.
        name: String,
        /// Its UID.
        uid: String,
    },
    /// Create a Service.
    CreateService(ServiceKey),
    /// Create the Secret by which the job's pods know each other, with content made for it, or find that it is there. Only while
    /// no pod runs that has another.
    CreateSecret(Identity),
    /// Find out whether that Secret is still there, which pods that run have, or wait for.
    FindSecret(Identity),
    /// Give the job the right to start programs in its pods through the API server, or make it what it should be.
    Grant,
    /// Delete a pod.
    DeletePod {
        /// Its name.
        name: String,
        /// Its UID: a pod of the same name that came later is not touched.
        uid: String,
        /// Without waiting for its node, which is known to be gone.
        force: bool,
    },
    /// Delete a Service.
    DeleteService {
        /// Its name.
        name: String,
        /// Its UID.
        uid: String,
    },
    /// Delete the job itself.
    DeleteJob,
}

impl Action {
    /// Whether it creates a child, or is for those that are to be created.
    pub fn creates(&self) -> bool {
        matches!(
            self,
            Self::CreatePod(_)
                | Self::CreateService(_)
                | Self::CreateSecret(_)
                | Self::FindSecret(_)
                | Self::Grant
        )
    }
}

/// What to tell the user: an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobEvent {
    /// Whether something is wrong.
    pub warning: bool,
    /// One word.
    pub reason: Reason,
    /// A sentence.
    pub message: String,
}

/// By what the pods of a job know each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Identity {
    /// A certificate, for servers and clients alike, of an authority that has signed nothing else.
    Certificate,
    /// A key for SSH, for servers and clients alike.
    SshKey,
}

impl Identity {
    /// All there are.
    pub const ALL: [Self; 2] = [Self::Certificate, Self::SshKey];

    /// The name of the Secret that holds it. Each has its own, because a suspended job may change
    /// from one to the other.
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
    /// What it must have come to.
    pub state: DependencyState,
}
