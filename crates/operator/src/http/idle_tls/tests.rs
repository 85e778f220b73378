use std::time::Duration;

use rcgen::{CertifiedKey, generate_simple_self_signed};
use rustls::crypto::ring;
use rustls::pki_types::{PrivateKeyDer, ServerName};
use rustls::version::{TLS12, TLS13};
use rustls::{ClientConfig, RootCertStore, SupportedProtocolVersion};
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional_with_sizes};
use tokio::net::TcpListener;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::*;

const LIMIT: Duration = trainyard_eventually::HANG_LIMIT;

fn configs(version: &'static SupportedProtocolVersion) -> (Arc<ServerConfig>, TlsConnector) {
    let CertifiedKey { cert, signing_key } =
        generate_simple_self_signed(vec!["observer".to_owned()]).unwrap();
    let key = PrivateKeyDer::try_from(signing_key.serialize_der()).unwrap();
    let provider = Arc::new(ring::default_provider());
    let mut server = ServerConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![cert.der().clone()], key)
        .unwrap();
    // A client that goes away with a ticket unread would reset the connection.
    server.send_tls13_tickets = 0;
    let mut roots = RootCertStore::empty();
    roots.add(cert.der().clone()).unwrap();
    let client = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[version])
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    (Arc::new(server), TlsConnector::from(Arc::new(client)))
}

/// Both ends of a TCP connection; what the first says reaches the second in pieces of a size.
async fn sockets(buffer: Option<usize>) -> (TcpStream, TcpStream) {
    let pair = async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (one, two) = tokio::join!(TcpStream::connect(address), listener.accept());
        (one.unwrap(), two.unwrap().0)
    };
    let Some(buffer) = buffer else { return pair.await };
    let (one, mut near) = pair.await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (far, two) = tokio::join!(TcpStream::connect(address), listener.accept());
    let mut far = far.unwrap();
    far.set_nodelay(true).unwrap();
    tokio::spawn(async move { copy_bidirectional_with_sizes(&mut near, &mut far, buffer, buffer).await });
    (one, two.unwrap().0)
}

async fn connected(
    version: &'static SupportedProtocolVersion,
    buffer: Option<usize>,
) -> (TlsStream<TcpStream>, IdleTls) {
    let (server, client) = configs(version);
    let (near, far) = sockets(buffer).await;
    let (near, far) = tokio::join!(
        client.connect(ServerName::try_from("observer").unwrap(), near),
        IdleTls::accept(server, far)
    );
    (near.unwrap(), far.unwrap())
}

/// How much is kept.
fn kept(stream: &IdleTls) -> [usize; 3] {
    [
        stream.outgoing.bytes.capacity(),
        stream.incoming.bytes.capacity(),
        stream.records.encrypted.capacity(),
    ]
}

/// Why a client is not let in.
async fn refusal(server: Arc<ServerConfig>, tcp: TcpStream) -> io::Error {
    match timeout(LIMIT, IdleTls::accept(server, tcp)).await.unwrap() {
        Ok(_) => panic!("it was let in"),
        Err(error) => error,
    }
}

#[tokio::test]
async fn what_is_said_is_heard_and_leaves_no_buffer() {
    for version in [&TLS12, &TLS13] {
        for buffer in [None, Some(1), Some(7)] {
            let (mut client, mut stream) = connected(version, buffer).await;
            assert_eq!(kept(&stream), [0; 3]);
            client.write_all(b"may I start?").await.unwrap();
            client.flush().await.unwrap();
            let mut decrypted = [0; 12];
            stream.read_exact(&mut decrypted).await.unwrap();
            assert_eq!(&decrypted, b"may I start?");
            stream.write_all(b"wait\n").await.unwrap();
            stream.flush().await.unwrap();
            let mut decrypted = [0; 5];
            client.read_exact(&mut decrypted).await.unwrap();
            assert_eq!(&decrypted, b"wait\n");
            assert_eq!(kept(&stream), [0; 3]);
        }
    }
}

