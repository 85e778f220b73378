//! An image with Python and `PyTorch` for processors, from Debian's packages.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use super::{ImageConfig, Layer, NOBODY, TORCH, docker_archive, image};
use crate::cluster::{Programs, download, run, unpack};

/// What the packages want and training on processors does not use: display drivers, fonts, maps, compilers' tests.
const UNUSED: [&str; 15] = [
    "adduser",
    "fonts-dejavu-core",
    "gdal-data",
    "gdal-plugins",
    "iso-codes",
    "libgl1-mesa-dri",
    "libllvm15",
    "libtorch-test",
    "libx11-data",
    "libz3-4",
    "passwd",
    "proj-data",
    "shared-mime-info",
    "tzdata",
    "xkb-data",
];

/// What nobody reads in a container.
const DOCUMENTS: [&str; 7] = [
    "usr/share/doc",
    "usr/share/man",
    "usr/share/locale",
    "usr/share/info",
    "usr/share/icons",
    "usr/include",
    "var",
];

/// The recipe's number: another one makes another image.
const RECIPE: &str = "4";

/// The archive of [`TORCH`].
pub fn torch() -> Result<PathBuf> {
    image("torch", &[RECIPE], |place, archive| {
        let root = place.join("root");
        make_root(&root, &place.join("debs"))?;
        let layer = Layer::new().tree(&root)?.directory("tmp", 0o1777);
        let config = ImageConfig {
            entrypoint: Vec::new(),
            env: [
                "PATH=/usr/local/bin:/usr/sbin:/usr/bin",
                "HOME=/tmp",
                "PYTHONUNBUFFERED=1",
                // Two small processors are shared by everything in a test.
                "OMP_NUM_THREADS=1",
                // Redirection of a worker's output does not work in this version on Python 3.11 otherwise.
                "PET_REDIRECTS=9:1",
                "PET_TEE=9:1",
            ]
            .map(str::to_owned)
            .to_vec(),
            user: NOBODY.to_owned(),
            workdir: "/tmp".to_owned(),
        };
        docker_archive(archive, TORCH, &layer, &config)?;
        fs::remove_dir_all(&root)?;
        Ok(())
    })
}

fn make_root(root: &Path, debs: &Path) -> Result<()> {
    fs::create_dir_all(debs)?;
    download(debs, &packages()?)?;
    for name in ["bin", "lib", "lib64", "sbin"] {
        fs::create_dir_all(root.join("usr").join(name))?;
        symlink(Path::new("usr").join(name), root.join(name))?;
    }
    unpack(debs, root)?;
    fs::remove_dir_all(debs)?;
    for name in DOCUMENTS {
        let path = root.join(name);
        if path.exists() {
            fs::remove_dir_all(&path)?;
        }
    }
    remove_tests(&root.join("usr/lib/python3/dist-packages"))?;
    for name in ["tmp", "proc", "sys", "dev", "var/tmp", "usr/local/bin"] {
        fs::create_dir_all(root.join(name))?;
    }
    fs::write(
        root.join("etc/passwd"),
        "root:x:0:0:root:/:/bin/sh\nnobody:x:65532:65532:nobody:/tmp:/bin/sh\n",
    )?;
    fs::write(root.join("etc/group"), "root:x:0:\nnobody:x:65532:\n")?;
    add_shell(root)?;
    choose_algebra(root)?;
    // Python wants random numbers and shared memory; a mount namespace takes the devices away again.
    let script = r#"mount -n --rbind /dev "$0/dev"; mount -n -t proc proc "$0/proc"; exec chroot "$0" "$@""#;
    let inside = |arguments: &[&str]| {
        let mut command = Command::new("unshare");
        command
            .args(["--mount", "--pid", "--fork", "--kill-child", "sh", "-ec", script])
            .arg(root)
            .args(arguments);
        run(command
            .env("HOME", "/tmp")
            .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin"))
    };
    inside(&["ldconfig"])?;
    // A user who can't write there would compile all of it at every start.
    let compile = [
        "python3",
        "-m",
        "compileall",
        "-q",
        "-j",
        "2",
        "--invalidation-mode",
        "unchecked-hash",
    ];
    // Some packages have files that are for other versions of Python.
    let _ = inside(&[&compile[..], &["/usr/lib/python3", "/usr/lib/python3.11"]].concat());
    let version = inside(&[
        "python3",
        "-c",
        "import torch, torch.distributed as d; assert d.is_available() and d.is_gloo_available(); print(torch.__version__)",
    ])
    .context("the image does not work")?;
    if !version.starts_with("1.13") {
        bail!(
            "Debian's PyTorch is now {}; the image is named {TORCH}",
            version.trim()
        );
    }
    Ok(())
}

/// Packages bring tests of their own, a tenth of everything.
fn remove_tests(dir: &Path) -> Result<()> {
    for item in fs::read_dir(dir)? {
        let item = item?;
        let name = item.file_name();
        if item.file_type()?.is_dir() {
            if name == "tests" {
                fs::remove_dir_all(item.path())?;
            } else {
                remove_tests(&item.path())?;
            }
        } else if dir.ends_with("torch/bin") && name.to_string_lossy().starts_with("test_") {
            fs::remove_file(item.path())?;
        }
    }
    Ok(())
}

/// All packages that are needed on an empty machine.
fn packages() -> Result<Vec<String>> {
    let mut apt = Command::new("apt-get");
    apt.args([
        "install",
        "-s",
        "--no-install-recommends",
        "-o",
        "Dir::State::status=/dev/null",
    ]);
    // Every machine has the second, so nothing asks for it.
    apt.args(["python3-torch", "libc-bin"]);
    let plan = run(&mut apt).or_else(|_| {
        run(Command::new("apt-get").arg("update"))?;
        run(&mut apt)
    });
    let plan = plan.context("the image with PyTorch is made from Debian's packages, which can't be found")?;
    let names = plan
        .lines()
        .filter_map(|line| line.strip_prefix("Inst ")?.split_whitespace().next());
    let names: Vec<_> = names
        .filter(|name| !UNUSED.contains(name))
        .map(str::to_owned)
        .collect();
    if names.is_empty() {
        bail!("apt-get named no packages for python3-torch");
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

/// Debian links one of several implementations when a package is configured, which is not done here.
fn choose_algebra(root: &Path) -> Result<()> {
    let libraries = fs::read_dir(root.join("usr/lib"))?
        .flatten()
        .map(|item| item.path())
        .find(|path| path.join("libtorch_cpu.so.1.13").exists() || path.join("libc.so.6").exists())
        .context("the packages brought no libraries")?;
    for (name, places) in [
        ("libblas.so.3", ["openblas-pthread", "blas"]),
        ("liblapack.so.3", ["openblas-pthread", "lapack"]),
    ] {
        let found = places
            .iter()
            .map(|place| Path::new(place).join(name))
            .find(|path| libraries.join(path).exists());
        let target = found.with_context(|| format!("the packages brought no {name}"))?;
        symlink(target, libraries.join(name))?;
    }
    Ok(())
}
