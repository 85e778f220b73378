//! Why a connection ends.

use std::io;
use std::time::Duration;

use super::frame::FrameError;
use super::identity::explain;

/// Why a connection is over.
#[derive(Debug, thiserror::Error)]
pub enum LinkError {
    /// TLS does not allow it to go on.
    #[error("{}", explain(.0))]
    Tls(rustls::Error),
    /// What was said makes no sense.
    #[error("it said what makes no sense: {0}")]
    Frame(#[from] FrameError),
    /// The network has failed.
    #[error("the connection failed: {0}")]
    Io(#[from] io::Error),
    /// The other side has ended it.
    #[error("the connection was closed")]
    Closed,
    /// The other side does not answer.
    #[error("nothing was heard from it for {} s", .0.as_secs())]
    Silent(Duration),
    /// The Kubernetes API has another answer than a connection.
    #[error("the server answers {code}: {why}")]
    Answered {
        /// The code of HTTP.
        code: u16,
        /// What it says.
        why: String,
    },
    /// Who was asked does not speak as it should.
    #[error("it said no: {0}")]
    Refused(String),
    /// The agent in the other container has ended, or was not started.
    #[error("its agent has ended: {0}")]
    Ended(String),
}
