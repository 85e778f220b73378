//! What the kubelet has to say about its pods.

use k8s_openapi::api::core::v1::Container as Spec;

use super::worker::Worker;
use crate::node::events::{Kind, Source, Told, reference};

impl Worker {
    /// Says something about the pod.
    pub(super) fn tell(&self, kind: Kind, reason: &'static str, message: impl Into<String>) {
        self.tell_of(None, kind, reason, message.into());
    }

    /// Says something about a container.
    pub(super) fn tell_container(
        &self,
        spec: &Spec,
        kind: Kind,
        reason: &'static str,
        message: impl Into<String>,
    ) {
        let pod = self.pod();
        let init = pod.spec.as_ref().and_then(|pod| pod.init_containers.as_ref());
        let is_init = init.is_some_and(|init| init.iter().any(|one| one.name == spec.name));
        let list = if is_init { "initContainers" } else { "containers" };
        let part = format!("spec.{list}{{{}}}", spec.name);
        self.tell_of(Some(part), kind, reason, message.into());
    }

    fn tell_of(&self, part: Option<String>, kind: Kind, reason: &'static str, message: String) {
        let pod = self.pod();
        let node = pod.spec.as_ref().and_then(|spec| spec.node_name.clone());
        self.shared.recorder.tell(Told {
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
