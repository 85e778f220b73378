//! `testcluster`: a real Kubernetes for tests, see tools/cluster/README.md.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::{Args, Parser, Subcommand, ValueEnum};
use trainyard_testkit::cluster::{self, Cluster, Options, TiedCluster, Unsupported};
use trainyard_testkit::cluster_programs::Programs;
use trainyard_testkit::framework_table::{self, COMMANDS};
use trainyard_testkit::{images, seen};

mod guard;

/// The exit code for skipped tests, as in other test runners.
const EXIT_SKIPPED: u8 = 77;

/// A real Kubernetes on this machine, for tests.
#[derive(Parser)]
struct Cli {
    #[command(subcommand)]
    command: Action,
}

#[derive(Subcommand)]
enum Action {
    /// Build programs and images that are missing.
    Build {
        /// Also the images of jobs: with Python, `PyTorch`, MPI, Horovod, `DeepSpeed`, Dask,
        /// `MXNet` and `XGBoost`.
        #[arg(long)]
        all_images: bool,
        /// Also the image with JAX, `PaddlePaddle` and `TensorFlow`.
        #[arg(long)]
        large_images: bool,
    },
    /// Start a cluster that stays until `down`.
    Up {
        #[command(flatten)]
        kind: ClusterArgs,
        #[command(flatten)]
        cluster_dir: NewClusterDir,
    },
    /// End a cluster and remove everything of it.
    Down {
        #[command(flatten)]
        cluster_dir: ClusterDir,
    },
    /// Run a command with a cluster: one that is up, else one that lives as long as the command.
    Run {
        #[command(flatten)]
        kind: ClusterArgs,
        #[command(flatten)]
        cluster_dir: NewClusterDir,
        /// The command and its arguments.
        #[arg(last = true, required = true)]
        command: Vec<String>,
    },
    /// Say how a cluster is.
    Status {
        #[command(flatten)]
        cluster_dir: ClusterDir,
    },
    /// Put a docker-archive on all nodes; the word `torch` means the image with `PyTorch`.
    LoadImage {
        /// The archive.
        archive: PathBuf,
        #[command(flatten)]
        cluster_dir: ClusterDir,
    },
    /// Lose a node, or bring it back.
    Node {
        /// What to do.
        action: NodeAction,
        /// Which node.
        name: String,
        #[command(flatten)]
        cluster_dir: ClusterDir,
    },
    /// Take the API server away, or bring it back.
    Apiserver {
        /// What to do.
        action: ApiserverAction,
        #[command(flatten)]
        cluster_dir: ClusterDir,
    },
    /// Write the image of a static binary as a docker-archive.
    Image {
        /// The binary.
        #[arg(long)]
        binary: PathBuf,
        /// The image's name and tag.
        #[arg(long)]
        tag: String,
        /// The archive to write.
        #[arg(long)]
        output: PathBuf,
        /// Another file, as `SOURCE=PATH-IN-THE-IMAGE`.
        #[arg(long = "file", value_parser = parse_file)]
        files: Vec<(PathBuf, PathBuf)>,
    },
    /// Check the tables of what was seen to work, in the documentation, against what the last runs
    /// have shown.
    Seen {
        /// Write it from that instead.
        #[arg(long)]
        write: bool,
        /// Forget what runs on a back end have shown instead: a suite of them begins.
        #[arg(long, conflicts_with = "write", value_parser = ["real", "embedded"])]
        begin: Option<String>,
        /// With --begin: which command runs the suite.
        #[arg(long, requires = "begin", default_value = COMMANDS[0], value_parser = COMMANDS)]
        by: String,
        /// Look at runs on one back end alone.
        #[arg(long, conflicts_with = "begin", value_parser = ["real", "embedded"])]
        only: Option<String>,
        /// The page with the table of implementations of MPI.
        #[arg(long, default_value = "docs/frameworks/mpi.md")]
        page: PathBuf,
        /// The page with the table of frameworks.
        #[arg(long, default_value = "docs/frameworks.md")]
        frameworks: PathBuf,
    },
    #[command(hide = true)]
    Init(Inside),
    #[command(hide = true)]
    Supervise(Inside),
}

