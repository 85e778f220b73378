//! The status of a job that is served, from its beginning to its end.

use jiff::SignedDuration;
use rstest::rstest;
use serde_json::{Value, json};
use trainyard_api::TrainingJob;
use trainyard_core::foreign::{Child, ChildAction, ForeignView};
use trainyard_core::view::{PodPhase, PodRow};

use super::common::{now, of_job, pod, view};
use super::{at, child, kind, object, plan, told, with};

/// The two roles of the job `pytorch`.
fn roles(master: Value, worker: Value) -> Value {
    let mut roles = [("master", master), ("worker", worker)].map(|(name, mut role)| {
        role["name"] = name.into();
        role
    });
    json!(&mut roles)
}

fn ended(phase: &str, reason: &str, message: &str, roles: Value) -> Value {
    let mut status = json!({
        "phase": phase,
        "completionTime": "2026-02-03T04:04:01Z",
        "conditions": [{
            "type": phase, "status": "True", "reason": reason, "message": message,
            "lastTransitionTime": "2026-02-03T04:04:01Z",
        }],
    });
    status["roles"] = roles;
    status
}

#[test]
fn a_life() {
    let new = object("pytorch");
    let phases = [
        json!({"phase": "Pending"}),
        json!({"phase": "Starting", "roles": roles(
            json!({"phase": "Starting", "pending": 1}),
            json!({
                "phase": "Starting", "pending": 2, "reason": "WaitingForRoles", "message": "waits for master to run",
            }),
        )}),
        json!({"phase": "Running", "roles": roles(
            json!({"phase": "Running", "active": 1}), json!({"phase": "Running", "active": 2}),
        )}),
        json!({"phase": "Restarting", "roles": roles(
            json!({"phase": "Running", "active": 1}),
            json!({"phase": "Starting", "active": 1, "pending": 1, "terminating": 1}),
        )}),
        ended(
            "Succeeded",
            "RolesSucceeded",
            "The job's rule for success holds.",
            roles(
                json!({"phase": "Succeeded", "succeeded": 1}),
                json!({"phase": "Succeeded", "succeeded": 2}),
            ),
        ),
    ];
    let mut object = new.clone();
    let mut statuses = Vec::new();
    let mut events = Vec::new();
    for phase in phases {
        let child = at(&new, phase);
        let before = object.get("status").cloned();
        object = told(&object, &child);
        let notes = kind().notes(Some(&before.unwrap_or_default()), &object["status"]);
        events.extend(
            notes
                .into_iter()
                .map(|note| format!("{}: {}", note.reason, note.message)),
        );
        statuses.push(serde_saphyr::to_string(&object["status"]).unwrap());
        let again = plan(&object, of_job(&child));
        assert_eq!(
            (again.status, again.child),
            (None, ChildAction::Leave),
            "it says so already"
        );
    }
    insta::assert_snapshot!("life", statuses.join("---\n"));
    assert_eq!(
        events,
        [
            "JobPhaseTransition: AresJob cats is Pending.",
            "JobPhaseTransition: AresJob cats is Starting.",
            "JobPhaseTransition: AresJob cats is Running.",
            "JobPhaseTransition: AresJob cats is Succeeded.",
        ]
    );
}

/// A status that says that it is pending would be followed by another one.
#[test]
fn pods_tell_that_a_job_starts_before_its_child_does() {
    let new = object("pytorch");
    let mut child = child(&new);
    child.status = None;
    let phases = |pods: &[PodRow]| {
        let status = plan(&new, Child::Job { job: &child, pods }).status.unwrap();
        let role = |name: &str| status["roleStatuses"][name]["phase"].clone();
        [status["phase"].clone(), role("master"), role("worker")]
    };
    assert_eq!(phases(&[]), ["Pending", "Pending", "Pending"]);
    let worker = pod("cats-worker-0", PodPhase::Pending);
    assert_eq!(phases(&[worker]), ["Starting", "Pending", "Starting"]);
}

