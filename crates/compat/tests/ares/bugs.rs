//! What AresOperator does wrong, and jobs that are served here must not suffer from.

use rstest::rstest;
use serde_json::{Value, json};
use trainyard_api::{
    CleanPodPolicy, DependencyState, NodeDownPolicy, RestartPolicy, RoleSet, RoleSpec, TrainingJob,
};
use trainyard_core::foreign::ChildAction;

use super::common::of_job;
use super::{OURS, at, child, object, plan, refused, with};

fn role<'a>(job: &'a TrainingJob, name: &str) -> &'a RoleSpec {
    job.spec.roles.iter().find(|role| role.name == name).unwrap()
}

/// Sets of roles, such as `master+worker etcd`.
fn sets(sets: &[RoleSet]) -> String {
    let all: Vec<String> = sets.iter().map(|set| set.all_of.join("+")).collect();
    all.join(" ")
}

/// The operator crashed on these, for all users.
#[rstest]
#[case::a_policy_of_an_absent_role(
    with("custom", "/spec/jobPhasePolicy/failed", json!([["train", "ghost"]])),
    "spec.jobPhasePolicy.failed[0][1]: there is no role \"ghost\": name one of hub, prepare, train"
)]
#[case::hosts_outside_of_mpi(
    with("custom", "/spec/roleSpecs/train/dependence/mpiHostFile", json!("/hosts")),
    "spec.roleSpecs.train.dependence.mpiHostFile: only the launcher of a job of mpi has lists of hosts"
)]
#[case::dask_without_a_scheduler(
    with("dask", "/spec/roleSpecs/scheduler", Value::Null),
    "spec.roleSpecs.scheduler: is missing: a job of dask needs this role"
)]
fn a_bad_job_harms_itself_alone(#[case] job: Value, #[case] wanted: &str) {
    let (phase, reason, message) = refused(&job);
    assert_eq!((&*phase, &*reason), ("Failed", "InvalidDefinition"));
    assert!(message.starts_with(wanted), "{message}");
    for (name, _) in OURS {
        child(&object(name));
    }
}

/// They did nothing.
#[test]
fn limits_hold() {
    let run = child(&object("pytorch")).spec.run_policy.unwrap();
    assert_eq!(
        (run.active_deadline_seconds, run.backoff_limit),
        (Some(3600), Some(2))
    );
    let ended = json!({"phase": "Succeeded", "completionTime": "2026-02-03T03:00:00Z"});
    let object = object("pytorch");
    assert!(
        plan(&object, of_job(&at(&object, ended))).delete,
        "ttlSecondsAfterFinished"
    );
}

/// A job that had ended held what it ran on.
#[test]
fn nothing_is_held_after_the_end() {
    let run = child(&object("standalone")).spec.run_policy.unwrap();
    assert_eq!(run.clean_pod_policy, Some(CleanPodPolicy::Running));
    let kept = with("custom", "/spec/runPolicy/cleanPodPolicy", json!("None"));
    let run = child(&kept).spec.run_policy.unwrap();
    assert_eq!(
        run.clean_pod_policy,
        Some(CleanPodPolicy::None),
        "unless the user says so"
    );
}

/// More pods of a role that is not restarted made it fail.
#[test]
fn a_role_that_is_never_restarted_may_grow() {
    let before = object("standalone");
    assert_eq!(
        role(&child(&before), "worker").restart_policy,
        Some(RestartPolicy::Never)
    );
    let running = at(&before, json!({"phase": "Running"}));
    let mut after = before.clone();
    after["spec"]["roleSpecs"]["worker"]["replicas"] = 3.into();
    after["metadata"]["generation"] = 2.into();
    assert!(matches!(
        plan(&after, of_job(&running)).child,
        ChildAction::Replace(_)
    ));
}

/// Without Volcano nothing worked.
#[test]
fn a_gang_needs_no_volcano() {
    let child = child(&object("sample-mpi"));
    let notes = &child.metadata.annotations.as_ref().unwrap()["trainyard.dev/notes"];
    assert!(
        notes.contains("spec.runPolicy.schedulingPolicy: there are no pod groups yet"),
        "{notes}"
    );
    for role in &child.spec.roles {
        assert_eq!(role.template.spec.as_ref().unwrap().scheduler_name, None);
    }
}

/// The phase that a role should wait for was never read.
#[rstest]
#[case(json!("Running"), Some(DependencyState::Running))]
#[case(json!("Succeeded"), Some(DependencyState::Succeeded))]
#[case(json!("Starting"), None)]
fn the_phase_of_a_dependence_is_honoured(#[case] phase: Value, #[case] state: Option<DependencyState>) {
    let job = child(&with(
        "custom",
        "/spec/roleSpecs/train/dependence/rolePhase",
        phase,
    ));
    let depends_on = role(&job, "train").depends_on.as_ref().unwrap();
    let states: Vec<DependencyState> = depends_on.iter().map(|on| on.state).collect();
    assert_eq!(states, Vec::from_iter(state));
}

