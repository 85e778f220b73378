//! Nodes: a scheduler, a disruption controller, and a kubelet that runs pods as processes.
//!
//! They talk to the API through a client only, as real ones do. Several nodes may be simulated on
//! one machine: they have names, labels, taints and capacities of their own, and one kubelet.

pub(crate) mod disruption;
pub(crate) mod events;
pub(crate) mod kubelet;
pub(crate) mod names;
pub mod runtime;
pub(crate) mod scheduler;

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{
    Node as NodeObject, NodeAddress, NodeCondition, NodeSpec, NodeStatus, NodeSystemInfo, Taint,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::{ObjectMeta, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use tokio::task::JoinSet;

use crate::api::NodeAccess;
use crate::env::Environment;
use events::Recorder;
use kubelet::Kubelet;
use runtime::Runtime;

/// The address of the yard for pods.
pub(crate) const GATEWAY: Ipv4Addr = Ipv4Addr::new(10, 88, 0, 1);

/// One simulated node.
#[derive(Clone, Debug, Default)]
pub struct Machine {
    /// Its name.
    pub name: String,
    /// Its labels, besides those that every node has.
    pub labels: BTreeMap<String, String>,
    /// Its taints.
    pub taints: Vec<Taint>,
    /// Its capacity, besides or instead of that of this machine.
    pub capacity: BTreeMap<String, Quantity>,
}

/// Options of nodes.
#[derive(Clone, Debug)]
pub struct NodeOptions {
    /// The nodes.
    pub machines: Vec<Machine>,
    /// A directory for their state while they run.
    pub state_directory: PathBuf,
    /// A directory for claimed volumes, which stay.
    pub claims_directory: PathBuf,
    /// The working directory of containers, which they may write to.
    pub working_directory: PathBuf,
    /// The directory that `hostPath` volumes must be in. Without it, they may be anywhere.
    pub host_paths: Option<PathBuf>,
    /// Directories with the files of images, or Python virtual environments, by the names of the
    /// images.
    pub images: BTreeMap<String, PathBuf>,
    /// The user and group of containers with the files of an image whose pods name none. Without
    /// it, they run as this process.
    pub image_user: Option<u32>,
    /// Receives the lines of progress files.
    pub progress: Option<kubelet::progress::Listener>,
    /// Where the files of deleted pods are moved to, instead of being removed.
    pub keep: Option<PathBuf>,
    /// The clock and the randomness.
    pub environment: Environment,
}

/// Running nodes.
#[derive(Debug)]
pub struct Node {
    kubelet: Kubelet,
    names: Vec<String>,
    tasks: JoinSet<()>,
}

impl Node {
    /// Registers the nodes and runs the pods that are bound to them.
    pub async fn start(client: Client, runtime: Runtime, options: NodeOptions) -> Result<Self, kube::Error> {
        let api = Api::<NodeObject>::all(client.clone());
        let names: Vec<_> = options
            .machines
            .iter()
            .map(|machine| machine.name.clone())
            .collect();
        for machine in &options.machines {
            register(&api, machine, &options.environment).await?;
        }
        let (recorder, writer) = Recorder::new(client.clone(), options.environment.clone());
        let kubelet = Kubelet::new(
            client.clone(),
            runtime,
            options.environment.clone(),
            recorder.clone(),
            kubelet::Options {
                nodes: names.clone(),
                address: GATEWAY,
                state_directory: options.state_directory,
                claims_directory: options.claims_directory,
                working_directory: options.working_directory,
                host_paths: options.host_paths,
                images: options.images,
                image_user: options.image_user,
                progress: options.progress,
                keep: options.keep,
            },
        );
        let mut tasks = JoinSet::new();
        #[cfg(target_os = "linux")]
        if let Some(bridge) = kubelet.bridge() {
            let serving = names::server::run(client.clone(), bridge, GATEWAY);
            tasks.spawn(async move {
                if let Err(error) = serving.await {
                    tracing::error!(%error, "pods can not find each other by name");
                }
            });
        }
        tasks.spawn(writer.run());
        tasks.spawn(disruption::run(client.clone(), options.environment.clone()));
        tasks.spawn(scheduler::run(client, options.environment, recorder));
        let running = kubelet.clone();
        tasks.spawn(async move { running.run().await });
        Ok(Self {
            kubelet,
            names,
            tasks,
        })
    }

    /// The names of the nodes.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// The bridge of pods.
    #[cfg(target_os = "linux")]
    pub(crate) fn bridge(&self) -> Option<crate::yard::link::Bridge> {
        self.kubelet.bridge()
    }

    /// Logs and exec, for the API.
    pub fn access(&self) -> Arc<dyn NodeAccess> {
        Arc::new(self.kubelet.clone())
    }

    /// Kills all pods and starts no more.
    pub async fn stop(mut self) {
        self.tasks.shutdown().await;
        self.kubelet.kill_all().await;
    }
}

async fn register(
    api: &Api<NodeObject>,
    machine: &Machine,
    environment: &Environment,
) -> Result<(), kube::Error> {
    let mut labels = machine.labels.clone();
    let architecture = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    for (key, value) in [
        ("kubernetes.io/hostname", machine.name.as_str()),
        ("kubernetes.io/os", std::env::consts::OS),
        ("kubernetes.io/arch", architecture),
    ] {
        labels.entry(key.to_owned()).or_insert_with(|| value.to_owned());
    }
    let node = NodeObject {
        metadata: ObjectMeta {
            name: Some(machine.name.clone()),
            labels: Some(labels),
            ..ObjectMeta::default()
        },
        spec: Some(NodeSpec {
            taints: (!machine.taints.is_empty()).then(|| machine.taints.clone()),
            ..NodeSpec::default()
        }),
        status: None,
    };
    match api.create(&PostParams::default(), &node).await {
        Ok(_) => {}
        Err(kube::Error::Api(status)) if status.code == 409 => {}
        Err(error) => return Err(error),
    }
    let status = status(machine, architecture, environment);
    let patch = serde_json::json!({ "status": status });
    api.patch_status(&machine.name, &PatchParams::default(), &Patch::Merge(&patch))
        .await?;
    Ok(())
}

fn status(machine: &Machine, architecture: &str, environment: &Environment) -> NodeStatus {
    let mut capacity = BTreeMap::from([
        ("cpu".to_owned(), processors().to_string()),
        ("memory".to_owned(), format!("{}Ki", memory_kib())),
        ("pods".to_owned(), "1000".to_owned()),
    ]);
    capacity.extend(
        machine
            .capacity
            .iter()
            .map(|(name, quantity)| (name.clone(), quantity.0.clone())),
    );
    let capacity: BTreeMap<_, _> = capacity
        .into_iter()
        .map(|(name, value)| (name, Quantity(value)))
        .collect();
    let now = Some(Time(environment.now()));
    let address = |kind: &str, address: String| NodeAddress {
        type_: kind.to_owned(),
        address,
    };
    NodeStatus {
        addresses: Some(vec![
            address("InternalIP", GATEWAY.to_string()),
            address("Hostname", machine.name.clone()),
        ]),
        allocatable: Some(capacity.clone()),
        capacity: Some(capacity),
        conditions: Some(vec![NodeCondition {
            type_: "Ready".to_owned(),
            status: "True".to_owned(),
            reason: Some("KubeletReady".to_owned()),
            message: Some("kubelet is posting ready status".to_owned()),
            last_heartbeat_time: now.clone(),
            last_transition_time: now,
        }]),
        node_info: Some(NodeSystemInfo {
            architecture: architecture.to_owned(),
            operating_system: std::env::consts::OS.to_owned(),
            container_runtime_version: concat!("trainyard://", env!("CARGO_PKG_VERSION")).to_owned(),
            kubelet_version: concat!("v", env!("CARGO_PKG_VERSION")).to_owned(),
            ..NodeSystemInfo::default()
        }),
        ..NodeStatus::default()
    }
}

fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}

/// The memory of this machine; that of a small one if unknown.
fn memory_kib() -> u64 {
    let known = std::fs::read_to_string("/proc/meminfo").ok().and_then(|text| {
        let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
        line.trim().trim_end_matches(" kB").parse().ok()
    });
    known.unwrap_or(8 * 1024 * 1024)
}
