//! One reconcile, decided: [`plan`] says all that should be done now.

use jiff::Timestamp;
use trainyard_api::{Reason, TrainingJobStatus};

use crate::view::View;

/// What should be done now, in this order: `actions`, `status`, and only if that was written, `after` and `events`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    /// What can be done at any time and in any order: repeating it does no harm, and nothing is lost by it.
    pub actions: Vec<Action>,
    /// The status to write.
    pub status: StatusWrite,
    /// What destroys evidence that `status` keeps, and so must come after it.
    pub after: Vec<Action>,
    /// What to tell the user, once `status` is written.
    pub events: Vec<Note>,
    /// When to look again though nothing happened.
    pub wake_at: Option<Timestamp>,
}

/// A status to write.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum StatusWrite {
    /// It is as it should be.
    #[default]
    Unchanged,
    /// Only counters or messages differ: write it when the last write is some seconds old.
    Soon(Box<TrainingJobStatus>),
    /// Something that users or decisions depend on differs: write it now.
    Now(Box<TrainingJobStatus>),
}

/// One write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Create a pod.
    CreatePod(PodKey),
    /// Create a Service.
    CreateService(ServiceKey),
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

/// What to tell the user: an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// Whether something is wrong.
    pub warning: bool,
    /// One word.
    pub reason: Reason,
    /// A sentence.
    pub message: String,
}

/// All that should be done for a job now.
pub fn plan(view: &View<'_>) -> Plan {
    let _ = view;
    Plan::default()
}
