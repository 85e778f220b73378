//! Labels and annotations, of a job and of its pods.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::at::At;
use super::{FieldError, label_key_problem, label_value_problem};

/// The most bytes that all annotations of an object may have together.
const MAX_ANNOTATIONS: usize = 256 * 1024;

/// The rules for labels and annotations.
pub(super) fn check(at: &At<'_>, metadata: &ObjectMeta, errors: &mut Vec<FieldError>) {
    if let Some(labels) = &metadata.labels {
        self::labels(&at.field("labels"), labels, errors);
    }
    let Some(annotations) = &metadata.annotations else {
        return;
    };
    let at = at.field("annotations");
    for key in annotations.keys() {
        if let Some(problem) = label_key_problem(key) {
            let problem = problem.replace("a label", "an annotation");
            errors.push(at.key(key).error(format!("{key:?} {problem}")));
        }
    }
    let size: usize = annotations
        .iter()
        .map(|(key, value)| key.len() + value.len())
        .sum();
    if size > MAX_ANNOTATIONS {
        let message =
            format!("has {size} bytes; at most {MAX_ANNOTATIONS} are possible: put large things elsewhere");
        errors.push(at.error(message));
    }
}

/// The rules for labels, and for what selects by them.
pub(super) fn labels(at: &At<'_>, labels: &BTreeMap<String, String>, errors: &mut Vec<FieldError>) {
    for (key, value) in labels {
        if let Some(problem) = label_key_problem(key) {
            errors.push(at.key(key).error(format!("{key:?} {problem}")));
        }
        if let Some(problem) = label_value_problem(value) {
            errors.push(at.key(key).error(format!("{value:?} {problem}")));
        }
    }
}
