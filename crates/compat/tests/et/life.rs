//! The status of a job, from its beginning to its end.

use serde_json::{Value, json};
use trainyard_core::foreign::{Child, ChildAction};
use trainyard_core::view::PodPhase;

use super::common::{of_job, pod};
use super::{at, holding, kind_of, object, plan, told};

fn roles(launcher: Value, worker: Value) -> Value {
    let mut roles = [("launcher", launcher), ("worker", worker)].map(|(name, mut role)| {
        role["name"] = name.into();
        role
    });
    json!(&mut roles)
}

fn none() -> Value {
    json!({"phase": "Pending"})
}

fn accepted(replicas: i32) -> Value {
    json!({"roles": [{
        "name": "worker", "replicas": replicas, "restartPolicy": "Always", "succeededWhen": "AllPods",
        "failedWhen": "AnyPod", "nodeDownPolicy": "Wait",
    }]})
}

fn running(workers: i32) -> Value {
    roles(
        json!({"phase": "Running", "active": 1, "ready": 1}),
        json!({"phase": "Running", "active": workers, "ready": workers}),
    )
}

fn request(kind: &str, name: &str) -> Value {
    json!({"kind": kind, "name": name, "uid": "u"})
}

#[test]
fn a_life() {
    let new = object();
    let starting = |launcher: Value, worker: Value| json!({"phase": "Starting", "roles": roles(launcher, worker), "acceptedRules": accepted(2)});
    let phases = [
        json!({"phase": "Pending"}),
        starting(none(), json!({"phase": "Starting", "pending": 2})),
        starting(none(), json!({"phase": "Running", "active": 2, "ready": 2})),
        starting(
            json!({"phase": "Starting", "pending": 1}),
            json!({"phase": "Running", "active": 2, "ready": 2}),
        ),
        json!({"phase": "Running", "roles": running(2), "acceptedRules": accepted(2)}),
        json!({"phase": "Scaling", "roles": running(2), "acceptedRules": accepted(4), "scaling": {
            "from": 2, "to": 4, "step": "Joining", "joining": "2-3", "request": request("ScaleOut", "more"),
        }}),
        json!({
            "phase": "Running", "roles": running(4), "acceptedRules": accepted(4),
            "lastScaleRequest": request("ScaleOut", "more"),
        }),
        json!({
            "phase": "Scaling", "roles": running(4), "acceptedRules": accepted(4),
            "lastScaleRequest": request("ScaleOut", "more"), "scaling": {
                "from": 4, "to": 3, "step": "Requested", "victims": "3", "request": request("ScaleIn", "less"),
            },
        }),
        json!({
            "phase": "Running", "roles": running(3), "acceptedRules": accepted(3),
            "lastScaleRequest": request("ScaleIn", "less"), "restarts": {"failures": 1, "disruptions": 2},
        }),
        json!({
            "phase": "Succeeded", "acceptedRules": accepted(3), "lastScaleRequest": request("ScaleIn", "less"),
            "roles": roles(json!({"phase": "Succeeded", "succeeded": 1}), json!({"phase": "Stopped"})),
            "completionTime": "2026-02-03T04:04:01Z",
            "conditions": [{
                "type": "Succeeded", "status": "True", "reason": "RolesSucceeded", "message": "",
                "lastTransitionTime": "2026-02-03T04:04:01Z",
            }],
        }),
    ];
    let mut object = new.clone();
    let (mut statuses, mut events, mut order) = (Vec::new(), Vec::new(), Vec::new());
    for phase in phases {
        let child = at(&new, phase);
        let before = object.get("status").cloned().unwrap_or_default();
        object = told(&object, &child);
        events.extend(
            kind_of(&object)
                .notes(Some(&before), &object["status"])
                .into_iter()
                .map(|note| format!("{}: {}", note.reason, note.message)),
        );
        let status = &object["status"];
        order.push(format!(
            "{}: {}",
            status["phase"].as_str().unwrap(),
            holding(status).join(" ")
        ));
        statuses.push(serde_saphyr::to_string(status).unwrap());
        let again = plan(&object, of_job(&child));
        assert_eq!(
            (again.status, again.child),
            (None, ChildAction::Leave),
            "it says so already"
        );
    }
    assert_eq!(
        order,
        [
            "Created: Created",
            "Created: Created WorkersCreated",
            "Created: Created WorkersCreated WorkersReady",
            "Created: Created WorkersCreated WorkersReady LauncherCreated",
            "Running: Created WorkersCreated WorkersReady LauncherCreated Running",
            "Scaling: Created WorkersCreated WorkersReady LauncherCreated Running Scaling",
            "Running: Created WorkersCreated WorkersReady LauncherCreated Running ScaleSucceeded",
            "Scaling: Created WorkersCreated WorkersReady LauncherCreated Running ScaleSucceeded Scaling",
            "Running: Created WorkersCreated WorkersReady LauncherCreated Running ScaleSucceeded",
            "Succeeded: Created WorkersCreated WorkersReady LauncherCreated ScaleSucceeded Succeeded",
        ]
    );
    assert_eq!(
        events,
        [
            "TrainingJobCreated: TrainingJob research/mnist is created.",
            "TrainingJobRunning: TrainingJob research/mnist is running.",
            "ScalingStart: TrainingJob research/mnist carries out ScaleOut:research/more.",
            "ScalingOutSucceeded: ScaleOut:research/more has succeeded.",
            "ScalingStart: TrainingJob research/mnist carries out ScaleIn:research/less.",
            "ScalingInSucceeded: ScaleIn:research/less has succeeded.",
            "TrainingJobSucceeded: TrainingJob research/mnist successfully completed.",
        ]
    );
    insta::assert_snapshot!("life", statuses.join("---\n"));
}

