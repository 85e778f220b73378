//! Paths in directories that containers write to: subPaths of volumes, and `hostPath` volumes in
//! the working directory. No container must be able to make them lead out of it.

use std::fs::{self, File};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::path::{Component, Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{OFlag, openat};
use nix::sys::stat::{Mode, fchmod, mkdirat};

#[derive(Debug)]
pub enum SubPathError {
    Outside,
    Io(io::Error),
}

impl From<Errno> for SubPathError {
    fn from(error: Errno) -> Self {
        Self::Io(error.into())
    }
}

impl From<io::Error> for SubPathError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// The path of a subPath. Missing directories are created with the permissions of the volume,
/// whatever the umask, so that every user who may write to the volume may write there.
pub fn find(volume: &Path, sub: &Path) -> Result<PathBuf, SubPathError> {
    let root = volume.canonicalize()?;
    let path = root.join(inside(sub));
    find_within(&root, &path, Missing::Make)
}

/// What is done about directories that are missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Missing {
    Make,
    Refuse,
}

/// Where a path leads, without symbolic links, if that is in a directory.
pub fn find_within(root: &Path, path: &Path, policy: Missing) -> Result<PathBuf, SubPathError> {
    let root = root.canonicalize()?;
    let there = path
        .ancestors()
        .find(|part| fs::symlink_metadata(part).is_ok())
        .unwrap_or(&root);
    // Links within the directory are followed: the files of ConfigMaps are links.
    let real = there.canonicalize().map_err(|_| SubPathError::Outside)?;
    let real = real.strip_prefix(&root).map_err(|_| SubPathError::Outside)?;
    let missing = path.strip_prefix(there).unwrap_or(Path::new(""));
    if missing
        .components()
        .any(|part| !matches!(part, Component::Normal(_)))
    {
        // Nobody knows where it leads.
        return Err(SubPathError::Outside);
    }
    match policy {
        Missing::Make => make(&root, real, missing)?,
        Missing::Refuse if missing.iter().next().is_some() => {
            return Err(io::Error::from(io::ErrorKind::NotFound).into());
        }
        Missing::Refuse => {}
    }
    // `join` would add a slash, with which a file can't be opened.
    Ok(root.iter().chain(real).chain(missing).collect())
}

/// A path without `..` and leading slashes.
pub(super) fn inside(path: &Path) -> PathBuf {
    path.components()
        .filter(|component| matches!(component, Component::Normal(_)))
        .collect()
}

/// Creates directories one by one from an open parent, so that no link is followed that was created
/// meanwhile.
fn make(root: &Path, real: &Path, missing: &Path) -> Result<(), SubPathError> {
    if missing.iter().next().is_none() {
        return Ok(());
    }
    let root = File::open(root)?;
    let mode = Mode::from_bits_truncate(root.metadata()?.permissions().mode());
    let mut here = OwnedFd::from(root);
    let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    for name in real {
        here = openat(&here, name, flags, Mode::empty())?;
    }
    for name in missing {
        let created = mkdirat(&here, name, mode);
        here = match created {
            Ok(()) | Err(Errno::EEXIST) => openat(&here, name, flags, Mode::empty())?,
            Err(error) => return Err(error.into()),
        };
        if created.is_ok() {
            fchmod(&here, mode)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn no_link_leads_out_of_a_volume() {
        let place = tempfile::tempdir().unwrap();
        let (volume, outside) = (place.path().join("volume"), place.path().join("outside"));
        fs::create_dir_all(volume.join("own")).unwrap();
        fs::create_dir(&outside).unwrap();
        symlink(&outside, volume.join("out")).unwrap();
        symlink("../../outside", volume.join("own/up")).unwrap();
        symlink("nowhere", volume.join("lost")).unwrap();
        for sub in ["out", "out/made", "own/up/made", "lost", "lost/made"] {
            let found = find(&volume, Path::new(sub));
            assert!(
                matches!(found, Err(SubPathError::Outside | SubPathError::Io(_))),
                "{sub}"
            );
        }
        assert_eq!(fs::read_dir(outside).unwrap().count(), 0);
        assert!(!volume.join("nowhere").exists());
    }

    #[test]
    fn what_is_missing_is_made() {
        let place = tempfile::tempdir().unwrap();
        let volume = place.path().canonicalize().unwrap();
        fs::create_dir(volume.join("own")).unwrap();
        fs::write(volume.join("own/file"), "").unwrap();
        symlink("own", volume.join("link")).unwrap();
        let at = |sub: &str| find(&volume, Path::new(sub)).unwrap();
        assert_eq!(at("a/b/c"), volume.join("a/b/c"));
        assert_eq!(at("link/made"), volume.join("own/made"));
        assert!(volume.join("a/b/c").is_dir() && volume.join("own/made").is_dir());
        fs::set_permissions(&volume, fs::Permissions::from_mode(0o2777)).unwrap();
        let mode = |path: PathBuf| fs::metadata(path).unwrap().permissions().mode() & 0o7777;
        assert_eq!(mode(at("wide")), 0o2777);
        fs::set_permissions(&volume, fs::Permissions::from_mode(0o700)).unwrap();
        assert_eq!((mode(at("narrow")), mode(at("wide"))), (0o700, 0o2777));
        assert_eq!(at("link/file"), volume.join("own/file"));
        assert!(matches!(
            find(&volume, Path::new("own/file/below")),
            Err(SubPathError::Io(_))
        ));
    }
}
