//! Events of a run, and the items that are printed for them.

use std::time::Duration;

use trainyard_api::{JobPhase, TrainingJob};

use super::ObservedPod;

#[derive(Debug)]
pub enum Event {
    /// Something that the user should know.
    Note(String),
    Job(Box<TrainingJob>),
    Pod(ObservedPod),
    /// The uid of a pod that is gone.
    PodGone(String),
    Log {
        /// The pod's uid.
        uid: String,
        /// The container's name.
        container: String,
        /// The line, without its end.
        line: String,
    },
    /// A log that was not read to its end.
    Unread {
        /// The pod's uid.
        uid: String,
        /// The container's name.
        container: String,
        /// Whether the container keeps running after the job's end.
        is_running_on: bool,
    },
    /// A line that a program appended to its progress file.
    Progress {
        /// The pod's name.
        pod: String,
        line: String,
    },
    /// The job is being stopped before its end.
    Stopping(Stop),
}

/// Why a job is stopped before its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    Interrupted,
    TimedOut,
}

/// Something to print.
#[derive(Clone, Debug, PartialEq)]
pub enum Item {
    /// Something that the user should know.
    Note(String),
    Phase {
        phase: JobPhase,
        /// Since the start.
        at: Duration,
    },
    Log {
        source: Source,
        line: String,
    },
    /// A pod has failed, or can't start.
    Trouble {
        source: Source,
        message: String,
    },
    Progress(String),
    /// The job is being stopped before its end.
    Stopping(Stop),
}

/// A pod, or a container beside its main container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// The name without the job's, such as `worker-0` or `worker-0/sidecar`.
    pub label: String,
    /// Tells pods apart, for colours.
    pub number: usize,
}
