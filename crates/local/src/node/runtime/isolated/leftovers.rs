//! Processes that a container leaves in a shared process namespace.

use std::fs::{self, File};
use std::io;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::thread;

use nix::dir::Dir;
use nix::fcntl::{OFlag, openat, readlinkat};
use nix::sys::signal::{Signal, kill};
use nix::sys::stat::Mode;
use nix::unistd::Pid;

const MAX_KILL_ROUNDS: u32 = 1000;

/// Finds the processes of a container by their mount namespace.
#[derive(Debug)]
pub(super) struct Leftovers {
    processes: File,
    files: PathBuf,
}

impl Leftovers {
    /// For the container whose mount namespace this thread is in. Must be called before its root is
    /// changed, because /proc is needed.
    pub(super) fn here() -> io::Result<Self> {
        Ok(Self {
            processes: File::open("/proc")?,
            files: fs::read_link("/proc/thread-self/ns/mnt")?,
        })
    }

    /// Kills them all.
    pub(super) fn end(&self) {
        // A process may fork while it is being killed. The number of rounds is limited, because
        // some processes can't be killed.
        for _ in 0..MAX_KILL_ROUNDS {
            let found = self.find().unwrap_or_default();
            if found.is_empty() {
                return;
            }
            for process in found {
                let _ = kill(process, Signal::SIGKILL);
            }
            thread::yield_now();
        }
    }

    fn find(&self) -> nix::Result<Vec<Pid>> {
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        let mut processes = Dir::from_fd(openat(self.processes.as_fd(), ".", flags, Mode::empty())?)?;
        let numbers = processes.iter().flatten();
        let numbers = numbers.filter_map(|entry| entry.file_name().to_str().ok()?.parse::<i32>().ok());
        let is_here = |number: &i32| {
            let link = readlinkat(self.processes.as_fd(), &*format!("{number}/ns/mnt"));
            link.is_ok_and(|files| *files == *self.files)
        };
        Ok(numbers.filter(is_here).map(Pid::from_raw).collect())
    }
}
