//! The first process of a container, until it executes the container's command.
//!
//! It is this program, executed again. Its standard input is a socket: it reads its [`InitSpec`]
//! from the socket and writes an [`InitError`] to it. When the socket is closed without one, the
//! command runs.

use std::fs;
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};

use nix::sys::signal::SigSet;
use serde::{Deserialize, Serialize};

use super::{ContainerSpec, Error, User};
use crate::yard::{Isolation, STAGE, this_program};

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct InitSpec {
    /// The root file system.
    pub root: PathBuf,
    /// The program and its arguments.
    pub command: Vec<String>,
    /// Its whole environment.
    pub env: Vec<(String, String)>,
    /// Its working directory.
    pub working_directory: PathBuf,
    /// Its user.
    pub user: User,
    pub isolation: Isolation,
    /// The `cgroup.procs` files, to which the process writes 0.
    pub groups: Vec<PathBuf>,
}

impl InitSpec {
    pub(crate) fn new(
        spec: &ContainerSpec,
        isolation: Isolation,
        root: PathBuf,
        groups: Vec<PathBuf>,
    ) -> Self {
        Self {
            root,
            command: spec.command.clone(),
            env: spec.env.clone(),
            working_directory: spec.working_directory.clone(),
            user: spec.user.clone(),
            isolation,
            groups,
        }
    }
}

/// Why the process could not execute the command.
#[derive(Debug, Serialize, Deserialize)]
enum InitError {
    Command(String),
    System(String),
}

/// Starts the process and waits until it executes the command.
pub(crate) fn start(
    stage: &str,
    init_spec: &InitSpec,
    stdout: io::PipeWriter,
    stderr: io::PipeWriter,
) -> Result<Child, Error> {
    let talk = "talk to the first process of a container";
    let init_spec = serde_json::to_vec(init_spec).map_err(|e| Error::system(talk)(io::Error::from(e)))?;
    let (mut ours, theirs) = UnixStream::pair().map_err(Error::system(talk))?;
    let mut child = Command::new(this_program())
        .arg0("trainyard")
        .args([STAGE, stage])
        .env_clear()
        .stdin(Stdio::from(OwnedFd::from(theirs)))
        .stdout(stdout)
        .stderr(stderr)
        .spawn()
        .map_err(Error::system("start the first process of a container"))?;
    let mut answer = Vec::new();
    let talked = ours
        .write_all(&init_spec)
        .and_then(|()| ours.shutdown(Shutdown::Write))
        .and_then(|()| ours.read_to_end(&mut answer));
    let refused = match (talked, serde_json::from_slice(&answer)) {
        (Ok(0), _) => return Ok(child),
        (Ok(_), Ok(InitError::Command(message))) => Error::Command(message),
        (Ok(_), Ok(InitError::System(message))) => Error::Prepare(message),
        (Ok(_), Err(error)) => Error::system(talk)(io::Error::from(error)),
        (Err(error), _) => Error::system(talk)(error),
    };
    drop(child.kill());
    drop(child.wait());
    Err(refused)
}

/// Runs in the process itself. `prepare` sets it up and returns the path of the program.
pub(crate) fn run(
    prepare: impl FnOnce(&InitSpec) -> Result<PathBuf, Error>,
) -> Result<ExitCode, crate::yard::Error> {
    let failed = |source| crate::yard::Error::System {
        what: "talk to the node",
        source,
    };
    #[cfg(target_os = "linux")]
    crate::yard::descriptors::close_inherited().map_err(failed)?;
    SigSet::empty().thread_set_mask().map_err(|e| failed(e.into()))?;
    let input = nix::unistd::dup(io::stdin()).map_err(|e| failed(e.into()))?;
    close_on_exec(&input).map_err(failed)?;
    let mut socket = UnixStream::from(input);
    let mut init_spec = Vec::new();
    socket.read_to_end(&mut init_spec).map_err(failed)?;
    let init_spec: InitSpec = serde_json::from_slice(&init_spec).map_err(|e| failed(e.into()))?;
    let error_message = match limit(&init_spec).and_then(|()| prepare(&init_spec)) {
        Ok(program) => {
            let mut command = Command::new(&program);
            if let Some((name, arguments)) = init_spec.command.split_first() {
                command.arg0(name).args(arguments);
            }
            command
                .env_clear()
                .envs(init_spec.env.iter().map(|(name, value)| (name, value)));
            let error = command.exec();
            let program = program.display().to_string();
            InitError::Command(format!("exec {program}: {}", describe(&error)))
        }
        Err(Error::Command(message)) => InitError::Command(message),
        Err(error) => InitError::System(error.to_string()),
    };
    let error_message = serde_json::to_vec(&error_message).map_err(|e| failed(e.into()))?;
    socket.write_all(&error_message).map_err(failed)?;
    Ok(ExitCode::from(128))
}

/// Moves this process into the control groups of its container.
fn limit(init_spec: &InitSpec) -> Result<(), Error> {
    for group in &init_spec.groups {
        fs::write(group, "0").map_err(Error::system(format!(
            "join the control group of {}",
            group.display()
        )))?;
    }
    Ok(())
}

fn close_on_exec(descriptor: &OwnedFd) -> io::Result<()> {
    use nix::fcntl::{FcntlArg, FdFlag, fcntl};
    fcntl(descriptor, FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC))?;
    Ok(())
}

pub(crate) fn program(command: &[String], env: &[(String, String)]) -> Result<PathBuf, Error> {
    let name = command.first().map_or("", String::as_str);
    let path = env.iter().rev().find(|(name, _)| name == "PATH");
    find(name, path.map_or("", |(_, path)| path.as_str()))
}

/// Finds a program like container runtimes, with their error messages.
fn find(name: &str, path: &str) -> Result<PathBuf, Error> {
    if name.contains('/') {
        let found = fs::metadata(name)
            .map_err(|error| Error::Command(format!("exec: {name:?}: stat {name}: {}", describe(&error))))?;
        return if found.is_dir() {
            Err(Error::Command(format!("exec: {name:?}: is a directory")))
        } else if found.permissions().mode() & 0o111 == 0 {
            Err(Error::Command(format!("exec: {name:?}: permission denied")))
        } else {
            Ok(PathBuf::from(name))
        };
    }
    let runs = |candidate: &PathBuf| {
        fs::metadata(candidate).is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
    };
    let places = path.split(':').filter(|place| !place.is_empty());
    let mut candidates = places.map(|place| Path::new(place).join(name));
    candidates
        .find(runs)
        .ok_or_else(|| Error::Command(format!("exec: {name:?}: executable file not found in $PATH")))
}

/// A system error in the words of the C library, without its number.
fn describe(error: &io::Error) -> String {
    error.raw_os_error().map_or_else(
        || error.to_string(),
        |number| nix::errno::Errno::from_raw(number).desc().to_lowercase(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn says_why_a_command_can_not_be_run() {
        let message = |name: &str| find(name, "/nowhere:/bin").unwrap_err().to_string();
        assert_eq!(
            message("no-such"),
            r#"exec: "no-such": executable file not found in $PATH"#
        );
        assert_eq!(
            message("/no/such"),
            r#"exec: "/no/such": stat /no/such: no such file or directory"#
        );
        assert_eq!(message("/etc"), r#"exec: "/etc": is a directory"#);
        assert_eq!(
            message("/etc/passwd"),
            r#"exec: "/etc/passwd": permission denied"#
        );
        assert_eq!(find("sh", "/nowhere:/bin").unwrap(), Path::new("/bin/sh"));
    }
}
