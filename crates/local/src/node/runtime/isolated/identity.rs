//! Who the processes of a container are, and who they seem to be.
//!
//! An ordinary user can map one user and one group into a user namespace: themselves. A container that asks for another gets
//! a user namespace of its own, in which they go by the numbers that it asks for. So programs see the user that they expect,
//! and the files that they make belong to the one who runs them.

use std::ffi::OsString;
use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitCode};

use nix::sched::{CloneFlags, setns, unshare};
use nix::unistd::{Gid, Uid, setgid, setgroups, setuid};

use super::super::{Error, User};
use super::rights;
use crate::yard::{self, STAGE};

/// The stage that goes from the container's namespaces into its user namespace.
const STAGE_BESIDE: &str = "beside";

/// As root: becomes a user of the machine.
pub fn become_user(user: &User) -> Result<(), Error> {
    let groups: Vec<_> = user.groups.iter().map(|group| Gid::from_raw(*group)).collect();
    setgroups(&groups).map_err(Error::system("set groups"))?;
    if let Some(gid) = user.gid {
        setgid(Gid::from_raw(gid)).map_err(Error::system(format!("run as group {gid}")))?;
    }
    if let Some(uid) = user.uid {
        setuid(Uid::from_raw(uid)).map_err(Error::system(format!("run as user {uid}")))?;
    }
    Ok(())
}

/// As an ordinary user: seems to be another. Gives this process all rights in the new namespace, so that they have to be cut
/// afterwards. More groups than one are not possible.
pub(super) fn seem(user: &User) -> Result<(), Error> {
    let (uid, gid) = (user.uid.unwrap_or(0), user.gid.unwrap_or(0));
    if (uid, gid) == (0, 0) {
        return Ok(());
    }
    let what = format!("run as user {uid} and group {gid}");
    unshare(CloneFlags::CLONE_NEWUSER).map_err(Error::system(what.as_str()))?;
    for (file, content) in [
        ("setgroups", "deny".to_owned()),
        ("uid_map", format!("{uid} 0 1")),
        ("gid_map", format!("{gid} 0 1")),
    ] {
        fs::write(Path::new("/proc/self").join(file), content).map_err(Error::system(what.as_str()))?;
    }
    Ok(())
}

/// How a process that has joined all other namespaces of a container comes into its user namespace, which is closed to
/// threads: by executing this program, with these arguments before those of the command.
#[derive(Debug)]
pub(in super::super) struct Way(Vec<OsString>);

impl Way {
    /// None if the container has no user namespace of its own. To be asked before anything is joined.
    pub(super) fn to(pid: u32, user: &User) -> std::io::Result<Option<Self>> {
        let process = Path::new("/proc").join(pid.to_string());
        let number = |process: &Path| fs::metadata(process.join("ns/user")).map(|found| found.ino());
        if number(&process)? == number(Path::new("/proc/thread-self"))? {
            return Ok(None);
        }
        // As it is called in the innermost process namespace, from where it will be looked for.
        let status = fs::read_to_string(process.join("status"))?;
        let inside = status.lines().find_map(|line| line.strip_prefix("NSpid:"));
        let inside = inside.and_then(|ids| ids.split_whitespace().last());
        let inside = inside.ok_or(std::io::ErrorKind::NotFound)?;
        let dropped = user.dropped.join(",");
        Ok(Some(Self(
            [STAGE, STAGE_BESIDE, inside, &dropped].map(OsString::from).into(),
        )))
    }

    /// The arguments that lead to a program with arguments.
    pub(in super::super) fn arguments(&self, program: &Path, command: &[String]) -> Vec<OsString> {
        let mut all = self.0.clone();
        all.push(program.into());
        all.extend(command.iter().map(OsString::from));
        all
    }
}

/// The stage at the end of a [`Way`].
pub(crate) fn run(arguments: &[OsString]) -> Result<ExitCode, yard::Error> {
    let failed = |error: Error| yard::Error::System {
        what: "execute a command in a container",
        source: std::io::Error::other(error.to_string()),
    };
    let [process, dropped, program, name, arguments @ ..] = arguments else {
        return Err(yard::Error::Place);
    };
    let what = "enter the container; it may have ended";
    let namespace = File::open(Path::new("/proc").join(process).join("ns/user"));
    let namespace = namespace.map_err(Error::system(what)).map_err(failed)?;
    setns(&namespace, CloneFlags::CLONE_NEWUSER)
        .map_err(Error::system(what))
        .map_err(failed)?;
    let dropped = dropped.to_string_lossy();
    let dropped: Vec<String> = dropped.split(',').map(ToOwned::to_owned).collect();
    rights::cut(&dropped).map_err(failed)?;
    let error = Command::new(program).arg0(name).args(arguments).exec();
    Err(yard::Error::System {
        what: "execute a command in a container",
        source: error,
    })
}
