//! Pods without namespaces, as plain processes.
//!
//! Each pod has a loopback address of its own and shares everything else with the machine. Every
//! process of a pod has a mark in its environment, by which all of them, orphans included, are
//! found at the end, or by the next run if this one was killed.

use std::fs;
use std::io::{self, Read};
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::{Child, ExitCode};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use nix::sys::signal::{Signal, kill, killpg};
#[cfg(target_os = "linux")]
use nix::unistd::geteuid;
use nix::unistd::{Pid, setsid};
use pty_process::blocking::Pty;
use tokio::sync::watch;

#[cfg(target_os = "linux")]
use super::capabilities::drop_capabilities;
use super::container_init::{self, InitSpec};
use super::exec_spawn::{self, Exec};
#[cfg(target_os = "linux")]
use super::isolated::become_user;
use super::loopback::{HeldAddress, Loopback};
use super::running::{PidGuard, Running, start_container};
use super::{Container, ContainerSpec, Error, SandboxSpec, User};
use crate::host::cgroup::{Joiner, RunGroup};
use crate::host::{Isolation, remove_tree};

/// The variable with the sandbox of a process.
const MARK: &str = "TRAINYARD_SANDBOX";

/// The file in the directory of a run whose pods are plain processes.
const RUN_MARK: &str = "plain";

/// The part of an environment that is searched.
const MAX_ENVIRONMENT_BYTES: usize = 256 * 1024;

const MAX_KILL_ROUNDS: u32 = 1000;

/// The runtime.
#[derive(Debug)]
pub struct Unisolated {
    state: PathBuf,
    loopback: Loopback,
    groups: Arc<RunGroup>,
    starts: Arc<AtomicU64>,
}

impl Unisolated {
    /// `state` is a directory of its own.
    pub fn new(state: &Path, groups: Arc<RunGroup>) -> Result<Self, Error> {
        fs::create_dir_all(state).map_err(Error::system(format!("make {}", state.display())))?;
        let run = state.parent().unwrap_or(state);
        mark_run(run).map_err(Error::system(format!("write to {}", run.display())))?;
        Ok(Self {
            state: state.to_owned(),
            loopback: Loopback::claim(),
            groups,
            starts: Arc::default(),
        })
    }

    pub fn sandbox(&self, spec: &SandboxSpec) -> Result<Sandbox, Error> {
        let scratch = self.state.join(&spec.id);
        fs::create_dir_all(&scratch).map_err(Error::system(format!("make {}", scratch.display())))?;
        let address = self.loopback.hold(spec.name.as_ref().unwrap_or(&spec.id))?;
        Ok(Sandbox {
            address,
            scratch,
            groups: self.groups.clone(),
            starts: self.starts.clone(),
        })
    }

    pub(crate) fn loopback(&self) -> &Loopback {
        &self.loopback
    }
}

#[derive(Debug)]
pub struct Sandbox {
    address: HeldAddress,
    scratch: PathBuf,
    groups: Arc<RunGroup>,
    starts: Arc<AtomicU64>,
}

impl Sandbox {
    /// The address of the pod.
    pub fn address(&self) -> Ipv4Addr {
        self.address.address()
    }

    pub async fn start(&self, mut spec: ContainerSpec) -> Result<Container, Error> {
        let place = self.scratch.join(&spec.id);
        spec.env.push((MARK.to_owned(), place.display().to_string()));
        let number = self.starts.fetch_add(1, Ordering::Relaxed);
        let group = self.groups.group(&format!("{}-{number}", spec.id), spec.limits)?;
        let groups = group.members().to_vec();
        let init_spec = InitSpec::new(&spec, Isolation::Plain, PathBuf::from("/"), groups);
        let launch = move |stdout, stderr| {
            let child = container_init::start("plain", &init_spec, stdout, stderr)?;
            // As in a container, nothing outlives the first process.
            Ok((child, move || end_marked(&place)))
        };
        start_container(Arc::new(spec), group, false, launch, || ()).await
    }
}

