//! Whether this machine can run a cluster at all.

use std::fmt;
use std::path::Path;
use std::process::Command;

use anyhow::{Result, bail};

use crate::command::run;

/// This machine can't run a cluster: no fault, but a reason to skip the tests that need one.
#[derive(Debug)]
pub struct Unsupported(pub String);

impl fmt::Display for Unsupported {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "a test cluster can't run on this machine: {}", self.0)
    }
}

impl std::error::Error for Unsupported {}

/// Each line is one thing that a node needs, tried in namespaces that go away with the script.
const PROBE: &str = r#"
try() { what=$1; shift; "$@" >/dev/null 2>&1 || { echo "$what"; exit 0; }; }
try "the kernel has no bridges" ip link add probe0 type bridge
try "the kernel has no veth links" ip link add probe1 type veth peer name probe2
try "there are no control groups at /sys/fs/cgroup" test -d /sys/fs/cgroup
try "the control groups are read-only" sh -c 'd=$(ls -d /sys/fs/cgroup/memory /sys/fs/cgroup 2>/dev/null | head -n 1); mkdir $d/trainyard-probe-$$ && rmdir $d/trainyard-probe-$$'
try "tmpfs can't be mounted" mount -n -t tmpfs tmpfs /mnt
mkdir -p "$1/lower" "$1/upper" "$1/work" "$1/merged"
try "overlays can't be mounted in $1" mount -n -t overlay overlay -o "lowerdir=$1/lower,upperdir=$1/upper,workdir=$1/work" "$1/merged"
"#;

/// What can be said before anything is written.
pub fn check_user(nodes: bool) -> Result<()> {
    if nodes && !rustix::process::geteuid().is_root() {
        bail!(Unsupported(
            "nodes need root (use --no-nodes for an API server alone)".to_owned()
        ));
    }
    Ok(())
}

/// An [`Unsupported`] that says what is missing. `dir` is where the cluster's files will be.
pub fn check(nodes: bool, dir: &Path) -> Result<()> {
    let mut namespaces = super::supervisor::in_namespaces(nodes);
    if !nodes {
        if let Err(error) = run(namespaces.arg("true")) {
            bail!(Unsupported(format!("namespaces can't be made: {error}")));
        }
        return Ok(());
    }
    let probe = dir.join("probe");
    let result = run(namespaces.args(["sh", "-c", PROBE, "probe"]).arg(&probe));
    let _ = std::fs::remove_dir_all(&probe);
    match result {
        Err(error) => bail!(Unsupported(format!("namespaces can't be made: {error}"))),
        Ok(missing) if !missing.trim().is_empty() => bail!(Unsupported(missing.trim().to_owned())),
        Ok(_) => packet_filter(),
    }
}

/// Services are packet filter rules.
fn packet_filter() -> Result<()> {
    let programs = crate::cluster_programs::Programs::ensure(true)?;
    let mut command = Command::new("unshare");
    command
        .args(["--net", "--", "iptables", "-t", "nat", "-L", "-n"])
        .envs(programs.environment());
    if let Err(error) = run(&mut command) {
        bail!(Unsupported(format!("the kernel has no packet filter: {error}")));
    }
    Ok(())
}
