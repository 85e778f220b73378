//! The streams of a command that the Kubernetes API runs in a container, over a WebSocket.
//!
//! Each message begins with the number of a channel: what goes to channel 0 is the input of the
//! command, what comes from 1 its output and from 2 its errors; 3 has how it ended.

use std::io;
use std::os::fd::BorrowedFd;
use std::time::Instant;

use rustix::event::PollFlags;
use serde::Deserialize;

use super::body::Extent;
use super::websocket::{self, Decoder, Message};
use super::{Received, Tls, Wire};
use crate::shell::error::LinkError;
use crate::text::one_line;

const INPUT: u8 = 0;
const OUTPUT: u8 = 1;
const ERRORS: u8 = 2;
const END: u8 = 3;

/// What both sides may speak, the best first: the first can end an input while outputs go on.
const PROTOCOLS: [&str; 2] = ["v5.channel.k8s.io", "v4.channel.k8s.io"];
/// What is sent at once. Servers of all releases take as much.
const MAX_CHUNK: usize = 16 * 1024;
/// The longest head of an answer that is read, and the longest refusal.
const MAX_ANSWER: usize = 64 * 1024;
/// What is told of a refusal that is not in the words of Kubernetes, as of a proxy.
const MAX_REASON: usize = 200;
/// What is kept of the errors of a command that did not begin.
const MAX_ERRORS: usize = 1024;

/// What is asked for.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// The path, with all that the command is.
    pub path: &'a str,
    /// The server, as a request names it.
    pub host: &'a str,
    /// Who asks.
    pub token: &'a str,
}

/// The streams of a command that has said something.
#[derive(Debug)]
pub struct Exec {
    tls: Tls,
    incoming: Decoder,
    /// Frames that wait to be sent.
    outgoing: Vec<u8>,
    /// What the command has said before anybody asked.
    said: Vec<u8>,
    errors: Vec<u8>,
    is_closed: bool,
}

/// How the server tells that something has ended, or was not begun.
#[derive(Debug, Deserialize)]
struct Status {
    #[serde(default, rename = "status")]
    outcome: String,
    #[serde(default)]
    message: String,
}

impl Exec {
    /// Has a command run, and waits until it says something, before the deadline.
    pub fn open(tls: Tls, request: &Request<'_>, deadline: Instant) -> Result<Self, LinkError> {
        let mut exec = Self {
            tls,
            incoming: Decoder::default(),
            outgoing: Vec::new(),
            said: Vec::new(),
            errors: Vec::new(),
            is_closed: false,
        };
        exec.upgrade(request, deadline)?;
        let mut said = Vec::new();
        // Some of it may have come with the answer.
        exec.take(&mut said)?;
        while said.is_empty() {
            if exec.is_closed {
                return Err(LinkError::Closed);
            }
            exec.tls.send(&mut exec.outgoing)?;
            if exec.tls.wait(deadline)? {
                exec.receive(&mut said)?;
            }
        }
        exec.said = said;
        Ok(exec)
    }

    /// Changes from HTTP to WebSocket.
    fn upgrade(&mut self, request: &Request<'_>, deadline: Instant) -> Result<(), LinkError> {
        let key = websocket::key();
        let Request { path, host, token } = request;
        let mut asked = format!(
            "GET {path} HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {token}\r\nConnection: Upgrade\r\n\
             Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {key}\r\n\
             Sec-WebSocket-Protocol: {}\r\nUser-Agent: trainyard-agent\r\n\r\n",
            PROTOCOLS.join(", ")
        )
        .into_bytes();
        let mut answer = Vec::new();
        loop {
            self.tls.send(&mut asked)?;
            let received = match self.tls.wait(deadline) {
                Ok(true) => self.tls.receive(&mut answer).map(|received| received.is_closed),
                other => other,
            };
            // A refusal is one, also if its end does not come.
            let is_all = !matches!(received, Ok(false)) || answer.len() > MAX_ANSWER;
            let head = read_answer(&answer, &key, is_all)?;
            self.is_closed |= received?;
            if let Some(head) = head {
                self.incoming.push(answer.get(head..).unwrap_or_default());
                return Ok(());
            }
            if self.is_closed {
                return Err(LinkError::Closed);
            }
            if is_all {
                return Err(LinkError::Refused("an answer that does not end".to_owned()));
            }
        }
    }

    /// Takes what has come as messages.
    fn take(&mut self, bytes: &mut Vec<u8>) -> Result<bool, LinkError> {
        let mut heard = false;
        let senseless = |error: websocket::MessageError| LinkError::Refused(error.to_string());
        while let Some(message) = self.incoming.next_message().map_err(senseless)? {
            match message {
                Message::Data(data) => match data.split_first() {
                    Some((&OUTPUT, data)) => {
                        heard = true;
                        bytes.extend_from_slice(data);
                    }
                    Some((&ERRORS, data)) => {
                        let room = MAX_ERRORS.saturating_sub(self.errors.len());
                        self.errors.extend(data.iter().take(room));
                    }
                    Some((&END, status)) => self.end(status)?,
                    _ => {}
                },
                Message::Ping(payload) => websocket::put_pong(&mut self.outgoing, &payload),
                Message::Close => self.is_closed = true,
            }
        }
        Ok(heard)
    }

