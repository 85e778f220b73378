//! Namespaces of the yard.

use std::fs;
use std::path::Path;

use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use nix::sys::prctl;
use nix::sys::signal::Signal;
use nix::unistd::{getegid, geteuid};

use super::{Error, Isolation};

/// Moves this process into new namespaces. Its children are in the new process namespace.
pub(crate) fn leave(isolation: Isolation, flags: CloneFlags) -> Result<(), Error> {
    let (uid, gid) = (geteuid(), getegid());
    if isolation == Isolation::User {
        unshare(flags | CloneFlags::CLONE_NEWUSER).map_err(Error::system("make a user namespace"))?;
        let write = |file: &str, content: String| {
            fs::write(Path::new("/proc/self").join(file), content)
                .map_err(Error::io("map this user into a user namespace"))
        };
        write("setgroups", "deny".to_owned())?;
        write("uid_map", format!("0 {uid} 1"))?;
        write("gid_map", format!("0 {gid} 1"))?;
    } else {
        unshare(flags).map_err(Error::system("make namespaces"))?;
    }
    if flags.contains(CloneFlags::CLONE_NEWNS) {
        make_private()?;
    }
    Ok(())
}

/// Later mounts are seen in this mount namespace only.
pub(crate) fn make_private() -> Result<(), Error> {
    mount(
        None::<&str>,
        "/",
        None::<&str>,
        MsFlags::MS_REC | MsFlags::MS_PRIVATE,
        None::<&str>,
    )
    .map_err(Error::system("make mounts private"))
}

/// Mounts the `/proc` of this process namespace.
pub(crate) fn mount_proc(target: &Path) -> Result<(), Error> {
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
    mount(Some("proc"), target, Some("proc"), flags, None::<&str>).map_err(Error::system("mount /proc"))
}

/// Has the kernel kill this process when its parent ends. `parent` is its id in `/proc`.
pub(crate) fn die_with(parent: u32) -> Result<(), Error> {
    prctl::set_pdeathsig(Signal::SIGKILL).map_err(Error::system("tie this process to its parent"))?;
    // The parent may have ended before. getppid does not show that across namespaces, but /proc
    // does.
    let status = fs::read_to_string("/proc/self/status").map_err(Error::io("read /proc/self/status"))?;
    let now = status.lines().find_map(|line| line.strip_prefix("PPid:"));
    if now.and_then(|id| id.trim().parse().ok()) == Some(parent) {
        Ok(())
    } else {
        std::process::exit(i32::from(super::STAGE_FAILED))
    }
}
