//! What a cluster is to look like, and where its files are.

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::cluster_programs::Programs;

/// The names of the nodes.
pub const NODES: [&str; 2] = ["node-a", "node-b"];

/// How many clusters with nodes can run on one machine.
pub const SLOTS: u8 = 8;

/// Everything that the process inside the cluster's namespaces has to know.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Plan {
    /// The cluster's directory.
    pub dir: PathBuf,
    /// The programs to run.
    pub programs: Programs,
    /// Which addresses are this cluster's; none when it has no nodes.
    pub slot: Option<u8>,
    /// Ports, by which clusters without nodes differ.
    pub ports: Ports,
    /// Whether the controller manager runs; always with nodes.
    pub controllers: bool,
    /// Whether the API server and the scheduler know gangs.
    pub gang: bool,
    /// Image archives that every node gets before it is ready.
    pub images: Vec<PathBuf>,
}

/// The ports of the control plane.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct Ports {
    /// Where the API server listens.
    pub apiserver: u16,
    /// Where etcd serves the API server.
    pub etcd: u16,
    /// Where etcd would serve other members.
    pub peer: u16,
}

impl Ports {
    /// The usual ports, for a network of the cluster's own.
    pub const OWN_NETWORK: Self = Self {
        apiserver: 6443,
        etcd: 2379,
        peer: 2380,
    };
}

impl Plan {
    /// Where things are in the cluster's directory.
    pub fn layout(&self) -> Layout {
        Layout::new(&self.dir)
    }

    /// The cluster's addresses, if it has a network of its own.
    pub fn addresses(&self) -> Option<Addresses> {
        self.slot.map(Addresses::new)
    }

    /// The address that the API server listens on.
    pub fn apiserver_address(&self) -> Ipv4Addr {
        self.addresses().map_or(Ipv4Addr::LOCALHOST, Addresses::gateway)
    }

    /// The URL of the API server.
    pub fn server(&self) -> String {
        format!("https://{}:{}", self.apiserver_address(), self.ports.apiserver)
    }
}

/// The addresses of a cluster with nodes. Clusters in other slots have others, so that the host can
/// talk to several.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Addresses {
    slot: u8,
}

impl Addresses {
    /// The addresses of a slot.
    pub fn new(slot: u8) -> Self {
        Self { slot: slot % SLOTS }
    }

    /// The slot's number.
    pub fn slot(self) -> u8 {
        self.slot
    }

    fn pod(self, third: u8, fourth: u8) -> Ipv4Addr {
        Ipv4Addr::new(10, 88 + self.slot, third, fourth)
    }

    /// The pods' network.
    pub fn pods(self) -> String {
        format!("{}/16", self.pod(0, 0))
    }

    /// The range that pods get addresses from: the rest is for the nodes and the host.
    pub fn pod_range(self) -> (Ipv4Addr, Ipv4Addr) {
        (self.pod(1, 0), self.pod(200, 255))
    }

    /// The address of the pods' bridge, where the API server and DNS listen.
    pub fn gateway(self) -> Ipv4Addr {
        self.pod(0, 1)
    }

    /// The address of a node.
    pub fn node(self, index: usize) -> Ipv4Addr {
        self.pod(0, u8::try_from(index).unwrap_or(200).saturating_add(2))
    }

    /// The host's address in the pods' network.
    pub fn host(self) -> Ipv4Addr {
        self.pod(255, 254)
    }

    /// The network of `ClusterIP`s.
    pub fn services(self) -> String {
        format!("10.{}.0.0/16", 96 + self.slot)
    }

    /// The address of the Service `kubernetes`.
    pub fn kubernetes_service(self) -> Ipv4Addr {
        Ipv4Addr::new(10, 96 + self.slot, 0, 1)
    }

    /// The host's link to the cluster. The kernel lets nobody else have it, so it also marks the
    /// slot as taken.
    pub fn link(self) -> String {
        format!("trainyard{}", self.slot)
    }

    /// The name of the cluster's control group.
    pub fn cgroup(self) -> String {
        format!("trainyard-{}", self.slot)
    }

    /// Whether a route of the host, as `ip route` prints it, is in the way of this slot.
    pub fn collides_with(self, route: &str) -> bool {
        // A first word may say what kind of route it is.
        let destination = route
            .split_whitespace()
            .take(2)
            .take_while(|word| *word != "default")
            .find_map(|word| {
                let (address, length) = word.split_once('/').unwrap_or((word, "32"));
                Some((address.parse::<Ipv4Addr>().ok()?, length.parse::<u32>().ok()?))
            });
        let Some((address, length)) = destination else {
            return false;
        };
        let bits = length.min(16);
        let mask = u32::MAX.checked_shl(32 - bits).unwrap_or(0);
        [self.pod(0, 0), self.kubernetes_service()]
            .iter()
            .any(|own| (u32::from(*own) ^ u32::from(address)) & mask == 0)
    }
}

/// The files of a cluster.
#[derive(Debug, Clone)]
pub struct Layout {
    dir: PathBuf,
}

impl Layout {
    /// The layout of the cluster in `dir`.
    pub fn new(dir: &Path) -> Self {
        Self {
            dir: dir.to_path_buf(),
        }
    }

    /// A path in the cluster's directory.
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// The same as text, for arguments and configuration files.
    pub fn text(&self, name: &str) -> String {
        self.path(name).display().to_string()
    }

    /// Description of the cluster for tests.
    pub fn state(&self) -> PathBuf {
        self.path("state.json")
    }

    /// Which processes the cluster hangs on.
    pub fn owner(&self) -> PathBuf {
        self.path("owner.json")
    }

    /// The administrator's kubeconfig.
    pub fn kubeconfig(&self) -> PathBuf {
        self.path("kubeconfig")
    }

    /// Where the cluster takes commands.
    pub fn control(&self) -> PathBuf {
        self.path("control.sock")
    }

    /// The log of one component.
    pub fn log(&self, component: &str) -> PathBuf {
        self.path(&format!("logs/{component}.log"))
    }

    /// The lock on the directory; beside it, since the directory goes away.
    pub fn lock(&self) -> PathBuf {
        let mut name = self.dir.as_os_str().to_owned();
        name.push(".lock");
        name.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_do_not_overlap() {
        for one in 0..SLOTS {
            for two in 0..SLOTS {
                let (one, two) = (Addresses::new(one), Addresses::new(two));
                assert_eq!(one.collides_with(&two.pods()), one == two);
                assert_eq!(one.collides_with(&two.services()), one == two);
            }
        }
    }

    #[test]
    fn routes_in_the_way_are_seen() {
        let slot = Addresses::new(0);
        assert!(slot.collides_with("10.88.0.0/16 dev podman0 proto kernel scope link src 10.88.0.1"));
        assert!(slot.collides_with("10.0.0.0/8 via 192.0.2.1 dev eth0"));
        assert!(slot.collides_with("10.88.3.4 via 192.0.2.1 dev eth0"));
        assert!(slot.collides_with("10.96.0.0/12 dev cluster"));
        assert!(!slot.collides_with("default via 192.0.2.1 dev eth0"));
        assert!(!slot.collides_with("192.168.0.0/16 dev eth0"));
        assert!(slot.collides_with("unreachable 10.88.0.0/16"));
    }

    #[test]
    fn nodes_and_host_are_outside_the_pods_range() {
        let slot = Addresses::new(3);
        let (first, last) = slot.pod_range();
        for address in [slot.gateway(), slot.node(0), slot.node(1), slot.host()] {
            assert!(address < first || address > last, "{address}");
        }
    }
}
