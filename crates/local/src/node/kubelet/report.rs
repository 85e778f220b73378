//! Reports the status of a pod to the API.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{Pod, PodStatus};
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, Preconditions};
use tokio::time::sleep;

use super::worker::{PodWorker, RETRY_INTERVAL};

impl PodWorker {
    /// Removes the pod from the API after its termination.
    pub(super) async fn confirm_deletion(&self) {
        let pod = self.pod();
        let parameters = DeleteParams {
            grace_period_seconds: Some(0),
            preconditions: Some(Preconditions {
                uid: pod.metadata.uid.clone(),
                resource_version: None,
            }),
            ..DeleteParams::default()
        };
        while !self.updates.borrow().gone {
            match self
                .api()
                .delete(pod.metadata.name.as_deref().unwrap_or_default(), &parameters)
                .await
            {
                Ok(_) => return,
                Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => return,
                Err(error) => {
                    tracing::warn!(pod = self.description(), %error, "could not confirm a deletion");
                }
            }
            sleep(RETRY_INTERVAL).await;
        }
    }

    pub(super) async fn write_statuses(self: Arc<Self>) {
        loop {
            self.changed.notified().await;
            self.write_status().await;
        }
    }

    /// Writes the status if it has changed.
    pub(super) async fn write_status(&self) {
        loop {
            let pod = self.pod();
            let status = self
                .state
                .lock()
                .status(&pod, self.shared.options.address, self.now());
            if self.updates.borrow().gone || same(pod.status.as_ref(), &status) {
                return;
            }
            let patch = serde_json::json!({
                "metadata": {"uid": pod.metadata.uid},
                "status": cleared(&status, pod.status.as_ref()),
            });
            let name = pod.metadata.name.as_deref().unwrap_or_default();
            let parameters = PatchParams::default();
            match self
                .api()
                .patch_status(name, &parameters, &Patch::Merge(&patch))
                .await
            {
                Ok(_) => return,
                Err(kube::Error::Api(error)) if matches!(error.code, 404 | 409 | 422) => {
                    tracing::debug!(pod = self.description(), %error, "a status was not wanted");
                    return;
                }
                Err(error) => tracing::warn!(pod = self.description(), %error, "could not write a status"),
            }
            sleep(RETRY_INTERVAL).await;
        }
    }

    fn api(&self) -> Api<Pod> {
        let namespace = self.pod().metadata.namespace.clone().unwrap_or_default();
        Api::namespaced(self.shared.client.clone(), &namespace)
    }
}

/// Whether the API has this status, as far as the kubelet writes it.
fn same(known: Option<&PodStatus>, status: &PodStatus) -> bool {
    let Some(known) = known else { return false };
    let mut merged = known.clone();
    let PodStatus {
        phase,
        conditions,
        host_ip,
        host_ips,
        pod_ip,
        pod_ips,
        start_time,
        ..
    } = status.clone();
    merged.phase = phase;
    merged.conditions = conditions;
    merged.host_ip = host_ip;
    merged.host_ips = host_ips;
    merged.pod_ip = pod_ip;
    merged.pod_ips = pod_ips;
    merged.start_time = start_time;
    merged.container_statuses.clone_from(&status.container_statuses);
    merged
        .init_container_statuses
        .clone_from(&status.init_container_statuses);
    merged.reason.clone_from(&status.reason);
    merged.message.clone_from(&status.message);
    merged == *known
}

/// A status as a merge patch, which removes fields that are not set any more.
fn cleared(status: &PodStatus, known: Option<&PodStatus>) -> serde_json::Value {
    let mut patch = serde_json::to_value(status).unwrap_or_default();
    if let (Some(patch), Some(known)) = (patch.as_object_mut(), known) {
        let had = [
            ("podIP", known.pod_ip.is_some()),
            ("podIPs", known.pod_ips.is_some()),
            ("reason", known.reason.is_some()),
            ("message", known.message.is_some()),
        ];
        for (name, _) in had.into_iter().filter(|(_, had)| *had) {
            patch.entry(name).or_insert(serde_json::Value::Null);
        }
    }
    patch
}
