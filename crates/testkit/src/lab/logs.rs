//! What containers have printed.

use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, LogParams};

use super::Lab;

impl Lab {
    /// What a container of a pod has printed so far, where it may not have started yet.
    pub fn try_logs_of(&self, pod: &str, container: &str) -> Result<String, String> {
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), &self.namespace);
        let parameters = LogParams {
            container: Some(container.to_owned()),
            ..LogParams::default()
        };
        self.runtime
            .block_on(pods.logs(pod, &parameters))
            .map_err(|error| error.to_string())
    }
}
