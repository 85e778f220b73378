//! One pod, from the moment at which it is bound to a node until it is gone.

mod stop;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use tokio::sync::{Notify, watch};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::sleep;

use super::Shared;
use super::container::{Policy, Started};
use super::probes::Asked;
use super::progress::Progress;
use super::status::{Entry, PodState, State, Terminated};
use super::tokens::{Issued, Wanted};
use crate::node::events::Kind;
use crate::node::names;
use crate::node::runtime::{Sandbox, SandboxSpec, log::Log};

/// What the API says of a pod.
#[derive(Clone, Debug)]
pub(super) struct Update {
    pub pod: Arc<Pod>,
    /// It is not there any more: nothing that it has to say is of interest.
    pub gone: bool,
}

/// How often files that may have changed are looked at.
pub(super) const REFRESH: Duration = Duration::from_millis(500);
pub(super) const RETRY: Duration = Duration::from_secs(1);

/// The tasks that keep a pod going.
#[derive(Default)]
struct Crew {
    containers: JoinSet<i32>,
    sidecars: JoinSet<i32>,
    /// What goes on while there are containers: volumes are kept current, progress is read.
    beside: JoinSet<()>,
}

/// What runs one pod.
#[derive(Debug)]
pub(super) struct Worker {
    pub shared: Arc<Shared>,
    pub directory: PathBuf,
    sandbox: Mutex<Option<Arc<Sandbox>>>,
    pub(super) updates: watch::Receiver<Update>,
    pub(super) state: Mutex<PodState>,
    started: Mutex<BTreeMap<String, Started>>,
    logs: Mutex<BTreeMap<String, Vec<Log>>>,
    pub(super) tokens: Mutex<BTreeMap<Wanted, Issued>>,
    pub(super) changed: Notify,
    pub(super) progress: Option<Progress>,
    task: Mutex<Option<AbortHandle>>,
}

impl Worker {
    pub fn new(shared: Arc<Shared>, updates: watch::Receiver<Update>) -> Arc<Self> {
        let pod = updates.borrow().pod.clone();
        let uid = pod.metadata.uid.clone().unwrap_or_default();
        let state = PodState::new(&pod, shared.environment.now());
        let directory = shared.options.state_directory.join("kubelet").join(uid);
        let listener = shared.options.progress.clone();
        Arc::new(Self {
            progress: listener.map(|listener| Progress::new(&directory, listener)),
            directory,
            shared,
            sandbox: Mutex::default(),
            updates,
            state: Mutex::new(state),
            started: Mutex::default(),
            logs: Mutex::default(),
            tokens: Mutex::default(),
            changed: Notify::new(),
            task: Mutex::default(),
        })
    }

    /// Runs the pod to its end, and until it is deleted.
    async fn run(self: Arc<Self>) {
        let mut writing = JoinSet::new();
        writing.spawn(self.clone().write_statuses());
        let mut crew = Crew::default();
        let following = self.clone();
        crew.beside
            .spawn(async move { following.follow_progress().await });
        tokio::select! {
            () = self.clone().lifecycle(&mut crew) => {}
            () = self.late() => {
                let message = "Pod was active on the node longer than the specified deadline".to_owned();
                self.tell(Kind::Normal, "DeadlineExceeded", message.clone());
                self.change(|state| state.failure = Some(("DeadlineExceeded".to_owned(), message)));
            }
            () = self.deletion() => {}
        }
        // Whatever would start something has to be gone before what was started is ended.
        crew.containers.shutdown().await;
        crew.sidecars.shutdown().await;
        // Of a pod that is being ended nothing is told before it has.
        writing.shutdown().await;
        self.write_status().await;
        self.terminate().await;
        *lock(&self.sandbox) = None;
        self.change(PodState::close);
        crew.beside.shutdown().await;
        self.write_status().await;
        self.deletion().await;
        self.confirm_deletion().await;
        for container in lock(&self.started).values() {
            container.container().kill();
        }
        self.clear();
    }

    /// All that happens while nobody wants the pod to end.
    async fn lifecycle(self: Arc<Self>, crew: &mut Crew) {
        let pod = self.pod();
        let spec = pod.spec.clone().unwrap_or_default();
        self.changed.notify_one();
        self.wait_for_volumes().await;
        self.make_sandbox(&pod).await;
        let policy = Policy::named(spec.restart_policy.as_deref());
        let refreshing = self.clone();
        crew.beside
            .spawn(async move { refreshing.refresh_volumes().await });
        for container in spec.init_containers.unwrap_or_default() {
            if container.restart_policy.as_deref() == Some("Always") {
                let name = container.name.clone();
                crew.sidecars
                    .spawn(self.clone().supervise(container, Policy::Always));
                self.until(|state| state.entry(&name).is_some_and(|entry| entry.came_up))
                    .await;
                continue;
            }
            // An init container that has succeeded is not started again, whatever the policy of the pod.
            let policy = if policy == Policy::Never {
                Policy::Never
            } else {
                Policy::OnFailure
            };
            crew.containers.spawn(self.clone().supervise(container, policy));
            if !matches!(crew.containers.join_next().await, Some(Ok(0))) {
                return;
            }
        }
        for container in spec.containers {
            crew.containers.spawn(self.clone().supervise(container, policy));
        }
        while crew.containers.join_next().await.is_some() {}
    }

    /// Waits until the pod has been there for too long.
    async fn late(&self) {
        let pod = self.pod();
        let deadline = pod.spec.as_ref().and_then(|spec| spec.active_deadline_seconds);
        match deadline.and_then(|seconds| u64::try_from(seconds).ok()) {
            Some(seconds) => sleep(Duration::from_secs(seconds)).await,
            None => std::future::pending().await,
        }
    }

