//! Defects of et-operator that this one must not have, each by a name of its own. What needs a
//! cluster is in the scenarios; what holds of all requests is in the tests of `trainyard-core`.

use serde_json::json;
use trainyard_core::foreign::{Child, NewRequest};

use super::requests::{child, failure, made, scale_in, scale_out};
use super::{kind_of, plan};

fn names(request: NewRequest) -> Vec<String> {
    match request {
        NewRequest::ScaleIn(request) => request.spec.to_delete.unwrap().pod_names.unwrap(),
        NewRequest::ScaleOut(_) => panic!("it is of another kind"),
    }
}

/// It deleted every worker. Whether the names fit is looked at when the request has its turn; a
/// list is never taken for no list.
#[test]
fn pod_names_that_match_nothing_stay_names() {
    let request = made(&scale_in(json!({"podNames": ["nobody"]})));
    assert_eq!(names(request), ["nobody"]);
    failure(&plan(&scale_in(json!({"podNames": []})), Child::None));
}

/// It took one for the other.
#[test]
fn worker_1_is_not_worker_10() {
    let request = made(&scale_in(json!({"podNames": ["mnist-worker-1"]})));
    assert_eq!(names(request), ["mnist-worker-1"]);
}

/// It looked for the job in all namespaces.
#[test]
fn a_request_is_about_the_job_in_its_own_namespace() {
    let mut object = scale_out(1);
    object["metadata"]["namespace"] = "sales".into();
    let NewRequest::ScaleOut(request) = made(&object) else {
        panic!("it is of another kind")
    };
    assert_eq!(request.metadata.namespace.as_deref(), Some("sales"));
    assert_eq!(request.spec.job_ref.name, "mnist");
}

/// It crashed.
#[test]
fn nothing_to_delete_is_refused() {
    let mut object = scale_in(json!({}));
    let message = failure(&plan(&object, Child::None));
    assert!(message.contains("give count or podNames"), "{message}");
    object["spec"].as_object_mut().unwrap().remove("toDelete");
    let message = failure(&plan(&object, Child::None));
    assert!(message.contains("give count or podNames"), "{message}");
    assert!(!kind_of(&object).review(None, &object).is_empty());
}

/// It left them as they were for ever.
#[test]
fn a_request_of_a_job_that_has_ended_ends() {
    let object = scale_out(1);
    let ended = child(
        &object,
        json!({
            "phase": "ScaleFailed", "message": "The job mnist has ended (Succeeded).",
            "completionTime": "2026-02-03T04:05:00Z",
        }),
    );
    let plan = plan(
        &object,
        Child::Request {
            request: &ended,
            job: None,
        },
    );
    assert!(failure(&plan).contains("has ended"));
}

/// It began with the newest.
#[test]
fn the_oldest_has_its_turn_first() {
    let mut second = scale_out(1);
    second["metadata"]["creationTimestamp"] = "2026-02-03T04:00:07Z".into();
    let created = |object| match made(object) {
        NewRequest::ScaleOut(request) => {
            request.metadata.annotations.unwrap()["trainyard.dev/created"].clone()
        }
        NewRequest::ScaleIn(_) => panic!("it is of another kind"),
    };
    assert!(
        created(&scale_out(1)) < created(&second),
        "ours go by these times"
    );
}

/// Its statuses were written apart, so that a crash between them lost workers. What a request has
/// begun is never begun again.
#[test]
fn a_request_that_has_begun_is_not_made_anew() {
    let mut object = scale_out(1);
    object["status"] = json!({"conditions": [{"type": "Scaling", "status": "True"}]});
    let message = plan(&object, Child::None).status.unwrap();
    assert_eq!(message["phase"], "ScaleFailed");
}
