//! Protects the file of this program from pods.
//!
//! `/proc/PID/exe` of a process that executes this program leads to its file outside of the pod:
//! root in a pod could change its mode, or its content when no process executes it. So the
//! processes of a yard execute it from a read-only mount without a path.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use nix::fcntl::OFlag;
use nix::mount::{MntFlags, MsFlags, mount, umount2};

use super::{Error, this_program};
use crate::host::layer::{bind, make_read_only};

/// A temporary mount point: it exists in every yard, and has no programs below it.
const FOR_A_MOMENT: &str = "/proc";

#[derive(Debug)]
pub(super) struct Program(File);

impl Program {
    /// Must be called by a process with a mount namespace of its own and without threads. The
    /// result executes [`this_program`] from the same mount.
    pub(super) fn unchangeable() -> Result<Self, Error> {
        make()
            .map(Self)
            .map_err(Error::io("keep this program from being changed by pods"))
    }

    pub(super) fn path(&self) -> PathBuf {
        format!("/proc/self/fd/{}", self.0.as_raw_fd()).into()
    }
}

fn make() -> io::Result<File> {
    let own = fs::metadata(this_program())?;
    let path = fs::read_link(this_program())?;
    let is_there =
        fs::metadata(&path).is_ok_and(|found| (found.dev(), found.ino()) == (own.dev(), own.ino()));
    if is_there {
        // By its path, because the executed file is in the old mount namespace.
        return mounted(&path, |place| bind(&path, place, true), &path);
    }
    let mut source = File::open(this_program())?;
    let copy = |place: &Path| {
        mount(
            Some("tmpfs"),
            place,
            Some("tmpfs"),
            MsFlags::empty(),
            Some("mode=755"),
        )?;
        let target = place.join("trainyard");
        io::copy(&mut source, &mut File::create_new(&target)?)?;
        fs::set_permissions(&target, Permissions::from_mode(0o555))?;
        make_read_only(place)
    };
    let place = Path::new(FOR_A_MOMENT);
    mounted(place, copy, &place.join("trainyard"))
}

/// Opens a file of a temporary mount. The open file keeps the flags of the mount.
fn mounted(place: &Path, put: impl FnOnce(&Path) -> io::Result<()>, path: &Path) -> io::Result<File> {
    put(place)?;
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(OFlag::O_PATH.bits())
        .open(path)?;
    umount2(place, MntFlags::MNT_DETACH)?;
    Ok(file)
}
