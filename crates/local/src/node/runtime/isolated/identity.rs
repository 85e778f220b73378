//! Who the processes of a container are, and who they seem to be.
//!
//! An ordinary user can map one user and one group into a user namespace: themselves. A container
//! that asks for another gets a user namespace of its own, in which they go by the numbers that it
//! asks for. So programs see the user that they expect, and the files that they make belong to the
//! one who runs them.

use std::fs;
use std::path::Path;

use nix::sched::{CloneFlags, unshare};
use nix::unistd::{Gid, Uid, setgid, setgroups, setuid};

use crate::node::runtime::{Error, User};

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

/// As an ordinary user: seems to be another. Gives this process all rights in the new namespace, so
/// that they have to be cut afterwards. More groups than one are not possible.
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
