//! How a run ended.

use serde::Serialize;

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Outcome {
    /// The job has succeeded.
    Succeeded,
    /// The job has failed.
    Failed,
    /// The operator did not accept the job.
    Refused,
    /// The time that the user gave was over.
    TimedOut,
    /// This machine, or the cluster, could not go on.
    Broken,
    /// The user did not want to wait for the end.
    Interrupted,
}

impl Outcome {
    /// What the process says to who started it.
    pub const fn exit_code(self) -> u8 {
        match self {
            Self::Succeeded => 0,
            Self::Failed => 1,
            Self::Refused => 2,
            Self::TimedOut => 3,
            Self::Broken => 4,
            Self::Interrupted => 130,
        }
    }
}