    /// The command is over. If it has said nothing more, that is why.
    fn end(&mut self, status: &[u8]) -> Result<(), LinkError> {
        self.is_closed = true;
        match serde_json::from_slice(status) {
            Ok(Status { outcome, .. }) if outcome == "Success" => Ok(()),
            Ok(Status { message, .. }) => {
                let errors = String::from_utf8_lossy(&self.errors);
                let why = match errors.trim() {
                    "" => message,
                    errors => format!("{message}: {errors}"),
                };
                Err(LinkError::Ended(one_line(&why)))
            }
            Err(_) => Err(LinkError::Ended(one_line(&String::from_utf8_lossy(status)))),
        }
    }
}

/// Reads an answer that lets the connection become a WebSocket. Returns how long it is, once all of
/// it has come. Any other answer is an error once all of it has come, or if no more will.
fn read_answer(bytes: &[u8], key: &str, is_all: bool) -> Result<Option<usize>, LinkError> {
    let mut headers = [httparse::EMPTY_HEADER; 64];
    let mut answer = httparse::Response::new(&mut headers);
    let refused = |why: &str| LinkError::Refused(why.to_owned());
    let parsed = answer
        .parse(bytes)
        .map_err(|error| refused(&format!("an answer that is not HTTP ({error})")))?;
    let httparse::Status::Complete(head) = parsed else {
        return Ok(None);
    };
    let header = |name: &str| {
        let found = answer
            .headers
            .iter()
            .find(|header| header.name.eq_ignore_ascii_case(name));
        found.and_then(|header| std::str::from_utf8(header.value).ok())
    };
    match answer.code {
        Some(101) => {}
        code => {
            let rest = bytes.get(head..).unwrap_or_default();
            let (body, is_complete) = Extent::of(answer.headers).read(rest);
            if !is_complete && !is_all {
                return Ok(None);
            }
            let code = code.unwrap_or_default();
            let why = match serde_json::from_slice(&body) {
                Ok(Status { message, .. }) => one_line(&message),
                Err(_) => one_line(&String::from_utf8_lossy(&body))
                    .chars()
                    .take(MAX_REASON)
                    .collect(),
            };
            return Err(LinkError::Answered { code, why });
        }
    }
    if header("sec-websocket-accept") != Some(&*websocket::answer(key)) {
        return Err(refused("an answer that is not that of a WebSocket"));
    }
    if !header("sec-websocket-protocol").is_some_and(|protocol| PROTOCOLS.contains(&protocol)) {
        return Err(refused("another protocol than was asked for"));
    }
    Ok(Some(head))
}

impl Wire for Exec {
    fn awaited(&self, has_more: bool) -> Vec<(BorrowedFd<'_>, PollFlags)> {
        self.tls.awaited(has_more || !self.outgoing.is_empty())
    }

    fn send(&mut self, waiting: &mut Vec<u8>) -> Result<(), LinkError> {
        loop {
            self.tls.send(&mut self.outgoing)?;
            if waiting.is_empty() || !self.outgoing.is_empty() {
                return Ok(());
            }
            let length = waiting.len().min(MAX_CHUNK);
            let chunk = waiting.get(..length).unwrap_or_default();
            websocket::put_data(&mut self.outgoing, &[&[INPUT], chunk]);
            waiting.drain(..length);
        }
    }

    fn is_flushed(&self) -> bool {
        self.outgoing.is_empty() && self.tls.is_flushed()
    }

    fn receive(&mut self, bytes: &mut Vec<u8>) -> Result<Received, LinkError> {
        bytes.append(&mut self.said);
        let mut raw = Vec::new();
        let received = self.tls.receive(&mut raw);
        self.incoming.push(&raw);
        // That the server is there says nothing of the command.
        let heard = self.take(bytes)?;
        self.is_closed |= received?.is_closed;
        Ok(Received {
            heard,
            is_closed: self.is_closed,
        })
    }

    fn finish(&mut self) {
        websocket::put_close(&mut self.outgoing);
        let _ = self.tls.send(&mut self.outgoing);
        self.tls.finish();
    }

