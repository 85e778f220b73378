//! ScaleIn and ScaleOut: their definitions, and the rules that both they and the operator know.

use kube::core::cel::Validator;
use rstest::rstest;
use serde_json::{Value, json};
use trainyard_api::validate::{validate_scale_in, validate_scale_out};
use trainyard_api::{ScaleInSpec, ScaleKind, ScaleOutSpec, crd};

fn definition(kind: ScaleKind) -> Value {
    let definition = match kind {
        ScaleKind::ScaleIn => crd::SCALE_IN,
        ScaleKind::ScaleOut => crd::SCALE_OUT,
    };
    serde_json::from_str(definition).unwrap()
}

fn schema(kind: ScaleKind) -> Value {
    definition(kind)["spec"]["versions"][0]["schema"]["openAPIV3Schema"].clone()
}

/// What the rules of a definition say.
fn said(kind: ScaleKind, new: &Value, old: Option<&Value>) -> Vec<String> {
    let errors = Validator::new().validate(&schema(kind), new, old).err();
    errors
        .into_iter()
        .flatten()
        .map(|error| error.to_string())
        .collect()
}

#[rstest]
#[case(ScaleKind::ScaleIn, "scale_in.json")]
#[case(ScaleKind::ScaleOut, "scale_out.json")]
fn what_is_written_down_is_what_the_types_say(#[case] kind: ScaleKind, #[case] file: &str) {
    let written = match kind {
        ScaleKind::ScaleIn => crd::SCALE_IN,
        ScaleKind::ScaleOut => crd::SCALE_OUT,
    };
    let current = written.trim_end() == crd::generate_request(kind).unwrap();
    assert!(
        current,
        "crates/api/src/crd/{file} is out of date: run `make manifests`"
    );
}

#[rstest]
#[case(ScaleKind::ScaleIn, "si", "toDelete")]
#[case(ScaleKind::ScaleOut, "so", "toAdd")]
fn kubectl_shows_what_becomes_of_a_request(
    #[case] kind: ScaleKind,
    #[case] short: &str,
    #[case] required: &str,
) {
    let definition = definition(kind);
    let (spec, version) = (&definition["spec"], &definition["spec"]["versions"][0]);
    assert_eq!(spec["scope"], "Namespaced");
    assert_eq!(spec["names"]["plural"], kind.plural());
    assert_eq!(spec["names"]["shortNames"], json!([short]));
    let columns = version["additionalPrinterColumns"].as_array().unwrap();
    let names: Vec<&str> = columns.iter().filter_map(|c| c["name"].as_str()).collect();
    assert_eq!(names, ["Job", "Phase", "From", "To", "Age", "Message"]);
    assert_eq!(version["subresources"], json!({"status": {}}));
    let properties = &version["schema"]["openAPIV3Schema"]["properties"]["spec"];
    assert_eq!(properties["required"], json!(["jobRef", required]));
}

/// Without a bound, the server can't tell what a rule costs.
#[rstest]
#[case(ScaleKind::ScaleIn)]
#[case(ScaleKind::ScaleOut)]
fn every_list_and_every_text_of_a_request_has_a_bound(#[case] kind: ScaleKind) {
    fn check(path: &str, schema: &Value) {
        match schema["type"].as_str() {
            Some("array") => {
                assert!(schema["maxItems"].is_u64(), "{path}");
                check(&format!("{path}[]"), &schema["items"]);
            }
            Some("string") => {
                let is_bounded = schema["maxLength"].is_u64() || schema["enum"].is_array();
                assert!(is_bounded, "{path}");
            }
            _ => {}
        }
        for (name, property) in schema["properties"].as_object().into_iter().flatten() {
            check(&format!("{path}.{name}"), property);
        }
    }
    check("spec", &schema(kind)["properties"]["spec"]);
}

#[rstest]
#[case::count(json!({"count": 1}), true)]
#[case::pods(json!({"podNames": ["a"]}), true)]
#[case::nodes(json!({"nodeNames": ["a"]}), true)]
#[case::nothing(json!({}), false)]
#[case::two(json!({"count": 1, "nodeNames": ["a"]}), false)]
#[case::three(json!({"count": 1, "podNames": ["a"], "nodeNames": ["a"]}), false)]
fn who_leaves_is_said_in_one_way(#[case] to_delete: Value, #[case] is_valid: bool) {
    let request = json!({"spec": {"jobRef": {"name": "mnist"}, "toDelete": to_delete}});
    let expected: &[&str] = if is_valid {
        &[]
    } else {
        &["spec.toDelete: give one of count, podNames and nodeNames"]
    };
    assert_eq!(said(ScaleKind::ScaleIn, &request, None), expected);
    let spec: ScaleInSpec = serde_json::from_value(request["spec"].clone()).unwrap();
    assert_eq!(validate_scale_in(None, &spec).is_empty(), is_valid);
}

#[test]
fn a_request_that_was_made_stays_as_it_is() {
    let request = |count: i32| json!({"spec": {"jobRef": {"name": "mnist"}, "toAdd": {"count": count}}});
    let message = "spec: can't be changed: create another request instead";
    assert_eq!(
        said(ScaleKind::ScaleOut, &request(2), Some(&request(1))),
        [message]
    );
    assert_eq!(said(ScaleKind::ScaleOut, &request(1), Some(&request(1))), [""; 0]);
    let spec =
        |count: i32| -> ScaleOutSpec { serde_json::from_value(request(count)["spec"].clone()).unwrap() };
    let errors = validate_scale_out(Some(&spec(1)), &spec(2));
    assert_eq!(errors[0].to_string(), message);
}

#[rstest]
#[case(json!({"jobRef": {"name": ""}, "toAdd": {"count": 1}}), "spec.jobRef.name: is empty: name a TrainingJob of this namespace")]
#[case(json!({"jobRef": {"name": "a"}}), "spec.toAdd: is missing: say with count how many pods join")]
#[case(json!({"jobRef": {"name": "a"}, "toAdd": {"count": 0}}), "spec.toAdd.count: 0 pods: give a number from 1 to 10000")]
#[case(
    json!({"jobRef": {"name": "a"}, "toAdd": {"count": 1}, "timeoutSeconds": 0}),
    "spec.timeoutSeconds: 0 seconds: give at least 1, or leave it out"
)]
#[case(
    json!({"jobRef": {"name": "a"}, "toAdd": {"count": 1}, "ttlSecondsAfterFinished": -1}),
    "spec.ttlSecondsAfterFinished: -1 seconds: give at least 0, or leave it out"
)]
fn what_is_wrong_is_said_with_its_field(#[case] spec: Value, #[case] message: &str) {
    let spec: ScaleOutSpec = serde_json::from_value(spec).unwrap();
    let errors: Vec<String> = validate_scale_out(None, &spec)
        .iter()
        .map(ToString::to_string)
        .collect();
    assert_eq!(errors, [message]);
}
