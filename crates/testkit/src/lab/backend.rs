//! What scenarios run on: the cluster of `KUBECONFIG`, or, with `TRAINYARD_LAB=embedded`, the
//! embedded one in this process.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::{ExitCode, Termination};
use std::sync::{Arc, OnceLock};

use anyhow::{Context, Result};
use kube::Client;
use libtest_mimic::{Arguments, Trial};
use parking_lot::Mutex;
use tokio::runtime::Runtime;
use trainyard_local::cluster as local;
use trainyard_local::yard::{self, Entered, Yard, YardOptions};

use crate::cache;
use crate::cluster::Cluster;
use crate::faults::Start;
use crate::{images, operator};

/// Selects the back end; a real cluster if it is not set.
const BACKEND_VARIABLE: &str = "TRAINYARD_LAB";

/// As many as the real cluster of the tests has.
const NODES: usize = 2;

static YARD: OnceLock<Yard> = OnceLock::new();
static IMAGES: Mutex<Vec<Image>> = Mutex::new(Vec::new());
static EMBEDDED: OnceLock<Embedded> = OnceLock::new();

/// An image that scenarios want besides busybox.
#[derive(Clone, Copy)]
pub struct Image {
    /// Its name in manifests.
    pub name: &'static str,
    /// Makes its archive, for nodes.
    pub archive: fn() -> Result<PathBuf>,
    /// Makes its files, for the embedded cluster.
    pub root: fn() -> Result<PathBuf>,
}

impl Image {
    /// The agent.
    pub const AGENT: Self = Self {
        name: images::AGENT,
        archive: images::agent,
        root: images::agent_root,
    };
    /// With a script for requests of et-operator.
    pub const SCALER: Self = Self {
        name: images::SCALER,
        archive: images::scaler,
        root: images::scaler_root,
    };
    /// With Python alone.
    pub const PYTHON: Self = Self {
        name: images::PYTHON,
        archive: images::python,
        root: images::python_root,
    };
    /// With Dask, `MXNet` and `XGBoost`.
    pub const FRAMEWORKS_SMALL: Self = Self {
        name: images::FRAMEWORKS_SMALL,
        archive: images::frameworks_small,
        root: images::frameworks_small_root,
    };
    /// With JAX, `PaddlePaddle` and `TensorFlow`.
    pub const FRAMEWORKS_LARGE: Self = Self {
        name: images::FRAMEWORKS_LARGE,
        archive: images::frameworks_large,
        root: images::frameworks_large_root,
    };
    /// With implementations of MPI.
    pub const MPI: Self = Self {
        name: images::MPI,
        archive: images::mpi,
        root: images::mpi_root,
    };
    /// With Horovod and `DeepSpeed`.
    pub const HOROVOD: Self = Self {
        name: images::HOROVOD,
        archive: images::horovod,
        root: images::horovod_root,
    };
}

/// The embedded cluster that the scenarios of this process share.
pub struct Embedded {
    cluster: local::Cluster,
    // Runs the cluster.
    _runtime: Runtime,
}

/// What a scenario runs on.
pub enum Backend {
    /// A real cluster.
    Real(Box<Cluster>),
    /// The embedded one.
    Embedded(&'static Embedded),
}

/// Scenarios about one thing; see [`scenarios!`](crate::scenarios).
#[derive(Clone, Copy)]
pub struct Scenarios {
    /// What they are about: the beginning of their names.
    pub about: &'static str,
    /// What they want besides busybox.
    pub images: &'static [Image],
    /// Their names, and what they do.
    pub all: &'static [(&'static str, fn())],
}

/// Scenarios from functions: `scenarios!("order", &[Image::AGENT], [a_role_waits,
/// another_role_waits])`.
#[macro_export]
macro_rules! scenarios {
    ($about:literal, $images:expr, [$($scenario:ident),* $(,)?]) => {
        $crate::lab::Scenarios {
            about: $about,
            images: $images,
            all: &[$((stringify!($scenario), $scenario as fn())),*],
        }
    };
}

/// The `main` of a program of scenarios, which can be run on both back ends.
pub fn main(groups: &'static [Scenarios]) -> ExitCode {
    let trials = groups.iter().flat_map(|group| {
        group.all.iter().map(move |(name, run)| {
            Trial::test(format!("{}::{name}", group.about), move || {
                require_images(group.images);
                run();
                Ok(())
            })
        })
    });
    let trials: Vec<Trial> = trials.collect();
    // The embedded cluster needs the images of all scenarios that may run before the first one
    // starts.
    let words: Vec<String> = std::env::args().collect();
    let is_named = |group: &Scenarios| {
        let begin = format!("{}::", group.about);
        words.iter().any(|word| word.starts_with(&begin))
    };
    let is_any_named = groups.iter().any(is_named);
    for group in groups {
        if is_named(group) || !is_any_named {
            require_images(group.images);
        }
    }
    within(|| libtest_mimic::run(&Arguments::from_args(), trials).exit_code())
}

/// Adds images to those that are wanted; before [`within`].
pub fn require_images(images: &'static [Image]) {
    let mut wanted = IMAGES.lock();
    for image in images {
        if wanted.iter().all(|known| known.name != image.name) {
            wanted.push(*image);
        }
    }
}

