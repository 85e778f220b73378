//! Starting a container, in a thread that then waits for its end.

use std::io;
use std::path::PathBuf;
use std::process::Child;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use nix::sched::{CloneFlags, setns, unshare};
use tokio::sync::{oneshot, watch};

use super::leftovers::Leftovers;
use super::{Namespaces, STACK_BYTES, Sandbox, root};
use crate::host::cgroup::OomCounter;
use crate::host::{Isolation, remove_tree};
use crate::node::runtime::container_init::{self, InitSpec};
use crate::node::runtime::log::{self, Log};
use crate::node::runtime::running::{PidGuard, first_process, remove_when_ended, when_ended};
use crate::node::runtime::{Container, ContainerSpec, Error, Exit};

/// How many containers were started.
static STARTS: AtomicU64 = AtomicU64::new(0);

struct Launch {
    isolation: Isolation,
    namespaces: Arc<Namespaces>,
    own: PathBuf,
    scratch: PathBuf,
    groups: Vec<PathBuf>,
    spec: Arc<ContainerSpec>,
    stdout: io::PipeWriter,
    stderr: io::PipeWriter,
}

pub(super) async fn start(sandbox: &Sandbox, spec: ContainerSpec) -> Result<Container, Error> {
    let spec = Arc::new(spec);
    let number = STARTS.fetch_add(1, Ordering::Relaxed);
    // The last run of the same container may still be being removed.
    let id = format!("{}-{number}", spec.id);
    let mut group = sandbox.groups.group(&id, spec.limits)?;
    let groups = group.members().to_vec();
    let oom_counter = group.take_oom_counter();
    let (output, stdout, stderr) =
        log::pipes().map_err(Error::system("connect the output of a container"))?;
    let launch = Launch {
        isolation: sandbox.isolation,
        namespaces: sandbox.namespaces.clone(),
        own: sandbox.own.clone(),
        scratch: sandbox.scratch.join(id),
        groups: groups.clone(),
        spec: spec.clone(),
        stdout,
        stderr,
    };
    let (started, is_started) = oneshot::channel();
    let (ended, exit) = watch::channel(None);
    remove_when_ended(exit.clone(), group);
    // Not by the thread that waits for it: that one is in the mount namespace of the container,
    // where files of the user's are below this directory.
    let scratch = launch.scratch.clone();
    when_ended(exit.clone(), move || remove_tree(&scratch));
    let pid_guard = PidGuard::default();
    let shared = pid_guard.clone();
    thread::Builder::new()
        .name("container".to_owned())
        .stack_size(STACK_BYTES)
        .spawn(move || run(launch, oom_counter, started, &ended, &shared))
        .map_err(Error::system("start a thread"))?;
    let pid = first_process(is_started).await?;
    let log = Log::collect(&spec.log, output)?;
    Ok(Container {
        pid,
        exit,
        log,
        spec,
        pid_guard,
        groups,
        isolated: true,
    })
}

/// The life of the thread.
fn run(
    launch: Launch,
    oom_counter: OomCounter,
    started: oneshot::Sender<Result<u32, Error>>,
    ended: &watch::Sender<Option<Exit>>,
    pid_guard: &PidGuard,
) {
    match launch.perform() {
        Err(error) => drop(started.send(Err(error))),
        Ok((child, leftovers)) => {
            drop(started.send(Ok(child.id())));
            let exit = pid_guard.outlive(child, || oom_counter.out_of_memory());
            // Of a process namespace of its own nothing is left.
            leftovers.iter().for_each(Leftovers::end);
            ended.send_replace(exit);
        }
    }
}

impl Launch {
    fn perform(self) -> Result<(Child, Option<Leftovers>), Error> {
        let what = "enter the namespaces of the pod";
        if let Some(network) = &self.namespaces.network {
            setns(network, CloneFlags::CLONE_NEWNET).map_err(Error::system(what))?;
        }
        setns(&self.namespaces.names, CloneFlags::CLONE_NEWUTS).map_err(Error::system(what))?;
        setns(&self.namespaces.shared_memory, CloneFlags::CLONE_NEWIPC).map_err(Error::system(what))?;
        let what = "make the namespaces of a container";
        unshare(CloneFlags::CLONE_NEWNS).map_err(Error::system(what))?;
        let leftovers = if let Some(shared) = &self.namespaces.processes {
            setns(&shared.namespace, CloneFlags::CLONE_NEWPID).map_err(Error::system(what))?;
            Some(Leftovers::here().map_err(Error::system(what))?)
        } else {
            unshare(CloneFlags::CLONE_NEWPID).map_err(Error::system(what))?;
            None
        };
        let root = self.scratch.join("root");
        root::assemble(&self.spec, self.isolation, &self.own, &self.scratch, &root)?;
        let init_spec = InitSpec::new(&self.spec, self.isolation, root, self.groups);
        let child = container_init::start("container", &init_spec, self.stdout, self.stderr)?;
        Ok((child, leftovers))
    }
}
