//! The manager against a server that keeps objects: what it writes, and what it leaves alone.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::{Method, Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use jiff::Timestamp;
use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use k8s_openapi::api::core::v1::Secret;
use kube::client::Body;
use serde_json::{Value, json};

use super::*;
use crate::leader::Leadership;

/// Objects by path, with resource versions, and the writes that came.
#[derive(Default)]
struct Server {
    objects: Mutex<BTreeMap<String, Value>>,
    writes: Mutex<Vec<String>>,
}

const SECRETS: &str = "/api/v1/namespaces/system/secrets";
const MUTATING: &str = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/trainyard";
const VALIDATING: &str = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/trainyard";

impl Server {
    fn answer(&self, method: &Method, path: &str, body: &[u8]) -> Result<Value, u16> {
        let mut objects = self.objects.lock().unwrap();
        let sent: Value = serde_json::from_slice(body).unwrap_or_default();
        let version = |object: &Value| object["metadata"]["resourceVersion"].clone();
        let (path, mut object) = match *method {
            Method::POST => {
                let path = format!("{path}/{}", sent["metadata"]["name"].as_str().unwrap());
                if objects.contains_key(&path) {
                    return Err(409);
                }
                (path, sent)
            }
            Method::PUT => {
                let held = objects.get(path).ok_or(404_u16)?;
                if version(held) != version(&sent) {
                    return Err(409);
                }
                (path.to_owned(), sent)
            }
            Method::PATCH => {
                let mut held = objects.get(path).ok_or(404_u16)?.clone();
                let change: json_patch::Patch = serde_json::from_value(sent).unwrap();
                json_patch::patch(&mut held, &change).map_err(|_| 422_u16)?;
                (path.to_owned(), held)
            }
            _ => return Err(405),
        };
        let mut writes = self.writes.lock().unwrap();
        writes.push(format!("{method} {}", path.rsplit('/').nth(1).unwrap()));
        object["metadata"]["resourceVersion"] = writes.len().to_string().into();
        objects.insert(path, object.clone());
        Ok(object)
    }

    fn client(self: &Arc<Self>) -> kube::Client {
        let server = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let server = server.clone();
            async move {
                let (parts, body) = request.into_parts();
                let body = body.collect().await.unwrap().to_bytes();
                let (code, body) = match server.answer(&parts.method, parts.uri.path(), &body) {
                    Ok(object) => (200, object),
                    Err(code) => (code, json!({"kind": "Status", "status": "Failure", "code": code})),
                };
                let body = Full::new(Bytes::from(body.to_string()));
                Ok::<_, Infallible>(Response::builder().status(code).body(body).unwrap())
            }
        });
        kube::Client::new(service, "default")
    }

    fn get<K: serde::de::DeserializeOwned>(&self, path: &str) -> Option<K> {
        self.objects
            .lock()
            .unwrap()
            .get(path)
            .map(|object| serde_json::from_value(object.clone()).unwrap())
    }

    fn put(&self, path: &str, object: Value) {
        self.objects.lock().unwrap().insert(path.to_owned(), object);
    }

    fn take_writes(&self) -> Vec<String> {
        std::mem::take(&mut self.writes.lock().unwrap())
    }

    fn data(&self) -> SecretData {
        SecretData::of(
            &self
                .get::<Secret>(&format!("{SECRETS}/trainyard-webhook-tls"))
                .unwrap(),
        )
    }
}

struct Replica {
    manager: Manager,
    serving: Arc<ServingCert>,
}

fn replica(server: &Arc<Server>, leadership: Leadership) -> Replica {
    let serving = Arc::new(ServingCert::new());
    let config = CertConfig::new("system", "hooks");
    Replica {
        manager: Manager::new(server.client(), config, leadership, serving.clone()),
        serving,
    }
}

impl Replica {
    /// What the watches bring.
    fn see(&mut self, server: &Server) {
        self.manager.looked = true;
        self.manager.secret = server.get(&format!("{SECRETS}/trainyard-webhook-tls"));
        self.manager.mutating = server.get(MUTATING);
        self.manager.validating = server.get(VALIDATING);
    }
}

fn never() -> Leadership {
    crate::leader::Elector::new(
        Arc::new(Server::default()).client(),
        crate::leader::LeaderConfig::new("system", "trainyard", "me"),
    )
    .unwrap()
    .leadership()
}

fn configuration() -> Value {
    let webhook = |name: &str| {
        json!({
            "name": name, "sideEffects": "None", "admissionReviewVersions": ["v1"], "unknownField": 1,
            "clientConfig": {"service": {"name": "hooks", "namespace": "system", "path": "/mutate"}}
        })
    };
    json!({"metadata": {"name": "trainyard"}, "webhooks": [webhook("a.trainyard.dev"), webhook("b.trainyard.dev")]})
}

fn now() -> Timestamp {
    "2026-01-01T12:00:00Z".parse().unwrap()
}

