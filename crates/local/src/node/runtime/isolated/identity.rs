//! Users of containers.
//!
//! An ordinary user can map one user and one group into a user namespace: their own. A container
//! with runAsUser gets a user namespace in which they are mapped to the ids that it asks for. So
//! programs see the expected ids, and their files belong to the user.

use std::fs;
use std::path::Path;

use nix::sched::{CloneFlags, unshare};
use nix::unistd::{Gid, Uid, setgid, setgroups, setuid};

use crate::node::runtime::{Error, User};

/// Changes to a user of the machine, as root.
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

/// Changes to a user namespace with the ids of `user`, as an ordinary user. The process has all
/// capabilities in it, which have to be dropped afterwards. Supplementary groups are not possible.
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