#[derive(Args)]
#[allow(clippy::struct_excessive_bools, reason = "flags of a command line")]
struct ClusterArgs {
    /// Only etcd and an API server, on the loopback address.
    #[arg(long)]
    no_nodes: bool,
    /// With --no-nodes: also the controller manager.
    #[arg(long)]
    controllers: bool,
    /// Without Kubernetes' own gang scheduling.
    #[arg(long)]
    no_gang: bool,
    /// Load the image with `PyTorch` too.
    #[arg(long)]
    torch: bool,
}

/// Where a new cluster goes. Not beside the one we may be in: that is somebody's already.
#[derive(Args)]
struct NewClusterDir {
    /// The cluster's directory.
    #[arg(long)]
    dir: Option<PathBuf>,
}

#[derive(Args)]
struct ClusterDir {
    /// The cluster's directory.
    #[arg(long, env = cluster::ENVIRONMENT)]
    dir: Option<PathBuf>,
}

#[derive(Args)]
struct Inside {
    #[arg(long)]
    dir: PathBuf,
    #[arg(long)]
    tied: bool,
}

#[derive(Clone, Copy, ValueEnum)]
enum NodeAction {
    Kill,
    Start,
}

#[derive(Clone, Copy, ValueEnum)]
enum ApiserverAction {
    Pause,
    Resume,
    Stop,
    Start,
}

fn parse_file(text: &str) -> Result<(PathBuf, PathBuf), String> {
    let (source, target) = text
        .split_once('=')
        .ok_or("write it as SOURCE=PATH-IN-THE-IMAGE")?;
    Ok((source.into(), target.into()))
}

impl ClusterDir {
    fn dir(&self) -> Result<PathBuf> {
        self.dir
            .clone()
            .map_or_else(|| cluster::default_dir("default"), Ok)
    }

    fn open(&self) -> Result<Cluster> {
        Cluster::open(&self.dir()?)
    }
}

impl ClusterArgs {
    fn options(&self, dir: PathBuf) -> Result<Options> {
        let images = if self.torch && !self.no_nodes {
            vec![images::torch()?]
        } else {
            Vec::new()
        };
        Ok(Options {
            dir,
            nodes: !self.no_nodes,
            controllers: self.controllers,
            gang: !self.no_gang,
            images,
        })
    }
}

fn main() -> ExitCode {
    match act(Cli::parse().command) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {error:#}");
            let skip = error
                .chain()
                .any(<dyn std::error::Error + 'static>::is::<Unsupported>);
            ExitCode::from(if skip { EXIT_SKIPPED } else { 1 })
        }
    }
}