#[tokio::test]
async fn the_leader_makes_certificates_and_has_them_trusted_and_is_then_quiet() {
    let server = Arc::new(Server::default());
    server.put(MUTATING, configuration());
    server.put(VALIDATING, configuration());
    let mut one = replica(&server, Leadership::always());
    assert_eq!(
        one.manager.sync(now()).await.unwrap(),
        None,
        "nothing before the Secret was looked for"
    );
    one.see(&server);
    let until = one.manager.sync(now()).await.unwrap().unwrap();
    assert!(until > now() + Duration::from_hours(50 * 24));
    assert!(one.serving.is_loaded());
    assert_eq!(
        server.take_writes(),
        [
            "POST secrets",
            "PATCH mutatingwebhookconfigurations",
            "PATCH validatingwebhookconfigurations"
        ]
    );
    let trusted: MutatingWebhookConfiguration = server.get(MUTATING).unwrap();
    for webhook in trusted.webhooks.unwrap() {
        assert_eq!(
            webhook.client_config.ca_bundle.unwrap().0,
            server.data().ca_crt.into_bytes()
        );
    }
    assert_eq!(
        server.get::<Value>(MUTATING).unwrap()["webhooks"][1]["unknownField"],
        1,
        "the rest is left alone"
    );

    one.see(&server);
    one.manager.sync(now()).await.unwrap();
    assert_eq!(server.take_writes(), [""; 0]);
}

#[tokio::test]
async fn an_installation_that_is_applied_anew_is_trusted_again() {
    let server = Arc::new(Server::default());
    let mut one = replica(&server, Leadership::always());
    one.see(&server);
    one.manager.sync(now()).await.unwrap();
    assert_eq!(
        server.take_writes(),
        ["POST secrets"],
        "no configuration is no error"
    );
    server.put(VALIDATING, configuration());
    one.see(&server);
    one.manager.sync(now()).await.unwrap();
    assert_eq!(server.take_writes(), ["PATCH validatingwebhookconfigurations"]);
    // The webhooks were reordered since they were seen: nothing is written to the wrong one.
    server.put(VALIDATING, configuration());
    one.see(&server);
    let mut other = configuration();
    other["webhooks"].as_array_mut().unwrap().reverse();
    server.put(VALIDATING, other);
    one.manager.sync(now()).await.unwrap_err();
    one.see(&server);
    one.manager.sync(now()).await.unwrap();
}

#[tokio::test]
async fn who_does_not_lead_writes_nothing_and_serves_what_there_is() {
    let server = Arc::new(Server::default());
    server.put(MUTATING, configuration());
    let mut two = replica(&server, never());
    two.see(&server);
    two.manager.sync(now()).await.unwrap();
    assert!(!two.serving.is_loaded());
    assert_eq!(server.take_writes(), [""; 0]);

    let mut one = replica(&server, Leadership::always());
    one.see(&server);
    one.manager.sync(now()).await.unwrap();
    server.take_writes();
    two.see(&server);
    two.manager.sync(now()).await.unwrap();
    assert!(two.serving.is_loaded());
    assert_eq!(server.take_writes(), [""; 0]);
}

#[tokio::test]
async fn two_that_race_end_with_one_authority() {
    let server = Arc::new(Server::default());
    let (mut one, mut two) = (
        replica(&server, Leadership::always()),
        replica(&server, Leadership::always()),
    );
    one.see(&server);
    two.see(&server);
    one.manager.sync(now()).await.unwrap();
    let first = server.data();
    assert_eq!(
        two.manager.sync(now()).await.unwrap(),
        None,
        "the other was faster"
    );
    assert_eq!(server.data(), first);
    two.see(&server);
    two.manager.sync(now()).await.unwrap();
    assert_eq!(server.data(), first);
    assert!(two.serving.is_loaded());

    // The same for a renewal: whoever is late has an old resource version.
    let late = now() + Duration::from_hours(80 * 24);
    one.see(&server);
    two.see(&server);
    one.manager.sync(late).await.unwrap();
    let renewed = server.data();
    assert_ne!(renewed.tls_crt, first.tls_crt);
    assert_eq!(two.manager.sync(late).await.unwrap(), None);
    assert_eq!(server.data(), renewed);
}

#[tokio::test]
async fn a_secret_that_was_emptied_is_filled_and_one_that_was_deleted_is_made() {
    let server = Arc::new(Server::default());
    let path = format!("{SECRETS}/trainyard-webhook-tls");
    server.put(
        &path,
        json!({"metadata": {"name": "trainyard-webhook-tls", "resourceVersion": "9"}}),
    );
    let mut one = replica(&server, Leadership::always());
    one.see(&server);
    one.manager.sync(now()).await.unwrap();
    assert_eq!(server.take_writes(), ["PUT secrets"]);
    server.objects.lock().unwrap().clear();
    one.see(&server);
    one.manager.sync(now()).await.unwrap();
    assert_eq!(server.take_writes(), ["POST secrets"]);
}
