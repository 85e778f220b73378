mod declared;
mod scale_requests;
mod size;

use k8s_openapi::ByteString;
use rstest::rstest;
use serde_json::{Value, json};
use trainyard_core::foreign::ForeignKind;

use super::*;
use crate::foreign::tests::TOY;

fn job(spec: &Value) -> Value {
    json!({
        "apiVersion": "trainyard.dev/v1alpha1", "kind": "TrainingJob",
        "metadata": {"name": "mnist", "namespace": "a"}, "spec": spec
    })
}

fn spec() -> Value {
    json!({
        "framework": {"name": "pytorch"},
        "roles": [{"name": "worker", "template": {"spec": {"containers": [{"name": "train", "image": "i"}]}}}]
    })
}

fn request(operation: &str, object: &Value, old: &Value) -> Value {
    json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": {
            "uid": "u-1", "operation": operation, "name": "mnist", "namespace": "a",
            "kind": {"group": "trainyard.dev", "version": "v1alpha1", "kind": "TrainingJob"},
            "resource": {"group": "trainyard.dev", "version": "v1alpha1", "resource": "trainingjobs"},
            "userInfo": {}, "object": object, "oldObject": old, "options": null
        }
    })
}

fn ask(hook: Hook, request: &Value) -> Value {
    ask_of(&Reviewer::default(), hook, request)
}

fn ask_of(reviewer: &Reviewer, hook: Hook, request: &Value) -> Value {
    let answer: Value =
        serde_json::from_slice(&reviewer.review(hook, request.to_string().as_bytes()).unwrap().1).unwrap();
    assert_eq!(answer["apiVersion"], "admission.k8s.io/v1");
    assert_eq!(answer["kind"], "AdmissionReview");
    assert_eq!(answer["response"]["uid"], "u-1");
    answer["response"].clone()
}

/// The object after the webhook, and the paths that were touched.
fn mutated(object: &Value) -> (Value, Vec<String>) {
    mutated_by(&Reviewer::default(), object)
}

fn mutated_by(reviewer: &Reviewer, object: &Value) -> (Value, Vec<String>) {
    let answer = ask_of(reviewer, Hook::Mutate, &request("CREATE", object, &Value::Null));
    assert_eq!(answer["allowed"], true, "{answer}");
    let Some(patch) = answer.get("patch") else {
        return (object.clone(), Vec::new());
    };
    assert_eq!(answer["patchType"], "JSONPatch");
    let bytes: ByteString = serde_json::from_value(patch.clone()).unwrap();
    let patch: json_patch::Patch = serde_json::from_slice(&bytes.0).unwrap();
    let mut result = object.clone();
    json_patch::patch(&mut result, &patch).expect("the patch applies to what was sent");
    (
        result,
        patch
            .iter()
            .map(|operation| operation.path().to_string())
            .collect(),
    )
}

/// Whether all that is in `small` is in `large`, at the same place; nulls count as absent.
fn contains(large: &Value, small: &Value) -> bool {
    match (large, small) {
        (_, Value::Null) => true,
        (Value::Object(large), Value::Object(small)) => small
            .iter()
            .all(|(key, value)| contains(large.get(key).unwrap_or(&Value::Null), value)),
        (Value::Array(large), Value::Array(small)) => {
            large.len() == small.len()
                && large
                    .iter()
                    .zip(small)
                    .all(|(large, small)| contains(large, small))
        }
        _ => large == small,
    }
}

