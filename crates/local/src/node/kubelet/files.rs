//! Volumes of files that are replaced atomically.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use super::ownership::{self, Use};
use super::sub_path::inside;
use super::tokens::Access;

/// The files of a volume, with their content and access.
pub type Files = BTreeMap<PathBuf, (Vec<u8>, Access)>;

/// Writes files so that readers see all of the old ones or all of the new ones, through a symbolic
/// link that is replaced. They belong to a group, if there is one.
pub fn write(path: &Path, files: &Files, group: Option<u32>) -> io::Result<()> {
    const DATA: &str = "..data";
    fs::create_dir_all(path)?;
    let current = path.join(DATA);
    let same = files
        .iter()
        .all(|(name, (content, _))| fs::read(current.join(name)).is_ok_and(|old| old == *content))
        && current.exists()
        && count(&current)? == files.len();
    if same {
        return Ok(());
    }
    let made = tempfile::Builder::new().prefix("..").tempdir_in(path)?.keep();
    fs::set_permissions(&made, fs::Permissions::from_mode(0o755))?;
    for (name, (content, access)) in files {
        let file = made.join(inside(name));
        if let Some(parent) = file.parent() {
            fs::create_dir_all(parent)?;
        }
        fs::write(&file, content)?;
        fs::set_permissions(&file, fs::Permissions::from_mode(access.mode))?;
        access.give(&file)?;
    }
    if let Some(group) = group {
        ownership::share(path, group, Use::Read)?;
    }
    let old = fs::read_link(&current).ok();
    let next = path.join("..data_tmp");
    symlink(made.file_name().unwrap_or_default(), &next)?;
    fs::rename(&next, &current)?;
    for top in files.keys().filter_map(|name| {
        inside(name)
            .components()
            .next()
            .map(|c| PathBuf::from(c.as_os_str()))
    }) {
        let link = path.join(&top);
        if fs::symlink_metadata(&link).is_err() {
            symlink(Path::new(DATA).join(&top), link)?;
        }
    }
    for entry in fs::read_dir(path)?.flatten() {
        let gone = !entry.file_name().to_string_lossy().starts_with("..")
            && !current.join(entry.file_name()).exists();
        if gone {
            fs::remove_file(entry.path())?;
        }
    }
    if let Some(old) = old {
        fs::remove_dir_all(path.join(old))?;
    }
    Ok(())
}

fn count(directory: &Path) -> io::Result<usize> {
    let mut found = 0;
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        found += if entry.file_type()?.is_dir() {
            count(&entry.path())?
        } else {
            1
        };
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_replaced_together() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("volume");
        let files = |names: &[(&str, &str)]| -> Files {
            names
                .iter()
                .map(|(name, content)| {
                    (
                        PathBuf::from(name),
                        (content.as_bytes().to_vec(), Access::all(0o600)),
                    )
                })
                .collect()
        };
        write(&path, &files(&[("a", "1"), ("d/b", "2")]), None).unwrap();
        assert_eq!(fs::read_to_string(path.join("a")).unwrap(), "1");
        assert_eq!(fs::read_to_string(path.join("d/b")).unwrap(), "2");
        let generation = fs::read_link(path.join("..data")).unwrap();
        write(&path, &files(&[("a", "1"), ("d/b", "2")]), None).unwrap();
        assert_eq!(fs::read_link(path.join("..data")).unwrap(), generation);
        write(&path, &files(&[("a", "3"), ("../../c", "4")]), None).unwrap();
        assert_eq!(fs::read_to_string(path.join("a")).unwrap(), "3");
        assert_eq!(fs::read_to_string(path.join("c")).unwrap(), "4");
        assert!(!path.join("d").exists() && !path.join(generation).exists());
        assert!(!place.path().join("c").exists());
    }
}
