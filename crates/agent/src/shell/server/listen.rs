//! Takes connections, and finds out who they are.

use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustls::{Connection, ServerConfig, ServerConnection};

use crate::shell::link::{Link, LinkError};
use crate::shell::wire::Tls;

use super::commands::Commands;
use super::{say, session};

/// How many may be unknown at the same time. Others wait until it is their turn.
const UNKNOWN: usize = 128;
/// How long one may be unknown.
const HANDSHAKE: Duration = Duration::from_secs(5);
/// What to do with connections that can't be accepted, for want of files or memory, is to wait until others have gone.
const NO_ROOM: Duration = Duration::from_millis(100);
/// What a thread of a connection needs, with a large margin.
pub const STACK: usize = 512 * 1024;

/// Listens at an address and a port, in a thread. Clients may be silent for so long.
pub fn listen(
    (address, port): (Option<IpAddr>, u16),
    tls: &Arc<ServerConfig>,
    silence: Duration,
    commands: &Arc<Commands>,
) -> io::Result<()> {
    let slots = Arc::new(Slots::default());
    for listener in bind(address, port)? {
        say(&format!("listening on {}", listener.local_addr()?));
        let (tls, commands, slots) = (tls.clone(), commands.clone(), slots.clone());
        let accept = move || accept(&listener, &tls, silence, &commands, &slots);
        thread::Builder::new().stack_size(STACK).spawn(accept)?;
    }
    Ok(())
}

fn bind(address: Option<IpAddr>, port: u16) -> io::Result<Vec<TcpListener>> {
    if let Some(address) = address {
        return Ok(vec![TcpListener::bind((address, port))?]);
    }
    let v4 = |port| TcpListener::bind(SocketAddr::from((Ipv4Addr::UNSPECIFIED, port)));
    // Usually one socket takes connections of both kinds. Where it does not, there is room for the other; where there is
    // no IPv6 at all, the other is all.
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
    silence: Duration,
    commands: &Arc<Commands>,
    slots: &Arc<Slots>,
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
                thread::sleep(NO_ROOM);
                continue;
            }
        };
        let slot = Slots::take(slots);
        let (tls, commands) = (tls.clone(), commands.clone());
        let serve = move || {
            let peer = peer.ip().to_canonical();
            match open(tcp, tls, silence, slot) {
                Ok(link) => serve(link, peer, &commands),
                Err(error) => refuse(&error, peer),
            }
        };
        if let Err(error) = thread::Builder::new().stack_size(STACK).spawn(serve) {
            say(&format!("can't serve {}: {error}", peer.ip()));
        }
    }
}

/// Finds out who it is.
fn open(tcp: TcpStream, tls: Arc<ServerConfig>, silence: Duration, slot: Slot) -> Result<Link, LinkError> {
    let deadline = Instant::now() + HANDSHAKE;
    let opened = ServerConnection::new(tls)
        .map_err(LinkError::Tls)
        .and_then(|tls| Tls::open(Connection::Server(tls), tcp, deadline))
        .and_then(|tls| Link::new(tls, silence));
    drop(slot);
    opened
}

/// Serves one connection. Whatever goes wrong ends this one only.
fn serve(link: Link, peer: IpAddr, commands: &Arc<Commands>) {
    if let Err(error) = session::serve(link, commands) {
        say(&format!("ended what {peer} had asked for: {error}"));
    }
}

fn refuse(error: &LinkError, peer: IpAddr) {
    match error {
        // A probe of the kubelet connects and says nothing.
        LinkError::Closed => {}
        LinkError::Io(error) if error.kind() == ErrorKind::ConnectionReset => {}
        error => say(&format!("refused {peer}: {error}")),
    }
}

/// Places for those who are not yet known.
#[derive(Debug, Default)]
struct Slots {
    taken: Mutex<usize>,
    freed: Condvar,
}

#[derive(Debug)]
struct Slot(Arc<Slots>);

impl Slots {
    fn take(slots: &Arc<Self>) -> Slot {
        let taken = slots.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let taken = slots.freed.wait_while(taken, |taken| *taken >= UNKNOWN);
        *taken.unwrap_or_else(PoisonError::into_inner) += 1;
        Slot(slots.clone())
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        *self.0.taken.lock().unwrap_or_else(PoisonError::into_inner) -= 1;
        self.0.freed.notify_one();
    }
}
