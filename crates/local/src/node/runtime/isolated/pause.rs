//! Process 1 of a shared process namespace. It runs as long as the pod and reaps orphans.

use std::fs::File;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};
use std::thread;

use nix::errno::Errno;
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use nix::sys::prctl;
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};

use super::{STACK_BYTES, stage};
use crate::node::runtime::Error;
use crate::yard::{self, STAGE, namespace, this_program};

#[derive(Debug)]
pub(super) struct Pause {
    process: Option<Child>,
    pub(super) namespace: File,
}

impl Pause {
    /// Starts it. Later children of this thread are in its namespace. `place` is its empty root
    /// directory.
    pub(super) fn start(place: &Path) -> Result<Self, Error> {
        let what = "make a process namespace for a pod";
        std::fs::create_dir_all(place).map_err(Error::system(what))?;
        unshare(CloneFlags::CLONE_NEWPID).map_err(Error::system(what))?;
        let process = Command::new(this_program())
            .arg0("/pause")
            .args([STAGE, "pause"])
            .current_dir(place)
            .env_clear()
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map_err(Error::system(what))?;
        let namespace = File::open(format!("/proc/{}/ns/pid", process.id())).map_err(Error::system(what))?;
        Ok(Self {
            process: Some(process),
            namespace,
        })
    }
}

impl Drop for Pause {
    /// The kernel kills all processes of the namespace.
    fn drop(&mut self) {
        let Some(mut process) = self.process.take() else {
            return;
        };
        drop(process.kill());
        // Waits in a thread: it ends only when all other processes were reaped.
        drop(
            thread::Builder::new()
                .stack_size(STACK_BYTES)
                .spawn(move || process.wait()),
        );
    }
}

/// Runs in the process itself.
pub(crate) fn run() -> Result<ExitCode, yard::Error> {
    let failed = |error: Errno| yard::Error::System {
        what: "hold the processes of a pod",
        source: error.into(),
    };
    let mask: SigSet = [Signal::SIGCHLD].into_iter().collect();
    mask.thread_block().map_err(failed)?;
    let signals = SignalFd::with_flags(&mask, SfdFlags::SFD_CLOEXEC).map_err(failed)?;
    prctl::set_name(c"pause").map_err(failed)?;
    let place = std::env::current_dir().map_err(yard::Error::io("find the place of a pod"))?;
    // Containers can see its root through /proc, so it is empty.
    unshare(CloneFlags::CLONE_NEWNS).map_err(failed)?;
    namespace::make_private()?;
    let options = Some("mode=755,size=4096");
    mount(Some("tmpfs"), &place, Some("tmpfs"), MsFlags::empty(), options).map_err(failed)?;
    stage::enter(&place).map_err(failed)?;
    loop {
        bury();
        match signals.read_signal() {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(error) => return Err(failed(error)),
        }
    }
}

fn bury() {
    let next = || waitpid(None, Some(WaitPidFlag::WNOHANG));
    while !matches!(next(), Ok(WaitStatus::StillAlive) | Err(Errno::ECHILD)) {}
}
