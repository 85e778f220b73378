//! The container runtime: runs pods as processes.
//!
//! A [`Sandbox`] is what the containers of a pod share: network, host name, shared memory. A
//! [`Container`] is one process tree in it. There are two implementations: `isolated` in
//! namespaces, inside of a yard, and `unisolated`. Nothing here knows the Kubernetes API.

#[cfg(target_os = "linux")]
mod capabilities;
mod container_init;
mod exec_spawn;
#[cfg(target_os = "linux")]
pub(crate) mod isolated;
pub mod log;
mod loopback;
mod running;
pub mod state;
mod terminal;
pub(crate) mod unisolated;
#[cfg(target_os = "linux")]
pub(crate) mod user_ns_entry;

use std::io;
use std::net::Ipv4Addr;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use nix::sys::signal::Signal;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use crate::host::cgroup;
use crate::yard::{Isolation, Yard};
use log::Log;
use running::PidGuard;

pub use crate::host::cgroup::Limits;
pub use exec_spawn::Exec;
pub use running::{ExecOutput, Running};
pub use terminal::Terminal;

/// Why something could not be run.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The command of a container can't be executed; in the words of container runtimes.
    #[error("{0}")]
    Command(String),
    /// A system call failed.
    #[error("could not {what}: {source}")]
    System {
        /// What was tried.
        what: String,
        /// Why it failed.
        source: io::Error,
    },
    /// The first process of a container failed, with its message.
    #[error("{0}")]
    Prepare(String),
    /// The network of a pod could not be made.
    #[error(transparent)]
    Yard(#[from] crate::yard::Error),
    /// There are no more addresses for pods.
    #[error("all addresses for pods are in use")]
    NoAddress,
}

impl Error {
    pub(crate) fn system<E: Into<io::Error>>(what: impl Into<String>) -> impl FnOnce(E) -> Self {
        move |source| Self::System {
            what: what.into(),
            source: source.into(),
        }
    }
}

impl From<cgroup::Error> for Error {
    fn from(error: cgroup::Error) -> Self {
        Self::System {
            what: error.what,
            source: error.source,
        }
    }
}

/// What the containers of a pod share.
#[derive(Clone, Debug)]
pub struct SandboxSpec {
    /// Unique on this node: the pod's UID.
    pub id: String,
    /// The host name of the pod.
    pub hostname: String,
    /// Its DNS name, if it has one.
    pub name: Option<String>,
    /// Whether the pod uses the network of the yard itself.
    pub host_network: bool,
    /// Whether the containers of the pod share a process namespace.
    pub share_processes: bool,
}

/// The files that a container starts with.
#[derive(Clone, Debug, Default)]
pub enum Root {
    /// Those of this machine.
    #[default]
    Host,
    /// Those below a directory.
    Directory(PathBuf),
}

/// A mount in a container.
#[derive(Clone, Debug, Default)]
pub struct Mount {
    /// The path on this machine.
    pub source: PathBuf,
    /// Whether the source has no symbolic links. One that is there when it is mounted was put there
    /// meanwhile, and is not followed.
    pub is_resolved: bool,
    /// The path in the container.
    pub target: PathBuf,
    /// Whether the container may not write to it.
    pub read_only: bool,
    /// Whether the container starts without it if it can't be mounted.
    pub optional: bool,
}

/// The user of a container.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct User {
    /// The user, if not the default one.
    pub uid: Option<u32>,
    /// The group, if not the default one.
    pub gid: Option<u32>,
    /// Supplementary groups.
    pub groups: Vec<u32>,
    /// Capabilities that it drops, or `ALL`.
    pub dropped: Vec<String>,
}

#[cfg(target_os = "linux")]
impl User {
    /// Whether a user or group is set.
    pub(crate) fn is_asked_for(&self) -> bool {
        self.uid.is_some() || self.gid.is_some() || !self.groups.is_empty()
    }
}

/// A container to be started.
#[derive(Clone, Debug)]
pub struct ContainerSpec {
    /// Unique in its pod.
    pub id: String,
    /// Its files.
    pub root: Root,
    /// Its mounts.
    pub mounts: Vec<Mount>,
    /// Whether its root file system is read-only.
    pub read_only_root: bool,
    /// The program and its arguments.
    pub command: Vec<String>,
    /// Its whole environment.
    pub env: Vec<(String, String)>,
    /// Its working directory; created if it does not exist.
    pub working_directory: PathBuf,
    /// Its user.
    pub user: User,
    /// Its limits.
    pub limits: Limits,
    /// The file for its output.
    pub log: PathBuf,
}

/// How a container ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exit {
    /// Its exit code; 128 plus the number of a signal, as in shells.
    pub code: i32,
    /// The signal that killed it.
    pub signal: Option<i32>,
    /// Whether the kernel killed it because of its memory limit.
    pub out_of_memory: bool,
}

impl Exit {
    pub(crate) const KILLED: Self = Self {
        code: 137,
        signal: Some(9),
        out_of_memory: false,
    };

    pub(crate) fn of(status: std::process::ExitStatus, out_of_memory: bool) -> Self {
        use std::os::unix::process::ExitStatusExt;
        let signal = status.signal();
        let code = status.code().or(signal.map(|signal| 128 + signal)).unwrap_or(255);
        Self {
            code,
            signal,
            out_of_memory,
        }
    }
}

/// Runs pods on this machine.
#[derive(Clone, Debug)]
pub struct Runtime(Arc<Kind>);

