//! Container images for tests, made without a container engine or a registry, built once.

pub mod archive;
mod debian;
mod environments;
mod horovod;
mod mpi;
mod python;
mod scaler;
mod torch;

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

pub use archive::{ImageConfig, Layer, docker_archive};
pub use environments::{frameworks_large, frameworks_large_root, frameworks_small, frameworks_small_root};
pub use horovod::{horovod, horovod_root};
pub use mpi::{SSH_KEYS, SSH_PORT, mpi, mpi_root};
pub use python::{python, python_root};
pub use scaler::{scaler, scaler_root};
pub use torch::torch;

use crate::cache::{self, key, publish};
use crate::cluster_programs::Programs;
use crate::command::run;

/// What holds a pod's namespaces.
pub const PAUSE: &str = "example/pause:1";
/// A shell and the usual small tools.
pub const BUSYBOX: &str = "example/busybox:1";
/// The same, with a script that requests of et-operator call.
pub const SCALER: &str = "example/scaler:1";
/// The agent alone.
pub const AGENT: &str = "example/trainyard-agent:1";
/// Three implementations of MPI.
pub const MPI: &str = "example/mpi:1";
/// Python with `PyTorch`, Horovod over MPI and Gloo, and `DeepSpeed`.
pub const HOROVOD: &str = "example/horovod:1";
/// Python alone.
pub const PYTHON: &str = "example/python:3.11";
/// Python with Dask, `MXNet` and `XGBoost`.
pub const FRAMEWORKS_SMALL: &str = "example/frameworks-small:1";
/// Python with JAX, `PaddlePaddle` and `TensorFlow`.
pub const FRAMEWORKS_LARGE: &str = "example/frameworks-large:1";
/// Python with `PyTorch`.
pub const TORCH: &str = "example/torch:1.13";

/// The default user of images: numeric, as the restricted profile requires.
const NOBODY: &str = "65532:65532";
/// The same, as a number.
pub const NOBODY_ID: u32 = 65532;

const PASSWD: &str = "root:x:0:0:root:/:/bin/sh\nnobody:x:65532:65532:nobody:/tmp:/bin/sh\n";
const GROUP: &str = "root:x:0:\nnobody:x:65532:\n";

const PAUSE_SOURCE: &str = include_str!("../../../tools/cluster/pause.c");

/// The archive of [`PAUSE`].
pub fn pause() -> Result<PathBuf> {
    image("pause", &[PAUSE_SOURCE], |place, archive| {
        let (source, program) = (place.join("pause.c"), place.join("pause"));
        fs::write(&source, PAUSE_SOURCE)?;
        run(Command::new("cc")
            .args(["-Os", "-static", "-o"])
            .arg(&program)
            .arg(&source))
        .context("the pause image needs a C compiler and a static libc (Debian: gcc and libc6-dev)")?;
        let config = ImageConfig {
            entrypoint: vec!["/pause".to_owned()],
            user: NOBODY.to_owned(),
            ..ImageConfig::default()
        };
        docker_archive(
            archive,
            PAUSE,
            &[Layer::new().file("pause", &program, 0o755)],
            &config,
        )
    })
}

/// The files of [`BUSYBOX`], to run it without an archive.
pub fn busybox_root() -> Result<PathBuf> {
    let busybox = PathBuf::from(Programs::ensure(true)?.debian("bin/busybox"));
    let home = cache::root()?
        .join("images")
        .join(format!("busybox-root-{}", key(["1"])));
    publish(&home, "the files of busybox", |place| {
        for directory in ["bin", "etc", "tmp"] {
            fs::create_dir(place.join(directory))?;
        }
        fs::set_permissions(place.join("tmp"), fs::Permissions::from_mode(0o1777))?;
        fs::copy(&busybox, place.join("bin/busybox"))?;
        for name in busybox_tools(&busybox)? {
            symlink("busybox", place.join("bin").join(name))?;
        }
        fs::write(place.join("etc/passwd"), PASSWD)?;
        Ok(fs::write(place.join("etc/group"), GROUP)?)
    })?;
    Ok(home)
}

/// The archive of [`BUSYBOX`].
pub fn busybox() -> Result<PathBuf> {
    let busybox = PathBuf::from(Programs::ensure(true)?.debian("bin/busybox"));
    image("busybox", &["2"], |_, archive| {
        let layer = busybox_layer(&busybox, Layer::new())?
            .bytes("etc/passwd", PASSWD, 0o644)
            .bytes("etc/group", GROUP, 0o644)
            .directory("tmp", 0o1777);
        let config = ImageConfig {
            entrypoint: Vec::new(),
            env: vec!["PATH=/bin".to_owned(), "HOME=/tmp".to_owned()],
            user: NOBODY.to_owned(),
            workdir: "/tmp".to_owned(),
        };
        docker_archive(archive, BUSYBOX, &[layer], &config)
    })
}

