//! What the processes of a container may do: no more than in any other container.

use std::collections::HashSet;

use caps::{CapSet, Capability};
use nix::sys::prctl;

use super::super::Error;

/// What containers may do by default. Devices can't be made: there is no other guard against them here.
const KEPT: [Capability; 13] = [
    Capability::CAP_AUDIT_WRITE,
    Capability::CAP_CHOWN,
    Capability::CAP_DAC_OVERRIDE,
    Capability::CAP_FOWNER,
    Capability::CAP_FSETID,
    Capability::CAP_KILL,
    Capability::CAP_NET_BIND_SERVICE,
    Capability::CAP_NET_RAW,
    Capability::CAP_SETFCAP,
    Capability::CAP_SETGID,
    Capability::CAP_SETPCAP,
    Capability::CAP_SETUID,
    Capability::CAP_SYS_CHROOT,
];

/// Cuts what this thread, and whatever it executes, can ever do.
pub fn cut() -> Result<(), Error> {
    let failed = |e: caps::errors::CapsError| Error::System {
        what: "give up rights".to_owned(),
        source: std::io::Error::other(e.to_string()),
    };
    let kept: HashSet<Capability> = KEPT.into_iter().collect();
    caps::clear(None, CapSet::Ambient).map_err(failed)?;
    let bounding = caps::read(None, CapSet::Bounding).map_err(failed)?;
    for capability in bounding.difference(&kept) {
        caps::drop(None, CapSet::Bounding, *capability).map_err(failed)?;
    }
    caps::clear(None, CapSet::Inheritable).map_err(failed)?;
    prctl::set_no_new_privs().map_err(Error::system("forbid new rights"))
}
