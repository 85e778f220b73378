//! The check of shapes, held against the embedded API server: both must refuse the same, in words
//! of their own.

use kube::Api;
use kube::api::{ApiResource, DynamicObject, PostParams};
use serde_json::{Value, json};
use trainyard_local::api::Api as Server;
use trainyard_local::env::Environment;

use super::checker::Checker;
use super::schema::{self, Findings};

fn job() -> Value {
    json!({
        "apiVersion": "trainyard.dev/v1alpha1",
        "kind": "TrainingJob",
        "metadata": {"name": "mnist"},
        "spec": {
            "framework": {"name": "pytorch", "pytorch": {"procsPerNode": 2, "masterService": "ClusterIP"}},
            "completion": {"succeededWhen": [{"allOf": ["worker"]}]},
            "suspend": false,
            "runPolicy": {"backoffLimit": 3, "cleanPodPolicy": "All", "activeDeadlineSeconds": 600},
            "roles": [{
                "name": "worker",
                "replicas": 2,
                "restartPolicy": "OnFailure",
                "placement": {"spread": "Required"},
                "template": {
                    "metadata": {"labels": {"team": "a"}},
                    "spec": {
                        "containers": [{
                            "name": "train",
                            "image": "example/mnist",
                            "command": ["python3", "train.py"],
                            "env": [{"name": "EPOCHS", "value": "3"}],
                            "ports": [{"name": "http", "containerPort": 80}],
                            "resources": {"limits": {"cpu": 2, "memory": "1Gi"}},
                        }],
                        "volumes": [{"name": "data", "configMap": {"name": "data", "defaultMode": 420}}],
                        "terminationGracePeriodSeconds": 5,
                    },
                },
            }],
        },
    })
}

/// What may stand in the place of a value. Not null: the server takes most of them for fields that
/// are not there, and we for fields that were left empty by mistake.
fn others(value: &Value) -> Vec<Value> {
    let mut others = vec![
        json!("text"),
        json!(""),
        json!("x".repeat(300)),
        json!(0),
        json!(-1),
        json!(5_000_000_000_i64),
        json!(1.5),
        json!(true),
        json!([]),
        json!([1]),
        json!({}),
    ];
    if let Value::Array(items) = value {
        let twice = items.iter().chain(items).cloned().collect();
        let often = std::iter::repeat_n(items.first().cloned().unwrap_or_default(), 100).collect();
        others.extend([Value::Array(twice), Value::Array(often)]);
    }
    others
}

/// Every change of one value of an object: where it is, and what comes of it.
fn changes(whole: &Value, at: &str) -> Vec<(String, Value)> {
    let Some(value) = whole.pointer(at) else {
        return Vec::new();
    };
    let mut all = Vec::new();
    for other in others(value) {
        let mut changed = whole.clone();
        let what = format!("{at} = {:.40}", other.to_string());
        if let Some(place) = changed.pointer_mut(at) {
            *place = other;
        }
        all.push((what, changed));
    }
    let inner: Vec<String> = match value {
        Value::Object(object) => object.keys().cloned().collect(),
        Value::Array(items) => (0..items.len()).map(|at| at.to_string()).collect(),
        _ => Vec::new(),
    };
    for name in inner {
        let mut without = whole.clone();
        if let Some(object) = without.pointer_mut(at).and_then(Value::as_object_mut) {
            object.remove(&name);
            all.push((format!("{at} without {name}"), without));
        }
        all.extend(changes(whole, &format!("{at}/{name}")));
    }
    all
}

#[tokio::test]
async fn shapes_are_refused_as_the_api_server_refuses_them() {
    let server = Server::new(Environment::seeded(7));
    let client = server.client("default");
    let definition = trainyard_api::crd::training_job().unwrap();
    let definitions = Api::all(client.clone());
    definitions
        .create(&PostParams::default(), &definition)
        .await
        .unwrap();
    let kind = ApiResource::erase::<trainyard_api::TrainingJob>(&());
    let jobs: Api<DynamicObject> = Api::default_namespaced_with(client, &kind);
    let try_only = PostParams {
        dry_run: true,
        ..PostParams::default()
    };
    let checker = Checker::new().unwrap();
    let all = changes(&job(), "/spec");
    assert!(all.len() > 500, "{}", all.len());
    let mut differ = Vec::new();
    for (what, changed) in std::iter::once(("nothing".to_owned(), job())).chain(all) {
        let mut findings = Findings::default();
        schema::check(checker.schema(), &changed, "", &mut findings);
        let found: Vec<String> = findings
            .shape
            .iter()
            .chain(&findings.bounds)
            .map(ToString::to_string)
            .collect();
        let object: DynamicObject = serde_json::from_value(changed).unwrap();
        let answer = jobs.create(&try_only, &object).await.err();
        if found.is_empty() != answer.is_none() {
            let answer = answer.map(|error| error.to_string());
            differ.push(format!("{what}: we say {found:?}, the server {answer:?}"));
        }
    }
    assert!(
        differ.is_empty(),
        "{} differ:\n{}",
        differ.len(),
        differ.join("\n")
    );
}
