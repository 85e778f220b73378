//! Views of directories of this machine: copy-on-write where overlays are possible, else read-only.

use std::fs;
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::errno::Errno;
use nix::mount::{MsFlags, mount};
use nix::sys::statvfs::{FsFlags, statvfs};

use super::Isolation;

const MAX_BUSY_ATTEMPTS: u32 = 400;
const BUSY_RETRY_INTERVAL: Duration = Duration::from_millis(5);

#[derive(Debug, PartialEq, Eq)]
pub enum Layer {
    /// Copy-on-write.
    Overlay,
    /// Read-only, and why.
    ReadOnly(String),
}

/// Creates views, whose upper layers are in one directory.
#[derive(Debug)]
pub struct Layering {
    place: PathBuf,
    isolation: Isolation,
    made: u32,
}

impl Layering {
    /// `place` is the directory of the upper layers. It is created when needed, and removed by the
    /// caller.
    pub fn new(place: PathBuf, isolation: Isolation) -> Self {
        Self {
            place,
            isolation,
            made: 0,
        }
    }

    /// Mounts a view of the directory `lower` at `target`.
    pub fn put(&mut self, lower: &Path, target: &Path) -> io::Result<Layer> {
        match self.overlay(lower, target) {
            Ok(()) => Ok(Layer::Overlay),
            Err(error) => {
                bind(lower, target, true)?;
                Ok(Layer::ReadOnly(error.to_string()))
            }
        }
    }

    fn overlay(&mut self, lower: &Path, target: &Path) -> io::Result<()> {
        let place = self.place.join(self.made.to_string());
        self.made += 1;
        let (upper, work) = (place.join("upper"), place.join("work"));
        fs::create_dir_all(&upper)?;
        fs::create_dir(&work)?;
        // The attributes of the view are those of its upper layer.
        let seen = fs::metadata(lower)?;
        if self.isolation == Isolation::Root {
            chown(&upper, Some(seen.uid()), Some(seen.gid()))?;
        }
        fs::set_permissions(&upper, fs::Permissions::from_mode(seen.mode()))?;
        let mut options = format!(
            "lowerdir={},upperdir={},workdir={}",
            escape(lower, true),
            escape(&upper, false),
            escape(&work, false)
        );
        if self.isolation == Isolation::User {
            options.push_str(",userxattr");
        }
        // These layers are not needed after a crash: with `volatile`, unmounting does not wait for
        // the disk.
        let volatile = format!("{options},volatile");
        let flags = restrictions(lower)?;
        match mount_overlay(target, flags, &volatile) {
            Err(Errno::EINVAL) => mount_overlay(target, flags, &options).map_err(Into::into),
            other => other.map_err(Into::into),
        }
    }
}

fn mount_overlay(target: &Path, flags: MsFlags, options: &str) -> nix::Result<()> {
    mount(Some("overlay"), target, Some("overlay"), flags, Some(options))
}

/// An overlay does not inherit the mount flags of its lower layer. Devices and setuid programs are
/// not for containers.
fn restrictions(lower: &Path) -> nix::Result<MsFlags> {
    let mut flags = MsFlags::MS_NODEV | MsFlags::MS_NOSUID;
    if statvfs(lower)?.flags().contains(FsFlags::ST_NOEXEC) {
        flags |= MsFlags::MS_NOEXEC;
    }
    Ok(flags)
}

/// Escapes a path for a mount option.
fn escape(path: &Path, colon_separates: bool) -> String {
    let mut escaped = String::new();
    for c in path.to_string_lossy().chars() {
        if c == '\\' || c == ',' || (c == ':' && colon_separates) {
            escaped.push('\\');
        }
        escaped.push(c);
    }
    escaped
}

/// Binds `source` to `target`, with all mounts below it.
pub fn bind(source: &Path, target: &Path, read_only: bool) -> io::Result<()> {
    let flags = MsFlags::MS_BIND | MsFlags::MS_REC;
    mount(Some(source), target, None::<&str>, flags, None::<&str>)?;
    if read_only { make_read_only(target) } else { Ok(()) }
}

/// Makes a mount read-only and keeps its other flags.
pub fn make_read_only(target: &Path) -> io::Result<()> {
    let mut flags = MsFlags::MS_BIND | MsFlags::MS_REMOUNT | MsFlags::MS_RDONLY;
    let now = statvfs(target)?.flags();
    // In a user namespace these flags can't be removed, so they have to be repeated.
    for (has, keeps) in [
        (FsFlags::ST_NOSUID, MsFlags::MS_NOSUID),
        (FsFlags::ST_NODEV, MsFlags::MS_NODEV),
        (FsFlags::ST_NOEXEC, MsFlags::MS_NOEXEC),
        (FsFlags::ST_NOATIME, MsFlags::MS_NOATIME),
        (FsFlags::ST_NODIRATIME, MsFlags::MS_NODIRATIME),
    ] {
        if now.contains(has) {
            flags |= keeps;
        }
    }
    // A child of another thread may hold open files of this one until it executes its program.
    for _ in 0..MAX_BUSY_ATTEMPTS {
        match mount(None::<&str>, target, None::<&str>, flags, None::<&str>) {
            Err(Errno::EBUSY) => std::thread::sleep(BUSY_RETRY_INTERVAL),
            done => return Ok(done?),
        }
    }
    Err(Errno::EBUSY.into())
}
