//! The children of a job: what a pod or a Service of a given key must look like.

use k8s_openapi::api::core::v1::{Pod, Service};
use trainyard_api::TrainingJob;

use crate::plan::{PodKey, ServiceKey};
use crate::view::Settings;

/// The pod of a key. `None` if the job has no such pod.
pub fn pod(job: &TrainingJob, settings: &Settings, key: PodKey) -> Option<Pod> {
    let _ = (job, settings, key);
    None
}

/// The Service of a key.
pub fn service(job: &TrainingJob, settings: &Settings, key: ServiceKey) -> Option<Service> {
    let _ = (job, settings, key);
    None
}
