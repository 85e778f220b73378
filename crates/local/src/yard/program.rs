//! This program, as nobody in a yard can change it.
//!
//! A process that executes this program shows its file in `/proc`, past all that separates a pod
//! from the machine: who is root in a pod could change the file's mode, or wait until nobody
//! executes it and change its content. So all of a yard is executed from a read-only mount of the
//! file, which is nowhere to be found by a path.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use nix::fcntl::OFlag;
use nix::mount::{MntFlags, MsFlags, mount, umount2};

use super::{Error, this_program};
use crate::host::layer::{bind, make_read_only};

/// Where something can be mounted for a moment: it is there in every yard, and no program is below
/// it.
const FOR_A_MOMENT: &str = "/proc";

/// Something that can be executed as long as this is there.
#[derive(Debug)]
pub(super) struct Program(File);

impl Program {
    /// To be called by a process that has a mount namespace of its own, and no threads. Who
    /// executes the result is [`this_program`] from the same mount.
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
        // By its path, as what this process executes is in the mount namespace that it has left.
        return mounted(&path, |place| bind(&path, place, true), &path);
    }
    // Its file has been replaced or removed.
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

/// Opens a file that is there only while something is mounted. What is open stays as it was
/// mounted.
fn mounted(place: &Path, put: impl FnOnce(&Path) -> io::Result<()>, path: &Path) -> io::Result<File> {
    put(place)?;
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(OFlag::O_PATH.bits())
        .open(path)?;
    umount2(place, MntFlags::MNT_DETACH)?;
    Ok(file)
}
