//! Reviews of ScaleIns and ScaleOuts.

use super::*;

/// The answer about a request that is created, or changed from `old`.
fn ask_about(kind: &str, spec: &Value, old: &Value) -> Value {
    let object = |spec: &Value| json!({"metadata": {"name": "r", "namespace": "a"}, "spec": spec});
    let (operation, old) = match old {
        Value::Null => ("CREATE", Value::Null),
        old => ("UPDATE", object(old)),
    };
    let mut request = request(operation, &object(spec), &old);
    request["request"]["kind"]["kind"] = kind.into();
    assert_eq!(ask(Hook::Mutate, &request)["allowed"], true);
    ask(Hook::Validate, &request)
}

fn out(count: i32) -> Value {
    json!({"jobRef": {"name": "mnist"}, "toAdd": {"count": count}})
}

#[rstest]
#[case("ScaleOut", out(2))]
#[case("ScaleIn", json!({"jobRef": {"name": "mnist"}, "toDelete": {"podNames": ["mnist-worker-1"]}}))]
fn a_good_request_is_allowed(#[case] kind: &str, #[case] spec: Value) {
    assert_eq!(ask_about(kind, &spec, &Value::Null)["allowed"], true);
    assert_eq!(ask_about(kind, &spec, &spec)["allowed"], true, "as it was");
}

#[rstest]
#[case(
    "ScaleOut",
    out(0),
    Value::Null,
    "spec.toAdd.count",
    "0 pods: give a number from 1 to 10000"
)]
#[case(
    "ScaleOut",
    out(2),
    out(1),
    "spec",
    "can't be changed: create another request instead"
)]
#[case(
    "ScaleIn", json!({"jobRef": {"name": "mnist"}, "toDelete": {}}), Value::Null,
    "spec.toDelete", "is empty: give one of count, podNames and nodeNames"
)]
#[case(
    "ScaleIn", json!({"jobRef": {"name": "mnist"}, "toDelete": {"nodeNames": ["a", "b", "a"]}}), Value::Null,
    "spec.toDelete.nodeNames[2]", "\"a\" is given twice: give it once"
)]
fn a_bad_request_is_denied_with_the_field(
    #[case] kind: &str,
    #[case] spec: Value,
    #[case] old: Value,
    #[case] field: &str,
    #[case] message: &str,
) {
    let answer = ask_about(kind, &spec, &old);
    assert_eq!(answer["allowed"], false, "{answer}");
    assert_eq!(answer["status"]["details"]["kind"], kind);
    let cause = &answer["status"]["details"]["causes"][0];
    assert_eq!(
        (&cause["field"], &cause["message"]),
        (&json!(field), &json!(message))
    );
}

#[test]
fn a_request_that_can_not_be_read_is_denied_with_the_field() {
    let spec = json!({"jobRef": {"name": "mnist"}, "toDelete": {"count": "many"}});
    let answer = ask_about("ScaleIn", &spec, &Value::Null);
    let cause = &answer["status"]["details"]["causes"][0];
    assert_eq!(cause["field"], "spec.toDelete.count");
}