/// With its TrainingJob, that is three requests more than the same TrainingJob of a user costs,
/// whose events say that it runs and how it has ended.
#[test]
fn a_job_that_soon_runs_costs_two_statuses_and_as_many_events() {
    let new = object("pytorch");
    let running = |active: i32| {
        let worker = json!({"phase": "Running", "active": active, "succeeded": 2 - active});
        json!({"phase": "Running", "roles": roles(json!({"phase": "Running", "active": 1}), worker)})
    };
    let mut fresh = child(&new);
    fresh.status = None;
    let starting = json!({"phase": "Starting", "roles": roles(json!({"phase": "Starting"}), json!({"phase": "Starting"}))});
    let end = roles(
        json!({"phase": "Succeeded", "succeeded": 1}),
        json!({"phase": "Succeeded", "succeeded": 2}),
    );
    let ended = ended(
        "Succeeded",
        "RolesSucceeded",
        "The job's rule for success holds.",
        end,
    );
    let mut object = new.clone();
    let (mut phases, mut events) = (Vec::new(), Vec::new());
    for child in [
        fresh,
        at(&new, json!({"phase": "Pending"})),
        at(&new, starting),
        at(&new, running(2)),
        at(&new, running(1)),
        at(&new, ended),
    ] {
        let plan = plan(&object, of_job(&child));
        let status = plan.status.unwrap();
        if !plan.status_can_wait {
            let before = object.get("status").cloned().unwrap_or_default();
            events.extend(kind().notes(Some(&before), &status));
            phases.push(status["phase"].as_str().unwrap().to_owned());
            object["status"] = status;
        }
    }
    assert_eq!(phases, ["Running", "Succeeded"]);
    let events: Vec<String> = events.into_iter().map(|event| event.message).collect();
    assert_eq!(events, ["AresJob cats is Running.", "AresJob cats is Succeeded."]);
}

#[rstest]
#[case::of_a_child_that_starts(json!({"phase": "Starting"}), true)]
#[case::that_it_runs(json!({"phase": "Running"}), false)]
#[case::that_it_is_suspended(json!({"phase": "Suspended"}), false)]
#[case::that_it_has_ended(json!({"phase": "Failed"}), false)]
#[case::that_it_is_not_accepted(
    json!({"phase": "Pending", "conditions": [{
        "type": "Accepted", "status": "False", "reason": "Invalid", "message": "spec.roles: no",
        "lastTransitionTime": "2026-02-03T04:00:00Z",
    }]}),
    false
)]
fn the_first_status_can_wait(#[case] status: Value, #[case] can_wait: bool) {
    let new = object("pytorch");
    let plan = plan(&new, of_job(&at(&new, status)));
    assert!(plan.status.is_some());
    assert_eq!(plan.status_can_wait, can_wait);
}

/// The reasons of failed roles by which programs tell what happened.
#[rstest]
#[case::program(
    json!({"phase": "Failed", "failed": 1, "reason": "PodFailed", "message": "cats-worker-1 on n1: exit code 3 (Error)"}),
    Some(json!({
        "role": "worker", "pod": "cats-worker-1", "node": "n1", "exitCode": 3, "reason": "Error",
        "time": "2026-02-03T04:04:00Z",
    })),
    "PodFailed",
    r#"pod=cats-worker-1; nodeName=n1; info={"exitCode":3,"finishedAt":"2026-02-03T04:04:00Z","reason":"Error"}"#
)]
#[case::eviction(
    json!({"phase": "Failed", "failed": 1, "reason": "PodDisrupted", "message": "cats-worker-0 on n1 was taken away (Evicted)"}),
    Some(json!({"role": "worker", "pod": "cats-worker-0", "node": "n1", "reason": "Evicted", "message": "disk"})),
    "PodFailed",
    r#"pod=cats-worker-0; nodeName=n1; info={"message":"disk","reason":"Evicted"}"#
)]
#[case::node(
    json!({"phase": "Failed", "failed": 1, "reason": "PossibleNodeDown", "message": "cats-worker-0: its node n1 is down"}),
    None,
    "PossibleNodeDown",
    "cats-worker-0: its node n1 is down"
)]
#[case::missing(
    json!({"phase": "Failed", "failed": 1, "reason": "PodMissing", "message": "1 of 2 pods is gone: 1"}),
    None,
    "PodMissing",
    "1 of 2 pods is gone: 1"
)]
fn a_failure(
    #[case] worker: Value,
    #[case] cause: Option<Value>,
    #[case] reason: &str,
    #[case] message: &str,
) {
    let new = object("pytorch");
    let running = json!({"phase": "Running", "roles": roles(
        json!({"phase": "Running", "active": 1}), json!({"phase": "Running", "active": 2}),
    )});
    let before = told(&new, &at(&new, running));
    let stopped =
        json!({"phase": "Stopped", "reason": "Finished", "message": "The job ended before the role did."});
    let mut failed = ended(
        "Failed",
        "RolesFailed",
        "worker: it failed",
        roles(stopped, worker),
    );
    failed["rootCause"] = cause.unwrap_or_default();
    let after = told(&before, &at(&new, failed));
    let status = &after["status"];
    assert_eq!(
        (&status["phase"], &status["completionTime"]),
        (&json!("Failed"), &json!("2026-02-03T04:04:01Z"))
    );
    assert_eq!(status["runningTime"], before["status"]["runningTime"]);
    let worker = &status["roleStatuses"]["worker"];
    assert_eq!(
        (&worker["phase"], &worker["reason"]),
        (&json!("Failed"), &json!(reason))
    );
    assert_eq!(worker["message"], message);
    // A role that ended with its job is what it was.
    let master = &status["roleStatuses"]["master"];
    assert_eq!(
        (&master["phase"], master.get("reason")),
        (&json!("Running"), None)
    );
    let last = status["conditions"].as_array().unwrap().last().unwrap();
    assert_eq!(
        (&last["type"], &last["reason"]),
        (&json!("Failed"), &json!("Failed"))
    );
    assert_eq!(last["message"], "AresJob cats is Failed: worker: it failed");
    assert_eq!(status["replicaStatuses"]["worker"], json!({"failed": 1}));
}

