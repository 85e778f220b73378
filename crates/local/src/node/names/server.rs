//! A DNS server on the address of the yard's bridge, and forwarders for cluster IPs.

use std::collections::HashMap;
use std::hash::Hash;
use std::io;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::{Pod, Service};
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client};
use parking_lot::RwLock;
use simple_dns::rdata::{A, RData};
use simple_dns::{CLASS, Packet, PacketFlag, QTYPE, RCODE, ResourceRecord, TYPE};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::directory::{Answer, Directory, cluster_address};
use crate::yard::link::Bridge;

const TTL_SECONDS: u32 = 1;
const PORT: u16 = 53;
/// The limit without EDNS.
const MAX_DATAGRAM_BYTES: usize = 512;
const RETRY_INTERVAL: Duration = Duration::from_millis(100);
/// How long a connection to a service waits for a pod that listens.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(30);

type Shared = Arc<RwLock<Directory>>;
type Forwarders = HashMap<(Ipv4Addr, u16), JoinSet<()>>;

/// Serves until it is dropped.
pub async fn run(client: Client, bridge: Bridge, address: Ipv4Addr) -> io::Result<()> {
    let datagrams = UdpSocket::bind((address, PORT)).await?;
    let streams = TcpListener::bind((address, PORT)).await?;
    let directory = Shared::default();
    tokio::select! {
        () = watch(client, bridge, directory.clone()) => Ok(()),
        result = answer_datagrams(&datagrams, &directory) => result,
        result = answer_streams(&streams, &directory) => result,
    }
}

enum Change {
    Pod(Box<Event<Pod>>),
    Service(Box<Event<Service>>),
}

async fn watch(client: Client, bridge: Bridge, directory: Shared) {
    let pods = watcher(Api::<Pod>::all(client.clone()), watcher::Config::default());
    let services = watcher(Api::<Service>::all(client), watcher::Config::default());
    let pods = pods.map_ok(|event| Change::Pod(Box::new(event)));
    let services = services.map_ok(|event| Change::Service(Box::new(event)));
    let mut changes = std::pin::pin!(futures::stream::select(pods, services));
    let mut forwarders = Forwarders::new();
    while let Some(change) = changes.next().await {
        match change {
            Ok(Change::Pod(event)) => {
                apply(&mut directory.write().pods, *event, |pod| {
                    pod.metadata.uid.clone().unwrap_or_default()
                });
            }
            Ok(Change::Service(event)) => {
                apply(&mut directory.write().services, *event, service_key);
                forward(&directory, &bridge, &mut forwarders).await;
            }
            Err(error) => {
                tracing::warn!(%error, "could not watch pods or services");
                tokio::time::sleep(RETRY_INTERVAL).await;
            }
        }
    }
}

fn apply<K: Eq + Hash, T>(objects: &mut HashMap<K, T>, event: Event<T>, key: impl Fn(&T) -> K) {
    match event {
        Event::Apply(object) | Event::InitApply(object) => {
            objects.insert(key(&object), object);
        }
        Event::Delete(object) => {
            objects.remove(&key(&object));
        }
        Event::Init => objects.clear(),
        Event::InitDone => {}
    }
}

fn service_key(service: &Service) -> (String, String) {
    let part = |part: &Option<String>| part.clone().unwrap_or_default();
    (part(&service.metadata.namespace), part(&service.metadata.name))
}

/// Runs a forwarder for every port of every service with a cluster IP.
async fn forward(directory: &Shared, bridge: &Bridge, forwarders: &mut Forwarders) {
    let mut wanted = HashMap::new();
    for ((namespace, name), service) in &directory.read().services {
        let Some(address) = cluster_address(service) else {
            continue;
        };
        // A service without a selector has no pods; that of the API has a listener of its own.
        if service.spec.as_ref().is_none_or(|spec| spec.selector.is_none()) {
            continue;
        }
        for port in service.spec.iter().flat_map(|spec| spec.ports.iter().flatten()) {
            let is_tcp = port.protocol.as_deref().is_none_or(|protocol| protocol == "TCP");
            if let (true, Ok(port)) = (is_tcp, u16::try_from(port.port)) {
                wanted.insert((address, port), (namespace.clone(), name.clone()));
            }
        }
    }
    forwarders.retain(|place, _| wanted.contains_key(place));
    for (place, service) in wanted {
        if forwarders.contains_key(&place) {
            continue;
        }
        let listening = async {
            bridge.add_address(place.0).await.map_err(io::Error::other)?;
            TcpListener::bind(place).await
        };
        match listening.await {
            Ok(listener) => {
                let mut task = JoinSet::new();
                task.spawn(forward_port(listener, place.1, service, directory.clone()));
                forwarders.insert(place, task);
            }
            Err(error) => tracing::warn!(service = service.1, %error, "could not forward to a service"),
        }
    }
}

async fn forward_port(listener: TcpListener, port: u16, service: (String, String), directory: Shared) {
    let mut connections = JoinSet::new();
    for turn in 0_usize.. {
        let Ok((mut from, _)) = listener.accept().await else {
            tokio::time::sleep(RETRY_INTERVAL).await;
            continue;
        };
        while connections.try_join_next().is_some() {}
        let (service, directory) = (service.clone(), directory.clone());
        connections.spawn(async move {
            if let Some(mut to) = connect(&directory, &service, port, turn).await {
                drop(tokio::io::copy_bidirectional(&mut from, &mut to).await);
            }
        });
    }
}

