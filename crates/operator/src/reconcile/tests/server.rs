//! A server that is not there.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use http::{Method, Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use kube::client::Body;
use serde_json::{Value, json};

/// The version of the last write, of whomever.
static VERSION: AtomicUsize = AtomicUsize::new(1000);

/// A server that takes every write, and counts; creations of pods beyond a quota are refused.
#[derive(Clone, Default)]
pub(super) struct Server {
    pub(super) writes: Arc<Mutex<Vec<(Method, String, Value)>>>,
    pub(super) quota: Arc<Mutex<Option<usize>>>,
    /// The name of an object that is somebody else's.
    pub(super) taken: Arc<Mutex<Option<String>>>,
    /// What a webhook denies.
    pub(super) denied: Arc<Mutex<Option<Method>>>,
    /// The name of a pod that a former job left and that is on its way out.
    pub(super) former: Arc<Mutex<Option<String>>>,
    /// What is found by its name.
    pub(super) found: Arc<Mutex<Option<Value>>>,
    /// The name of an object that exists, and the UID of the job that owns it.
    owned: Arc<Mutex<Option<(String, String)>>>,
    /// How often something was read.
    reads: Arc<AtomicUsize>,
    /// What happens while the next status is written.
    pub(super) meanwhile: Arc<Mutex<Option<Happening>>>,
    /// What happens while the next pod is created.
    pub(super) while_creating: Arc<Mutex<Option<Happening>>>,
    /// What happens while the job is deleted the next time.
    pub(super) while_deleting: Arc<Mutex<Option<Happening>>>,
    /// The version that the job has by now, where that is not any version.
    pub(super) version: Arc<Mutex<Option<String>>>,
}

/// A pod of a former job of the same name.
pub(super) fn left_by_a_former_job(name: &str) -> Value {
    json!({"metadata": {
        "name": name, "namespace": "ns", "uid": "old", "resourceVersion": "6",
        "deletionTimestamp": "2026-01-02T03:04:05Z",
        "labels": {"app.kubernetes.io/managed-by": "trainyard", "trainyard.dev/job": "a"},
        "ownerReferences": [{"apiVersion": "trainyard.dev/v1alpha1", "kind": "TrainingJob", "name": "a", "uid": "u0",
            "controller": true}],
    }})
}

/// The UID of the last object of a name: each has one of its own.
fn uid_of(writes: &[(Method, String, Value)], name: &str) -> String {
    let created = |(method, _, body): &&(Method, String, Value)| {
        *method == Method::POST && body["metadata"]["name"] == name
    };
    match writes.iter().filter(created).count() {
        0 | 1 => format!("uid-of-{name}"),
        number => format!("uid-of-{name}-{number}"),
    }
}

/// What was made at this path, of the kinds that are not watched.
fn made(writes: &[(Method, String, Value)], path: &str) -> Option<Value> {
    let kinds = ["/secrets", "/serviceaccounts", "/roles", "/rolebindings"];
    let made = |(_, collection, body): &&(Method, String, Value)| {
        let name = body["metadata"]["name"].as_str().unwrap_or_default();
        kinds.iter().any(|kind| collection.ends_with(kind)) && path == format!("{collection}/{name}")
    };
    let mut object = writes.iter().rfind(made)?.2.clone();
    object["metadata"]["uid"] = json!("uid-of-a-child");
    object["metadata"]["resourceVersion"] = json!("7");
    Some(object)
}

/// Refuses to create what is there already.
fn already_exists() -> (u16, Value) {
    (
        409,
        json!({"kind": "Status", "code": 409, "reason": "AlreadyExists"}),
    )
}

pub(super) type Happening = Box<dyn FnOnce() + Send>;

/// The version of a change that comes after all that were made so far.
pub(super) fn next_version() -> Value {
    json!(VERSION.fetch_add(1, Ordering::Relaxed).to_string())
}

impl Server {
    /// Lets happen what was to happen during a request.
    fn let_happen(&self, method: &Method, path: &str) {
        let happening = match *method {
            Method::PUT | Method::PATCH if path.ends_with("/status") => &self.meanwhile,
            Method::POST if path.ends_with("/pods") => &self.while_creating,
            Method::DELETE if path.contains("/trainingjobs/") => &self.while_deleting,
            _ => return,
        };
        let happens = happening.lock().unwrap().take();
        if let Some(happens) = happens {
            happens();
        }
    }

