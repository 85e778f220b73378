//! exec in a container.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Child;
use std::thread;

use nix::sched::{CloneFlags, setns, unshare};
use nix::sys::signal::SigSet;
use pty_process::blocking::Pty;
use tokio::sync::{oneshot, watch};

use super::STACK_BYTES;
use crate::host::cgroup;
use crate::node::runtime::capabilities::drop_capabilities;
use crate::node::runtime::exec_spawn::{self, Exec};
use crate::node::runtime::running::{PidGuard, Running};
use crate::node::runtime::user_ns_entry::UserNsEntry;
use crate::node::runtime::{Container, Error, User};

const ENTER: &str = "enter the container; it may have ended";

/// Joins the container's namespaces in a thread and starts the command from there. If the container
/// has a user namespace of its own, which a thread can't join, this program is executed there
/// first.
pub async fn start(container: &Container, exec: Exec) -> Result<Running, Error> {
    let container = container.clone();
    let (started, is_started) = oneshot::channel();
    let (ended, exit) = watch::channel(None);
    let pid_guard = PidGuard::default();
    let shared = pid_guard.clone();
    thread::Builder::new()
        .name("exec".to_owned())
        .stack_size(STACK_BYTES)
        .spawn(move || match perform(&container, &exec) {
            Err(error) => drop(started.send(Err(error))),
            Ok((mut child, terminal)) => {
                let streams = (child.stdin.take(), child.stdout.take(), child.stderr.take());
                drop(started.send(Ok((child.id(), streams, terminal))));
                ended.send_replace(shared.outlive(child, || false));
            }
        })
        .map_err(Error::system("start a thread"))?;
    let gone = |_| Error::System {
        what: "execute a command in a container".to_owned(),
        source: std::io::ErrorKind::Interrupted.into(),
    };
    let (pid, streams, terminal) = is_started.await.map_err(gone)??;
    Running::new(pid, streams, terminal, exit, pid_guard)
}

fn perform(container: &Container, exec: &Exec) -> Result<(Child, Option<Pty>), Error> {
    // Before this thread changes its mount namespace.
    let joiner = cgroup::Joiner::open(&container.groups)?;
    // Blocked signals are inherited.
    SigSet::empty()
        .thread_set_mask()
        .map_err(Error::system("unblock signals"))?;
    let user = &container.spec.user;
    let entry = UserNsEntry::of(container.pid, user).map_err(Error::system(ENTER))?;
    join(container.pid)?;
    drop_capabilities(&user.dropped)?;
    // A terminal is opened in the container, too.
    let (child, terminal) = match entry {
        Some(entry) => exec_spawn::spawn(&container.spec, &User::default(), exec, Some(&entry))?,
        None => exec_spawn::spawn(&container.spec, user, exec, None)?,
    };
    Ok((joiner.join(child)?, terminal))
}

fn join(pid: u32) -> Result<(), Error> {
    let what = ENTER;
    let place = Path::new("/proc").join(pid.to_string()).join("ns");
    let open = |name: &str| File::open(place.join(name)).map_err(Error::system(what));
    // Only root may join the network namespace of the machine, even if it is the current one.
    let own_network = fs::metadata("/proc/thread-self/ns/net").map_err(Error::system(what))?;
    let network = open("net")?;
    let is_own = network
        .metadata()
        .is_ok_and(|found| found.ino() == own_network.ino());
    // All are opened first, because joining changes the files that this thread sees.
    let namespaces = [
        (Some(network).filter(|_| !is_own), CloneFlags::CLONE_NEWNET),
        (Some(open("uts")?), CloneFlags::CLONE_NEWUTS),
        (Some(open("ipc")?), CloneFlags::CLONE_NEWIPC),
        (Some(open("pid")?), CloneFlags::CLONE_NEWPID),
        (Some(open("mnt")?), CloneFlags::CLONE_NEWNS),
    ];
    // setns needs a thread that does not share its working directory.
    unshare(CloneFlags::CLONE_FS).map_err(Error::system(what))?;
    for (namespace, kind) in &namespaces {
        if let Some(namespace) = namespace {
            setns(namespace, *kind).map_err(Error::system(what))?;
        }
    }
    Ok(())
}
