//! Pods in namespaces.
//!
//! A thread that enters or makes namespaces can do so without the rest of the process: each pod's
//! namespaces are made by a short-lived thread and held open as files, and each container has a
//! thread that enters them, makes a mount and a process namespace, puts the file system together,
//! starts the container's first process and waits for it. Only that first process is this program
//! executed again (`stage`), because `/proc` can only be mounted from within.

pub mod exec;
mod identity;
mod launch;
mod leftovers;
mod paths;
mod pause;
mod root;
mod stage;

use std::collections::HashSet;
use std::fs::{self, File};
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;

use nix::sched::{CloneFlags, unshare};
use nix::unistd::sethostname;
use parking_lot::Mutex;
use tokio::sync::oneshot;

use super::loopback::{HeldAddress, Loopback};
use super::running::STACK_BYTES;
use super::{Container, ContainerSpec, Error, SandboxSpec};
use crate::host::cgroup::RunGroup;
use crate::host::remove_tree;
use crate::yard::link::{self, Bridge, GATEWAY};
use crate::yard::{Isolation, Network, Yard};

pub(super) use identity::become_user;
use pause::Pause;
pub(crate) use pause::run as pause_stage;
pub(crate) use stage::run as container_stage;

/// The runtime.
#[derive(Debug)]
pub struct Isolated {
    isolation: Isolation,
    network: PodNetwork,
    state: PathBuf,
    groups: Arc<RunGroup>,
    numbers: Arc<Mutex<PodNumbers>>,
}

#[derive(Debug)]
enum PodNetwork {
    Bridge(Bridge),
    Loopback(Loopback),
}

/// Numbers of pods, for addresses and names of links.
#[derive(Debug, Default)]
struct PodNumbers {
    used: HashSet<u16>,
    last: u16,
}

impl PodNumbers {
    /// The number that was unused for longest: others may still know the address of its last pod.
    fn take(&mut self) -> Option<u16> {
        for _ in 0..u16::MAX {
            self.last = self.last.checked_add(1).unwrap_or(1);
            // Reserved for the network, the gateway and broadcast.
            if !matches!(self.last, 0 | 1 | u16::MAX) && self.used.insert(self.last) {
                return Some(self.last);
            }
        }
        None
    }
}

impl Isolated {
    /// Creates the bridge, in a yard with a network of its own.
    pub async fn new(yard: &Yard, state: &Path, groups: Arc<RunGroup>) -> Result<Self, Error> {
        let network = match yard.network {
            Network::Pod => PodNetwork::Bridge(Bridge::make().await?),
            Network::Host => PodNetwork::Loopback(Loopback::claim()),
        };
        fs::create_dir_all(state).map_err(Error::system(format!("make {}", state.display())))?;
        Ok(Self {
            isolation: yard.isolation,
            network,
            state: state.to_owned(),
            groups,
            numbers: Arc::default(),
        })
    }

    /// The bridge of pods.
    pub fn bridge(&self) -> Option<&Bridge> {
        match &self.network {
            PodNetwork::Bridge(bridge) => Some(bridge),
            PodNetwork::Loopback(_) => None,
        }
    }

    pub(crate) fn loopback(&self) -> Option<&Loopback> {
        match &self.network {
            PodNetwork::Bridge(_) => None,
            PodNetwork::Loopback(loopback) => Some(loopback),
        }
    }

    /// Creates the namespaces and the network of a pod.
    pub async fn sandbox(&self, spec: SandboxSpec) -> Result<Sandbox, Error> {
        let number = self.numbers.lock().take().ok_or(Error::NoAddress)?;
        // The number keeps it apart from a predecessor that is still being removed.
        let scratch = self.state.join(format!("{}-{number}", spec.id));
        fs::create_dir_all(&scratch).map_err(Error::system(format!("make {}", scratch.display())))?;
        let number = PodNumber {
            value: number,
            numbers: self.numbers.clone(),
        };
        let own_network = self.bridge().cloned().filter(|_| !spec.host_network);
        let held = match &self.network {
            PodNetwork::Bridge(_) => None,
            PodNetwork::Loopback(loopback) => Some(loopback.hold(spec.name.as_ref().unwrap_or(&spec.id))?),
        };
        let address = match (&held, &own_network) {
            (Some(held), _) => held.address(),
            (None, Some(_)) => number.address(),
            (None, None) => GATEWAY,
        };
        let hostname = spec.hostname;
        let link_number = u32::from(number.value);
        let pause = spec.share_processes.then(|| scratch.join("pause"));
        let namespaces = in_thread("pod", move || {
            let mut made = make_namespaces(&hostname, own_network.as_ref(), link_number, address)?;
            made.processes = pause.map(|place| Pause::start(&place)).transpose()?;
            Ok(made)
        })
        .await?;
        Ok(Sandbox {
            isolation: self.isolation,
            own: self.state.parent().unwrap_or(&self.state).to_owned(),
            scratch,
            address,
            namespaces: Arc::new(namespaces),
            groups: self.groups.clone(),
            _number: number,
            _held: held,
        })
    }
}

