//! Removal of directories.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// Removes a directory, also where the modes of its parts forbid that.
///
/// If something is mounted below it, nothing is removed: a mount may show files of the user, such
/// as the working directory of a container that could not be started.
pub(crate) fn remove_tree(path: &Path) {
    match something_is_mounted_below(path) {
        Ok(false) => {}
        Ok(true) => {
            tracing::warn!(path = %path.display(), "not removed, since something is mounted there");
            return;
        }
        Err(error) => {
            tracing::warn!(path = %path.display(), %error, "not removed: whether something is mounted there is not known");
            return;
        }
    }
    if fs::remove_dir_all(path).is_ok() {
        return;
    }
    open_up(path);
    if let Err(error) = fs::remove_dir_all(path)
        && error.kind() != io::ErrorKind::NotFound
    {
        tracing::warn!(path = %path.display(), %error, "could not remove what is not needed any more");
    }
}

#[cfg(target_os = "linux")]
fn something_is_mounted_below(path: &Path) -> io::Result<bool> {
    let path = match path.canonicalize() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        path => path?,
    };
    let mut places = super::mounts::places()?;
    Ok(places.any(|place| place.starts_with(&path)))
}

/// Nothing is mounted on this platform.
#[cfg(not(target_os = "linux"))]
#[expect(clippy::unnecessary_wraps, reason = "as on Linux")]
fn something_is_mounted_below(_: &Path) -> io::Result<bool> {
    Ok(false)
}

fn open_up(directory: &Path) {
    drop(fs::set_permissions(directory, fs::Permissions::from_mode(0o700)));
    let Ok(entries) = fs::read_dir(directory) else {
        return;
    };
    for entry in entries.flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            open_up(&entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nobody_may_enter_is_removed_too() {
        let base = tempfile::tempdir().unwrap();
        let closed = base.path().join("pod/closed");
        fs::create_dir_all(closed.join("deep")).unwrap();
        fs::set_permissions(&closed, fs::Permissions::from_mode(0o000)).unwrap();
        remove_tree(&base.path().join("pod"));
        assert!(!base.path().join("pod").exists());
        remove_tree(&base.path().join("pod"));
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_place_with_mounts_is_left_alone() {
        // Every machine that these tests run on has it mounted.
        assert!(something_is_mounted_below(Path::new("/")).unwrap());
        assert!(something_is_mounted_below(Path::new("/proc")).unwrap());
        assert!(!something_is_mounted_below(tempfile::tempdir().unwrap().path()).unwrap());
    }
}
