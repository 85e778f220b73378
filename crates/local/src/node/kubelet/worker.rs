//! The state of one pod on this node. What changes it is in [`pod`](super::pod) and
//! [`container`](super::container).

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use tokio::task::AbortHandle;

use super::Shared;
use super::probes::RunningContainer;
use super::progress::ProgressFile;
use super::status::{Entry, PodState, State, Terminated};
use super::tokens::{IssuedToken, TokenSpec};
use crate::node::runtime::{Container, Sandbox, log::Log};

#[derive(Clone, Debug)]
pub(super) struct Update {
    pub pod: Arc<Pod>,
    /// The pod is deleted; its status is not needed any more.
    pub gone: bool,
}

pub(super) const RETRY_INTERVAL: Duration = Duration::from_secs(1);

#[derive(Clone, Debug)]
pub(super) struct StartedContainer {
    pub running: RunningContainer,
    pub id: String,
    pub since: Timestamp,
}

impl StartedContainer {
    pub fn container(&self) -> &Container {
        &self.running.container
    }
}

#[derive(Debug)]
pub(super) struct PodWorker {
    pub shared: Arc<Shared>,
    pub directory: PathBuf,
    pub(super) sandbox: Mutex<Option<Arc<Sandbox>>>,
    pub(super) updates: watch::Receiver<Update>,
    pub(super) state: Mutex<PodState>,
    pub(super) started: Mutex<BTreeMap<String, StartedContainer>>,
    logs: Mutex<BTreeMap<String, Vec<Log>>>,
    pub(super) tokens: Mutex<BTreeMap<TokenSpec, IssuedToken>>,
    pub(super) changed: Notify,
    pub(super) progress: Option<ProgressFile>,
    pub(super) task: Mutex<Option<AbortHandle>>,
}

impl PodWorker {
    pub fn new(shared: Arc<Shared>, updates: watch::Receiver<Update>) -> Arc<Self> {
        let pod = updates.borrow().pod.clone();
        let uid = pod.metadata.uid.clone().unwrap_or_default();
        let state = PodState::new(&pod, shared.environment.now());
        let directory = shared.options.state_directory.join("kubelet").join(uid);
        let listener = shared.options.progress.clone();
        Arc::new(Self {
            progress: listener.map(|listener| ProgressFile::new(&pod, &directory, listener)),
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

    /// Records that a container was started.
    pub fn container_started(&self, name: &str, running: RunningContainer, id: &str, since: Timestamp) {
        self.logs
            .lock()
            .entry(name.to_owned())
            .or_default()
            .push(running.container.log().clone());
        let started = StartedContainer {
            running,
            id: id.to_owned(),
            since,
        };
        self.started.lock().insert(name.to_owned(), started);
    }

    /// Records that a container runs.
    pub fn container_running(&self, name: &str, id: &str, since: Timestamp, has_started: bool) {
        self.update_container(name, |entry| {
            entry.state = State::Running { since };
            entry.id = Some(id.to_owned());
            entry.started = false;
            entry.ready = false;
            if has_started {
                entry.comes_up();
            }
        });
    }

    /// Records that a container has ended.
    pub fn container_ended(&self, name: &str, end: Terminated) {
        // Before the end is reported, so that a listener has all lines by then.
        if let Some(progress) = &self.progress {
            progress.pass_on();
        }
        self.update_container(name, |entry| entry.ends(end));
    }

    pub fn update_container(&self, name: &str, change: impl FnOnce(&mut Entry)) {
        self.update(|state| state.entry(name).map(change));
    }

    pub(super) fn update<T>(&self, change: impl FnOnce(&mut PodState) -> T) -> T {
        let result = change(&mut self.state.lock());
        self.changed.notify_one();
        self.shared.moved.notify_waiters();
        result
    }

    pub(super) async fn wait_until(&self, mut reached: impl FnMut(&mut PodState) -> bool) {
        loop {
            let moved = self.shared.moved.notified();
            if reached(&mut self.state.lock()) {
                return;
            }
            moved.await;
        }
    }

    pub fn logs(&self, container: &str) -> Vec<Log> {
        self.logs.lock().get(container).cloned().unwrap_or_default()
    }

    pub fn container(&self, name: &str) -> Option<Container> {
        self.started.lock().get(name).map(|one| one.container().clone())
    }

    /// The reason why a container waits.
    pub fn waiting_reason(&self, name: &str) -> Option<String> {
        match &self.state.lock().entry(name)?.state {
            State::Waiting { reason, .. } => Some(reason.clone()),
            State::Running { .. } | State::Terminated(_) => None,
        }
    }

    pub fn sandbox(&self) -> Option<Arc<Sandbox>> {
        self.sandbox.lock().clone()
    }

    pub fn pod(&self) -> Arc<Pod> {
        self.updates.borrow().pod.clone()
    }

    /// The pod with its addresses, which the API may not have yet.
    pub fn pod_with_addresses(&self) -> Pod {
        let mut pod = Pod::clone(&self.pod());
        let status = pod.status.get_or_insert_default();
        status.pod_ip = self.state.lock().address.map(|address| address.to_string());
        status.host_ip = Some(self.shared.options.address.to_string());
        pod
    }

    pub fn now(&self) -> Timestamp {
        // Kubernetes' times are whole seconds.
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
