//! Starts the commands of exec and of probes in a running container.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt;
#[cfg(not(target_os = "linux"))]
use std::path::Path;
use std::process::{Child, Command, Stdio};

use nix::unistd::{Uid, fchown};
use pty_process::blocking::{self, Pty};

#[cfg(target_os = "linux")]
use super::user_ns_entry::UserNsEntry;
use super::{ContainerSpec, Error, User, container_init};
use crate::yard::this_program;

/// The terminal's type, as container runtimes set it.
const TERM: (&str, &str) = ("TERM", "xterm");

/// A command to start.
#[derive(Clone, Debug)]
pub struct Exec {
    /// The program and its arguments.
    pub command: Vec<String>,
    /// Whether it runs on a terminal.
    pub on_terminal: bool,
}

/// There are no user namespaces on this platform.
#[cfg(not(target_os = "linux"))]
#[derive(Debug)]
pub(super) enum UserNsEntry {}

#[cfg(not(target_os = "linux"))]
impl UserNsEntry {
    fn arguments(&self, _: &Path, _: &[String]) -> Vec<OsString> {
        match *self {}
    }
}

/// Starts a command in the namespaces of this thread, or through `entry` in a user namespace.
/// Returns our end of its terminal too, if it has one.
pub(super) fn spawn(
    spec: &ContainerSpec,
    user: &User,
    exec: &Exec,
    entry: Option<&UserNsEntry>,
) -> Result<(Child, Option<Pty>), Error> {
    let (name, arguments) = exec
        .command
        .split_first()
        .ok_or_else(|| Error::Command("exec: there is no command".to_owned()))?;
    let failed = || format!("execute {name}");
    let program = container_init::program(&exec.command, &spec.env)?;
    let (program, name, arguments) = match entry {
        None => (
            program,
            name.as_str(),
            arguments.iter().map(OsString::from).collect(),
        ),
        Some(entry) => (
            this_program(),
            "trainyard",
            entry.arguments(&program, &exec.command),
        ),
    };
    let variables = spec.env.iter().map(|(name, value)| (name, value));
    let (uid, gid) = (user.uid.filter(|uid| *uid != 0), user.gid.filter(|gid| *gid != 0));
    if !exec.on_terminal {
        let mut command = Command::new(program);
        command
            .arg0(name)
            .args(arguments)
            .env_clear()
            .envs(variables)
            .current_dir(&spec.working_directory)
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        if let Some(uid) = uid {
            command.uid(uid);
        }
        if let Some(gid) = gid {
            command.gid(gid);
        }
        let child = command.spawn().map_err(Error::system(failed()))?;
        return Ok((child, None));
    }
    let (ours, theirs) =
        blocking::open().map_err(|error| Error::system("make a terminal")(io_error(error)))?;
    let mut command = blocking::Command::new(program)
        .arg0(name)
        .args(arguments)
        .env_clear()
        .envs(variables)
        .env(TERM.0, TERM.1)
        .current_dir(&spec.working_directory);
    if let Some(uid) = uid {
        // A user must own a terminal to open it again.
        fchown(&theirs, Some(Uid::from_raw(uid)), None).map_err(Error::system("give away a terminal"))?;
        command = command.uid(uid);
    }
    if let Some(gid) = gid {
        command = command.gid(gid);
    }
    let child = command
        .spawn(theirs)
        .map_err(|error| Error::system(failed())(io_error(error)))?;
    Ok((child, Some(ours)))
}

fn io_error(error: pty_process::Error) -> io::Error {
    match error {
        pty_process::Error::Io(error) => error,
        pty_process::Error::Rustix(error) => error.into(),
    }
}
