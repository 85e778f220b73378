//! An observer whose every answer is given by the test.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, JoinHandle};

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustix::net::sockopt::{Timeout, set_socket_reuseaddr, set_socket_timeout};
use rustix::net::{AddressFamily, Shutdown, SocketType, bind, getsockname, shutdown, socket};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use trainyard_eventually::receive;

use crate::LONG;

/// An authority that signs certificates of servers.
pub struct Authority {
    pub pem: String,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    pub fn new() -> Self {
        let mut params = CertificateParams::new(vec![]).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        Self {
            pem,
            issuer: Issuer::new(params, key),
        }
    }

    /// A server's side of TLS, with a certificate for this machine.
    pub fn serving(&self) -> Arc<ServerConfig> {
        self.serving_as(&["127.0.0.1", "localhost"])
    }

    /// As [`Self::serving`], for other names.
    pub fn serving_as(&self, names: &[&str]) -> Arc<ServerConfig> {
        let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
        let key = KeyPair::generate().unwrap();
        let certificate = CertificateParams::new(names)
            .unwrap()
            .signed_by(&key, &self.issuer)
            .unwrap();
        let chain: Vec<CertificateDer<'static>> = vec![certificate.into()];
        let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(chain, key)
            .unwrap();
        Arc::new(config)
    }
}

/// A port of this machine that is ours, also while nobody listens and connections are refused.
pub struct Port {
    address: SocketAddr,
    /// Bound and never listening, it keeps others from getting the port.
    _reservation: OwnedFd,
}

impl Port {
    pub fn reserve() -> Self {
        let reservation = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
        set_socket_reuseaddr(&reservation, true).unwrap();
        bind(&reservation, &SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
        let address = getsockname(&reservation).unwrap().try_into().unwrap();
        Self {
            address,
            _reservation: reservation,
        }
    }

    pub fn url(&self) -> String {
        format!("https://{}", self.address)
    }

    pub fn number(&self) -> u16 {
        self.address.port()
    }

    /// Connections are accepted by the system, and by nobody else.
    pub fn listen(&self) -> TcpListener {
        let listener = TcpListener::bind(self.address).unwrap();
        // Nobody waits for a connection for ever.
        set_socket_timeout(&listener, Timeout::Recv, Some(LONG)).unwrap();
        listener
    }

    /// Serves until what is returned is dropped.
    pub fn serve(&self, tls: Arc<ServerConfig>) -> Server {
        serve(self.listen(), tls)
    }
}

/// Serves those who connect until what is returned is dropped.
pub fn serve(listener: TcpListener, tls: Arc<ServerConfig>) -> Server {
    let (sender, guests) = channel();
    let listener = Arc::new(listener);
    let accepting = listener.clone();
    let thread = thread::spawn(move || accept(&accepting, &tls, &sender));
    Server {
        listener,
        guests,
        thread: Some(thread),
    }
}

pub struct Server {
    listener: Arc<TcpListener>,
    guests: Receiver<io::Result<Guest>>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// The next one who asks.
    pub fn guest(&self) -> Guest {
        self.try_guest().unwrap()
    }

    /// As [`Self::guest`], or why the handshake with it failed.
    pub fn try_guest(&self) -> io::Result<Guest> {
        receive("somebody comes", &self.guests).expect("somebody is let in")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Wakes whoever waits for a connection.
        shutdown(&*self.listener, Shutdown::Read).unwrap();
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

fn accept(listener: &TcpListener, tls: &Arc<ServerConfig>, guests: &Sender<io::Result<Guest>>) {
    while let Ok((tcp, _)) = listener.accept() {
        if guests.send(Guest::welcome(tcp, tls)).is_err() {
            return;
        }
    }
}

/// One who asks. The connection is closed when this is dropped.
pub struct Guest {
    pub request: String,
    stream: StreamOwned<ServerConnection, TcpStream>,
}

impl Guest {
    fn welcome(tcp: TcpStream, tls: &Arc<ServerConfig>) -> io::Result<Self> {
        tcp.set_read_timeout(Some(LONG))?;
        let session = ServerConnection::new(tls.clone()).map_err(io::Error::other)?;
        let mut stream = StreamOwned::new(session, tcp);
        let mut request = Vec::new();
        let mut byte = [0];
        while !request.ends_with(b"\r\n\r\n") {
            stream.read_exact(&mut byte)?;
            request.extend(byte);
        }
        let request = String::from_utf8(request).map_err(io::Error::other)?;
        Ok(Self { request, stream })
    }

    /// What comes after the head of the request.
    pub fn body(&mut self, length: usize) -> String {
        let mut body = vec![0; length];
        self.stream.read_exact(&mut body).unwrap();
        String::from_utf8(body).unwrap()
    }

    /// Begins an answer that is a stream of lines.
    pub fn welcomed(mut self) -> Self {
        self.say("HTTP/1.1 200 OK\r\ncontent-type: application/x-ndjson\r\nconnection: close\r\n\r\n");
        self
    }

    /// Says what is waited for.
    pub fn wait(&mut self, message: &str) {
        self.say(&format!("{{\"state\":\"Wait\",\"message\":\"{message}\"}}\n"));
    }

    /// Says that the programs may start.
    pub fn go(&mut self) {
        self.say("{\"state\":\"Go\"}\n");
    }

    /// Sends anything.
    pub fn say(&mut self, text: &str) {
        self.try_say(text).unwrap();
    }

    /// As [`Self::say`], to one who may be gone.
    pub fn try_say(&mut self, text: &str) -> io::Result<()> {
        self.stream.write_all(text.as_bytes())?;
        self.stream.flush()
    }

    /// Answers in full and closes the connection.
    pub fn refuse(mut self, status: &str, sentence: &str) {
        self.say(&format!(
            "HTTP/1.1 {status}\r\nconnection: close\r\n\r\n{sentence}\n"
        ));
        self.bid_farewell();
    }

    /// Closes the connection as it should be.
    pub fn bid_farewell(mut self) {
        self.stream.conn.send_close_notify();
        self.stream.flush().unwrap();
    }

    /// Waits until the other side has closed the connection.
    pub fn leaves(mut self) {
        let mut rest = Vec::new();
        // It may or may not say that it closes.
        let _ = self.stream.read_to_end(&mut rest);
        assert!(rest.is_empty());
    }

    /// The token that came with the request.
    pub fn token(&self) -> &str {
        let header = self
            .request
            .lines()
            .find_map(|line| line.strip_prefix("Authorization: Bearer "));
        header.unwrap()
    }
}
