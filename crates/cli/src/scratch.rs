//! The directory of the embedded cluster.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use serde_json::Value;
use trainyard_local::cluster;

use crate::validate;

/// A directory that only this user can read. It is created if it does not exist.
pub fn directory() -> Result<PathBuf> {
    let set = |name: &str| {
        std::env::var_os(name)
            .filter(|value| !value.is_empty())
            .map(PathBuf::from)
    };
    let cache = set("TRAINYARD_CACHE")
        .or_else(|| Some(set("XDG_CACHE_HOME")?.join("trainyard")))
        .or_else(|| Some(set("HOME")?.join(".cache/trainyard")));
    let cache = match cache {
        Some(cache) => cache,
        // Without a home, as in some containers.
        None => private_directory_in(&std::env::temp_dir(), cluster::user())?,
    };
    // `-C` must not change it.
    let cache = std::path::absolute(cache)?;
    let directory = cluster::base_directory(&cache);
    make(&directory, true).with_context(|| cannot_keep(&directory))?;
    Ok(directory)
}

/// The directory of a user below one that everybody may write to. It must belong to this user and
/// be closed to others, because its owner decides what is in it.
fn private_directory_in(place: &Path, user: u32) -> Result<PathBuf> {
    let directory = place.join(format!("trainyard-{user}"));
    match make(&directory, false) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
            return Err(error).with_context(|| cannot_keep(&directory));
        }
        _ => {}
    }
    // A symbolic link is not followed: its target could be changed at any time.
    let found = fs::symlink_metadata(&directory).with_context(|| cannot_keep(&directory))?;
    if !found.is_dir() || found.uid() != user {
        bail!(
            "{} is not a directory of your own, and what others put there is not to be trusted: set TRAINYARD_CACHE, or \
             HOME, to a directory of yours",
            directory.display()
        );
    }
    if found.mode() & 0o077 != 0 {
        bail!(
            "others can look into {}, where the files of pods would be kept: remove it, or set TRAINYARD_CACHE, or HOME, to \
             a directory of yours",
            directory.display()
        );
    }
    Ok(directory)
}

fn make(directory: &Path, with_parents: bool) -> io::Result<()> {
    DirBuilder::new()
        .recursive(with_parents)
        .mode(0o700)
        .create(directory)
}

fn cannot_keep(directory: &Path) -> String {
    format!(
        "cannot keep files in {}: set TRAINYARD_CACHE to a directory that you may write to",
        directory.display()
    )
}

/// Where `--keep` puts the logs and volumes of a job. Those of earlier runs stay there.
pub fn kept_directory(scratch: &Path, job: &Value) -> PathBuf {
    let name = validate::text(job, "/metadata/name").unwrap_or("job");
    let now = jiff::Zoned::now().strftime("%Y%m%d-%H%M%S");
    // The process id tells runs apart that start in the same second.
    let place = format!("{name}-{now}-{}", std::process::id());
    scratch.join("kept").join(place)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    #[test]
    fn a_directory_among_others_is_ones_own() {
        let place = tempfile::tempdir().unwrap();
        let (place, user) = (place.path(), cluster::user());
        let own = private_directory_in(place, user).unwrap();
        assert_eq!(fs::metadata(&own).unwrap().mode() & 0o777, 0o700);
        assert_eq!(
            private_directory_in(place, user).unwrap(),
            own,
            "also the second time"
        );

        let refused = |user| private_directory_in(place, user).unwrap_err().to_string();
        fs::set_permissions(&own, fs::Permissions::from_mode(0o750)).unwrap();
        assert!(
            refused(user).contains("others can look into"),
            "{}",
            refused(user)
        );
        fs::remove_dir(&own).unwrap();
        symlink(place, &own).unwrap();
        assert!(refused(user).contains("not a directory of your own"));
        // Made by us, and so not theirs.
        assert!(refused(user + 1).contains("not a directory of your own"));
    }
}
