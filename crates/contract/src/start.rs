//! Whether the programs of a pod may start: what the observer says, what a person says, and how the
//! agent ends when they never may.

use serde::{Deserialize, Serialize};

/// Annotation of a pod: its programs start, whatever they wait for.
pub const ANNOTATION_START: &str = "trainyard.dev/start";
/// The value of [`ANNOTATION_START`] by which they do.
pub const START_NOW: &str = "now";

/// The exit code of an agent whose wait is in vain.
pub const WAITED_IN_VAIN: u8 = 3;

/// Whether the programs of a role may start: one line of the observer's answer, as JSON.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "state", content = "message")]
pub enum Start {
    /// They may.
    Go,
    /// They may not yet, and why.
    Wait(String),
    /// They never may, and why.
    Never(String),
}

#[derive(Deserialize)]
struct Line {
    state: String,
    #[serde(default)]
    message: String,
}

impl Start {
    /// Reads a line, whose message may be missing and is empty then. Fields that are not known are
    /// of a newer operator, and passed over.
    pub fn read(line: &[u8]) -> Result<Self, String> {
        let Line { state, message } = serde_json::from_slice(line).map_err(|error| error.to_string())?;
        match &*state {
            "Go" => Ok(Self::Go),
            "Wait" => Ok(Self::Wait(message)),
            "Never" => Ok(Self::Never(message)),
            _ => Err(format!("there is no state {state:?}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let why = || "waits for \"a\"\n".to_owned();
        for start in [Start::Go, Start::Wait(why()), Start::Never(why())] {
            let line = serde_json::to_string(&start).unwrap();
            assert!(!line.contains('\n'), "it is one line: {line}");
            assert_eq!(Start::read(line.as_bytes()), Ok(start));
        }
    }
}