#[rstest]
#[case("DeadlineExceeded")]
#[case("BackoffLimitExceeded")]
fn a_limit_is_the_reason(#[case] reason: &str) {
    let new = object("pytorch");
    let failed = ended(
        "Failed",
        reason,
        "too long",
        roles(json!({"phase": "Failed"}), json!({"phase": "Failed"})),
    );
    let after = told(&new, &at(&new, failed));
    let last = after["status"]["conditions"].as_array().unwrap().last().unwrap();
    assert_eq!(
        (&last["type"], &last["reason"]),
        (&json!("Failed"), &json!(reason))
    );
}

/// The object is deleted when its time is over. What it leaves behind after a failure is the
/// child's to remove.
#[test]
fn times_to_live() {
    let new = with("pytorch", "/spec/ttlSecondsAfterFailed", json!(30));
    let run = child(&new).spec.run_policy.unwrap();
    assert_eq!(run.ttl_seconds_after_failed, Some(30));
    assert_eq!(run.ttl_seconds_after_finished, None, "it is the object's");
    assert_eq!(
        (run.active_deadline_seconds, run.backoff_limit),
        (Some(3600), Some(2))
    );
    let failed = at(
        &new,
        ended(
            "Failed",
            "RolesFailed",
            "",
            roles(json!({"phase": "Failed"}), json!({"phase": "Failed"})),
        ),
    );
    let object = told(&new, &failed);
    let waiting = plan(&object, of_job(&failed));
    assert_eq!(
        waiting.wake_at.map(|at| at.to_string()).as_deref(),
        Some("2026-02-03T04:14:01Z")
    );
    let late = kind().plan(&ForeignView {
        now: now() + SignedDuration::from_secs(600),
        ..view(&object, of_job(&failed))
    });
    assert!(late.delete && !waiting.delete);
}

/// What the operator can't do for another reason than the definition is told, and the job goes on.
#[test]
fn a_change_that_is_not_possible() {
    let before = object("pytorch");
    let running = at(
        &before,
        json!({"phase": "Running", "roles": roles(
            json!({"phase": "Running", "active": 1}), json!({"phase": "Running", "active": 2}),
        )}),
    );
    let told_before = told(&before, &running);
    let mut after = told_before.clone();
    after["spec"]["roleSpecs"]["worker"]["replicas"] = 5.into();
    after["metadata"]["generation"] = 2.into();
    let after = told(&after, &running);
    assert_eq!(after["status"]["phase"], "Running");
    let conditions = after["status"]["conditions"].as_array().unwrap();
    let kinds: Vec<&str> = conditions
        .iter()
        .map(|condition| condition["type"].as_str().unwrap())
        .collect();
    assert_eq!(kinds, ["Created", "Refused", "Running"]);
    let message = conditions[1]["message"].as_str().unwrap();
    assert!(
        message.starts_with("spec.roleSpecs.worker.replicas: this can't be changed while the job runs"),
        "{message}"
    );
}

/// Users of AresOperator may add workers where nobody was told how many there are.
#[test]
fn more_pods_while_it_runs() {
    let before = object("custom");
    let running = at(&before, json!({"phase": "Running"}));
    let mut after = before.clone();
    after["spec"]["roleSpecs"]["train"]["replicas"] = 5.into();
    after["metadata"]["generation"] = 2.into();
    let ChildAction::Replace(job) = plan(&after, of_job(&running)).child else {
        panic!("it grows")
    };
    let replicas = |job: &TrainingJob| {
        job.spec
            .roles
            .iter()
            .find(|role| role.name == "train")
            .unwrap()
            .replicas
    };
    assert_eq!(replicas(&job), Some(5));
    assert_eq!(kind().review(Some(&before), &after), []);
}