#[rstest]
#[case::bare(spec())]
#[case::nulls({
    let mut spec = spec();
    spec["runPolicy"] = Value::Null;
    spec["roles"][0]["replicas"] = Value::Null;
    spec["roles"][0]["placement"] = Value::Null;
    spec
})]
#[case::empty_objects({
    let mut spec = spec();
    spec["runPolicy"] = json!({});
    spec["roles"][0]["template"]["metadata"] = json!({});
    spec
})]
#[case::half_written({
    let mut spec = spec();
    spec["runPolicy"] = json!({"backoffLimit": 0});
    spec["roles"][0]["replicas"] = json!(7);
    spec["roles"][0]["placement"] = json!({"spread": "Preferred"});
    spec
})]
#[case::unknown_fields({
    let mut spec = spec();
    spec["future"] = json!({"x": [1, 2, {"y": null}]});
    spec["runPolicy"] = json!({"future": true});
    spec["roles"][0]["future/~name"] = json!("kept");
    spec["roles"][0]["template"]["spec"]["future"] = json!(1);
    spec["roles"][0]["template"]["spec"]["containers"][0]["future"] = json!([]);
    spec
})]
#[case::completion_with_one_list({
    let mut spec = spec();
    spec["completion"] = json!({"succeededWhen": [{"allOf": ["worker"]}]});
    spec
})]
#[case::odd_but_equal_forms({
    let mut spec = spec();
    // A quantity and a port are written differently by a type than by a person.
    let container = &mut spec["roles"][0]["template"]["spec"]["containers"][0];
    container["resources"] = json!({"limits": {"cpu": "1000m", "local": "1024Mi"}, "requests": {}});
    container["ports"] = json!([]);
    container["env"] = json!([{"name": "A", "value": ""}]);
    spec
})]
#[case::several_roles({
    let mut spec = spec();
    let mut second = spec["roles"][0].clone();
    second["name"] = "master".into();
    second["container"] = "train".into();
    spec["roles"].as_array_mut().unwrap().push(second);
    spec
})]
fn defaults_are_added_and_nothing_else_is_touched(#[case] spec: Value) {
    let object = job(&spec);
    let (result, paths) = mutated(&object);
    assert!(
        contains(&result, &object),
        "something of\n{object}\nis missing in\n{result}"
    );
    for path in &paths {
        let allowed = path == "/spec/runPolicy"
            || path.starts_with("/spec/runPolicy/")
            || (path.starts_with("/spec/roles/") && !path.contains("/template"));
        assert!(allowed, "{path} was touched");
    }
    assert_eq!(result["spec"]["roles"][0]["container"], "train");
    assert_eq!(result["spec"]["runPolicy"]["cleanPodPolicy"], "Running");
    assert!(result["spec"]["roles"][0]["replicas"].is_number());

    // What was filled in is what the types say: defaulting the result changes nothing more.
    assert_eq!(mutated(&result).1, [""; 0], "defaults are idempotent");
}

#[test]
fn a_fill_survives_parents_that_are_missing() {
    // The type writes `a` and `a.list` always; the user wrote neither.
    let before = json!({"a": {"list": [{"x": 1}], "gone": 1}, "same": []});
    let after = json!({"a": {"list": [{"x": 1, "y": 2}, {"x": 3}]}, "same": [], "new": {"z": 1}});
    let mut raw = json!({"unknown": true, "a": null});
    crate::admission::fill::fill(&mut raw, &before, &after);
    assert_eq!(
        raw,
        json!({"unknown": true, "a": {"list": [{"x": 1, "y": 2}, {"x": 3}]}, "new": {"z": 1}})
    );
}

#[test]
fn a_job_that_can_work_is_allowed() {
    for old in [Value::Null, job(&spec())] {
        let answer = ask(Hook::Validate, &request("CREATE", &job(&spec()), &old));
        assert_eq!(answer, json!({"uid": "u-1", "allowed": true}));
    }
}

#[test]
fn every_error_is_told_with_its_field() {
    let mut broken = spec();
    broken["roles"][0]["replicas"] = json!(0);
    broken["roles"][0]["name"] = json!("Not Good");
    broken["managedBy"] = json!("nobody");
    let answer = ask(Hook::Validate, &request("CREATE", &job(&broken), &Value::Null));
    assert_eq!(answer["allowed"], false);
    let status = &answer["status"];
    assert_eq!(
        (&status["code"], &status["reason"]),
        (&json!(422), &json!("Invalid"))
    );
    let details = &status["details"];
    assert_eq!(
        (&details["kind"], &details["name"]),
        (&json!("TrainingJob"), &json!("mnist"))
    );
    let causes = details["causes"].as_array().unwrap();
    let fields: Vec<_> = causes
        .iter()
        .map(|cause| cause["field"].as_str().unwrap())
        .collect();
    for field in ["spec.roles[0].replicas", "spec.roles[0].name", "spec.managedBy"] {
        assert!(fields.contains(&field), "{field} is not in {fields:?}");
    }
    let message = status["message"].as_str().unwrap();
    assert_eq!(message.lines().count(), causes.len(), "one line each:\n{message}");
    for cause in causes {
        assert_eq!(cause["reason"], "FieldValueInvalid");
        assert!(message.contains(cause["message"].as_str().unwrap()));
    }
}

