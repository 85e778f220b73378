//! Kinds that somebody described, and our own above all.

#![allow(
    clippy::needless_pass_by_value,
    reason = "definitions are written where they are used"
)]

use std::sync::Arc;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt};
use rstest::rstest;
use serde_json::{Value, json};
use trainyard_api::TrainingJob;
use trainyard_local::api::{Admission, FieldError, Operation, Rejection, Review};

use crate::support::{create, from, refused, send, send_as, server, server_with_jobs};

const THINGS: &str = "/apis/example.com/v1/namespaces/default/things";
const JOBS: &str = "/apis/trainyard.dev/v1alpha1/namespaces/default/trainingjobs";

fn definition(schema: Value) -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "things.example.com"},
        "spec": {"group": "example.com", "scope": "Namespaced",
            "names": {"plural": "things", "kind": "Thing", "shortNames": ["th"]},
            "versions": [
                {"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema},
                    "subresources": {"status": {}, "scale": {"specReplicasPath": ".spec.replicas",
                        "statusReplicasPath": ".status.replicas", "labelSelectorPath": ".status.selector"}}},
                {"name": "v2", "served": true, "storage": false, "schema": {"openAPIV3Schema":
                    {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}},
            ]},
    })
}

fn schema() -> Value {
    json!({"type": "object", "properties": {
        "spec": {"type": "object", "required": ["name"], "properties": {
            "name": {"type": "string", "pattern": "^[a-z]+$", "maxLength": 5},
            "replicas": {"type": "integer", "minimum": 0, "maximum": 9, "default": 1},
            "mode": {"type": "string", "enum": ["A", "B"]},
            "port": {"x-kubernetes-int-or-string": true},
            "parts": {"type": "array", "maxItems": 2, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["id"],
                "items": {"type": "object", "required": ["id"], "properties": {"id": {"type": "string"}, "size": {"type": "number"}}}},
        }, "x-kubernetes-validations": [{"rule": "self.name == oldSelf.name", "message": "name is immutable"}]},
        "status": {"type": "object", "properties": {"replicas": {"type": "integer"}, "selector": {"type": "string"}}},
    }})
}

async fn with_things() -> Client {
    let client = server().client("default");
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    let made = create(&definitions, definition(schema())).await;
    let conditions = made.status.unwrap().conditions.unwrap();
    assert!(
        conditions
            .iter()
            .any(|condition| condition.type_ == "Established" && condition.status == "True")
    );
    client
}

fn thing(name: &str, spec: Value) -> Value {
    json!({"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": name}, "spec": spec})
}

#[rstest]
#[case(json!({"name": "a"}), &[])]
#[case(json!({"name": "a", "port": 1, "parts": [{"id": "x", "size": 1.5}, {"id": "y"}]}), &[])]
#[case(json!({"name": "a", "port": "http"}), &[])]
#[case(json!({}), &[("spec.name", "FieldValueRequired", "Required value")])]
#[case(json!({"name": 1}), &[("spec.name", "FieldValueTypeInvalid",
    "Invalid value: \"integer\": spec.name in body must be of type string: \"integer\"")])]
#[case(json!({"name": "A"}), &[("spec.name", "FieldValueInvalid",
    "Invalid value: \"A\": spec.name in body should match '^[a-z]+$'")])]
#[case(json!({"name": "abcdef"}), &[("spec.name", "FieldValueTooLong", "Too long: may not be more than 5 bytes")])]
#[case(json!({"name": "a", "replicas": -1, "mode": "C"}), &[
    ("spec.mode", "FieldValueNotSupported", "Unsupported value: \"C\": supported values: \"A\", \"B\""),
    ("spec.replicas", "FieldValueInvalid", "Invalid value: -1: spec.replicas in body should be greater than or equal to 0"),
])]
#[case(json!({"name": "a", "port": 1.5}), &[("spec.port", "FieldValueTypeInvalid",
    "Invalid value: \"number\": spec.port in body must be of type integer,string: \"number\"")])]
#[case(json!({"name": "a", "parts": [{"id": "x"}, {"id": "x"}]}), &[("spec.parts[1]", "FieldValueDuplicate",
    "Duplicate value: {\"id\":\"x\"}")])]
#[case(json!({"name": "a", "parts": [{"id": "x"}, {"id": "y"}, {"id": "z"}]}), &[("spec.parts", "FieldValueTooMany",
    "Too many: 3: must have at most 2 items")])]
