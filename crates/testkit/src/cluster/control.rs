//! The protocol of the supervisor: a request and an answer, each a line of JSON.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;

use anyhow::{Context, Result, anyhow};
use serde::{Deserialize, Serialize};

use super::plan::Plan;

/// A question or command.
#[derive(Debug, Serialize, Deserialize)]
pub enum Request {
    /// Start the cluster.
    Boot(Box<Plan>),
    /// Ask for the status.
    Status,
    /// Start a component that is not running.
    Start(String),
    /// Send a signal to a component; `Kill` is answered when it has ended.
    Signal(String, Signal),
}

/// What can be sent to a component.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Signal {
    /// End at once.
    Kill,
    /// Pause.
    Stop,
    /// Resume.
    Continue,
}

/// The phase of a cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Phase {
    /// Waits for its plan.
    Waiting,
    /// Starts.
    Booting,
    /// Everything runs.
    Ready,
    /// It did not start, and why.
    Failed(String),
}

/// The answer to everything.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Status {
    /// Its phase.
    pub phase: Phase,
    /// The steps of its start so far.
    pub steps: Vec<String>,
    /// The components.
    pub components: Vec<ComponentStatus>,
}

/// One component.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ComponentStatus {
    /// Its name, such as `kubelet-node-a`.
    pub name: String,
    /// Its process, in the cluster's namespace, while it runs.
    pub pid: Option<u32>,
    /// How it ended, once it did.
    pub ended: Option<String>,
}

/// Sends a request to the cluster that listens on `socket`.
pub fn ask(socket: &Path, request: &Request) -> Result<Status> {
    let stream = UnixStream::connect(socket)
        .with_context(|| format!("nothing answers on {}; is the cluster up?", socket.display()))?;
    // Without a timeout: a start returns when the component is ready, and has a timeout of its own.
    let mut line = serde_json::to_vec(request)?;
    line.push(b'\n');
    (&stream).write_all(&line)?;
    let mut answer = String::new();
    BufReader::new(&stream)
        .read_line(&mut answer)
        .context("the cluster did not answer in time")?;
    let answer: std::result::Result<Status, String> =
        serde_json::from_str(&answer).context("the cluster's answer can't be understood")?;
    answer.map_err(|error| anyhow!(error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_survive_the_wire() {
        let text = serde_json::to_string(&Request::Signal("etcd".into(), Signal::Kill)).unwrap();
        let Request::Signal(name, signal) = serde_json::from_str(&text).unwrap() else {
            panic!("{text}")
        };
        assert_eq!((name.as_str(), signal), ("etcd", Signal::Kill));
    }
}
