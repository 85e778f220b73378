//! Who may ask for a script.

use parking_lot::Mutex;
use rstest::rstest;

use super::*;
use crate::foreign::tests::TOY;
use crate::foreign::tests::requests::TOY_REQUEST;
use crate::options::Scripts;

/// What the API server was asked.
type Asked = Arc<Mutex<Vec<Value>>>;

fn access(answer: Result<bool, &str>) -> (Access, Asked) {
    let asked = Asked::default();
    let (seen, answer) = (asked.clone(), answer.map_err(str::to_owned));
    let access: Access = Arc::new(move |review| {
        seen.lock().push(review);
        let answer = answer.clone();
        Box::pin(async { answer })
    });
    (access, asked)
}

fn spec(script: Option<&str>) -> Value {
    let mut spec = json!({"jobRef": {"name": "mnist"}, "toAdd": {"count": 1}});
    if let Some(script) = script {
        spec["script"] = script.into();
    }
    spec
}

fn asking_for(operation: &str, spec: &Value, old: &Value) -> Value {
    json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": {
            "uid": "u", "operation": operation, "name": "more", "namespace": "team",
            "kind": {"group": "trainyard.dev", "version": "v1alpha1", "kind": "ScaleOut"},
            "userInfo": {
                "username": "jane", "uid": "7", "groups": ["trainers", "system:authenticated"],
                "extra": {"scopes": ["all"]},
            },
            "object": {"metadata": {"name": "more"}, "spec": spec},
            "oldObject": if old.is_null() { Value::Null } else { json!({"metadata": {}, "spec": old}) },
        }
    })
}

/// The answer of a webhook, and what the API server was asked meanwhile.
async fn review(
    scripts: Scripts,
    hook: Hook,
    request: &Value,
    allowed: Result<bool, &str>,
) -> (Value, Vec<Value>) {
    let reviewer = Reviewer::new(vec![&TOY_REQUEST]).with_scripts(scripts);
    let (access, asked) = access(allowed);
    let (_, response) = answer(
        (&reviewer, &access),
        hook,
        Body::from(request.to_string()),
        (&Limits::new(), [127, 0, 0, 1].into()),
    )
    .await;
    let body = response.body;
    let answer: Value = serde_json::from_slice(&body).unwrap();
    assert_eq!(answer["response"]["uid"], "u");
    let asked = asked.lock().clone();
    (answer["response"].clone(), asked)
}

#[tokio::test]
async fn who_may_run_commands_in_pods_may_ask_for_a_script() {
    let request = asking_for("CREATE", &spec(Some("/a")), &Value::Null);
    let (answer, asked) = review(Scripts::Reviewed, Hook::Script, &request, Ok(true)).await;
    assert_eq!(answer, json!({"uid": "u", "allowed": true}));
    let expected = json!({
        "apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview",
        "spec": {
            "user": "jane", "uid": "7", "groups": ["trainers", "system:authenticated"], "extra": {"scopes": ["all"]},
            "resourceAttributes": {"namespace": "team", "verb": "create", "resource": "pods", "subresource": "exec"},
        },
    });
    assert_eq!(asked, [expected]);
}

#[rstest]
#[case::may_not(
    Ok(false),
    "needs the right to create pods/exec in this namespace, and you do not have it"
)]
#[case::unknown(
    Err("it is away"),
    "nobody knows whether you may create pods/exec in this namespace: it is away"
)]
#[tokio::test]
async fn nobody_else_may(#[case] allowed: Result<bool, &str>, #[case] why: &str) {
    let script = spec(Some("/a"));
    let changed = asking_for("UPDATE", &script, &spec(None));
    let replaced = asking_for("UPDATE", &script, &spec(Some("/b")));
    let created = asking_for("CREATE", &script, &Value::Null);
    let (answer, asked) = review(Scripts::Reviewed, Hook::Script, &created, allowed).await;
    assert_eq!((&answer["allowed"], asked.len()), (&json!(false), 1));
    assert_eq!(
        (&answer["status"]["code"], &answer["status"]["reason"]),
        (&json!(403), &json!("Forbidden"))
    );
    let message = answer["status"]["message"].as_str().unwrap();
    assert!(
        message.starts_with("spec.script: ") && message.contains(why),
        "{message}"
    );
    // A spec can't change anyway.
    for request in [changed, replaced] {
        let (answer, _) = review(Scripts::Reviewed, Hook::Script, &request, allowed).await;
        assert_eq!(answer["allowed"], false, "{answer}");
    }
}