    /// Nothing of a pod is made before its volumes are.
    async fn wait_for_volumes(&self) {
        while let Err(error) = self.volumes().await {
            self.tell(Kind::Warning, "FailedMount", error.to_string());
            sleep(RETRY).await;
        }
    }

    async fn make_sandbox(&self, pod: &Pod) {
        loop {
            let spec = SandboxSpec {
                id: pod.metadata.uid.clone().unwrap_or_default(),
                hostname: names::hostname(pod),
                name: names::full_name(pod),
                host_network: pod.spec.as_ref().and_then(|spec| spec.host_network) == Some(true),
                share_processes: pod.spec.as_ref().and_then(|spec| spec.share_process_namespace)
                    == Some(true),
            };
            match self.shared.runtime.sandbox(spec).await {
                Ok(sandbox) => {
                    let address = sandbox.address();
                    *lock(&self.sandbox) = Some(Arc::new(sandbox));
                    self.change(|state| {
                        state.address = Some(address);
                        state.sandboxed = true;
                    });
                    return;
                }
                Err(error) => {
                    tracing::warn!(pod = self.description(), %error, "could not make the sandbox of a pod");
                    let message = format!("Failed to create pod sandbox: {error}");
                    self.tell(Kind::Warning, "FailedCreatePodSandBox", message);
                    sleep(RETRY).await;
                }
            }
        }
    }

    /// Waits until the pod is to be deleted.
    async fn deletion(&self) {
        let mut updates = self.updates.clone();
        let wanted =
            updates.wait_for(|update| update.gone || update.pod.metadata.deletion_timestamp.is_some());
        if wanted.await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// Notes that a container was started, so that it can be read and ended.
    pub fn began(&self, name: &str, asked: Asked, id: &str, since: Timestamp) {
        lock(&self.logs)
            .entry(name.to_owned())
            .or_default()
            .push(asked.container.log().clone());
        let started = Started {
            asked,
            id: id.to_owned(),
            since,
        };
        lock(&self.started).insert(name.to_owned(), started);
    }

    /// Notes that a container runs.
    pub fn running(&self, name: &str, id: &str, since: Timestamp, has_started: bool) {
        self.set(name, |entry| {
            entry.state = State::Running { since };
            entry.id = Some(id.to_owned());
            entry.started = false;
            entry.ready = false;
            if has_started {
                entry.comes_up();
            }
        });
    }

    /// Notes that a container has ended.
    pub fn end(&self, name: &str, end: Terminated) {
        // Before the end is known: whoever waits for that has then heard everything.
        self.tell_progress();
        self.set(name, |entry| entry.ends(end));
    }

    pub fn set(&self, name: &str, change: impl FnOnce(&mut Entry)) {
        self.change(|state| state.entry(name).map(change));
    }

    fn change<T>(&self, change: impl FnOnce(&mut PodState) -> T) -> T {
        let result = change(&mut lock(&self.state));
        self.changed.notify_one();
        self.shared.moved.notify_waiters();
        result
    }

    async fn until(&self, mut reached: impl FnMut(&mut PodState) -> bool) {
        loop {
            let moved = self.shared.moved.notified();
            if reached(&mut lock(&self.state)) {
                return;
            }
            moved.await;
        }
    }

    /// Starts [`Worker::run`].
    pub fn spawn(self: &Arc<Self>) {
        let task = tokio::spawn(self.clone().run());
        *lock(&self.task) = Some(task.abort_handle());
    }

    /// The logs of a container's runs, the oldest first.
    pub fn logs(&self, container: &str) -> Vec<Log> {
        lock(&self.logs).get(container).cloned().unwrap_or_default()
    }

    /// A container that runs.
    pub fn container(&self, name: &str) -> Option<crate::node::runtime::Container> {
        lock(&self.started).get(name).map(|one| one.container().clone())
    }

    /// Why a container waits to be started, in one word.
    pub fn waits_for(&self, name: &str) -> Option<String> {
        match &lock(&self.state).entry(name)?.state {
            State::Waiting { reason, .. } => Some(reason.clone()),
            State::Running { .. } | State::Terminated(_) => None,
        }
    }

    /// What its containers share, while there is something.
    pub fn sandbox(&self) -> Option<Arc<Sandbox>> {
        lock(&self.sandbox).clone()
    }

    pub fn pod(&self) -> Arc<Pod> {
        self.updates.borrow().pod.clone()
    }

    /// The pod, with the addresses that the API may not have yet.
    pub fn pod_with_addresses(&self) -> Pod {
        let mut pod = Pod::clone(&self.pod());
        let status = pod.status.get_or_insert_default();
        status.pod_ip = lock(&self.state).address.map(|address| address.to_string());
        status.host_ip = Some(self.shared.options.address.to_string());
        pod
    }

    pub fn now(&self) -> Timestamp {
        // Kubernetes has whole seconds.
        let now = self.shared.environment.now();
        Timestamp::from_second(now.as_second()).unwrap_or(now)
    }

    pub fn grace(&self) -> Duration {
        let pod = self.pod();
        let given = pod.metadata.deletion_grace_period_seconds;
        let given = given.or(pod
            .spec
            .as_ref()
            .and_then(|spec| spec.termination_grace_period_seconds));
        Duration::from_secs(given.and_then(|given| u64::try_from(given).ok()).unwrap_or(30))
    }

    /// The pod, as messages name it.
    pub fn description(&self) -> String {
        let metadata = &self.pod().metadata;
        let part = |part: &Option<String>| part.clone().unwrap_or_default();
        format!(
            "{}_{}({})",
            part(&metadata.name),
            part(&metadata.namespace),
            part(&metadata.uid)
        )
    }
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
