//! A server that keeps the objects which the manager writes, and tells those who watch.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures::Stream;
use http::{Method, Request, Response};
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Bytes, Frame};
use k8s_openapi::ByteString;
use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use k8s_openapi::api::core::v1::Secret;
use kube::client::Body;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::watch;

use super::SecretData;

/// Objects by path, with resource versions, the writes that came, all changes for those who watch,
/// and whether nobody may patch.
#[derive(Default)]
pub(super) struct Server {
    pub(super) objects: Mutex<BTreeMap<String, Value>>,
    writes: Mutex<Vec<String>>,
    changes: Mutex<Vec<(String, Value)>>,
    changed: watch::Sender<usize>,
    pub(super) forbids_patches: AtomicBool,
}

pub(super) const SECRETS: &str = "/api/v1/namespaces/system/secrets";
pub(super) const MUTATING: &str =
    "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/trainyard";
pub(super) const VALIDATING: &str =
    "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/trainyard";

impl Server {
    fn answer(&self, method: &Method, path: &str, body: &[u8]) -> Result<Value, u16> {
        let mut objects = self.objects.lock();
        let sent: Value = serde_json::from_slice(body).unwrap_or_default();
        let version = |object: &Value| object["metadata"]["resourceVersion"].clone();
        let (path, object) = match *method {
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
            Method::PATCH if self.forbids_patches.load(Ordering::Relaxed) => return Err(403),
            Method::PATCH => {
                let mut held = objects.get(path).ok_or(404_u16)?.clone();
                let change: json_patch::Patch = serde_json::from_value(sent).unwrap();
                json_patch::patch(&mut held, &change).map_err(|_| 422_u16)?;
                (path.to_owned(), held)
            }
            _ => return Err(405),
        };
        let mut writes = self.writes.lock();
        writes.push(format!("{method} {}", path.rsplit('/').nth(1).unwrap()));
        drop(writes);
        Ok(self.keep(&mut objects, &path, object))
    }

    pub(super) fn client(self: &Arc<Self>) -> kube::Client {
        let server = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let server = server.clone();
            async move {
                let (parts, body) = request.into_parts();
                let body = body.collect().await.unwrap().to_bytes();
                let (path, query) = (parts.uri.path(), parts.uri.query().unwrap_or_default());
                if query.contains("watch=true") {
                    let since = query
                        .split("resourceVersion=")
                        .nth(1)
                        .unwrap()
                        .split('&')
                        .next()
                        .unwrap();
                    let events = server.events(path.to_owned(), since.parse().unwrap());
                    return Ok::<_, Infallible>(Response::new(StreamBody::new(events).boxed_unsync()));
                }
                let answer = if parts.method == Method::GET {
                    Ok(server.list(path))
                } else {
                    server.answer(&parts.method, path, &body)
                };
                let (code, body) = match answer {
                    Ok(object) => (200, object),
                    Err(code) => (code, json!({"kind": "Status", "status": "Failure", "code": code})),
                };
                let body = Full::new(Bytes::from(body.to_string())).boxed_unsync();
                Ok(Response::builder().status(code).body(body).unwrap())
            }
        });
        kube::Client::new(service, "default")
    }

    fn list(&self, path: &str) -> Value {
        let objects = self.objects.lock();
        let version = self.changes.lock().len().to_string();
        let items: Vec<_> = objects
            .iter()
            .filter(|(at, _)| at.starts_with(path))
            .map(|(_, object)| object)
            .collect();
        json!({"kind": "List", "apiVersion": "v1", "metadata": {"resourceVersion": version}, "items": items})
    }

    /// The changes beneath a path after the first `since`, for ever.
    fn events(
        self: &Arc<Self>,
        path: String,
        since: usize,
    ) -> impl Stream<Item = Result<Frame<Bytes>, Infallible>> + use<> {
        let receiver = self.changed.subscribe();
        futures::stream::unfold(
            (self.clone(), path, since, receiver),
            async |(server, path, mut at, mut receiver)| {
                loop {
                    receiver.wait_for(|length| *length > at).await.unwrap();
                    let (changed, object) = server.changes.lock()[at].clone();
                    at += 1;
                    if changed.starts_with(&path) {
                        let line = format!("{}\n", json!({"type": "MODIFIED", "object": object}));
                        return Some((Ok(Frame::data(Bytes::from(line))), (server, path, at, receiver)));
                    }
                }
            },
        )
    }

    pub(super) fn get<K: serde::de::DeserializeOwned>(&self, path: &str) -> Option<K> {
        self.objects
            .lock()
            .get(path)
            .map(|object| serde_json::from_value(object.clone()).unwrap())
    }

    pub(super) fn put(&self, path: &str, object: Value) {
        self.keep(&mut self.objects.lock(), path, object);
    }

    fn keep(&self, objects: &mut BTreeMap<String, Value>, path: &str, mut object: Value) -> Value {
        let mut changes = self.changes.lock();
        object["metadata"]["resourceVersion"] = (changes.len() + 1).to_string().into();
        objects.insert(path.to_owned(), object.clone());
        changes.push((path.to_owned(), object.clone()));
        self.changed.send_replace(changes.len());
        object
    }

    /// Waits until what is held has this property.
    pub(super) async fn until(&self, holds: impl Fn(&Self) -> bool) {
        let mut changed = self.changed.subscribe();
        while !holds(self) {
            changed.changed().await.unwrap();
        }
    }

    pub(super) fn trusts(&self, path: &str, bundle: &str) -> bool {
        let configuration: Option<MutatingWebhookConfiguration> = self.get(path);
        let webhooks = configuration
            .and_then(|configuration| configuration.webhooks)
            .unwrap_or_default();
        let trusting = |held: &ByteString| held.0 == bundle.as_bytes();
        webhooks
            .iter()
            .all(|webhook| webhook.client_config.ca_bundle.as_ref().is_some_and(trusting))
    }

    pub(super) fn take_writes(&self) -> Vec<String> {
        std::mem::take(&mut self.writes.lock())
    }

    pub(super) fn data(&self) -> SecretData {
        SecretData::of(
            &self
                .get::<Secret>(&format!("{SECRETS}/trainyard-webhook-tls"))
                .unwrap(),
        )
    }
}
