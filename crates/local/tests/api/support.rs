//! The vocabulary of the tests of the API.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::PostParams;
use kube::core::Status;
use kube::{Api, Client, Resource};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use trainyard_local::api::Api as Server;
use trainyard_local::env::Environment;

/// A server whose random numbers are the same each time.
pub fn server() -> Server {
    Server::new(Environment::seeded(7))
}

/// A server that knows TrainingJob.
pub async fn server_with_jobs() -> Server {
    let server = server();
    let definitions: Api<CustomResourceDefinition> = Api::all(server.client("default"));
    let definition = trainyard_api::crd::training_job().expect("a definition");
    definitions
        .create(&PostParams::default(), &definition)
        .await
        .expect("the definition is accepted");
    server
}

/// Sends a request, and gives the code and the body of the answer.
pub async fn send(client: &Client, method: &str, path: &str, body: Value) -> (u16, Value) {
    let kind = if method == "PATCH" {
        "application/merge-patch+json"
    } else {
        "application/json"
    };
    send_as(client, method, path, kind, body).await
}

/// As [`send`], with a body of some type.
pub async fn send_as(client: &Client, method: &str, path: &str, kind: &str, body: Value) -> (u16, Value) {
    let body = if body.is_null() {
        Vec::new()
    } else {
        body.to_string().into_bytes()
    };
    let request = http::Request::builder()
        .method(method)
        .uri(path)
        .header("content-type", kind)
        .body(kube::client::Body::from(body))
        .expect("a request");
    let response = client.send(request).await.expect("an answer");
    let code = response.status().as_u16();
    let body = response.into_body().collect_bytes().await.expect("a body");
    (code, serde_json::from_slice(&body).unwrap_or(Value::Null))
}

/// Makes an object from JSON.
pub fn from<T: DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).expect("an object of the type")
}

/// A small pod.
pub fn pod(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"app": name}},
        "spec": {"containers": [{"name": "main", "image": "example/image:1"}]},
    })
}

/// Creates an object.
pub async fn create<K>(api: &Api<K>, value: Value) -> K
where
    K: Resource + Clone + DeserializeOwned + Serialize + std::fmt::Debug,
{
    api.create(&PostParams::default(), &from(value))
        .await
        .expect("it is created")
}

/// What a request was refused with.
pub fn refused<T: std::fmt::Debug>(result: kube::Result<T>) -> Box<Status> {
    match result.expect_err("it is refused") {
        kube::Error::Api(status) => status,
        other => panic!("it is refused with a Status: {other}"),
    }
}
