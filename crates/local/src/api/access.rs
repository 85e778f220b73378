//! What only a node can do: read the logs of its containers, and run commands in them.

use std::io;
use std::pin::Pin;

use bytes::Bytes;
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use jiff::Timestamp;
use tokio::io::{AsyncRead, AsyncWrite};

/// A pod, as its node knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PodRef<'a> {
    /// The pod's namespace.
    pub namespace: &'a str,
    /// The pod's name.
    pub name: &'a str,
    /// The pod's UID.
    pub uid: &'a str,
}

/// Which part of a log is wanted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogOptions {
    /// Whether to follow the log.
    pub follow: bool,
    /// The log of the container's previous run.
    pub previous: bool,
    /// Whether each line begins with the time at which it was written.
    pub timestamps: bool,
    /// Only so many lines from the end.
    pub tail_lines: Option<u64>,
    /// Only what was written since then.
    pub since: Option<Timestamp>,
    /// Only so many bytes.
    pub limit_bytes: Option<u64>,
}

/// A log.
pub type LogStream = BoxStream<'static, io::Result<Bytes>>;

/// A command that was started in a container.
pub struct Process {
    /// Its input; dropping it closes it.
    pub stdin: Pin<Box<dyn AsyncWrite + Send>>,
    /// Its output.
    pub stdout: Pin<Box<dyn AsyncRead + Send>>,
    /// Its errors.
    pub stderr: Pin<Box<dyn AsyncRead + Send>>,
    /// Resizes its terminal; None without one.
    pub resize: Option<Resize>,
    /// Its exit code. Dropping this kills the command.
    pub exit: BoxFuture<'static, i32>,
}

impl std::fmt::Debug for Process {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Process").finish_non_exhaustive()
    }
}

/// Sets the size of a terminal: columns, then rows.
pub type Resize = Box<dyn Fn(u16, u16) + Send + Sync>;

/// A command that is being started. The error says why it can't be.
pub type Start = BoxFuture<'static, Result<Process, String>>;

/// What the API server asks of a node.
pub trait NodeAccess: Send + Sync {
    /// The log of a container. The error says why there is none.
    fn logs(&self, pod: PodRef<'_>, container: &str, options: LogOptions) -> Result<LogStream, String>;

    /// Runs a command in a container. None if the container does not run.
    fn exec(
        &self,
        pod: PodRef<'_>,
        container: &str,
        command: Vec<String>,
        on_terminal: bool,
    ) -> Option<Start>;
}
