//! Reviews of objects that are as large as anybody can make them.

use super::*;
use crate::budget;
use crate::budget::tests::{hostile_specs, peak_growth};

fn body(spec: &str) -> String {
    let object = format!(
        r#"{{"apiVersion":"trainyard.dev/v1alpha1","kind":"TrainingJob","metadata":{{"name":"a","namespace":"b"}},"spec":{spec}}}"#
    );
    let review = request("UPDATE", &json!("OBJECT"), &json!("OLD")).to_string();
    review
        .replace(r#""OBJECT""#, &object)
        .replace(r#""OLD""#, &object)
}

#[rstest]
#[case(Hook::Mutate)]
#[case(Hook::Validate)]
fn a_review_takes_no_more_memory_than_it_may(#[case] hook: Hook) {
    // What is made once is not of a review.
    ask(hook, &request("CREATE", &job(&spec()), &Value::Null));
    for (name, spec) in hostile_specs() {
        let body = body(&spec);
        let (growth, outcome) = peak_growth(|| Reviewer::default().review(hook, body.as_bytes()));
        outcome.unwrap();
        assert!(growth <= budget::REVIEW, "{name}: {} KiB", growth / 1024);
    }
}

#[test]
fn a_job_that_is_too_large_is_denied_and_one_that_is_stored_may_change_its_labels() {
    let (_, spec) = hostile_specs()
        .into_iter()
        .find(|(name, _)| *name == "too many sources")
        .unwrap();
    let large = job(&serde_json::from_str(&spec).unwrap());
    let answer = ask(Hook::Validate, &request("CREATE", &large, &Value::Null));
    assert_eq!(answer["allowed"], false);
    let said = answer["status"]["message"].as_str().unwrap();
    assert!(
        said.starts_with("spec: this has 200") && said.contains("ConfigMap"),
        "{said}"
    );
    // It may lose its finalizers, be deleted, and be replaced by one that is smaller.
    let mut labelled = large.clone();
    labelled["metadata"]["labels"] = json!({"a": "b"});
    let mut going = large.clone();
    going["metadata"]["deletionTimestamp"] = json!("2026-01-02T03:04:05Z");
    for (new, old) in [
        (&labelled, &large),
        (&going, &Value::Null),
        (&job(&super::spec()), &large),
    ] {
        assert_eq!(ask(Hook::Validate, &request("UPDATE", new, old))["allowed"], true);
    }
}

#[test]
fn answers_stay_small_whatever_is_asked() {
    for name in ["uid", "operation", "name", "namespace", "subResource"] {
        let mut review = request("CREATE", &job(&spec()), &Value::Null);
        review["request"][name] = "x".repeat(MAX_NAME + 1).into();
        let refused = Reviewer::default().review(Hook::Validate, review.to_string().as_bytes());
        assert!(matches!(refused, Err(BadReview::LongNames)), "{name}");
    }
    let names: Vec<Value> = (0..1000)
        .map(|number| json!({"name": format!("A={number}"), "value": "x"}))
        .collect();
    let mut bad = spec();
    bad["roles"][0]["template"]["spec"]["containers"][0]["env"] = names.into();
    let answer = ask(Hook::Validate, &request("CREATE", &job(&bad), &Value::Null));
    let causes = answer["status"]["details"]["causes"].as_array().unwrap();
    assert_eq!(causes.len(), MAX_ERRORS + 1);
    assert_eq!(
        causes[MAX_ERRORS]["message"],
        "there are 900 more errors: correct these first"
    );
}
