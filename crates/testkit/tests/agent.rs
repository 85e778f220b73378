//! The agent as pods have it is small: it is in every pod that waits or is reached by others.
//!
//! Needs no cluster, but the static agent: `hack/suite embedded`.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests are tests, which clippy.toml lets unwrap"
)]

use std::collections::BTreeMap;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::process::{Child, Command};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::server::TlsStream;
use trainyard_contract::shell::CERTIFICATE_NAME;
use trainyard_core::model::Identity;
use trainyard_core::remote_shell::PORT;
use trainyard_eventually::{eventually_async, within};
use trainyard_operator::identity;
use trainyard_testkit::proc::memory_mib;
use trainyard_testkit::waiting::{HostNames, addresses};

const MAX_BYTES_ON_DISK: u64 = 4 * 1024 * 1024;
const MAX_MEMORY_MIB: f64 = 3.0;

fn agent() -> PathBuf {
    let path = std::env::var("TRAINYARD_AGENT");
    PathBuf::from(path.unwrap_or_else(|_| panic!("TRAINYARD_AGENT is not set: use `make test-embedded`")))
}

fn credentials() -> BTreeMap<String, Vec<u8>> {
    let made = identity::make(Identity::Certificate, jiff::Timestamp::now()).unwrap();
    made.into_iter()
        .map(|(name, content)| (name, content.0))
        .collect()
}

fn assert_small(process: &Child) {
    let resident = memory_mib(process.id().unwrap(), "VmRSS").unwrap();
    println!("{resident:.2} MiB resident");
    assert!(
        resident < MAX_MEMORY_MIB,
        "{resident:.2} MiB resident, and less than {MAX_MEMORY_MIB} are promised"
    );
}

#[test]
fn is_small_on_disk() {
    let bytes = fs::metadata(agent()).unwrap().len();
    println!("{bytes} bytes on disk");
    assert!(
        bytes < MAX_BYTES_ON_DISK,
        "{bytes} bytes on disk, and less than {MAX_BYTES_ON_DISK} are promised: is it built with the profile `agent`?"
    );
}

#[tokio::test]
async fn is_small_while_it_waits_for_commands() {
    let directory = tempfile::tempdir().unwrap();
    for (name, content) in credentials() {
        fs::write(directory.path().join(name), content).unwrap();
    }
    let address = addresses()[0];
    let server = Command::new(agent())
        .arg("serve")
        .env("TRAINYARD_IDENTITY", directory.path())
        .env("TRAINYARD_SHELL_ADDRESS", address.to_string())
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let port = u16::try_from(PORT).unwrap();
    eventually_async("it listens", async || {
        let connected = TcpStream::connect((address, port)).await;
        connected.map_err(|error| error.to_string())
    })
    .await;
    assert_small(&server);
}

/// An observer that tells the first who asks to wait, and then says no more.
async fn tell_to_wait(
    listener: TcpListener,
    credentials: &BTreeMap<String, Vec<u8>>,
) -> TlsStream<TcpStream> {
    let certificate = CertificateDer::from_pem_slice(&credentials["tls.crt"]).unwrap();
    let key = PrivateKeyDer::from_pem_slice(&credentials["tls.key"]).unwrap();
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)
        .unwrap();
    let (stream, _) = listener.accept().await.unwrap();
    let mut stream = TlsAcceptor::from(Arc::new(config)).accept(stream).await.unwrap();
    let mut request = Vec::new();
    while !request.ends_with(b"\r\n\r\n") {
        assert!(stream.read_buf(&mut request).await.unwrap() > 0, "it has gone");
    }
    let answer = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: trainyard-lines\r\n\r\n\
                  {\"state\":\"Wait\",\"message\":\"waits\"}\n";
    stream.write_all(answer.as_bytes()).await.unwrap();
    stream.flush().await.unwrap();
    stream
}

#[tokio::test]
async fn is_small_while_it_waits_for_other_roles() {
    let directory = tempfile::tempdir().unwrap();
    let token = directory.path().join("token");
    fs::write(&token, "token").unwrap();
    let credentials = credentials();
    let authority = String::from_utf8(credentials["ca.crt"].clone()).unwrap();
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let SocketAddr::V4(address) = listener.local_addr().unwrap() else {
        panic!("no such address was asked for")
    };
    let names = HostNames::new(CERTIFICATE_NAME, &[*address.ip()]).unwrap();
    let mut process = names
        .command(&agent())
        .arg("wait")
        .env(
            "TRAINYARD_OBSERVER",
            format!("https://{}:{}", CERTIFICATE_NAME, address.port()),
        )
        .env("TRAINYARD_AUTHORITY", authority)
        .env("TRAINYARD_NAMESPACE", "yard")
        .env("TRAINYARD_JOB", "job")
        .env("TRAINYARD_ROLE", "client")
        .env("TRAINYARD_TOKEN_FILE", &token)
        .env("TRAINYARD_ANNOTATIONS_FILE", directory.path().join("none"))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let _connection = within("the agent asks", tell_to_wait(listener, &credentials)).await;
    let out = process.stdout.take().unwrap();
    let mut said = BufReader::new(out).lines();
    let said = within("it says that it waits", said.next_line()).await;
    assert_eq!(said.unwrap().as_deref(), Some("waits"));
    assert_small(&process);
}
