//! Images with frameworks from the Python package index. Each is [`PYTHON`](super::PYTHON) and one
//! layer with an environment, which is installed once for all of its frameworks.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use super::python::{base_layer, config, python_root};
use super::torch::remove_tests;
use super::{FRAMEWORKS_LARGE, FRAMEWORKS_SMALL, Layer, debian, docker_archive, image};
use crate::cache::{self, key, publish};
use crate::command::run;

/// Where Debian's Python looks for packages that are not Debian's.
const PACKAGES: &str = "usr/local/lib/python3.11/dist-packages";

/// Where an environment is installed before it is put in its place.
const NEW: &str = "new-packages";

/// Change this number to build the environments again.
const RECIPE: &str = "1";

/// Python packages that are installed together.
struct PythonEnvironment {
    name: &'static str,
    /// The image with it.
    reference: &'static str,
    /// All packages with their versions, so that nothing is left to resolve.
    requirements: &'static str,
    /// What must be possible to import.
    modules: &'static str,
}

const SMALL: PythonEnvironment = PythonEnvironment {
    name: "frameworks-small",
    reference: FRAMEWORKS_SMALL,
    requirements: include_str!("environments/small.txt"),
    modules: "dask, distributed, mxnet, xgboost",
};

const LARGE: PythonEnvironment = PythonEnvironment {
    name: "frameworks-large",
    reference: FRAMEWORKS_LARGE,
    requirements: include_str!("environments/large.txt"),
    modules: "jax, paddle, tensorflow",
};

/// The archive of [`FRAMEWORKS_SMALL`].
pub fn frameworks_small() -> Result<PathBuf> {
    SMALL.archive()
}

/// The files of [`FRAMEWORKS_SMALL`], to run it without an archive.
pub fn frameworks_small_root() -> Result<PathBuf> {
    SMALL.root()
}

/// The archive of [`FRAMEWORKS_LARGE`].
pub fn frameworks_large() -> Result<PathBuf> {
    LARGE.archive()
}

/// The files of [`FRAMEWORKS_LARGE`], to run it without an archive.
pub fn frameworks_large_root() -> Result<PathBuf> {
    LARGE.root()
}

impl PythonEnvironment {
    fn archive(&self) -> Result<PathBuf> {
        let home = self.installed()?;
        let made_of = home.display().to_string();
        image(self.name, &[&made_of], |_, archive| {
            let layers = [base_layer()?, Layer::new().tree(&home.join("layer"))?];
            docker_archive(archive, self.reference, &layers, &config())
        })
    }

    fn root(&self) -> Result<PathBuf> {
        Ok(self.installed()?.join("root"))
    }

    /// The directory with `layer`, what the environment adds to Python, and `root`, both together
    /// as hard links.
    fn installed(&self) -> Result<PathBuf> {
        let python = python_root()?;
        let made_of = python.display().to_string();
        let home = cache::root()?.join("images").join(format!(
            "{}-files-{}",
            self.name,
            key([RECIPE, &made_of, self.requirements, self.modules])
        ));
        publish(&home, &format!("the Python environment {}", self.name), |place| {
            let (layer, root) = (place.join("layer"), place.join("root"));
            link_tree(&python, &root)?;
            self.install(place, &root.join(NEW))?;
            compile(&root);
            put_in_place(&root.join(NEW), &layer)?;
            link_tree(&layer, &root)?;
            let check = format!("import {}", self.modules);
            debian::inside(&root, &["python3", "-c", &check]).context("the environment does not work")?;
            Ok(())
        })?;
        Ok(home)
    }

    fn install(&self, place: &Path, into: &Path) -> Result<()> {
        let (installer, list) = (place.join("installer"), place.join("requirements.txt"));
        fs::write(&list, self.requirements)?;
        run(Command::new("python3").args(["-m", "venv"]).arg(&installer))
            .context("frameworks are Python packages: install python3-venv")?;
        run(Command::new(installer.join("bin/pip"))
            .args(["install", "--quiet", "--no-deps", "--no-compile"])
            .args(["--only-binary", ":all:", "--python-version", "3.11", "--target"])
            .arg(into)
            .arg("--requirement")
            .arg(&list))?;
        fs::remove_dir_all(&installer)?;
        remove_tests(into)
    }
}

/// Compiles what was installed: a user who can't write there would do it at every start.
fn compile(root: &Path) {
    let place = format!("/{PACKAGES}");
    let new = format!("/{NEW}");
    let arguments = ["python3", "-m", "compileall", "-q", "-j", "2"];
    let how = [
        "--invalidation-mode",
        "unchecked-hash",
        "-s",
        &new,
        "-p",
        &place,
        &new,
    ];
    // Some packages have files that are for other versions of Python.
    let _ = debian::inside(root, &[&arguments[..], &how].concat());
}

/// Moves what was installed to where the layer has it, and its programs to the path of images.
fn put_in_place(new: &Path, layer: &Path) -> Result<()> {
    let (packages, programs) = (layer.join(PACKAGES), layer.join("usr/local/bin"));
    fs::create_dir_all(&programs)?;
    if let Some(parent) = packages.parent() {
        fs::create_dir_all(parent)?;
    }
    fs::rename(new, &packages)?;
    let installed = packages.join("bin");
    for program in fs::read_dir(&installed)?.flatten() {
        // A script names the Python of its installer.
        let Ok(text) = fs::read_to_string(program.path()) else {
            continue;
        };
        let body = text.split_once('\n').map_or("", |(_, body)| body);
        let path = programs.join(program.file_name());
        fs::write(&path, format!("#!/usr/bin/python3\n{body}"))?;
        fs::set_permissions(&path, program.metadata()?.permissions())?;
    }
    Ok(fs::remove_dir_all(installed)?)
}

/// Adds the files below a directory to another one, as hard links.
fn link_tree(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to)?;
    run(Command::new("cp")
        .args(["--archive", "--link"])
        .arg(from.join("."))
        .arg(to))?;
    Ok(())
}
