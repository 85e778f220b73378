use std::sync::atomic::{AtomicBool, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use trainyard_eventually::HANG_LIMIT;

use super::*;
use crate::budget::PLAIN_CONNECTION;
use crate::budget::tests::{all_is_read, peak_growth};

async fn fetch(address: SocketAddr, path: &str) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer
}

#[tokio::test]
async fn serves_metrics_and_probes_until_told_to_stop() {
    let listener = bind(([127, 0, 0, 1], 0).into()).await.unwrap();
    let address = listener.local_addr().unwrap();
    let metrics = Arc::new(Metrics::new());
    metrics.set_queue_depth(3);
    let synced = Arc::new(AtomicBool::new(false));
    let ready = {
        let synced = synced.clone();
        move || {
            synced
                .load(Ordering::SeqCst)
                .then_some(())
                .ok_or_else(|| "waiting for pods".to_owned())
        }
    };
    let probes = Probes {
        live: Arc::new(|| Ok(())),
        ready: Arc::new(ready),
    };
    let shutdown = CancellationToken::new();
    let server = tokio::spawn(serve(listener, metrics, probes, shutdown.clone()));

    let text = fetch(address, "/metrics").await;
    assert!(
        text.contains("trainyard_queue_depth 3\n") && text.contains(metrics::CONTENT_TYPE),
        "{text}"
    );
    assert!(fetch(address, "/healthz").await.starts_with("HTTP/1.1 200"));
    let unready = fetch(address, "/readyz").await;
    assert!(
        unready.starts_with("HTTP/1.1 503") && unready.ends_with("waiting for pods\n"),
        "{unready}"
    );
    synced.store(true, Ordering::SeqCst);
    assert!(fetch(address, "/readyz").await.starts_with("HTTP/1.1 200"));
    assert!(fetch(address, "/other").await.starts_with("HTTP/1.1 404"));

    // A connection that is open and idle does not hold up the end.
    let _idle = TcpStream::connect(address).await.unwrap();
    shutdown.cancel();
    server.await.unwrap();
    assert!(TcpStream::connect(address).await.is_err());
}

#[tokio::test]
async fn who_says_that_it_has_no_more_to_ask_is_answered() {
    let (address, shutdown) = server().await;
    for _ in 0..50 {
        let mut client = TcpStream::connect(address).await.unwrap();
        client.write_all(b"GET /healthz HTTP/1.0\r\n\r\n").await.unwrap();
        client.shutdown().await.unwrap();
        let mut answer = String::new();
        client.read_to_string(&mut answer).await.unwrap();
        assert!(answer.starts_with("HTTP/1.0 200"), "{answer:?}");
    }
    shutdown.cancel();
}

