//! The metadata of a job's children: their labels and their owner.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::Resource;
use trainyard_api::names::{LABEL_INDEX, LABEL_JOB, LABEL_MANAGED_BY, LABEL_ROLE, MANAGED_BY};

use crate::dialect;
use crate::job::Job;
use crate::model::PodKey;

/// The labels of a pod.
pub fn pod_labels(job: &Job<'_>, key: PodKey) -> BTreeMap<String, String> {
    let mut labels = child_labels(job);
    let role = job.roles.get(key.role).map_or("", |role| role.name);
    labels.insert(LABEL_ROLE.to_owned(), role.to_owned());
    labels.insert(LABEL_INDEX.to_owned(), key.index.to_string());
    let others = dialect::labels(job.object, role, key.index).into_iter();
    labels.extend(others.map(|(label, value)| (label.to_owned(), value)));
    labels
}

pub(crate) fn child_labels(job: &Job<'_>) -> BTreeMap<String, String> {
    [(LABEL_MANAGED_BY, MANAGED_BY), (LABEL_JOB, job.name)]
        .map(|(k, v)| (k.to_owned(), v.to_owned()))
        .into()
}

pub(crate) fn child_metadata(job: &Job<'_>, name: String) -> ObjectMeta {
    // A foreground deletion of the job waits until its children are deleted.
    let owner = job.object.controller_owner_ref(&()).map(|owner| OwnerReference {
        block_owner_deletion: Some(true),
        ..owner
    });
    ObjectMeta {
        name: Some(name),
        namespace: Some(job.namespace.to_owned()),
        owner_references: owner.map(|owner| vec![owner]),
        ..ObjectMeta::default()
    }
}
