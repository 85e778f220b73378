//! How a pod leaves a job that goes on: what the observer tells its agent, what the program is told
//! by files, and what the agent reports.
//!
//! The operator tells the agent to have the program leave. The agent makes the file
//! [`LEAVE`](crate::directories::drain::names::LEAVE) in a directory that the program knows by
//! `TRAINYARD_DRAIN`. A program that knows of this makes the file `acknowledged`, ends what it
//! does, writes its checkpoint, makes the file `checkpoint`, which may contain the step, and exits.
//! A program that makes no file is asked by SIGTERM.

use serde::{Deserialize, Serialize};

/// Whether a pod is to leave: one line of the observer's answer, as JSON.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state")]
pub enum Drain {
    /// It stays.
    Stay,
    /// It is to leave.
    Leave {
        /// When it is deleted if it has not left, as RFC 3339.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        deadline: Option<String>,
    },
}

impl Drain {
    /// Whether the pod stays.
    pub fn stays(&self) -> bool {
        *self == Self::Stay
    }

    /// Reads a line. Fields that are not known are of a newer operator, and passed over.
    pub fn read(line: &[u8]) -> Result<Self, String> {
        serde_json::from_slice(line).map_err(|error| error.to_string())
    }
}

/// How far a pod is that was told to leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum DrainState {
    /// Its program knows.
    Acknowledged,
    /// Its program has written its checkpoint.
    CheckpointDone,
}

/// What the agent of a pod that was told to leave reports.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DrainReport {
    /// How far it is.
    pub state: DrainState,
    /// The step of its last checkpoint, if the program said so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<i64>,
}

impl DrainReport {
    /// The body of a report.
    pub fn write(&self) -> String {
        // Only a map whose keys are no text could fail, and there is none.
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Reads the body of a report.
    pub fn read(body: &[u8]) -> Result<Self, String> {
        serde_json::from_slice(body).map_err(|error| error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let deadline = Some("2026-01-01T00:00:00Z".to_owned());
        for drain in [Drain::Stay, Drain::Leave { deadline }] {
            let line = serde_json::to_string(&drain).unwrap();
            assert_eq!(Drain::read(line.as_bytes()), Ok(drain));
        }
        for state in [DrainState::Acknowledged, DrainState::CheckpointDone] {
            let report = DrainReport { state, step: Some(7) };
            assert_eq!(DrainReport::read(report.write().as_bytes()), Ok(report));
        }
    }

    #[test]
    fn fields_of_a_newer_operator_are_passed_over() {
        let line = br#"{"state":"Leave","deadline":null,"why":"spot"}"#;
        assert_eq!(Drain::read(line), Ok(Drain::Leave { deadline: None }));
    }
}
