//! Events about pods.

use k8s_openapi::api::core::v1::Container as Spec;

use super::worker::PodWorker;
use crate::node::events::{EventType, PodEvent, Source, reference};

impl PodWorker {
    pub(super) fn record_event(&self, kind: EventType, reason: &'static str, message: impl Into<String>) {
        self.record(None, kind, reason, message.into());
    }

    pub(super) fn record_container_event(
        &self,
        spec: &Spec,
        kind: EventType,
        reason: &'static str,
        message: impl Into<String>,
    ) {
        let pod = self.pod();
        let init = pod.spec.as_ref().and_then(|pod| pod.init_containers.as_ref());
        let is_init = init.is_some_and(|init| init.iter().any(|one| one.name == spec.name));
        let list = if is_init { "initContainers" } else { "containers" };
        let part = format!("spec.{list}{{{}}}", spec.name);
        self.record(Some(part), kind, reason, message.into());
    }

    fn record(&self, part: Option<String>, kind: EventType, reason: &'static str, message: String) {
        let pod = self.pod();
        let node = pod.spec.as_ref().and_then(|spec| spec.node_name.clone());
        self.shared.recorder.record(PodEvent {
            source: Source::Kubelet {
                node: node.unwrap_or_default(),
            },
            regarding: reference(&pod, part),
            kind,
            reason,
            message,
        });
    }
}
