//! Takes connections, and finds out who they are.

use std::collections::{HashMap, VecDeque};
use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rustls::{Connection, ServerConfig, ServerConnection};

use crate::shell::error::LinkError;
use crate::shell::link::Link;
use crate::shell::wire::Tls;

use super::commands::Commands;
use super::{STACK_SIZE, log, session};

/// How many connections may be in the handshake at the same time. The oldest makes room for the
/// next one.
const MAX_UNAUTHENTICATED: usize = 128;
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);
/// The pause after a connection could not be accepted, for want of files or memory.
const ACCEPT_RETRY_INTERVAL: Duration = Duration::from_millis(100);

#[derive(Clone, Copy, Debug)]
struct Timeouts {
    handshake: Duration,
    /// How long a client may send nothing.
    idle: Duration,
}

/// Listens at an address and a port, in a thread. Clients may send nothing for `idle` at most.
pub fn listen(
    (address, port): (Option<IpAddr>, u16),
    tls: &Arc<ServerConfig>,
    idle: Duration,
    commands: &Arc<Commands>,
) -> io::Result<()> {
    let limit = Arc::new(ConnectionLimit::default());
    let timeouts = Timeouts {
        handshake: HANDSHAKE_TIMEOUT,
        idle,
    };
    for listener in bind(address, port)? {
        log(&format!("listening on {}", listener.local_addr()?));
        let (tls, commands, limit) = (tls.clone(), commands.clone(), limit.clone());
        let accept = move || accept(&listener, &tls, timeouts, &commands, &limit);
        thread::Builder::new().stack_size(STACK_SIZE).spawn(accept)?;
    }
    Ok(())
}

fn bind(address: Option<IpAddr>, port: u16) -> io::Result<Vec<TcpListener>> {
    if let Some(address) = address {
        return Ok(vec![TcpListener::bind((address, port))?]);
    }
    let v4 = |port| TcpListener::bind(SocketAddr::from((Ipv4Addr::UNSPECIFIED, port)));
    // Usually one socket takes connections of both kinds. Where it does not, there is room for the
    // other; where there is no IPv6 at all, the other is all.
    match TcpListener::bind(SocketAddr::from((Ipv6Addr::UNSPECIFIED, port))) {
        Ok(both) => {
            let port = both.local_addr()?.port();
            Ok([both].into_iter().chain(v4(port).ok()).collect())
        }
        Err(error) if error.kind() == ErrorKind::AddrInUse => Err(error),
        Err(_) => Ok(vec![v4(port)?]),
    }
}

fn accept(
    listener: &TcpListener,
    tls: &Arc<ServerConfig>,
    timeouts: Timeouts,
    commands: &Arc<Commands>,
    limit: &Arc<ConnectionLimit>,
) {
    loop {
        let (tcp, peer) = match listener.accept() {
            Ok(accepted) => accepted,
            Err(error)
                if matches!(
                    error.kind(),
                    ErrorKind::ConnectionAborted | ErrorKind::Interrupted
                ) =>
            {
                continue;
            }
            Err(_) => {
                thread::sleep(ACCEPT_RETRY_INTERVAL);
                continue;
            }
        };
        let permit = ConnectionLimit::take(limit, peer.ip(), &tcp);
        let (tls, commands) = (tls.clone(), commands.clone());
        let serve = move || {
            let peer = peer.ip().to_canonical();
            match open(tcp, tls, timeouts, permit) {
                Ok(link) => serve(link, peer, &commands),
                Err(error) => refuse(&error, peer),
            }
        };
        if let Err(error) = thread::Builder::new().stack_size(STACK_SIZE).spawn(serve) {
            log(&format!("can't serve {}: {error}", peer.ip()));
        }
    }
}

/// Finds out who it is.
fn open(
    tcp: TcpStream,
    tls: Arc<ServerConfig>,
    timeouts: Timeouts,
    permit: ConnectionPermit,
) -> Result<Link, LinkError> {
    let deadline = Instant::now() + timeouts.handshake;
    let opened = ServerConnection::new(tls)
        .map_err(LinkError::Tls)
        .and_then(|tls| Tls::open(Connection::Server(tls), tcp, deadline))
        .and_then(|tls| Link::new(tls, timeouts.idle));
    drop(permit);
    opened
}

