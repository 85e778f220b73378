//! Changes of objects that are served, and their end.

use rstest::rstest;
use serde_json::{Value, json};
use trainyard_api::{JobPhase, RestartPolicy};
use trainyard_core::foreign::{Child, ChildAction, ForeignPlan, ForeignView};
use trainyard_core::job::Job;
use trainyard_core::model::PodKey;
use trainyard_core::view::Settings;

use super::common::{of_job, view};
use super::{HOROVOD, PI, at, conditions, kind, object, plan, refused, told};

/// Changes the spec as a user does.
pub fn change(object: &Value, pointer: &str, value: Value) -> Value {
    let mut object = object.clone();
    *object.pointer_mut(pointer).unwrap() = value;
    object["metadata"]["generation"] = 2.into();
    object
}

#[test]
fn changes_of_an_object_become_changes_of_its_child() {
    let before = object(PI);
    let running = at(&before, JobPhase::Running);
    let mut suspended = before.clone();
    suspended["spec"]["runPolicy"]["suspend"] = true.into();
    suspended["metadata"]["generation"] = 2.into();
    let ChildAction::Replace(job) = plan(&suspended, of_job(&running)).child else {
        panic!("it is suspended")
    };
    assert_eq!(job.spec.suspend, Some(true));
    assert_eq!(
        job.metadata.annotations.as_ref().unwrap()["trainyard.dev/generation"],
        "2"
    );
    assert_eq!(job.metadata.owner_references, running.metadata.owner_references);
    // Nothing was changed, whatever a newer version would make of it.
    let mut older = running.clone();
    older.spec.run_policy.as_mut().unwrap().backoff_limit = Some(99);
    assert_eq!(plan(&before, of_job(&older)).child, ChildAction::Leave);
}

#[test]
fn a_change_that_is_not_possible_is_told_and_the_job_goes_on() {
    let before = object(PI);
    let running = at(&before, JobPhase::Running);
    let changed = change(&before, "/spec/mpiReplicaSpecs/Worker/replicas", 3.into());
    let (reason, message) = refused(&changed, of_job(&running));
    assert_eq!(reason, "ChangeRefused");
    let (path, _) = message.split_once(": ").unwrap();
    assert_eq!(path, "spec.mpiReplicaSpecs.Worker.replicas", "{message}");
    assert!(
        message.contains("set spec.runPolicy.suspend to true first"),
        "{message}"
    );
    assert!(!message.contains("updatePolicy"), "{message}");
    assert!(message.ends_with("The job goes on as it was."), "{message}");
    let after = json!({"status": plan(&changed, of_job(&running)).status.unwrap()});
    assert_eq!(
        conditions(&after).pop(),
        Some(("Running", "True", "MPIJobRunning"))
    );
    // A job that has ended does not care.
    let ended = at(&before, JobPhase::Succeeded);
    assert_eq!(plan(&changed, of_job(&ended)).child, ChildAction::Leave);
}

/// Former versions gave workers the policy of their object, which a child that runs can't change.
#[rstest]
#[case::never(Some("Never"), RestartPolicy::Never)]
#[case::on_failure(Some("OnFailure"), RestartPolicy::OnFailure)]
#[case::left_out_since(None, RestartPolicy::Never)]
fn workers_that_run_keep_the_restart_policy_that_they_have(
    #[case] given: Option<&str>,
    #[case] former: RestartPolicy,
) {
    let mut before = object(PI);
    if let Some(given) = given {
        before["spec"]["mpiReplicaSpecs"]["Worker"]["restartPolicy"] = given.into();
    }
    let mut running = at(&before, JobPhase::Running);
    running.spec.roles[1].restart_policy = Some(former);
    let changed = change(&before, "/spec/runPolicy/ttlSecondsAfterFinished", 900.into());
    let ChildAction::Replace(kept) = plan(&changed, of_job(&running)).child else {
        panic!("it is changed")
    };
    assert_eq!(kept.spec.roles[1].restart_policy, Some(former));
    let notes = &kept.metadata.annotations.as_ref().unwrap()["trainyard.dev/notes"];
    let told: Vec<&str> = notes
        .lines()
        .filter(|note| note.starts_with("spec.mpiReplicaSpecs.Worker.restartPolicy: "))
        .collect();
    assert!(
        matches!(*told, [one] if one.contains(&format!(": {former:?}, "))),
        "{notes}"
    );
    // Where no pod is left, they get what all workers have now.
    let mut suspended = running;
    suspended.spec.suspend = Some(true);
    suspended.status.as_mut().unwrap().phase = Some(JobPhase::Suspended);
    let ChildAction::Replace(resumed) = plan(&changed, of_job(&suspended)).child else {
        panic!("it is resumed")
    };
    assert_eq!(resumed.spec.roles[1].restart_policy, Some(RestartPolicy::Always));
    // One that is resumed before all pods are gone would be refused with another policy.
    suspended.status.as_mut().unwrap().phase = Some(JobPhase::Suspending);
    let ChildAction::Replace(resumed) = plan(&changed, of_job(&suspended)).child else {
        panic!("it is resumed")
    };
    assert_eq!(resumed.spec.roles[1].restart_policy, Some(former));
}

