//! The mounts of this machine that a container should see.

use std::fs;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

/// File systems that containers have their own of, or must not see.
const NOT_FILES: [&str; 22] = [
    "autofs",
    "binfmt_misc",
    "bpf",
    "cgroup",
    "cgroup2",
    "configfs",
    "debugfs",
    "devpts",
    "devtmpfs",
    "efivarfs",
    "fusectl",
    "hugetlbfs",
    "mqueue",
    "nsfs",
    "proc",
    "pstore",
    "ramfs",
    "rpc_pipefs",
    "securityfs",
    "selinuxfs",
    "sysfs",
    "tracefs",
];

/// Directories that a container has its own of.
pub const OWN: [&str; 3] = ["/proc", "/sys", "/dev"];

/// The mount points below `/`, outermost first, each once.
pub fn below_root(except: &Path) -> io::Result<Vec<PathBuf>> {
    let mut places = parse(&table()?);
    places.retain(|place| {
        place != Path::new("/") && !place.starts_with(except) && !OWN.iter().any(|own| place.starts_with(own))
    });
    places.sort_by_key(|place| place.components().count());
    places.dedup();
    Ok(places)
}

/// The mount points that this thread sees.
pub fn places() -> io::Result<impl Iterator<Item = PathBuf>> {
    let places: Vec<PathBuf> = rows(&table()?).map(|(place, _)| place).collect();
    Ok(places.into_iter())
}

/// That of the thread, which may be in the mount namespace of a container.
fn table() -> io::Result<Vec<u8>> {
    fs::read("/proc/thread-self/mountinfo")
}

/// The mount point and file system type of each mount.
fn rows(table: &[u8]) -> impl Iterator<Item = (PathBuf, &[u8])> {
    table.split(|byte| *byte == b'\n').filter_map(|line| {
        let mut fields = line.split(|byte| *byte == b' ');
        let place = PathBuf::from(std::ffi::OsString::from_vec(unescape(fields.nth(4)?)));
        let kind = fields
            .skip_while(|field| *field != b"-")
            .nth(1)
            .unwrap_or_default();
        Some((place, kind))
    })
}

fn parse(table: &[u8]) -> Vec<PathBuf> {
    let mut places = Vec::new();
    for (place, kind) in rows(table) {
        let is_of_files = !NOT_FILES.iter().any(|name| name.as_bytes() == kind);
        if is_of_files && !places.contains(&place) {
            places.push(place);
        }
    }
    places
}

/// The kernel escapes some characters as `\` and three octal digits.
fn unescape(field: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((first, after)) = rest.split_first() {
        let octal = after
            .get(..3)
            .filter(|_| *first == b'\\')
            .and_then(|digits| std::str::from_utf8(digits).ok())
            .and_then(|digits| u8::from_str_radix(digits, 8).ok());
        if let Some(byte) = octal {
            plain.push(byte);
            rest = &after[3..];
        } else {
            plain.push(*first);
            rest = after;
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_table_of_the_kernel() {
        let table = b"22 1 254:0 / / rw,relatime - ext4 /dev/vda rw\n\
            23 22 0:21 / /proc rw - proc proc rw\n\
            30 22 8:1 / /media/my\\040disk rw,nosuid shared:1 master:2 - vfat /dev/sdb rw\n\
            31 22 0:5 / /mnt/auto rw - autofs x rw\n\
            32 22 8:2 / /home rw - ext4 /dev/sdc rw\n\
            33 32 8:3 / /home rw - ext4 /dev/sdd rw\n";
        let places: Vec<_> = parse(table)
            .into_iter()
            .map(|p| p.display().to_string())
            .collect();
        assert_eq!(places, ["/", "/media/my disk", "/home"]);
    }
}
