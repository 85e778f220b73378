//! The programs that a cluster consists of: Kubernetes, etcd and `CoreDNS` built from Go modules;
//! the container runtime from Debian packages that are unpacked beside them, not installed, so that
//! no service starts and nothing of the machine changes.

use std::env;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};

use crate::cache;
use crate::command::run;

const VERSION: &str = "v1.36.3";

/// Compiled in, so that the binary builds the same cluster from anywhere.
const SOURCES: [(&str, &str); 6] = [
    ("go.mod", include_str!("../../../tools/cluster/go.mod")),
    ("go.sum", include_str!("../../../tools/cluster/go.sum")),
    ("tools.go", include_str!("../../../tools/cluster/tools.go")),
    ("dns/go.mod", include_str!("../../../tools/cluster/dns/go.mod")),
    ("dns/go.sum", include_str!("../../../tools/cluster/dns/go.sum")),
    ("dns/main.go", include_str!("../../../tools/cluster/dns/main.go")),
];

/// Name of the binary, directory of its module, package.
const GO_PROGRAMS: [(&str, &str, &str); 8] = [
    ("etcd", ".", "go.etcd.io/etcd/server/v3"),
    ("kubectl", ".", "k8s.io/kubernetes/cmd/kubectl"),
    ("kube-apiserver", ".", "k8s.io/kubernetes/cmd/kube-apiserver"),
    (
        "kube-controller-manager",
        ".",
        "k8s.io/kubernetes/cmd/kube-controller-manager",
    ),
    ("kube-scheduler", ".", "k8s.io/kubernetes/cmd/kube-scheduler"),
    ("kubelet", ".", "k8s.io/kubernetes/cmd/kubelet"),
    ("kube-proxy", ".", "k8s.io/kubernetes/cmd/kube-proxy"),
    ("coredns", "dns", "."),
];

/// The runtime and the libraries it needs beyond libc.
const PACKAGES: [&str; 13] = [
    "containerd",
    "runc",
    "containernetworking-plugins",
    "iptables",
    "busybox-static",
    "libip4tc2",
    "libip6tc2",
    "libmnl0",
    "libnetfilter-conntrack3",
    "libnfnetlink0",
    "libnftnl11",
    "libseccomp2",
    "libxtables12",
];

/// Where the programs are.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Programs {
    /// Kubernetes, etcd, `CoreDNS`.
    pub bin: PathBuf,
    /// The root that the Debian packages are unpacked in; empty when there are no nodes.
    pub system: PathBuf,
}

impl Programs {
    /// Builds what is missing. Without nodes the Debian packages are not needed.
    pub fn ensure(nodes: bool) -> Result<Self> {
        let bin = go_programs()?;
        let system = if nodes { debian_programs()? } else { PathBuf::new() };
        Ok(Self { bin, system })
    }

    /// The path of one of the programs built from Go.
    pub fn go(&self, name: &str) -> String {
        self.bin.join(name).display().to_string()
    }

    /// The path of one of Debian's programs.
    pub fn debian(&self, path: &str) -> String {
        self.system.join(path).display().to_string()
    }

    /// The environment in which all of them find each other and their libraries.
    pub fn environment(&self) -> Vec<(String, String)> {
        let old = env::var("PATH").unwrap_or_else(|_| "/usr/sbin:/usr/bin:/sbin:/bin".to_owned());
        if self.system.as_os_str().is_empty() {
            return vec![("PATH".to_owned(), format!("{}:{old}", self.bin.display()))];
        }
        let path = format!(
            "{}:{}:{}:{old}",
            self.bin.display(),
            self.debian("usr/sbin"),
            self.debian("usr/bin")
        );
        let libraries = self.debian(LIBRARIES);
        vec![
            ("PATH".to_owned(), path),
            ("XTABLES_LIBDIR".to_owned(), format!("{libraries}/xtables")),
            ("LD_LIBRARY_PATH".to_owned(), libraries),
        ]
    }
}

#[cfg(target_arch = "aarch64")]
const LIBRARIES: &str = "usr/lib/aarch64-linux-gnu";
#[cfg(not(target_arch = "aarch64"))]
const LIBRARIES: &str = "usr/lib/x86_64-linux-gnu";

