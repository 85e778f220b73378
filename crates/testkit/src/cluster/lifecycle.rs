//! Starting and stopping clusters.

use std::fs::{self, File};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Stdio};
use std::thread;

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};
use trainyard_eventually::{LOOK_INTERVAL, Wait};

use super::control::{Phase, Request, ask};
use super::plan::{Addresses, Layout, Plan, Ports};
use super::process::Process;
use super::state::State;
use super::supervisor::in_namespaces;
use super::{Cluster, cgroups, network, preflight};
use crate::cluster_programs::Programs;
use crate::command::{tail, wait_until};
use crate::{cache, images};

/// Options of a cluster.
#[derive(Debug, Clone)]
pub struct Options {
    /// Its directory, such as [`default_dir`].
    pub dir: PathBuf,
    /// Two nodes that run pods; otherwise an API server alone.
    pub nodes: bool,
    /// The controller manager; always there with nodes.
    pub controllers: bool,
    /// Kubernetes' own gang scheduling.
    pub gang: bool,
    /// More image archives for the nodes.
    pub images: Vec<PathBuf>,
}

/// The processes of a cluster, and what the kernel does not clean up with them.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Owner {
    /// `unshare`, which waits for the first process.
    outer: Process,
    /// The first process in the namespaces.
    init: Process,
    slot: Option<u8>,
    /// Whether it ends with the process that started it.
    tied: bool,
}

impl Owner {
    fn read(layout: &Layout) -> Option<Self> {
        serde_json::from_slice(&fs::read(layout.owner()).ok()?).ok()
    }

    fn write(&self, layout: &Layout) -> Result<()> {
        fs::write(layout.owner(), serde_json::to_vec(self)?)?;
        Ok(())
    }
}

/// The default directory of a cluster.
pub fn default_dir(name: &str) -> Result<PathBuf> {
    Ok(cache::root()?.join("clusters").join(name))
}

/// The cluster in `dir`, if it runs and is not tied to the process that started it.
pub fn running(dir: &Path) -> Option<Cluster> {
    let owner = Owner::read(&Layout::new(dir))?;
    if owner.tied || !owner.init.is_alive() {
        return None;
    }
    Cluster::open(dir).ok()
}

/// The first process of the cluster in `dir`.
pub(super) fn first_process(dir: &Path) -> Option<Process> {
    Owner::read(&Layout::new(dir)).map(|owner| owner.init)
}

/// Starts a cluster that outlives this process.
pub fn up(options: &Options) -> Result<Cluster> {
    start(options, false).map(|(cluster, _)| cluster)
}

/// A cluster that ends with this value, or with this process if that ends first.
#[derive(Debug)]
pub struct TiedCluster {
    cluster: Cluster,
    /// The supervisor ends when this is closed.
    _tie: Option<ChildStdin>,
}

impl TiedCluster {
    /// Starts it.
    pub fn up(options: &Options) -> Result<Self> {
        let (cluster, tie) = start(options, true)?;
        Ok(Self { cluster, _tie: tie })
    }

    /// The cluster.
    pub fn cluster(&self) -> &Cluster {
        &self.cluster
    }
}

impl Drop for TiedCluster {
    fn drop(&mut self) {
        if let Err(error) = down(self.cluster.dir()) {
            eprintln!("{error:#}");
        }
    }
}

