//! Simulated kubelets: a player sets the status of pods on a real API server, as a [`Script`] says.
//!
//! A pod is bound to a node if the script has nodes ([`nodes`] creates them), and one status write
//! makes it run. One that was not bound is removed by the server at once when it is deleted. One
//! player serves thousands of pods; it decodes only the few fields it needs.

mod node;
mod pod;
mod script;
mod status;
mod watch;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use kube::Client;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions, Request};
use parking_lot::Mutex;
use serde_json::json;
use tokio::sync::{Semaphore, watch as channel};
use tokio::task::AbortHandle;
use trainyard_eventually::{LOOK_INTERVAL, Wait};
use trainyard_operator::clock::{Clock, SystemClock};

pub use node::{cordon, create_nodes, nodes, remove_nodes};
pub use script::Script;
pub use watch::{Change, Target, follow};

use pod::SlimPod;
use status::PodTransition;

/// Requests of a player in parallel.
const MAX_PARALLEL: usize = 32;
/// If its client disconnects during a deletion, the server may mark a pod and not remove it. A pod
/// without a node that has been terminating for this long is one of these.
const ABANDONED_TIMEOUT: Duration = Duration::from_secs(1);

/// Which pods are played.
#[derive(Clone, Debug, Default)]
pub struct Scope {
    /// Their namespace; absent: all.
    pub namespace: Option<String>,
    /// A label selector; empty: all.
    pub labels: String,
}

impl Scope {
    /// All pods of a namespace.
    pub fn namespace(name: impl Into<String>) -> Self {
        Self {
            namespace: Some(name.into()),
            labels: String::new(),
        }
    }

    fn target(&self) -> Target {
        Target {
            path: pods_path(self.namespace.as_deref()),
            labels: self.labels.clone(),
        }
    }
}

fn pods_path(namespace: Option<&str>) -> String {
    namespace.map_or_else(
        || "/api/v1/pods".to_owned(),
        |namespace| format!("/api/v1/namespaces/{namespace}/pods"),
    )
}

/// What a player has done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Lists that were read; from the first on, nothing is missed.
    pub lists: usize,
    /// Pods that were seen.
    pub seen: usize,
    /// Pods that were set Running.
    pub started: usize,
    /// Pods that were set Succeeded.
    pub succeeded: usize,
    /// Pods that were set Failed.
    pub failed: usize,
    /// Pods whose removal was seen.
    pub removed: usize,
}

/// A pod as the player knows it.
#[derive(Clone, Debug)]
pub struct PlayedPod {
    /// Its UID.
    pub uid: String,
    /// When this pod was first seen.
    pub seen: Instant,
    /// How many pods of this name there were before.
    pub earlier: u32,
    /// Whether the pod was removed.
    pub removed: bool,
    containers: Vec<String>,
}

type Key = (String, String);

struct State {
    client: Client,
    script: Script,
    pods: Mutex<HashMap<Key, PlayedPod>>,
    counts: channel::Sender<Counts>,
    permits: Semaphore,
    clock: Arc<dyn Clock>,
}

/// Plays until it is dropped.
pub struct Player {
    state: Arc<State>,
    watch: AbortHandle,
}

impl Drop for Player {
    fn drop(&mut self) {
        self.watch.abort();
    }
}

impl Player {
    /// Begins to play, in the current runtime.
    pub fn start(client: Client, scope: &Scope, script: Script) -> Self {
        Self::start_by(client, scope, script, Arc::new(SystemClock))
    }

    /// The same, by another clock than the machine's.
    pub fn start_by(client: Client, scope: &Scope, script: Script, clock: Arc<dyn Clock>) -> Self {
        let state = Arc::new(State {
            client: client.clone(),
            script,
            pods: Mutex::default(),
            counts: channel::Sender::new(Counts::default()),
            permits: Semaphore::new(MAX_PARALLEL),
            clock,
        });
        let target = scope.target();
        let handler = state.clone();
        let task = tokio::spawn(follow(client, target, move |change| handler.handle(change)));
        Self {
            state,
            watch: task.abort_handle(),
        }
    }

    /// What it has done so far.
    pub fn counts(&self) -> Counts {
        *self.state.counts.borrow()
    }