#[derive(Debug)]
struct PodNumber {
    value: u16,
    numbers: Arc<Mutex<PodNumbers>>,
}

impl PodNumber {
    fn address(&self) -> Ipv4Addr {
        let [high, low] = self.value.to_be_bytes();
        Ipv4Addr::new(10, 88, high, low)
    }
}

impl Drop for PodNumber {
    fn drop(&mut self) {
        self.numbers.lock().used.remove(&self.value);
    }
}

/// Namespaces, which exist while these files are open or a process is in them.
#[derive(Debug)]
struct Namespaces {
    network: Option<File>,
    names: File,
    shared_memory: File,
    /// Only if containers share a process namespace.
    processes: Option<Pause>,
}

fn make_namespaces(
    hostname: &str,
    bridge: Option<&Bridge>,
    number: u32,
    address: Ipv4Addr,
) -> Result<Namespaces, Error> {
    let mut flags = CloneFlags::CLONE_NEWUTS | CloneFlags::CLONE_NEWIPC;
    if bridge.is_some() {
        flags |= CloneFlags::CLONE_NEWNET;
    }
    unshare(flags).map_err(Error::system("make the namespaces of a pod"))?;
    sethostname(hostname).map_err(Error::system(format!("set the host name {hostname}")))?;
    let open = |name: &str| {
        File::open(Path::new("/proc/thread-self/ns").join(name)).map_err(Error::system("open a namespace"))
    };
    let network = match bridge {
        None => None,
        Some(bridge) => {
            let network = open("net")?;
            let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build();
            let runtime = runtime.map_err(Error::system("configure the network of a pod"))?;
            runtime.block_on(async {
                bridge.attach(number, &network).await?;
                link::configure_pod(address).await
            })?;
            Some(network)
        }
    };
    Ok(Namespaces {
        network,
        names: open("uts")?,
        shared_memory: open("ipc")?,
        processes: None,
    })
}

/// Runs something in a thread of its own: a thread that has changed its namespaces must not be
/// reused.
async fn in_thread<T: Send + 'static>(
    name: &str,
    work: impl FnOnce() -> Result<T, Error> + Send + 'static,
) -> Result<T, Error> {
    let (send, receive) = oneshot::channel();
    thread::Builder::new()
        .name(name.to_owned())
        .stack_size(STACK_BYTES)
        .spawn(move || drop(send.send(work())))
        .map_err(Error::system("start a thread"))?;
    receive.await.map_err(|_| Error::System {
        what: format!("finish the work of the thread {name}"),
        source: std::io::ErrorKind::Interrupted.into(),
    })?
}

/// What the containers of a pod share.
#[derive(Debug)]
pub struct Sandbox {
    isolation: Isolation,
    /// The directory of the run, with the files of all pods.
    own: PathBuf,
    scratch: PathBuf,
    address: Ipv4Addr,
    namespaces: Arc<Namespaces>,
    groups: Arc<RunGroup>,
    _number: PodNumber,
    _held: Option<HeldAddress>,
}

impl Sandbox {
    /// The address of the pod.
    pub fn address(&self) -> Ipv4Addr {
        self.address
    }

    /// Starts a container.
    pub async fn start(&self, spec: ContainerSpec) -> Result<Container, Error> {
        launch::start(self, spec).await
    }
}

impl Drop for Sandbox {
    fn drop(&mut self) {
        let scratch = std::mem::take(&mut self.scratch);
        // In a thread, because it may take long.
        drop(
            thread::Builder::new()
                .stack_size(STACK_BYTES)
                .spawn(move || remove_tree(&scratch)),
        );
    }
}
