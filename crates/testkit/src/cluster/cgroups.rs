//! The control groups that the nodes put their pods in.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::plan::Addresses;
use crate::command::wait_until;

const MOUNT: &str = "/sys/fs/cgroup";

/// All hierarchies: one per controller in version 1 (beside which a version 2 may exist), else just
/// one.
fn hierarchies() -> Result<Vec<PathBuf>> {
    let mount = Path::new(MOUNT);
    if mount.join("cgroup.controllers").exists() {
        return Ok(vec![mount.to_path_buf()]);
    }
    let mut found = Vec::new();
    for item in fs::read_dir(mount).context("this machine has no control groups at /sys/fs/cgroup")? {
        let item = item?;
        // Links are other names of the same hierarchy.
        if item.file_type()?.is_dir() {
            found.push(item.path());
        }
    }
    Ok(found)
}

/// Makes a node's group in every hierarchy.
pub fn make(addresses: Addresses, node: &str) -> Result<()> {
    for hierarchy in hierarchies()? {
        let mut group = hierarchy.clone();
        for part in [addresses.cgroup().as_str(), node] {
            let parent = group.clone();
            group.push(part);
            fs::create_dir_all(&group)
                .with_context(|| format!("cannot make the group {}", group.display()))?;
            // A new cpuset has no processors.
            for file in ["cpuset.cpus", "cpuset.mems"] {
                if hierarchy.ends_with("cpuset") {
                    fs::write(group.join(file), fs::read(parent.join(file))?)?;
                }
            }
            if let Ok(controllers) = fs::read_to_string(parent.join("cgroup.controllers")) {
                for controller in controllers.split_whitespace() {
                    // Some controllers can't be delegated; the kubelet reports those it needs.
                    let _ = fs::write(parent.join("cgroup.subtree_control"), format!("+{controller}"));
                }
            }
        }
    }
    Ok(())
}

/// Removes a cluster's groups. The kernel may need a moment after the end of their processes.
pub fn sweep(addresses: Addresses) -> Result<()> {
    for hierarchy in hierarchies().unwrap_or_default() {
        let group = hierarchy.join(addresses.cgroup());
        let what = format!("the control group {} is empty", group.display());
        wait_until(&what, || Ok(remove(&group).is_ok()))?;
    }
    Ok(())
}

fn remove(group: &Path) -> io::Result<()> {
    let items = match fs::read_dir(group) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        items => items?,
    };
    for item in items {
        let item = item?;
        if item.file_type()?.is_dir() {
            remove(&item.path())?;
        }
    }
    fs::remove_dir(group)
}