impl Drop for Sandbox {
    fn drop(&mut self) {
        end_marked(&self.scratch);
        remove_tree(&self.scratch);
    }
}

/// The first process, until it executes the command.
pub(crate) fn stage() -> Result<ExitCode, crate::yard::Error> {
    container_init::run(|init_spec| {
        setsid().map_err(Error::system("make a session"))?;
        let null = fs::File::open("/dev/null").map_err(Error::system("open /dev/null"))?;
        nix::unistd::dup2_stdin(&null).map_err(Error::system("close the input"))?;
        let directory = &init_spec.working_directory;
        std::env::set_current_dir(directory).map_err(Error::system(format!(
            "go to the working directory {}",
            directory.display()
        )))?;
        #[cfg(target_os = "linux")]
        {
            if geteuid().is_root() {
                drop_capabilities(&init_spec.user.dropped)?;
                // A root without the right to change groups can still run containers without
                // runAsUser.
                if init_spec.user.is_asked_for() {
                    become_user(&init_spec.user)?;
                }
            }
            // Last, because changing the user resets it.
            nix::sys::prctl::set_pdeathsig(Signal::SIGKILL)
                .map_err(Error::system("tie a process to its parent"))?;
        }
        container_init::program(&init_spec.command, &init_spec.env)
    })
}

pub(crate) fn exec(container: &Container, exec: &Exec) -> Result<Running, Error> {
    let joiner = Joiner::open(&container.groups)?;
    let (child, terminal) = spawn(container, exec)?;
    let mut child = joiner.join(child)?;
    let pid = child.id();
    let streams = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let (ended, exit) = watch::channel(None);
    let pid_guard = PidGuard::default();
    let shared = pid_guard.clone();
    thread::Builder::new()
        .name("exec".to_owned())
        .spawn(move || {
            ended.send_replace(shared.outlive(child, || false));
        })
        .map_err(Error::system("start a thread"))?;
    Running::new(pid, streams, terminal, exit, pid_guard)
}

/// Only root can change its user and has capabilities to drop.
fn spawn(container: &Container, exec: &Exec) -> Result<(Child, Option<Pty>), Error> {
    #[cfg(target_os = "linux")]
    if geteuid().is_root() {
        // In a thread, because dropped capabilities can't be regained.
        let limited = || {
            drop_capabilities(&container.spec.user.dropped)?;
            exec_spawn::spawn(&container.spec, &container.spec.user, exec, None)
        };
        let spawned = thread::scope(|scope| scope.spawn(limited).join());
        return spawned.unwrap_or_else(|_| {
            Err(Error::System {
                what: "execute a command beside a container".to_owned(),
                source: io::ErrorKind::Interrupted.into(),
            })
        });
    }
    exec_spawn::spawn(&container.spec, &User::default(), exec, None)
}

/// Kills a container's first process and its session; the rest is killed when it is reaped.
pub(crate) fn kill_tree(container: &Container) {
    container.pid_guard.signal(container.pid, Signal::SIGKILL);
    if container.exit().is_none() {
        let _ = killpg(Pid::from_raw(container.pid.cast_signed()), Signal::SIGKILL);
    }
}

/// Marks a run as one with processes outside of a yard.
fn mark_run(run: &Path) -> io::Result<()> {
    fs::File::create(run.join(RUN_MARK)).map(drop)
}

pub(super) fn is_marked_run(run: &Path) -> bool {
    run.join(RUN_MARK).exists()
}

/// Kills what is left of a run.
pub(crate) fn end_remains(state: &Path) {
    end_marked(state);
}

/// Kills every process that is marked with a path below a directory.
fn end_marked(directory: &Path) {
    // A process may fork while it is being killed, so several rounds must find none. Their number
    // is limited, because some processes can't be killed.
    let mut seen_none = 0;
    for _ in 0..MAX_KILL_ROUNDS {
        match marked(directory) {
            Some(marked) if marked.is_empty() => seen_none += 1,
            Some(marked) => {
                seen_none = 0;
                for pid in marked {
                    let _ = kill(pid, Signal::SIGKILL);
                }
            }
            None => seen_none = 0,
        }
        if seen_none == 2 {
            return;
        }
        thread::yield_now();
    }
}

