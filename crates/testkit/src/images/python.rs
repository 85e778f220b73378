//! An image with Python alone, from Debian's packages.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::{ImageConfig, Layer, NOBODY, PYTHON, debian, docker_archive, image, unpacked};

/// Besides Python, libraries that compiled packages of the Python package index expect.
const PACKAGES: [&str; 4] = ["libgomp1", "libquadmath0", "libstdc++6", "python3"];

/// What the packages want and programs do not use.
const UNUSED: [&str; 4] = ["adduser", "debconf", "passwd", "tzdata"];

/// Change this number to build the image again.
const RECIPE: &str = "2";

/// The archive of [`PYTHON`].
pub fn python() -> Result<PathBuf> {
    image("python", &[RECIPE], |place, archive| {
        let root = place.join("root");
        make_root(&root, &place.join("debs"))?;
        docker_archive(archive, PYTHON, &[layer(&root)?], &config())?;
        Ok(std::fs::remove_dir_all(&root)?)
    })
}

/// The files of [`PYTHON`], to run it without an archive.
pub fn python_root() -> Result<PathBuf> {
    unpacked("python", &python()?)
}

/// The layer that images with Python begin with, byte by byte that of [`PYTHON`].
pub(super) fn base_layer() -> Result<Layer> {
    layer(&python_root()?)
}

fn layer(root: &Path) -> Result<Layer> {
    Ok(Layer::new().tree(root)?.directory("tmp", 0o1777))
}

pub(super) fn config() -> ImageConfig {
    let env = [
        "PATH=/usr/local/bin:/usr/sbin:/usr/bin",
        "HOME=/tmp",
        "PYTHONUNBUFFERED=1",
    ];
    ImageConfig {
        entrypoint: Vec::new(),
        env: env.map(str::to_owned).to_vec(),
        user: NOBODY.to_owned(),
        workdir: "/tmp".to_owned(),
    }
}

fn make_root(root: &Path, debs: &Path) -> Result<()> {
    debian::make_root(root, debs, &PACKAGES, &UNUSED)?;
    debian::inside(root, &["ldconfig"])?;
    debian::compile_python(root);
    debian::inside(root, &["python3", "-c", "import json, socket, ssl"])
        .context("the image does not work")?;
    Ok(())
}