    /// The answer to a deletion of the job that names another version than it has.
    fn conflict(&self, method: &Method, path: &str, options: &Value) -> Option<(u16, Value)> {
        let named = options["preconditions"]["resourceVersion"].as_str()?;
        let version = self.version.lock().unwrap().clone()?;
        let conflicts = *method == Method::DELETE && path.contains("/trainingjobs/") && named != version;
        let message = format!(
            "Precondition failed: ResourceVersion in precondition: {named}, ResourceVersion in object meta: {version}"
        );
        let answer = json!({"kind": "Status", "code": 409, "reason": "Conflict", "message": message});
        conflicts.then_some((409, answer))
    }

    fn answer(&self, method: Method, path: &str, mut body: Value) -> (u16, Value) {
        self.let_happen(&method, path);
        if method == Method::GET {
            self.reads.fetch_add(1, Ordering::Relaxed);
        }
        let mut writes = self.writes.lock().unwrap();
        if self.denied.lock().unwrap().as_ref() == Some(&method) {
            writes.push((method, path.to_owned(), body));
            let message = "admission webhook \"w\" denied the request: not now";
            return (
                403,
                json!({"kind": "Status", "code": 403, "reason": "Forbidden", "message": message}),
            );
        }
        if let Some(conflict) = self.conflict(&method, path, &body) {
            writes.push((method, path.to_owned(), body));
            return conflict;
        }
        if let Some(name) = &*self.former.lock().unwrap() {
            if method == Method::GET && path.ends_with(name.as_str()) {
                return (200, left_by_a_former_job(name));
            }
            if method == Method::POST && body["metadata"]["name"] == **name {
                writes.push((method, path.to_owned(), json!({"refused": true})));
                return already_exists();
            }
        }
        if let Some(found) = &*self.found.lock().unwrap() {
            if method == Method::GET {
                return (200, found.clone());
            }
            if method == Method::PATCH {
                writes.push((method, path.to_owned(), body.clone()));
                let mut patched = found.clone();
                for map in ["labels", "annotations"] {
                    for (key, value) in body["metadata"][map].as_object().into_iter().flatten() {
                        patched["metadata"][map][key] = value.clone();
                    }
                }
                let version = VERSION.fetch_add(1, Ordering::Relaxed);
                patched["metadata"]["resourceVersion"] = json!(version.to_string());
                return (200, patched);
            }
        }
        if let Some(name) = &*self.taken.lock().unwrap() {
            if method == Method::GET {
                let found = path.ends_with(name);
                let other = json!({"metadata": {"name": name, "namespace": "ns", "uid": "other", "resourceVersion": "1"}});
                let nothing = json!({"kind": "Status", "code": 404, "reason": "NotFound"});
                return if found { (200, other) } else { (404, nothing) };
            }
            if method == Method::POST && body["metadata"]["name"] == **name {
                return already_exists();
            }
        }
        if let Some((name, owner)) = &*self.owned.lock().unwrap() {
            if method == Method::GET && path.ends_with(name.as_str()) {
                let mut object = left_by_a_former_job(name);
                object["metadata"]["deletionTimestamp"] = Value::Null;
                object["metadata"]["ownerReferences"][0]["uid"] = json!(owner);
                return (200, object);
            }
            if method == Method::POST && body["metadata"]["name"] == **name {
                writes.push((method, path.to_owned(), json!({"refused": true})));
                return already_exists();
            }
        }
        if method == Method::GET
            && let Some(object) = made(&writes, path)
        {
            return (200, object);
        }
        let of_pods = |path: &str| path.ends_with("/pods");
        if let Some(quota) = *self.quota.lock().unwrap()
            && of_pods(path)
            && writes
                .iter()
                .filter(|(_, path, body)| of_pods(path) && body["refused"].is_null())
                .count()
                >= quota
        {
            let message = format!("pods {} is forbidden: exceeded quota", body["metadata"]["name"]);
            writes.push((method, path.to_owned(), json!({"refused": true})));
            return (
                403,
                json!({"kind": "Status", "code": 403, "reason": "Forbidden", "message": message}),
            );
        }
        let version = VERSION.fetch_add(1, Ordering::Relaxed);
        writes.push((method, path.to_owned(), body.clone()));
        body["metadata"]["resourceVersion"] = json!(version.to_string());
        if body["metadata"]["uid"].is_null() {
            let name = body["metadata"]["name"].as_str().unwrap_or_default();
            body["metadata"]["uid"] = json!(uid_of(&writes, name));
        }
        (200, body)
    }

