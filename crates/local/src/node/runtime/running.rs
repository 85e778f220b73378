//! Processes that run, and waiting for their end.

use std::process::{Child, ChildStderr, ChildStdin, ChildStdout};
use std::sync::Arc;

use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{Id, WaitPidFlag, waitid};
use nix::unistd::Pid;
use parking_lot::Mutex;
use pty_process::blocking::Pty;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::{oneshot, watch};

use super::{Error, Exit, Terminal};
use crate::host::cgroup::Group;

/// The number of a container's first process, as the thread that starts it tells it.
pub(super) async fn first_process(started: oneshot::Receiver<Result<u32, Error>>) -> Result<u32, Error> {
    started.await.map_err(|_| Error::System {
        what: "start a container".to_owned(),
        source: std::io::ErrorKind::Interrupted.into(),
    })?
}

/// Clears away, in a thread that may wait, what a container needed, when it has ended or was never
/// started.
pub(super) fn when_ended(mut exit: watch::Receiver<Option<Exit>>, clear: impl FnOnce() + Send + 'static) {
    tokio::spawn(async move {
        // That nobody is left to say it means that it was never started.
        drop(exit.wait_for(Option::is_some).await);
        drop(tokio::task::spawn_blocking(clear));
    });
}

/// Removes a container's control group when the container has ended. The thread that waits for the
/// container can't do it: that thread sees other files by then.
pub(super) fn remove_when_ended(exit: watch::Receiver<Option<Exit>>, group: Group) {
    if !group.is_empty() {
        when_ended(exit, move || drop(group));
    }
}

/// Sends signals to a process only until it is reaped: its number may be another process'
/// afterwards.
#[derive(Clone, Debug, Default)]
pub(crate) struct PidGuard(Arc<Mutex<Ended>>);

#[derive(Debug, Default)]
struct Ended(bool);

impl PidGuard {
    /// Sends a signal, unless the process has ended.
    pub(crate) fn signal(&self, pid: u32, signal: Signal) {
        let ended = self.0.lock();
        if !ended.0 {
            let _ = kill(Pid::from_raw(pid.cast_signed()), signal);
        }
    }

    /// Waits for the end. `out_of_memory` is asked then.
    pub(crate) fn outlive(&self, mut child: Child, out_of_memory: impl FnOnce() -> bool) -> Option<Exit> {
        let pid = Pid::from_raw(child.id().cast_signed());
        // The number stays the child's own until it is reaped, which nobody may send a signal to
        // after that.
        let wait = || waitid(Id::Pid(pid), WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT);
        while wait() == Err(Errno::EINTR) {}
        self.0.lock().0 = true;
        let out_of_memory = out_of_memory();
        child.wait().ok().map(|status| Exit::of(status, out_of_memory))
    }
}

/// The ends of a process' streams.
pub(crate) type Streams = (Option<ChildStdin>, Option<ChildStdout>, Option<ChildStderr>);

/// A command that was started in a container.
#[derive(Debug)]
pub struct Running {
    /// Its input.
    pub stdin: Option<tokio::process::ChildStdin>,
    /// Its output.
    pub stdout: Option<tokio::process::ChildStdout>,
    /// Its errors.
    pub stderr: Option<tokio::process::ChildStderr>,
    /// Its terminal, in place of all of these.
    pub terminal: Option<Terminal>,
    pid: u32,
    exit: watch::Receiver<Option<Exit>>,
    pid_guard: PidGuard,
}

/// What a command came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExecOutput {
    /// How it ended.
    pub exit: Exit,
    /// What it wrote.
    pub stdout: Vec<u8>,
    /// What it wrote as errors.
    pub stderr: Vec<u8>,
}

impl Running {
    pub(crate) fn new(
        pid: u32,
        (stdin, stdout, stderr): Streams,
        terminal: Option<Pty>,
        exit: watch::Receiver<Option<Exit>>,
        pid_guard: PidGuard,
    ) -> Result<Self, Error> {
        let what = "connect to a command in a container";
        Ok(Self {
            stdin: stdin
                .map(tokio::process::ChildStdin::from_std)
                .transpose()
                .map_err(Error::system(what))?,
            stdout: stdout
                .map(tokio::process::ChildStdout::from_std)
                .transpose()
                .map_err(Error::system(what))?,
            stderr: stderr
                .map(tokio::process::ChildStderr::from_std)
                .transpose()
                .map_err(Error::system(what))?,
            terminal: terminal
                .map(Terminal::new)
                .transpose()
                .map_err(Error::system(what))?,
            pid,
            exit,
            pid_guard,
        })
    }

    /// Waits for its end.
    pub async fn wait(&mut self) -> Exit {
        let ended = self
            .exit
            .wait_for(Option::is_some)
            .await
            .ok()
            .and_then(|exit| *exit);
        ended.unwrap_or(Exit::KILLED)
    }

    /// Its end, apart from its streams. It is ended when this is dropped.
    pub fn end(mut self) -> impl Future<Output = Exit> + Send + use<> {
        let guard = KillOnDrop(self.pid_guard.clone(), self.pid);
        async move {
            let exit = self.wait().await;
            drop(guard);
            exit
        }
    }

    /// Gives it an input and waits for its end. It is ended when this is dropped.
    pub async fn output(mut self, input: &[u8]) -> Result<ExecOutput, Error> {
        let guard = KillOnDrop(self.pid_guard.clone(), self.pid);
        let (stdin, stdout, stderr) = (self.stdin.take(), self.stdout.take(), self.stderr.take());
        let write = async {
            if let Some(mut stdin) = stdin {
                // A command need not read its input.
                drop(stdin.write_all(input).await);
            }
        };
        let read_stdout = async {
            let mut bytes = Vec::new();
            match stdout {
                Some(mut stdout) => stdout.read_to_end(&mut bytes).await.map(|_| bytes),
                None => Ok(bytes),
            }
        };
        let read_stderr = async {
            let mut bytes = Vec::new();
            match stderr {
                Some(mut stderr) => stderr.read_to_end(&mut bytes).await.map(|_| bytes),
                None => Ok(bytes),
            }
        };
        let ((), stdout, stderr, exit) = tokio::join!(write, read_stdout, read_stderr, self.wait());
        drop(guard);
        let what = "read the output of a command";
        Ok(ExecOutput {
            exit,
            stdout: stdout.map_err(Error::system(what))?,
            stderr: stderr.map_err(Error::system(what))?,
        })
    }
}

struct KillOnDrop(PidGuard, u32);

impl Drop for KillOnDrop {
    fn drop(&mut self) {
        self.0.signal(self.1, Signal::SIGKILL);
    }
}