/// Connects to a pod behind a service. A cluster refuses a connection while no pod listens, and
/// clients such as PyTorch try again. Here it was accepted already, and they would take its end for
/// an error: so it waits for a pod.
async fn connect(
    directory: &Shared,
    (namespace, name): &(String, String),
    port: u16,
    turn: usize,
) -> Option<TcpStream> {
    let deadline = Instant::now() + CONNECT_TIMEOUT;
    while Instant::now() < deadline {
        let targets = directory.read().targets(namespace, name, port);
        if let Some(target) = targets.get(turn % targets.len().max(1))
            && let Ok(stream) = TcpStream::connect(*target).await
        {
            return Some(stream);
        }
        tokio::time::sleep(RETRY_INTERVAL).await;
    }
    None
}

async fn answer_datagrams(socket: &UdpSocket, directory: &Shared) -> io::Result<()> {
    let mut buffer = [0; 4096];
    loop {
        let (length, from) = socket.recv_from(&mut buffer).await?;
        if let Some(answer) = answer(&buffer[..length], directory, Some(MAX_DATAGRAM_BYTES)) {
            drop(socket.send_to(&answer, from).await);
        }
    }
}

async fn answer_streams(listener: &TcpListener, directory: &Shared) -> io::Result<()> {
    let mut connections = JoinSet::new();
    loop {
        let (mut stream, _) = listener.accept().await?;
        while connections.try_join_next().is_some() {}
        let directory = directory.clone();
        connections.spawn(async move {
            while let Ok(length) = stream.read_u16().await {
                let mut query = vec![0; usize::from(length)];
                let read = stream.read_exact(&mut query).await;
                let Some(answer) = read.ok().and_then(|_| answer(&query, &directory, None)) else {
                    return;
                };
                let length = u16::try_from(answer.len()).unwrap_or_default();
                if stream.write_u16(length).await.is_err() || stream.write_all(&answer).await.is_err() {
                    return;
                }
            }
        });
    }
}

/// The answer to a query, truncated to a limit.
fn answer(query: &[u8], directory: &Shared, limit: Option<usize>) -> Option<Vec<u8>> {
    let query = Packet::parse(query).ok()?;
    let question = query.questions.first()?.clone();
    let mut reply = Packet::new_reply(query.id());
    reply.set_flags(PacketFlag::AUTHORITATIVE_ANSWER | PacketFlag::RECURSION_AVAILABLE);
    if query.has_flags(PacketFlag::RECURSION_DESIRED) {
        reply.set_flags(PacketFlag::RECURSION_DESIRED);
    }
    let name = question.qname.clone();
    let found = directory.read().resolve(&name.to_string());
    match found {
        Answer::Unknown => *reply.rcode_mut() = RCODE::NameError,
        Answer::Known(addresses) => {
            // Known names have no records of other types.
            if matches!(question.qtype, QTYPE::TYPE(TYPE::A) | QTYPE::ANY) {
                reply.answers.extend(addresses.into_iter().map(|address| {
                    let data = RData::A(A::from(address));
                    ResourceRecord::new(name.clone(), CLASS::IN, TTL_SECONDS, data)
                }));
            }
        }
    }
    reply.questions.push(question);
    let mut bytes = reply.build_bytes_vec_compressed().ok()?;
    if limit.is_some_and(|limit| bytes.len() > limit) {
        reply.answers.clear();
        reply.set_flags(PacketFlag::TRUNCATION);
        bytes = reply.build_bytes_vec_compressed().ok()?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// As a worker of PyTorch that is up before its master.
    #[tokio::test]
    async fn a_connection_waits_until_a_pod_listens() {
        let free = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = free.local_addr().unwrap().port();
        drop(free);
        let pod = json!({
            "metadata": {"namespace": "ns", "name": "master", "labels": {"job": "a"}},
            "spec": {"containers": []},
            "status": {"phase": "Running", "podIP": "127.0.0.1"},
        });
        let service = json!({
            "metadata": {"namespace": "ns", "name": "master"},
            "spec": {"publishNotReadyAddresses": true, "selector": {"job": "a"}, "ports": [{"port": port}]},
        });
        let key = ("ns".to_owned(), "master".to_owned());
        let mut directory = Directory::default();
        directory
            .services
            .insert(key.clone(), serde_json::from_value(service).unwrap());
        let directory: Shared = Arc::new(RwLock::new(directory));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let mut forwarder = JoinSet::new();
        forwarder.spawn(forward_port(listener, port, key, directory.clone()));

        let mut client = TcpStream::connect(address).await.unwrap();
        client.write_all(b"hello").await.unwrap();
        tokio::time::sleep(RETRY_INTERVAL * 2).await;
        let pod: Pod = serde_json::from_value(pod).unwrap();
        directory.write().pods.insert("master".to_owned(), pod);
        tokio::time::sleep(RETRY_INTERVAL * 2).await;
        let master = TcpListener::bind(("127.0.0.1", port)).await.unwrap();
        let (mut served, _) = master.accept().await.unwrap();
        let mut heard = [0; 5];
        served.read_exact(&mut heard).await.unwrap();
        assert_eq!(&heard, b"hello");
        served.write_all(b"there").await.unwrap();
        client.read_exact(&mut heard).await.unwrap();
        assert_eq!(&heard, b"there");
    }
}
