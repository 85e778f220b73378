//! The capabilities of containers.

use std::collections::HashSet;

use caps::{CapSet, Capability};
use nix::sys::prctl;

use super::Error;

/// The default capabilities of container runtimes, without MKNOD: there is no device cgroup here.
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

/// Limits this thread, and what it executes, to the capabilities of containers without those in
/// `dropped`. Unknown names are ignored.
pub fn drop_capabilities(dropped: &[String]) -> Result<(), Error> {
    let failed = |e: caps::errors::CapsError| Error::System {
        what: "give up rights".to_owned(),
        source: std::io::Error::other(e.to_string()),
    };
    let kept = kept(dropped);
    caps::clear(None, CapSet::Ambient).map_err(failed)?;
    let bounding = caps::read(None, CapSet::Bounding).map_err(failed)?;
    for capability in bounding.difference(&kept) {
        caps::drop(None, CapSet::Bounding, *capability).map_err(failed)?;
    }
    caps::clear(None, CapSet::Inheritable).map_err(failed)?;
    prctl::set_no_new_privs().map_err(Error::system("forbid new rights"))
}

fn kept(dropped: &[String]) -> HashSet<Capability> {
    let is_dropped = |capability: &Capability| {
        let name = capability.to_string();
        dropped.iter().any(|dropped| {
            let dropped = dropped.to_uppercase();
            dropped == "ALL" || name.strip_prefix("CAP_") == Some(dropped.trim_start_matches("CAP_"))
        })
    };
    KEPT.into_iter()
        .filter(|capability| !is_dropped(capability))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_container_does_without_what_it_drops() {
        let left = |dropped: &[&str]| {
            let dropped: Vec<_> = dropped.iter().map(ToString::to_string).collect();
            kept(&dropped).len()
        };
        assert_eq!(left(&[]), KEPT.len());
        assert_eq!(left(&["NET_RAW", "CAP_KILL", "SYS_ADMIN"]), KEPT.len() - 2);
        assert_eq!(left(&["all"]), 0);
    }
}
