//! Lines over connections, as agents hear them.

use std::net::SocketAddr;

use rcgen::{CertifiedKey, generate_simple_self_signed};
use rustls::crypto::ring;
use rustls::pki_types::{PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::*;
use crate::http::serve_some_connections;

/// An observer that listens, and what its clients have to know.
pub(super) struct Served {
    pub(super) world: World,
    address: SocketAddr,
    tls: TlsConnector,
}

impl Served {
    pub(super) async fn new() -> Self {
        Self::with(Purpose::Agents.max_connections()).await
    }

    /// One that keeps so many connections.
    async fn with(most: usize) -> Self {
        Self::serve(World::new(), most).await
    }

    pub(super) async fn serve(world: World, most: usize) -> Self {
        let CertifiedKey { cert, signing_key } =
            generate_simple_self_signed(vec!["observer".to_owned()]).unwrap();
        let key = PrivateKeyDer::try_from(signing_key.serialize_der()).unwrap();
        let provider = Arc::new(ring::default_provider());
        let mut config = ServerConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![cert.der().clone()], key)
            .unwrap();
        super::without_sessions(&mut config);
        let config = Arc::new(config);
        let mut roots = RootCertStore::empty();
        roots.add(cert.der().clone()).unwrap();
        let client = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(serve_some_connections(
            listener,
            move |stream| IdleTls::accept(config.clone(), stream),
            world.router.clone(),
            (Purpose::Agents, most),
            world.shutdown.clone(),
        ));
        Self {
            world,
            address,
            tls: TlsConnector::from(Arc::new(client)),
        }
    }

    pub(super) async fn connect(&self) -> TlsStream<TcpStream> {
        self.agree(self.dial_from([127, 0, 0, 1]).await).await
    }

    /// Connects from an address of this machine.
    pub(super) async fn dial_from(&self, host: [u8; 4]) -> TcpStream {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind((host, 0).into()).unwrap();
        socket.connect(self.address).await.unwrap()
    }

    /// Makes the handshake.
    pub(super) async fn agree(&self, stream: TcpStream) -> TlsStream<TcpStream> {
        let name = ServerName::try_from("observer").unwrap();
        self.tls.connect(name, stream).await.unwrap()
    }

    pub(super) fn port(&self) -> u16 {
        self.address.port()
    }

    /// Asks as the launcher of the first job does; the head of the answer, and what comes after it.
    async fn ask(&self, more: &str) -> (String, BufReader<TlsStream<TcpStream>>) {
        self.ask_as("a-launcher-0", more).await
    }

    async fn ask_as(&self, pod: &str, more: &str) -> (String, BufReader<TlsStream<TcpStream>>) {
        let mut stream = self.connect().await;
        let token = self.world.token(pod);
        let request =
            format!("GET {START} HTTP/1.1\r\nHost: observer\r\nAuthorization: Bearer {token}\r\n{more}\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut stream = BufReader::new(stream);
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            assert!(stream.read_line(&mut head).await.unwrap() > 0, "{head}");
        }
        (head, stream)
    }
}

const UPGRADE: &str = "Connection: Upgrade\r\nUpgrade: trainyard-lines\r\n";

#[tokio::test]
async fn who_asks_for_it_gets_nothing_but_lines_and_a_goodbye() {
    let served = Served::new().await;
    let (head, mut stream) = served.ask(UPGRADE).await;
    assert!(head.starts_with("HTTP/1.1 101 "), "{head}");
    assert!(head.contains("upgrade: trainyard-lines\r\n"), "{head}");
    let mut line = String::new();
    stream.read_line(&mut line).await.unwrap();
    assert!(line.starts_with("{\"state\":\"Wait\""), "{line}");
    served.world.pod("a", "worker-0", "Running", 20);
    served.world.pod("a", "worker-1", "Running", 21);
    let mut rest = String::new();
    // An end without goodbye would be an error.
    timeout(HANG_LIMIT, stream.read_to_string(&mut rest))
        .await
        .unwrap()
        .unwrap();
    assert_eq!(rest, "{\"state\":\"Go\"}\n");
}

#[tokio::test]
async fn others_get_the_same_as_an_answer() {
    let served = Served::new().await;
    served.world.pod("a", "worker-0", "Running", 20);
    served.world.pod("a", "worker-1", "Running", 21);
    for more in ["", "Connection: Upgrade\r\nUpgrade: h2c\r\n"] {
        let (head, mut stream) = served.ask(more).await;
        assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
        let mut body = String::new();
        while !body.ends_with("{\"state\":\"Go\"}\n") {
            assert!(stream.read_line(&mut body).await.unwrap() > 0, "{body}");
        }
    }
}

