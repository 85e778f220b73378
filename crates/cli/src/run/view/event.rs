//! What happens in a run, and what is to be printed of it.

use std::time::Duration;

use trainyard_api::{JobPhase, TrainingJob};

use super::PodSeen;

/// Something that happened.
#[derive(Debug)]
pub enum Event {
    /// Something that the user should know.
    Note(String),
    /// The job, as it is now.
    Job(Box<TrainingJob>),
    /// A pod, as it is now.
    Pod(PodSeen),
    /// A pod that is gone, by its uid.
    PodGone(String),
    /// A line of a container's log.
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
        /// Whether the container runs on after the job's end, and nobody ends it.
        goes_on: bool,
    },
    /// A line that a program appended to its progress file.
    Progress {
        /// The pod's name.
        pod: String,
        /// The line.
        line: String,
    },
    /// The job is being stopped before its end.
    Stopping(Stop),
}

/// Why a job is stopped before its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// The user has interrupted it.
    Interrupted,
    /// Its time is over.
    TimedOut,
}

/// Something to print once.
#[derive(Clone, Debug, PartialEq)]
pub enum Item {
    /// Something that the user should know.
    Note(String),
    /// The job has come to a phase.
    Phase {
        /// The phase.
        phase: JobPhase,
        /// When, since the start.
        at: Duration,
    },
    /// A line of a log.
    Log {
        /// Who says it.
        speaker: Speaker,
        /// The line.
        line: String,
    },
    /// A pod has failed, or does not get on.
    Trouble {
        /// Which pod.
        speaker: Speaker,
        /// What is wrong.
        message: String,
    },
    /// How far the job is, now and then.
    Progress(String),
    /// The job is being stopped before its end.
    Stopping(Stop),
}

/// Who says something: a pod, or a container beside the one that trains.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Speaker {
    /// The name without the job's, such as `worker-0` or `worker-0/sidecar`.
    pub label: String,
    /// Tells pods apart, for colours.
    pub number: usize,
}