/// Serves one connection. Whatever goes wrong ends this one only.
fn serve(link: Link, peer: IpAddr, commands: &Arc<Commands>) {
    if let Err(error) = session::serve(link, commands) {
        log(&format!("ended what {peer} had asked for: {error}"));
    }
}

fn refuse(error: &LinkError, peer: IpAddr) {
    match error {
        // A probe of the kubelet connects and says nothing.
        LinkError::Closed => {}
        LinkError::Io(error) if error.kind() == ErrorKind::ConnectionReset => {}
        error => log(&format!("refused {peer}: {error}")),
    }
}

/// The connections that are in the handshake. Nobody waits for them: a client that says nothing
/// would hold up all others.
#[derive(Debug, Default)]
struct ConnectionLimit(Mutex<Handshakes>);

#[derive(Debug, Default)]
struct Handshakes {
    /// How many there have been.
    count: u64,
    /// The oldest first.
    waiting: VecDeque<Handshake>,
}

#[derive(Debug)]
struct Handshake {
    number: u64,
    address: IpAddr,
    /// `None` if there are no files left: it ends by its timeout.
    tcp: Option<TcpStream>,
}

impl Handshakes {
    /// Closes the oldest connection from the address that has the most, so that whoever opens many
    /// loses their own.
    fn evict(&mut self) {
        let mut counts: HashMap<IpAddr, usize> = HashMap::new();
        for handshake in &self.waiting {
            *counts.entry(handshake.address).or_default() += 1;
        }
        let busiest = counts.into_iter().max_by_key(|(_, count)| *count);
        let oldest =
            busiest.and_then(|(address, _)| self.waiting.iter().position(|one| one.address == address));
        let evicted = oldest.and_then(|oldest| self.waiting.remove(oldest));
        if let Some(tcp) = evicted.and_then(|handshake| handshake.tcp) {
            // Its thread reads the end of it.
            let _ = tcp.shutdown(Shutdown::Both);
        }
    }
}

/// Held by a connection during the handshake.
#[derive(Debug)]
struct ConnectionPermit {
    limit: Arc<ConnectionLimit>,
    number: u64,
}