/// The one that leaves is a target until it has left.
#[test]
fn workers_are_listed_by_name() {
    let pods = [
        pod("mnist-launcher", PodPhase::Running),
        pod("mnist-worker-10", PodPhase::Running),
        pod("mnist-worker-1", PodPhase::Pending),
        pod("mnist-worker-0", PodPhase::Running),
    ];
    let mut rules = accepted(3);
    rules["roles"][0]["members"] = "0-1,10".into();
    let job = at(
        &object(),
        json!({"phase": "Running", "roles": running(2), "acceptedRules": rules}),
    );
    let status = plan(
        &object(),
        Child::Job {
            job: &job,
            pods: &pods,
        },
    )
    .status
    .unwrap();
    assert_eq!(
        status["targetWorkers"],
        json!(["mnist-worker-0", "mnist-worker-1", "mnist-worker-10"])
    );
    assert_eq!(
        status["currentWorkers"],
        json!(["mnist-worker-0", "mnist-worker-10"])
    );
    assert_eq!(status["replicas"], 3);
    assert_eq!(
        status["workerSelector"],
        "group-name=kai.alibabacloud.com,training-job-name=mnist,training-job-role=worker"
    );
}

#[test]
fn a_job_that_was_suspended_begins_anew() {
    let new = object();
    let running = at(&new, json!({"phase": "Running", "roles": running(2)}));
    let object = told(&new, &running);
    assert!(holding(&object["status"]).contains(&"LauncherCreated"));
    let mut object = told(&object, &at(&new, json!({"phase": "Suspended"})));
    let status = &object["status"];
    assert_eq!(
        (&status["phase"], holding(status)),
        (&json!("Suspended"), vec!["Created", "Suspended"])
    );
    object = told(&object, &at(&new, json!({"phase": "Pending"})));
    let status = &object["status"];
    assert_eq!(
        (&status["phase"], holding(status)),
        (&json!("Created"), vec!["Created"])
    );
}

#[test]
fn a_worker_that_is_replaced_leaves_the_job_running() {
    let new = object();
    let object = told(&new, &at(&new, json!({"phase": "Running", "roles": running(2)})));
    let restarting = json!({"phase": "Restarting", "restarts": {"failures": 0, "disruptions": 1}});
    let object = told(&object, &at(&new, restarting));
    assert_eq!(object["status"]["phase"], "Running");
    assert!(object["status"]["restartCount"].is_null());
}

/// There, too, the conditions begin anew when all pods do.
#[test]
fn a_job_whose_launcher_has_failed_comes_to_all_steps_again() {
    let new = object();
    let mut object = told(&new, &at(&new, json!({"phase": "Running", "roles": running(2)})));
    let ready = json!({"phase": "Running", "active": 2, "ready": 2});
    let failed = roles(json!({"phase": "Running", "failed": 1}), ready.clone());
    let gone = roles(none(), json!({"phase": "Pending", "terminating": 2}));
    let mut order = Vec::new();
    for (phase, roles) in [
        ("Restarting", failed),
        ("Restarting", gone),
        (
            "Restarting",
            roles(none(), json!({"phase": "Starting", "pending": 2})),
        ),
        ("Restarting", roles(none(), ready)),
        ("Running", running(2)),
    ] {
        let status = json!({
            "phase": phase, "roles": roles, "acceptedRules": accepted(2),
            "restarts": {"failures": 1, "disruptions": 0},
        });
        object = told(&object, &at(&new, status));
        let status = &object["status"];
        assert_eq!(status["restartCount"], 1);
        order.push(format!(
            "{}: {}",
            status["phase"].as_str().unwrap(),
            holding(status).join(" ")
        ));
    }
    assert_eq!(
        order,
        [
            "Created: Created",
            "Created: Created",
            "Created: Created WorkersCreated",
            "Created: Created WorkersCreated WorkersReady",
            "Running: Created WorkersCreated WorkersReady LauncherCreated Running",
        ]
    );
}

/// et-operator took it for a success.
#[test]
fn a_launcher_that_is_missing_is_no_success() {
    let new = object();
    let failed = json!({
        "phase": "Failed",
        "rootCause": {"role": "launcher", "pod": "mnist-launcher", "reason": "Evicted"},
        "conditions": [{
            "type": "Failed", "status": "True", "reason": "PodDisrupted", "message": "mnist-launcher was evicted.",
            "lastTransitionTime": "2026-02-03T04:04:01Z",
        }],
    });
    let object = told(&new, &at(&new, failed));
    let last = object["status"]["conditions"].as_array().unwrap().last().unwrap();
    assert_eq!(
        (&last["type"], &last["reason"]),
        (&json!("Failed"), &json!("TrainingJobEvicted"))
    );
    assert!(last["message"].as_str().unwrap().contains("was evicted"));
}

/// Its definition, which its users may have, demands both.
#[test]
fn every_status_has_what_its_own_definition_demands() {
    let mut bad = object();
    bad["spec"].as_object_mut().unwrap().remove("etReplicaSpecs");
    for status in [
        plan(&bad, Child::None).status.unwrap(),
        plan(&object(), of_job(&at(&object(), json!({"phase": "Pending"}))))
            .status
            .unwrap(),
    ] {
        assert!(status["conditions"].is_array() && status["replicaStatuses"].is_object());
    }
}