#[tokio::test]
async fn a_refusal_stays_an_answer() {
    let served = Served::new().await;
    let (head, _) = served
        .ask(&format!("{UPGRADE}Authorization: Bearer other\r\n"))
        .await;
    assert!(head.starts_with("HTTP/1.1 101 "), "the first one counts: {head}");
    let mut stream = served.connect().await;
    let request = format!("GET {START} HTTP/1.1\r\nHost: observer\r\n{UPGRADE}\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = [0; 12];
    stream.read_exact(&mut answer).await.unwrap();
    assert_eq!(&answer, b"HTTP/1.1 401");
}

#[tokio::test]
async fn who_leaves_is_forgotten_at_once() {
    let served = Served::new().await;
    let (_, stream) = served.ask(UPGRADE).await;
    let key = JobKey::new("ns", "a");
    assert!(served.world.index.is_followed(&key));
    drop(stream);
    let forgotten = async {
        while served.world.index.is_followed(&key) {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    // Far sooner than the next sign of life.
    timeout(Duration::from_secs(8), forgotten).await.unwrap();
}

#[tokio::test]
async fn who_is_not_known_is_refused_at_once_and_does_not_stay() {
    let served = Served::new().await;
    let said = [
        format!("GET {START} HTTP/1.1\r\nHost: observer\r\n\r\n"),
        // What it promises to say is not waited for.
        "PUT /v1/jobs/ns/a/progress HTTP/1.1\r\nHost: observer\r\nContent-Length: 8000\r\n\r\n".to_owned(),
    ];
    for said in said {
        let mut stream = served.connect().await;
        stream.write_all(said.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        // The server may close before all was read.
        let ended = timeout(HANG_LIMIT, stream.read_to_end(&mut answer)).await;
        assert!(ended.is_ok(), "{said}: it stays");
        let answer = String::from_utf8_lossy(&answer);
        assert!(answer.starts_with("HTTP/1.1 401 "), "{answer}");
        assert!(answer.contains("connection: close\r\n"), "{answer}");
    }
}

#[tokio::test]
async fn a_head_that_is_too_long_is_not_kept() {
    let served = Served::new().await;
    // That of an agent is far below it, also with a token of 4 KiB.
    let (head, _) = served.ask(&format!("x: {}\r\n", "y".repeat(5000))).await;
    assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
    let mut stream = served.connect().await;
    let begin = format!(
        "GET {START} HTTP/1.1\r\nHost: observer\r\nx: {}",
        "y".repeat(9000)
    );
    stream.write_all(begin.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    let ended = timeout(HANG_LIMIT, stream.read_to_end(&mut answer)).await;
    assert!(ended.is_ok(), "it is kept");
    let answer = String::from_utf8_lossy(&answer);
    assert!(answer.starts_with("HTTP/1.1 431 "), "{answer:?}");
}

#[tokio::test]
async fn a_pod_with_too_many_connections_makes_room_for_itself() {
    for more in [UPGRADE, ""] {
        let served = Served::new().await;
        let (_, mut other) = served.ask_as("a-worker-0", more).await;
        let mut connections = Vec::new();
        for _ in 0..17 {
            connections.push(served.ask(more).await.1);
        }
        let mut first = connections.remove(0);
        let end = timeout(HANG_LIMIT, first.read_to_end(&mut Vec::new())).await;
        assert!(end.is_ok(), "{more:?}");
        served.world.pod("a", "worker-0", "Running", 20);
        served.world.pod("a", "worker-1", "Running", 21);
        for connection in connections.iter_mut().chain([&mut other]) {
            let mut said = String::new();
            while !said.ends_with("{\"state\":\"Go\"}\n") {
                assert!(
                    connection.read_line(&mut said).await.unwrap() > 0,
                    "{more:?}: {said}"
                );
            }
        }
    }
}

#[tokio::test]
async fn strangers_make_room_for_agents() {
    let served = Served::with(2).await;
    let mut strangers = Vec::new();
    for _ in 0..2 {
        let mut stranger = served.connect().await;
        stranger
            .write_all(b"GET /nothing HTTP/1.1\r\nHost: observer\r\n\r\n")
            .await
            .unwrap();
        let mut answer = [0; 12];
        stranger.read_exact(&mut answer).await.unwrap();
        assert_eq!(&answer, b"HTTP/1.1 404");
        strangers.push(stranger);
    }
    let agents = async {
        let mut agents = Vec::new();
        for _ in 0..2 {
            let (head, stream) = served.ask(UPGRADE).await;
            assert!(head.starts_with("HTTP/1.1 101 "), "{head}");
            agents.push(stream);
        }
        agents
    };
    let agents = timeout(HANG_LIMIT, agents).await;
    assert_eq!(agents.map(|agents| agents.len()), Ok(2));
    drop(strangers);
}
