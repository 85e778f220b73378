//! One attempt to reach a host: how long it may take, and why it fails.

use std::io;
use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;

use crate::shell::error::LinkError;
use crate::shell::identity::is_of_another_job;

/// How long connecting may take, and each of its steps.
#[derive(Clone, Debug)]
pub struct Timeouts {
    /// For all attempts together.
    pub total: Duration,
    /// To connect to one address.
    pub connect: Duration,
    /// For one handshake.
    pub handshake: Duration,
    /// For attempts that the Kubernetes API forbids.
    pub forbidden: Duration,
    /// How long the other side may send nothing.
    pub idle: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            total: Duration::from_secs(30),
            connect: Duration::from_secs(5),
            handshake: Duration::from_secs(10),
            // The operator grants the right before it creates the pods, and the API server sees it
            // soon.
            forbidden: Duration::from_secs(10),
            idle: Duration::from_secs(4),
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
    /// Whether another attempt may succeed. A wrong certificate is transient, because a name may
    /// still lead to the pod that had the address before. Errors of this side are not.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Link(LinkError::Tls(error)) => is_of_another_job(error),
            Self::Link(LinkError::Frame(_) | LinkError::Refused(_)) => false,
            _ => true,
        }
    }

    /// Whether the Kubernetes API permits it; `None` if the API has not answered.
    pub fn is_permitted(&self) -> Option<bool> {
        match self {
            Self::Link(LinkError::Answered { code, .. }) => Some(!matches!(code, 401 | 403)),
            _ => None,
        }
    }
}

/// Connects to the first address of a host that answers.
pub fn dial(host: &str, port: u16, timeouts: &Timeouts) -> Result<TcpStream, ConnectError> {
    let mut tcp = Err(io::Error::new(io::ErrorKind::NotFound, "it has no address"));
    for address in (host, port).to_socket_addrs().map_err(ConnectError::Unknown)? {
        tcp = TcpStream::connect_timeout(&address, timeouts.connect);
        if tcp.is_ok() {
            break;
        }
    }
    tcp.map_err(ConnectError::Refused)
}