/// Pods waited for ever for what could not come.
#[rstest]
#[case::absent(
    "/spec/roleSpecs/train/dependence",
    json!({"roleNames": ["ghost"]}),
    "spec.roleSpecs.train.dependence.roleNames[0]: there is no role \"ghost\""
)]
#[case::itself("/spec/roleSpecs/train/dependence", json!({"roleNames": ["train"]}), "spec.roleSpecs.train.dependence")]
#[case::a_circle("/spec/roleSpecs/prepare/dependence", json!({"roleNames": ["train"]}), "spec.roleSpecs.prepare.dependence")]
fn what_can_not_come_is_not_waited_for(#[case] pointer: &str, #[case] value: Value, #[case] wanted: &str) {
    let (_, _, message) = refused(&with("custom", pointer, value));
    assert!(message.starts_with(wanted), "{message}");
}

/// What AresOperator fills in is written out, because our frameworks would fill in other things.
#[rstest]
#[case("bagua", "master+worker", "master worker")]
#[case("bagua-elastic", "worker", "etcd worker")]
#[case("dask", "launcher", "launcher leadworker scheduler worker")]
#[case("mpi", "launcher", "launcher worker")]
#[case("pytorch", "master+worker", "master worker")]
#[case("standalone", "worker", "worker")]
// With a chief, workers that fail are restarted, and the job goes on.
#[case("tensorflow", "chief+worker", "chief evaluator ps")]
#[case("sample-tensorflow", "master+worker", "evaluator master worker")]
#[case("sample-custom", "launcher+worker", "launcher worker")]
fn defaults(#[case] name: &str, #[case] succeeded: &str, #[case] failed: &str) {
    let child = child(&object(name));
    let completion = child.spec.completion.as_ref().unwrap();
    assert_eq!(sets(&completion.succeeded_when), succeeded);
    assert_eq!(sets(&completion.failed_when), failed);
}

#[rstest]
#[case("dask", "scheduler", RestartPolicy::OnFailure)]
#[case("dask", "worker", RestartPolicy::Never)]
#[case("tensorflow", "worker", RestartPolicy::OnFailure)]
#[case("tensorflow", "ps", RestartPolicy::Never)]
#[case("sample-tensorflow", "worker", RestartPolicy::Never)]
#[case("mpi", "worker", RestartPolicy::Never)]
#[case("pytorch", "worker", RestartPolicy::ExitCode)]
fn restarts(#[case] name: &str, #[case] of: &str, #[case] policy: RestartPolicy) {
    assert_eq!(role(&child(&object(name)), of).restart_policy, Some(policy));
}

#[test]
fn a_node_that_is_down() {
    let mpi = child(&object("mpi"));
    let policy = |job: &TrainingJob, name: &str| role(job, name).node_down_policy;
    assert_eq!(policy(&mpi, "worker"), Some(NodeDownPolicy::Fail));
    assert_eq!(policy(&mpi, "launcher"), Some(NodeDownPolicy::Fail));
    let given = with(
        "mpi",
        "/spec/roleSpecs/worker/rolePhasePolicy",
        json!({"failed": "AllPods"}),
    );
    assert_ne!(
        policy(&child(&given), "worker"),
        Some(NodeDownPolicy::Fail),
        "the user says how it fails"
    );
    let pytorch = child(&object("pytorch"));
    assert_eq!(policy(&pytorch, "worker"), Some(NodeDownPolicy::Fail));
    assert_ne!(policy(&pytorch, "master"), Some(NodeDownPolicy::Fail));
}

/// Half a policy left a job that could not end.
#[rstest]
#[case(json!({"succeeded": [["prepare", "train"], ["hub"]]}), "prepare train")]
#[case(json!({"succeeded": [["prepare"], ["train"]]}), "prepare+train")]
#[case(json!({}), "prepare train")]
fn a_job_that_can_not_succeed_fails(#[case] policy: Value, #[case] failed: &str) {
    let child = child(&with("custom", "/spec/jobPhasePolicy", policy));
    let completion = child.spec.completion.as_ref().unwrap();
    assert_eq!(sets(&completion.failed_when), failed);
    assert!(
        completion
            .succeeded_when
            .iter()
            .all(|set| !set.all_of.contains(&"hub".to_owned()))
    );
}

/// Restarts had no limit, and a job may need many.
#[test]
fn restarts_have_no_limit_unless_one_is_given() {
    let limit = |name: &str| child(&object(name)).spec.run_policy.unwrap().backoff_limit;
    assert_eq!(limit("sample-custom"), Some(100_000));
    assert_eq!(limit("pytorch"), Some(2));
}