#[derive(Debug)]
enum Kind {
    #[cfg(target_os = "linux")]
    Isolated(isolated::Isolated),
    Unisolated(unisolated::Unisolated),
}

impl Runtime {
    /// The runtime of the yard that this process is in. `state` is its directory, below that of the
    /// run.
    pub async fn new(yard: &Yard, state: &Path) -> Result<Self, Error> {
        let groups = Arc::new(cgroup::RunGroup::new(state.parent().unwrap_or(state)));
        let kind = match yard.isolation {
            #[cfg(target_os = "linux")]
            Isolation::Root | Isolation::User => {
                Kind::Isolated(isolated::Isolated::new(yard, state, groups).await?)
            }
            _ => Kind::Unisolated(unisolated::Unisolated::new(state, groups)?),
        };
        Ok(Self(Arc::new(kind)))
    }

    /// Creates the sandbox of a pod.
    pub async fn sandbox(&self, spec: SandboxSpec) -> Result<Sandbox, Error> {
        Ok(Sandbox(match &*self.0 {
            #[cfg(target_os = "linux")]
            Kind::Isolated(runtime) => SandboxKind::Isolated(runtime.sandbox(spec).await?),
            Kind::Unisolated(runtime) => SandboxKind::Unisolated(runtime.sandbox(&spec)?),
        }))
    }

    /// The bridge of the yard; None if pods use the network of the machine.
    #[cfg(target_os = "linux")]
    pub fn bridge(&self) -> Option<&crate::yard::link::Bridge> {
        match &*self.0 {
            Kind::Isolated(runtime) => runtime.bridge(),
            Kind::Unisolated(_) => None,
        }
    }

    /// The address of the pod of a name, which need not exist yet; None if pods have a network of
    /// their own.
    pub fn loopback_address(&self, name: &str) -> Option<Ipv4Addr> {
        let loopback = match &*self.0 {
            #[cfg(target_os = "linux")]
            Kind::Isolated(runtime) => runtime.loopback()?,
            Kind::Unisolated(runtime) => runtime.loopback(),
        };
        loopback.address(name).ok()
    }

    /// Whether containers have a file system of their own.
    pub fn has_own_files(&self) -> bool {
        !matches!(&*self.0, Kind::Unisolated(_))
    }
}

/// What the containers of one pod share, until it is dropped.
#[derive(Debug)]
pub struct Sandbox(SandboxKind);

#[derive(Debug)]
enum SandboxKind {
    #[cfg(target_os = "linux")]
    Isolated(isolated::Sandbox),
    Unisolated(unisolated::Sandbox),
}

impl Sandbox {
    /// The address of the pod.
    pub fn address(&self) -> Ipv4Addr {
        match &self.0 {
            #[cfg(target_os = "linux")]
            SandboxKind::Isolated(sandbox) => sandbox.address(),
            SandboxKind::Unisolated(sandbox) => sandbox.address(),
        }
    }

    /// Starts a container. Returns when its command is executed, or can't be.
    pub async fn start(&self, spec: ContainerSpec) -> Result<Container, Error> {
        match &self.0 {
            #[cfg(target_os = "linux")]
            SandboxKind::Isolated(sandbox) => sandbox.start(spec).await,
            SandboxKind::Unisolated(sandbox) => sandbox.start(spec).await,
        }
    }
}

/// A container that was started. Dropping it does not end it.
#[derive(Clone, Debug)]
pub struct Container {
    pub(crate) pid: u32,
    pub(crate) exit: watch::Receiver<Option<Exit>>,
    pub(crate) log: Log,
    pub(crate) spec: Arc<ContainerSpec>,
    pub(crate) pid_guard: PidGuard,
    /// The `cgroup.procs` files of its control groups.
    pub(crate) groups: Vec<PathBuf>,
    pub(crate) isolated: bool,
}

impl Container {
    /// Waits until it has ended and all of its output is in the log.
    pub async fn wait(&self) -> Exit {
        let mut exit = self.exit.clone();
        let ended = exit.wait_for(Option::is_some).await.ok().and_then(|exit| *exit);
        self.log.finished().await;
        // Without a result, the thread that waited for it is gone.
        ended.unwrap_or(Exit::KILLED)
    }

    /// How it ended, if it did.
    pub fn exit(&self) -> Option<Exit> {
        *self.exit.borrow()
    }

    /// Its output.
    pub fn log(&self) -> &Log {
        &self.log
    }

    /// Its first process, as this process sees it.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Sends a signal to its first process.
    pub fn signal(&self, signal: Signal) {
        self.pid_guard.signal(self.pid, signal);
    }

    /// Kills all of its processes.
    pub fn kill(&self) {
        if self.isolated {
            // The kernel kills all processes of a namespace with the first one.
            self.signal(Signal::SIGKILL);
        } else {
            unisolated::kill_tree(self);
        }
    }

    /// Starts a command in it.
    pub async fn exec(&self, command: Vec<String>) -> Result<Running, Error> {
        self.start(Exec {
            command,
            on_terminal: false,
        })
        .await
    }

    /// Starts a command in it, perhaps on a terminal.
    pub async fn start(&self, exec: Exec) -> Result<Running, Error> {
        #[cfg(target_os = "linux")]
        if self.isolated {
            return isolated::exec::start(self, exec).await;
        }
        unisolated::exec(self, &exec)
    }
}
