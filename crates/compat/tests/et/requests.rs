//! Requests: the one of ours that each owns, and the status that it gets.

use rstest::rstest;
use serde_json::{Value, json};
use trainyard_api::{ScaleIn, ScaleKind, ScaleOut, TrainingJob};
use trainyard_core::foreign::{Child, ChildAction, ChildKind, ForeignPlan, NewRequest, Obstacle};
use trainyard_core::scale_request::ScaleRequest;

use super::common::{stored, view};
use super::{holding, kind_of, plan};

/// A request as a server shows it.
pub fn request(kind: &str, spec: Value) -> Value {
    let mut object = stored(json!({
        "apiVersion": "kai.alibabacloud.com/v1alpha1", "kind": kind, "metadata": {"name": "change"},
    }));
    object["spec"] = spec;
    object["metadata"]["creationTimestamp"] = "2026-02-03T04:00:00Z".into();
    object
}

pub fn scale_in(to_delete: Value) -> Value {
    let mut object = request("ScaleIn", json!({"selector": {"name": "mnist"}}));
    object["spec"]["toDelete"] = to_delete;
    object
}

pub fn scale_out(count: i32) -> Value {
    request(
        "ScaleOut",
        json!({"selector": {"name": "mnist"}, "toAdd": {"count": count}}),
    )
}

/// The request of ours that a new one makes.
pub fn made(object: &Value) -> NewRequest {
    let plan = plan(object, Child::None);
    assert_eq!(
        plan.status, None,
        "nothing is told before there is something to tell"
    );
    match plan.child {
        ChildAction::CreateRequest(request) => *request,
        other => panic!("{other:?}"),
    }
}

/// Why a request ends before anything was done.
pub fn failure(plan: &ForeignPlan) -> String {
    assert_eq!(plan.child, ChildAction::Leave);
    let status = plan.status.as_ref().unwrap();
    assert_eq!(status["phase"], "ScaleFailed");
    assert_eq!(holding(status), ["Created", "ScaleFailed"]);
    assert!(status["completionTime"].is_string() && status["replicaStatuses"].is_object());
    let last = status["conditions"].as_array().unwrap().last().unwrap();
    last["message"].as_str().unwrap().to_owned()
}

/// The request of ours with a status, as a server shows it.
pub fn child(object: &Value, status: Value) -> ScaleRequest {
    let mut request = match made(object) {
        NewRequest::ScaleIn(request) => ScaleRequest::from(ScaleIn {
            status: None,
            ..request
        }),
        NewRequest::ScaleOut(request) => ScaleRequest::from(ScaleOut {
            status: None,
            ..request
        }),
    };
    request.status = serde_json::from_value(status).unwrap();
    request
}

fn of(request: &ScaleRequest) -> Child<'_> {
    Child::Request { request, job: None }
}

#[test]
fn its_child_is_a_request_of_its_name_that_goes_with_it() {
    let object = scale_in(json!({"count": 2}));
    assert_eq!(
        kind_of(&object).child_kind(),
        ChildKind::Request(ScaleKind::ScaleIn)
    );
    let NewRequest::ScaleIn(made) = made(&object) else {
        panic!("it is of another kind")
    };
    let owner = &made.metadata.owner_references.as_ref().unwrap()[0];
    assert_eq!(
        (&*owner.api_version, &*owner.kind, &*owner.name, owner.controller),
        ("kai.alibabacloud.com/v1alpha1", "ScaleIn", "change", Some(true))
    );
    assert_eq!(made.metadata.name.as_deref(), Some("change"));
    assert_eq!(made.metadata.namespace.as_deref(), Some("research"));
    assert_eq!(made.spec.job_ref.name, "mnist");
    assert_eq!(made.spec.timeout_seconds, Some(60));
    assert_eq!(made.spec.to_delete.unwrap().count, Some(2));
    assert_eq!(
        made.metadata.annotations.unwrap()["trainyard.dev/created"],
        "2026-02-03T04:00:00Z"
    );
}

#[test]
fn a_scale_out_has_its_own_timeout() {
    let mut object = scale_out(3);
    object["spec"]["timeout"] = 300.into();
    let NewRequest::ScaleOut(made) = made(&object) else {
        panic!("it is of another kind")
    };
    assert_eq!(made.spec.timeout_seconds, Some(300));
    assert_eq!(made.spec.to_add.unwrap().count, 3);
}