#[tokio::test]
async fn objects_are_compared_with_their_schema(#[case] spec: Value, #[case] wrong: &[(&str, &str, &str)]) {
    let client = with_things().await;
    let (code, body) = send(&client, "POST", THINGS, thing("t", spec)).await;
    let causes = body["details"]["causes"].as_array().cloned().unwrap_or_default();
    let found: Vec<(&str, &str, &str)> = causes
        .iter()
        .map(|cause| {
            (
                cause["field"].as_str().unwrap(),
                cause["reason"].as_str().unwrap(),
                cause["message"].as_str().unwrap(),
            )
        })
        .collect();
    // Where the shape is wrong, the server also says that it did not ask the expressions.
    let found: Vec<_> = found
        .into_iter()
        .filter(|(field, ..)| *field != "<nil>")
        .collect();
    assert_eq!(found, wrong);
    assert_eq!(code, if wrong.is_empty() { 201 } else { 422 });
}

#[tokio::test]
async fn a_described_kind_behaves_as_any_other() {
    let client = with_things().await;
    let mut sent = thing("t", json!({"name": "a", "unknown": 1}));
    sent["status"] = json!({"replicas": 7});
    let (_, made) = send(&client, "POST", THINGS, sent).await;
    assert_eq!(
        made["spec"],
        json!({"name": "a", "replicas": 1}),
        "pruned and filled in"
    );
    assert_eq!(
        (made.get("status"), &made["metadata"]["generation"]),
        (None, &json!(1))
    );

    let path = format!("{THINGS}/t");
    let (_, labelled) = send(
        &client,
        "PATCH",
        &path,
        json!({"metadata": {"labels": {"a": "b"}}, "status": {"replicas": 3}}),
    )
    .await;
    assert_eq!(
        (labelled.get("status"), &labelled["metadata"]["generation"]),
        (None, &json!(1))
    );
    let (_, scaled) = send(&client, "PATCH", &path, json!({"spec": {"replicas": 2}})).await;
    assert_eq!(scaled["metadata"]["generation"], 2);
    let (code, body) = send(&client, "PATCH", &path, json!({"spec": {"name": "b"}})).await;
    assert_eq!(
        (code, &body["details"]["causes"][0]["message"]),
        (422, &json!("Invalid value: name is immutable"))
    );

    let status = json!({"metadata": {"labels": {"x": "y"}}, "spec": {"replicas": 5}, "status": {"replicas": 2, "selector": "a=b"}});
    let (code, written) = send(&client, "PATCH", &format!("{path}/status"), status).await;
    assert_eq!(
        (code, &written["status"]["replicas"], &written["spec"]["replicas"]),
        (200, &json!(2), &json!(2))
    );
    assert_eq!(
        (&written["metadata"]["labels"], &written["metadata"]["generation"]),
        (&json!({"a": "b"}), &json!(2))
    );
    let (code, _) = send(
        &client,
        "PATCH",
        &format!("{path}/status"),
        json!({"status": {"replicas": "many"}}),
    )
    .await;
    assert_eq!(code, 422);
    let mut blind = written.clone();
    blind["metadata"]
        .as_object_mut()
        .unwrap()
        .remove("resourceVersion");
    assert_eq!(send(&client, "PUT", &path, blind).await.0, 422);

    let (_, other) = send(
        &client,
        "GET",
        "/apis/example.com/v2/namespaces/default/things/t",
        Value::Null,
    )
    .await;
    assert_eq!(
        (&other["apiVersion"], &other["spec"]["replicas"]),
        (&json!("example.com/v2"), &json!(2))
    );
    let (code, _) = send_as(
        &client,
        "POST",
        &format!("{THINGS}?fieldValidation=Strict"),
        "application/json",
        thing("s", json!({"name": "a", "unknown": 1})),
    )
    .await;
    assert_eq!(code, 400);
}

#[tokio::test]
async fn the_size_of_an_object_can_be_read_and_written() {
    let client = with_things().await;
    let path = format!("{THINGS}/t");
    send(
        &client,
        "POST",
        THINGS,
        thing("t", json!({"name": "a", "replicas": 2})),
    )
    .await;
    let status = json!({"status": {"replicas": 2, "selector": "a=b"}});
    send(&client, "PATCH", &format!("{path}/status"), status).await;
    let (_, scale) = send(&client, "GET", &format!("{path}/scale"), Value::Null).await;
    assert_eq!(
        (&scale["kind"], &scale["spec"], &scale["status"]),
        (
            &json!("Scale"),
            &json!({"replicas": 2}),
            &json!({"replicas": 2, "selector": "a=b"})
        )
    );
    let (code, scale) = send(
        &client,
        "PATCH",
        &format!("{path}/scale"),
        json!({"spec": {"replicas": 4}}),
    )
    .await;
    assert_eq!((code, &scale["spec"]["replicas"]), (200, &json!(4)));
    let (code, _) = send(
        &client,
        "PUT",
        &format!("{path}/scale"),
        json!({"spec": {"replicas": 40}}),
    )
    .await;
    assert_eq!(code, 422, "the schema holds here too");
}

