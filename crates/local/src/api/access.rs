//! What only a node can tell: the logs of its containers.

use std::io;

use bytes::Bytes;
use futures::stream::BoxStream;
use jiff::Timestamp;

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
    /// Whether to go on as the container writes.
    pub follow: bool,
    /// The log of the container's last run but one.
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

/// What the API server asks of a node.
pub trait NodeAccess: Send + Sync {
    /// The log of a container. Fails with a sentence that says why there is none.
    fn logs(&self, pod: PodRef<'_>, container: &str, options: LogOptions) -> Result<LogStream, String>;
}