/// The marked processes, of those whose environment this user may read; None if a process is just
/// executing a program.
fn marked(directory: &Path) -> Option<Vec<Pid>> {
    let own = std::process::id();
    let mut marked = Vec::new();
    let mut all_told = true;
    let mut buffer = vec![0; MAX_ENVIRONMENT_BYTES];
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let pid: Option<u32> = entry.file_name().to_str().and_then(|name| name.parse().ok());
        let Some(pid) = pid.filter(|pid| *pid != own) else {
            continue;
        };
        let Ok(environment) = environment(pid, &mut buffer) else {
            continue;
        };
        if is_marked(environment, directory) {
            marked.push(Pid::from_raw(pid.cast_signed()));
        } else if environment.is_empty() && is_between_programs(pid) {
            all_told = false;
        }
    }
    (all_told || !marked.is_empty()).then_some(marked)
}

/// The environment of a process, in one read: between two reads it could execute another program.
/// The beginning of a long one is enough.
fn environment(pid: u32, buffer: &mut [u8]) -> io::Result<&[u8]> {
    let length = fs::File::open(format!("/proc/{pid}/environ"))?.read(buffer)?;
    Ok(buffer.get(..length).unwrap_or_default())
}

fn is_marked(environment: &[u8], directory: &Path) -> bool {
    environment.split(|byte| *byte == 0).any(|variable| {
        let value = variable
            .strip_prefix(MARK.as_bytes())
            .and_then(|rest| rest.strip_prefix(b"="));
        value
            .and_then(|value| std::str::from_utf8(value).ok())
            .is_some_and(|value| Path::new(value).starts_with(directory))
    })
}

/// Whether a process with an empty environment is just executing another program, so that its mark
/// can't be read. A process that has cleared its environment still has an address range for it, of
/// length 0.
fn is_between_programs(pid: u32) -> bool {
    /// PF_KTHREAD.
    const KERNEL_THREAD: u64 = 0x0020_0000;
    let Ok(stat) = fs::read_to_string(format!("/proc/{pid}/stat")) else {
        return false;
    };
    // The name in parentheses may contain anything.
    let Some((_, fields)) = stat.rsplit_once(')') else {
        return false;
    };
    let field = |number: usize| fields.split_ascii_whitespace().nth(number - 3);
    let is_alive = field(3).is_some_and(|state| !matches!(state, "Z" | "X"));
    let flags = field(9).and_then(|flags| flags.parse::<u64>().ok());
    // The kernel sets the start of the code last. The process may also have got its environment
    // since it was read.
    let is_settled = field(26).is_some_and(|code| code != "0") && field(50) == field(51);
    is_alive && flags.is_some_and(|flags| flags & KERNEL_THREAD == 0) && !is_settled
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::os::unix::fs::PermissionsExt;
    use std::process::Command;

    use super::*;

    #[test]
    fn a_process_that_becomes_another_program_all_the_time_is_not_overlooked() {
        let place = tempfile::tempdir().unwrap();
        let restless = place.path().join("restless");
        fs::write(&restless, "#!/bin/sh\nexec \"$0\"\n").unwrap();
        fs::set_permissions(&restless, PermissionsExt::from_mode(0o755)).unwrap();
        let mut child = Command::new(&restless).env(MARK, place.path()).spawn().unwrap();
        let overlooked = (0..500)
            .filter(|_| marked(place.path()).is_some_and(|marked| marked.is_empty()))
            .count();
        end_marked(place.path());
        child.wait().unwrap();
        assert_eq!(overlooked, 0);
        assert_eq!(marked(place.path()), Some(Vec::new()));
    }

    #[test]
    fn a_process_without_environment_is_nobodys() {
        let place = tempfile::tempdir().unwrap();
        let mut child = Command::new("sleep").arg("2003").env_clear().spawn().unwrap();
        let told = (0..1000).any(|_| marked(place.path()) == Some(Vec::new()));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(told);
    }
}