fn start(options: &Options, tied: bool) -> Result<(Cluster, Option<ChildStdin>)> {
    let dir = std::path::absolute(&options.dir)?;
    preflight::check_user(options.nodes)?;
    check_dir(&dir, options.nodes)?;
    let layout = Layout::new(&dir);
    let lock = lock(&layout)?;
    if Owner::read(&layout).is_some_and(|owner| owner.init.is_alive()) {
        bail!(
            "there is a cluster in {} already; end it with `testcluster down`",
            dir.display()
        );
    }
    sweep_abandoned(&dir);
    clear(&layout)?;
    fs::create_dir_all(&dir).with_context(|| format!("cannot make the directory {}", dir.display()))?;
    fs::write(layout.path(MARKER), "")?;
    preflight::check(options.nodes, &dir)?;
    let programs = Programs::ensure(options.nodes)?;
    let mut images = Vec::new();
    if options.nodes {
        images.extend([images::pause()?, images::busybox()?]);
        images.extend(options.images.iter().cloned());
    }
    let result = launch(&layout, options.nodes, tied).and_then(|(mut owner, tie)| {
        let ports = if options.nodes {
            owner.slot = Some(network::take_slot(owner.init.pid())?.slot());
            owner.write(&layout)?;
            Ports::OWN_NETWORK
        } else {
            free_ports()?
        };
        let plan = Plan {
            dir: dir.clone(),
            programs,
            slot: owner.slot,
            ports,
            controllers: options.controllers,
            gang: options.gang,
            images,
        };
        // An earlier cluster in this slot may have been killed.
        plan.addresses().map_or(Ok(()), cgroups::sweep)?;
        State::new(&plan).write(&layout)?;
        boot(&layout, plan)?;
        Ok((Cluster::open(&dir)?, tie))
    });
    if result.is_err() {
        let logs = keep_logs(&layout);
        end(&layout)?;
        return result.with_context(|| format!("the logs are in {}", logs.display()));
    }
    drop(lock);
    result
}

/// Keeps the logs of a cluster that did not start.
fn keep_logs(layout: &Layout) -> PathBuf {
    let kept = layout.lock().with_extension("failed-logs");
    let _ = fs::remove_dir_all(&kept);
    let _ = fs::rename(layout.path("logs"), &kept);
    kept
}

const MARKER: &str = "this-is-a-trainyard-test-cluster";

fn check_dir(dir: &Path, nodes: bool) -> Result<()> {
    // The longest socket below it is node-a/containerd.sock.ttrpc, and the kernel allows 107
    // characters.
    if dir.as_os_str().len() > 75 {
        bail!(
            "the path {} is too long for sockets below it; choose a shorter one with --dir",
            dir.display()
        );
    }
    for hidden in ["/run", "/var/run", "/var/lib", "/var/log", "/proc", "/sys"] {
        if nodes && (dir.starts_with(hidden) || cache::root()?.starts_with(hidden)) {
            bail!(
                "the cluster has its own {hidden}, so its files can't be there: choose --dir and TRAINYARD_CACHE elsewhere"
            );
        }
    }
    Ok(())
}

fn lock(layout: &Layout) -> Result<File> {
    if let Some(lock) = cache::try_lock(&layout.lock())? {
        return Ok(lock);
    }
    eprintln!("waiting for another testcluster that works on the same cluster");
    cache::lock(&layout.lock())
}

/// Starts the first process in its namespaces.
fn launch(layout: &Layout, nodes: bool, tied: bool) -> Result<(Owner, Option<ChildStdin>)> {
    fs::create_dir_all(layout.path("logs"))?;
    let log = File::create(layout.log("supervisor"))?;
    let mut command = in_namespaces(nodes);
    command
        .arg(std::env::current_exe()?)
        .arg("init")
        .arg("--dir")
        .arg(layout.path(""));
    if tied {
        command.arg("--tied").stdin(Stdio::piped());
    }
    let mut outer = command
        .stdout(log.try_clone()?)
        .stderr(log)
        .spawn()
        .context("cannot start unshare (util-linux)")?;
    let owner = match await_first_process(layout, &mut outer, tied) {
        Ok(owner) => owner,
        Err(error) => {
            // The first process ends with it.
            let _ = outer.kill();
            let _ = outer.wait();
            return Err(error);
        }
    };
    let tie = outer.stdin.take();
    // Reaps it, so that it does not stay as a zombie.
    thread::spawn(move || outer.wait());
    Ok((owner, tie))
}

