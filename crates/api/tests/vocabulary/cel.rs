//! The rules of the definition itself, evaluated as the API server does before it asks a webhook.

use kube::core::cel::Validator;
use rstest::rstest;
use serde_json::{Value, json};
use trainyard_api::crd;

fn job() -> Value {
    json!({"spec": {
        "framework": {"name": "pytorch", "pytorch": {"port": 1}},
        "managedBy": "example.com/one",
        "roles": [
            {"name": "master", "template": {}},
            {"name": "worker", "template": {}},
        ],
    }})
}

fn said(new: &Value, old: Option<&Value>) -> Vec<String> {
    let definition = serde_json::to_value(crd::training_job().unwrap()).unwrap();
    let schema = &definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
    let errors = Validator::new()
        .validate(schema, new, old)
        .err()
        .into_iter()
        .flatten();
    errors.map(|error| error.to_string()).collect()
}

/// The API server stops at its own rules, and nobody sees what the webhook or the operator would
/// say of the rest.
#[rstest]
#[case::absent_roles(json!({"completion": {"succeededWhen": [{"allOf": ["x"]}], "failedWhen": [{"allOf": ["y"]}]}}))]
#[case::no_rule(json!({"completion": {"succeededWhen": [], "failedWhen": []}}))]
#[case::options_of_another_framework(json!({"framework": {"name": "custom", "pytorch": {}}}))]
fn a_new_job_is_left_to_those_who_say_all_at_once(#[case] change: Value) {
    let mut job = job();
    for (field, value) in change.as_object().unwrap() {
        job["spec"][field] = value.clone();
    }
    assert_eq!(said(&job, None), [""; 0]);
}

#[rstest]
#[case::framework(
    "/spec/framework/name", json!("custom"),
    &["spec.framework.name: can't be changed from \"pytorch\": create a new job instead"]
)]
#[case::managed_by(
    "/spec/managedBy", json!("example.com/two"), &["spec.managedBy: can't be changed: create a new job instead"]
)]
#[case::fewer_roles(
    "/spec/roles", json!([{"name": "worker", "template": {}}]),
    &["spec.roles: roles can't be added or removed: create a new job instead"]
)]
#[case::more_roles(
    "/spec/roles",
    json!([
        {"name": "master", "template": {}}, {"name": "worker", "template": {}},
        {"name": "one", "template": {}}, {"name": "two", "template": {}}
    ]),
    &["spec.roles: roles can't be added or removed: create a new job instead"]
)]
#[case::another_order("/spec/roles", json!([{"name": "worker", "template": {}}, {"name": "master", "template": {}}]), &[])]
fn what_never_changes_holds_without_the_operator(
    #[case] field: &str,
    #[case] value: Value,
    #[case] expected: &[&str],
) {
    let mut new = job();
    *new.pointer_mut(field).unwrap() = value;
    assert_eq!(said(&new, Some(&job())), expected);
}

#[test]
fn a_manager_can_neither_be_given_up_nor_taken_on() {
    let mut none = job();
    none["spec"].as_object_mut().unwrap().remove("managedBy");
    let expected = ["spec.managedBy: can't be changed: create a new job instead"];
    assert_eq!(said(&none, Some(&job())), expected);
    assert_eq!(said(&job(), Some(&none)), expected);
    assert_eq!(said(&none, Some(&none)), [""; 0]);
}