    /// Waits until the counts are as asked for; an error names them when they have not changed for
    /// too long.
    pub async fn until(&self, mut reached: impl FnMut(&Counts) -> bool) -> Result<Counts> {
        let mut receiver = self.state.counts.subscribe();
        let mut wait = Wait::new("the player's counts");
        loop {
            let counts = *receiver.borrow_and_update();
            if reached(&counts) {
                return Ok(counts);
            }
            if !wait.has_patience(format!("{counts:?}")) {
                bail!("{wait}");
            }
            // At once when something changes: benchmarks measure by this.
            let changed = tokio::time::timeout(LOOK_INTERVAL, receiver.changed()).await;
            if let Ok(ended) = changed {
                ended.context("the player has ended")?;
            }
        }
    }

    /// Waits until it follows its pods.
    pub async fn listed(&self) -> Result<()> {
        self.until(|counts| counts.lists > 0).await.map(drop)
    }

    /// The latest pod of a name.
    pub fn pod(&self, namespace: &str, name: &str) -> Option<PlayedPod> {
        let key = (namespace.to_owned(), name.to_owned());
        self.state.pods.lock().get(&key).cloned()
    }

    /// Makes a pod run now. Returns when the server had accepted it.
    pub async fn start_pod(&self, namespace: &str, name: &str) -> Result<Instant> {
        self.set(namespace, name, PodTransition::Run).await
    }

    /// Makes a pod fail now. Returns when the server had accepted it.
    pub async fn fail(&self, namespace: &str, name: &str, code: i32) -> Result<Instant> {
        self.set(namespace, name, PodTransition::Fail(code)).await
    }

    /// Makes a pod end well now. Returns when the server had accepted it.
    pub async fn succeed(&self, namespace: &str, name: &str) -> Result<Instant> {
        self.set(namespace, name, PodTransition::Succeed).await
    }

    async fn set(&self, namespace: &str, name: &str, transition: PodTransition) -> Result<Instant> {
        let pod = self
            .pod(namespace, name)
            .with_context(|| format!("pod {name} was not seen"))?;
        let key = (namespace.to_owned(), name.to_owned());
        if !self.state.write(&key, &pod, transition).await? {
            bail!("pod {name} is gone, or another has its name");
        }
        Ok(Instant::now())
    }
}

impl State {
    fn handle(self: &Arc<Self>, change: Change<SlimPod>) {
        match change {
            Change::Listed(pods) => {
                let listed: std::collections::HashSet<String> =
                    pods.iter().map(|pod| pod.metadata.uid.clone()).collect();
                let gone: Vec<Key> = self
                    .pods
                    .lock()
                    .iter()
                    .filter(|(_, pod)| !pod.removed && !listed.contains(&pod.uid))
                    .map(|(key, _)| key.clone())
                    .collect();
                for key in gone {
                    self.record_deleted(&key, None);
                }
                for pod in pods {
                    self.record_applied(pod);
                }
                self.counts.send_modify(|counts| counts.lists += 1);
            }
            Change::Applied(pod) => self.record_applied(pod),
            Change::Deleted(pod) => {
                let key = (pod.metadata.namespace, pod.metadata.name);
                self.record_deleted(&key, Some(&pod.metadata.uid));
            }
        }
    }

    fn record_deleted(&self, key: &Key, uid: Option<&str>) {
        let known = match self.pods.lock().get_mut(key) {
            Some(pod) if !pod.removed && uid.is_none_or(|uid| uid == pod.uid) => {
                pod.removed = true;
                true
            }
            _ => false,
        };
        // Not while the pods are locked: a receiver of counts may read them.
        if known {
            self.counts.send_modify(|counts| counts.removed += 1);
        }
    }