fn go_programs() -> Result<PathBuf> {
    let parts = SOURCES.iter().flat_map(|(name, content)| [*name, *content]);
    let home = cache::root()?
        .join("cluster")
        .join(cache::key(parts.chain([VERSION])));
    let what = "the cluster's programs (about ten minutes on two cores, once)";
    cache::publish(&home, what, |place| {
        let source = place.join("src");
        for (name, content) in SOURCES {
            let path = source.join(name);
            fs::create_dir_all(path.parent().unwrap_or(&source))?;
            fs::write(&path, content)?;
        }
        let bin = place.join("bin");
        fs::create_dir_all(&bin)?;
        for (name, module, package) in GO_PROGRAMS {
            let start = Instant::now();
            go_build(&source.join(module), package, &bin.join(name))?;
            eprintln!("  {name} {:.1} s", start.elapsed().as_secs_f64());
        }
        Ok(())
    })?;
    Ok(home.join("bin"))
}

fn go_build(module: &Path, package: &str, output: &Path) -> Result<()> {
    let mut flags = "-s -w".to_owned();
    // Clients would see v0.0.0 otherwise.
    let (major, minor) = ("1", VERSION.split('.').nth(1).unwrap_or_default());
    for variables in ["k8s.io/component-base/version", "k8s.io/client-go/pkg/version"] {
        for (name, value) in [("gitVersion", VERSION), ("gitMajor", major), ("gitMinor", minor)] {
            flags.extend([" -X ", variables, ".", name, "=", value]);
        }
    }
    run(Command::new("go")
        .args(["build", "-trimpath", "-buildvcs=false", "-ldflags", &flags, "-o"])
        .arg(output)
        .arg(package)
        .env("CGO_ENABLED", "0")
        .current_dir(module))
    .context("building the test cluster needs Go 1.26 or newer and a way to the Go module proxy")?;
    Ok(())
}

fn debian_programs() -> Result<PathBuf> {
    let home = cache::root()?
        .join("cluster")
        .join(format!("system-{}", cache::key(PACKAGES)));
    cache::publish(
        &home,
        "the container runtime (Debian packages, unpacked)",
        |place| {
            let packages = place.join("debs");
            fs::create_dir_all(&packages)?;
            download(&packages, &PACKAGES)?;
            unpack(&packages, place)?;
            fs::remove_dir_all(&packages)?;
            // Debian makes these links when a package is configured, which is not done here.
            for name in ["iptables", "ip6tables"] {
                for end in ["", "-save", "-restore"] {
                    symlink("xtables-nft-multi", place.join(format!("usr/sbin/{name}{end}")))?;
                }
            }
            Ok(())
        },
    )?;
    Ok(home)
}

/// Downloads Debian packages into a directory. The package lists are refreshed only when that is
/// what is missing.
pub(crate) fn download(into: &Path, packages: &[impl AsRef<str>]) -> Result<()> {
    let names: Vec<_> = packages.iter().map(AsRef::as_ref).collect();
    let mut apt = Command::new("apt-get");
    apt.arg("download").args(&names).current_dir(into);
    if run(&mut apt).is_ok() {
        return Ok(());
    }
    eprintln!("  refreshing the package lists");
    run(Command::new("apt-get").arg("update")).context("the package lists can't be refreshed")?;
    run(&mut apt)
        .context("Debian packages can't be downloaded; the test cluster needs Debian 12 or newer")?;
    Ok(())
}

/// Unpacks all packages of a directory into a root.
pub(crate) fn unpack(packages: &Path, root: &Path) -> Result<()> {
    let mut found = false;
    for item in fs::read_dir(packages)? {
        let path = item?.path();
        if path.extension().is_none_or(|extension| extension != "deb") {
            continue;
        }
        found = true;
        // Not `dpkg-deb -x`: it replaces a link such as /lib -> usr/lib by a directory.
        let script = r#"dpkg-deb --fsys-tarfile "$1" | tar -x --keep-directory-symlink -C "$2""#;
        run(Command::new("sh")
            .args(["-ec", script, "unpack"])
            .arg(&path)
            .arg(root))?;
    }
    if !found {
        bail!("no package was downloaded into {}", packages.display());
    }
    Ok(())
}
