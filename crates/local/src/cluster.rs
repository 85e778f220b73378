//! The embedded cluster as a whole: the API with the admission of jobs, and nodes that run pods.
//!
//! The operator is not part of it, as it is not part of a real cluster: whoever starts a cluster
//! starts an operator with [`Cluster::client`].

pub mod user_socket;

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::io;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Service, ServicePort, ServiceSpec};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use kube::api::{PostParams, Request};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use crate::api::Api;
use crate::env::Environment;
use crate::node::kubelet::progress::Listener;
use crate::node::kubelet::workdir;
use crate::node::runtime::state::{self, StateDirectory};
use crate::node::runtime::{self, Runtime};
use crate::node::{Machine, Node, NodeOptions};
use crate::rules::JobRules;
use crate::yard::{Isolation, Yard};

/// The default namespace of [`Cluster::client`].
pub const NAMESPACE: &str = "default";

/// The port of the API, as pods see it.
const API_PORT: u16 = 443;

/// Options of a cluster.
#[derive(Clone, Debug)]
pub struct Options {
    /// How many nodes are simulated.
    pub nodes: usize,
    /// Directories with the files of images, or Python virtual environments, by the names of the
    /// images.
    pub images: BTreeMap<String, PathBuf>,
    /// The user and group of containers with the files of an image whose pods name none. Without
    /// it, they run as this process.
    pub image_user: Option<u32>,
    /// The working directory of containers, which they may write to.
    pub working_directory: PathBuf,
    /// The directory that `hostPath` volumes must be in. Without it, they may be anywhere.
    pub host_paths: Option<PathBuf>,
    /// A directory of this user. Each cluster has one of its own below it while it runs; claimed
    /// volumes stay there.
    pub base_directory: PathBuf,
    /// Receives each line that a program appends to the file of `TRAINYARD_PROGRESS`, with the name
    /// of its pod. Without it, the variable is not set.
    pub progress: Option<Listener>,
    /// Where the logs and volumes of deleted pods are moved to, instead of being removed. It must
    /// be on the file system of the base directory.
    pub keep: Option<PathBuf>,
    /// Whether jobs are defaulted and validated when they are written. Otherwise only the operator
    /// does so, as in a cluster without webhooks.
    pub rules: bool,
}

