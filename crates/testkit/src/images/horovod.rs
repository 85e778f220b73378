//! An image with Horovod, over Open MPI and over Gloo, and `DeepSpeed`, both for Debian's
//! `PyTorch`, and a training with each.
//!
//! Horovod is compiled, in a root of its own that has Debian's compiler: what comes out is kept
//! apart from the image, since it takes minutes.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use super::torch::{UNUSED, choose_algebra, remove_tests};
use super::{HOROVOD, ImageConfig, Layer, NOBODY, debian, docker_archive, image, unpacked};
use crate::cache::{self, key, publish};
use crate::command::run;

/// What every process of a test does: the programs of the examples.
const TRAIN_HOROVOD: &str = include_str!("../../../../examples/horovod/train.py");
const TRAIN_DEEPSPEED: &str = include_str!("../../../../examples/deepspeed/train.py");

/// From the Python package index, as source.
const HOROVOD_SOURCE: &str = "horovod==0.28.1";
/// The last that runs with this `PyTorch`.
const DEEPSPEED_SOURCE: &str = "deepspeed==0.14.4";
/// What `DeepSpeed` needs and Debian does not have.
const HJSON: &str = "hjson==3.1.0";

/// What both need when they run. The shell of busybox would take its own `hostname`, which does not
/// know what is asked of it.
const RUN: [&str; 16] = [
    "dash",
    "hostname",
    "numactl",
    "openmpi-bin",
    "python3-cffi-backend",
    "python3-cloudpickle",
    "python3-cpuinfo",
    "python3-distutils",
    "python3-mpi4py",
    "python3-packaging",
    "python3-psutil",
    "python3-pydantic",
    "python3-setuptools",
    "python3-torch",
    "python3-tqdm",
    "python3-yaml",
];

/// What Horovod needs to be compiled, besides.
const COMPILE: [&str; 10] = [
    "cmake",
    "g++",
    "libopenmpi-dev",
    "libtorch-dev",
    "make",
    "pybind11-dev",
    "python3-cffi",
    "python3-dev",
    "python3-setuptools",
    "python3-wheel",
];

/// Without debugging information and with little optimisation, it takes half the time.
const BUILD: &str = r#"
ldconfig
cd /tmp/horovod
sed -i 's/"-O2" "-O3"/"-O2 -g" "-O1"/' CMakeLists.txt
export CC=gcc CXX=g++ MAKEFLAGS=-j2 HOROVOD_WITH_PYTORCH=1 HOROVOD_WITHOUT_TENSORFLOW=1 HOROVOD_WITHOUT_MXNET=1
export HOROVOD_WITH_MPI=1 HOROVOD_WITH_GLOO=1
python3 setup.py -q bdist_wheel
"#;

/// The program that the package's installer would make.
const HOROVODRUN: &str = "\
#!/usr/bin/python3
from horovod.runner.launch import run_commandline
if __name__ == '__main__':
    run_commandline()
";

/// Without a compiler in the image, `DeepSpeed` can't build its shared memory operator.
const WITHOUT_SHORTCUT: &str = "\nbuild_shm_op = lambda: None\n";

/// Change this number to build the image again.
const RECIPE: &str = "1";

/// The archive of [`HOROVOD`].
pub fn horovod() -> Result<PathBuf> {
    let wheel = wheel()?;
    let parts = [
        RECIPE,
        TRAIN_HOROVOD,
        TRAIN_DEEPSPEED,
        DEEPSPEED_SOURCE,
        HJSON,
        BUILD,
        &RUN.concat(),
    ];
    image("horovod", &parts, |place, archive| {
        let root = place.join("root");
        make_root(place, &root, &wheel)?;
        let layer = Layer::new().tree(&root)?.directory("tmp", 0o1777);
        let config = ImageConfig {
            entrypoint: Vec::new(),
            env: vec!["PATH=/usr/local/bin:/usr/sbin:/usr/bin".to_owned()],
            user: NOBODY.to_owned(),
            workdir: "/tmp".to_owned(),
        };
        docker_archive(archive, HOROVOD, &[layer], &config)?;
        fs::remove_dir_all(&root)?;
        Ok(())
    })
}

/// The files of [`HOROVOD`], to run it without an archive.
pub fn horovod_root() -> Result<PathBuf> {
    unpacked("horovod", &horovod()?)
}

