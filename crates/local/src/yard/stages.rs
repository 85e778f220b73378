//! The processes between the user's command and the worker.

use std::env;
use std::ffi::{OsStr, OsString};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitCode};

use nix::sched::CloneFlags;

use super::keyboard::Keyboard;
use super::program::Program;
use super::supervise::{Part, supervise};
use super::{Error, Isolation, Network, STAGE, YARD_VARIABLE, Yard, namespace, this_program};

/// Starts the door with the arguments of this process, and waits for its end.
pub(super) fn outer(yard: &Yard) -> Result<ExitCode, Error> {
    let place = serde_json::to_string(yard).map_err(|_| Error::InvalidVariable)?;
    let mut door = stage("door", &[std::process::id().to_string().as_ref()]);
    door.args(env::args_os())
        .env(YARD_VARIABLE, place)
        // A terminal signals a whole process group: only the outer process should get the signal,
        // and forwards it once.
        .process_group(0);
    let mut keyboard = None;
    if yard.has_keys {
        let (outer, input) = Keyboard::new().map_err(Error::io("pass keys on"))?;
        door.stdin(input);
        keyboard = Some(outer);
    }
    supervise(Part::Outer, "the door", &mut door, keyboard)
}

/// Creates the namespaces and their first process.
pub(crate) fn door(arguments: &[OsString]) -> Result<ExitCode, Error> {
    let (parent, command) = parse(arguments)?;
    namespace::die_with(parent)?;
    let yard: Yard = env::var(YARD_VARIABLE)
        .ok()
        .and_then(|place| serde_json::from_str(&place).ok())
        .ok_or(Error::InvalidVariable)?;
    namespace::leave(yard.isolation, flags(yard.isolation, yard.network))?;
    let program = Program::unchangeable()?;
    let mut init = staged(
        &program.path(),
        "init",
        &[std::process::id().to_string().as_ref()],
    );
    init.args(command);
    supervise(Part::Door, "process 1", &mut init, None)
}

/// Process 1 of the yard.
pub(crate) fn init(arguments: &[OsString]) -> Result<ExitCode, Error> {
    let (parent, command) = parse(arguments)?;
    namespace::die_with(parent)?;
    namespace::mount_proc(Path::new("/proc"))?;
    let (name, arguments) = command.split_first().ok_or(Error::InvalidVariable)?;
    let mut worker = Command::new(this_program());
    worker.arg0(name).args(arguments);
    supervise(Part::Init, "the worker", &mut worker, None)
}

/// The namespaces of a yard.
pub(super) fn flags(isolation: Isolation, network: Network) -> CloneFlags {
    let mut flags = CloneFlags::CLONE_NEWNS | CloneFlags::CLONE_NEWPID;
    if network == Network::Pod {
        flags |= CloneFlags::CLONE_NEWNET;
    }
    if isolation == Isolation::User {
        flags |= CloneFlags::CLONE_NEWUSER;
    }
    flags
}

/// A command that executes a stage of [`reenter`](crate::reenter()).
pub(super) fn stage(name: &str, arguments: &[&OsStr]) -> Command {
    staged(&this_program(), name, arguments)
}

fn staged(program: &Path, name: &str, arguments: &[&OsStr]) -> Command {
    let mut command = Command::new(program);
    command.arg0("trainyard").arg(STAGE).arg(name).args(arguments);
    command
}

fn parse(arguments: &[OsString]) -> Result<(u32, &[OsString]), Error> {
    let (parent, command) = arguments.split_first().ok_or(Error::InvalidVariable)?;
    let parent = parent
        .to_str()
        .and_then(|id| id.parse().ok())
        .ok_or(Error::InvalidVariable)?;
    Ok((parent, command))
}
