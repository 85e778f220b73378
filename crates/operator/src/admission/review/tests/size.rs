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

/// Reviews that are as large as they may be, in parts that API servers keep small.
fn strange_bodies() -> Vec<(&'static str, String)> {
    let long = |bytes: usize| "x".repeat(bytes);
    let all = long(7 << 20);
    let escaped = |count: usize| r"\u0007".repeat(count);
    let review = |field: &str, json: &str| {
        let mut review = request("CREATE", &job(&spec()), &Value::Null);
        review["request"][field] = "HERE".into();
        review.to_string().replace(r#""HERE""#, json)
    };
    let object = |metadata: &str, status: &str| {
        let object = job(&spec());
        let spec = &object["spec"];
        format!(r#"{{"metadata":{metadata},"spec":{spec},"status":{status}}}"#)
    };
    let of_object = |metadata: &str, status: &str| review("object", &object(metadata, status));
    let in_metadata = |field: &str| format!(r#"{{"name":"a","{field}":"{all}"}}"#);
    let status = |bytes: usize| format!(r#"{{"acceptedFramework":"{}"}}"#, long(bytes));
    let variables = |name: &str, count: usize| {
        let variable = |number: usize| format!(r#"{{"name":"{number}{name}"}}"#);
        let variables: Vec<String> = (0..count).map(variable).collect();
        let mut job = job(&spec());
        job["spec"]["roles"][0]["template"]["spec"]["containers"][0]["env"] = "HERE".into();
        let list = format!("[{}]", variables.join(","));
        review("object", &job.to_string().replace(r#""HERE""#, &list))
    };
    let text = format!("{all:?}");
    vec![
        ("a text", text.clone()),
        (
            "a request that is a text",
            format!(r#"{{"apiVersion":"v1","request":{text}}}"#),
        ),
        ("a kind that is a text", review("kind", &text)),
        ("a long kind", review("kind", &format!(r#"{{"kind":{text}}}"#))),
        ("a uid", review("uid", &text)),
        (
            "a uid of escapes",
            review("uid", &format!(r#""{}""#, escaped(1 << 20))),
        ),
        ("an object that is a text", review("object", &text)),
        ("metadata that is a text", of_object(&text, "{}")),
        (
            "a spec that is a text",
            review("object", &format!(r#"{{"metadata":{{}},"spec":{text}}}"#)),
        ),
        (
            "annotations",
            of_object(&format!(r#"{{"name":"a","annotations":{{"a":{text}}}}}"#), "{}"),
        ),
        ("a name", of_object(&in_metadata("generateName"), "{}")),
        ("a time", of_object(&in_metadata("creationTimestamp"), "{}")),
        ("a status", of_object("{}", &status(7 << 20))),
        ("a smaller status", of_object("{}", &status(3 << 19))),
        ("many errors", variables("=", 1000)),
        ("many long errors", variables(&format!("={}", long(480)), 1000)),
        (
            "many escaped errors",
            variables(&format!("={}", escaped(80)), 1000),
        ),
    ]
}

#[rstest]
#[case(Hook::Mutate)]
#[case(Hook::Validate)]
#[case(Hook::Script)]
fn strangers_take_no_more_memory_than_a_review_may(#[case] hook: Hook) {
    ask(hook, &request("CREATE", &job(&spec()), &Value::Null));
    let mut too_large = Vec::new();
    for (name, body) in strange_bodies() {
        let (growth, outcome) = peak_growth(|| {
            let reviewer = Reviewer::default().with_scripts(Scripts::Reviewed);
            drop(reviewer.access_review(body.as_bytes()));
            reviewer.review(hook, body.as_bytes())
        });
        let answer = match outcome {
            Ok((_, answer)) => answer.len(),
            Err(bad) => bad.sentence().len(),
        };
        if growth > budget::REVIEW || answer > budget::ANSWER {
            too_large.push(format!(
                "{name}: {} KiB, answer {} KiB",
                growth / 1024,
                answer / 1024
            ));
        }
    }
    assert!(too_large.is_empty(), "{too_large:#?}");
}
