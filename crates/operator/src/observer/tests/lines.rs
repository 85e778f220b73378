//! Lines over connections, as agents hear them.

use std::net::SocketAddr;

use rcgen::{CertifiedKey, generate_simple_self_signed};
use rustls::crypto::ring;
use rustls::pki_types::{PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::*;

/// An observer that listens, and what its clients have to know.
struct Served {
    world: World,
    address: SocketAddr,
    tls: TlsConnector,
}

impl Served {
    async fn new() -> Self {
        let world = World::new();
        let CertifiedKey { cert, signing_key } =
            generate_simple_self_signed(vec!["observer".to_owned()]).unwrap();
        let key = PrivateKeyDer::try_from(signing_key.serialize_der()).unwrap();
        let provider = Arc::new(ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![cert.der().clone()], key)
            .unwrap();
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
        tokio::spawn(serve_connections(
            listener,
            move |stream| QuietTls::accept(config.clone(), stream),
            world.router.clone(),
            Purpose::Agents,
            world.shutdown.clone(),
        ));
        Self {
            world,
            address,
            tls: TlsConnector::from(Arc::new(client)),
        }
    }

    /// Asks as the launcher of the first job does; the head of the answer, and what comes after it.
    async fn ask(&self, more: &str) -> (String, BufReader<TlsStream<TcpStream>>) {
        let stream = TcpStream::connect(self.address).await.unwrap();
        let name = ServerName::try_from("observer").unwrap();
        let mut stream = self.tls.connect(name, stream).await.unwrap();
        let token = self.world.token("a-launcher-0");
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
    timeout(Duration::from_secs(30), stream.read_to_string(&mut rest))
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
    let stream = TcpStream::connect(served.address).await.unwrap();
    let name = ServerName::try_from("observer").unwrap();
    let mut stream = served.tls.connect(name, stream).await.unwrap();
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
