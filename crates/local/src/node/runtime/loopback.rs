//! Addresses of pods on the network of the machine: one of 127.0.0.0/8 for each name.
//!
//! That network has no DNS. So an address belongs to a name from its first use: it is known before
//! the pod exists, and a replacement has the same address.

use std::collections::HashMap;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::net::TcpSocket;

use super::Error;

/// Bound, but not listened on, to mark a part of the network as taken. It is not an ephemeral port.
const CLAIM_PORT: u16 = 65_535;
/// The number of parts: values of the second byte, without those that other programs use.
const PARTS: u32 = 250;
const FIRST_PART: u32 = 2;
/// The first address is that of the claim.
const FIRST_NUMBER: u16 = 2;
const LAST_NUMBER: u16 = u16::MAX - 1;

/// A part of the loopback network that is this run's own.
#[derive(Clone, Debug)]
pub struct Loopback {
    part: u8,
    table: Arc<Mutex<Table>>,
    // The kernel releases it however this process ends.
    _claim: Option<Arc<TcpSocket>>,
}

#[derive(Debug, Default)]
struct Table {
    names: HashMap<String, Entry>,
    last: u16,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    number: u16,
    pods: usize,
}

impl Loopback {
    /// Claims a part that no other run on this machine has.
    pub fn claim() -> Self {
        let first = std::process::id() % PARTS;
        let part = |offset: u32| u8::try_from((first + offset) % PARTS + FIRST_PART).unwrap_or(u8::MAX);
        for offset in 0..PARTS {
            match bind(part(offset)) {
                Ok(claim) => return Self::new(part(offset), Some(claim)),
                Err(error) if error.kind() == io::ErrorKind::AddrInUse => {}
                // Some systems only have 127.0.0.1.
                Err(_) => break,
            }
        }
        Self::new(part(0), None)
    }

    fn new(part: u8, claim: Option<TcpSocket>) -> Self {
        Self {
            part,
            table: Arc::default(),
            _claim: claim.map(Arc::new),
        }
    }

    pub fn address(&self, name: &str) -> Result<Ipv4Addr, Error> {
        let number = self.table.lock().entry(name).ok_or(Error::NoAddress)?.number;
        Ok(self.of(number))
    }

    /// The address of a pod, reserved until it is dropped.
    pub fn hold(&self, name: &str) -> Result<HeldAddress, Error> {
        let mut table = self.table.lock();
        let entry = table.entry(name).ok_or(Error::NoAddress)?;
        entry.pods += 1;
        Ok(HeldAddress {
            address: self.of(entry.number),
            name: name.to_owned(),
            table: self.table.clone(),
        })
    }

    fn of(&self, number: u16) -> Ipv4Addr {
        let [high, low] = number.to_be_bytes();
        Ipv4Addr::new(127, self.part, high, low)
    }
}

fn bind(part: u8) -> io::Result<TcpSocket> {
    let socket = TcpSocket::new_v4()?;
    socket.bind(SocketAddr::from(([127, part, 0, 1], CLAIM_PORT)))?;
    Ok(socket)
}

impl Table {
    fn entry(&mut self, name: &str) -> Option<&mut Entry> {
        if !self.names.contains_key(name) {
            let number = self.free()?;
            self.names.insert(name.to_owned(), Entry { number, pods: 0 });
        }
        self.names.get_mut(name)
    }

    /// An unused number; if there is none, that of a name without a pod.
    fn free(&mut self) -> Option<u16> {
        if self.last < LAST_NUMBER {
            self.last = (self.last + 1).max(FIRST_NUMBER);
            return Some(self.last);
        }
        let unused = self.names.iter().find(|(_, entry)| entry.pods == 0);
        let name = unused.map(|(name, _)| name.clone())?;
        self.names.remove(&name).map(|entry| entry.number)
    }
}

#[derive(Debug)]
pub struct HeldAddress {
    address: Ipv4Addr,
    name: String,
    table: Arc<Mutex<Table>>,
}

impl HeldAddress {
    /// The address.
    pub fn address(&self) -> Ipv4Addr {
        self.address
    }
}

impl Drop for HeldAddress {
    fn drop(&mut self) {
        if let Some(entry) = self.table.lock().names.get_mut(&self.name) {
            entry.pods -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_belongs_to_a_name() {
        let loopback = Loopback::new(7, None);
        let told = loopback.address("a").unwrap();
        assert_eq!(told, Ipv4Addr::new(127, 7, 0, 2));
        assert_eq!(loopback.hold("a").unwrap().address(), told);
        assert_eq!(loopback.address("b").unwrap(), Ipv4Addr::new(127, 7, 0, 3));
        assert_eq!(loopback.hold("a").unwrap().address(), told);
    }

    #[test]
    fn addresses_are_used_again_when_there_are_no_others() {
        let loopback = Loopback::new(7, None);
        let kept = loopback.hold("kept").unwrap();
        for number in 0..70_000 {
            let address = loopback.address(&number.to_string()).unwrap();
            assert_ne!(address, kept.address());
            assert!(![[0, 0], [0, 1], [255, 255]].contains(&[address.octets()[2], address.octets()[3]]));
        }
    }

    #[test]
    fn two_runs_have_different_parts() {
        let (one, two) = (Loopback::claim(), Loopback::claim());
        assert_ne!(one.part, two.part);
    }
}