impl ConnectionLimit {
    fn take(limit: &Arc<Self>, peer: IpAddr, tcp: &TcpStream) -> ConnectionPermit {
        let mut handshakes = limit.0.lock();
        if handshakes.waiting.len() >= MAX_UNAUTHENTICATED {
            handshakes.evict();
        }
        handshakes.count += 1;
        let number = handshakes.count;
        handshakes.waiting.push_back(Handshake {
            number,
            address: peer,
            tcp: tcp.try_clone().ok(),
        });
        ConnectionPermit {
            limit: limit.clone(),
            number,
        }
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        let mut handshakes = self.limit.0.lock();
        handshakes
            .waiting
            .retain(|handshake| handshake.number != self.number);
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::path::Path;

    use rcgen::{BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair};
    use rustls::pki_types::ServerName;
    use rustls::{ClientConnection, StreamOwned};
    use trainyard_eventually::HANG_LIMIT;

    use crate::shell::frame::{Decoder, Frame};
    use crate::shell::identity::Identity;

    use super::super::commands::tests::CHILDREN;
    use super::*;

    /// Longer than any test takes: nobody is refused for want of time.
    const NEVER: Duration = Duration::from_hours(1);

    fn write_identity(directory: &Path) {
        let mut params = CertificateParams::new(vec![]).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let write = |name: &str, text: String| std::fs::write(directory.join(name), text).unwrap();
        write("ca.crt", params.self_signed(&key).unwrap().pem());
        let issuer = Issuer::new(params, key);
        let mut params = CertificateParams::new(vec!["trainyard.job".to_owned()]).unwrap();
        params.extended_key_usages = vec![
            ExtendedKeyUsagePurpose::ServerAuth,
            ExtendedKeyUsagePurpose::ClientAuth,
        ];
        let key = KeyPair::generate().unwrap();
        write("tls.crt", params.signed_by(&key, &issuer).unwrap().pem());
        write("tls.key", key.serialize_pem());
    }

    /// The first that is said.
    fn first_frame(stream: &mut impl Read) -> Frame {
        let mut decoder = Decoder::default();
        let mut buffer = [0; 4096];
        loop {
            if let Some(frame) = decoder.next_frame().unwrap() {
                return frame;
            }
            let count = stream.read(&mut buffer).expect("it is heard");
            assert_ne!(count, 0, "it is refused");
            decoder.push(&buffer[..count]);
        }
    }

    /// A server that accepts, and never gives up a handshake by itself.
    fn serve_patiently(directory: &Path) -> (SocketAddr, Arc<ConnectionLimit>) {
        let tls = Identity::read(directory, 0).unwrap().server().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let timeouts = Timeouts {
            handshake: NEVER,
            idle: NEVER,
        };
        let limit = Arc::new(ConnectionLimit::default());
        let shared = limit.clone();
        thread::spawn(move || {
            let commands = Arc::new(Commands::new(CHILDREN.clone()));
            accept(&listener, &tls, timeouts, &commands, &shared);
        });
        (address, limit)
    }

    fn greeting(directory: &Path, address: SocketAddr) -> Frame {
        let identity = Identity::read(directory, 0).unwrap();
        let tcp = TcpStream::connect(address).unwrap();
        tcp.set_read_timeout(Some(HANG_LIMIT)).unwrap();
        let name = ServerName::try_from("trainyard.job").unwrap();
        let session = ClientConnection::new(identity.client().unwrap(), name).unwrap();
        first_frame(&mut StreamOwned::new(session, tcp))
    }

    fn is_open(mut tcp: TcpStream) -> bool {
        tcp.set_nonblocking(true).unwrap();
        tcp.read(&mut [0])
            .is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
    }

    /// How long it takes until 1,000 clients have come, and after them one that is greeted. The
    /// others are gone at once, or stay and say nothing.
    fn time_of_greeting(directory: &Path, stay: bool) -> Duration {
        let (address, limit) = serve_patiently(directory);
        let start = Instant::now();
        let mut silent = Vec::new();
        for _ in 0..1000 {
            let client = TcpStream::connect(address).unwrap();
            if stay {
                silent.push(client);
            }
        }
        assert_eq!(greeting(directory, address), Frame::hello());
        let took = start.elapsed();
        assert_eq!(limit.0.lock().count, 1001, "the loop has one turn for each");
        let open = silent
            .into_iter()
            .filter_map(|tcp| is_open(tcp).then_some(()))
            .count();
        assert!(open < MAX_UNAUTHENTICATED, "{open} are kept");
        took
    }

    /// No handshake ends by its timeout here. If the loop waited for them, nobody would ever be
    /// greeted; if it waited for each a little, 1,000 times that would show.
    #[test]
    fn a_thousand_who_say_nothing_hold_up_nobody() {
        let directory = tempfile::tempdir().unwrap();
        write_identity(directory.path());
        CHILDREN.raise_file_limit();
        let time = |stay| time_of_greeting(directory.path(), stay);
        let mut fastest = (Duration::MAX, Duration::MAX);
        for _ in 0..3 {
            fastest = (fastest.0.min(time(false)), fastest.1.min(time(true)));
        }
        let (gone, silent) = fastest;
        println!("after 1,000 who are gone: {gone:?}; after 1,000 who say nothing: {silent:?}");
        assert!(silent < 10 * gone, "{silent:?}, and {gone:?} without them");
    }

    #[test]
    fn those_who_say_nothing_hold_up_nobody() {
        let directory = tempfile::tempdir().unwrap();
        write_identity(directory.path());
        let (address, _) = serve_patiently(directory.path());

        // As many as may be unknown at the same time, but for the one that speaks, which comes
        // last.
        let silent: Vec<TcpStream> = (1..MAX_UNAUTHENTICATED)
            .map(|_| TcpStream::connect(address).unwrap())
            .collect();
        assert_eq!(greeting(directory.path(), address), Frame::hello());
        for tcp in silent {
            assert!(is_open(tcp), "nobody had to make room");
        }
    }
}
