//! An image with Python and `PyTorch` for processors, from Debian's packages.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use super::{ImageConfig, Layer, NOBODY, TORCH, debian, docker_archive, image};

/// What the packages want and training on processors does not use: display drivers, fonts, maps,
/// compilers' tests.
pub(super) const UNUSED: [&str; 15] = [
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

/// Change this number to build the image again.
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
                // Redirection of a worker's output does not work in this version on Python 3.11
                // otherwise.
                "PET_REDIRECTS=9:1",
                "PET_TEE=9:1",
            ]
            .map(str::to_owned)
            .to_vec(),
            user: NOBODY.to_owned(),
            workdir: "/tmp".to_owned(),
        };
        docker_archive(archive, TORCH, &[layer], &config)?;
        fs::remove_dir_all(&root)?;
        Ok(())
    })
}

fn make_root(root: &Path, debs: &Path) -> Result<()> {
    debian::make_root(root, debs, &["python3-torch"], &UNUSED)?;
    remove_tests(&root.join("usr/lib/python3/dist-packages"))?;
    choose_algebra(root)?;
    let inside = |arguments: &[&str]| debian::inside(root, arguments);
    inside(&["ldconfig"])?;
    debian::compile_python(root);
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
pub(super) fn remove_tests(dir: &Path) -> Result<()> {
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

/// Debian links one of several implementations when a package is configured, which is not done
/// here.
pub(super) fn choose_algebra(root: &Path) -> Result<()> {
    let libraries = debian::libraries(root)?;
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
