//! Volumes that belong to the group of their pod, which `fsGroup` names.

use std::fs;
use std::io;
use std::os::unix::fs::{PermissionsExt, lchown};
use std::path::Path;

use k8s_openapi::api::core::v1::Pod;

/// What the group may do with a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    /// Read it.
    Read,
    /// Read and write it.
    Write,
}

/// The group to which the volumes of a pod belong, if it names one.
pub fn group(pod: &Pod) -> Option<u32> {
    let context = pod.spec.as_ref()?.security_context.as_ref()?;
    context.fs_group.and_then(|group| u32::try_from(group).ok())
}

/// Gives a volume and all that is in it to a group, and so what will be made in it. Who may not do that has no groups to
/// give it to: all of the pod is run by the one who owns the volume.
pub fn share(path: &Path, group: u32, wanted: Use) -> io::Result<()> {
    match give(path, group, wanted) {
        Err(error)
            if matches!(
                error.kind(),
                io::ErrorKind::PermissionDenied | io::ErrorKind::InvalidInput
            ) =>
        {
            Ok(())
        }
        given => given,
    }
}

fn give(path: &Path, group: u32, wanted: Use) -> io::Result<()> {
    const NEW_FILES_TOO: u32 = 0o2000;
    const ENTER: u32 = 0o110;
    let found = fs::symlink_metadata(path)?;
    lchown(path, None, Some(group))?;
    // What a link leads to has a mode of its own.
    if found.is_symlink() {
        return Ok(());
    }
    let mut mode = found.permissions().mode();
    mode |= match wanted {
        Use::Read => 0o440,
        Use::Write => 0o660,
    };
    if found.is_dir() {
        for entry in fs::read_dir(path)? {
            give(&entry?.path(), group, wanted)?;
        }
        mode |= NEW_FILES_TOO | ENTER;
    }
    fs::set_permissions(path, fs::Permissions::from_mode(mode))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt, symlink};

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
