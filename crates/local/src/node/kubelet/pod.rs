//! The lifecycle of a pod on its node.

mod stop;

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::container::RestartPolicy;
use super::status::PodState;
use super::worker::{PodWorker, RETRY_INTERVAL};
use crate::node::events::EventType;
use crate::node::names;
use crate::node::runtime::SandboxSpec;

#[derive(Default)]
struct PodTasks {
    containers: JoinSet<i32>,
    sidecars: JoinSet<i32>,
    /// Refreshes volumes and reads progress while there are containers.
    beside: JoinSet<()>,
}

impl PodWorker {
    /// Runs the pod until it has ended and is deleted.
    async fn run(self: Arc<Self>) {
        let mut writing = JoinSet::new();
        writing.spawn(self.clone().write_statuses());
        let mut tasks = PodTasks::default();
        let following = self.clone();
        tasks.beside.spawn(async move {
            if let Some(progress) = &following.progress {
                progress.follow().await;
            }
        });
        tokio::select! {
            () = self.clone().lifecycle(&mut tasks) => {}
            () = self.deadline_exceeded() => {
                let message = "Pod was active on the node longer than the specified deadline".to_owned();
                self.record_event(EventType::Normal, "DeadlineExceeded", message.clone());
                self.update(|state| state.failure = Some(("DeadlineExceeded".to_owned(), message)));
            }
            () = self.deletion_requested() => {}
        }
        // These tasks start containers, so they stop before the containers are killed.
        tasks.containers.shutdown().await;
        tasks.sidecars.shutdown().await;
        // No status is written while a pod terminates.
        writing.shutdown().await;
        self.write_status().await;
        self.terminate().await;
        *self.sandbox.lock() = None;
        self.update(PodState::close);
        tasks.beside.shutdown().await;
        self.write_status().await;
        self.deletion_requested().await;
        self.confirm_deletion().await;
        for container in self.started.lock().values() {
            container.container().kill();
        }
        self.remove_files();
    }

    /// The pod up to its end, unless it is deleted.
    async fn lifecycle(self: Arc<Self>, tasks: &mut PodTasks) {
        let pod = self.pod();
        let spec = pod.spec.clone().unwrap_or_default();
        self.changed.notify_one();
        self.wait_for_volumes().await;
        self.make_sandbox(&pod).await;
        let policy = RestartPolicy::named(spec.restart_policy.as_deref());
        let refreshing = self.clone();
        tasks
            .beside
            .spawn(async move { refreshing.refresh_volumes().await });
        for container in spec.init_containers.unwrap_or_default() {
            if container.restart_policy.as_deref() == Some("Always") {
                let name = container.name.clone();
                tasks
                    .sidecars
                    .spawn(self.clone().supervise(container, RestartPolicy::Always));
                self.wait_until(|state| state.entry(&name).is_some_and(|entry| entry.came_up))
                    .await;
                continue;
            }
            // An init container that has succeeded is not restarted, whatever the policy of the
            // pod.
            let policy = if policy == RestartPolicy::Never {
                RestartPolicy::Never
            } else {
                RestartPolicy::OnFailure
            };
            tasks.containers.spawn(self.clone().supervise(container, policy));
            if !matches!(tasks.containers.join_next().await, Some(Ok(0))) {
                return;
            }
        }
        for container in spec.containers {
            tasks.containers.spawn(self.clone().supervise(container, policy));
        }
        while tasks.containers.join_next().await.is_some() {}
    }

    /// Waits for activeDeadlineSeconds.
    async fn deadline_exceeded(&self) {
        let pod = self.pod();
        let deadline = pod.spec.as_ref().and_then(|spec| spec.active_deadline_seconds);
        match deadline.and_then(|seconds| u64::try_from(seconds).ok()) {
            Some(seconds) => sleep(Duration::from_secs(seconds)).await,
            None => std::future::pending().await,
        }
    }

    /// The sandbox is created after the volumes.
    async fn wait_for_volumes(&self) {
        while let Err(error) = self.volumes().await {
            self.record_event(EventType::Warning, "FailedMount", error.to_string());
            sleep(RETRY_INTERVAL).await;
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
                    *self.sandbox.lock() = Some(Arc::new(sandbox));
                    self.update(|state| {
                        state.address = Some(address);
                        state.sandboxed = true;
                    });
                    return;
                }
                Err(error) => {
                    tracing::warn!(pod = self.description(), %error, "could not make the sandbox of a pod");
                    let message = format!("Failed to create pod sandbox: {error}");
                    self.record_event(EventType::Warning, "FailedCreatePodSandBox", message);
                    sleep(RETRY_INTERVAL).await;
                }
            }
        }
    }

    async fn deletion_requested(&self) {
        let mut updates = self.updates.clone();
        let wanted =
            updates.wait_for(|update| update.gone || update.pod.metadata.deletion_timestamp.is_some());
        if wanted.await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// Starts [`PodWorker::run`].
    pub fn spawn(self: &Arc<Self>) {
        let task = tokio::spawn(self.clone().run());
        *self.task.lock() = Some(task.abort_handle());
    }
}
