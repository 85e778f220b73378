//! Enters a container's user namespace, which a thread can't join.
//!
//! A thread that has joined all other namespaces of a container executes this program again. That
//! process joins the user namespace and becomes the command.

use std::ffi::OsString;
use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitCode};

use nix::sched::{CloneFlags, setns};

use super::capabilities::drop_capabilities;
use super::{Error, User};
use crate::yard::{self, STAGE};

const NAME: &str = "beside";

/// The arguments for this program to join the user namespace, before the command.
#[derive(Debug)]
pub(super) struct UserNsEntry(Vec<OsString>);

impl UserNsEntry {
    /// None if the container has no user namespace of its own. Must be called before a namespace is
    /// joined.
    pub(super) fn of(pid: u32, user: &User) -> std::io::Result<Option<Self>> {
        let process = Path::new("/proc").join(pid.to_string());
        let number = |process: &Path| fs::metadata(process.join("ns/user")).map(|found| found.ino());
        if number(&process)? == number(Path::new("/proc/thread-self"))? {
            return Ok(None);
        }
        // Its id in the innermost process namespace, from where it is looked up.
        let status = fs::read_to_string(process.join("status"))?;
        let inside = status.lines().find_map(|line| line.strip_prefix("NSpid:"));
        let inside = inside.and_then(|ids| ids.split_whitespace().last());
        let inside = inside.ok_or(std::io::ErrorKind::NotFound)?;
        let dropped = user.dropped.join(",");
        Ok(Some(Self(
            [STAGE, NAME, inside, &dropped].map(OsString::from).into(),
        )))
    }

    /// The arguments to execute `program` with `command`, whose first word is its argv[0].
    pub(super) fn arguments(&self, program: &Path, command: &[String]) -> Vec<OsString> {
        let mut all = self.0.clone();
        all.push(program.into());
        all.extend(command.iter().map(OsString::from));
        all
    }
}

/// The stage that a [`UserNsEntry`] starts.
pub(crate) fn run(arguments: &[OsString]) -> Result<ExitCode, yard::Error> {
    let failed = |error: Error| yard::Error::System {
        what: "execute a command in a container",
        source: std::io::Error::other(error.to_string()),
    };
    let [process, dropped, program, name, arguments @ ..] = arguments else {
        return Err(yard::Error::InvalidVariable);
    };
    let what = "enter the container; it may have ended";
    let namespace = File::open(Path::new("/proc").join(process).join("ns/user"));
    let namespace = namespace.map_err(Error::system(what)).map_err(failed)?;
    setns(&namespace, CloneFlags::CLONE_NEWUSER)
        .map_err(Error::system(what))
        .map_err(failed)?;
    let dropped = dropped.to_string_lossy();
    let dropped: Vec<String> = dropped.split(',').map(ToOwned::to_owned).collect();
    drop_capabilities(&dropped).map_err(failed)?;
    let error = Command::new(program).arg0(name).args(arguments).exec();
    Err(yard::Error::System {
        what: "execute a command in a container",
        source: error,
    })
}
