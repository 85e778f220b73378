//! The webhooks over real TLS on loopback.

mod scripts;
mod unread;

use std::net::SocketAddr;

use http::Request;
use http_body_util::Full;
use hyper::body::Bytes;
use hyper::client::conn::http2::SendRequest;
use hyper_util::rt::{TokioExecutor, TokioIo};
use jiff::Timestamp;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::task::JoinHandle;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use trainyard_eventually::{HANG_LIMIT, eventually_async};

use super::*;
use crate::budget::WEBHOOK_CONNECTIONS;
use crate::certs::{CertConfig, SecretData, Trust, carry_out, plan_certs};
use crate::http::bind;

struct Server {
    address: SocketAddr,
    serving: Arc<ServingCert>,
    metrics: Arc<Metrics>,
    limits: Arc<Limits>,
    visitors: PendingReviews,
    shutdown: CancellationToken,
    task: JoinHandle<Result<(), rustls::Error>>,
}

/// Nobody may do anything.
fn nobody() -> Access {
    Arc::new(|_| Box::pin(async { Ok(false) }))
}

async fn start() -> Server {
    start_with(Limits::new()).await
}

async fn start_with(limits: Limits) -> Server {
    let listener = bind(([127, 0, 0, 1], 0).into()).await.unwrap();
    let address = listener.local_addr().unwrap();
    let metrics = Arc::new(Metrics::new());
    let serving = Arc::new(ServingCert::with_metrics(metrics.clone()));
    let (visitors, shutdown) = (PendingReviews::default(), CancellationToken::new());
    let limits = Arc::new(limits);
    let router = router(&metrics, &(Reviewer::default(), nobody()), &visitors, &limits);
    let serve = serve_router(listener, serving.clone(), router, shutdown.clone());
    let task = tokio::spawn(serve);
    Server {
        address,
        serving,
        metrics,
        limits,
        visitors,
        shutdown,
        task,
    }
}

fn certificates() -> SecretData {
    let (now, names) = (
        Timestamp::now(),
        CertConfig::new("system", &["hooks"], true).names,
    );
    carry_out(&plan_certs(None, now, &names, Trust::Written), None, now, &names)
        .unwrap()
        .unwrap()
}

/// Connects as an API server does that trusts these authorities.
async fn connect(
    address: SocketAddr,
    trusted: &SecretData,
    protocol: &str,
) -> std::io::Result<TlsStream<TcpStream>> {
    connect_from([127, 0, 0, 1], address, trusted, protocol).await
}

/// As [`connect`], from another address of this machine.
async fn connect_from(
    host: [u8; 4],
    address: SocketAddr,
    trusted: &SecretData,
    protocol: &str,
) -> std::io::Result<TlsStream<TcpStream>> {
    let mut roots = RootCertStore::empty();
    for root in CertificateDer::pem_slice_iter(trusted.ca_crt.as_bytes()) {
        roots.add(root.unwrap()).unwrap();
    }
    let mut config = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![protocol.as_bytes().to_vec()];
    let socket = TcpSocket::new_v4()?;
    socket.bind((host, 0).into())?;
    let stream = socket.connect(address).await?;
    let name = ServerName::try_from("hooks.system.svc").unwrap();
    TlsConnector::from(Arc::new(config)).connect(name, stream).await
}

fn asking(replicas: u32) -> Value {
    json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": {
            "uid": format!("u-{replicas}"), "operation": "CREATE", "name": "mnist",
            "kind": {"group": "trainyard.dev", "version": "v1alpha1", "kind": "TrainingJob"},
            "object": {"metadata": {"name": "mnist"}, "spec": {
                "framework": {"name": "pytorch"},
                "roles": [{"name": "worker", "replicas": replicas, "template": {"spec": {"containers": [{"name": "t", "image": "i"}]}}}]
            }}
        }
    })
}

async fn post(stream: &mut TlsStream<TcpStream>, path: &str, body: &[u8]) -> (u16, String) {
    let head = format!(
        "POST {path} HTTP/1.1\r\nhost: x\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    // The server may answer and close before it has read all of a body that is too large.
    let _ = stream.write_all(body).await;
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer).await;
    let answer = String::from_utf8(answer).unwrap();
    let code = answer.split(' ').nth(1).unwrap().parse().unwrap();
    (code, answer.split_once("\r\n\r\n").unwrap().1.to_owned())
}

