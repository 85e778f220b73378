//! Finds out what a machine allows by trying it in a short-lived process.

use std::ffi::OsString;
use std::fs::{self, File};
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};

use nix::sched::{CloneFlags, unshare};
use nix::unistd::geteuid;

use super::stages::{flags, stage};
use super::{Ability, Error, Isolation, Network, Report, link, namespace};
use crate::host::layer::{Layer, Layering};
use crate::host::{cgroup, remove_tree};

/// Starts a process that tries everything, and returns its report.
pub(super) fn ask(wanted: Option<Isolation>, scratch: &Path) -> Report {
    let candidates: &[Isolation] = match &wanted {
        Some(wanted) => std::slice::from_ref(wanted),
        // Root in a container may lack capabilities, but be allowed what every user is.
        None if geteuid().is_root() && has_every_user() => &[Isolation::Root, Isolation::User],
        None => &[Isolation::User],
    };
    let mut report = Report::plain("not tried");
    for isolation in candidates {
        report = attempt(*isolation, scratch);
        if report.isolation != Isolation::Plain {
            break;
        }
    }
    report
}

/// Whether this is not a user namespace with a part of the users only.
fn has_every_user() -> bool {
    let map = fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    map.split_whitespace().eq(["0", "0", "4294967295"])
}

fn attempt(isolation: Isolation, scratch: &Path) -> Report {
    let name = if isolation == Isolation::Root {
        "root"
    } else {
        "user"
    };
    let mut probe = stage("probe", &[name.as_ref(), scratch.as_os_str()]);
    let output = probe.stdin(Stdio::null()).output();
    match output {
        Err(error) => Report::plain(format!("could not start this program again: {error}")),
        Ok(output) => serde_json::from_slice(&output.stdout).unwrap_or_else(|_| {
            let message = String::from_utf8_lossy(&output.stderr);
            let message = message.trim().trim_start_matches("trainyard: ");
            Report::plain(format!("{message}{}", hint().unwrap_or_default()))
        }),
    }
}

/// The stage: fails without namespaces, else prints its report.
pub(crate) fn run(arguments: &[OsString]) -> Result<ExitCode, Error> {
    let [name, scratch] = arguments else {
        return Err(Error::InvalidVariable);
    };
    let isolation = if name == "root" {
        Isolation::Root
    } else {
        Isolation::User
    };
    // Before this process enters namespaces in which control groups may not be visible.
    let cgroups = cgroup::ability();
    namespace::leave(
        isolation,
        flags(isolation, Network::Host) | CloneFlags::CLONE_NEWUTS | CloneFlags::CLONE_NEWIPC,
    )?;
    let overlay = Ability::of("overlay file system", try_overlay(isolation, Path::new(scratch)));
    let network = Ability::of("network namespace", try_network());
    mount_proc_in_child()?;
    let report = Report {
        isolation,
        namespaces: Ability::Yes,
        overlay,
        network,
        cgroups,
    };
    println!(
        "{}",
        serde_json::to_string(&report).map_err(|_| Error::InvalidVariable)?
    );
    Ok(ExitCode::SUCCESS)
}

/// `/proc` can only be mounted from within its process namespace.
fn mount_proc_in_child() -> Result<(), Error> {
    let mut child: Command = stage("probe-proc", &[]);
    let status = child.status().map_err(|source| Error::Start {
        what: "a process in a new process namespace",
        source,
    })?;
    if status.success() {
        Ok(())
    } else {
        // It has printed the error.
        std::process::exit(i32::from(super::STAGE_FAILED))
    }
}

/// The stage of [`mount_proc_in_child`].
pub(crate) fn proc_can_be_mounted() -> Result<ExitCode, Error> {
    namespace::mount_proc(Path::new("/proc"))?;
    Ok(ExitCode::SUCCESS)
}

fn try_overlay(isolation: Isolation, scratch: &Path) -> Result<(), String> {
    let place = scratch.join(format!("probe-{}", std::process::id()));
    let target = place.join("root");
    let result = fs::create_dir_all(&target)
        .map_err(|e| e.to_string())
        .and_then(|()| {
            let mut layering = Layering::new(place.join("layers"), isolation);
            let layer = layering
                .put(Path::new("/usr"), &target)
                .map_err(|e| e.to_string())?;
            match layer {
                Layer::Overlay => File::create(target.join("probe"))
                    .map(drop)
                    .map_err(|e| e.to_string()),
                Layer::ReadOnly(reason) => Err(reason),
            }
        });
    // Unmounted, so that its directories can be removed.
    let _ = nix::mount::umount(&target);
    remove_tree(&place);
    result
}

fn try_network() -> Result<(), String> {
    unshare(CloneFlags::CLONE_NEWNET).map_err(|e| e.desc().to_owned())?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .build()
        .map_err(|e| e.to_string())?;
    runtime.block_on(async {
        let bridge = link::Bridge::make().await.map_err(|e| e.to_string())?;
        let here = File::open("/proc/self/ns/net").map_err(|e| e.to_string())?;
        unshare(CloneFlags::CLONE_NEWNET).map_err(|e| e.desc().to_owned())?;
        let pod = File::open("/proc/self/ns/net").map_err(|e| e.to_string())?;
        let attached = bridge.attach(1, &pod).await.map_err(|e| e.to_string());
        drop(here);
        attached
    })
}

/// Known settings that forbid user namespaces, and how to change them.
fn hint() -> Option<String> {
    let value = |path: &str| fs::read_to_string(path).ok().map(|v| v.trim().to_owned());
    let is = |path: &str, wanted: &str| value(path).as_deref() == Some(wanted);
    let setting = if is("/proc/sys/kernel/unprivileged_userns_clone", "0") {
        "kernel.unprivileged_userns_clone=1"
    } else if is("/proc/sys/user/max_user_namespaces", "0") {
        "user.max_user_namespaces=10000"
    } else if is("/proc/sys/kernel/apparmor_restrict_unprivileged_userns", "1") {
        "kernel.apparmor_restrict_unprivileged_userns=0"
    } else {
        return None;
    };
    Some(format!(
        "; this machine forbids user namespaces to users, an administrator can allow them with: sysctl -w {setting}"
    ))
}
