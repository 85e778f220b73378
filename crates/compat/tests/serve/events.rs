//! What users of an object are told as events.

use rstest::rstest;
use serde_json::{Value, json};
use trainyard_api::{JobPhase, Reason, TrainingJob};
use trainyard_core::foreign::{Child, ChildAction, ForeignPlan};

use super::changes::change;
use super::common::of_job;
use super::{BENCHMARKS, HOROVOD, MXJOB, PI, at, conditions as conditions_of, kind_of, object, plan, told};

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

fn running(object: &Value, running: bool, reason: Reason) -> TrainingJob {
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
#[case::dl(
    MXJOB,
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
        if let Some(status) = plan(&object, of_job(&child)).status {
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
#[case::dl(MXJOB, "Warning Ended: launcher has ended")]
fn a_failure_is_a_warning(#[case] text: &str, #[case] expected: &str) {
    let object = object(text);
    let before = told(&object, &at(&object, JobPhase::Starting));
    let after = told(&object, &at(&object, JobPhase::Failed));
    assert_eq!(
        notes(&object, Some(&before["status"]), &after["status"]),
        [expected]
    );
}

/// Those of the Job that a launcher is there.
#[rstest]
#[case(Reason::BackoffLimitExceeded, "BackoffLimitExceeded")]
#[case(Reason::DeadlineExceeded, "DeadlineExceeded")]
#[case(Reason::RolesFailed, "MPIJobFailed")]
fn a_failure_has_the_reason_of_its_launcher(#[case] reason: Reason, #[case] expected: &str) {
    let object = object(PI);
    let before = told(&object, &at(&object, JobPhase::Starting));
    let mut failed = at(&object, JobPhase::Failed);
    let conditions = &mut failed.status.as_mut().unwrap().conditions;
    conditions.last_mut().unwrap().reason = reason.as_str().to_owned();
    let after = told(&object, &failed);
    assert_eq!(conditions_of(&after).last(), Some(&("Failed", "True", expected)));
    let words = "MPIJob research/dice has failed: launcher has ended";
    assert_eq!(
        notes(&object, Some(&before["status"]), &after["status"]),
        [format!("Warning {expected}: {words}")]
    );
}

#[rstest]
#[case::kubeflow(
    PI,
    "/spec/mpiReplicaSpecs/Worker/replicas",
    "Warning ValidationError: spec.mpiReplicaSpecs.Worker.replicas: "
)]
#[case::bdap(HOROVOD, "/spec/numWorkers", "Warning Invalid: spec.numWorkers: ")]
#[case::dl(MXJOB, "/spec/2/replicas", "Warning Invalid: spec[2].replicas: ")]
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
    let status = plan(&object, of_job(&other)).status.unwrap();
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

/// What is told with a plan, an event a line.
fn differs(plan: &ForeignPlan) -> Vec<&str> {
    let told = plan.notes.iter();
    told.inspect(|note| assert_eq!((note.warning, &*note.reason), (false, "Differs")))
        .map(|note| &*note.message)
        .collect()
}

fn written(plan: ForeignPlan) -> TrainingJob {
    match plan.child {
        ChildAction::Create(job) | ChildAction::Replace(job) => *job,
        ChildAction::Leave | ChildAction::CreateRequest(_) => panic!("no job is written"),
    }
}

#[test]
fn what_is_different_is_told_when_the_child_is_made() {
    let new = plan(&object(BENCHMARKS), Child::None);
    let [told] = *differs(&new) else {
        panic!("one event: {:?}", new.notes)
    };
    let paths: Vec<_> = told
        .lines()
        .map(|line| line.split_once(": ").unwrap().0)
        .collect();
    // Nothing of what a cluster has written, nor of what is so for every job.
    assert_eq!(
        paths,
        [
            "spec.mpiReplicaSpecs.Launcher.restartPolicy",
            "spec.mpiReplicaSpecs.Launcher.template.spec.restartPolicy",
            "spec.mpiReplicaSpecs.Worker.restartPolicy",
            "spec.runPolicy.cleanPodPolicy",
            "spec.runPolicy.schedulingPolicy",
        ]
    );
    // A job in which all is as it was has nothing to tell.
    let plain = plan(&object(PI), Child::None);
    assert_eq!(differs(&plain), [""; 0]);
    let annotations = written(plain).metadata.annotations.unwrap();
    assert!(
        !annotations.contains_key("trainyard.dev/notes"),
        "{annotations:?}"
    );
}

#[test]
fn what_is_different_is_told_again_only_when_it_changes() {
    let first = object(PI);
    let mut child = at(&first, JobPhase::Running);
    let mut after = |object: &Value| {
        let plan = plan(object, of_job(&child));
        let told: Vec<String> = differs(&plan).into_iter().map(ToOwned::to_owned).collect();
        let status = child.status.take();
        child = TrainingJob {
            status,
            ..written(plan)
        };
        told
    };
    let mut odd = change(&first, "/spec/runPolicy/cleanPodPolicy", "Running".into());
    odd["spec"]["runPolicy"]["schedulingPolicy"] = json!({"minAvailable": 2});
    let told = after(&odd);
    assert!(
        matches!(&*told, [one] if one.starts_with("spec.runPolicy.schedulingPolicy: ") && !one.contains('\n')),
        "{told:?}"
    );
    let mut shorter = change(&odd, "/spec/runPolicy/ttlSecondsAfterFinished", 5.into());
    shorter["metadata"]["generation"] = 3.into();
    assert_eq!(after(&shorter), [""; 0], "the same is no news");
    let mut plain = change(&first, "/spec/runPolicy/ttlSecondsAfterFinished", 5.into());
    plain["metadata"]["generation"] = 4.into();
    assert_eq!(after(&plain), [""; 0], "nothing is different any more");
    odd["metadata"]["generation"] = 5.into();
    assert_eq!(after(&odd), told, "and now it is again");
}

/// A cluster whose definition of the kind is not ours may keep any field.
#[test]
fn of_too_much_as_many_lines_are_told_as_fit() {
    let mut object = object(PI);
    for field in 0..1000 {
        object["spec"][format!("field{field:04}")] = true.into();
    }
    let plan = plan(&object, Child::None);
    let [told] = *differs(&plan) else {
        panic!("one event: {:?}", plan.notes)
    };
    let told = told.to_owned();
    assert!(told.len() > 900 && told.len() <= 1000, "{}", told.len());
    let lines: Vec<_> = told.lines().collect();
    let (last, lines) = lines.split_last().unwrap();
    assert!(
        lines.iter().all(|line| line.ends_with("it is left out")),
        "{told}"
    );
    let left = 1000 - lines.len();
    let expected = format!("... and {left} more in the annotation trainyard.dev/notes of its TrainingJob");
    assert_eq!(*last, expected);
    let annotations = written(plan).metadata.annotations.unwrap();
    let kept = &annotations["trainyard.dev/notes"];
    assert!(
        kept.len() <= 16_384 && kept.lines().count() > 100,
        "{}",
        kept.len()
    );
}