#[test]
fn a_worker_whose_template_says_another_restart_policy_is_refused_while_it_runs() {
    let before = object(HOROVOD);
    let mut changed = before.clone();
    changed["spec"]["workerTemplate"]["spec"]["restartPolicy"] = "Never".into();
    changed["metadata"]["generation"] = 2.into();
    let (_, message) = refused(&changed, of_job(&at(&before, JobPhase::Running)));
    assert!(
        message.starts_with("spec.workerTemplate.spec.restartPolicy: "),
        "{message}"
    );
}

#[test]
fn an_object_is_deleted_when_its_time_is_over_and_not_before() {
    let object = object(PI);
    let child = at(&object, JobPhase::Succeeded);
    let ended = told(&object, &child);
    let plan_at = |object: &Value, child, time: &str| {
        kind("kubeflow-mpi").plan(&ForeignView {
            now: time.parse().unwrap(),
            ..view(object, child)
        })
    };
    for child in [of_job(&child), Child::None] {
        let early = plan_at(&ended, child, "2026-02-03T04:14:00Z");
        assert_eq!(
            (early.delete, early.wake_at),
            (false, Some("2026-02-03T04:14:01Z".parse().unwrap()))
        );
        assert_eq!(
            early.child,
            ChildAction::Leave,
            "an object that has ended gets no other child"
        );
        assert!(plan_at(&ended, child, "2026-02-03T04:14:01Z").delete);
    }
    // What it has come to is told first. A server that does not keep it may show it like this for
    // ever.
    let late = plan_at(&object, of_job(&child), "2026-02-03T05:00:00Z");
    assert!(late.delete && late.status.is_some());
    assert_eq!(late.wake_at, None);
    // Without a time it stays.
    let mut forever = ended.clone();
    forever["spec"]["runPolicy"]
        .as_object_mut()
        .unwrap()
        .remove("ttlSecondsAfterFinished");
    assert_eq!(
        plan_at(&forever, Child::None, "2036-01-01T00:00:00Z"),
        ForeignPlan::default()
    );
}

/// Bug: a changed number of workers changed nothing.
#[test]
fn editing_num_workers_changes_workers_and_host_file() {
    let before = object(HOROVOD);
    let changed = change(&before, "/spec/numWorkers", 3.into());
    let plan = plan(&changed, of_job(&at(&before, JobPhase::Running)));
    let ChildAction::Replace(job) = plan.child else {
        panic!("{plan:?}")
    };
    let job = Job::parse(&job).unwrap();
    assert_eq!(job.roles[1].replicas(), 3);
    let launcher = PodKey { role: 0, index: 0 };
    let hosts = job
        .framework
        .remote_shell(&job, &Settings::default(), launcher)
        .unwrap()
        .hosts;
    assert_eq!((hosts[0].count, hosts[0].slots), (3, 1));
    assert_eq!(kind("bdap-mpi").review(Some(&before), &changed), []);
}

#[test]
fn a_change_of_a_job_that_can_not_be_suspended_says_what_to_do() {
    let before = object(HOROVOD);
    let changed = change(
        &before,
        "/spec/launcherTemplate/spec/restartPolicy",
        "OnFailure".into(),
    );
    let (_, message) = refused(&changed, of_job(&at(&before, JobPhase::Running)));
    assert!(
        message.starts_with("spec.launcherTemplate.spec.restartPolicy: "),
        "{message}"
    );
    assert!(
        message.contains("create the job anew") && !message.contains("suspend"),
        "{message}"
    );
}
