//! The logs and volumes of deleted pods: removed, or kept for the user.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::worker::PodWorker;
use crate::host::remove_tree;

const KEPT: [&str; 3] = ["logs", "volumes", "progress"];
/// How many pods of one name can be kept.
const MAX_PODS_OF_A_NAME: u32 = 10_000;

impl PodWorker {
    /// Removes the pod's files, or moves them to where they are kept.
    pub(super) fn remove_files(&self) {
        if let Some(place) = &self.shared.options.keep {
            let name = self.pod().metadata.name.clone().unwrap_or_default();
            if let Err(error) = keep(&self.directory, place, &name) {
                tracing::warn!(pod = self.description(), %error, "the files of a pod could not be kept");
            }
        }
        remove_tree(&self.directory);
    }
}

/// Moves a pod's files to a directory of its name, with a number if that exists.
fn keep(directory: &Path, place: &Path, name: &str) -> io::Result<()> {
    let target = free(place, name)?;
    for part in KEPT {
        match fs::rename(directory.join(part), target.join(part)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

fn free(place: &Path, name: &str) -> io::Result<PathBuf> {
    fs::create_dir_all(place)?;
    let mut last = io::ErrorKind::AlreadyExists.into();
    for number in 1..MAX_PODS_OF_A_NAME {
        let name = match number {
            1 => name.to_owned(),
            number => format!("{name}.{number}"),
        };
        match fs::create_dir(place.join(&name)) {
            Ok(()) => return Ok(place.join(name)),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => last = error,
            Err(error) => return Err(error),
        }
    }
    Err(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_successor_replaces_nothing() {
        let base = tempfile::tempdir().unwrap();
        let place = base.path().join("kept");
        for text in ["first", "second"] {
            let pod = base.path().join("pod");
            fs::create_dir_all(pod.join("logs")).unwrap();
            fs::create_dir_all(pod.join("etc")).unwrap();
            fs::write(pod.join("logs/main-0.log"), text).unwrap();
            keep(&pod, &place, "a-worker-0").unwrap();
        }
        let log = |pod: &str| fs::read_to_string(place.join(pod).join("logs/main-0.log")).unwrap();
        assert_eq!(log("a-worker-0"), "first");
        assert_eq!(log("a-worker-0.2"), "second");
        assert!(!place.join("a-worker-0/etc").exists());
    }
}