#[test]
fn changes_are_compared_with_defaults_written() {
    let old = job(&spec());
    let mut new = mutated(&old).0;
    new["spec"]["runPolicy"]["backoffLimit"] = json!(6);
    assert_eq!(
        ask(Hook::Validate, &request("UPDATE", &new, &old))["allowed"],
        true
    );
    new["spec"]["framework"] = json!({"name": "custom"});
    let answer = ask(Hook::Validate, &request("UPDATE", &new, &old));
    assert_eq!(answer["allowed"], false);
    assert!(
        answer["status"]["message"]
            .as_str()
            .unwrap()
            .contains("spec.framework"),
        "{answer}"
    );
}

#[rstest]
#[case::wrong_type(json!({"framework": {"name": "pytorch"}, "roles": [{"name": "w", "replicas": "two", "template": {}}]}),
    "spec.roles[0].replicas", "two")]
#[case::unknown_choice(json!({"framework": {"name": "pytorch"}, "roles": [], "runPolicy": {"cleanPodPolicy": "Some"}}),
    "spec.runPolicy.cleanPodPolicy", "Some")]
#[case::deep(json!({"framework": {"name": "pytorch"}, "roles": [{"name": "w", "template": {"spec": {"containers": 5}}}]}),
    "spec.roles[0].template.spec.containers", "5")]
#[case::missing_field(json!({"roles": []}), "spec", "framework")]
#[case::not_an_object(json!(3), "spec", "3")]
#[case::null(Value::Null, "spec", "null")]
fn what_can_not_be_read_is_refused_with_its_path(
    #[case] spec: Value,
    #[case] field: &str,
    #[case] hint: &str,
) {
    for hook in [Hook::Mutate, Hook::Validate] {
        let answer = ask(hook, &request("CREATE", &job(&spec), &Value::Null));
        assert_eq!(answer["allowed"], false);
        let cause = &answer["status"]["details"]["causes"][0];
        assert_eq!(cause["field"], field, "{cause}");
        assert!(cause["message"].as_str().unwrap().contains(hint), "{cause}");
    }
}

#[test]
fn what_is_not_ours_to_judge_is_allowed_at_once() {
    let rubbish = json!({"metadata": 7, "spec": "?"});
    let mut deleting = rubbish.clone();
    deleting["metadata"] = json!({"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": []});
    let mut status = request("UPDATE", &rubbish, &rubbish);
    status["request"]["subResource"] = "status".into();
    let mut scale = request("UPDATE", &rubbish, &rubbish);
    scale["request"]["subResource"] = "scale".into();
    let mut other = request("CREATE", &rubbish, &Value::Null);
    other["request"]["kind"] = json!({"group": "", "version": "v1", "kind": "Pod"});
    for request in [
        request("DELETE", &Value::Null, &rubbish),
        request("CONNECT", &rubbish, &Value::Null),
        request("UPDATE", &deleting, &rubbish),
        status,
        scale,
        other,
    ] {
        for hook in [Hook::Mutate, Hook::Validate] {
            assert_eq!(
                ask(hook, &request),
                json!({"uid": "u-1", "allowed": true}),
                "{request}"
            );
        }
    }
}

#[test]
fn an_old_job_that_newer_rules_refuse_can_still_be_labelled_suspended_and_mended() {
    let allowed = |new: &Value, old: &Value| {
        let answer = ask(Hook::Validate, &request("UPDATE", new, old));
        answer["allowed"] == true
    };
    let mut broken = spec();
    broken["roles"][0]["replicas"] = json!(0);
    let running = job(&broken);
    let mut new = running.clone();
    new["metadata"]["labels"] = json!({"a": "b"});
    assert!(allowed(&new, &running));
    new["spec"]["suspend"] = json!(true);
    assert!(allowed(&new, &running), "what it holds can always be freed");
    let suspended = new.clone();
    new["spec"]["roles"][0]["replicas"] = json!(-1);
    assert!(!allowed(&new, &running), "that is not all that was changed");
    assert!(!allowed(&running, &suspended), "it can't run");

    assert!(allowed(&job(&spec()), &job(&json!({"roles": 5}))));
}

#[test]
fn a_name_that_is_still_to_be_generated_is_no_error() {
    let mut object = job(&spec());
    object["metadata"] = json!({"generateName": "mnist-"});
    assert_eq!(
        ask(Hook::Validate, &request("CREATE", &object, &Value::Null))["allowed"],
        true
    );
    object["metadata"] = json!({"generateName": "x".repeat(60)});
    assert_eq!(
        ask(Hook::Validate, &request("CREATE", &object, &Value::Null))["allowed"],
        false
    );
}

