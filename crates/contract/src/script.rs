//! How a script is run in a launcher: what the observer tells the agent that is the first process
//! there, and what the agent reports.
//!
//! The operator has written the attempt into the status of the request before it tells anybody. The
//! agent runs each attempt once, and reports how it ended for as long as it is told to run it. An
//! attempt that is not told any more is stopped.

use serde::{Deserialize, Serialize};

/// The longest line that tells what to run, in bytes: agents read no longer ones.
pub const MAX_ORDER: usize = 60 * 1024;
/// The most that is kept of what a script prints, in bytes: the end of it.
pub const MAX_OUTPUT: usize = 2048;

/// Which script the launcher is to run: one line of the observer's answer, as JSON.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state")]
pub enum ScriptOrder {
    /// None.
    Idle,
    /// This one, once.
    Run(ScriptRun),
}

/// One attempt of a script.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ScriptRun {
    /// The UID of the request.
    pub request: String,
    /// The number of the attempt, from 1.
    pub attempt: i32,
    /// The program.
    pub program: String,
    /// Its arguments, as they are.
    pub args: Vec<String>,
    /// Its variables besides those of the container: names and values, as they are.
    #[serde(default)]
    pub env: Vec<(String, String)>,
    /// After how many seconds it is ended.
    pub timeout_seconds: i64,
}

impl ScriptOrder {
    /// Writes the line, without its end.
    pub fn write(&self) -> String {
        // Only a map whose keys are no text could fail, and there is none.
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Reads a line. Fields that are not known are of a newer operator, and passed over.
    pub fn read(line: &[u8]) -> Result<Self, String> {
        serde_json::from_slice(line).map_err(|error| error.to_string())
    }
}

impl ScriptRun {
    /// Whether agents can read the line that tells to run it.
    pub fn fits(&self) -> bool {
        ScriptOrder::Run(self.clone()).write().len() <= MAX_ORDER
    }
}

/// How an attempt ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state")]
pub enum ScriptEnd {
    /// By itself, or by a signal.
    Exited {
        /// The exit code; 128 and the number of the signal that has ended it.
        code: i32,
    },
    /// It took too long, and was ended.
    TimedOut,
    /// It could not be started.
    NotStarted,
}

/// What the agent reports of an attempt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ScriptReport {
    /// The UID of the request.
    pub request: String,
    /// The number of the attempt.
    pub attempt: i32,
    /// How it ended.
    pub end: ScriptEnd,
    /// The end of what it has printed, or why it was not started.
    #[serde(default)]
    pub output: String,
}

impl ScriptReport {
    /// The body of a report.
    pub fn write(&self) -> String {
        // Only a map whose keys are no text could fail, and there is none.
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Reads the body of a report.
    pub fn read(body: &[u8]) -> Result<Self, String> {
        let report: Self = serde_json::from_slice(body).map_err(|error| error.to_string())?;
        if report.output.len() > MAX_OUTPUT {
            return Err(format!("the output has more than {MAX_OUTPUT} bytes"));
        }
        Ok(report)
    }
}

/// What is kept of what a script has printed: the end of it as text that can be shown on a
/// terminal.
pub fn printable_end(bytes: &[u8]) -> String {
    let is_plain = |c: char| !c.is_control() || c == '\n' || c == '\t';
    let text: String = String::from_utf8_lossy(bytes)
        .trim()
        .chars()
        .map(|c| if is_plain(c) { c } else { '\u{fffd}' })
        .collect();
    let from = text.len().saturating_sub(MAX_OUTPUT);
    let from = (from..text.len()).find(|at| text.is_char_boundary(*at));
    text.get(from.unwrap_or_default()..)
        .unwrap_or_default()
        .to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observer::MAX_BODY;

    fn run() -> ScriptRun {
        ScriptRun {
            request: "u".to_owned(),
            attempt: 2,
            program: "/scripts/leave".to_owned(),
            args: vec!["w-1:4,w-2:4".to_owned()],
            env: vec![("A".to_owned(), "it's \"$(so)\"\n".to_owned())],
            timeout_seconds: 60,
        }
    }

    #[test]
    fn what_is_written_is_read() {
        for order in [ScriptOrder::Idle, ScriptOrder::Run(run())] {
            assert_eq!(ScriptOrder::read(order.write().as_bytes()), Ok(order));
        }
        for end in [
            ScriptEnd::Exited { code: 3 },
            ScriptEnd::TimedOut,
            ScriptEnd::NotStarted,
        ] {
            let report = ScriptReport {
                request: "u".to_owned(),
                attempt: 1,
                end,
                output: "so".to_owned(),
            };
            assert_eq!(ScriptReport::read(report.write().as_bytes()), Ok(report));
        }
    }

    #[test]
    fn what_agents_can_not_read_does_not_fit() {
        let hosts = |count: usize| vec!["a-worker-1234.a:8".to_owned(); count].join(",");
        let of = |count| ScriptRun {
            args: vec![hosts(count)],
            ..run()
        };
        assert!(of(3000).fits());
        assert!(!of(4000).fits());
    }

    #[test]
    fn the_end_of_an_output_is_kept_as_text() {
        assert_eq!(
            printable_end(b"\x1b[31mred\x07\n\xff\n"),
            "\u{fffd}[31mred\u{fffd}\n\u{fffd}"
        );
        let long = "ä".repeat(MAX_OUTPUT);
        let end = printable_end(&long.as_bytes()[1..]);
        assert!(
            (MAX_OUTPUT - 4..=MAX_OUTPUT).contains(&end.len()),
            "{}",
            end.len()
        );
        for noise in [vec![0xff; 10_000], vec![b'"'; 10_000], vec![7; 10_000]] {
            let report = ScriptReport {
                request: "u".repeat(36),
                attempt: i32::MAX,
                end: ScriptEnd::Exited { code: i32::MIN },
                output: printable_end(&noise),
            };
            let body = report.write();
            assert!(body.len() <= MAX_BODY);
            assert_eq!(ScriptReport::read(body.as_bytes()), Ok(report));
        }
    }
}
