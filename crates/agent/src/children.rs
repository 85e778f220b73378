//! Processes that this one has started, and those that were left to it.
//!
//! The first process of a container inherits every process there whose parent has ended, and must
//! take note of its end, or it stays as a zombie. Whoever waits for any child may get one that
//! somebody else waits for. So all waiting is done at one place, which tells those who have started
//! a process how it ended.

use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::process::{Child, Command};

use parking_lot::Mutex;
use rustix::process::{
    Pid, Resource, Rlimit, WaitOptions, WaitStatus, getpid, getrlimit, prlimit, set_child_subreaper,
    setrlimit, wait,
};

use crate::signals::SIGNAL_EXIT_BASE;

/// Enough for some thousands of commands at once.
const MAX_OPEN_FILES: u64 = 16 * 1024;

/// All processes that this one has to wait for.
#[derive(Debug)]
pub struct Children {
    awaited: Mutex<HashMap<Pid, UnixStream>>,
    /// The limit of open files that this process was started with. Its children get it.
    open_files: Rlimit,
}

/// A process that was started.
#[derive(Debug)]
pub struct Started {
    /// Its number, by which it is known until its end was told.
    pub pid: Pid,
    /// Its pipes. It must not be waited for: [`Self::end`] tells how it ended.
    pub child: Child,
    /// How it will have ended.
    pub end: End,
}

/// How a process will have ended. It can be polled.
#[derive(Debug)]
pub struct End(UnixStream);

impl Children {
    /// From now on, what others leave is inherited by this process.
    pub fn new() -> io::Result<Self> {
        // The first process of a container is that to all processes there; another one has to ask
        // for it.
        set_child_subreaper(Some(getpid()))?;
        Ok(Self {
            awaited: Mutex::default(),
            open_files: getrlimit(Resource::Nofile),
        })
    }

    /// Raises the limit of open files of this process, if it may. Processes that it starts keep
    /// theirs.
    pub fn raise_file_limit(&self) {
        let most = self
            .open_files
            .maximum
            .map_or(MAX_OPEN_FILES, |most| most.min(MAX_OPEN_FILES));
        if self.open_files.current.is_some_and(|current| current < most) {
            let raised = Rlimit {
                current: Some(most),
                ..self.open_files
            };
            // Where that is not possible, fewer commands run at once.
            let _ = setrlimit(Resource::Nofile, raised);
        }
    }

    /// Starts a process.
    pub fn start(&self, command: &mut Command) -> io::Result<Started> {
        let (told, end) = UnixStream::pair()?;
        end.set_nonblocking(true)?;
        // Held until the process is known: its end may be there before this function's. It also
        // keeps the one who reaps from a process that failed to become the program, for which the
        // standard library waits by itself.
        let mut awaited = self.awaited.lock();
        let child = command.spawn()?;
        let pid = Pid::from_child(&child);
        // Programs that count with few files are slow with a limit of many. There is no way to do
        // it in the new process itself, and if that has ended by now, it does not matter.
        let _ = prlimit(Some(pid), Resource::Nofile, self.open_files);
        awaited.insert(pid, told);
        Ok(Started {
            pid,
            child,
            end: End(end),
        })
    }

    /// Takes note of all that have ended. To be called whenever SIGCHLD has come.
    pub fn reap(&self) {
        let mut awaited = self.awaited.lock();
        while let Ok(Some((pid, status))) = wait(WaitOptions::NOHANG) {
            if let Some(mut told) = awaited.remove(&pid) {
                // Whoever has started it may not want to know any more.
                let _ = told.write_all(&[code(status)]);
            }
        }
    }
}

impl End {
    /// The exit code, as a shell would tell it, once the process has ended. It is told once.
    pub fn code(&mut self) -> Option<u8> {
        let mut code = [0];
        match self.0.read(&mut code) {
            Ok(1) => Some(code[0]),
            _ => None,
        }
    }
}

impl AsFd for End {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

fn code(status: WaitStatus) -> u8 {
    let signal = status
        .terminating_signal()
        .map(|signal| SIGNAL_EXIT_BASE + signal);
    let code = status.exit_status().or(signal).unwrap_or(i32::from(u8::MAX));
    u8::try_from(code).unwrap_or(u8::MAX)
}
