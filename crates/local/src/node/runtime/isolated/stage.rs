//! Sets up the first process of a container in its namespaces.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sys::stat::{Mode, umask};
use nix::unistd::{chdir, dup2_stdin, pivot_root, setsid};

use super::identity::{become_user, seem};
use crate::host::Isolation;
use crate::host::layer::{bind, make_read_only};
use crate::node::runtime::Error;
use crate::node::runtime::capabilities::drop_capabilities;
use crate::node::runtime::container_init::{self, InitSpec};
use crate::yard::namespace;

/// Parts of `/proc` that containers must not read.
const HIDDEN: [&str; 7] = [
    "acpi",
    "kcore",
    "keys",
    "latency_stats",
    "sched_debug",
    "scsi",
    "timer_list",
];
/// Parts of `/proc` that containers must not write.
const UNCHANGEABLE: [&str; 5] = ["bus", "fs", "irq", "sys", "sysrq-trigger"];

pub fn run() -> Result<ExitCode, crate::yard::Error> {
    container_init::run(prepare)
}

/// Enters the container's root and changes to its user.
fn prepare(init_spec: &InitSpec) -> Result<PathBuf, Error> {
    proc(&init_spec.root.join("proc"))?;
    enter(&init_spec.root).map_err(Error::system("make the container's files the root"))?;
    let null = File::open("/dev/null").map_err(Error::system("open /dev/null in the container"))?;
    dup2_stdin(&null).map_err(Error::system("close the input"))?;
    setsid().map_err(Error::system("make a session"))?;
    umask(Mode::from_bits_truncate(0o022));
    let directory = &init_spec.working_directory;
    fs::create_dir_all(directory)
        .and_then(|()| std::env::set_current_dir(directory))
        .map_err(Error::system(format!(
            "go to the working directory {}",
            directory.display()
        )))?;
    if init_spec.isolation == Isolation::User {
        seem(&init_spec.user)?;
        drop_capabilities(&init_spec.user.dropped)?;
    } else {
        drop_capabilities(&init_spec.user.dropped)?;
        become_user(&init_spec.user)?;
    }
    container_init::program(&init_spec.command, &init_spec.env)
}

fn proc(target: &Path) -> Result<(), Error> {
    namespace::mount_proc(target)?;
    let what = "restrict /proc in the container";
    for name in HIDDEN {
        let path = target.join(name);
        match fs::symlink_metadata(&path) {
            Ok(found) if found.is_dir() => {
                let flags = MsFlags::MS_RDONLY;
                mount(Some("tmpfs"), &path, Some("tmpfs"), flags, None::<&str>)
                    .map_err(Error::system(what))?;
            }
            Ok(_) => bind(Path::new("/dev/null"), &path, false).map_err(Error::system(what))?,
            Err(_) => {}
        }
    }
    for name in UNCHANGEABLE {
        let path = target.join(name);
        if path.exists() {
            bind(&path, &path, false).map_err(Error::system(what))?;
            make_read_only(&path).map_err(Error::system(what))?;
        }
    }
    Ok(())
}

pub(super) fn enter(root: &Path) -> nix::Result<()> {
    chdir(root)?;
    // Stacks the new root on the old one and unmounts the old one.
    pivot_root(".", ".")?;
    umount2(".", MntFlags::MNT_DETACH)?;
    chdir("/")
}