/// Why a cluster could not be started.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Its directory can't be created.
    #[error(
        "nothing can be kept in {}: {source}; make room there, or set TRAINYARD_CACHE to another directory",
        path.display()
    )]
    State {
        /// Where it was tried.
        path: PathBuf,
        /// Why it failed.
        source: std::io::Error,
    },
    /// Pods can't be run.
    #[error(transparent)]
    Runtime(#[from] runtime::Error),
    /// The API refused an object that every cluster has.
    #[error("the embedded API refuses what it should take: {0}")]
    Api(#[from] kube::Error),
    /// The definition of jobs is not what it should be.
    #[error("the definition of TrainingJob can't be sent: {0}")]
    Definition(String),
}

/// A cluster in this process.
#[derive(Debug)]
pub struct Cluster {
    api: Api,
    node: Node,
    /// Serves the API to pods; empty where other users of the machine could reach it.
    pod_listener: JoinSet<()>,
    /// Where pods reach this process.
    address: Option<Ipv4Addr>,
    /// Serves the API to the user; empty before [`Cluster::serve_user`].
    user_listener: JoinSet<Infallible>,
    notes: Vec<String>,
    // Dropped last, when its files are not used any more.
    state: StateDirectory,
}

impl Cluster {
    /// Starts a cluster in the yard that this process is in.
    pub async fn start(yard: &Yard, options: Options) -> Result<Self, Error> {
        let environment = Environment::system();
        let mut api = Api::new(environment.clone());
        if options.rules {
            api = api.with_admission(Arc::new(JobRules::default()));
        }
        let client = api.client(NAMESPACE);
        define_jobs(&client).await?;

        let mut notes = yard.notes();
        if yard.isolation != Isolation::Plain {
            notes.extend(workdir::note(&options.working_directory));
        }
        let runs = runs(&options.base_directory);
        let state = StateDirectory::claim(&runs).map_err(|source| Error::State { path: runs, source })?;
        let kept = directory(state.path().join("node"))?;
        let claims = directory(options.base_directory.join("volumes"))?;
        let runtime = Runtime::new(yard, &directory(state.path().join("runtime"))?).await?;
        let machines = (0..options.nodes.max(1))
            .map(|number| Machine {
                name: name(number, options.nodes),
                ..Machine::default()
            })
            .collect();
        let node = Node::start(
            client,
            runtime,
            NodeOptions {
                machines,
                state_directory: kept,
                claims_directory: claims,
                working_directory: options.working_directory,
                host_paths: options.host_paths,
                images: options.images,
                image_user: options.image_user,
                progress: options.progress,
                keep: options.keep,
                environment,
            },
        )
        .await?;
        let (pod_listener, address) = serve_pods(&api, &node).await?;
        for name in node.names() {
            api.attach_node(name, node.access());
        }
        Ok(Self {
            api,
            node,
            pod_listener,
            address,
            user_listener: JoinSet::new(),
            notes,
            state,
        })
    }

    /// Serves the API to other programs of this user, which [`user_socket::find`] finds it by.
    pub fn serve_user(&mut self) -> io::Result<()> {
        let listener = user_socket::bind(self.state.path())?;
        let api = self.api.clone();
        self.user_listener
            .spawn(async move { api.serve_user(listener).await });
        Ok(())
    }

    /// A client of the API.
    pub fn client(&self) -> kube::Client {
        self.api.client(NAMESPACE)
    }

    /// Whether pods can reach the API.
    pub fn serves_pods(&self) -> bool {
        !self.pod_listener.is_empty()
    }

    /// Listens where pods reach this process: in a yard with a network of its own at an address
    /// that only its pods reach, else on the loopback address, which everybody on this machine
    /// reaches. None if pods can't reach it.
    pub async fn listen_for_pods(&self) -> io::Result<Option<TcpListener>> {
        match self.address {
            Some(address) => TcpListener::bind((address, 0)).await.map(Some),
            None => Ok(None),
        }
    }

    /// What differs from a real cluster here, as sentences for the user.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// Kills all pods and stops the cluster.
    pub async fn stop(mut self) {
        self.user_listener.shutdown().await;
        self.pod_listener.shutdown().await;
        self.node.stop().await;
    }
}

/// Serves the API to pods at the address of the Service that every cluster has for it. Only in a
/// yard with a network of its own: elsewhere other users of the machine could reach it. Also
/// returns the address at which pods reach this process.
#[cfg(target_os = "linux")]
async fn serve_pods(api: &Api, node: &Node) -> Result<(JoinSet<()>, Option<Ipv4Addr>), Error> {
    let mut pod_listener = JoinSet::new();
    let Some(bridge) = node.bridge() else {
        return Ok((pod_listener, Some(Ipv4Addr::LOCALHOST)));
    };
    let services = kube::Api::<Service>::namespaced(api.client(NAMESPACE), NAMESPACE);
    let service = Service {
        metadata: ObjectMeta {
            name: Some("kubernetes".to_owned()),
            ..ObjectMeta::default()
        },
        spec: Some(ServiceSpec {
            ports: Some(vec![ServicePort {
                name: Some("https".to_owned()),
                port: i32::from(API_PORT),
                ..ServicePort::default()
            }]),
            ..ServiceSpec::default()
        }),
        status: None,
    };
    let made = services.create(&PostParams::default(), &service).await?;
    let address = made.spec.and_then(|spec| spec.cluster_ip?.parse().ok());
    let unreachable = |error: &dyn std::fmt::Display| {
        tracing::warn!(%error, "pods can not reach the API");
    };
    let Some(address) = address else {
        unreachable(&"its Service has no address");
        return Ok((pod_listener, None));
    };
    if let Err(error) = bridge.add_address(address).await {
        unreachable(&error);
        return Ok((pod_listener, None));
    }
    match TcpListener::bind((address, API_PORT)).await {
        Ok(listener) => {
            let api = api.clone();
            pod_listener.spawn(async move {
                if let Err(error) = api.serve_pods(listener, address).await {
                    tracing::warn!(%error, "pods can not reach the API");
                }
            });
        }
        Err(error) => unreachable(&error),
    }
    Ok((pod_listener, Some(address)))
}

#[cfg(not(target_os = "linux"))]
#[allow(
    clippy::unused_async,
    clippy::unnecessary_wraps,
    reason = "as where there is something to do"
)]
async fn serve_pods(_: &Api, _: &Node) -> Result<(JoinSet<()>, Option<Ipv4Addr>), Error> {
    Ok((JoinSet::new(), Some(Ipv4Addr::LOCALHOST)))
}

fn name(number: usize, nodes: usize) -> String {
    if nodes <= 1 {
        "local".to_owned()
    } else {
        format!("local-{number}")
    }
}

fn directory(path: PathBuf) -> Result<PathBuf, Error> {
    match std::fs::create_dir_all(&path) {
        Ok(()) => Ok(path),
        Err(source) => Err(Error::State { path, source }),
    }
}

async fn define_jobs(client: &kube::Client) -> Result<(), Error> {
    let definitions = CustomResourceDefinition::url_path(&(), None);
    for definition in trainyard_api::crd::ALL {
        // As text: decoding and encoding it would take a noticeable part of a short run.
        let request = Request::new(&*definitions)
            .create(&PostParams::default(), definition.as_bytes().to_vec())
            .map_err(|error| Error::Definition(error.to_string()))?;
        client.request_text(request).await?;
    }
    Ok(())
}

/// Removes what killed clusters left behind. Must be called before a yard is entered, because not
/// all of it can be seen from within.
pub fn sweep(base_directory: &Path) {
    state::sweep(&runs(base_directory));
}

fn runs(base_directory: &Path) -> PathBuf {
    base_directory.join("runs")
}

/// The number of the user who runs this process.
pub fn user() -> u32 {
    nix::unistd::geteuid().as_raw()
}

/// The base directory of a user's clusters, below a cache directory.
pub fn base_directory(cache: &Path) -> PathBuf {
    cache.join("local")
}
