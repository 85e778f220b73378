//! The size that a ScaleIn or a ScaleOut has given to a job, as an annotation of the job says it.
//!
//! The annotation is written together with `spec.elastic.replicas`, in one write: whoever sees the
//! new target also sees who is to leave.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use trainyard_api::elastic::MAX_REPLICAS;
use trainyard_api::names::ANNOTATION_SCALE_REQUEST;
use trainyard_api::{ScaleRequestRef, TrainingJob};

use crate::indices;

/// Indices are below this. Anybody can write the annotation, and a list of all numbers takes long.
const MAX_INDEX: i32 = 100_000;

/// The size that a request has given to a job.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct RequestedSize {
    pub request: ScaleRequestRef,
    /// The value of `spec.elastic.replicas` that was written with it.
    pub to: i32,
    /// The indices of the pods that leave first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub victims: Option<String>,
    /// The indices of the pods that join, where they are free.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub joining: Option<String>,
    /// How long the victims may take to leave, if not as long as the job says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drain_timeout_seconds: Option<i64>,
}

impl RequestedSize {
    /// Reads the annotation of a job. One that can't be read says nothing: anybody can write it.
    pub(crate) fn of(job: &TrainingJob) -> Option<Self> {
        let annotations = job.metadata.annotations.as_ref()?;
        serde_json::from_str(annotations.get(ANNOTATION_SCALE_REQUEST)?).ok()
    }

    /// The same, unless another target has been written since, or the request was carried out.
    pub(crate) fn pending(job: &TrainingJob) -> Option<Self> {
        let elastic = job.spec.elastic.as_ref()?;
        let done = job
            .status
            .as_ref()
            .and_then(|status| status.last_scale_request.as_deref());
        Self::of(job).filter(|size| size.to == elastic.replicas && done != Some(&size.request))
    }

    /// The indices of the pods that leave first.
    pub(crate) fn leaving(&self) -> BTreeSet<i32> {
        indices::parse(self.victims.as_deref().unwrap_or_default(), MAX_INDEX)
    }

    /// The indices of the pods that join, where they are free. Names of pods with higher ones may
    /// be too long.
    pub(crate) fn joining(&self) -> BTreeSet<i32> {
        indices::parse(self.joining.as_deref().unwrap_or_default(), MAX_REPLICAS)
    }

    /// The request; `None` for a size that nobody has requested.
    pub(crate) fn into_request(self) -> Option<ScaleRequestRef> {
        Some(self.request).filter(|request| !request.uid.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::no_json("yes")]
    #[case::another_shape("[1]")]
    #[case::no_target(r#"{"request": {"kind": "ScaleIn", "name": "a", "uid": "u"}}"#)]
    #[case::another_kind(r#"{"request": {"kind": "Pod", "name": "a", "uid": "u"}, "to": 1}"#)]
    fn what_anybody_may_write_there_says_nothing(#[case] text: &str) {
        let mut job = TrainingJob::default();
        assert_eq!(RequestedSize::of(&job), None);
        let annotation = (ANNOTATION_SCALE_REQUEST.to_owned(), text.to_owned());
        job.metadata.annotations = Some(BTreeMap::from([annotation]));
        assert_eq!(RequestedSize::of(&job), None);
    }

    #[test]
    fn a_list_of_all_numbers_is_no_list() {
        let size = RequestedSize {
            victims: Some("1-2000000000".to_owned()),
            joining: Some("7,4000000".to_owned()),
            ..RequestedSize::default()
        };
        assert!(size.leaving().len() < 100_000);
        assert_eq!(size.joining(), [7].into());
    }
}
