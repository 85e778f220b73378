//! The table of what may change, and when.

use k8s_openapi::api::core::v1::Toleration;
use rstest::rstest;
use trainyard_api::{JobPhase, TrainingJob, TrainingJobStatus, default, validate};

const JOB: &str = "
metadata: {name: mnist, namespace: team}
spec:
  framework: {name: pytorch, pytorch: {port: 1000}}
  roles:
  - name: master
    template: {spec: {containers: [{name: train, image: example/train}]}}
  - name: worker
    replicas: 2
    placement: {spread: Preferred}
    template: {spec: {containers: [{name: train, image: example/train}, {name: other, image: example/other}]}}
  completion: {succeededWhen: [{allOf: [master]}]}
  runPolicy: {backoffLimit: 3, activeDeadlineSeconds: 10}
";

fn job() -> TrainingJob {
    let mut job: TrainingJob = serde_saphyr::from_str(JOB).unwrap();
    default(&mut job.spec);
    job
}

type J = TrainingJob;
type Edit = fn(&mut J);

/// What is said of an edit, given whether the job was suspended before and is after.
fn said(edit: Edit, before: bool, after: bool) -> Vec<String> {
    let mut old = job();
    old.spec.suspend = before.then_some(true);
    let mut new = old.clone();
    new.spec.suspend = Some(after);
    edit(&mut new);
    validate(Some(&old), &new)
        .iter()
        .map(ToString::to_string)
        .collect()
}

macro_rules! run {
    ($field:ident, $value:expr) => {
        |job: &mut TrainingJob| job.spec.run_policy.as_mut().unwrap().$field = $value
    };
}

#[rstest]
#[case::nothing(|_: &mut J| ())]
#[case::suspend(|job: &mut J| job.spec.suspend = Some(true))]
#[case::ttl_after_finished(run!(ttl_seconds_after_finished, Some(5)))]
#[case::ttl_after_failed(run!(ttl_seconds_after_failed, Some(5)))]
#[case::a_longer_deadline(run!(active_deadline_seconds, Some(100)))]
#[case::a_shorter_deadline(run!(active_deadline_seconds, Some(1)))]
#[case::no_deadline(run!(active_deadline_seconds, None))]
#[case::a_larger_budget(run!(backoff_limit, Some(4)))]
#[case::labels_of_the_job(|job: &mut J| job.metadata.labels = Some([("a".to_owned(), "b".to_owned())].into()))]
#[case::the_order_of_roles(|job: &mut J| job.spec.roles.reverse())]
fn always(#[case] edit: Edit) {
    for (before, after) in [(false, false), (false, true), (true, false), (true, true)] {
        assert_eq!(said(edit, before, after), [""; 0]);
    }
}

#[rstest]
#[case::options("spec.framework", "options", |job: &mut J| job.spec.framework.pytorch.as_mut().unwrap().port = Some(2))]
#[case::completion("spec.completion", "completion rules", |job: &mut J| job.spec.completion = None)]
#[case::clean_pod_policy(
    "spec.runPolicy.cleanPodPolicy", "this",
    run!(clean_pod_policy, Some(trainyard_api::CleanPodPolicy::All))
)]
#[case::replicas("spec.roles[1].replicas", "this", |job: &mut J| job.spec.roles[1].replicas = Some(3))]
#[case::container("spec.roles[1].container", "this", |job: &mut J| job.spec.roles[1].container = Some("other".into()))]
#[case::restart_policy(
    "spec.roles[0].restartPolicy", "this",
    |job: &mut J| job.spec.roles[0].restart_policy = Some(trainyard_api::RestartPolicy::ExitCode)
)]
#[case::succeeded_when(
    "spec.roles[0].succeededWhen", "this",
    |job: &mut J| job.spec.roles[0].succeeded_when = Some(trainyard_api::PodQuorum::AnyPod)
)]
#[case::failed_when(
    "spec.roles[0].failedWhen", "this",
    |job: &mut J| job.spec.roles[0].failed_when = Some(trainyard_api::PodQuorum::AllPods)
)]
#[case::node_down_policy(
    "spec.roles[0].nodeDownPolicy", "this",
    |job: &mut J| job.spec.roles[0].node_down_policy = Some(trainyard_api::NodeDownPolicy::Fail)
)]
#[case::depends_on("spec.roles[0].dependsOn", "this", |job: &mut J| {
    let role = job.spec.roles[1].name.clone();
    job.spec.roles[0].depends_on = Some(vec![trainyard_api::Dependency { role, ..Default::default() }]);
})]
#[case::placement("spec.roles[1].placement", "this", |job: &mut J| job.spec.roles[1].placement = None)]
#[case::image("spec.roles[0].template", "this", |job: &mut J| {
    job.spec.roles[0].template.spec.as_mut().unwrap().containers[0].image = Some("example/other".into());
})]
#[case::node_selector_as_a_queue_sets_it("spec.roles[1].template", "this", |job: &mut J| {
    let pod = job.spec.roles[1].template.spec.as_mut().unwrap();
    pod.node_selector = Some([("pool".to_owned(), "a100".to_owned())].into());
})]
#[case::tolerations_as_a_queue_sets_them("spec.roles[1].template", "this", |job: &mut J| {
    job.spec.roles[1].template.spec.as_mut().unwrap().tolerations = Some(vec![Toleration::default()]);
})]
#[case::labels_of_pods_as_a_queue_sets_them("spec.roles[1].template", "this", |job: &mut J| {
    job.spec.roles[1].template.metadata.get_or_insert_default().labels =
        Some([("kueue.x-k8s.io/podset".to_owned(), "worker".to_owned())].into());
})]
#[case::progress("spec.progress", "this", |job: &mut J| job.spec.progress = Some(trainyard_api::ProgressPolicy::Report))]
#[case::update_policy(
    "spec.runPolicy.updatePolicy", "this",
    run!(update_policy, Some(trainyard_api::UpdatePolicy::Roll))
)]
fn while_suspended(#[case] path: &str, #[case] what: &str, #[case] edit: Edit) {
    let or_roll = if path.ends_with(".replicas") || path.ends_with(".template") {
        ", or create the job with spec.runPolicy.updatePolicy: Roll"
    } else {
        ""
    };
    let expected = format!(
        "{path}: {what} can be changed only while the job is suspended: set spec.suspend to true first{or_roll}"
    );
    assert_eq!(said(edit, false, false), [expected]);
    assert_eq!(said(edit, true, true), [""; 0], "while it is suspended");
    assert_eq!(
        said(edit, false, true),
        [""; 0],
        "with the update that suspends it"
    );
    assert_eq!(
        said(edit, true, false),
        [""; 0],
        "with the update that resumes it"
    );
}