    pub(super) fn client(&self) -> kube::Client {
        let server = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let server = server.clone();
            async move {
                let (parts, body) = request.into_parts();
                let body = body.collect().await.unwrap().to_bytes();
                let body = serde_json::from_slice(&body).unwrap_or_default();
                let (code, body) = server.answer(parts.method, parts.uri.path(), body);
                let body = Full::new(Bytes::from(body.to_string()));
                Ok::<_, std::io::Error>(Response::builder().status(code).body(body).unwrap())
            }
        });
        kube::Client::new(service, "default")
    }

    /// How often something was written: `POST pods`, `PUT status`.
    pub(super) fn count(&self, what: &str) -> usize {
        let writes = self.writes.lock().unwrap();
        let named = writes
            .iter()
            .map(|(method, path, _)| format!("{method} {}", path.rsplit('/').next().unwrap()));
        named.filter(|name| name == what).count()
    }

    /// The pod of an index as it was created, in a phase.
    pub(super) fn pod(&self, index: usize, phase: &str) -> Value {
        self.pod_of(&format!("a-w-{index}"), phase)
    }

    /// The pod of a name as it was created, in a phase.
    pub(super) fn pod_of(&self, name: &str, phase: &str) -> Value {
        let writes = self.writes.lock().unwrap();
        let created = |(_, path, body): &&(Method, String, Value)| {
            path.ends_with("/pods") && body["metadata"]["name"] == name
        };
        let mut pod = writes.iter().rfind(created).unwrap().2.clone();
        pod["metadata"]["uid"] = json!(uid_of(&writes, name));
        let version = VERSION.fetch_add(1, Ordering::Relaxed);
        pod["metadata"]["resourceVersion"] = json!(version.to_string());
        pod["status"] = json!({"phase": phase});
        pod
    }

    /// The last status that was written.
    pub(super) fn status(&self) -> Value {
        self.last_status().unwrap()
    }

    /// The same, if one was written.
    pub(super) fn last_status(&self) -> Option<Value> {
        let writes = self.writes.lock().unwrap();
        let written = |(_, path, _): &&(Method, String, Value)| path.ends_with("/status");
        Some(writes.iter().rfind(written)?.2["status"].clone())
    }

    /// The job as it was last written.
    pub(super) fn job(&self) -> Value {
        let writes = self.writes.lock().unwrap();
        let written = |(_, path, _): &&(Method, String, Value)| path.ends_with("/status");
        let mut job = writes.iter().rfind(written).unwrap().2.clone();
        let version = VERSION.fetch_add(1, Ordering::Relaxed);
        job["metadata"]["resourceVersion"] = json!(version.to_string());
        job
    }

    /// What was created in a collection.
    pub(super) fn created(&self, collection: &str) -> Vec<Value> {
        let writes = self.writes.lock().unwrap();
        let created = writes
            .iter()
            .filter(|(method, path, _)| *method == Method::POST && path.ends_with(collection));
        created
            .map(|(_, _, body)| {
                let mut object = body.clone();
                let version = VERSION.fetch_add(1, Ordering::Relaxed);
                object["metadata"]["resourceVersion"] = json!(version.to_string());
                object["metadata"]["uid"] = json!(format!("uid-of-{collection}-{version}"));
                object
            })
            .collect()
    }

    /// The Secret of the job exists.
    pub(super) fn has_a_secret(&self) {
        *self.owned.lock().unwrap() = Some(("a-mpi".to_owned(), "u1".to_owned()));
    }

    /// How often something was read.
    pub(super) fn reads(&self) -> usize {
        self.reads.load(Ordering::Relaxed)
    }

    pub(super) fn deletions(&self) -> usize {
        let writes = self.writes.lock().unwrap();
        writes
            .iter()
            .filter(|(method, ..)| *method == Method::DELETE)
            .count()
    }

    pub(super) fn total(&self) -> usize {
        self.writes.lock().unwrap().len()
    }
}
