//! Deadlines that begin when the launcher is created.

use rstest::rstest;
use serde_json::{Value, json};
use trainyard_api::{JobPhase, RolePhase, TrainingJob};
use trainyard_core::foreign::ChildAction;

use super::changes::change;
use super::common::of_job;
use super::{PI, at, child, object, plan, told};

const LAUNCHED: &str = "trainyard.dev/launched";

fn with_deadline(policy: &str) -> Value {
    let mut object = object(PI);
    object["spec"]["runPolicy"]["activeDeadlineSeconds"] = 100.into();
    object["spec"]["launcherCreationPolicy"] = policy.into();
    object
}

fn deadline(job: &TrainingJob) -> Option<i64> {
    job.spec.run_policy.as_ref()?.active_deadline_seconds
}

fn launched(job: &TrainingJob) -> Option<&str> {
    Some(&**job.metadata.annotations.as_ref()?.get(LAUNCHED)?)
}

/// A child whose launcher is in a phase.
fn launcher_at(object: &Value, phase: RolePhase) -> TrainingJob {
    let mut job = at(object, JobPhase::Starting);
    job.status.as_mut().unwrap().roles[0].phase = phase;
    job
}

/// What becomes of a child, with the status that it had.
fn replaced(object: &Value, child: &TrainingJob) -> TrainingJob {
    let ChildAction::Replace(mut job) = plan(object, of_job(child)).child else {
        panic!("it is to be replaced")
    };
    job.status.clone_from(&child.status);
    *job
}

#[test]
fn a_deadline_begins_with_a_launcher_that_waits_for_its_workers() {
    let object = with_deadline("WaitForWorkersReady");
    assert_eq!(deadline(&child(&object)), None, "workers may take their time");
    let waiting = launcher_at(&object, RolePhase::Pending);
    assert_eq!(plan(&object, of_job(&waiting)).child, ChildAction::Leave);
    let started = replaced(&object, &launcher_at(&object, RolePhase::Starting));
    // The job was started 305 seconds ago.
    assert_eq!(deadline(&started), Some(405));
    assert_eq!(launched(&started), Some("2026-02-03T04:05:06Z"));
    assert_eq!(plan(&object, of_job(&started)).child, ChildAction::Leave);
    let mut without = object;
    without["spec"]["runPolicy"]
        .as_object_mut()
        .unwrap()
        .remove("activeDeadlineSeconds");
    let running = launcher_at(&without, RolePhase::Running);
    assert_eq!(plan(&without, of_job(&running)).child, ChildAction::Leave);
}

#[test]
fn a_deadline_begins_with_the_job_where_the_launcher_does() {
    let object = with_deadline("AtStartup");
    assert_eq!(deadline(&child(&object)), Some(100));
    let running = launcher_at(&object, RolePhase::Running);
    assert_eq!(plan(&object, of_job(&running)).child, ChildAction::Leave);
    let changed = change(&object, "/spec/runPolicy/activeDeadlineSeconds", 200.into());
    assert_eq!(deadline(&replaced(&changed, &running)), Some(200));
}

#[test]
fn another_deadline_begins_when_the_first_did_and_a_suspension_ends_it() {
    let object = with_deadline("WaitForWorkersReady");
    let started = replaced(&object, &launcher_at(&object, RolePhase::Running));
    let changed = change(&object, "/spec/runPolicy/activeDeadlineSeconds", 200.into());
    let changed = replaced(&changed, &started);
    assert_eq!(
        (deadline(&changed), launched(&changed)),
        (Some(505), launched(&started))
    );
    let mut suspended = object.clone();
    suspended["spec"]["runPolicy"]["suspend"] = true.into();
    suspended["metadata"]["generation"] = 2.into();
    let suspended = replaced(&suspended, &started);
    assert_eq!((deadline(&suspended), launched(&suspended)), (None, None));
}

/// Former versions gave children the deadline of their objects, which began with the job.
#[rstest]
#[case::before_its_launcher(RolePhase::Pending)]
#[case::with_its_launcher(RolePhase::Running)]
fn a_deadline_that_a_former_version_has_begun_with_goes_on(#[case] launcher: RolePhase) {
    let object = with_deadline("WaitForWorkersReady");
    let mut former = launcher_at(&object, launcher);
    former
        .spec
        .run_policy
        .get_or_insert_default()
        .active_deadline_seconds = Some(100);
    assert_eq!(plan(&object, of_job(&former)).child, ChildAction::Leave);
    for (pointer, seconds) in [
        ("/spec/runPolicy/ttlSecondsAfterFinished", 100),
        ("/spec/runPolicy/activeDeadlineSeconds", 200),
    ] {
        let changed = change(&object, pointer, 200.into());
        let after = replaced(&changed, &former);
        assert_eq!(
            (deadline(&after), launched(&after)),
            (Some(seconds), None),
            "{pointer}"
        );
        assert_eq!(plan(&changed, of_job(&after)).child, ChildAction::Leave);
    }
    // What is resumed has another launcher, and a deadline that begins with it.
    let mut suspended = former.clone();
    suspended.spec.suspend = Some(true);
    let resumed = change(&object, "/spec/runPolicy/ttlSecondsAfterFinished", 200.into());
    assert_eq!(deadline(&replaced(&resumed, &suspended)), None);
    let mut paused = resumed;
    paused["spec"]["runPolicy"]["suspend"] = true.into();
    assert_eq!(deadline(&replaced(&paused, &former)), None);
}

#[test]
fn a_deadline_that_is_over_is_told_as_it_was_given() {
    let object = with_deadline("WaitForWorkersReady");
    let mut failed = replaced(&object, &launcher_at(&object, RolePhase::Running));
    let message = "The job has not ended within 405 seconds (spec.runPolicy.activeDeadlineSeconds).";
    let mut status = at(&object, JobPhase::Failed).status.unwrap();
    let condition = json!({
        "type": "Failed", "status": "True", "reason": "DeadlineExceeded", "message": message,
        "lastTransitionTime": "2026-02-03T04:04:01Z",
    });
    *status.conditions.last_mut().unwrap() = serde_json::from_value(condition).unwrap();
    failed.status = Some(status);
    let told = told(&object, &failed);
    let last = told["status"]["conditions"].as_array().unwrap().last().unwrap();
    assert_eq!(last["reason"], "DeadlineExceeded");
    let message = last["message"].as_str().unwrap();
    assert!(
        message.contains("its launcher has not ended within 100 seconds"),
        "{message}"
    );
}
