//! The parts of a spec that can't change while the job runs, and whether they did.

use std::num::NonZeroU64;

use k8s_openapi::api::core::v1::PodTemplateSpec;
use sha2::{Digest, Sha256};
use trainyard_api::validate::{ELASTIC, PROGRESS, SectionContent, UPDATE_POLICY, sections};
use trainyard_api::{FieldError, Fingerprint, TrainingJob};

use crate::defaults;
use crate::registry::Frameworks;

/// Fingerprints of the parts of a spec that may change only while the job is suspended. They
/// include the defaults, so that it is no change if admission writes those later.
pub(crate) fn fingerprints(job: &TrainingJob, frameworks: &Frameworks) -> Vec<Fingerprint> {
    let mut job = job.clone();
    defaults::default_with(&mut job, frameworks);
    remove_rolling_parts(&mut job, frameworks);
    let tells_bounds = frameworks
        .of(&job)
        .is_some_and(|framework| framework.tells_bounds);
    let elastic = job.spec.elastic.as_ref().filter(|_| tells_bounds);
    let bounds = elastic.map(|elastic| (elastic.min(), elastic.max()));
    let fingerprint = |content: &SectionContent<'_>| {
        let json = match content {
            SectionContent::Role(role) => serde_json::to_vec(role),
            SectionContent::Framework(framework) => serde_json::to_vec(framework),
            SectionContent::Completion(completion) => serde_json::to_vec(completion),
            SectionContent::CleanPodPolicy(policy) => serde_json::to_vec(policy),
            SectionContent::UpdatePolicy(policy) => serde_json::to_vec(policy),
            SectionContent::Progress(policy) => serde_json::to_vec(policy),
            SectionContent::Elastic(role) => match bounds {
                Some(bounds) => serde_json::to_vec(&(role, bounds)),
                None => serde_json::to_vec(role),
            },
        };
        let digest = Sha256::digest(json.unwrap_or_default());
        digest
            .iter()
            .take(8)
            .fold(String::new(), |hex, byte| format!("{hex}{byte:02x}"))
    };
    let all = sections(&job.spec).into_iter();
    all.map(|section| Fingerprint {
        hash: fingerprint(&section.content),
        field: section.key,
    })
    .collect()
}

/// A hash of all these parts.
pub(crate) fn hash(job: &TrainingJob, frameworks: &Frameworks) -> NonZeroU64 {
    let mut digest = Sha256::new();
    for part in fingerprints(job, frameworks) {
        digest.update(part.field);
        digest.update(part.hash);
    }
    let bytes = digest.finalize();
    let hash = bytes
        .iter()
        .take(8)
        .fold(0, |hash, byte| hash << 8 | u64::from(*byte));
    NonZeroU64::new(hash).unwrap_or(NonZeroU64::MIN)
}

/// Removes from a job's roles the parts that may change while it runs.
fn remove_rolling_parts(job: &mut TrainingJob, frameworks: &Frameworks) {
    if !job.rolls() {
        return;
    }
    let resizes = frameworks.of(job).is_none_or(|framework| framework.resizes);
    for role in &mut job.spec.roles {
        role.template = PodTemplateSpec::default();
        role.replicas = role.replicas.filter(|_| !resizes);
    }
}

/// The forbidden changes of a spec since the running pods were created from it.
pub(crate) fn forbidden_changes(
    accepted: &[Fingerprint],
    job: &TrainingJob,
    frameworks: &Frameworks,
) -> Vec<FieldError> {
    let now = fingerprints(job, frameworks);
    let changed = |field: &&str| {
        let policy = |all: &[Fingerprint]| all.iter().find(|part| part.field == **field).cloned();
        !accepted.is_empty() && policy(accepted) != policy(&now)
    };
    if let Some(field) = [UPDATE_POLICY, PROGRESS, ELASTIC].into_iter().find(changed) {
        // Another policy changes the fingerprints of roles, or their number, even if the roles are
        // unchanged.
        return vec![FieldError::new(
            field,
            "was changed while the job runs: change it back, or set spec.suspend to true first",
        )];
    }
    let or_roll = if job.rolls() {
        ""
    } else {
        "; replicas and templates of jobs that were created with spec.runPolicy.updatePolicy: Roll may change"
    };
    let accepted_of = |new: &Fingerprint| accepted.iter().find(|old| old.field == new.field);
    let changed = now
        .iter()
        .filter(|new| accepted_of(new).is_some_and(|old| old.hash != new.hash));
    let sections = sections(&job.spec);
    let changed_sections = changed.filter_map(|new| sections.iter().find(|section| section.key == new.field));
    let mut errors: Vec<FieldError> = changed_sections
        .map(|section| {
            let (which, or_roll) = match section.content {
                SectionContent::Role(role) => (format!("role {:?} ", role.name), or_roll),
                _ => (String::new(), ""),
            };
            FieldError::new(
                &*section.path,
                format!(
                    "{which}was changed while the job runs: change it back, or set spec.suspend to true first{or_roll}"
                ),
            )
        })
        .collect();
    let kept = |old: &Fingerprint| now.iter().any(|new| new.field == old.field);
    if !accepted.is_empty() && (accepted.len() != now.len() || !accepted.iter().all(kept)) {
        errors.push(FieldError::new(
            "spec.roles",
            "the set of roles was changed: change it back, or create a new job",
        ));
    }
    errors
}
