use std::sync::Mutex;

use http::{Method, Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use kube::client::Body;
use serde_json::{Value, json};
use trainyard_core::view::Settings;

use super::*;
use crate::events::Senders;
use crate::index::{Kind, Source};
use crate::leader::Leadership;
use crate::slim::{JobObject, Version};

/// A server that takes every write, and counts; creations of pods beyond a quota are refused.
#[derive(Clone, Default)]
struct Server {
    writes: Arc<Mutex<Vec<(Method, String, Value)>>>,
    quota: Arc<Mutex<Option<usize>>>,
}

impl Server {
    fn answer(&self, method: Method, path: &str, mut body: Value) -> (u16, Value) {
        let mut writes = self.writes.lock().unwrap();
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
        let version = 100 + writes.len();
        writes.push((method, path.to_owned(), body.clone()));
        body["metadata"]["resourceVersion"] = json!(version.to_string());
        if body["metadata"]["uid"].is_null() {
            body["metadata"]["uid"] = json!(format!("uid-{version}"));
        }
        (200, body)
    }

    fn client(&self) -> kube::Client {
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
    fn count(&self, what: &str) -> usize {
        let writes = self.writes.lock().unwrap();
        let named = writes
            .iter()
            .map(|(method, path, _)| format!("{method} {}", path.rsplit('/').next().unwrap()));
        named.filter(|name| name == what).count()
    }

    fn total(&self) -> usize {
        self.writes.lock().unwrap().len()
    }
}

struct Operator {
    server: Server,
    reconciler: Reconciler,
    senders: Senders,
    term: CancellationToken,
}

impl Operator {
    fn new() -> Self {
        let server = Server::default();
        let index = Arc::new(Index::new(&[]));
        for kind in [Kind::Job, Kind::Pod, Kind::Service] {
            index.listing(kind, 0, Version(5));
            index.listed(kind, 0, Version(5), Instant::now());
        }
        let leadership = Leadership::always();
        let hands = Hands::new(
            server.client(),
            index.clone(),
            leadership.clone(),
            Settings::default(),
        );
        let (recorder, senders) = Recorder::start(&server.client(), hands.gate(), &leadership, "test");
        let reconciler = Reconciler {
            hands,
            index,
            recorder,
            metrics: Arc::new(Metrics::new()),
            clock: Arc::new(crate::clock::SystemClock),
        };
        Self {
            server,
            reconciler,
            senders,
            term: CancellationToken::new(),
        }
    }

    fn apply(&self, job: &Value) {
        self.reconciler
            .index
            .apply_job(JobObject::decode(&job.to_string()).unwrap(), Source::Watch);
    }

    async fn reconcile(&self) -> Verdict {
        self.reconciler
            .reconcile(&JobKey::new("ns", "a"), &self.term)
            .await
    }

    /// Reconciles until there is nothing more to do at once.
    async fn settle(&self) -> Verdict {
        for _ in 0..10 {
            let verdict = self.reconcile().await;
            if verdict.next != Next::Again {
                return verdict;
            }
        }
        panic!("it does not come to rest");
    }

    /// Ends, so that all events have been sent.
    async fn end(self) -> Server {
        drop(self.reconciler);
        self.senders.finish().await;
        self.server
    }
}

fn job(replicas: i32) -> Value {
    json!({
        "metadata": {"name": "a", "namespace": "ns", "uid": "u1", "resourceVersion": "7", "generation": 1},
        "spec": {"framework": {"name": "custom"}, "roles": [{"name": "w", "replicas": replicas,
            "template": {"spec": {"containers": [{"name": "train", "image": "i"}]}}}]},
    })
}

#[tokio::test(start_paused = true)]
async fn a_new_job_gets_its_children_and_a_status_and_then_nothing() {
    let operator = Operator::new();
    operator.apply(&job(3));
    operator.settle().await;
    let server = &operator.server;
    assert_eq!((server.count("POST pods"), server.count("POST services")), (3, 1));
    assert_eq!(server.count("PUT status"), 1, "one status for the start");
    let before = server.count("PUT status") + 4;
    operator.settle().await;
    operator.settle().await;
    assert_eq!(
        server.total() - server.count("POST events"),
        before,
        "a job at rest costs nothing"
    );
}

#[tokio::test(start_paused = true)]
async fn jobs_of_others_and_jobs_on_their_way_out_are_left_alone() {
    for change in [
        (|job: &mut Value| job["spec"]["managedBy"] = json!("example.com/other")) as fn(&mut Value),
        |job| job["metadata"]["deletionTimestamp"] = json!("2026-01-02T03:04:05Z"),
    ] {
        let operator = Operator::new();
        let mut job = job(3);
        change(&mut job);
        operator.apply(&job);
        assert_eq!(operator.settle().await, Verdict::REST);
        assert_eq!(operator.end().await.total(), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn children_that_are_refused_are_told_of_once_and_tried_seldom() {
    let operator = Operator::new();
    *operator.server.quota.lock().unwrap() = Some(1);
    operator.apply(&job(3));
    let Verdict {
        next: Next::At(again),
        ..
    } = operator.settle().await
    else {
        panic!()
    };
    let tried = operator.server.count("POST pods");
    assert_eq!(
        operator.server.count("PUT status"),
        1,
        "the rest of the job goes on"
    );
    operator.settle().await;
    assert_eq!(
        operator.server.count("POST pods"),
        tried,
        "not before the pause is over"
    );
    tokio::time::advance(again.saturating_duration_since(Instant::now())).await;
    operator.settle().await;
    assert!(operator.server.count("POST pods") > tried);
    *operator.server.quota.lock().unwrap() = None;
    tokio::time::advance(Duration::from_mins(5)).await;
    operator.settle().await;
    let server = operator.end().await;
    let writes = server.writes.lock().unwrap();
    let reasons: Vec<_> = writes
        .iter()
        .filter_map(|(_, _, body)| body["reason"].as_str())
        .collect();
    assert_eq!(
        reasons.iter().filter(|reason| **reason == "CreateFailed").count(),
        1,
        "{reasons:?}"
    );
    let created = writes
        .iter()
        .filter(|(_, path, body)| path.ends_with("/pods") && body["refused"].is_null());
    assert_eq!(created.count(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_malformed_job_is_reported_on_itself_once() {
    let operator = Operator::new();
    let mut bad = job(1);
    bad["spec"]["roles"] = json!("many");
    operator.apply(&bad);
    operator.settle().await;
    operator.settle().await;
    let mut echo = bad.clone();
    echo["metadata"]["resourceVersion"] = json!("8");
    operator.apply(&echo);
    operator.settle().await;
    let server = operator.end().await;
    assert_eq!(
        (
            server.count("PATCH status"),
            server.count("POST events"),
            server.total()
        ),
        (1, 1, 2)
    );
    let (_, _, patch) = server.writes.lock().unwrap()[0].clone();
    assert_eq!(patch["metadata"]["resourceVersion"], "7");
    let condition = &patch["status"]["conditions"][0];
    assert_eq!(
        (&condition["type"], &condition["status"]),
        (&json!("Accepted"), &json!("False"))
    );
    assert!(
        condition["message"]
            .as_str()
            .unwrap()
            .starts_with("spec.roles: invalid type")
    );
    // A new process finds it reported.
    let operator = Operator::new();
    bad["status"] = patch["status"].clone();
    operator.apply(&bad);
    operator.settle().await;
    assert_eq!(operator.end().await.total(), 0);
}

#[test]
fn refusals_that_differ_in_a_name_only_are_the_same() {
    let words = |name: &str, what: &str| fingerprint(&format!("pods \"{name}\" is forbidden: {what}"));
    assert_eq!(words("a", "quota"), words("b", "quota"));
    assert_ne!(words("a", "quota"), words("a", "webhook"));
}

#[test]
fn a_changed_spec_ends_the_pause() {
    let now = Instant::now();
    let hold = Hold {
        until: now + SOON,
        failures: 1,
        generation: Some(1),
    };
    assert_eq!(held(Some(hold), Some(1), now), Some(hold.until));
    assert_eq!(held(Some(hold), Some(2), now), None);
    assert_eq!(held(Some(hold), Some(1), hold.until), None);
}