#[tokio::test]
async fn answers_over_tls_and_stops_when_told() {
    let server = start().await;
    let data = certificates();
    // Without a certificate nobody gets in, and nothing breaks.
    connect(server.address, &data, "http/1.1").await.unwrap_err();
    server.serving.load(&data).unwrap();

    let asked = server.visitors.0.subscribe();
    let mut stream = connect(server.address, &data, "http/1.1").await.unwrap();
    assert!(!asked.has_changed().unwrap(), "nobody has asked yet");
    let (code, body) = post(&mut stream, "/mutate", asking(2).to_string().as_bytes()).await;
    let answer: Value = serde_json::from_str(&body).unwrap();
    assert_eq!((code, &answer["response"]["allowed"]), (200, &json!(true)));
    assert!(answer["response"]["patch"].is_string(), "{answer}");
    assert!(asked.has_changed().unwrap());

    let mut stream = connect(server.address, &data, "http/1.1").await.unwrap();
    let (code, body) = post(&mut stream, "/validate", asking(0).to_string().as_bytes()).await;
    assert_eq!(code, 200);
    assert!(body.contains("spec.roles[0].replicas"), "{body}");

    for (path, body, expected) in [
        ("/mutate", b"rubbish".to_vec(), 400),
        ("/other", Vec::new(), 404),
        ("/scripts", b"rubbish".to_vec(), 400),
        ("/validate", vec![b' '; MAX_BODY + 1], 413),
    ] {
        let mut stream = connect(server.address, &data, "http/1.1").await.unwrap();
        assert_eq!(post(&mut stream, path, &body).await.0, expected, "{path}");
    }
    let text = server.metrics.render();
    for (webhook, result) in [
        ("mutate", "patched"),
        ("validate", "denied"),
        ("mutate", "unreadable"),
        ("validate", "unreadable"),
    ] {
        let line =
            format!("trainyard_admission_reviews_total{{webhook=\"{webhook}\",result=\"{result}\"}} 1\n");
        assert!(text.contains(&line), "{line}{text}");
    }
    let end = text.lines().find_map(|line| {
        line.strip_prefix("trainyard_certificate_expiry_timestamp_seconds{certificate=\"serving\"} ")
    });
    let end: i64 = end.unwrap().parse().unwrap();
    let days = (end - Timestamp::now().as_second()) / 86400;
    assert!((80..=90).contains(&days), "{days}");

    server.shutdown.cancel();
    server.task.await.unwrap().unwrap();
    assert!(TcpStream::connect(server.address).await.is_err());
}

#[tokio::test]
async fn bad_and_slow_handshakes_hold_up_nobody() {
    let server = start().await;
    let data = certificates();
    server.serving.load(&data).unwrap();
    let mut silent = Vec::new();
    for _ in 0..20 {
        // One that says nothing, and one that speaks something else.
        silent.push(TcpStream::connect(server.address).await.unwrap());
        let mut rude = TcpStream::connect(server.address).await.unwrap();
        rude.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
        // And one that does not trust us.
        connect(server.address, &certificates(), "h2").await.unwrap_err();
    }
    let mut stream = connect(server.address, &data, "http/1.1").await.unwrap();
    let (code, _) = post(&mut stream, "/validate", asking(1).to_string().as_bytes()).await;
    assert_eq!(code, 200);
}

#[tokio::test]
async fn many_requests_share_one_connection() {
    let server = start().await;
    let data = certificates();
    server.serving.load(&data).unwrap();
    let stream = connect(server.address, &data, "h2").await.unwrap();
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(b"h2".as_slice()));
    let (sender, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream))
            .await
            .unwrap();
    tokio::spawn(connection);
    let asks = (0..100).map(|replicas| {
        let mut sender = sender.clone();
        async move {
            let body = Full::new(Bytes::from(asking(replicas).to_string()));
            let request = Request::post("https://hooks.system.svc/validate")
                .body(body)
                .unwrap();
            let answer = sender
                .send_request(request)
                .await
                .unwrap()
                .into_body()
                .collect()
                .await
                .unwrap()
                .to_bytes();
            let answer: Value = serde_json::from_slice(&answer).unwrap();
            assert_eq!(answer["response"]["uid"], format!("u-{replicas}"));
            assert_eq!(answer["response"]["allowed"], replicas != 0, "{answer}");
        }
    });
    futures::future::join_all(asks).await;
}

/// A client that speaks HTTP/2, and keeps its connection.
struct Client(SendRequest<Full<Bytes>>);

impl Client {
    async fn new(server: &Server, trusted: &SecretData, host: [u8; 4]) -> Self {
        let stream = connect_from(host, server.address, trusted, "h2").await.unwrap();
        let (sender, connection) =
            hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream))
                .await
                .unwrap();
        tokio::spawn(connection);
        Self(sender)
    }

    /// Whether it is answered.
    async fn asks(&mut self) -> bool {
        let body = Full::new(Bytes::from(asking(1).to_string()));
        let request = Request::post("https://hooks.system.svc/validate")
            .body(body)
            .unwrap();
        let answer = timeout(HANG_LIMIT, self.0.send_request(request)).await;
        answer
            .expect("an answer or an end")
            .is_ok_and(|answer| answer.status() == 200)
    }
}

