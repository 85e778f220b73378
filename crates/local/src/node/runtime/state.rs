//! A directory for what one run keeps, and the removal of what earlier runs left.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use super::unisolated;
use crate::host::{cgroup, remove_tree};

/// The file whose lock says that a run is still there. The kernel drops the lock however the run
/// ends.
const LOCK: &str = "lock";

/// How the directories of runs are named.
const RUN: &str = "run-";

/// As much as the smallest run needs.
const NEEDED_BYTES: usize = 64 * 1024;

/// A directory of this run's own; removed when dropped, and by the next run if this one is killed.
#[derive(Debug)]
pub struct StateDirectory {
    path: PathBuf,
    _lock: File,
}

impl StateDirectory {
    /// Makes a directory below `base`, and removes what runs that have ended left there, processes
    /// included.
    pub fn claim(base: &Path) -> io::Result<Self> {
        fs::create_dir_all(base)?;
        // Under another name until it is locked, so that nobody takes it for one that was left.
        let made = tempfile::Builder::new().prefix(".").tempdir_in(base)?;
        let lock = File::create(made.path().join(LOCK))?;
        lock.lock()?;
        let name = made
            .path()
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .replace('.', RUN);
        let path = base.join(name);
        fs::rename(made.keep(), &path)?;
        let claimed = Self { path, _lock: lock };
        sweep(base);
        claimed.has_room()?;
        Ok(claimed)
    }

    /// A full disk is better found now than by each pod.
    fn has_room(&self) -> io::Result<()> {
        let file = self.path.join("room");
        fs::write(&file, vec![0; NEEDED_BYTES])?;
        fs::remove_file(file)
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for StateDirectory {
    fn drop(&mut self) {
        remove(&self.path);
    }
}

/// Removes what runs that have ended left below `base`, as far as it can be seen from here. Runs
/// that go on are left alone.
pub fn sweep(base: &Path) {
    let Ok(entries) = fs::read_dir(base) else { return };
    for entry in entries.flatten() {
        let path = entry.path();
        if !entry.file_name().to_string_lossy().starts_with(RUN) {
            continue;
        }
        if crate::yard::is_inside() && unisolated::is_marked_run(&path) {
            continue;
        }
        let Ok(lock) = File::open(path.join(LOCK)) else {
            continue;
        };
        if lock.try_lock().is_ok() {
            unisolated::end_remains(&path);
            remove(&path);
        }
    }
}

/// Removes the directory of a run and what it names. What can't be removed now is left, with its
/// name, to the next run.
fn remove(run: &Path) {
    if cgroup::remove_recorded(run) {
        remove_tree(run);
    } else {
        tracing::warn!(run = %run.display(), "could not remove control groups of a run");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_ended_is_swept() {
        let base = tempfile::tempdir().unwrap();
        let left = base.path().join("run-left");
        fs::create_dir(&left).unwrap();
        File::create(left.join(LOCK)).unwrap();
        let stranger = base.path().join("notes");
        fs::create_dir(&stranger).unwrap();
        let first = StateDirectory::claim(base.path()).unwrap();
        assert!(!left.exists());
        let second = StateDirectory::claim(base.path()).unwrap();
        assert!(first.path().exists() && stranger.exists());
        let path = second.path().to_owned();
        drop(second);
        assert!(!path.exists());
    }
}