#[test]
fn a_job_that_rolls_takes_templates_and_sizes_as_it_runs() {
    let mut old = job();
    old.spec.run_policy.get_or_insert_default().update_policy = Some(trainyard_api::UpdatePolicy::Roll);
    let mut new = old.clone();
    new.spec.roles[1].replicas = Some(5);
    new.spec.roles[0].template.spec.as_mut().unwrap().containers[0].image = Some("example/other".into());
    assert_eq!(validate(Some(&old), &new), []);
    new.spec.roles[1].placement = None;
    let said = validate(Some(&old), &new);
    let said: Vec<String> = said.iter().map(ToString::to_string).collect();
    assert_eq!(
        said,
        [
            "spec.roles[1].placement: this can be changed only while the job is suspended: set spec.suspend to true first"
        ]
    );
    old.status = Some(TrainingJobStatus {
        phase: Some(JobPhase::Succeeded),
        ..TrainingJobStatus::default()
    });
    assert_eq!(
        validate(Some(&old), &new).len(),
        3,
        "nothing comes of it after the end"
    );
}

#[test]
fn the_budget_can_be_lowered_only_while_suspended() {
    let lower: Edit = run!(backoff_limit, Some(2));
    let expected =
        "spec.runPolicy.backoffLimit: can be raised, not lowered, while the job runs: give at least 3";
    assert_eq!(said(lower, false, false), [expected]);
    assert_eq!(said(lower, true, true), [""; 0]);
}

#[rstest]
#[case::framework(
    "spec.framework.name: can't be changed from \"pytorch\": create a new job instead",
    |job: &mut J| {
        job.spec.framework.name = "custom".into();
        job.spec.framework.pytorch = None;
    }
)]
#[case::managed_by(
    "spec.managedBy: can't be changed: create a new job instead",
    |job: &mut J| job.spec.managed_by = Some("example.com/other".into())
)]
#[case::also_to_what_it_is_anyway(
    "spec.managedBy: can't be changed: create a new job instead",
    |job: &mut J| job.spec.managed_by = Some("trainyard.dev/operator".into())
)]
#[case::a_role_less(
    "spec.roles: role \"worker\" can't be removed: create a new job instead",
    |job: &mut J| { job.spec.roles.pop(); }
)]
#[case::a_role_more(
    "spec.roles[2].name: role \"extra\" can't be added: create a new job instead",
    |job: &mut J| {
        let mut role = job.spec.roles[1].clone();
        role.name = "extra".into();
        job.spec.roles.push(role);
    }
)]
fn never(#[case] expected: &str, #[case] edit: Edit) {
    for (before, after) in [(false, false), (false, true), (true, false), (true, true)] {
        assert_eq!(said(edit, before, after), [expected]);
    }
}

/// What is said of an edit of a job that has ended.
fn said_at_the_end(edit: Edit) -> Vec<String> {
    let mut old = job();
    old.status = Some(TrainingJobStatus {
        phase: Some(JobPhase::Failed),
        ..TrainingJobStatus::default()
    });
    let mut new = old.clone();
    // The status of the new one is what the client sent, which means nothing.
    new.status = None;
    edit(&mut new);
    validate(Some(&old), &new)
        .iter()
        .map(ToString::to_string)
        .collect()
}

