//! Annotations of a job that its pods carry too, as annotations and as labels, and that may change
//! while the job runs: users of AresOperator tell their scheduler by them what a job may do.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};

use trainyard_api::names::ARES_PASSED_ON;
use trainyard_api::validate::label_value_problem;
use trainyard_api::{Dialect, TrainingJob};

use crate::dialect;

/// The values of [`ARES_PASSED_ON`] that a pod has, in that order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct PassedOn<'a> {
    /// Those of its labels.
    pub labels: [Option<&'a str>; ARES_PASSED_ON.len()],
    /// Those of its annotations.
    pub annotations: [Option<&'a str>; ARES_PASSED_ON.len()],
}

impl<'a> PassedOn<'a> {
    /// What the pods of a job should have. `None` if jobs of its dialect pass nothing on. A value
    /// that no label can have is an annotation only.
    pub fn of(job: &'a TrainingJob) -> Option<Self> {
        if dialect::of(job) != Dialect::Ares {
            return None;
        }
        let given = job.metadata.annotations.as_ref();
        let annotations = ARES_PASSED_ON.map(|key| given?.get(key).map(String::as_str));
        Some(Self {
            labels: annotations.map(|value| value.filter(|value| label_value_problem(value).is_none())),
            annotations,
        })
    }

    /// A number that is the same for pods with the same values.
    pub fn fingerprint(&self) -> u64 {
        BuildHasherDefault::<DefaultHasher>::default().hash_one(self)
    }

    /// Writes the values to the labels and annotations of a pod, and removes those without a value.
    pub(crate) fn write(
        &self,
        labels: &mut BTreeMap<String, String>,
        annotations: &mut BTreeMap<String, String>,
    ) {
        let places = [(labels, self.labels), (annotations, self.annotations)];
        for (place, values) in places {
            for (key, value) in ARES_PASSED_ON.into_iter().zip(values) {
                match value {
                    Some(value) => place.insert(key.to_owned(), value.to_owned()),
                    None => place.remove(key),
                };
            }
        }
    }
}