/// Horovod, compiled: the directory with its wheel.
fn wheel() -> Result<PathBuf> {
    let home = cache::root()?.join("images").join(format!(
        "horovod-wheel-{}",
        key([BUILD, HOROVOD_SOURCE, &COMPILE.concat()])
    ));
    publish(&home, "Horovod, which takes some minutes", |place| {
        let root = place.join("root");
        let packages = [&RUN[..], &COMPILE].concat();
        debian::make_whole_root(&root, &place.join("debs"), &packages, &[])?;
        choose_algebra(&root)?;
        for name in ["mpicc", "mpicxx"] {
            symlink(format!("{name}.openmpi"), root.join("usr/bin").join(name))?;
        }
        source(place, HOROVOD_SOURCE, &root.join("tmp/horovod"))?;
        debian::inside(&root, &["sh", "-ec", BUILD]).context("Horovod can't be compiled")?;
        fs::rename(root.join("tmp/horovod/dist"), place.join("dist"))?;
        fs::remove_dir_all(place.join("python"))?;
        Ok(fs::remove_dir_all(&root)?)
    })?;
    Ok(home.join("dist"))
}

fn make_root(place: &Path, root: &Path, wheel: &Path) -> Result<()> {
    debian::make_root(root, &place.join("debs"), &RUN, &UNUSED)?;
    let packages = root.join("usr/lib/python3/dist-packages");
    remove_tests(&packages)?;
    choose_algebra(root)?;
    let unzip = r#"for wheel in "$0"/*.whl; do unzip -q -o "$wheel" -d "$1"; done"#;
    run(Command::new("sh").args(["-ec", unzip]).arg(wheel).arg(&packages))?;
    let local = root.join("usr/local");
    symlink("/usr/bin/mpirun.openmpi", local.join("bin/mpirun"))?;
    let shell = root.join("usr/bin/sh");
    fs::remove_file(&shell)?;
    symlink("dash", &shell)?;
    let deepspeed = place.join("deepspeed");
    source(place, DEEPSPEED_SOURCE, &deepspeed)?;
    fs::rename(deepspeed.join("deepspeed"), packages.join("deepspeed"))?;
    fs::rename(deepspeed.join("bin/deepspeed"), local.join("bin/deepspeed"))?;
    let backend = packages.join("deepspeed/comm/torch.py");
    let changed = fs::read_to_string(&backend)?.replace(
        "\nclass TorchBackend",
        &format!("{WITHOUT_SHORTCUT}\nclass TorchBackend"),
    );
    fs::write(&backend, changed)?;
    fs::remove_dir_all(&deepspeed)?;
    let wheels = place.join("wheels");
    pip(
        place,
        &["download", "--quiet", "--no-deps", "--dest"],
        &wheels,
        HJSON,
    )?;
    run(Command::new("sh")
        .args(["-ec", unzip])
        .arg(&wheels)
        .arg(&packages))?;
    fs::remove_dir_all(&wheels)?;
    for (path, text) in [
        ("bin/horovodrun", HOROVODRUN),
        ("train-horovod.py", TRAIN_HOROVOD),
        ("train-deepspeed.py", TRAIN_DEEPSPEED),
    ] {
        fs::write(local.join(path), text)?;
        fs::set_permissions(local.join(path), fs::Permissions::from_mode(0o755))?;
    }
    fs::remove_dir_all(place.join("python"))?;
    debian::inside(root, &["ldconfig"])?;
    debian::compile_python(root);
    let check = "import horovod.torch as h; assert h.mpi_built() and h.gloo_built(); import deepspeed";
    debian::inside(root, &["python3", "-c", check]).context("the image does not work")?;
    Ok(())
}

/// The source of a Python package, below a directory of its own.
fn source(place: &Path, package: &str, into: &Path) -> Result<()> {
    let archives = place.join("source");
    let how = [
        "download",
        "--quiet",
        "--no-deps",
        "--no-build-isolation",
        "--no-binary",
        ":all:",
        "--dest",
    ];
    pip(place, &how, &archives, package)?;
    fs::create_dir_all(into)?;
    let script = r#"tar -xzf "$0"/*.tar.gz --strip-components 1 -C "$1""#;
    run(Command::new("sh").args(["-ec", script]).arg(&archives).arg(into))?;
    Ok(fs::remove_dir_all(&archives)?)
}

/// Calls the installer of a virtual environment that can look into sources.
fn pip(place: &Path, how: &[&str], into: &Path, package: &str) -> Result<()> {
    let python = place.join("python");
    let pip = python.join("bin/pip");
    if !python.exists() {
        run(Command::new("python3").args(["-m", "venv"]).arg(&python))
            .context("Horovod is a Python package: install python3-venv")?;
        run(Command::new(&pip).args(["install", "--quiet", "setuptools<70", "wheel", "packaging"]))?;
    }
    run(Command::new(pip).args(how).arg(into).arg(package))?;
    Ok(())
}
