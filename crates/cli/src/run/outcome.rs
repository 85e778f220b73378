//! How a run ended, and its exit code.

use serde::Serialize;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Outcome {
    Succeeded,
    Failed,
    /// The operator did not accept the job.
    Refused,
    /// `--timeout` was over.
    TimedOut,
    /// This machine, or the cluster, could not go on.
    Broken,
    Interrupted,
}

impl Outcome {
    /// The exit code of `trainyard run`.
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
