//! The network of the yard: one bridge, and a pair of links for each pod.

use std::fs::File;
use std::net::Ipv4Addr;
use std::os::fd::AsRawFd;

use rtnetlink::packet_route::link::{InfoData, InfoVeth};
use rtnetlink::{Handle, LinkBridge, LinkMessageBuilder, LinkUnspec, LinkVeth, RouteMessageBuilder};

use super::Error;

/// The address of the bridge: that of the yard for pods.
pub const GATEWAY: Ipv4Addr = Ipv4Addr::new(10, 88, 0, 1);
/// The prefix length of pods' addresses.
pub const POD_PREFIX: u8 = 16;
/// The network of cluster IPs.
pub const SERVICES: (Ipv4Addr, u8) = (Ipv4Addr::new(10, 96, 0, 0), 16);

/// A fixed MAC address: by default it is the lowest of the ports, and changes when pods come and
/// go. This is [`GATEWAY`] as a locally administered address.
const BRIDGE_ADDRESS: [u8; 6] = [0x02, 0, 10, 88, 0, 1];

// Fixed indices, so that links need not be looked up. Kernels may create links with low indices in
// a new namespace.
const LOOPBACK: u32 = 1;
const BRIDGE: u32 = 100;
const POD: u32 = 100;
const FIRST_PORT: u32 = 1000;

/// The bridge of the yard.
#[derive(Clone, Debug)]
pub struct Bridge {
    handle: Handle,
}

impl Bridge {
    /// Creates the bridge in the network namespace of this thread.
    pub async fn make() -> Result<Self, Error> {
        let handle = connect()?;
        set_up(&handle, LOOPBACK).await?;
        let bridge = LinkBridge::new("yard")
            .index(BRIDGE)
            .address(BRIDGE_ADDRESS.to_vec())
            .up()
            .build();
        handle.link().add(bridge).execute().await.map_err(network)?;
        let address = handle.address().add(BRIDGE, GATEWAY.into(), POD_PREFIX);
        address.execute().await.map_err(network)?;
        Ok(Self { handle })
    }

    /// Creates the links of a pod: `eth0` in its namespace, and a port of the bridge, which is
    /// removed with it.
    pub async fn attach(&self, number: u32, namespace: &File) -> Result<(), Error> {
        let inside = LinkMessageBuilder::<LinkUnspec>::new()
            .name("eth0")
            .index(POD)
            .setns_by_fd(namespace.as_raw_fd())
            .build();
        let port = LinkMessageBuilder::<LinkVeth>::new(&format!("pod{number}"), "eth0")
            .set_info_data(InfoData::Veth(InfoVeth::Peer(inside)))
            .index(FIRST_PORT + number)
            .controller(BRIDGE)
            .up()
            .build();
        self.handle.link().add(port).execute().await.map_err(network)
    }

    /// Adds an address of the yard, which pods reach through the bridge.
    pub async fn add_address(&self, address: Ipv4Addr) -> Result<(), Error> {
        let request = self.handle.address().add(LOOPBACK, address.into(), 32);
        request.replace().execute().await.map_err(network)
    }
}

/// Configures the links of a pod, from a thread in its network namespace.
pub async fn configure_pod(address: Ipv4Addr) -> Result<(), Error> {
    let handle = connect()?;
    set_up(&handle, LOOPBACK).await?;
    let request = handle.address().add(POD, address.into(), POD_PREFIX);
    request.execute().await.map_err(network)?;
    set_up(&handle, POD).await?;
    // No default route: addresses outside of the yard fail at once, not after a timeout.
    let services = RouteMessageBuilder::<Ipv4Addr>::new()
        .destination_prefix(SERVICES.0, SERVICES.1)
        .gateway(GATEWAY)
        .output_interface(POD)
        .build();
    handle.route().add(services).execute().await.map_err(network)
}

async fn set_up(handle: &Handle, index: u32) -> Result<(), Error> {
    let up = LinkUnspec::new_with_index(index).up().build();
    handle.link().set(up).execute().await.map_err(network)
}

fn connect() -> Result<Handle, Error> {
    let (connection, handle, _) = rtnetlink::new_connection().map_err(|e| Error::Network(e.to_string()))?;
    tokio::spawn(connection);
    Ok(handle)
}

#[expect(clippy::needless_pass_by_value, reason = "used as a function of errors")]
fn network(error: rtnetlink::Error) -> Error {
    Error::Network(error.to_string())
}
