//! One connection to the observer: found, connected and trusted, each within its time.

use std::error::Error;
use std::io::{self, ErrorKind, IoSlice, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustls::{CertificateError, ClientConfig, ClientConnection, StreamOwned};

use super::{Address, ObserverError, Timeouts};

/// A connection over TLS, whose reads and writes must end in time.
#[derive(Debug)]
pub struct Connection(StreamOwned<ClientConnection, Socket>);

impl Connection {
    /// Connects, and makes sure that it is the server it should be.
    pub fn open(
        address: &Address,
        tls: &Arc<ClientConfig>,
        timeouts: &Timeouts,
    ) -> Result<Self, ObserverError> {
        let tcp = connect(address, timeouts.connect)?;
        let mut socket = Socket {
            tcp,
            deadline: Instant::now() + timeouts.handshake,
        };
        let failed = |error: &io::Error| ObserverError::Handshake {
            address: address.clone(),
            reason: explain_handshake(error, timeouts.handshake),
        };
        let mut session = ClientConnection::new(tls.clone(), address.name().clone())
            .map_err(|error| failed(&io::Error::other(error)))?;
        while session.is_handshaking() {
            session.complete_io(&mut socket).map_err(|error| failed(&error))?;
        }
        Ok(Self(StreamOwned::new(session, socket)))
    }

    /// What is read and written from now on must be done within this time.
    pub fn allow(&mut self, time: Duration) {
        self.0.sock.deadline = Instant::now() + time;
    }
}

impl Read for Connection {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.read(buffer)
    }
}

impl Write for Connection {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        self.0.write(buffer)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

fn connect(address: &Address, timeout: Duration) -> Result<TcpStream, ObserverError> {
    let unknown = |source| ObserverError::Unknown {
        host: address.host().to_owned(),
        source,
    };
    let mut failure = unknown(io::Error::new(ErrorKind::NotFound, "it has no address"));
    for candidate in (address.host(), address.port())
        .to_socket_addrs()
        .map_err(unknown)?
    {
        match TcpStream::connect_timeout(&candidate, timeout) {
            Ok(tcp) => return Ok(tcp),
            Err(source) => {
                failure = ObserverError::Connect {
                    address: address.clone(),
                    at: candidate.ip(),
                    source,
                };
            }
        }
    }
    Err(failure)
}

/// Why a handshake failed, with the same words at every attempt: those of the library would contain
/// the seconds since a certificate expired.
fn explain_handshake(error: &io::Error, timeout: Duration) -> String {
    use CertificateError as Problem;
    match error.kind() {
        ErrorKind::TimedOut => return format!("it took more than {timeout:?}"),
        ErrorKind::UnexpectedEof => return "it was broken off".to_owned(),
        _ => {}
    }
    let tls = error
        .get_ref()
        .and_then(|inner| (inner as &(dyn Error + 'static)).downcast_ref());
    let Some(rustls::Error::InvalidCertificate(problem)) = tls else {
        return error.to_string();
    };
    match problem {
        Problem::UnknownIssuer | Problem::BadSignature => {
            "its certificate is not signed by any authority in TRAINYARD_AUTHORITY".to_owned()
        }
        Problem::Expired | Problem::ExpiredContext { .. } => "its certificate has expired".to_owned(),
        Problem::NotValidYet | Problem::NotValidYetContext { .. } => {
            "its certificate is not valid yet; compare the clock of this node".to_owned()
        }
        Problem::NotValidForName | Problem::NotValidForNameContext { .. } => {
            "its certificate is for another name".to_owned()
        }
        _ => error.to_string(),
    }
}

/// A socket with a deadline. A timeout for each read would let a peer that sends a byte now and
/// then go on for ever.
#[derive(Debug)]
struct Socket {
    tcp: TcpStream,
    deadline: Instant,
}

impl Socket {
    fn remaining(&self) -> io::Result<Option<Duration>> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            Err(ErrorKind::TimedOut.into())
        } else {
            Ok(Some(left))
        }
    }
}

impl Read for Socket {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.tcp.set_read_timeout(self.remaining()?)?;
        self.tcp.read(buffer).map_err(timed_out)
    }
}

impl Write for Socket {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        self.tcp.set_write_timeout(self.remaining()?)?;
        self.tcp.write(buffer).map_err(timed_out)
    }

    /// Several records in one call, because a final alert is sent only if one call is enough.
    fn write_vectored(&mut self, buffers: &[IoSlice<'_>]) -> io::Result<usize> {
        self.tcp.set_write_timeout(self.remaining()?)?;
        self.tcp.write_vectored(buffers).map_err(timed_out)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.tcp.flush()
    }
}

/// The system reports a timeout as WouldBlock.
fn timed_out(error: io::Error) -> io::Error {
    if error.kind() == ErrorKind::WouldBlock {
        ErrorKind::TimedOut.into()
    } else {
        error
    }
}