#[rstest]
#[case("")]
#[case("{")]
#[case("[]")]
#[case(r#"{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview"}"#)]
#[case(r#"{"apiVersion":"admission.k8s.io/v1","request":{"uid":7}}"#)]
fn what_is_no_review_is_an_error(#[case] body: &str) {
    let deep = "[".repeat(100_000);
    for body in [body, deep.as_str()] {
        let error = Reviewer::default()
            .review(Hook::Mutate, body.as_bytes())
            .unwrap_err()
            .to_string();
        assert!(error.contains("AdmissionReview"), "{error}");
    }
}

#[test]
fn a_job_that_has_ended_is_not_changed_in_vain() {
    let mut old = job(&spec());
    // Only the phase is looked at, whatever else the status has become.
    old["status"] = json!({"phase": "Succeeded", "conditions": "none"});
    let mut new = old.clone();
    new["spec"]["suspend"] = json!(true);
    let answer = ask(Hook::Validate, &request("UPDATE", &new, &old));
    assert_eq!(answer["allowed"], false);
    let said = answer["status"]["message"].as_str().unwrap();
    assert!(said.starts_with("spec.suspend: the job has ended"), "{said}");
    old["status"]["phase"] = json!("Running");
    assert_eq!(
        ask(Hook::Validate, &request("UPDATE", &new, &old))["allowed"],
        true
    );
}

/// The fingerprint of another spec than the job has.
fn other_spec() -> Value {
    json!([{"field": "spec.roles[worker]", "hash": "0123456789abcdef"}])
}

/// The same, as this version writes it.
fn other_accepted() -> Value {
    json!("[1,[['spec.roles[worker]','0123456789abcdef']],null]")
}

/// Pods that were made from another spec are still there as long as the phase is not Suspended.
#[rstest]
#[case::still_running(json!({"phase": "Running", "accepted": other_accepted()}), false)]
#[case::restarting(json!({"phase": "Restarting", "accepted": other_accepted()}), false)]
#[case::the_rest_can_not_be_read(json!({"phase": "Running", "accepted": other_accepted(), "roles": 7}), false)]
#[case::of_a_former_version(json!({"phase": "Running", "acceptedSpec": other_spec()}), false)]
#[case::suspended(json!({"phase": "Suspended", "accepted": other_accepted()}), true)]
#[case::never_accepted(json!({"phase": "Pending"}), true)]
#[case::an_unknown_phase(json!({"phase": "Dreaming", "accepted": other_accepted()}), true)]
#[case::fingerprints_that_can_not_be_read(json!({"phase": "Running", "accepted": "none"}), true)]
#[case::former_ones_that_can_not_be_read(json!({"phase": "Running", "acceptedSpec": "none"}), true)]
#[case::no_status(Value::Null, true)]
fn a_job_that_was_changed_while_suspended_is_resumed_when_it_is(
    #[case] status: Value,
    #[case] allowed: bool,
) {
    let mut old = job(&spec());
    old["spec"]["suspend"] = json!(true);
    old["status"] = status;
    let mut new = old.clone();
    new["spec"]["suspend"] = json!(false);
    let answer = ask(Hook::Validate, &request("UPDATE", &new, &old));
    assert_eq!(answer["allowed"], allowed, "{answer}");
    if !allowed {
        let said = answer["status"]["message"].as_str().unwrap();
        assert!(said.starts_with("spec.suspend: the job was changed"), "{said}");
    }
}

#[test]
fn objects_of_other_operators_are_refused_with_their_own_fields_where_they_are_served() {
    let review = |kinds: Vec<&'static dyn ForeignKind>, operation: &str, old: Value| {
        let request = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {
            "uid": "r", "operation": operation, "kind": {"group": "toys.example", "version": "v1", "kind": "Toy"},
            "object": {"metadata": {"name": "a"}, "spec": {"bad": true}}, "oldObject": old,
        }});
        let answer = Reviewer::new(kinds).review(Hook::Validate, request.to_string().as_bytes());
        let answer: Value = serde_json::from_slice(&answer.unwrap().1).unwrap();
        answer["response"].clone()
    };
    assert_eq!(review(Vec::new(), "CREATE", Value::Null)["allowed"], true);
    let refused = review(vec![&TOY], "CREATE", Value::Null);
    assert_eq!(refused["allowed"], false);
    assert_eq!(refused["status"]["details"]["causes"][0]["field"], "spec.bad");
    assert_eq!(review(vec![&TOY], "UPDATE", json!({"spec": {}}))["allowed"], true);
    assert_eq!(review(vec![&TOY], "DELETE", Value::Null)["allowed"], true);
}
