//! Processes that this one has started, and those that were left to it.
//!
//! The first process of a container inherits all orphans and must reap them, or they stay as
//! zombies. A wait for any child may reap one that another thread waits for. So all children are
//! reaped in one place, which passes on the exit codes.

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

#[derive(Debug)]
pub struct Children {
    awaited: Mutex<HashMap<Pid, UnixStream>>,
    /// The limit of open files that this process was started with. Its children get it.
    open_files: Rlimit,
}

/// A process that was started.
#[derive(Debug)]
pub struct Started {
    /// Its id, which is not reused before its end was read.
    pub pid: Pid,
    /// Its pipes. Use [`Self::end`] to wait for it.
    pub child: Child,
    /// Its exit code, when it has ended.
    pub end: End,
}

/// The future exit code of a process. It can be polled.
#[derive(Debug)]
pub struct End(UnixStream);

impl Children {
    /// Makes this process inherit orphans.
    pub fn new() -> io::Result<Self> {
        // The first process of a container inherits orphans anyway; another one has to ask for it.
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
            // If that fails, fewer commands run at once.
            let _ = setrlimit(Resource::Nofile, raised);
        }
    }

    /// Starts a process.
    pub fn start(&self, command: &mut Command) -> io::Result<Started> {
        let (told, end) = UnixStream::pair()?;
        end.set_nonblocking(true)?;
        // Held until the process is registered: it may end before this function. It also keeps
        // `reap` from a child that could not execute the program, which the standard library reaps
        // itself.
        let mut awaited = self.awaited.lock();
        let child = command.spawn()?;
        let pid = Pid::from_child(&child);
        // Some programs are slow with a high limit. It can't be set in the child itself; a child
        // that has ended does not matter.
        let _ = prlimit(Some(pid), Resource::Nofile, self.open_files);
        awaited.insert(pid, told);
        Ok(Started {
            pid,
            child,
            end: End(end),
        })
    }

    /// Reaps all children that have ended. Must be called after each SIGCHLD.
    pub fn reap(&self) {
        let mut awaited = self.awaited.lock();
        while let Ok(Some((pid, status))) = wait(WaitOptions::NOHANG) {
            if let Some(mut told) = awaited.remove(&pid) {
                // The receiver may be gone.
                let _ = told.write_all(&[code(status)]);
            }
        }
    }
}

impl End {
    /// The exit code, as in a shell, once the process has ended. It is returned once.
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