#[rstest]
#[case::replicas("spec.roles[1].replicas", |job: &mut J| job.spec.roles[1].replicas = Some(3))]
#[case::image("spec.roles[0].template", |job: &mut J| {
    job.spec.roles[0].template.spec.as_mut().unwrap().containers[0].image = Some("example/other".into());
})]
#[case::suspend("spec.suspend", |job: &mut J| job.spec.suspend = Some(true))]
#[case::suspend_with_another_change("spec.roles[1].replicas", |job: &mut J| {
    job.spec.suspend = None;
    job.spec.roles[1].replicas = Some(3);
})]
#[case::a_longer_deadline("spec.runPolicy.activeDeadlineSeconds", run!(active_deadline_seconds, Some(100)))]
#[case::a_larger_budget("spec.runPolicy.backoffLimit", run!(backoff_limit, Some(4)))]
#[case::a_smaller_budget("spec.runPolicy.backoffLimit", run!(backoff_limit, Some(1)))]
#[case::options("spec.framework", |job: &mut J| job.spec.framework.pytorch.as_mut().unwrap().port = Some(2))]
#[case::completion("spec.completion", |job: &mut J| job.spec.completion = None)]
#[case::clean_pod_policy(
    "spec.runPolicy.cleanPodPolicy", run!(clean_pod_policy, Some(trainyard_api::CleanPodPolicy::All))
)]
fn a_job_that_has_ended_is_done(#[case] path: &str, #[case] edit: Edit) {
    let expected =
        format!("{path}: the job has ended, and nothing would come of this: create a new job instead");
    assert_eq!(said_at_the_end(edit), [expected]);
}

#[rstest]
#[case::nothing(|_: &mut J| ())]
#[case::ttl_after_finished(run!(ttl_seconds_after_finished, Some(5)))]
#[case::ttl_after_failed(run!(ttl_seconds_after_failed, Some(5)))]
#[case::suspend_as_it_was(|job: &mut J| job.spec.suspend = Some(false))]
fn when_a_job_is_removed_can_be_changed_to_the_end(#[case] edit: Edit) {
    assert_eq!(said_at_the_end(edit), [""; 0]);
}

#[test]
fn a_job_that_has_not_ended_is_not_done() {
    let mut old = job();
    old.status = Some(TrainingJobStatus {
        phase: Some(JobPhase::Running),
        ..TrainingJobStatus::default()
    });
    let mut new = old.clone();
    new.spec.suspend = Some(true);
    assert_eq!(validate(Some(&old), &new), []);
}

#[test]
fn a_role_renamed_is_one_less_and_one_more() {
    let rename: Edit = |job| job.spec.roles[1].name = "worker2".into();
    let expected = [
        "spec.roles: role \"worker\" can't be removed: create a new job instead",
        "spec.roles[1].name: role \"worker2\" can't be added: create a new job instead",
    ];
    assert_eq!(said(rename, true, true), expected);
}

#[test]
fn a_changed_role_is_found_at_its_new_place() {
    let edit: Edit = |job| {
        job.spec.roles.reverse();
        job.spec.roles[0].replicas = Some(9);
    };
    let errors = said(edit, false, false);
    assert!(errors[0].starts_with("spec.roles[0].replicas: "), "{errors:?}");
    assert_eq!(errors.len(), 1);
}

#[test]
fn every_change_of_a_role_is_named() {
    let edit: Edit = |job| {
        job.spec.roles[1].replicas = Some(9);
        job.spec.roles[1].placement = None;
        job.spec.roles[1].container = Some("other".into());
    };
    let paths: Vec<String> = said(edit, false, false)
        .iter()
        .map(|error| error.split(": ").next().unwrap().to_owned())
        .collect();
    assert_eq!(
        paths,
        [
            "spec.roles[1].replicas",
            "spec.roles[1].container",
            "spec.roles[1].placement"
        ]
    );
}

#[test]
fn a_default_that_was_not_written_is_the_same_as_one_that_was() {
    // Objects from before the webhooks were there.
    let mut old = job();
    old.spec.roles[0].replicas = None;
    old.spec.run_policy = None;
    let mut new = old.clone();
    new.spec.roles[0].replicas = Some(1);
    new.spec.run_policy.get_or_insert_default().clean_pod_policy =
        Some(trainyard_api::CleanPodPolicy::Running);
    new.spec.run_policy.get_or_insert_default().backoff_limit = Some(6);
    assert_eq!(validate(Some(&old), &new), []);
}

#[test]
fn a_change_is_checked_besides_the_job_itself() {
    let edit: Edit = |job| job.spec.roles[1].replicas = Some(0);
    let paths: Vec<String> = said(edit, false, false)
        .iter()
        .map(|error| error.split(": ").next().unwrap().to_owned())
        .collect();
    assert_eq!(paths, ["spec.roles[1].replicas", "spec.roles[1].replicas"]);
}
