//! Defects of et-operator that its kinds must not have, each by a name of its own. The table in
//! `docs/migrating/et-operator.md` has them all: what holds of all requests is in the tests of
//! `trainyard-core`, and what needs a cluster is in the scenarios.

use serde_json::json;
use trainyard_core::foreign::{Child, NewRequest};
use trainyard_core::job::Job;
use trainyard_core::model::Identity;

use super::common::settings;
use super::requests::{child, failure, made, scale_in, scale_out};
use super::{child as job, kind_of, object, plan};

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

/// A shell read them, so that a value with a blank or a quote was another.
#[test]
fn variables_of_a_script_arrive_as_they_are() {
    let mut object = scale_out(1);
    object["spec"]["script"] = "/scripts/resize".into();
    let value = r#"it's "$(late)" & more"#;
    object["spec"]["env"] = json!([{"name": "WHY", "value": value}]);
    let NewRequest::ScaleOut(request) = made(&object) else {
        panic!("it is of another kind")
    };
    assert_eq!(request.spec.env.unwrap()[0].value.as_deref(), Some(value));
}

/// It was made once and never again.
#[test]
fn the_list_of_deepspeed_follows_the_workers() {
    let child = job(&object());
    let job = Job::parse(&child).unwrap();
    let launcher = job.keys().next().unwrap();
    let shell = job.framework.remote_shell(&job, &settings(), launcher).unwrap();
    assert!(shell.files.iter().any(|file| file.path == "/job/hostfile"));
    assert!(shell.follows && shell.hosts.iter().all(|hosts| hosts.role.is_some()));
}

/// They had 1024 bits, and were made by the operator for everybody.
#[test]
fn there_are_no_weak_keys() {
    let child = job(&object());
    let job = Job::parse(&child).unwrap();
    let credentials = job.framework.credentials(&child).unwrap();
    assert_eq!(credentials.identity, Identity::Certificate, "no key for SSH");
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
