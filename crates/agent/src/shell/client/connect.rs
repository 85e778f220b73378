//! Finds a host that may not be there yet.

use std::io;
use std::net::{TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use rustls::{ClientConfig, ClientConnection, Connection};

use crate::backoff::Backoff;
use crate::shell::identity::server_name;
use crate::shell::link::{Link, LinkError};
use crate::shell::wire::Tls;

use super::api::Api;

/// How long everything may take.
#[derive(Clone, Debug)]
pub struct Patience {
    /// Finding and connecting, with all attempts.
    pub total: Duration,
    /// One attempt to connect to one address.
    pub connect: Duration,
    /// One attempt to agree with who answers.
    pub handshake: Duration,
    /// The silence of who has answered.
    pub silence: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Self {
            total: Duration::from_secs(30),
            connect: Duration::from_secs(5),
            handshake: Duration::from_secs(10),
            silence: Duration::from_secs(4),
        }
    }
}

/// The longest pause between attempts.
const PAUSE: Duration = Duration::from_secs(1);

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
    /// All of this for too long.
    #[error("{last}; given up after {} s", .total.as_secs())]
    TooLong {
        /// What was wrong at last.
        last: Box<ConnectError>,
        /// How long it was tried.
        total: Duration,
    },
}

impl ConnectError {
    /// Whether it may be gone after a moment. Who is a stranger stays one.
    fn may_pass(&self) -> bool {
        !matches!(
            self,
            Self::Link(LinkError::Tls(_) | LinkError::Frame(_) | LinkError::Refused(_))
        )
    }
}

/// How other pods are reached.
#[derive(Debug)]
pub enum Way {
    /// The agent listens there.
    Agent {
        /// On which port.
        port: u16,
        /// By what both sides know each other.
        tls: Arc<ClientConfig>,
    },
    /// The Kubernetes API starts the agent there.
    Exec(Api),
}

/// Connects, and makes sure that the host is of this job. Pods that are about to start are waited for.
pub fn connect(host: &str, way: &Way, patience: &Patience) -> Result<Link, ConnectError> {
    let deadline = Instant::now() + patience.total;
    let mut backoff = Backoff::default();
    loop {
        let attempt = match way {
            Way::Agent { port, tls } => attempt(host, *port, tls, patience),
            Way::Exec(api) => api.attempt(host, patience),
        };
        let error = match attempt {
            Ok(link) => return Ok(link),
            Err(error) if !error.may_pass() => return Err(error),
            Err(error) => error,
        };
        let pause = backoff.pause(PAUSE, fastrand::f64());
        if Instant::now() + pause >= deadline {
            return Err(ConnectError::TooLong {
                last: Box::new(error),
                total: patience.total,
            });
        }
        thread::sleep(pause);
    }
}

fn attempt(
    host: &str,
    port: u16,
    tls: &Arc<ClientConfig>,
    patience: &Patience,
) -> Result<Link, ConnectError> {
    let tcp = find(host, port, patience)?;
    let deadline = Instant::now() + patience.handshake;
    server_name()
        .and_then(|name| ClientConnection::new(tls.clone(), name).map_err(LinkError::Tls))
        .and_then(|tls| Tls::open(Connection::Client(tls), tcp, deadline))
        .and_then(|tls| Link::new(tls, patience.silence))
        .map_err(ConnectError::Link)
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

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use rustls::RootCertStore;
    use rustls::crypto::ring;

    use super::*;

    fn nobody() -> Arc<ClientConfig> {
        let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(RootCertStore::empty())
            .with_no_client_auth();
        Arc::new(config)
    }

    fn problem(listener: &TcpListener, host: &str) -> String {
        let patience = Patience {
            total: Duration::from_secs(1),
            handshake: Duration::from_millis(100),
            ..Patience::default()
        };
        let port = listener.local_addr().unwrap().port();
        let way = Way::Agent { port, tls: nobody() };
        connect(host, &way, &patience).unwrap_err().to_string()
    }

    #[test]
    fn a_host_that_takes_no_connections_is_given_up() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        // Another address of this machine, where nobody listens.
        let problem = problem(&listener, "127.0.0.77");
        assert_eq!(
            problem,
            "it can't be connected to: Connection refused (os error 111); given up after 1 s"
        );
    }

    #[test]
    fn a_host_that_says_nothing_is_given_up() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let problem = problem(&listener, "127.0.0.1");
        assert_eq!(
            problem,
            "the connection failed: the handshake took too long; given up after 1 s"
        );
    }
}