    fn discard(&mut self) -> io::Result<bool> {
        self.tls.discard()
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::{TcpListener, TcpStream};
    use std::sync::Arc;
    use std::thread;
    use std::time::Duration;

    use rstest::rstest;
    use rustls::pki_types::PrivateKeyDer;
    use rustls::{ClientConnection, Connection, ServerConfig, ServerConnection};

    use super::*;
    use crate::observer::authorities;

    const KEY: &str = "dGhlIHNhbXBsZSBub25jZQ==";
    const GOOD: &str = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
        Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\nSec-Websocket-Protocol: v4.channel.k8s.io\r\n\r\n";

    #[test]
    fn an_answer_that_agrees_ends_where_frames_begin() {
        let bytes = format!("{GOOD}frames");
        assert_eq!(
            read_answer(bytes.as_bytes(), KEY, false).unwrap(),
            Some(GOOD.len())
        );
        assert_eq!(read_answer(&bytes.as_bytes()[..40], KEY, false).unwrap(), None);
    }

    #[rstest]
    #[case(GOOD.replace("s3pP", "AAAA"), "it said no: an answer that is not that of a WebSocket")]
    #[case(GOOD.replace("v4.channel", "channel"), "it said no: another protocol than was asked for")]
    #[case("SSH-2.0-OpenSSH_9.2\r\n\r\n".to_owned(), "it said no: an answer that is not HTTP (invalid HTTP version)")]
    #[case(
        "HTTP/1.1 403 Forbidden\r\nContent-Length: 44\r\n\r\n{\"kind\":\"Status\",\"message\":\"you\\n may not \"}".to_owned(),
        "the server answers 403: you may not"
    )]
    #[case("HTTP/1.1 502 Bad Gateway\r\nContent-Length: 4\r\n\r\nnope".to_owned(), "the server answers 502: nope")]
    #[case("HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n".to_owned(), "the server answers 502")]
    #[case(
        "HTTP/1.1 403 Forbidden\r\nTransfer-Encoding: chunked\r\n\r\n9\r\n{\"message\r\n7\r\n\":\"no\"}\r\n0\r\n\r\n".to_owned(),
        "the server answers 403: no"
    )]
    fn any_other_answer_is_told(#[case] answer: String, #[case] expected: &str) {
        let error = read_answer(answer.as_bytes(), KEY, false).unwrap_err();
        assert_eq!(error.to_string().trim_end_matches(": "), expected);
    }

    #[rstest]
    #[case("Content-Length: 100\r\n\r\nnot", "not")]
    #[case("Transfer-Encoding: chunked\r\n\r\n3\r\nnot\r\n4\r\n he", "not he")]
    #[case("\r\nnot here", "not here")]
    #[case("\r\n", "")]
    fn a_refusal_is_read_to_its_end(#[case] rest: &str, #[case] expected: &str) {
        let begin = format!("HTTP/1.1 404 Not Found\r\n{rest}");
        assert_eq!(read_answer(begin.as_bytes(), KEY, false).unwrap(), None);
        let error = read_answer(begin.as_bytes(), KEY, true).unwrap_err();
        assert!(
            matches!(&error, LinkError::Answered { code: 404, why } if why == expected),
            "{error}"
        );
    }

    /// A server that says something to whoever comes, and nothing more; and who has come.
    fn told(said: &'static str) -> (Tls, thread::JoinHandle<TcpStream>) {
        let key = rcgen::KeyPair::generate().unwrap();
        let certificate = rcgen::CertificateParams::new(vec!["localhost".to_owned()])
            .unwrap()
            .self_signed(&key)
            .unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let server = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(
                vec![certificate.der().clone()],
                PrivateKeyDer::try_from(key.serialize_der()).unwrap(),
            )
            .unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let server = thread::spawn(move || {
            let mut session = ServerConnection::new(Arc::new(server)).unwrap();
            let mut tcp = listener.accept().unwrap().0;
            while session.is_handshaking() {
                session.complete_io(&mut tcp).unwrap();
            }
            session.writer().write_all(said.as_bytes()).unwrap();
            session.complete_io(&mut tcp).unwrap();
            tcp
        });
        let client = authorities(&certificate.pem()).unwrap();
        let client = ClientConnection::new(client, "localhost".try_into().unwrap()).unwrap();
        let tcp = TcpStream::connect(address).unwrap();
        let deadline = Instant::now() + Duration::from_mins(1);
        let tls = Tls::open(Connection::Client(client), tcp, deadline).unwrap();
        (tls, server)
    }

    #[rstest]
    #[case(
        "HTTP/1.1 403 Forbidden\r\n\r\nyou may not",
        "the server answers 403: you may not"
    )]
    #[case(
        "HTTP/1.1 101 Switching",
        "the connection failed: the handshake took too long"
    )]
    fn what_was_said_until_it_was_too_late_is_told(#[case] said: &'static str, #[case] expected: &str) {
        let (tls, server) = told(said);
        let _open = server.join().unwrap();
        let request = Request {
            path: "/",
            host: "localhost",
            token: "t",
        };
        let error = Exec::open(tls, &request, Instant::now() + Duration::from_secs(2)).unwrap_err();
        assert_eq!(error.to_string(), expected);
    }
}