/// The shell and tools of busybox in `/bin`.
fn busybox_layer(busybox: &Path, mut layer: Layer) -> Result<Layer> {
    layer = layer.file("bin/busybox", busybox, 0o755);
    for name in busybox_tools(busybox)? {
        layer = layer.symlink(Path::new("bin").join(name), "busybox");
    }
    Ok(layer)
}

fn busybox_tools(busybox: &Path) -> Result<Vec<String>> {
    let list = run(Command::new(busybox).arg("--list"))?;
    let tools = list.lines().filter(|name| *name != "busybox");
    Ok(tools.map(ToOwned::to_owned).collect())
}

/// The image of one static binary: `/trainyard`, run as nobody in particular, and whatever files it
/// needs.
pub fn binary(binary: &Path, files: &[(PathBuf, PathBuf)], reference: &str, output: &Path) -> Result<()> {
    let mut layer = Layer::new()
        .file("trainyard", binary, 0o755)
        .directory("tmp", 0o1777);
    for (source, target) in files {
        layer = layer.file(target, source, 0o755);
    }
    let config = ImageConfig {
        entrypoint: vec!["/trainyard".to_owned()],
        env: vec!["PATH=/".to_owned()],
        user: NOBODY.to_owned(),
        workdir: "/".to_owned(),
    };
    docker_archive(output, reference, &[layer], &config)
}

/// Names the static agent that was built for a suite.
const AGENT_PROGRAM: &str = "TRAINYARD_AGENT";

/// The agent that `TRAINYARD_AGENT` names.
fn agent_program() -> Result<PathBuf> {
    let program = std::env::var_os(AGENT_PROGRAM)
        .with_context(|| format!("{AGENT_PROGRAM} names no agent: use `make test-cluster`"))?;
    Ok(PathBuf::from(program))
}

/// The archive of [`AGENT`], beside the program that it is made of, since that changes often.
pub fn agent() -> Result<PathBuf> {
    let program = agent_program()?;
    let archive = program.with_extension("tar");
    let unfinished = program.with_extension(format!("tar.{}", std::process::id()));
    let layer = Layer::new().file("trainyard-agent", &program, 0o755);
    let config = ImageConfig {
        user: NOBODY.to_owned(),
        ..ImageConfig::default()
    };
    docker_archive(&unfinished, AGENT, &[layer], &config)?;
    fs::rename(unfinished, &archive)?;
    Ok(archive)
}

/// The files of [`AGENT`], to run it without an archive.
pub fn agent_root() -> Result<PathBuf> {
    let program = agent_program()?;
    let bytes = fs::read(&program)?;
    // One directory for each build: another may be in use below an overlay, and must not change.
    let root = program.with_extension(format!("root-{}", key([&bytes])));
    publish(&root, "the files of the agent", |place| {
        fs::copy(&program, place.join("trainyard-agent"))?;
        Ok(())
    })?;
    Ok(root)
}

/// Puts the files of an image below a directory, for those who run it without an engine.
pub fn unpack(archive: &Path, root: &Path) -> Result<()> {
    let mut members = tar::Archive::new(fs::File::open(archive)?);
    for member in members.entries()? {
        let member = member?;
        if member
            .path()?
            .extension()
            .is_some_and(|extension| extension == "tar")
        {
            tar::Archive::new(member).unpack(root)?;
        }
    }
    Ok(())
}

/// The archive of an image in the cache, made unless it is there; `parts` are what it is made of.
fn image(name: &str, parts: &[&str], make: impl FnOnce(&Path, &Path) -> Result<()>) -> Result<PathBuf> {
    let home = cache::root()?
        .join("images")
        .join(format!("{name}-{}", key(parts.iter().copied())));
    let file = format!("{name}.tar");
    publish(&home, &format!("the image {name}"), |place| {
        make(place, &place.join(&file))
    })?;
    Ok(home.join(file))
}

/// The files of an image in the cache, to run it without an archive.
fn unpacked(name: &str, archive: &Path) -> Result<PathBuf> {
    let made_of = archive.display().to_string();
    let home = cache::root()?
        .join("images")
        .join(format!("{name}-root-{}", key([made_of.as_str()])));
    publish(&home, &format!("the files of the image {name}"), |place| {
        unpack(archive, place)
    })?;
    Ok(home)
}