/// As if the object were about to go: its script counts all the same.
#[tokio::test]
async fn a_mark_of_deletion_hides_no_script() {
    let mut request = asking_for("CREATE", &spec(Some("/a")), &Value::Null);
    request["request"]["object"]["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
    let (answer, asked) = review(Scripts::Reviewed, Hook::Script, &request, Ok(false)).await;
    assert_eq!((&answer["allowed"], asked.len()), (&json!(false), 1));
}

#[tokio::test]
async fn without_a_new_script_nobody_is_asked() {
    let script = spec(Some("/a"));
    for request in [
        asking_for("CREATE", &spec(None), &Value::Null),
        asking_for("UPDATE", &script, &script),
    ] {
        let (answer, asked) = review(Scripts::Reviewed, Hook::Script, &request, Ok(false)).await;
        assert_eq!((&answer["allowed"], asked.len()), (&json!(true), 0), "{answer}");
    }
}

#[tokio::test]
async fn where_scripts_are_off_they_are_refused_with_a_sentence() {
    let request = asking_for("CREATE", &spec(Some("/a")), &Value::Null);
    for hook in [Hook::Validate, Hook::Script] {
        let (answer, asked) = review(Scripts::Off, hook, &request, Ok(true)).await;
        assert_eq!((&answer["allowed"], asked.len()), (&json!(false), 0));
        let message = answer["status"]["message"].as_str().unwrap();
        assert!(message.contains("scripts are off in this cluster"), "{message}");
        let (answer, _) = review(Scripts::Unreviewed, hook, &request, Ok(false)).await;
        assert_eq!(answer["allowed"], true, "{answer}");
    }
}

/// The same request, of another operator's kind.
fn of_another_operator(request: &Value) -> Value {
    let mut request = request.clone();
    request["request"]["kind"] = json!({"group": "toys.example", "version": "v1", "kind": "Toy"});
    request
}

#[tokio::test]
async fn a_request_of_another_operator_is_reviewed_for_who_creates_it() {
    let script = spec(Some("/a --b"));
    let created = of_another_operator(&asking_for("CREATE", &script, &Value::Null));
    let added = of_another_operator(&asking_for("UPDATE", &script, &spec(None)));
    for request in [&created, &added] {
        let (answer, asked) = review(Scripts::Reviewed, Hook::Script, request, Ok(false)).await;
        assert_eq!(answer["allowed"], false, "{answer}");
        assert_eq!(asked[0]["spec"]["user"], "jane");
        assert_eq!(asked[0]["spec"]["resourceAttributes"]["namespace"], "team");
        let (answer, _) = review(Scripts::Reviewed, Hook::Script, request, Ok(true)).await;
        assert_eq!(answer["allowed"], true, "{answer}");
        for hook in [Hook::Validate, Hook::Script] {
            let (answer, asked) = review(Scripts::Off, hook, request, Ok(true)).await;
            assert_eq!((&answer["allowed"], asked.len()), (&json!(false), 0), "{answer}");
        }
    }
    // Its clients write an empty one for none.
    let none = of_another_operator(&asking_for("CREATE", &spec(Some("")), &Value::Null));
    for scripts in [Scripts::Reviewed, Scripts::Off] {
        let (answer, asked) = review(scripts, Hook::Script, &none, Ok(false)).await;
        assert_eq!((&answer["allowed"], asked.len()), (&json!(true), 0), "{answer}");
    }
}

/// What a job of another operator calls a script is no program of a launcher.
#[tokio::test]
async fn a_job_of_another_operator_has_no_scripts() {
    let job = of_another_operator(&asking_for("CREATE", &spec(Some("/a")), &Value::Null));
    let reviewer = Reviewer::new(vec![&TOY]).with_scripts(Scripts::Off);
    let (result, _) = reviewer.review(Hook::Script, job.to_string().as_bytes()).unwrap();
    assert_eq!(result, Review::Allowed);
    assert_eq!(reviewer.access_review(job.to_string().as_bytes()).unwrap(), None);
}