fn act(action: Action) -> Result<ExitCode> {
    match action {
        Action::Build {
            all_images,
            large_images,
        } => build(all_images, large_images)?,
        Action::Up { kind, cluster_dir } => {
            let name = if kind.no_nodes { "api" } else { "default" };
            let dir = cluster_dir.dir.map_or_else(|| cluster::default_dir(name), Ok)?;
            let cluster = match cluster::running(&dir) {
                Some(cluster) => cluster,
                None => cluster::up(&kind.options(dir)?)?,
            };
            println!("export KUBECONFIG={}", cluster.kubeconfig().display());
            println!("export {}={}", cluster::ENVIRONMENT, cluster.dir().display());
            println!("export PATH={}:$PATH", cluster.state().programs.bin.display());
        }
        Action::Down { cluster_dir } => cluster::down(&cluster_dir.dir()?)?,
        Action::Run {
            kind,
            cluster_dir,
            command,
        } => return run(&kind, cluster_dir, &command),
        Action::Status { cluster_dir } => {
            let cluster = cluster_dir.open()?;
            println!("{}", serde_json::to_string_pretty(&cluster.status()?)?);
        }
        Action::LoadImage { archive, cluster_dir } => {
            let archive = if archive == Path::new("torch") {
                images::torch()?
            } else {
                archive
            };
            cluster_dir.open()?.load_image(&archive)?;
        }
        Action::Node {
            action,
            name,
            cluster_dir,
        } => match action {
            NodeAction::Kill => cluster_dir.open()?.kill_kubelet(&name)?,
            NodeAction::Start => cluster_dir.open()?.start_kubelet(&name)?,
        },
        Action::Apiserver { action, cluster_dir } => {
            let cluster = cluster_dir.open()?;
            match action {
                ApiserverAction::Pause => cluster.pause_apiserver()?,
                ApiserverAction::Resume => cluster.resume_apiserver()?,
                ApiserverAction::Stop => cluster.stop_apiserver()?,
                ApiserverAction::Start => cluster.start_apiserver()?,
            }
        }
        Action::Image {
            binary,
            tag,
            output,
            files,
        } => images::binary(&binary, &files, &tag, &output)?,
        Action::Seen {
            begin: Some(backend),
            by,
            ..
        } => begin_suite(&backend, &by)?,
        Action::Seen {
            write,
            page,
            frameworks,
            only,
            ..
        } => {
            seen::table(&page, write, only.as_deref())?;
            framework_table::table(&seen::results_dir()?, &frameworks, write, only.as_deref())?;
        }
        Action::Init(inside) => return cluster::init(&inside.dir, inside.tied),
        Action::Supervise(inside) => cluster::supervise(&inside.dir, inside.tied)?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Forgets what runs on a back end have shown, as far as the command runs them again.
fn begin_suite(backend: &str, command: &str) -> Result<()> {
    if command == COMMANDS[0] {
        seen::begin(backend)?;
    }
    framework_table::begin(&seen::results_dir()?, backend, command)
}

/// Builds one image, and says where it is.
type Make = fn() -> Result<PathBuf>;

/// The images of jobs.
const IMAGES: &[Make] = &[
    images::python_root,
    images::torch,
    images::mpi_root,
    images::horovod_root,
    images::frameworks_small,
    images::scaler_root,
];

fn build(all_images: bool, large_images: bool) -> Result<()> {
    let programs = Programs::ensure(true)?;
    println!("programs: {}", programs.bin.display());
    println!("container runtime: {}", programs.system.display());
    let mut wanted: Vec<Make> = vec![images::pause, images::busybox];
    wanted.extend(all_images.then_some(IMAGES).into_iter().flatten());
    wanted.extend(large_images.then_some(images::frameworks_large as Make));
    for make in wanted {
        println!("image: {}", make()?.display());
    }
    Ok(())
}

fn run(kind: &ClusterArgs, cluster_dir: NewClusterDir, command: &[String]) -> Result<ExitCode> {
    // From here on a signal ends the command and not this process, which then stops the cluster.
    let signals = guard::Signals::take()?;
    if let Some(cluster) = usable(kind, &cluster_dir)? {
        if kind.torch {
            cluster.load_image(&images::torch()?)?;
        }
        return guard::run(command, &cluster, signals);
    }
    let own = || cluster::default_dir(&format!("run-{}", std::process::id()));
    let dir = cluster_dir.dir.map_or_else(own, Ok)?;
    let tied = TiedCluster::up(&kind.options(dir)?).context("the cluster did not start")?;
    guard::run(command, tied.cluster(), signals)
}

/// A running cluster with nodes: that of the environment, or one that was started by `up`. A
/// cluster without nodes is never shared, because it is for measurements.
fn usable(kind: &ClusterArgs, cluster_dir: &NewClusterDir) -> Result<Option<Cluster>> {
    if kind.no_nodes {
        return Ok(None);
    }
    let around = Cluster::from_env().filter(|cluster| !cluster.state().nodes.is_empty());
    match &cluster_dir.dir {
        Some(dir) => Ok(cluster::running(dir)),
        None if around.is_some() => Ok(around),
        None => Ok(cluster::running(&cluster::default_dir("default")?)),
    }
}
