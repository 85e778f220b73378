//! The rules for jobs that grow and shrink.

use rstest::rstest;
use trainyard_api::{Elastic, TrainingJob, ValidSizes, default, validate};

fn job(elastic: &str, replicas: &str) -> TrainingJob {
    let template = "{spec: {containers: [{name: train, image: example/train}]}}";
    let mut job: TrainingJob = serde_saphyr::from_str(&format!(
        "
metadata: {{name: search, namespace: team}}
spec:
  framework: {{name: custom}}
  elastic: {{{elastic}}}
  roles:
  - {{name: store, template: {template}}}
  - {{name: worker, {replicas} template: {template}}}
"
    ))
    .unwrap();
    default(&mut job.spec);
    job
}

fn errors(old: Option<&TrainingJob>, new: &TrainingJob) -> Vec<String> {
    validate(old, new).iter().map(ToString::to_string).collect()
}

#[rstest]
#[case("replicas: 1")]
#[case("replicas: 4, minReplicas: 2, maxReplicas: 8, role: worker")]
#[case("replicas: 2, role: store")]
#[case("replicas: 5, validSizes: {values: [2, 4, 8]}")]
#[case("replicas: 5, minReplicas: 2, validSizes: {step: 2}, startAt: Min, refill: Never")]
#[case("replicas: 5, drainTimeoutSeconds: 0, pauseTimeoutSeconds: 1")]
fn is_valid(#[case] elastic: &str) {
    assert_eq!(errors(None, &job(elastic, "")), Vec::<String>::new());
}

#[rstest]
#[case("replicas: 0", "spec.elastic.replicas: 0 pods: give at least 1")]
#[case("replicas: -3", "spec.elastic.replicas: -3 pods: give at least 1")]
#[case(
    "replicas: 1, minReplicas: 2",
    "spec.elastic.replicas: 1 is less than minReplicas, which is 2: give at least 2"
)]
#[case(
    "replicas: 9, maxReplicas: 8",
    "spec.elastic.replicas: 9 is more than maxReplicas, which is 8: give at most 8"
)]
#[case(
    "replicas: 3, minReplicas: 4, maxReplicas: 2",
    "spec.elastic.minReplicas: 4 is more than maxReplicas, which is 2"
)]
#[case(
    "replicas: 3, role: wroker",
    "spec.elastic.role: there is no role \"wroker\": there are store, worker"
)]
#[case(
    "replicas: 3, validSizes: {}",
    "spec.elastic.validSizes: give values or a step"
)]
#[case(
    "replicas: 3, validSizes: {values: [1], step: 1}",
    "spec.elastic.validSizes: values and step are two ways to say it"
)]
#[case(
    "replicas: 3, validSizes: {step: 0}",
    "spec.elastic.validSizes.step: 0: give at least 1"
)]
#[case(
    "replicas: 3, minReplicas: 2, validSizes: {values: [1, 4]}",
    "spec.elastic.validSizes: none of these sizes is from minReplicas, which is 2, to replicas, which is 3"
)]
#[case(
    "replicas: 3, drainTimeoutSeconds: -1",
    "spec.elastic.drainTimeoutSeconds: -1 seconds: give at least 0"
)]
fn is_refused(#[case] elastic: &str, #[case] problem: &str) {
    let errors = errors(None, &job(elastic, ""));
    assert_eq!(errors.len(), 1, "{errors:?}");
    assert!(errors[0].starts_with(problem), "{errors:?}");
}

#[test]
fn the_size_is_said_once() {
    let errors = errors(None, &job("replicas: 2", "replicas: 2,"));
    assert_eq!(
        errors,
        [
            "spec.roles[1].replicas: the role is elastic, and spec.elastic.replicas says how many pods it has: remove this"
        ]
    );
}

#[test]
fn the_largest_name_must_fit() {
    let mut job = job("replicas: 2, maxReplicas: 1000", "");
    job.metadata.name = Some("a".repeat(63 - "-worker-99".len()));
    let errors = errors(None, &job);
    assert_eq!(errors.len(), 1, "{errors:?}");
    assert!(
        errors[0].starts_with("spec.roles[1].name: the pod name"),
        "{errors:?}"
    );
}

#[rstest]
#[case("replicas: 8", "", None)]
#[case("replicas: 2, minReplicas: 2, maxReplicas: 3", "", None)]
#[case(
    "replicas: 2, role: store",
    "replicas: 1,",
    Some("spec.elastic: this can be changed only while the job is suspended")
)]
fn what_may_change(#[case] elastic: &str, #[case] replicas: &str, #[case] problem: Option<&str>) {
    let mut old = job("replicas: 4", "");
    if !replicas.is_empty() {
        // Only what is said about the role that is elastic matters here.
        old.spec.roles[0].replicas = None;
    }
    let errors = errors(Some(&old), &job(elastic, replicas));
    match problem {
        None => assert_eq!(errors, Vec::<String>::new()),
        Some(problem) => assert!(
            errors.iter().any(|error| error.starts_with(problem)),
            "{errors:?}"
        ),
    }
}

#[test]
fn a_job_of_a_fixed_size_does_not_become_elastic_by_kubectl_scale() {
    let mut old = job("replicas: 4", "");
    old.spec.elastic = None;
    old.spec.roles[1].replicas = Some(4);
    let mut new = old.clone();
    new.spec.elastic = Some(Elastic {
        replicas: 8,
        ..Elastic::default()
    });
    let errors = errors(Some(&old), &new);
    assert!(
        errors.iter().any(|error| error.starts_with(
            "spec.elastic: a job that is not elastic has a fixed size, and this can be changed only while"
        )),
        "{errors:?}"
    );
}

#[test]
fn sizes_that_the_training_can_have() {
    let mut elastic = Elastic {
        replicas: 8,
        min_replicas: Some(2),
        max_replicas: Some(9),
        ..Elastic::default()
    };
    let all = |elastic: &Elastic| {
        (0..12)
            .filter(|size| elastic.is_valid_size(*size))
            .collect::<Vec<_>>()
    };
    assert_eq!(all(&elastic), [2, 3, 4, 5, 6, 7, 8, 9]);
    elastic.valid_sizes = Some(ValidSizes {
        values: None,
        step: Some(3),
    });
    assert_eq!(all(&elastic), [2, 5, 8]);
    assert_eq!(elastic.largest_size_within(7), Some(5));
    assert_eq!(elastic.largest_size_within(1), None);
    assert_eq!(elastic.largest_size_within(i32::MAX), Some(8));
}