#[tokio::test]
async fn polite_strangers_keep_no_api_server_out() {
    let server = start().await;
    let data = certificates();
    server.serving.load(&data).unwrap();
    let mut api_server = Client::new(&server, &data, [127, 0, 0, 2]).await;
    assert!(api_server.asks().await);
    let mut strangers = Vec::new();
    for _ in 0..WEBHOOK_CONNECTIONS {
        let mut stranger = Client::new(&server, &data, [127, 0, 0, 1]).await;
        assert!(stranger.asks().await);
        strangers.push(stranger);
    }
    // One that comes anew, and the one that has been there longest, are served.
    let another = timeout(HANG_LIMIT, Client::new(&server, &data, [127, 0, 0, 3])).await;
    assert!(another.expect("it is let in").asks().await);
    assert!(api_server.asks().await);
    let mut left = 0;
    for stranger in &mut strangers {
        left += usize::from(stranger.asks().await);
    }
    assert_eq!(left, WEBHOOK_CONNECTIONS - 2, "they made room");
}

/// None of their requests ends by its timeout here: if they held up the API server, it would never
/// be answered.
#[tokio::test]
async fn slow_requests_of_one_stranger_hold_up_no_api_server() {
    let mut limits = Limits::new();
    limits.body_timeout = Duration::from_hours(1);
    let server = start_with(limits).await;
    let data = certificates();
    server.serving.load(&data).unwrap();
    let mut slow = Vec::new();
    for _ in 0..40 {
        let mut stream = connect(server.address, &data, "http/1.1").await.unwrap();
        let head = format!("POST /validate HTTP/1.1\r\nhost: x\r\ncontent-length: {MAX_BODY}\r\n\r\n{{");
        stream.write_all(head.as_bytes()).await.unwrap();
        slow.push(stream);
    }
    // They take all that they can get.
    let taken = eventually_async("the stranger's share is taken", async || {
        let stranger = [127, 0, 0, 1].into();
        let (requests, bodies) = (
            server.limits.requests_of(stranger),
            server.limits.bodies_of(stranger),
        );
        let left = requests.left() + bodies.left();
        (left == 0).then_some(()).ok_or_else(|| left.to_string())
    });
    taken.await;
    let mut api_server = Client::new(&server, &data, [127, 0, 0, 2]).await;
    assert!(api_server.asks().await);
    drop(slow);
}

#[tokio::test]
async fn a_new_certificate_is_served_from_the_next_handshake() {
    let server = start().await;
    let (old, new) = (certificates(), certificates());
    server.serving.load(&old).unwrap();
    let mut open = connect(server.address, &old, "http/1.1").await.unwrap();
    server.serving.load(&new).unwrap();
    connect(server.address, &old, "http/1.1").await.unwrap_err();
    for stream in [
        &mut connect(server.address, &new, "http/1.1").await.unwrap(),
        &mut open,
    ] {
        assert_eq!(
            post(stream, "/validate", asking(1).to_string().as_bytes())
                .await
                .0,
            200
        );
    }
}

/// How long it takes until visitors who come at these seconds have ceased, in seconds of virtual
/// time.
async fn ceased(visits: &[u64]) -> u64 {
    let start = tokio::time::Instant::now();
    let visitors = PendingReviews::default();
    let come = async {
        for second in visits {
            tokio::time::sleep_until(start + Duration::from_secs(*second)).await;
            visitors.0.send_replace(());
        }
        std::future::pending::<()>().await;
    };
    tokio::select! {
        () = visitors.wait_until_quiet() => {}
        () = come => {}
    }
    (start.elapsed() + Duration::from_millis(500)).as_secs()
}

#[tokio::test(start_paused = true)]
async fn the_last_visitors_are_waited_for_but_not_for_ever() {
    assert_eq!(ceased(&[]).await, 2);
    assert_eq!(ceased(&[1]).await, 3);
    assert_eq!(ceased(&[1, 4]).await, 3);
    assert_eq!(ceased(&[1, 2, 3, 4, 5, 6]).await, 5);
}

#[tokio::test(start_paused = true)]
async fn who_says_nothing_is_shown_out() {
    let server = start().await;
    server.serving.load(&certificates()).unwrap();
    let mut silent = TcpStream::connect(server.address).await.unwrap();
    let before = tokio::time::Instant::now();
    let ended = timeout(Duration::from_mins(1), silent.read(&mut [0; 1])).await;
    assert!(matches!(ended, Ok(Ok(0) | Err(_))), "{ended:?}");
    // Virtual time.
    assert!(before.elapsed() <= crate::http::HANDSHAKE_TIMEOUT + Duration::from_millis(10));
}
