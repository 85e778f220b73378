//! The operator's observer: how it is asked, and what can go wrong on the way.

mod address;
mod connection;
mod follow;
mod response;
mod token;
mod trust;

use std::io::{self, Write};
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use rustls::ClientConfig;
use trainyard_contract::observer::{IDLE_TIMEOUT, LINES, LINES_TYPE, NOT_LEADING};

pub use address::{Address, AddressError};
pub use connection::Connection;
pub use response::{AnswerError, Lines, MAX_LINE};
pub use token::{TokenError, read as read_token};
pub use trust::{TrustError, authorities};

/// How long each step may take.
#[derive(Clone, Debug)]
pub struct Timeouts {
    /// To connect to one of the server's addresses.
    pub connect: Duration,
    /// For the TLS handshake.
    pub handshake: Duration,
    /// Until the head of the answer, and from one line to the next. Lines may be empty.
    pub idle: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(5),
            handshake: Duration::from_secs(5),
            idle: IDLE_TIMEOUT,
        }
    }
}

/// Where to ask, and as whom.
#[derive(Clone, Debug)]
pub struct ObserverClient {
    /// Where it is.
    pub address: Address,
    /// Whom to trust.
    pub tls: Arc<ClientConfig>,
    /// The file that has the token by which it knows this pod. The kubelet replaces it before it
    /// ends.
    pub token_file: PathBuf,
    /// How long each step may take.
    pub timeouts: Timeouts,
}

/// Why a request to the observer failed. The same problem has the same words each time.
#[derive(Debug, thiserror::Error)]
pub enum ObserverError {
    /// There is no token.
    #[error("can't read the token in {}: {problem}", file.display())]
    Token {
        /// Where it should be.
        file: PathBuf,
        /// What is wrong with it.
        problem: TokenError,
    },
    /// Its name has no address.
    #[error("can't find {host}: {source}")]
    Unknown {
        /// The name.
        host: String,
        /// What the system says.
        source: io::Error,
    },
    /// Nobody answers at its addresses.
    #[error("can't connect to {address} at {at}: {source}")]
    Connect {
        /// Where it should be.
        address: Address,
        /// The last of its addresses.
        at: IpAddr,
        /// What the system says.
        source: io::Error,
    },
    /// It can't be trusted, or does not speak TLS.
    #[error("can't agree on TLS with {address}: {reason}")]
    Handshake {
        /// Where it is.
        address: Address,
        /// Why.
        reason: String,
    },
    /// It does not answer as it should.
    #[error("{address} {problem}")]
    Answer {
        /// Where it is.
        address: Address,
        /// What is wrong.
        problem: AnswerError,
    },
    /// It says something that makes no sense.
    #[error("{address} sends a line that can't be used: {problem}")]
    Line {
        /// Where it is.
        address: Address,
        /// What is wrong.
        problem: String,
    },
}

impl ObserverError {
    /// Returns true if the replica was the wrong one; another connection may lead to another.
    pub(crate) fn is_elsewhere(&self) -> bool {
        let is_misdirected = |problem: &AnswerError| {
            matches!(
                problem,
                AnswerError::Refused {
                    status: NOT_LEADING,
                    ..
                }
            )
        };
        matches!(self, Self::Answer { problem, .. } if is_misdirected(problem))
    }

    /// The longest pause before the next attempt. It is longer after a refusal, because the server
    /// has to check the token each time.
    pub fn max_pause(&self) -> Duration {
        match self {
            Self::Answer {
                problem:
                    AnswerError::Refused {
                        status: 401 | 403 | 404,
                        ..
                    },
                ..
            } => Duration::from_secs(5),
            _ => Duration::from_secs(1),
        }
    }
}

/// An answer that is still coming.
#[derive(Debug)]
pub struct Answer<'a> {
    observer: &'a ObserverClient,
    lines: Lines<Connection>,
}

impl ObserverClient {
    /// Asks for a path, which must need no escapes. The answer is lines.
    ///
    /// It asks for an upgrade to plain lines, which saves the observer the HTTP buffers of
    /// thousands of connections that last for hours.
    pub fn ask(&self, path: &str) -> Result<Answer<'_>, ObserverError> {
        let line = format!("GET {path} HTTP/1.1");
        self.send(&line, &format!("Connection: Upgrade\r\nUpgrade: {LINES}\r\n"), "")
    }

    fn send(&self, line: &str, head: &str, body: &str) -> Result<Answer<'_>, ObserverError> {
        let token = token::read(&self.token_file).map_err(|problem| ObserverError::Token {
            file: self.token_file.clone(),
            problem,
        })?;
        let mut connection = Connection::open(&self.address, &self.tls, &self.timeouts)?;
        connection.allow(self.timeouts.idle);
        let failed = |problem| self.failed(problem);
        let request = self.request(line, &token, head) + body;
        let sent = connection.write_all(request.as_bytes());
        sent.and_then(|()| connection.flush())
            .map_err(|error| failed(error.into()))?;
        let lines = Lines::begin(connection).map_err(failed)?;
        Ok(Answer {
            observer: self,
            lines,
        })
    }

    /// Sends a JSON body to a path, which must need no escapes, and is done when it is taken.
    pub fn put(&self, path: &str, body: &str) -> Result<(), ObserverError> {
        let head = format!(
            "Content-Type: application/json\r\nContent-Length: {}\r\n",
            body.len()
        );
        self.send(&format!("PUT {path} HTTP/1.0"), &head, body).map(drop)
    }

    fn request(&self, line: &str, token: &str, more: &str) -> String {
        format!(
            "{line}\r\n\
             Host: {host}\r\n\
             Authorization: Bearer {token}\r\n\
             Accept: {LINES_TYPE}\r\n\
             User-Agent: trainyard-agent/{version}\r\n\
             {more}\r\n",
            host = self.address.authority(),
            version = env!("CARGO_PKG_VERSION"),
        )
    }

    fn failed(&self, problem: AnswerError) -> ObserverError {
        ObserverError::Answer {
            address: self.address.clone(),
            problem,
        }
    }
}

impl Answer<'_> {
    /// The next line. Fails when there will be none.
    pub fn next_line(&mut self) -> Result<Vec<u8>, ObserverError> {
        self.lines.source_mut().allow(self.observer.timeouts.idle);
        self.lines
            .next_line()
            .map_err(|problem| self.observer.failed(problem))
    }

    /// A line makes no sense.
    pub fn nonsense(&self, problem: String) -> ObserverError {
        ObserverError::Line {
            address: self.observer.address.clone(),
            problem,
        }
    }
}
