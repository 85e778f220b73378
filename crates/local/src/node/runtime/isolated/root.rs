//! The file system of a container, in a mount namespace of its own.

use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::symlink;
use std::path::{Component, Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{OFlag, openat};
use nix::mount::{MsFlags, mount};
use nix::sys::stat::Mode;

use super::paths;
use crate::host::layer::{Layering, bind, make_read_only};
use crate::host::{Isolation, mounts};
use crate::node::runtime::{ContainerSpec, Error, Mount, Root};

/// Devices that every container has.
const DEVICES: [&str; 6] = ["null", "zero", "full", "random", "urandom", "tty"];
/// Devices that training needs, where the machine has them.
const ACCELERATORS: [&str; 5] = ["nvidia", "dri", "kfd", "infiniband", "accel"];
/// The default of container runtimes; a volume at this path replaces it.
const SHARED_MEMORY: &str = "mode=1777,size=65536k";

/// Mounts everything below `target`. Writes of the container go to `scratch`. `own` is the
/// directory of the run, which is hidden.
pub fn assemble(
    spec: &ContainerSpec,
    isolation: Isolation,
    own: &Path,
    scratch: &Path,
    target: &Path,
) -> Result<(), Error> {
    let what = "put together the files of the container";
    fs::create_dir_all(target).map_err(Error::system(what))?;
    let mut layering = Layering::new(scratch.join("layers"), isolation);
    let made = match (&spec.root, isolation) {
        (Root::Directory(lower), _) => layering.put(lower, target).map(drop),
        (Root::Host, Isolation::Root) => whole_machine(&mut layering, scratch, target),
        (Root::Host, _) => part_by_part(&mut layering, scratch, target),
    };
    made.map_err(Error::system(what))?;
    let layers = layers(target).map_err(Error::system(what))?;
    for own in mounts::OWN {
        fs::create_dir_all(target.join(own.trim_start_matches('/'))).map_err(Error::system(what))?;
    }
    devices(&target.join("dev"), isolation).map_err(Error::system("make the devices of the container"))?;
    system_information(&target.join("sys")).map_err(Error::system("mount /sys"))?;
    for mount in &spec.mounts {
        match put(mount, target) {
            Err(error) if mount.optional => {
                tracing::debug!(%error, path = %mount.target.display(), "a container has to do without a mount");
            }
            done => done.map_err(Error::system(format!(
                "mount {} at {}",
                mount.source.display(),
                mount.target.display()
            )))?,
        }
    }
    hide(own, scratch, target).map_err(Error::system("hide the files of other containers"))?;
    // Last, because mount points may have to be created. Mounts are not affected.
    if spec.read_only_root {
        make_read_only(target).map_err(Error::system("make the files of the container read-only"))?;
        let covered: Vec<PathBuf> = spec
            .mounts
            .iter()
            .filter_map(|mount| paths::within(target, &mount.target).ok())
            .collect();
        let is_covered = |layer: &PathBuf| covered.iter().any(|place| layer.starts_with(place));
        for layer in layers.iter().filter(|layer| !is_covered(layer)) {
            // A mount that is hidden by another can't be written to.
            if let Err(error) = make_read_only(layer) {
                tracing::debug!(%error, path = %layer.display(), "a layer stays as it is");
            }
        }
    }
    Ok(())
}

/// The mounts below the root of a container.
fn layers(target: &Path) -> io::Result<Vec<PathBuf>> {
    let below = |place: &PathBuf| place.starts_with(target) && place != target;
    Ok(mounts::places()?.filter(below).collect())
}

/// A view of `/` and of each file system below it, as root.
fn whole_machine(layering: &mut Layering, scratch: &Path, target: &Path) -> io::Result<()> {
    layering.put(Path::new("/"), target)?;
    for place in mounts::below_root(scratch)? {
        let inside = target.join(place.strip_prefix("/").unwrap_or(&place));
        // A mount point may be hidden by another mount, or closed to this user.
        if place.is_dir() {
            drop(layering.put(&place, &inside));
        } else {
            drop(bind(&place, &inside, true));
        }
    }
    Ok(())
}

/// For a user namespace, where a directory with mounts below it can't be an overlay: creates
/// directories down to those that can.
fn part_by_part(layering: &mut Layering, scratch: &Path, target: &Path) -> io::Result<()> {
    mount_tmpfs(target, MsFlags::empty(), "mode=755")?;
    let places = mounts::below_root(scratch)?;
    directory(layering, &places, Path::new("/"), target)
}

fn directory(layering: &mut Layering, places: &[PathBuf], lower: &Path, target: &Path) -> io::Result<()> {
    for entry in fs::read_dir(lower)?.flatten() {
        let (from, to) = (entry.path(), target.join(entry.file_name()));
        if mounts::OWN.iter().any(|own| from == Path::new(own)) {
            continue;
        }
        let Ok(kind) = entry.file_type() else { continue };
        if kind.is_symlink() {
            symlink(fs::read_link(&from)?, &to)?;
        } else if kind.is_dir() {
            fs::create_dir(&to)?;
            let has_mounts_below = places
                .iter()
                .any(|place| *place != from && place.starts_with(&from));
            // A directory that this user may not read stays empty.
            if has_mounts_below {
                drop(directory(layering, places, &from, &to));
            } else {
                drop(layering.put(&from, &to));
            }
        } else if kind.is_file() {
            File::create(&to)?;
            drop(bind(&from, &to, true));
        }
    }
    Ok(())
}

fn devices(dev: &Path, isolation: Isolation) -> io::Result<()> {
    mount_tmpfs(dev, MsFlags::MS_NOSUID, "mode=755,size=65536k")?;
    for name in DEVICES {
        device(&Path::new("/dev").join(name), dev)?;
    }
    for entry in fs::read_dir("/dev")?.flatten() {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        if ACCELERATORS.iter().any(|prefix| name.starts_with(prefix)) {
            drop(device(&entry.path(), dev));
        }
    }
    for (name, target) in [
        ("fd", "/proc/self/fd"),
        ("stdin", "/proc/self/fd/0"),
        ("stdout", "/proc/self/fd/1"),
        ("stderr", "/proc/self/fd/2"),
        ("ptmx", "pts/ptmx"),
    ] {
        symlink(target, dev.join(name))?;
    }
    for name in ["pts", "shm", "mqueue"] {
        fs::create_dir(dev.join(name))?;
    }
    // The group `tty` exists only outside of a user namespace.
    let group = if isolation == Isolation::Root {
        ",gid=5"
    } else {
        ""
    };
    let options = format!("newinstance,ptmxmode=0666,mode=0620{group}");
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NOEXEC;
    mount(
        Some("devpts"),
        &dev.join("pts"),
        Some("devpts"),
        flags,
        Some(options.as_str()),
    )?;
    mount_tmpfs(&dev.join("shm"), flags | MsFlags::MS_NODEV, SHARED_MEMORY)?;
    // Not every kernel has it, and few programs need it.
    let _ = mount(
        Some("mqueue"),
        &dev.join("mqueue"),
        Some("mqueue"),
        flags | MsFlags::MS_NODEV,
        None::<&str>,
    );
    Ok(())
}

fn device(from: &Path, dev: &Path) -> io::Result<()> {
    let Some(name) = from.file_name() else {
        return Ok(());
    };
    let to = dev.join(name);
    if fs::metadata(from)?.is_dir() {
        fs::create_dir(&to)?;
    } else {
        File::create(&to)?;
    }
    bind(from, &to, false)
}

/// Read-only; with the pod's own network if possible.
fn system_information(sys: &Path) -> io::Result<()> {
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC | MsFlags::MS_RDONLY;
    if mount(Some("sysfs"), sys, Some("sysfs"), flags, None::<&str>).is_ok() {
        return Ok(());
    }
    bind(Path::new("/sys"), sys, true)
}

/// Mounts a file or directory; creates the mount point if needed.
fn put(mount: &Mount, root: &Path) -> io::Result<()> {
    let target = paths::within(root, &mount.target)?;
    let (_open, source) = if mount.is_resolved {
        let open = open_without_links(&mount.source)?;
        let path = format!("/proc/self/fd/{}", open.as_raw_fd());
        (Some(open), PathBuf::from(path))
    } else {
        (None, mount.source.clone())
    };
    if fs::metadata(&source)?.is_dir() {
        fs::create_dir_all(&target)?;
    } else if !target.exists() {
        if let Some(parent) = target.parent() {
            fs::create_dir_all(parent)?;
        }
        File::create(&target)?;
    }
    bind(&source, &target, mount.read_only)
}

/// Opens what is at a path that has no symbolic links, so that it stays what it is.
fn open_without_links(path: &Path) -> io::Result<File> {
    let flags = OFlag::O_PATH | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    let mut here = File::open("/")?;
    for part in path.components().filter(|part| *part != Component::RootDir) {
        // Of a link it opens the link, and then nothing below it.
        here = File::from(openat(&here, part.as_os_str(), flags, Mode::empty())?);
    }
    if here.metadata()?.is_symlink() {
        return Err(Errno::ELOOP.into());
    }
    Ok(here)
}

/// Hides the files of other pods, even if the working directory is above them.
fn hide(own: &Path, scratch: &Path, target: &Path) -> io::Result<()> {
    let place = paths::within(target, own)?;
    if !place.is_dir() {
        return Ok(());
    }
    let nothing = scratch.join("nothing");
    fs::create_dir_all(&nothing)?;
    bind(&nothing, &place, true)
}

fn mount_tmpfs(target: &Path, flags: MsFlags, options: &str) -> io::Result<()> {
    mount(Some("tmpfs"), target, Some("tmpfs"), flags, Some(options))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_that_came_meanwhile_is_not_followed() {
        let place = tempfile::tempdir().unwrap();
        let root = place.path().canonicalize().unwrap();
        fs::create_dir_all(root.join("own/data")).unwrap();
        fs::write(root.join("own/file"), "").unwrap();
        for path in ["own/data", "own/file"] {
            open_without_links(&root.join(path)).unwrap();
        }
        fs::rename(root.join("own"), root.join("moved")).unwrap();
        symlink("moved", root.join("own")).unwrap();
        for path in ["own", "own/data", "own/file"] {
            assert!(open_without_links(&root.join(path)).is_err(), "{path}");
        }
    }
}