#[rstest]
#[case::no_job("ScaleIn", json!({"toDelete": {"count": 1}}), "spec.selector.name: is empty: name a TrainingJob of this namespace")]
#[case::no_count("ScaleOut", json!({"selector": {"name": "a"}}), "spec.toAdd: is missing: say with count how many pods join")]
#[case::zero("ScaleOut", json!({"selector": {"name": "a"}, "toAdd": {"count": 0}}), "spec.toAdd.count: 0 pods: give a number from 1 to 10000")]
#[case::negative(
    "ScaleIn", json!({"selector": {"name": "a"}, "toDelete": {"count": -1}}),
    "spec.toDelete.count: -1 pods: give a number from 1 to 10000"
)]
#[case::nobody(
    "ScaleIn", json!({"selector": {"name": "a"}, "toDelete": {"podNames": []}}),
    "spec.toDelete: says of nobody that they leave: give count or podNames"
)]
#[case::two_answers(
    "ScaleIn", json!({"selector": {"name": "a"}, "toDelete": {"count": 3, "podNames": ["a-worker-1"]}}),
    "spec.toDelete: says that 3 leave, and names 1: give one of count and podNames"
)]
#[case::the_other_kind(
    "ScaleIn", json!({"selector": {"name": "a"}, "toDelete": {"count": 1}, "toAdd": {"count": 1}}),
    "spec.toAdd: is of another kind: this one has toDelete"
)]
#[case::no_time(
    "ScaleOut", json!({"selector": {"name": "a"}, "toAdd": {"count": 1}, "timeout": 0}),
    "spec.timeout: "
)]
#[case::a_script(
    "ScaleOut", json!({"selector": {"name": "a"}, "toAdd": {"count": 1}, "script": "/bin/scaler.sh $A"}),
    "spec.script: '$' is for a shell, and none reads this"
)]
#[case::a_variable_from_elsewhere(
    "ScaleOut", json!({
        "selector": {"name": "a"}, "toAdd": {"count": 1}, "script": "/bin/scaler.sh",
        "env": [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
    }),
    "spec.env[0].valueFrom: is not for scripts: give value"
)]
#[case::attempts(
    "ScaleOut", json!({
        "selector": {"name": "a"}, "toAdd": {"count": 1}, "script": "/bin/scaler.sh", "backoffLimit": -1,
    }),
    "spec.backoffLimit: -1 more attempts"
)]
fn what_can_not_be_carried_out_says_so_with_its_field(
    #[case] kind: &str,
    #[case] spec: Value,
    #[case] expected: &str,
) {
    let object = request(kind, spec);
    let message = failure(&plan(&object, Child::None));
    assert!(message.starts_with(expected), "{message}");
    let reviewed = kind_of(&object).review(None, &object);
    assert_eq!(reviewed[0].to_string(), message);
    // It has ended.
    let mut told = object.clone();
    told["status"] = plan(&object, Child::None).status.unwrap();
    assert_eq!(plan(&told, Child::None), ForeignPlan::default());
}

#[test]
fn a_request_is_not_changed() {
    let (old, new) = (scale_out(1), scale_out(2));
    let errors = kind_of(&new).review(Some(&old), &new);
    assert_eq!(
        errors[0].to_string(),
        "spec: can't be changed: create another request instead"
    );
    assert_eq!(kind_of(&new).review(Some(&old), &old), []);
}

#[test]
fn a_life() {
    let new = scale_in(json!({"podNames": ["mnist-worker-1"]}));
    let scaling = |status: &str| {
        json!({
            "type": "Scaling", "status": status, "reason": "Decided", "message": "From 2 to 1 pods: 1 leave (asked for: 1).",
            "lastTransitionTime": "2026-02-03T04:00:02Z",
        })
    };
    let decided =
        json!({"victims": ["mnist-worker-1"], "from": 2, "to": 1, "startTime": "2026-02-03T04:00:02Z"});
    let with = |mut status: Value| {
        status
            .as_object_mut()
            .unwrap()
            .extend(decided.as_object().unwrap().clone());
        status
    };
    let steps = [
        json!({"phase": "Created", "message": "It waits until the job runs."}),
        with(json!({"phase": "Scaling", "conditions": [scaling("True")]})),
        with(json!({
            "phase": "ScaleSucceeded", "conditions": [scaling("False")], "message": "The job has 1 pods.",
            "completionTime": "2026-02-03T04:00:09Z",
        })),
    ];
    let mut object = new.clone();
    let (mut order, mut events, mut statuses) = (Vec::new(), Vec::new(), Vec::new());
    for step in steps {
        let child = child(&new, step);
        let before = object.get("status").cloned().unwrap_or_default();
        object["status"] = plan(&object, of(&child)).status.unwrap();
        let status = &object["status"];
        order.push(format!(
            "{}: {}",
            status["phase"].as_str().unwrap(),
            holding(status).join(" ")
        ));
        let last = status["conditions"].as_array().unwrap().last().unwrap();
        assert_eq!(last["type"], status["phase"], "the column PHASE of its users");
        let notes = kind_of(&object).notes(Some(&before), status);
        events.extend(notes.into_iter().map(|note| note.reason));
        statuses.push(serde_saphyr::to_string(status).unwrap());
        assert_eq!(plan(&object, of(&child)).status, None, "it says so already");
    }
    assert_eq!(
        order,
        [
            "Created: Created",
            "Scaling: Created Scaling",
            "ScaleSucceeded: Created ScriptExecuted ScaleSucceeded",
        ]
    );
    assert_eq!(events, ["ScalingStart", "ScalingInSucceeded"]);
    assert_eq!(object["status"]["toDeletePods"], json!(["mnist-worker-1"]));
    insta::assert_snapshot!("request", statuses.join("---\n"));
}

