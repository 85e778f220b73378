//! The group of volumes, `fsGroup`.

use std::ffi::{CStr, CString};
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use k8s_openapi::api::core::v1::Pod;
use nix::dir::Dir;
use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, openat};
use nix::sys::stat::Mode;
use nix::unistd::{Gid, fchown, fchownat};

/// The setgid bit: new files get the group of the directory.
const NEW_FILES_TOO: u32 = 0o2000;
/// Follows no link and does not block.
const OPEN: OFlag = OFlag::O_NOFOLLOW
    .union(OFlag::O_NONBLOCK)
    .union(OFlag::O_NOCTTY)
    .union(OFlag::O_CLOEXEC);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    Read,
    Write,
}

pub fn group(pod: &Pod) -> Option<u32> {
    let context = pod.spec.as_ref()?.security_context.as_ref()?;
    context.fs_group.and_then(|group| u32::try_from(group).ok())
}

/// Gives a volume and all that is in it to a group, and so what will be created in it.
pub fn share(path: &Path, group: u32, wanted: Use) -> io::Result<()> {
    unless_denied(File::open(path).and_then(|volume| give(&volume, group, wanted)))
}

/// Ignores that this user may not give files to others: without root, the whole pod runs as the
/// owner of its files.
pub(super) fn unless_denied(given: io::Result<()>) -> io::Result<()> {
    given.or_else(|error| match error.kind() {
        io::ErrorKind::PermissionDenied | io::ErrorKind::InvalidInput => Ok(()),
        _ => Err(error),
    })
}

/// Whether [`share`] has given a volume to a group for writing.
pub fn is_shared(path: &Path, group: u32) -> bool {
    const GIVEN: u32 = NEW_FILES_TOO | 0o070;
    fs::metadata(path).is_ok_and(|found| found.gid() == group && found.mode() & GIVEN == GIVEN)
}

/// Works on open files, not on paths: containers may be using the volume and replace files by
/// links.
fn give(file: &File, group: u32, wanted: Use) -> io::Result<()> {
    const ENTER: u32 = 0o110;
    let found = file.metadata()?;
    fchown(file, None, Some(Gid::from_raw(group)))?;
    let mut mode = found.permissions().mode();
    mode |= match wanted {
        Use::Read => 0o440,
        Use::Write => 0o660,
    };
    if found.is_dir() {
        let mut directory = Dir::from_fd(file.try_clone()?.into())?;
        let names: Vec<CString> = directory
            .iter()
            .map(|entry| entry.map(|entry| entry.file_name().to_owned()))
            .collect::<nix::Result<_>>()?;
        let names = names
            .iter()
            .filter(|name| ![c".", c".."].contains(&name.as_c_str()));
        for name in names {
            give_entry(file, name, group, wanted)?;
        }
        mode |= NEW_FILES_TOO | ENTER;
    }
    file.set_permissions(fs::Permissions::from_mode(mode))
}

fn give_entry(directory: &File, name: &CStr, group: u32, wanted: Use) -> io::Result<()> {
    match openat(directory, name, OPEN, Mode::empty()) {
        Ok(entry) => give(&File::from(entry), group, wanted),
        // A link has no mode of its own, and a socket can't be opened.
        Err(Errno::ELOOP | Errno::ENXIO | Errno::EOPNOTSUPP) => {
            let group = Some(Gid::from_raw(group));
            Ok(fchownat(
                directory,
                name,
                None,
                group,
                AtFlags::AT_SYMLINK_NOFOLLOW,
            )?)
        }
        // It was removed meanwhile.
        Err(Errno::ENOENT) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    /// A directory with a directory, a file and a link, shared with the group that it has already.
    fn shared(wanted: Use) -> [u32; 3] {
        let place = tempfile::tempdir().unwrap();
        let inner = place.path().join("inner");
        let file = inner.join("file");
        fs::create_dir(&inner).unwrap();
        fs::write(&file, "").unwrap();
        symlink("nowhere", inner.join("link")).unwrap();
        for (path, mode) in [(place.path(), 0o700), (&inner, 0o700), (&file, 0o600)] {
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        }
        let group = fs::metadata(&file).unwrap().gid();
        share(place.path(), group, wanted).unwrap();
        [place.path(), &inner, &file].map(|path| fs::metadata(path).unwrap().mode() & 0o7777)
    }

    #[test]
    fn all_of_a_volume_is_for_the_group() {
        assert_eq!(shared(Use::Read), [0o2750, 0o2750, 0o640]);
        assert_eq!(shared(Use::Write), [0o2770, 0o2770, 0o660]);
    }
}
