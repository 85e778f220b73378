//! A cache outside of the clone for what takes minutes to build.

use std::env;
use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, Result, bail};
use rustix::fs::{FlockOperation, flock};
use sha2::{Digest, Sha256};

use crate::hex::hex;

/// The directory of everything that is built once: `TRAINYARD_CACHE`, or `trainyard` in the user's
/// cache directory.
pub fn root() -> Result<PathBuf> {
    let set = |name: &str| {
        env::var_os(name)
            .filter(|value| !value.is_empty())
            .map(PathBuf::from)
    };
    let Some(path) = set("TRAINYARD_CACHE")
        .or_else(|| set("XDG_CACHE_HOME").map(|dir| dir.join("trainyard")))
        .or_else(|| set("HOME").map(|dir| dir.join(".cache/trainyard")))
    else {
        bail!("there is no place for the cache: set TRAINYARD_CACHE to a directory with 12 GB of space");
    };
    std::path::absolute(&path).with_context(|| format!("{} is no usable path", path.display()))
}

/// A hash of the parts.
pub fn key<'a, P: AsRef<[u8]> + ?Sized + 'a>(parts: impl IntoIterator<Item = &'a P>) -> String {
    let mut hash = Sha256::new();
    for part in parts {
        // The length keeps "ab","c" and "a","bc" apart.
        let part = part.as_ref();
        hash.update(part.len().to_le_bytes());
        hash.update(part);
    }
    hex(&hash.finalize())[..16].to_owned()
}

/// Waits for the exclusive lock on the file `path`; it is held until the file is dropped.
pub fn lock(path: &Path) -> Result<File> {
    loop {
        let file = open_lock(path)?;
        flock(&file, FlockOperation::LockExclusive)
            .with_context(|| format!("cannot lock {}", path.display()))?;
        if is_at(&file, path) {
            return Ok(file);
        }
    }
}

/// The lock on the file `path`, or nothing when another process holds it.
pub fn try_lock(path: &Path) -> Result<Option<File>> {
    let file = open_lock(path)?;
    let locked = flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok() && is_at(&file, path);
    Ok(locked.then_some(file))
}

/// The previous holder may have removed the file; another process would then lock a new one.
fn is_at(file: &File, path: &Path) -> bool {
    let identity = |meta: fs::Metadata| (meta.dev(), meta.ino());
    match (file.metadata(), fs::metadata(path)) {
        (Ok(ours), Ok(there)) => identity(ours) == identity(there),
        _ => false,
    }
}

fn open_lock(path: &Path) -> Result<File> {
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent)
            .with_context(|| format!("cannot make the directory {}", parent.display()))?;
    }
    File::options()
        .create(true)
        .truncate(false)
        .write(true)
        .open(path)
        .with_context(|| format!("cannot open the lock {}", path.display()))
}

/// Creates the directory `target` with `build`, unless it exists. `build` works in another
/// directory, which is renamed when it is complete, so that an interrupted build is never taken for
/// a finished one. Other processes wait meanwhile.
pub fn publish(target: &Path, what: &str, build: impl FnOnce(&Path) -> Result<()>) -> Result<()> {
    if target.exists() {
        return Ok(());
    }
    let _lock = lock(&target.with_extension("lock"))?;
    if target.exists() {
        return Ok(());
    }
    let unfinished = target.with_extension("unfinished");
    // We hold the lock, so this was left by an interrupted build.
    if unfinished.exists() {
        fs::remove_dir_all(&unfinished)
            .with_context(|| format!("cannot remove the unfinished {}", unfinished.display()))?;
    }
    fs::create_dir_all(&unfinished)
        .with_context(|| format!("cannot make the directory {}", unfinished.display()))?;
    eprintln!("building {what} ...");
    let start = Instant::now();
    build(&unfinished).with_context(|| format!("cannot build {what}"))?;
    fs::rename(&unfinished, target).with_context(|| format!("cannot put {what} at {}", target.display()))?;
    eprintln!("built {what} in {:.1} s", start.elapsed().as_secs_f64());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_failed_is_not_published_and_is_built_again() {
        let dir = tempfile::tempdir().unwrap();
        let target = dir.path().join("thing");
        let failed = publish(&target, "thing", |place| {
            fs::write(place.join("half"), "half")?;
            bail!("interrupted")
        });
        assert!(failed.is_err());
        assert!(!target.exists());
        publish(&target, "thing", |place| {
            Ok(fs::write(place.join("whole"), "whole")?)
        })
        .unwrap();
        assert!(target.join("whole").exists());
        assert!(!target.join("half").exists());
        publish(&target, "thing", |_| bail!("built twice")).unwrap();
    }

    #[test]
    fn keys_tell_boundaries_apart() {
        assert_ne!(key(["ab", "c"]), key(["a", "bc"]));
        assert_eq!(key(["a"]), key(["a"]));
    }
}
