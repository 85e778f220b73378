//! The directory of a run, and the removal of those that earlier runs left.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use super::unisolated;
use crate::host::{cgroup, remove_tree};

/// The file that a run locks. The kernel releases the lock however the run ends.
const LOCK: &str = "lock";

/// How the names of directories of runs begin.
pub(crate) const RUN: &str = "run-";

/// The least that a run needs.
const NEEDED_BYTES: usize = 64 * 1024;

/// The directory of this run; removed when dropped, or by the next run if this one is killed.
#[derive(Debug)]
pub struct StateDirectory {
    path: PathBuf,
    _lock: File,
}

impl StateDirectory {
    /// Creates a directory below `base`, and removes what ended runs left there, their processes
    /// included.
    pub fn claim(base: &Path) -> io::Result<Self> {
        fs::create_dir_all(base)?;
        // Renamed when it is locked, so that it is not taken for a leftover.
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

    /// Fails now if the disk is full, and not in each pod.
    fn has_room(&self) -> io::Result<()> {
        let file = self.path.join("room");
        fs::write(&file, vec![0; NEEDED_BYTES])?;
        fs::remove_file(file)
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for StateDirectory {
    fn drop(&mut self) {
        remove(&self.path);
    }
}

/// Removes what ended runs left below `base`, as far as it can be seen from here.
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

/// Removes the directory of a run and its control groups. If these can't be removed, the directory
/// is left for the next run.
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
