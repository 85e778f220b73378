//! Root file systems from Debian's packages, unpacked and not configured.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use super::{GROUP, PASSWD};
use crate::cluster_programs::{Programs, download, unpack};
use crate::command::run;

/// Documentation, which is removed.
const DOCUMENTS: [&str; 7] = [
    "usr/share/doc",
    "usr/share/man",
    "usr/share/locale",
    "usr/share/info",
    "usr/share/icons",
    "usr/include",
    "var",
];

/// Unpacks packages and all that they need, but for those that are `unused`, with a shell and small
/// tools.
pub(super) fn make_root(root: &Path, debs: &Path, packages: &[&str], unused: &[&str]) -> Result<()> {
    make_whole_root(root, debs, packages, unused)?;
    for name in DOCUMENTS {
        let path = root.join(name);
        if path.exists() {
            fs::remove_dir_all(&path)?;
        }
    }
    Ok(fs::create_dir_all(root.join("var/tmp"))?)
}

/// The same, with all that only a compiler reads.
pub(super) fn make_whole_root(root: &Path, debs: &Path, packages: &[&str], unused: &[&str]) -> Result<()> {
    fs::create_dir_all(debs)?;
    download(debs, &with_dependencies(packages, unused)?)?;
    for name in ["bin", "lib", "lib64", "sbin"] {
        fs::create_dir_all(root.join("usr").join(name))?;
        symlink(Path::new("usr").join(name), root.join(name))?;
    }
    unpack(debs, root)?;
    fs::remove_dir_all(debs)?;
    for name in ["tmp", "proc", "sys", "dev", "var/tmp", "usr/local/bin"] {
        fs::create_dir_all(root.join(name))?;
    }
    fs::write(root.join("etc/passwd"), PASSWD)?;
    fs::write(root.join("etc/group"), GROUP)?;
    add_shell(root)
}

/// Runs a command in a root. Programs want random numbers and shared memory; a mount namespace
/// takes the devices away again.
pub(super) fn inside(root: &Path, arguments: &[&str]) -> Result<String> {
    let script = r#"mount -n --rbind /dev "$0/dev"; mount -n -t proc proc "$0/proc"; exec chroot "$0" "$@""#;
    let mut command = Command::new("unshare");
    command
        .args(["--mount", "--pid", "--fork", "--kill-child", "sh", "-ec", script])
        .arg(root)
        .args(arguments);
    run(command
        .env("HOME", "/tmp")
        .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin"))
}

/// Compiles all of Python: a user who can't write there would do it at every start.
pub(super) fn compile_python(root: &Path) {
    let compile = [
        "python3",
        "-m",
        "compileall",
        "-q",
        "-j",
        "2",
        "--invalidation-mode",
        "unchecked-hash",
        "/usr/lib/python3",
        "/usr/lib/python3.11",
    ];
    // Some packages have files that are for other versions of Python.
    let _ = inside(root, &compile);
}

/// Where the libraries of this machine's architecture are.
pub(super) fn libraries(root: &Path) -> Result<PathBuf> {
    fs::read_dir(root.join("usr/lib"))?
        .flatten()
        .map(|item| item.path())
        .find(|path| path.join("libc.so.6").exists())
        .context("the packages brought no libraries")
}

/// All packages that are needed on an empty machine.
fn with_dependencies(packages: &[&str], unused: &[&str]) -> Result<Vec<String>> {
    let mut apt = Command::new("apt-get");
    apt.args([
        "install",
        "-s",
        "--no-install-recommends",
        "-o",
        "Dir::State::status=/dev/null",
    ]);
    // Every machine has the last, so nothing asks for it.
    apt.args(packages).arg("libc-bin");
    let plan = run(&mut apt).or_else(|_| {
        run(Command::new("apt-get").arg("update"))?;
        run(&mut apt)
    });
    let plan = plan.with_context(|| {
        format!("an image is made from Debian's packages {packages:?}, which can't be found")
    })?;
    let names = plan
        .lines()
        .filter_map(|line| line.strip_prefix("Inst ")?.split_whitespace().next());
    let names: Vec<_> = names
        .filter(|name| !unused.contains(name))
        .map(str::to_owned)
        .collect();
    if names.is_empty() {
        bail!("apt-get named no packages for {packages:?}");
    }
    Ok(names)
}

/// Scripts in tests want a shell and some tools.
fn add_shell(root: &Path) -> Result<()> {
    let busybox = Programs::ensure(true)?.debian("bin/busybox");
    fs::copy(&busybox, root.join("bin/busybox"))?;
    for name in run(Command::new(&busybox).arg("--list"))?.lines() {
        let path = root.join("bin").join(name);
        if !path.exists() && !root.join("usr/sbin").join(name).exists() {
            symlink("busybox", &path)?;
        }
    }
    Ok(())
}