#[tokio::test]
async fn a_kind_goes_with_its_definition() {
    let client = with_things().await;
    let mut sent = thing("t", json!({"name": "a"}));
    sent["metadata"]["finalizers"] = json!(["x.io/y"]);
    send(&client, "POST", THINGS, sent).await;
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    let mut again = definitions.get("things.example.com").await.unwrap();
    again.metadata.finalizers = None;
    definitions
        .replace("things.example.com", &PostParams::default(), &again)
        .await
        .unwrap();
    definitions
        .delete("things.example.com", &DeleteParams::default())
        .await
        .unwrap();
    assert!(
        definitions
            .get("things.example.com")
            .await
            .unwrap()
            .metadata
            .deletion_timestamp
            .is_some()
    );
    let (code, _) = send(
        &client,
        "PATCH",
        &format!("{THINGS}/t"),
        json!({"metadata": {"finalizers": null}}),
    )
    .await;
    assert_eq!(code, 200);
    assert_eq!(refused(definitions.get("things.example.com").await).code, 404);
    assert_eq!(send(&client, "GET", THINGS, Value::Null).await.0, 404);
    create(&definitions, definition(schema())).await;
    assert_eq!(
        send(&client, "GET", THINGS, Value::Null).await.1["items"],
        json!([])
    );
}

#[rstest]
#[case("/metadata/name", json!("other"), "metadata.name")]
#[case("/spec/scope", json!("Galaxy"), "spec.scope")]
#[case("/spec/group", json!("policy"), "spec.group")]
#[case("/spec/group", json!("coordination.k8s.io"), "metadata.annotations[api-approved.kubernetes.io]")]
#[case("/spec/versions/1/storage", json!(true), "spec.versions")]
#[case("/spec/versions/0/schema/openAPIV3Schema", json!({"type": "object", "properties": {"a": {"type": "string", "pattern": "("}}}),
    "spec.versions[0].schema.openAPIV3Schema")]
#[case("/spec/versions/0/schema/openAPIV3Schema", json!({"type": "object", "x-kubernetes-validations": [{"rule": "self."}]}),
    "spec.versions[0].schema.openAPIV3Schema")]
#[tokio::test]
async fn a_definition_that_makes_no_sense_is_refused(
    #[case] at: &str,
    #[case] value: Value,
    #[case] field: &str,
) {
    let definitions: Api<CustomResourceDefinition> = Api::all(server().client("default"));
    let mut sent = definition(schema());
    *sent.pointer_mut(at).unwrap() = value;
    let status = refused(definitions.create(&PostParams::default(), &from(sent)).await);
    assert_eq!(
        (status.code, status.details.unwrap().causes[0].field.as_str()),
        (422, field)
    );
}

fn job(spec: Value) -> Value {
    json!({"apiVersion": "trainyard.dev/v1alpha1", "kind": "TrainingJob", "metadata": {"name": "mnist"}, "spec": spec})
}

fn roles(names: &[&str]) -> Value {
    let roles = names.iter().map(|name| {
        json!({"name": name, "template": {
            "metadata": {"labels": {"a": "b"}, "nonsense": 1},
            "spec": {"containers": [{"name": "train", "image": "x", "ports": [{"containerPort": 80}],
                "env": [{"name": "A", "value": "1"}]}], "nonsense": 1},
        }})
    });
    roles.collect::<Vec<_>>().into()
}

#[tokio::test]
async fn a_whole_job_is_pruned_filled_in_and_read_back() {
    let client = server_with_jobs().await.client("default");
    let (code, made) = send(
        &client,
        "POST",
        JOBS,
        job(json!({"framework": {"name": "pytorch"}, "roles": roles(&["worker"])})),
    )
    .await;
    assert_eq!(code, 201, "{made}");
    let template = &made["spec"]["roles"][0]["template"];
    assert_eq!(template["metadata"], json!({"labels": {"a": "b"}}));
    assert_eq!(template["spec"].get("nonsense"), None);
    assert_eq!(template["spec"]["containers"][0]["ports"][0]["protocol"], "TCP");
    let jobs: Api<TrainingJob> = Api::default_namespaced(client.clone());
    assert_eq!(jobs.get("mnist").await.unwrap().spec.roles[0].name, "worker");
    let (code, _) = send(
        &client,
        "PATCH",
        &format!("{JOBS}/mnist"),
        json!({"spec": {"suspend": true}}),
    )
    .await;
    assert_eq!(code, 200);
    assert_eq!(jobs.list(&ListParams::default()).await.unwrap().items.len(), 1);
}