#[tokio::test]
async fn silent_clients_keep_no_probe_out() {
    let (address, shutdown) = server().await;
    let mut silent = Vec::new();
    for _ in 0..Purpose::Plain.max_connections() {
        silent.push(TcpStream::connect(address).await.unwrap());
    }
    for _ in 0..3 {
        let answer = timeout(Duration::from_secs(5), fetch(address, "/healthz")).await;
        assert!(answer.unwrap().starts_with("HTTP/1.1 200"));
    }
    // The first to come are the first to go; one that is still there is served.
    assert_eq!(silent[0].read(&mut [0]).await.unwrap(), 0);
    let last = silent.last_mut().unwrap();
    last.write_all(b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n")
        .await
        .unwrap();
    assert!(last.read(&mut [0]).await.unwrap() > 0);
    shutdown.cancel();
}

#[tokio::test]
async fn polite_clients_keep_no_probe_out() {
    let (address, shutdown) = server().await;
    let mut polite = Vec::new();
    for _ in 0..Purpose::Plain.max_connections() {
        let mut client = TcpStream::connect(address).await.unwrap();
        let request = b"GET /healthz HTTP/1.1\r\nhost: x\r\nconnection: keep-alive\r\n\r\n";
        client.write_all(request).await.unwrap();
        let mut answer = [0; 12];
        client.read_exact(&mut answer).await.unwrap();
        assert_eq!(&answer, b"HTTP/1.1 200");
        polite.push(client);
    }
    let answer = timeout(HANG_LIMIT, fetch(address, "/healthz")).await;
    assert!(answer.unwrap().starts_with("HTTP/1.1 200"));
    // None of them may ask again.
    for mut client in polite {
        let mut rest = String::new();
        let ended = timeout(HANG_LIMIT, client.read_to_string(&mut rest)).await;
        assert!(ended.is_ok() && rest.contains("connection: close\r\n"), "{rest}");
    }
    shutdown.cancel();
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_takes_for_ever_is_given_up() {
    let listener = bind(([127, 0, 0, 1], 0).into()).await.unwrap();
    let address = listener.local_addr().unwrap();
    let slow = Router::new().route("/", get(std::future::pending::<()>));
    let shutdown = CancellationToken::new();
    tokio::spawn(serve_connections(
        listener,
        plain,
        slow,
        Purpose::Plain,
        shutdown.clone(),
    ));
    let answer = timeout(Duration::from_hours(1), fetch(address, "/")).await;
    assert_eq!(answer.as_deref(), Ok(""), "virtual time");
    shutdown.cancel();
}

/// A server of metrics and probes, and what ends it.
async fn server() -> (SocketAddr, CancellationToken) {
    let listener = bind(([127, 0, 0, 1], 0).into()).await.unwrap();
    let address = listener.local_addr().unwrap();
    let probes = Probes {
        live: Arc::new(|| Ok(())),
        ready: Arc::new(|| Ok(())),
    };
    let shutdown = CancellationToken::new();
    tokio::spawn(serve(
        listener,
        Arc::new(Metrics::new()),
        probes,
        shutdown.clone(),
    ));
    (address, shutdown)
}

#[tokio::test]
async fn slow_clients_keep_no_probe_out() {
    let (address, shutdown) = server().await;
    // Both protocols begin with these.
    for first in [b"P", b"G"] {
        let mut slow = Vec::new();
        for _ in 0..Purpose::Plain.max_connections() {
            let mut client = TcpStream::connect(address).await.unwrap();
            client.write_all(first).await.unwrap();
            slow.push(client);
        }
        for _ in 0..3 {
            let answer = timeout(HANG_LIMIT, fetch(address, "/healthz")).await;
            assert!(answer.unwrap().starts_with("HTTP/1.1 200"));
        }
    }
    shutdown.cancel();
}

#[tokio::test]
async fn nobody_is_spoken_to_in_http_2() {
    let (address, shutdown) = server().await;
    let mut client = TcpStream::connect(address).await.unwrap();
    // The preface, and settings without any.
    let begin = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00";
    client.write_all(begin).await.unwrap();
    let mut answer = Vec::new();
    let ended = timeout(HANG_LIMIT, client.read_to_end(&mut answer)).await;
    assert!(ended.is_ok(), "it was taken for somebody who asks");
    let answer = String::from_utf8_lossy(&answer);
    assert!(
        answer.is_empty() || answer.starts_with("HTTP/1.1 400"),
        "{answer:?}"
    );
    shutdown.cancel();
}

#[tokio::test]
async fn a_head_that_does_not_end_is_not_kept() {
    let (address, shutdown) = server().await;
    let mut client = TcpStream::connect(address).await.unwrap();
    client.write_all(b"GET / HTTP/1.1\r\n").await.unwrap();
    let line = format!("x: {}\r\n", "y".repeat(1000));
    let mut refused = false;
    for _ in 0..400 {
        refused |= client.write_all(line.as_bytes()).await.is_err();
    }
    let mut answer = Vec::new();
    let read = timeout(HANG_LIMIT, client.read_to_end(&mut answer)).await;
    refused |= read.unwrap().is_err() || answer.starts_with(b"HTTP/1.1 431");
    assert!(refused, "{}", String::from_utf8_lossy(&answer));
    shutdown.cancel();
}

#[test]
fn a_head_that_does_not_end_takes_no_more_than_is_counted() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let (address, _shutdown) = runtime.block_on(server());
    let begin = async |count: usize| {
        let head = format!("GET / HTTP/1.1\r\nx: {}", "y".repeat(8000));
        let mut clients = Vec::new();
        for _ in 0..count {
            let mut client = TcpStream::connect(address).await.unwrap();
            client.write_all(head.as_bytes()).await.unwrap();
            clients.push(client);
        }
        all_is_read(address.port()).await;
        clients
    };
    // What is made once is not of a connection.
    let first = runtime.block_on(begin(4));
    let (growth, clients) = peak_growth(|| runtime.block_on(begin(PLAIN_CONNECTIONS - 4)));
    let each = growth / clients.len();
    assert!(each <= PLAIN_CONNECTION, "{each} bytes");
    drop(first);
}

#[tokio::test(start_paused = true)]
async fn a_client_that_asks_for_nothing_is_shown_out() {
    let (address, shutdown) = server().await;
    for first in [b"P", b"G"] {
        let mut client = TcpStream::connect(address).await.unwrap();
        client.write_all(first).await.unwrap();
        let end = timeout(Duration::from_hours(1), client.read_to_end(&mut Vec::new())).await;
        assert!(end.is_ok(), "virtual time");
    }
    shutdown.cancel();
}

#[tokio::test(start_paused = true)]
async fn a_client_that_says_nothing_is_shown_out() {
    let listener = bind(([127, 0, 0, 1], 0).into()).await.unwrap();
    let mut client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    let (stream, _) = listener.accept().await.unwrap();
    let error = wait_for_request(plain, stream, &Semaphore::new(1))
        .await
        .unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::TimedOut);
    assert_eq!(client.read(&mut [0]).await.unwrap(), 0);
}

#[tokio::test]
async fn an_address_in_use_is_named() {
    let first = bind(([127, 0, 0, 1], 0).into()).await.unwrap();
    let address = first.local_addr().unwrap();
    let error = bind(address).await.unwrap_err().to_string();
    assert!(
        error.contains(&address.to_string()) && error.contains("in use"),
        "{error}"
    );
}
