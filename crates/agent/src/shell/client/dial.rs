//! One attempt to reach a host: how long it may take, and why it fails.

use std::io;
use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;

use crate::shell::error::LinkError;
use crate::shell::identity::is_of_another_job;

/// How long everything may take.
#[derive(Clone, Debug)]
pub struct Patience {
    /// Finding and connecting, with all attempts.
    pub total: Duration,
    /// One attempt to connect to one address.
    pub connect: Duration,
    /// One attempt to agree with who answers.
    pub handshake: Duration,
    /// Being told by the Kubernetes API that this side may not.
    pub refusal: Duration,
    /// The silence of who has answered.
    pub silence: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Self {
            total: Duration::from_secs(30),
            connect: Duration::from_secs(5),
            handshake: Duration::from_secs(10),
            // The right is given before the pods are made, and the API server hears of it within a moment.
            refusal: Duration::from_secs(10),
            silence: Duration::from_secs(4),
        }
    }
}

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The name is not known.
    #[error("its name can't be looked up: {0}")]
    Unknown(io::Error),
    /// It does not take connections.
    #[error("it can't be connected to: {0}")]
    Refused(io::Error),
    /// It does not agree.
    #[error("{0}")]
    Link(LinkError),
    /// It takes connections, and says nothing.
    #[error("nothing was heard from it for {} s", .0.as_secs_f64())]
    Silent(Duration),
    /// It does not speak as SSH servers do, which may be because it has too much to do.
    #[error("it is no SSH server yet: {0:?}")]
    NoServer(String),
    /// All of this for too long.
    #[error("{last}; given up after {} s", .total.as_secs_f64())]
    TooLong {
        /// What was wrong at last.
        last: Box<ConnectError>,
        /// How long it was tried.
        total: Duration,
    },
}

impl ConnectError {
    /// Whether it may be gone after a moment. A name may lead to who had its address before, or to the last pod of that name:
    /// who is a stranger now need not be one later. What is wrong with this side stays so.
    pub fn may_pass(&self) -> bool {
        match self {
            Self::Link(LinkError::Tls(error)) => is_of_another_job(error),
            Self::Link(LinkError::Frame(_) | LinkError::Refused(_)) => false,
            _ => true,
        }
    }

    /// What the Kubernetes API has said of it, if it has: whether this side may.
    pub fn permission(&self) -> Option<bool> {
        match self {
            Self::Link(LinkError::Answered { code, .. }) => Some(!matches!(code, 401 | 403)),
            _ => None,
        }
    }
}

/// Connects to the first address of a host that answers.
pub fn find(host: &str, port: u16, patience: &Patience) -> Result<TcpStream, ConnectError> {
    let mut tcp = Err(io::Error::new(io::ErrorKind::NotFound, "it has no address"));
    for address in (host, port).to_socket_addrs().map_err(ConnectError::Unknown)? {
        tcp = TcpStream::connect_timeout(&address, patience.connect);
        if tcp.is_ok() {
            break;
        }
    }
    tcp.map_err(ConnectError::Refused)
}
