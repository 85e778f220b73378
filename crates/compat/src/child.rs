//! Ownership of the TrainingJob of an object, and the generation of the object that it follows.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use trainyard_api::TrainingJob;
use trainyard_api::names::ANNOTATION_GENERATION;

use crate::Kind;

/// The owner reference to an object.
pub fn owner(kind: &Kind, object: &ObjectMeta) -> OwnerReference {
    OwnerReference {
        api_version: format!("{}/{}", kind.group, kind.version),
        kind: kind.name.to_owned(),
        name: object.name.clone().unwrap_or_default(),
        uid: object.uid.clone().unwrap_or_default(),
        controller: Some(true),
        // A deletion in the foreground waits until the pods are gone.
        block_owner_deletion: Some(true),
    }
}

pub fn adopted(kind: &Kind, mut job: TrainingJob, object: &ObjectMeta) -> TrainingJob {
    job.metadata.owner_references = Some(vec![owner(kind, object)]);
    note_generation(&mut job, object.generation);
    job
}

pub fn note_generation(job: &mut TrainingJob, generation: Option<i64>) {
    let annotations = job.metadata.annotations.get_or_insert_default();
    let generation = generation.unwrap_or_default().to_string();
    annotations.insert(ANNOTATION_GENERATION.to_owned(), generation);
}

/// The generation of the object that a child follows.
pub fn generation_of(child: &TrainingJob) -> Option<i64> {
    child
        .metadata
        .annotations
        .as_ref()?
        .get(ANNOTATION_GENERATION)?
        .parse()
        .ok()
}
