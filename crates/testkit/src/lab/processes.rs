//! Faults of a pod from outside: its processes are killed or stopped, its network is disconnected.
//!
//! Both back ends run pods on this machine, each container in a process namespace of its own, and
//! each pod with a network of its own. The number of a namespace is the same seen from inside and
//! from here, so that it identifies the pod.

#![allow(
    clippy::unwrap_used,
    reason = "this is the vocabulary of tests, which fail by panicking"
)]

use std::fs;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use super::Lab;
use crate::command::run;

/// Processes that were stopped, until this is dropped.
pub struct StoppedProcesses {
    /// When, as [`uptime`] has it.
    pub at: Duration,
    processes: Vec<Process>,
}

impl Drop for StoppedProcesses {
    fn drop(&mut self) {
        for process in &self.processes {
            process.signal(Signal::CONT);
        }
    }
}

/// A process of a container. Its id is not reused while this exists.
struct Process {
    pid: Pid,
    handle: OwnedFd,
}

impl Process {
    fn signal(&self, signal: Signal) {
        // It may have ended.
        let _ = pidfd_send_signal(&self.handle, signal);
    }

    fn status(&self, field: &str) -> Option<String> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid.as_raw_pid())).ok()?;
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
        Some(line?.trim().to_owned())
    }

    /// Whether the kernel ends all others of the container with it.
    fn is_first(&self) -> bool {
        self.status("NSpid")
            .is_some_and(|pids| pids.split_whitespace().next_back() == Some("1"))
    }

    /// The interfaces of its network, but for the one that leads to itself.
    fn interfaces(&self) -> Vec<String> {
        let devices = fs::read_to_string(format!("/proc/{}/net/dev", self.pid.as_raw_pid())).unwrap();
        let names = devices.lines().filter_map(|line| line.split_once(':'));
        names
            .map(|(name, _)| name.trim().to_owned())
            .filter(|name| name != "lo")
            .collect()
    }

    fn is_stopped(&self) -> bool {
        self.status("State")
            .is_none_or(|state| state.starts_with(['T', 'Z', 'X']))
    }
}

impl Lab {
    /// Kills the first process of a pod's container, and with it all others. Returns when that was,
    /// as [`uptime`] has it.
    ///
    /// # Panics
    /// If there is none.
    pub fn kill(&self, pod: &str) -> Duration {
        let all = self.processes(pod);
        let first = all.iter().find(|process| process.is_first()).unwrap();
        let at = uptime();
        pidfd_send_signal(&first.handle, Signal::KILL).unwrap();
        at
    }

    /// Stops all processes of a pod's container; its connections stay open.
    pub fn stop(&self, pod: &str) -> StoppedProcesses {
        let namespace = self.process_namespace(pod);
        let mut stopped = StoppedProcesses {
            at: uptime(),
            processes: Vec::new(),
        };
        self.until("all processes are stopped", || {
            // Stopped processes start no others.
            stopped.processes = processes_in(&namespace);
            stopped
                .processes
                .iter()
                .for_each(|process| process.signal(Signal::STOP));
            if !stopped.processes.is_empty() && stopped.processes.iter().all(Process::is_stopped) {
                Ok(())
            } else {
                Err(format!("{} processes", stopped.processes.len()))
            }
        });
        stopped.at = uptime();
        stopped
    }

    /// Cuts a pod off from the network, for good: its processes go on, and nothing comes or goes
    /// any more, as when its node is lost. Returns when that was, as [`uptime`] has it.
    ///
    /// # Panics
    /// If the pod has no network of its own.
    pub fn disconnect(&self, pod: &str) -> Duration {
        let all = self.processes(pod);
        let first = all.iter().find(|process| process.is_first()).unwrap();
        let network = format!("/proc/{}/ns/net", first.pid.as_raw_pid());
        let own = fs::read_link("/proc/self/ns/net").unwrap();
        assert_ne!(fs::read_link(&network).unwrap(), own, "{pod}");
        let interfaces = first.interfaces();
        assert!(!interfaces.is_empty(), "{pod} has no network");
        // Before the commands, because a shell may notice the first of them.
        let at = uptime();
        for interface in interfaces {
            let mut down = Command::new("nsenter");
            down.arg(format!("--net={network}"));
            run(down.args(["ip", "link", "set", &interface, "down"])).unwrap();
        }
        at
    }

    fn processes(&self, pod: &str) -> Vec<Process> {
        processes_in(&self.process_namespace(pod))
    }

    /// The process namespace of a pod's container, as the kernel names it.
    ///
    /// # Panics
    /// If it is that of this process: then the container has none of its own.
    fn process_namespace(&self, pod: &str) -> String {
        let link = "/proc/self/ns/pid";
        let found = self.exec(pod, None, &["readlink", link], "").unwrap();
        let namespace = found.stdout.trim().to_owned();
        assert!(namespace.starts_with("pid:["), "{found:?}");
        assert_ne!(Path::new(&namespace), fs::read_link(link).unwrap(), "{pod}");
        namespace
    }
}

/// How long this machine has been up: a clock that pods can read, too.
///
/// # Panics
/// If there is none.
pub fn uptime() -> Duration {
    let uptime = fs::read_to_string("/proc/uptime").unwrap();
    let seconds = uptime.split_whitespace().next().unwrap();
    Duration::from_secs_f64(seconds.parse().unwrap())
}

fn processes_in(namespace: &str) -> Vec<Process> {
    let numbers = fs::read_dir("/proc").unwrap().filter_map(|item| {
        let name = item.ok()?.file_name();
        Pid::from_raw(name.to_str()?.parse().ok()?)
    });
    let in_it = |pid: &Pid| {
        let link = fs::read_link(format!("/proc/{}/ns/pid", pid.as_raw_pid()));
        link.is_ok_and(|link| link == Path::new(namespace))
    };
    let hold = |pid: Pid| {
        let handle = pidfd_open(pid, PidfdFlags::empty()).ok()?;
        // Checked again, because the id may have been reused before the handle was opened.
        in_it(&pid).then_some(Process { pid, handle })
    };
    numbers.filter(in_it).filter_map(hold).collect()
}
