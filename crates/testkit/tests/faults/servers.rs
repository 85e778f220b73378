//! An operator as a process of its own, as it is installed, and its servers as strangers reach
//! them.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use k8s_openapi::api::core::v1::Secret;
use kube::{Api, Client};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::pki_types::ServerName;
use trainyard_operator::observer::OBSERVER_SERVICE;
use trainyard_operator::{OBSERVER_PORT, WEBHOOK_SERVICE, budget};
use trainyard_testkit::program::{Operator, Program};
use trainyard_testkit::waiting;

use super::program;

/// Where the operator keeps its certificates.
const SECRET: &str = "trainyard-webhook-tls";
const WEBHOOK_PORT: u16 = 9443;

/// An operator of one namespace with its webhooks and its observer.
pub struct Servers {
    operator: Operator,
    address: Ipv4Addr,
    namespace: String,
    tls: TlsConnector,
}

/// A server of the operator.
#[derive(Clone, Copy, Debug)]
pub enum Server {
    Webhooks,
    Observer,
}

impl Servers {
    /// Starts it with further arguments, and waits until it is ready.
    pub async fn start(client: &Client, namespace: &str, more: &[&str]) -> Self {
        let [address, _] = waiting::addresses();
        let mut arguments = vec![
            "--observer".to_owned(),
            format!("--observer-address={address}:{OBSERVER_PORT}"),
            "--agent-image=registry.example/trainyard:dev".to_owned(),
            "--webhooks".to_owned(),
            format!("--webhook-address={address}:{WEBHOOK_PORT}"),
            format!("--namespace={namespace}"),
            format!("--watch-namespace={namespace}"),
        ];
        arguments.extend(more.iter().map(ToString::to_string));
        let program = Program {
            binary: program(),
            log: PathBuf::from("/dev/null"),
        };
        let operator = program.start_with(&arguments).await.unwrap();
        let secrets: Api<Secret> = Api::namespaced(client.clone(), namespace);
        let data = secrets.get(SECRET).await.unwrap().data.unwrap();
        let authorities = String::from_utf8(data["ca.crt"].0.clone()).unwrap();
        Self {
            operator,
            address,
            namespace: namespace.to_owned(),
            tls: TlsConnector::from(trainyard_agent::observer::authorities(&authorities).unwrap()),
        }
    }

    /// Connects from an address of this machine, with TLS and without anything that says who it is.
    pub async fn connect(&self, to: Server, from: Ipv4Addr) -> io::Result<TlsStream<TcpStream>> {
        let (service, port) = match to {
            Server::Webhooks => (WEBHOOK_SERVICE, WEBHOOK_PORT),
            Server::Observer => (OBSERVER_SERVICE, OBSERVER_PORT),
        };
        let socket = TcpSocket::new_v4()?;
        // What nobody reads is the server's, and not the kernel's.
        socket.set_recv_buffer_size(4096)?;
        socket.bind(SocketAddr::new(IpAddr::V4(from), 0))?;
        let stream = socket.connect(SocketAddr::from((self.address, port))).await?;
        let name = ServerName::try_from(format!("{service}.{}.svc", self.namespace)).unwrap();
        self.tls.connect(name, stream).await
    }

    /// Sends a review. Returns the code and the body of the answer; `None` if there was none,
    /// because the server did not wait for the rest of the review.
    pub async fn review(&self, path: &str, body: &[u8]) -> Option<(u16, String)> {
        self.send_review(path, body, Ipv4Addr::LOCALHOST)
            .await?
            .read()
            .await
    }

    /// Sends a review from an address, and waits until an answer begins, which is not read yet.
    pub async fn send_review(&self, path: &str, body: &[u8], from: Ipv4Addr) -> Option<Unread> {
        let mut stream = self.connect(Server::Webhooks, from).await.ok()?;
        let head = format!(
            "POST {path} HTTP/1.1\r\nhost: x\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
            body.len()
        );
        stream.write_all(head.as_bytes()).await.ok()?;
        // It may answer before it has read all of a body that is too large.
        let _ = stream.write_all(body).await;
        let first = stream.read_u8().await.ok()?;
        Some(Unread { stream, first })
    }

    /// It has never had more memory than it may have where it is installed.
    pub fn check_memory(&self) {
        let peak = self.operator.peak_memory().unwrap();
        let limit = budget::LIMIT >> 20;
        println!("the operator had {peak:.0} MiB at most, and may have {limit}");
        assert!(peak < f64::from(u32::try_from(limit).unwrap()), "{peak:.0} MiB");
    }

    /// Ends it, which it must do well: it is the process that was started.
    pub async fn stop(self) {
        self.operator.stop().await.unwrap();
    }
}

/// An answer of which one byte was read.
pub struct Unread {
    stream: TlsStream<TcpStream>,
    first: u8,
}

impl Unread {
    async fn read(mut self) -> Option<(u16, String)> {
        let mut answer = vec![self.first];
        let _ = self.stream.read_to_end(&mut answer).await;
        let answer = String::from_utf8(answer).ok()?;
        let (head, body) = answer.split_once("\r\n\r\n")?;
        Some((head.split(' ').nth(1)?.parse().ok()?, body.to_owned()))
    }
}
