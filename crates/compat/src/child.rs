//! Ownership of the child of an object, and what of the object the child follows.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use trainyard_api::names::{ANNOTATION_ASKED_FOR, ANNOTATION_GENERATION};
use trainyard_api::{TrainingJob, TrainingJobSpec};

/// What a kind is called.
#[derive(Clone, Copy)]
pub struct KindId {
    pub group: &'static str,
    pub version: &'static str,
    pub name: &'static str,
    pub plural: &'static str,
}

/// What the object that has the name of an object's child is to it.
pub enum Kinship {
    /// There is none.
    None,
    Ours,
    /// Of a former object of the same name: it is about to go.
    Former,
    Stranger,
}

/// What the object with some metadata is to an object of a kind.
pub fn kinship(kind: KindId, object: &ObjectMeta, child: Option<&ObjectMeta>) -> Kinship {
    let Some(child) = child else {
        return Kinship::None;
    };
    let mut owners = child.owner_references.iter().flatten();
    let owner = owners.find(|owner| owner.controller == Some(true));
    let is_of_kind = |owner: &OwnerReference| {
        let group = owner.api_version.split_once('/').map(|(group, _)| group);
        (group, &*owner.kind, Some(&owner.name)) == (Some(kind.group), kind.name, object.name.as_ref())
    };
    match owner {
        Some(owner) if Some(&owner.uid) == object.uid.as_ref() => Kinship::Ours,
        Some(owner) if is_of_kind(owner) => Kinship::Former,
        _ => Kinship::Stranger,
    }
}

/// The owner reference to an object.
pub fn owner(kind: KindId, object: &ObjectMeta) -> OwnerReference {
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

pub fn adopted(kind: KindId, mut job: TrainingJob, object: &ObjectMeta) -> TrainingJob {
    job.metadata.owner_references = Some(vec![owner(kind, object)]);
    note_generation(&mut job, object.generation);
    let spec = job.spec.clone();
    note_asked_for(&mut job, &spec);
    job
}

pub fn note_generation(job: &mut TrainingJob, generation: Option<i64>) {
    let annotations = job.metadata.annotations.get_or_insert_default();
    let generation = generation.unwrap_or_default().to_string();
    annotations.insert(ANNOTATION_GENERATION.to_owned(), generation);
}

/// The generation of the object that a child follows.
pub fn generation_of(child: &TrainingJob) -> Option<i64> {
    annotation(child, ANNOTATION_GENERATION)?.parse().ok()
}

/// Notes on an elastic child how many pods its object asks for, which is what `spec` says.
pub fn note_asked_for(child: &mut TrainingJob, spec: &TrainingJobSpec) {
    if let Some(elastic) = &spec.elastic {
        let annotations = child.metadata.annotations.get_or_insert_default();
        annotations.insert(ANNOTATION_ASKED_FOR.to_owned(), elastic.replicas.to_string());
    }
}

/// Gives a new translation, the second, the target of the child as it is, the first, unless its
/// object asks for another number of pods than before: a request or an autoscaler has set the
/// target since.
pub fn keep_size(child: &TrainingJob, job: &mut TrainingJob) {
    let asked_for = annotation(child, ANNOTATION_ASKED_FOR).and_then(|number| number.parse().ok());
    let (Some(is), Some(elastic)) = (&child.spec.elastic, &mut job.spec.elastic) else {
        return;
    };
    if asked_for == Some(elastic.replicas) {
        elastic.replicas = is.replicas.max(elastic.min()).min(elastic.max());
    }
}

fn annotation<'a>(child: &'a TrainingJob, key: &str) -> Option<&'a str> {
    child.metadata.annotations.as_ref()?.get(key).map(String::as_str)
}