#[rstest]
#[case(json!({"framework": {"name": "pytorch"}, "roles": roles(&["Worker"])}), "spec.roles[0].name")]
#[case(json!({"framework": {"name": "custom"}, "roles": roles(&["a", "a"])}), "spec.roles[1]")]
#[case(json!({"framework": {"name": "custom"}}), "spec.roles")]
#[tokio::test]
async fn a_job_that_breaks_a_rule_is_refused(#[case] spec: Value, #[case] field: &str) {
    let client = server_with_jobs().await.client("default");
    let (code, body) = send(&client, "POST", JOBS, job(spec)).await;
    assert_eq!(
        (code, body["details"]["causes"][0]["field"].as_str()),
        (422, Some(field)),
        "{body}"
    );
    assert!(
        body["message"]
            .as_str()
            .unwrap()
            .starts_with("TrainingJob.trainyard.dev \"mnist\" is invalid: "),
        "{body}"
    );
}

#[tokio::test]
async fn rules_about_changes_are_asked_with_what_was() {
    let client = server_with_jobs().await.client("default");
    send(
        &client,
        "POST",
        JOBS,
        job(json!({"framework": {"name": "custom"}, "roles": roles(&["worker"])})),
    )
    .await;
    let path = format!("{JOBS}/mnist");
    for (patch, field) in [
        (
            json!({"spec": {"framework": {"name": "pytorch"}}}),
            "spec.framework.name",
        ),
        (json!({"spec": {"managedBy": "x.io/y"}}), "spec.managedBy"),
        (
            json!({"spec": {"roles": roles(&["worker", "other"])}}),
            "spec.roles",
        ),
    ] {
        let (code, body) = send(&client, "PATCH", &path, patch).await;
        assert_eq!(
            (code, body["details"]["causes"][0]["field"].as_str()),
            (422, Some(field)),
            "{body}"
        );
    }
}

/// Puts a label on every Thing and refuses those called "no"; refuses to let go of those called
/// "keep".
struct ThingAdmission;

impl Admission for ThingAdmission {
    fn admit(&self, review: Review<'_>) -> Result<(), Rejection> {
        if review.kind != "Thing" {
            return Ok(());
        }
        if review.operation == Operation::Delete {
            let kept = review.old.unwrap()["metadata"]["name"] == "keep";
            let message = "it is kept".to_owned();
            return if kept {
                Err(Rejection {
                    message,
                    causes: Vec::new(),
                })
            } else {
                Ok(())
            };
        }
        let object = review.object.unwrap();
        if object["spec"]["name"] == "no" {
            let causes = vec![FieldError::invalid("spec.name", &"no".into(), "say yes")];
            return Err(Rejection {
                message: String::new(),
                causes,
            });
        }
        object["metadata"]["labels"] = json!({"seen": "yes"});
        Ok(())
    }
}

#[tokio::test]
async fn somebody_else_may_look_first() {
    let client = server()
        .with_admission(Arc::new(ThingAdmission))
        .client("default");
    create(
        &Api::<CustomResourceDefinition>::all(client.clone()),
        definition(schema()),
    )
    .await;
    let (_, made) = send(&client, "POST", THINGS, thing("keep", json!({"name": "yes"}))).await;
    assert_eq!(made["metadata"]["labels"], json!({"seen": "yes"}));
    let (code, body) = send(&client, "POST", THINGS, thing("b", json!({"name": "no"}))).await;
    assert_eq!(
        (code, &body["details"]["causes"][0]["field"]),
        (422, &json!("spec.name"))
    );
    let (code, body) = send(&client, "DELETE", &format!("{THINGS}/keep"), Value::Null).await;
    assert_eq!(code, 403);
    assert!(body["message"].as_str().unwrap().contains("it is kept"));
}

#[tokio::test]
async fn a_patch_of_a_job_through_its_type_works() {
    let client = server_with_jobs().await.client("default");
    let jobs: Api<TrainingJob> = Api::default_namespaced(client);
    create(
        &jobs,
        job(json!({"framework": {"name": "custom"}, "roles": roles(&["worker"])})),
    )
    .await;
    let patch = Patch::Merge(json!({"metadata": {"labels": {"a": "b"}}}));
    let patched = jobs
        .patch("mnist", &PatchParams::default(), &patch)
        .await
        .unwrap();
    assert_eq!(
        (patched.labels()["a"].as_str(), patched.metadata.generation),
        ("b", Some(1))
    );
}