    fn record_applied(self: &Arc<Self>, pod: SlimPod) {
        let SlimPod {
            metadata,
            spec,
            status,
        } = pod;
        let key = (metadata.namespace, metadata.name);
        if metadata.deletion_timestamp.is_some() {
            let (state, key, uid) = (self.clone(), key.clone(), metadata.uid.clone());
            let after = if spec.node_name.is_some() {
                Duration::ZERO
            } else {
                ABANDONED_TIMEOUT
            };
            tokio::spawn(async move {
                wait(after).await;
                // Retried: this request may be lost, too.
                while state.collect(&key, &uid).await {
                    wait(ABANDONED_TIMEOUT).await;
                }
            });
        }
        let mut pods = self.pods.lock();
        let before = pods.get(&key);
        if before.is_some_and(|before| before.uid == metadata.uid) {
            return;
        }
        let number = pods.len();
        let played = PlayedPod {
            uid: metadata.uid,
            seen: Instant::now(),
            earlier: before.map_or(0, |before| before.earlier + 1),
            removed: false,
            containers: spec
                .containers
                .into_iter()
                .map(|container| container.name)
                .collect(),
        };
        pods.insert(key.clone(), played.clone());
        drop(pods);
        self.counts.send_modify(|counts| counts.seen += 1);
        if status.phase == "Pending" && metadata.deletion_timestamp.is_none() {
            let state = self.clone();
            tokio::spawn(async move { state.play(key, played, number).await });
        }
    }

    /// Removes a terminating pod, as its kubelet does if it has a node, else as the pod garbage
    /// collector does. Returns whether it may still exist.
    async fn collect(&self, key: &Key, uid: &str) -> bool {
        let left = self
            .pods
            .lock()
            .get(key)
            .is_some_and(|pod| pod.uid == uid && !pod.removed);
        if !left {
            return false;
        }
        let parameters = DeleteParams::default()
            .grace_period(0)
            .preconditions(Preconditions {
                uid: Some(uid.to_owned()),
                resource_version: None,
            });
        let Ok(request) = Request::new(pods_path(Some(&key.0))).delete(&key.1, &parameters) else {
            return false;
        };
        match self.client.request_text(request).await {
            // It may be gone.
            Err(kube::Error::Api(status)) => !matches!(status.code, 404 | 409),
            Ok(_) | Err(_) => true,
        }
    }

    async fn play(&self, key: Key, pod: PlayedPod, number: usize) {
        let Some(start) = self.script.start() else { return };
        wait(start).await;
        if let Err(error) = self.play_to_end(&key, &pod, number).await {
            eprintln!("pod {}: {error:#}", key.1);
        }
    }

    async fn play_to_end(&self, key: &Key, pod: &PlayedPod, number: usize) -> Result<()> {
        if let Some(node) = self.script.node(&key.1, pod.earlier, number)
            && !self.bind(key, pod, node).await?
        {
            return Ok(());
        }
        if !self.write(key, pod, PodTransition::Run).await? {
            return Ok(());
        }
        if let Some((after, transition)) = self.script.end(&key.1, pod.earlier) {
            wait(after).await;
            self.write(key, pod, transition).await?;
        }
        Ok(())
    }

    /// Binds a pod to a node. Returns whether the pod exists.
    async fn bind(&self, key: &Key, pod: &PlayedPod, node: &str) -> Result<bool> {
        let binding = json!({
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": key.1, "uid": pod.uid},
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        });
        let body = serde_json::to_vec(&binding)?;
        let pods = Request::new(pods_path(Some(&key.0)));
        self.send(pods.create_subresource("binding", &key.1, &PostParams::default(), body)?)
            .await
            .context("bind")
    }

    /// Returns whether the pod exists.
    async fn write(&self, key: &Key, pod: &PlayedPod, transition: PodTransition) -> Result<bool> {
        let patch = Patch::Merge(status::patch(
            &pod.uid,
            &pod.containers,
            transition,
            self.clock.now(),
        ));
        let pods = Request::new(pods_path(Some(&key.0)));
        let request = pods.patch_subresource("status", &key.1, &PatchParams::default(), &patch)?;
        if !self
            .send(request)
            .await
            .with_context(|| format!("{transition:?}"))?
        {
            return Ok(false);
        }
        self.counts.send_modify(|counts| match transition {
            PodTransition::Run => counts.started += 1,
            PodTransition::Succeed => counts.succeeded += 1,
            PodTransition::Fail(_) => counts.failed += 1,
        });
        Ok(true)
    }

    /// Sends a request about a pod. Returns whether the pod exists.
    async fn send(&self, request: http::Request<Vec<u8>>) -> Result<bool> {
        let _permit = self.permits.acquire().await?;
        match self.client.request_text(request).await {
            Ok(_) => Ok(true),
            Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }
}

async fn wait(time: Duration) {
    if !time.is_zero() {
        tokio::time::sleep(time).await;
    }
}