/// There, its last condition is what users see, and a script that was run is one.
#[test]
fn a_script_that_was_run_is_a_condition_of_its_own() {
    let mut object = scale_in(json!({"count": 1}));
    object["spec"]["script"] = "/scripts/resize --delete".into();
    let condition = |kind: &str, status: &str| {
        json!({
            "type": kind, "status": status, "reason": "Decided", "message": "So it went.",
            "lastTransitionTime": "2026-02-03T04:00:02Z",
        })
    };
    let told = |phase: &str, executed: &str| {
        let child = child(
            &object,
            json!({
                "phase": phase, "victims": ["mnist-worker-1"], "startTime": "2026-02-03T04:00:02Z",
                "conditions": [condition("Scaling", "True"), condition("ScriptExecuted", executed)],
            }),
        );
        plan(&object, of(&child)).status.unwrap()
    };
    let scaling = told("Scaling", "True");
    assert_eq!(holding(&scaling), ["Created", "Scaling", "ScriptExecuted"]);
    assert_eq!(scaling["conditions"][2]["message"], "So it went.");
    let over = told("ScaleSucceeded", "True");
    assert_eq!(holding(&over), ["Created", "ScriptExecuted", "ScaleSucceeded"]);
    // An attempt has failed, and another may follow.
    assert_eq!(holding(&told("Scaling", "False")), ["Created", "Scaling"]);
    assert_eq!(holding(&told("ScaleFailed", "False")), ["Created", "ScaleFailed"]);
}

#[test]
fn a_scale_out_that_was_undone_has_failed() {
    let object = scale_out(2);
    let child = child(
        &object,
        json!({
            "phase": "ScaleFailed", "joining": ["mnist-worker-2", "mnist-worker-3"], "message": "Too late.",
            "startTime": "2026-02-03T04:00:02Z", "completionTime": "2026-02-03T04:01:09Z",
        }),
    );
    let status = plan(&object, of(&child)).status.unwrap();
    assert_eq!(holding(&status), ["Created", "ScaleFailed"]);
    assert_eq!(status["addPods"], json!(["mnist-worker-2", "mnist-worker-3"]));
    let last = status["conditions"].as_array().unwrap().last().unwrap();
    assert_eq!(
        (&last["reason"], &last["message"]),
        (&json!("ScalingOutFailed"), &json!("Too late."))
    );
}

/// So that it is deleted with it, as its users know it.
#[test]
fn the_job_becomes_its_owner() {
    let mut object = scale_out(1);
    let child = child(&object, json!({"phase": "Created"}));
    let mut job = TrainingJob::default();
    let owners = |object: &Value, job: &TrainingJob| {
        plan(
            object,
            Child::Request {
                request: &child,
                job: Some(job),
            },
        )
        .owners
    };
    assert_eq!(owners(&object, &job), [], "it is a user's own");
    let owner = json!({
        "apiVersion": "kai.alibabacloud.com/v1alpha1", "kind": "TrainingJob", "name": "mnist", "uid": "j", "controller": true,
    });
    job.metadata.owner_references = Some(vec![serde_json::from_value(owner.clone()).unwrap()]);
    let found = owners(&object, &job);
    assert_eq!((found.len(), &*found[0].uid, found[0].controller), (1, "j", None));
    object["metadata"]["ownerReferences"] = json!([owner]);
    assert_eq!(owners(&object, &job), []);
}

#[test]
fn a_request_of_somebody_else_is_not_touched() {
    let object = scale_out(1);
    let mut other = child(&object, json!({}));
    other.metadata.owner_references = None;
    let message = failure(&plan(&object, of(&other)));
    assert!(message.contains("somebody else's"), "{message}");
    // One of a former object of this name is about to go.
    let mut former = child(&object, json!({}));
    former.metadata.owner_references.as_mut().unwrap()[0].uid = "former".to_owned();
    assert_eq!(plan(&object, of(&former)), ForeignPlan::default());
}

#[test]
fn what_keeps_it_from_being_created_is_told() {
    let object = scale_out(1);
    let obstacle = Obstacle::Refused("no quota".to_owned());
    let mut view = view(&object, Child::None);
    view.obstacle = Some(&obstacle);
    let plan = kind_of(&object).plan(&view);
    assert!(
        matches!(plan.child, ChildAction::CreateRequest(_)),
        "it is tried again"
    );
    let status = plan.status.unwrap();
    let message = status["conditions"][0]["message"].as_str().unwrap();
    assert!(message.contains("no quota"), "{message}");
}

#[test]
fn one_that_another_operator_carries_out_is_left_to_it() {
    let object = scale_out(1);
    let mut view = view(&object, Child::None);
    view.other_writer = Some("et-operator");
    let message = failure(&kind_of(&object).plan(&view));
    assert!(message.contains("et-operator"), "{message}");
}
