//! Processes that are known by more than their number, since numbers are given again.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use serde::{Deserialize, Serialize};

use crate::command::wait_until;

/// A process and when it started, in the kernel's ticks since boot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Process {
    pid: u32,
    started: u64,
}

impl Process {
    /// The running process with this number.
    pub fn find(pid: u32) -> Option<Self> {
        let stat = Stat::read(pid)?;
        (stat.state != 'Z').then_some(Self {
            pid,
            started: stat.started,
        })
    }

    /// The first child of a process.
    pub fn first_child(parent: u32) -> Option<Self> {
        numbers().into_iter().find_map(|pid| {
            let stat = Stat::read(pid)?;
            (stat.parent == parent && stat.state != 'Z').then_some(Self {
                pid,
                started: stat.started,
            })
        })
    }

    /// Its number.
    pub fn pid(self) -> u32 {
        self.pid
    }

    /// Whether it still runs.
    pub fn is_alive(self) -> bool {
        Self::find(self.pid) == Some(self)
    }

    /// Kills it and waits for its end. Another process that got its number is left alone.
    pub fn kill(self) -> Result<()> {
        let Some(pid) = i32::try_from(self.pid).ok().and_then(Pid::from_raw) else {
            bail!("{} is no process number", self.pid)
        };
        // From here on the handle means one process; whether it is ours is asked after it was
        // opened.
        let Ok(handle) = pidfd_open(pid, PidfdFlags::empty()) else {
            return Ok(());
        };
        if !self.is_alive() {
            return Ok(());
        }
        pidfd_send_signal(&handle, Signal::KILL)
            .with_context(|| format!("cannot end process {}", self.pid))?;
        wait_until(
            &format!("process {} has ended", self.pid),
            || Ok(!self.is_alive()),
        )
    }

    /// The process outside that has the number `inner` in the process namespace of this one.
    pub fn translate(self, inner: u32) -> Option<u32> {
        let space = |pid: u32| fs::read_link(format!("/proc/{pid}/ns/pid")).ok();
        let ours = space(self.pid)?;
        numbers()
            .into_iter()
            .find(|pid| space(*pid).as_ref() == Some(&ours) && inner_number(*pid) == Some(inner))
    }
}

fn inner_number(pid: u32) -> Option<u32> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("NSpid:"))?;
    line.split_whitespace().last()?.parse().ok()
}

fn numbers() -> Vec<u32> {
    let items = fs::read_dir(Path::new("/proc")).into_iter().flatten().flatten();
    items
        .filter_map(|item| item.file_name().to_str()?.parse().ok())
        .collect()
}

struct Stat {
    state: char,
    parent: u32,
    started: u64,
}

impl Stat {
    fn read(pid: u32) -> Option<Self> {
        Self::parse(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
    }

    fn parse(line: &str) -> Option<Self> {
        // The name is in parentheses and may contain anything, also parentheses.
        let fields: Vec<_> = line.rsplit_once(')')?.1.split_whitespace().collect();
        Some(Self {
            state: fields.first()?.chars().next()?,
            parent: fields.get(1)?.parse().ok()?,
            started: fields.get(19)?.parse().ok()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn odd_names_do_not_confuse() {
        let stat =
            Stat::parse("7 (a) R 1 (b)) S 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 99 22 23").unwrap();
        assert_eq!((stat.state, stat.parent, stat.started), ('S', 3, 99));
    }

    #[test]
    fn only_the_process_that_was_meant_is_killed() {
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let process = Process::find(child.id()).unwrap();
        let stranger = Process {
            started: process.started + 1,
            ..process
        };
        stranger.kill().unwrap();
        assert!(process.is_alive());
        process.kill().unwrap();
        assert!(!process.is_alive());
        child.wait().unwrap();
        process.kill().unwrap();
    }
}