fn await_first_process(layout: &Layout, outer: &mut Child, tied: bool) -> Result<Owner> {
    let mut init = None;
    wait_until("the first process runs", || {
        init = Process::first_child(outer.id());
        if outer.try_wait()?.is_some() {
            bail!(
                "it ended: {}",
                tail(&fs::read_to_string(layout.log("supervisor"))?, 5)
            );
        }
        Ok(init.is_some() && layout.control().exists())
    })?;
    let (Some(outer), Some(init)) = (Process::find(outer.id()), init) else {
        bail!("the first process ended at once");
    };
    let owner = Owner {
        outer,
        init,
        slot: None,
        tied,
    };
    owner.write(layout)?;
    Ok(owner)
}

fn free_ports() -> Result<Ports> {
    // All are bound at the same time, so that they differ.
    let listeners: Vec<_> = (0..3)
        .map(|_| TcpListener::bind("127.0.0.1:0"))
        .collect::<Result<_, _>>()?;
    let ports: Vec<_> = listeners
        .iter()
        .map(|l| Ok(l.local_addr()?.port()))
        .collect::<Result<_>>()?;
    Ok(Ports {
        apiserver: ports[0],
        etcd: ports[1],
        peer: ports[2],
    })
}

/// Has the supervisor start everything, and prints the steps.
fn boot(layout: &Layout, plan: Plan) -> Result<()> {
    let mut said = 0;
    let mut status = ask(&layout.control(), &Request::Boot(Box::new(plan)))?;
    let mut wait = Wait::new("the cluster starts");
    loop {
        for step in status.steps.iter().skip(said) {
            eprintln!("{step}");
        }
        said = status.steps.len();
        match status.phase {
            Phase::Ready => return Ok(()),
            Phase::Failed(reason) => bail!(reason),
            _ if !wait.has_patience(status.steps.join(", ")) => bail!("{wait}"),
            _ => thread::sleep(LOOK_INTERVAL),
        }
        status = ask(&layout.control(), &Request::Status)?;
    }
}

/// Stops the cluster in `dir`, if there is one, and removes everything of it.
pub fn down(dir: &Path) -> Result<()> {
    let layout = Layout::new(&std::path::absolute(dir)?);
    let _lock = lock(&layout)?;
    end(&layout)?;
    let _ = fs::remove_file(layout.lock());
    Ok(())
}

fn end(layout: &Layout) -> Result<()> {
    if let Some(owner) = Owner::read(layout) {
        let was_alive = owner.init.is_alive();
        owner.init.kill()?;
        owner.outer.kill()?;
        if let Some(addresses) = owner.slot.map(Addresses::new) {
            if was_alive {
                network::release_slot(addresses)?;
            }
            // Another cluster may have the slot of one that died long ago.
            if !network::is_taken(addresses) {
                cgroups::sweep(addresses)?;
            }
        }
    }
    clear(layout)
}

/// Removes the directory of a cluster that does not run.
fn clear(layout: &Layout) -> Result<()> {
    let dir = layout.path("");
    let empty = fs::read_dir(&dir).map_or(true, |mut items| items.next().is_none());
    if !empty && !layout.path(MARKER).exists() {
        bail!(
            "{} has files that are not a test cluster's; choose another --dir",
            dir.display()
        );
    }
    match fs::remove_dir_all(&dir) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("cannot remove {}", dir.display()))
        }
        _ => Ok(()),
    }
}

/// Removes the remains of clusters beside `dir` whose processes are gone.
fn sweep_abandoned(dir: &Path) {
    let Some(Ok(items)) = dir.parent().map(fs::read_dir) else {
        return;
    };
    for path in items.flatten().map(|item| item.path()) {
        let layout = Layout::new(&path);
        if path == dir || !layout.path(MARKER).exists() {
            continue;
        }
        // Locked: it is being started or stopped.
        let Ok(Some(_lock)) = cache::try_lock(&layout.lock()) else {
            continue;
        };
        if Owner::read(&layout).is_some_and(|owner| owner.init.is_alive()) {
            continue;
        }
        match end(&layout) {
            Ok(()) => {
                let _ = fs::remove_file(layout.lock());
            }
            Err(error) => eprintln!("the remains of {} stay: {error:#}", path.display()),
        }
    }
}
