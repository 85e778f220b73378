//! Running a command in a container that runs already.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;

use nix::sched::{CloneFlags, setns, unshare};
use tokio::sync::{oneshot, watch};

use super::super::cgroup;
use super::super::first;
use super::super::running::{Alive, Running};
use super::super::{Container, Error};
use super::{STACK, rights};

/// Joins the container's namespaces in a thread and starts the command from there. Nothing of ours runs in the
/// container.
pub async fn start(container: &Container, command: Vec<String>) -> Result<Running, Error> {
    let container = container.clone();
    let (started, is_started) = oneshot::channel();
    let (ended, exit) = watch::channel(None);
    let alive = Alive::default();
    let shared = alive.clone();
    thread::Builder::new()
        .name("exec".to_owned())
        .stack_size(STACK)
        .spawn(move || match perform(&container, &command) {
            Err(error) => drop(started.send(Err(error))),
            Ok(mut child) => {
                let streams = (child.stdin.take(), child.stdout.take(), child.stderr.take());
                drop(started.send(Ok((child.id(), streams))));
                ended.send_replace(shared.outlive(child, || false));
            }
        })
        .map_err(Error::system("start a thread"))?;
    let gone = |_| Error::System {
        what: "execute a command in a container".to_owned(),
        source: std::io::ErrorKind::Interrupted.into(),
    };
    let (pid, streams) = is_started.await.map_err(gone)??;
    Running::new(pid, streams, exit, alive)
}

fn perform(container: &Container, command: &[String]) -> Result<Child, Error> {
    // Before this thread sees other files.
    let door = cgroup::Door::open(&container.groups)?;
    join(container.pid)?;
    door.admit(spawn(container, command)?)
}

fn join(pid: u32) -> Result<(), Error> {
    let what = "enter the container; it may have ended";
    let place = Path::new("/proc").join(pid.to_string()).join("ns");
    let open = |name: &str| File::open(place.join(name)).map_err(Error::system(what));
    // Entering the machine's own network is allowed to nobody but root, even for those who are there.
    let own_network = fs::metadata("/proc/thread-self/ns/net").map_err(Error::system(what))?;
    let network = open("net")?;
    let is_own = network
        .metadata()
        .is_ok_and(|found| found.ino() == own_network.ino());
    // All are opened first: afterwards this thread sees other files.
    let namespaces = [
        (Some(network).filter(|_| !is_own), CloneFlags::CLONE_NEWNET),
        (Some(open("uts")?), CloneFlags::CLONE_NEWUTS),
        (Some(open("ipc")?), CloneFlags::CLONE_NEWIPC),
        (Some(open("pid")?), CloneFlags::CLONE_NEWPID),
        (Some(open("mnt")?), CloneFlags::CLONE_NEWNS),
    ];
    // The mount namespace can be changed only by a thread that shares its directories with no other.
    unshare(CloneFlags::CLONE_FS).map_err(Error::system(what))?;
    for (namespace, kind) in &namespaces {
        if let Some(namespace) = namespace {
            setns(namespace, *kind).map_err(Error::system(what))?;
        }
    }
    rights::cut()
}

fn spawn(container: &Container, command: &[String]) -> Result<Child, Error> {
    let spec = &container.spec;
    let (name, arguments) = command
        .split_first()
        .ok_or_else(|| Error::Command("exec: there is no command".to_owned()))?;
    let program = first::program(command, &spec.env)?;
    let mut command = Command::new(program);
    command
        .arg0(name)
        .args(arguments)
        .env_clear()
        .envs(spec.env.iter().map(|(name, value)| (name, value)))
        .current_dir(&spec.working_directory)
        .process_group(0)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    if let Some(uid) = spec.user.uid.filter(|uid| *uid != 0) {
        command.uid(uid);
    }
    if let Some(gid) = spec.user.gid.filter(|gid| *gid != 0) {
        command.gid(gid);
    }
    command.spawn().map_err(Error::system(format!("execute {name}")))
}