#[tokio::test]
async fn much_goes_both_ways_at_once() {
    let much: Vec<u8> = (0..3_000_000_u32).map(|number| number.to_le_bytes()[1]).collect();
    let (client, stream) = connected(&TLS13, None).await;
    let (mut hear, mut say) = tokio::io::split(client);
    let (mut listen, mut answer) = tokio::io::split(stream);
    let (mut at_client, mut at_server) = (Vec::new(), Vec::new());
    let all = async {
        tokio::try_join!(
            async {
                say.write_all(&much).await?;
                say.shutdown().await
            },
            async {
                answer.write_all(&much).await?;
                answer.shutdown().await
            },
            async { hear.read_to_end(&mut at_client).await.map(drop) },
            async { listen.read_to_end(&mut at_server).await.map(drop) },
        )
    };
    timeout(LIMIT, all).await.unwrap().unwrap();
    assert!(at_client == much && at_server == much);
}

#[tokio::test]
async fn each_side_hears_that_the_other_has_said_goodbye() {
    let (mut client, mut stream) = connected(&TLS13, None).await;
    stream.shutdown().await.unwrap();
    assert_eq!(
        client.read(&mut [0]).await.unwrap(),
        0,
        "an end, and no broken connection"
    );
    let error = stream.write(b"more").await.unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::BrokenPipe);
    client.shutdown().await.unwrap();
    assert_eq!(stream.read(&mut [0]).await.unwrap(), 0);
    assert_eq!(stream.read(&mut [0]).await.unwrap(), 0, "again");
}

#[tokio::test]
async fn an_end_without_goodbye_is_no_end() {
    let (client, mut stream) = connected(&TLS13, None).await;
    let (tcp, _) = client.into_inner();
    drop(tcp);
    let error = stream.read(&mut [0]).await.unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
}

#[tokio::test]
async fn who_does_not_speak_tls_is_refused() {
    let (server, _) = configs(&TLS13);
    let (mut near, far) = sockets(None).await;
    near.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
    let error = refusal(server, far).await;
    assert_eq!(error.kind(), io::ErrorKind::InvalidData, "{error}");
    assert_eq!(near.read(&mut [0]).await.unwrap_or(0), 0, "closed");
}

#[tokio::test]
async fn a_message_that_does_not_end_is_not_kept() {
    let (server, _) = configs(&TLS13);
    let (mut near, far) = sockets(None).await;
    let endless = async {
        // A hello of 16 MB, in records of the largest size.
        let mut first = vec![1, 0xff, 0xff, 0xff];
        loop {
            first.resize(16_000, 0);
            let mut record = vec![22, 3, 1];
            record.extend(u16::try_from(first.len()).unwrap().to_be_bytes());
            record.append(&mut first);
            if near.write_all(&record).await.is_err() {
                return std::future::pending::<()>().await;
            }
        }
    };
    let error = tokio::select! {
        error = refusal(server, far) => error,
        () = endless => return,
    };
    assert_eq!(error.kind(), io::ErrorKind::InvalidData, "{error}");
}

#[tokio::test]
async fn who_goes_away_in_between_is_an_error() {
    let (server, _) = configs(&TLS13);
    let (near, far) = sockets(None).await;
    drop(near);
    let error = refusal(server, far).await;
    assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
}

#[tokio::test]
async fn what_is_broken_stays_so() {
    let (client, mut stream) = connected(&TLS13, None).await;
    let (mut tcp, _) = client.into_inner();
    // A record with nothing in it that could be decrypted.
    tcp.write_all(&[23, 3, 3, 0, 32]).await.unwrap();
    tcp.write_all(&[7; 32]).await.unwrap();
    let error = stream.read(&mut [0]).await.unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::InvalidData, "{error}");
    for error in [
        stream.write(b"wait\n").await.unwrap_err(),
        stream.shutdown().await.unwrap_err(),
    ] {
        assert_eq!(error.kind(), io::ErrorKind::BrokenPipe, "{error}");
    }
}