fn required_images() -> Vec<Image> {
    IMAGES.lock().clone()
}

/// Runs `work` where the back end can be reached: in a yard if it is the embedded one. Must be
/// called at the very start of a program.
pub fn within<T: Termination>(work: impl FnOnce() -> T) -> ExitCode {
    if let Some(code) = trainyard_local::reenter(std::env::args_os()) {
        return code;
    }
    // A list of tests needs neither a yard nor images.
    let is_list = std::env::args_os().any(|argument| argument == "--list");
    if is_embedded() && !is_list {
        match enter() {
            Ok(Entered::Inside(yard)) => {
                YARD.get_or_init(|| yard);
            }
            Ok(Entered::Over(code)) => return code,
            Err(error) => {
                eprintln!("error: {error:#}");
                return ExitCode::FAILURE;
            }
        }
    }
    work().report()
}

/// Where pods of the embedded cluster find this process.
const GATEWAY: &str = "10.88.0.1";

fn is_embedded() -> bool {
    std::env::var(BACKEND_VARIABLE).is_ok_and(|choice| choice == "embedded")
}

fn scratch() -> Result<PathBuf> {
    let scratch = local::base_directory(&cache::root()?);
    std::fs::create_dir_all(&scratch)?;
    Ok(scratch)
}

fn enter() -> Result<Entered> {
    // Downloads what is not cached, because a yard has no network.
    images::busybox_root()?;
    for image in required_images() {
        (image.root)()?;
    }
    Ok(yard::enter(YardOptions::default(), &scratch()?)?)
}

impl Backend {
    /// The back end that is wanted.
    ///
    /// # Panics
    /// Without it: a suite that needs a cluster must not pass by doing nothing.
    #[allow(
        clippy::panic,
        reason = "this is the vocabulary of tests, which fail by panicking"
    )]
    pub fn choose() -> Self {
        if is_embedded() {
            let start =
                || Embedded::start().unwrap_or_else(|error| panic!("the embedded cluster: {error:#}"));
            return Self::Embedded(EMBEDDED.get_or_init(start));
        }
        let cluster = Cluster::from_env().filter(|cluster| !cluster.state().nodes.is_empty());
        let cluster =
            cluster.unwrap_or_else(|| panic!("this suite needs a test cluster: use `make test-cluster`"));
        operator::install_crds(&cluster);
        for image in required_images() {
            let load = || (image.archive)().and_then(|archive| cluster.load_image(&archive));
            let loaded = cluster.once(&image.name.replace('/', "-"), load);
            loaded.unwrap_or_else(|error| panic!("the image {}: {error:#}", image.name));
        }
        Self::Real(Box::new(cluster))
    }

    /// A client, for the runtime of the caller.
    pub async fn client(&self) -> Result<Client> {
        match self {
            Self::Real(_) => Ok(Client::try_default().await?),
            Self::Embedded(embedded) => Ok(embedded.cluster.client()),
        }
    }

    /// Removes what a namespace leaves on the embedded cluster: claimed volumes stay there.
    pub fn remove_volumes(&self, namespace: &str) {
        if let (Self::Embedded(_), Ok(scratch)) = (self, scratch()) {
            // There are none if nothing was claimed.
            drop(std::fs::remove_dir_all(scratch.join("volumes").join(namespace)));
        }
    }

    /// Where pods may find this process.
    pub fn own_addresses(&self) -> Vec<String> {
        match self {
            Self::Real(cluster) => {
                let config = std::fs::read_to_string(cluster.kubeconfig()).unwrap_or_default();
                let server = config.split("https://").nth(1).unwrap_or_default();
                let gateway = server.split([':', '/', '\n']).next().unwrap_or_default();
                let network: Vec<&str> = gateway.split('.').take(2).collect();
                vec![format!("{}.255.254", network.join(".")), gateway.to_owned()]
            }
            Self::Embedded(_) => vec![GATEWAY.to_owned()],
        }
    }

    /// How an operator is started on it.
    pub fn operator(&self) -> Start {
        self.operator_with(&[])
    }

    /// The same, with further arguments.
    pub fn operator_with(&self, more: &'static [&'static str]) -> Start {
        match self {
            Self::Real(_) => operator::in_process_with(more),
            Self::Embedded(embedded) => operator::with_client(Arc::new(|| embedded.cluster.client()), more),
        }
    }
}

impl Embedded {
    fn start() -> Result<Self> {
        let yard = YARD.get().context("scenarios need the `main` of `lab`")?;
        let runtime = Runtime::new()?;
        let mut images = BTreeMap::from([(images::BUSYBOX.to_owned(), images::busybox_root()?)]);
        for image in required_images() {
            images.insert(image.name.to_owned(), (image.root)()?);
        }
        let options = local::Options {
            nodes: NODES,
            images,
            image_user: Some(images::NOBODY_ID),
            working_directory: std::env::temp_dir(),
            host_paths: None,
            base_directory: scratch()?,
            progress: None,
            keep: None,
            // As on the real cluster, where no webhooks are installed for these scenarios.
            rules: false,
        };
        let cluster = runtime.block_on(local::Cluster::start(yard, options))?;
        Ok(Self {
            cluster,
            _runtime: runtime,
        })
    }
}
