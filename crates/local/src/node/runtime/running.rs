//! Starting containers and waiting for their end.

use std::io;
use std::process::{Child, ChildStderr, ChildStdin, ChildStdout};
use std::sync::Arc;
use std::thread;

use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{Id, WaitPidFlag, waitid};
use nix::unistd::Pid;
use parking_lot::Mutex;
use pty_process::blocking::Pty;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::{oneshot, watch};

use super::log::{self, Log};
use super::{Container, ContainerSpec, Error, Exit, Terminal};
use crate::host::cgroup::Group;

/// Enough for the threads of containers.
pub(super) const STACK_BYTES: usize = 512 * 1024;

/// Starts a container in a thread that then waits for its end.
///
/// `launch` starts the first process and returns what is to be done when it has ended. `clean_up`
/// runs after that, or if nothing was started, in another thread: that of the container may see
/// other files by then.
pub(super) async fn start_container<E: FnOnce()>(
    spec: Arc<ContainerSpec>,
    mut group: Group,
    isolated: bool,
    launch: impl FnOnce(io::PipeWriter, io::PipeWriter) -> Result<(Child, E), Error> + Send + 'static,
    clean_up: impl FnOnce() + Send + 'static,
) -> Result<Container, Error> {
    let (output, stdout, stderr) =
        log::pipes().map_err(Error::system("connect the output of a container"))?;
    let groups = group.members().to_vec();
    let oom_counter = group.take_oom_counter();
    let (started, is_started) = oneshot::channel();
    let (ended, exit) = watch::channel(None);
    when_ended(exit.clone(), move || {
        drop(group);
        clean_up();
    });
    let pid_guard = PidGuard::default();
    let guard = pid_guard.clone();
    // The child ends with the thread that started it, so that thread has to stay.
    thread::Builder::new()
        .name("container".to_owned())
        .stack_size(STACK_BYTES)
        .spawn(move || match launch(stdout, stderr) {
            Err(error) => drop(started.send(Err(error))),
            Ok((child, on_end)) => {
                drop(started.send(Ok(child.id())));
                let exit = guard.outlive(child, || oom_counter.out_of_memory());
                on_end();
                ended.send_replace(exit);
            }
        })
        .map_err(Error::system("start a thread"))?;
    let pid = is_started.await.map_err(|_| Error::System {
        what: "start a container".to_owned(),
        source: io::ErrorKind::Interrupted.into(),
    })??;
    let log = Log::collect(&spec.log, output)?;
    Ok(Container {
        pid,
        exit,
        log,
        spec,
        pid_guard,
        groups,
        isolated,
    })
}

/// Runs `work` in a thread that may block, when a container has ended or was never started.
fn when_ended(mut exit: watch::Receiver<Option<Exit>>, work: impl FnOnce() + Send + 'static) {
    tokio::spawn(async move {
        // An error means that it was never started.
        drop(exit.wait_for(Option::is_some).await);
        drop(tokio::task::spawn_blocking(work));
    });
}

/// Sends signals to a process only until it is reaped: its id may be reused afterwards.
#[derive(Clone, Debug, Default)]
pub(crate) struct PidGuard {
    has_ended: Arc<Mutex<bool>>,
}

impl PidGuard {
    /// Sends a signal, unless the process has ended.
    pub(crate) fn signal(&self, pid: u32, signal: Signal) {
        let has_ended = self.has_ended.lock();
        if !*has_ended {
            let _ = kill(Pid::from_raw(pid.cast_signed()), signal);
        }
    }

    /// Waits for the end, then calls `out_of_memory`.
    pub(crate) fn outlive(&self, mut child: Child, out_of_memory: impl FnOnce() -> bool) -> Option<Exit> {
        let pid = Pid::from_raw(child.id().cast_signed());
        // The process id is not reused before the child is reaped.
        let wait = || waitid(Id::Pid(pid), WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT);
        while wait() == Err(Errno::EINTR) {}
        *self.has_ended.lock() = true;
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
    /// Its terminal, instead of these.
    pub terminal: Option<Terminal>,
    pid: u32,
    exit: watch::Receiver<Option<Exit>>,
    pid_guard: PidGuard,
}

/// The result of a command.
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

    /// Waits for its end. It is killed when this is dropped.
    pub fn end(mut self) -> impl Future<Output = Exit> + Send + use<> {
        let guard = KillOnDrop(self.pid_guard.clone(), self.pid);
        async move {
            let exit = self.wait().await;
            drop(guard);
            exit
        }
    }

    /// Writes its input and waits for its end. It is killed when this is dropped.
    pub async fn output(mut self, input: &[u8]) -> Result<ExecOutput, Error> {
        let guard = KillOnDrop(self.pid_guard.clone(), self.pid);
        let (stdin, stdout, stderr) = (self.stdin.take(), self.stdout.take(), self.stderr.take());
        let write = async {
            if let Some(mut stdin) = stdin {
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
