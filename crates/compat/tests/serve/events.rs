//! What users of an object are told as events.

use rstest::rstest;
use serde_json::{Value, json};
use trainyard_api::{JobPhase, Reason};
use trainyard_core::foreign::Child;

use super::{HOROVOD, PI, at, kind_of, object, plan, told};

/// An event in one line.
fn notes(object: &Value, before: Option<&Value>, after: &Value) -> Vec<String> {
    let notes = kind_of(object).notes(before, after).into_iter();
    notes
        .map(|note| {
            let level = if note.warning { "Warning" } else { "Normal" };
            format!("{level} {}: {}", note.reason, note.message)
        })
        .collect()
}

fn running(object: &Value, running: bool, reason: Reason) -> trainyard_api::TrainingJob {
    let phase = if running {
        JobPhase::Running
    } else {
        JobPhase::Restarting
    };
    let mut job = at(object, phase);
    let condition = json!({
        "type": "Running", "status": if running { "True" } else { "False" }, "reason": reason.as_str(),
        "message": "as it is", "lastTransitionTime": "2026-02-03T04:00:00Z",
    });
    let conditions = &mut job.status.as_mut().unwrap().conditions;
    conditions.push(serde_json::from_value(condition).unwrap());
    job
}

#[rstest]
#[case::kubeflow(
    PI,
    &[
        "Normal MPIJobCreated: MPIJob research/dice is created.",
        "Normal MPIJobRunning: MPIJob research/dice is running.",
        "Warning MPIJobRestarting: MPIJob research/dice is restarting: pods that ended are being replaced.",
        "Normal MPIJobSuspended: MPIJob research/dice is suspended.",
        "Normal MPIJobResumed: MPIJob research/dice is resumed.",
        "Normal MPIJobRunning: MPIJob research/dice is running.",
        "Normal MPIJobSucceeded: MPIJob research/dice successfully completed.",
    ]
)]
#[case::bdap(
    HOROVOD,
    &[
        "Normal Valid: the job is valid",
        "Normal AllRolesRunning: as it is",
        "Warning Restarting: as it is",
        "Normal AllRolesRunning: as it is",
        "Normal Ended: launcher has ended",
    ]
)]
fn a_life_is_told_once(#[case] text: &str, #[case] expected: &[&str]) {
    let new = object(text);
    let mut object = new.clone();
    let mut all = Vec::new();
    let lives = [
        at(&new, JobPhase::Starting),
        running(&new, true, Reason::AllRolesRunning),
        running(&new, false, Reason::Restarting),
        at(&new, JobPhase::Suspended),
        at(&new, JobPhase::Starting),
        running(&new, true, Reason::AllRolesRunning),
        at(&new, JobPhase::Succeeded),
    ];
    for child in lives {
        let before = object.get("status").cloned().unwrap_or_default();
        if let Some(status) = plan(&object, Child::Job(&child)).status {
            object["status"] = status;
        }
        all.extend(notes(&object, Some(&before), &object["status"]));
        assert_eq!(
            notes(&object, Some(&object["status"]), &object["status"]),
            [""; 0],
            "nothing has changed"
        );
        assert_eq!(
            notes(&object, None, &object["status"]),
            [""; 0],
            "nobody knows what was told"
        );
    }
    assert_eq!(all, expected);
}

#[rstest]
#[case::kubeflow(
    PI,
    "Warning MPIJobFailed: MPIJob research/dice has failed: launcher has ended"
)]
#[case::bdap(HOROVOD, "Warning Ended: launcher has ended")]
fn a_failure_is_a_warning(#[case] text: &str, #[case] expected: &str) {
    let object = object(text);
    let before = told(&object, &at(&object, JobPhase::Starting));
    let after = told(&object, &at(&object, JobPhase::Failed));
    assert_eq!(
        notes(&object, Some(&before["status"]), &after["status"]),
        [expected]
    );
}

#[rstest]
#[case::kubeflow(
    PI,
    "/spec/mpiReplicaSpecs/Worker/replicas",
    "Warning ValidationError: spec.mpiReplicaSpecs.Worker.replicas: "
)]
#[case::bdap(HOROVOD, "/spec/numWorkers", "Warning Invalid: spec.numWorkers: ")]
fn what_is_wrong_is_told_with_its_path_whenever_it_is_something_else(
    #[case] text: &str,
    #[case] path: &str,
    #[case] expected: &str,
) {
    let mut object = object(text);
    let mut wrong = |value: i64| {
        *object.pointer_mut(path).unwrap() = value.into();
        plan(&object, Child::None).status.unwrap()
    };
    let (zero, less) = (wrong(0), wrong(-1));
    for before in [None, Some(&Value::Null), Some(&less)] {
        let said = notes(&object, before, &zero);
        assert!(matches!(&*said, [only] if only.starts_with(expected)), "{said:?}");
    }
    assert_eq!(notes(&object, Some(&zero), &zero), [""; 0]);
}

#[rstest]
#[case::kubeflow(PI, "Warning ErrResourceExists: there is a TrainingJob of this name")]
#[case::bdap(HOROVOD, "Warning OwnershipConflict: there is a TrainingJob of this name")]
fn names_that_are_taken_are_told(#[case] text: &str, #[case] expected: &str) {
    let object = object(text);
    let mut other = at(&object, JobPhase::Running);
    other.metadata.owner_references = None;
    let status = plan(&object, Child::Job(&other)).status.unwrap();
    let said = notes(&object, Some(&Value::Null), &status);
    assert!(matches!(&*said, [only] if only.starts_with(expected)), "{said:?}");
}

/// The server keeps what it likes.
#[rstest]
#[case(json!(null))]
#[case(json!("odd"))]
#[case(json!({"conditions": "odd"}))]
#[case(json!({"conditions": [7, {"type": 3}]}))]
fn nothing_is_told_of_what_makes_no_sense(#[case] status: Value) {
    let object = object(PI);
    assert_eq!(notes(&object, Some(&status), &status), [""; 0]);
}
