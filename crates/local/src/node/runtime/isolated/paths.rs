//! Paths within a root that is not the root of this process.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Component, Path, PathBuf};

/// The limit of the kernel.
const MAX_LINKS: usize = 40;

/// Resolves `path` below `root`: links are followed as if `root` were `/`, so that none leads out
/// of it. The end of the path need not exist.
pub fn within(root: &Path, path: &Path) -> io::Result<PathBuf> {
    let mut rest: VecDeque<OsString> = names(path).collect();
    let mut inside = PathBuf::new();
    let mut links = 0;
    while let Some(name) = rest.pop_front() {
        if name == ".." {
            inside.pop();
            continue;
        }
        let next = root.join(&inside).join(&name);
        match fs::read_link(&next) {
            Ok(link) => {
                links += 1;
                if links > MAX_LINKS {
                    return Err(io::Error::from_raw_os_error(nix::errno::Errno::ELOOP as i32));
                }
                if link.is_absolute() {
                    inside.clear();
                }
                for name in names(&link).rev() {
                    rest.push_front(name);
                }
            }
            // Not a link, or it does not exist.
            Err(_) => inside.push(name),
        }
    }
    Ok(root.join(inside))
}

fn names(path: &Path) -> impl DoubleEndedIterator<Item = OsString> + '_ {
    path.components().filter_map(|component| match component {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some(OsString::from("..")),
        Component::RootDir | Component::CurDir | Component::Prefix(_) => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn links_stay_within() {
        let place = tempfile::tempdir().unwrap();
        let root = place.path();
        fs::create_dir_all(root.join("usr/lib")).unwrap();
        symlink("/usr/lib", root.join("lib")).unwrap();
        symlink("../../../../etc", root.join("usr/up")).unwrap();
        symlink("around", root.join("around")).unwrap();
        let at = |path: &str| within(root, Path::new(path)).unwrap();
        assert_eq!(at("/lib/x"), root.join("usr/lib/x"));
        assert_eq!(at("/usr/up/passwd"), root.join("etc/passwd"));
        assert_eq!(at("/a/../../b"), root.join("b"));
        assert_eq!(at("/"), root.join(""));
        assert!(within(root, Path::new("/around/x")).is_err());
    }
}
