//! Working directories that containers can share with this machine.

use std::path::Path;

/// Directories that containers have their own of.
const SYSTEM: [&str; 3] = ["/proc", "/sys", "/dev"];
/// Below a system directory, but for everybody's files.
const SHARED_MEMORY: &str = "/dev/shm";

/// Whether containers may write to a working directory: not if it is in a system directory, or
/// contains one.
pub fn can_be_shared(directory: &Path) -> bool {
    // The real path counts.
    let real = directory.canonicalize();
    let real = real.as_deref().unwrap_or(directory);
    let is_in_memory = real.starts_with(SHARED_MEMORY) && real != Path::new(SHARED_MEMORY);
    let concerns = |system: &str| real.starts_with(system) || Path::new(system).starts_with(real);
    is_in_memory || !SYSTEM.iter().any(|system| concerns(system))
}

/// The note about a working directory that can't be shared.
pub fn note(directory: &Path) -> Option<String> {
    (!can_be_shared(directory)).then(|| {
        format!(
            "the working directory {} is part of the system, and pods see a copy of it: what they write there is lost; \
             go to a directory of your own, or name one with -C, to keep it",
            directory.display()
        )
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn the_system_is_not_shared() {
        for system in [
            "/",
            "/..",
            "/proc",
            "/proc/sys",
            "/sys/kernel",
            "/dev",
            "/dev/shm",
        ] {
            assert!(note(Path::new(system)).unwrap().contains("is lost"), "{system}");
        }
        let place = tempfile::tempdir().unwrap();
        symlink("/", place.path().join("root")).unwrap();
        assert!(!can_be_shared(&place.path().join("root")));
        for own in [
            place.path(),
            Path::new("/home/process"),
            Path::new("/dev/shm/job"),
        ] {
            assert_eq!(note(own), None, "{}", own.display());
        }
    }
}
