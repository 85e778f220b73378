//! The kubelet: runs the pods that are bound to its nodes, and reports their status.

mod access;
mod addresses;
mod back_off;
mod container;
mod env;
mod events;
mod fields;
mod files;
mod inputs;
mod kill_on_drop;
mod limits;
mod mounts;
mod ownership;
mod pod;
mod probe_http;
mod probes;
pub mod progress;
mod references;
mod report;
mod retention;
mod services;
mod status;
mod sub_path;
mod termination;
mod tokens;
mod user;
mod volumes;
pub(crate) mod workdir;
mod worker;

use std::collections::{BTreeMap, HashMap};
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::sync::Arc;

use futures::TryStreamExt;
use k8s_openapi::api::core::v1::Pod;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client};
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};

use super::events::Recorder;
use super::runtime::{Container, Runtime, log::Log};
use crate::env::Environment;
use worker::{PodWorker, Update};

pub(crate) use fields::milli;

/// Options of a kubelet.
#[derive(Clone, Debug)]
pub struct Options {
    /// The names of its nodes.
    pub nodes: Vec<String>,
    /// The address of those nodes.
    pub address: Ipv4Addr,
    /// A directory for its state while it runs.
    pub state_directory: PathBuf,
    /// A directory for claimed volumes, which stay.
    pub claims_directory: PathBuf,
    /// The working directory of containers, which they may write to.
    pub working_directory: PathBuf,
    /// The directory that `hostPath` volumes must be in. Without it, they may be anywhere.
    pub host_paths: Option<PathBuf>,
    /// Directories with the files of images, by the names of the images.
    pub images: BTreeMap<String, PathBuf>,
    /// The user and group of containers with the files of an image whose pods name none. Without
    /// it, they run as this process.
    pub image_user: Option<u32>,
    /// Receives the lines of progress files.
    pub progress: Option<progress::Listener>,
    /// Where the files of deleted pods are moved to, instead of being removed.
    pub keep: Option<PathBuf>,
}

/// What all pods share.
struct Shared {
    client: Client,
    runtime: Runtime,
    environment: Environment,
    recorder: Recorder,
    options: Options,
    /// Notified when a pod has changed.
    moved: Notify,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared")
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}

impl Shared {
    /// Whether there is a DNS server for pods.
    #[cfg(target_os = "linux")]
    fn has_names(&self) -> bool {
        self.runtime.bridge().is_some()
    }

    #[cfg(not(target_os = "linux"))]
    #[expect(clippy::unused_self, reason = "as on Linux")]
    fn has_names(&self) -> bool {
        false
    }
}

struct Handle {
    updates: watch::Sender<Update>,
    worker: Arc<PodWorker>,
}

/// Runs the pods of some nodes.
#[derive(Clone)]
pub struct Kubelet {
    shared: Arc<Shared>,
    pods: Arc<Mutex<HashMap<String, Handle>>>,
}

impl std::fmt::Debug for Kubelet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Kubelet")
            .field("shared", &self.shared)
            .finish_non_exhaustive()
    }
}

impl Kubelet {
    /// A kubelet; see [`Self::run`].
    pub fn new(
        client: Client,
        runtime: Runtime,
        environment: Environment,
        recorder: Recorder,
        options: Options,
    ) -> Self {
        Self {
            shared: Arc::new(Shared {
                client,
                runtime,
                environment,
                recorder,
                options,
                moved: Notify::new(),
            }),
            pods: Arc::default(),
        }
    }

    /// The bridge of pods.
    #[cfg(target_os = "linux")]
    pub(crate) fn bridge(&self) -> Option<crate::yard::link::Bridge> {
        self.shared.runtime.bridge().cloned()
    }

    /// Runs pods until it is dropped.
    pub async fn run(&self) {
        let pods = Api::<Pod>::all(self.shared.client.clone());
        let mut events = std::pin::pin!(watcher(pods, watcher::Config::default()));
        let mut listed = Vec::new();
        loop {
            match events.try_next().await {
                Ok(Some(Event::Init)) => listed.clear(),
                Ok(Some(Event::InitApply(pod))) => {
                    listed.extend(pod.metadata.uid.clone());
                    self.apply(pod, false);
                }
                // Pods that are not in the list were deleted while there was no watch.
                Ok(Some(Event::InitDone)) => self.keep_only(&listed),
                Ok(Some(Event::Apply(pod))) => self.apply(pod, false),
                Ok(Some(Event::Delete(pod))) => self.apply(pod, true),
                Ok(None) => return,
                Err(error) => {
                    tracing::warn!(%error, "could not watch pods");
                    tokio::time::sleep(std::time::Duration::from_millis(100)).await;
                }
            }
        }
    }

    fn apply(&self, pod: Pod, gone: bool) {
        let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_ref());
        if !node.is_some_and(|node| self.shared.options.nodes.contains(node)) {
            return;
        }
        let uid = pod.metadata.uid.clone().unwrap_or_default();
        let update = Update {
            pod: Arc::new(pod),
            gone,
        };
        let mut pods = self.pods.lock();
        if let Some(handle) = pods.get(&uid) {
            handle.updates.send_replace(update);
            if gone {
                pods.remove(&uid);
            }
            return;
        }
        let phase = update
            .pod
            .status
            .as_ref()
            .and_then(|status| status.phase.as_deref());
        if gone || matches!(phase, Some("Succeeded" | "Failed")) {
            return;
        }
        let (send, updates) = watch::channel(update);
        let worker = PodWorker::new(self.shared.clone(), updates);
        worker.spawn();
        pods.insert(
            uid,
            Handle {
                updates: send,
                worker,
            },
        );
    }

    fn keep_only(&self, listed: &[String]) {
        let mut pods = self.pods.lock();
        pods.retain(|uid, handle| {
            let stays = listed.contains(uid);
            if !stays {
                handle.updates.send_modify(|update| update.gone = true);
            }
            stays
        });
    }

    /// Kills all pods and waits for the end of their processes. The API is not told.
    pub async fn kill_all(&self) {
        let workers: Vec<_> = {
            let pods = self.pods.lock();
            pods.values().map(|handle| handle.worker.clone()).collect()
        };
        for worker in &workers {
            worker.give_up();
        }
        for worker in workers {
            worker.kill().await;
            worker.remove_files();
        }
    }

    /// The log of a container's current or previous run.
    pub fn log(&self, uid: &str, container: &str, previous: bool) -> Option<Log> {
        let pods = self.pods.lock();
        let logs = pods.get(uid)?.worker.logs(container);
        if previous {
            logs.iter().rev().nth(1).cloned()
        } else {
            logs.last().cloned()
        }
    }

    /// The reason why a container waits.
    pub(super) fn waiting_reason(&self, uid: &str, container: &str) -> Option<String> {
        let pods = self.pods.lock();
        pods.get(uid)?.worker.waiting_reason(container)
    }

    /// A container that runs or ran.
    pub fn container(&self, uid: &str, container: &str) -> Option<Container> {
        let pods = self.pods.lock();
        pods.get(uid)?.worker.container(container)
    }
}
