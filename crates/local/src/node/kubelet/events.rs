//! What the kubelet has to say about its pods.

use k8s_openapi::api::core::v1::Container as Spec;

use super::container::Refusal;
use super::pod::Worker;
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

    /// Says how far the start of a container has come.
    pub(super) fn tell_start(&self, spec: &Spec, outcome: Result<(), &Refusal>) {
        let normal = |reason, message: &str| self.tell_container(spec, Kind::Normal, reason, message);
        let failed = |message: &str| {
            self.tell_container(spec, Kind::Warning, "Failed", format!("Error: {message}"));
        };
        match outcome {
            // Volumes come before images, and belong to the pod as a whole.
            Err(Refusal::Later {
                reason: "ContainerCreating",
                message,
            }) => {
                if !message.is_empty() {
                    self.tell(Kind::Warning, "FailedMount", message);
                }
            }
            Err(Refusal::Later { message, .. }) => {
                normal("Pulled", &self.image(spec));
                failed(message);
            }
            Err(Refusal::Failed { message }) => {
                normal("Pulled", &self.image(spec));
                normal("Created", "Container created");
                failed(message);
            }
            Ok(()) => {
                normal("Pulled", &self.image(spec));
                normal("Created", "Container created");
                normal("Started", "Container started");
            }
        }
    }

    /// What has become of a container's image, which is never pulled.
    fn image(&self, spec: &Spec) -> String {
        let image = spec.image.as_deref().unwrap_or_default();
        match self.shared.options.images.get(image) {
            Some(path) => format!("Container image {image:?} is the directory {}", path.display()),
            None => format!(
                "Container image {image:?} is not pulled: the container has the files of this machine"
            ),
        }
    }
}
