//! A real Kubernetes on this machine: control plane, two nodes that run containers, DNS, Services.
//!
//! Tests find the cluster they run in by [`Cluster::from_env`]; `testcluster run -- command` makes
//! one for them.

mod boot;
mod cgroups;
mod components;
mod containers;
mod control;
mod control_plane;
mod lifecycle;
mod network;
mod node;
mod plan;
mod preflight;
mod process;
mod state;
mod supervisor;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::{env, fs};

use anyhow::{Context, Result, anyhow};

pub use control::{ComponentStatus, Phase, Signal, Status};
pub use lifecycle::{Options, TiedCluster, default_dir, down, running, up};
pub use preflight::Unsupported;
pub use state::{NodeState, State};
pub use supervisor::{init, supervise};

use crate::{cache, command};
use control::{Request, ask};
use plan::Layout;

/// The variable that has the directory of the cluster in which a test runs.
pub const ENVIRONMENT: &str = "TRAINYARD_TEST_CLUSTER";

const APISERVER: &str = "kube-apiserver";

/// A running cluster.
#[derive(Debug, Clone)]
pub struct Cluster {
    dir: PathBuf,
    state: State,
}

impl Cluster {
    /// The cluster that `testcluster run` made for this process; none outside of it.
    ///
    /// Also None, with a warning, if the cluster is gone.
    pub fn from_env() -> Option<Self> {
        let dir = env::var_os(ENVIRONMENT).filter(|dir| !dir.is_empty())?;
        match Self::open(Path::new(&dir)) {
            Ok(cluster) => Some(cluster),
            Err(error) => {
                eprintln!("{ENVIRONMENT} is set, but {error:#}");
                None
            }
        }
    }

    /// The cluster in a directory.
    pub fn open(dir: &Path) -> Result<Self> {
        let dir = std::path::absolute(dir)?;
        let state = State::read(&Layout::new(&dir))?;
        Ok(Self { dir, state })
    }

    /// Its directory.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// What it looks like.
    pub fn state(&self) -> &State {
        &self.state
    }

    /// The administrator's kubeconfig.
    pub fn kubeconfig(&self) -> &Path {
        &self.state.kubeconfig
    }

    /// What a program needs in its environment to use the cluster.
    pub fn environment(&self) -> Vec<(String, String)> {
        let path = env::var("PATH").unwrap_or_default();
        vec![
            (
                "KUBECONFIG".to_owned(),
                self.state.kubeconfig.display().to_string(),
            ),
            (ENVIRONMENT.to_owned(), self.dir.display().to_string()),
            (
                "KUBECACHEDIR".to_owned(),
                self.dir.join("kubectl-cache").display().to_string(),
            ),
            (
                "PATH".to_owned(),
                format!("{}:{path}", self.state.programs.bin.display()),
            ),
        ]
    }

    /// Runs kubectl and returns its output; `input` is its standard input, for `-f -`.
    pub fn kubectl<A: AsRef<str>>(&self, arguments: &[A], input: Option<&str>) -> Result<String> {
        let mut command = Command::new(self.state.programs.go("kubectl"));
        command
            .args(arguments.iter().map(AsRef::as_ref))
            .envs(self.environment());
        command::run_with_input(&mut command, input.map(str::as_bytes))
    }

    /// Does something once for the cluster: the first process does it, and others wait. After a
    /// failure, the next process tries again.
    pub fn once(&self, name: &str, work: impl FnOnce() -> Result<()>) -> Result<()> {
        let done = self.dir.join("done").join(name);
        let _lock = cache::lock(&done.with_extension("lock"))?;
        if done.exists() {
            return Ok(());
        }
        work()?;
        Ok(fs::write(done, "")?)
    }

    /// Puts a docker-archive on all nodes.
    pub fn load_image(&self, archive: &Path) -> Result<()> {
        let results: Vec<_> = thread::scope(|scope| {
            let import = |node: &NodeState| {
                node::import(&self.state.programs, &node.containerd_socket, archive)
                    .with_context(|| format!("on {}", node.name))
            };
            let threads: Vec<_> = self
                .state
                .nodes
                .iter()
                .map(|node| scope.spawn(move || import(node)))
                .collect();
            threads
                .into_iter()
                .map(|thread| thread.join().unwrap_or_else(|_| Err(anyhow!("it ended early"))))
                .collect()
        });
        results.into_iter().collect()
    }

    /// Kills the kubelet of a node: the node is lost, and its containers keep running.
    pub fn kill_kubelet(&self, node: &str) -> Result<()> {
        self.signal(&node::kubelet_name(node), Signal::Kill)
    }

    /// Starts the kubelet of a node again.
    pub fn start_kubelet(&self, node: &str) -> Result<()> {
        self.start(&node::kubelet_name(node))
    }

    /// Switches off the machine of a node: its kubelet, its runtime and all containers are killed,
    /// and nothing is left to report how they ended.
    pub fn switch_off(&self, node: &str) -> Result<()> {
        let known = self.state.nodes.iter().find(|known| known.name == node);
        let known = known.with_context(|| format!("there is no node {node}"))?;
        self.kill_kubelet(node)?;
        self.signal(&node::containerd_name(node), Signal::Kill)?;
        containers::kill(&known.containerd_socket)
    }

    /// Switches it on again.
    pub fn switch_on(&self, node: &str) -> Result<()> {
        self.start(&node::containerd_name(node))?;
        self.start_kubelet(node)
    }

    /// Kills the API server.
    pub fn stop_apiserver(&self) -> Result<()> {
        self.signal(APISERVER, Signal::Kill)
    }

    /// Starts the API server again and waits until it is ready.
    pub fn start_apiserver(&self) -> Result<()> {
        self.start(APISERVER)
    }

    /// Pauses the API server: connections stay open, and it does not answer.
    pub fn pause_apiserver(&self) -> Result<()> {
        self.signal(APISERVER, Signal::Stop)
    }

    /// Resumes a paused API server.
    pub fn resume_apiserver(&self) -> Result<()> {
        self.signal(APISERVER, Signal::Continue)
    }

    /// Starts a component that does not run.
    pub fn start(&self, component: &str) -> Result<()> {
        self.ask(&Request::Start(component.to_owned())).map(drop)
    }

    /// Sends a component a signal.
    pub fn signal(&self, component: &str, signal: Signal) -> Result<()> {
        self.ask(&Request::Signal(component.to_owned(), signal)).map(drop)
    }

    /// The status of the cluster.
    pub fn status(&self) -> Result<Status> {
        self.ask(&Request::Status)
    }

    /// The process of a component as this process sees it, to measure it.
    pub fn pid(&self, component: &str) -> Result<u32> {
        let status = self.status()?;
        let inner = status
            .components
            .iter()
            .find(|known| known.name == component)
            .and_then(|known| known.pid);
        inner
            .and_then(|inner| lifecycle::first_process(&self.dir)?.translate(inner))
            .with_context(|| format!("{component} does not run"))
    }

    fn ask(&self, request: &Request) -> Result<Status> {
        ask(&Layout::new(&self.dir).control(), request)
    }
}
