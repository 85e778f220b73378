use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

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
use crate::slim::{JobObject, SlimMeta, Version};

/// The version of the last write, of whomever.
static VERSION: AtomicUsize = AtomicUsize::new(1000);

/// A server that takes every write, and counts; creations of pods beyond a quota are refused.
#[derive(Clone, Default)]
struct Server {
    writes: Arc<Mutex<Vec<(Method, String, Value)>>>,
    quota: Arc<Mutex<Option<usize>>>,
    /// The name of an object that is somebody else's.
    taken: Arc<Mutex<Option<String>>>,
    /// What is found by its name.
    found: Arc<Mutex<Option<Value>>>,
    /// What happens while the next status is written.
    meanwhile: Arc<Mutex<Option<Happening>>>,
}

type Happening = Box<dyn FnOnce() + Send>;

impl Server {
    fn answer(&self, method: Method, path: &str, mut body: Value) -> (u16, Value) {
        if path.ends_with("/status")
            && let Some(happens) = self.meanwhile.lock().unwrap().take()
        {
            happens();
        }
        let mut writes = self.writes.lock().unwrap();
        if let Some(found) = &*self.found.lock().unwrap() {
            if method == Method::GET {
                return (200, found.clone());
            }
            if method == Method::PATCH {
                writes.push((method, path.to_owned(), body.clone()));
                let mut patched = found.clone();
                for (label, value) in body["metadata"]["labels"].as_object().unwrap() {
                    patched["metadata"]["labels"][label] = value.clone();
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
                return (
                    409,
                    json!({"kind": "Status", "code": 409, "reason": "AlreadyExists"}),
                );
            }
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
            body["metadata"]["uid"] = json!(format!("uid-of-{name}"));
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

    /// The pod of an index as it was created, in a phase.
    fn pod(&self, index: usize, phase: &str) -> Value {
        let writes = self.writes.lock().unwrap();
        let name = format!("a-w-{index}");
        let created = |(_, path, body): &&(Method, String, Value)| {
            path.ends_with("/pods") && body["metadata"]["name"] == *name
        };
        let mut pod = writes.iter().rfind(created).unwrap().2.clone();
        pod["metadata"]["uid"] = json!(format!("uid-of-{name}"));
        let version = VERSION.fetch_add(1, Ordering::Relaxed);
        pod["metadata"]["resourceVersion"] = json!(version.to_string());
        pod["status"] = json!({"phase": phase});
        pod
    }

    /// The last status that was written.
    fn status(&self) -> Value {
        let writes = self.writes.lock().unwrap();
        let written = |(_, path, _): &&(Method, String, Value)| path.ends_with("/status");
        writes.iter().rfind(written).unwrap().2["status"].clone()
    }

    fn deletions(&self) -> usize {
        let writes = self.writes.lock().unwrap();
        writes
            .iter()
            .filter(|(method, ..)| *method == Method::DELETE)
            .count()
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

    /// The watch says that the pod of an index is in a phase.
    fn pod_is(&self, index: usize, phase: &str) {
        let pod = serde_json::from_value(self.server.pod(index, phase)).unwrap();
        self.reconciler.index.apply_pod(pod, Source::Watch);
    }

    /// The watch says that the pod of an index is gone.
    fn pod_is_gone(&self, index: usize) {
        let pod: SlimMeta = serde_json::from_value(self.server.pod(index, "")).unwrap();
        self.reconciler.index.delete_child(Kind::Pod, &pod.metadata);
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
async fn a_pod_that_was_seen_to_succeed_and_is_gone_is_not_made_again() {
    let operator = Operator::new();
    let mut job = job(2);
    job["spec"]["roles"][0]["restartPolicy"] = json!("OnFailure");
    operator.apply(&job);
    operator.settle().await;
    operator.pod_is(0, "Running");
    operator.pod_is(1, "Running");
    operator.settle().await;
    let statuses = operator.server.count("PUT status");
    operator.pod_is(0, "Succeeded");
    let Verdict {
        next: Next::At(due), ..
    } = operator.settle().await
    else {
        panic!("the success is to be written");
    };
    assert_eq!(due - Instant::now(), EARLY_INTERVAL);
    operator.pod_is_gone(0);
    operator.settle().await;
    assert_eq!(
        operator.server.count("PUT status"),
        statuses,
        "not at once after the last"
    );
    tokio::time::advance(EARLY_INTERVAL).await;
    operator.settle().await;
    assert_eq!(operator.server.count("PUT status"), statuses + 1);
    assert_eq!(operator.server.status()["roles"][0]["succeededIndices"], "0");
    assert_eq!(operator.server.count("POST pods"), 2, "it has done its work");
    let Some(Known::Job(known)) = operator.reconciler.index.get(&JobKey::new("ns", "a")) else {
        panic!()
    };
    assert!(known.departed.is_empty(), "what is written need not be kept");
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_lost_its_labels_gets_them_back_and_counts_as_nothing() {
    let operator = Operator::new();
    let mut job = job(2);
    job["spec"]["roles"][0]["restartPolicy"] = json!("OnFailure");
    operator.apply(&job);
    operator.settle().await;
    operator.pod_is(0, "Running");
    operator.pod_is(1, "Running");
    operator.settle().await;
    let statuses = operator.server.count("PUT status");
    // To the watch, which selects by this label, it is gone.
    let mut hidden = operator.server.pod(0, "Running");
    operator.pod_is_gone(0);
    hidden["metadata"]["labels"] = json!({"trainyard.dev/role": "w", "trainyard.dev/index": "0"});
    *operator.server.found.lock().unwrap() = Some(hidden);
    operator.settle().await;
    assert_eq!(
        (
            operator.server.count("PATCH a-w-0"),
            operator.server.count("POST pods")
        ),
        (1, 2)
    );
    // This one its Service has lost.
    let mut lost = operator.server.pod(1, "Running");
    lost["metadata"]["labels"]["trainyard.dev/job"] = Value::Null;
    *operator.server.found.lock().unwrap() = Some(lost.clone());
    let lost = serde_json::from_value(lost).unwrap();
    operator.reconciler.index.apply_pod(lost, Source::Watch);
    operator.settle().await;
    assert_eq!(
        (
            operator.server.count("PATCH a-w-1"),
            operator.server.count("POST pods")
        ),
        (1, 2)
    );
    assert_eq!(operator.server.count("PUT status"), statuses);
    assert_eq!(operator.server.status()["restarts"], Value::Null);
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
    let role = operator.server.status()["roles"][0].clone();
    assert_eq!(role["reason"], "CreateFailed");
    let said = role["message"].as_str().unwrap().to_owned();
    assert!(
        said.starts_with("Pod \"a-w-")
            && said.contains("could not be created: pods")
            && said.contains("exceeded quota"),
        "{said}"
    );
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
    tokio::time::advance(Duration::from_mins(2)).await;
    operator.settle().await;
    assert_eq!(
        operator.server.count("PUT status"),
        1,
        "the same words are not written again"
    );
    *operator.server.quota.lock().unwrap() = None;
    tokio::time::advance(Duration::from_mins(5)).await;
    operator.settle().await;
    assert_eq!(operator.server.status()["roles"][0]["reason"], Value::Null);
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
async fn a_refusal_that_lasts_is_told_again_before_the_event_is_gone() {
    let operator = Operator::new();
    *operator.server.quota.lock().unwrap() = Some(0);
    operator.apply(&job(1));
    for _ in 0..=6 {
        operator.settle().await;
        tokio::time::advance(Duration::from_mins(10)).await;
    }
    let server = operator.end().await;
    assert_eq!(server.count("POST events"), 3, "in an hour");
}

#[tokio::test(start_paused = true)]
async fn a_taken_name_is_waited_for_without_pods_that_wait_too() {
    for (taken, siblings) in [("a", 0), ("a-w-0", 2)] {
        let operator = Operator::new();
        *operator.server.taken.lock().unwrap() = Some(taken.to_owned());
        operator.apply(&job(3));
        let Verdict {
            next: Next::At(again),
            ..
        } = operator.settle().await
        else {
            panic!()
        };
        let server = &operator.server;
        assert_eq!(server.count("POST pods"), siblings, "{taken}");
        assert_eq!(server.deletions(), siblings);
        assert_eq!(server.status()["phase"], "Pending");
        *server.taken.lock().unwrap() = Some("nothing".to_owned());
        for index in 1..=siblings {
            operator.pod_is_gone(index);
        }
        tokio::time::advance(again.saturating_duration_since(Instant::now())).await;
        operator.settle().await;
        assert_eq!(operator.server.count("POST pods"), siblings + 3);
        assert_eq!(operator.server.status()["phase"], "Starting");
    }
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

#[tokio::test(start_paused = true)]
async fn a_job_that_has_ended_stays_so_though_it_can_not_be_read() {
    for (phase, written) in [
        (json!("Succeeded"), "Succeeded"),
        (Value::Null, "Pending"),
        (json!("Finished"), "Pending"),
    ] {
        let operator = Operator::new();
        let mut bad = job(1);
        bad["spec"]["roles"] = json!("many");
        bad["status"] = json!({"phase": phase});
        operator.apply(&bad);
        operator.settle().await;
        assert_eq!(operator.server.status()["phase"], written);
    }
}

#[tokio::test(start_paused = true)]
async fn a_replacement_is_not_made_of_a_spec_that_came_while_its_status_was_written() {
    let operator = Operator::new();
    let mut restarting = job(2);
    restarting["spec"]["roles"][0]["restartPolicy"] = json!("OnFailure");
    operator.apply(&restarting);
    operator.settle().await;
    for index in 0..2 {
        operator.pod_is(index, "Running");
    }
    operator.settle().await;
    operator.pod_is_gone(0);
    let mut edited = restarting.clone();
    edited["metadata"]["generation"] = json!(2);
    edited["metadata"]["resourceVersion"] = json!("900000");
    edited["spec"]["roles"][0]["template"]["spec"]["containers"][0]["image"] = json!("other");
    let index = operator.reconciler.index.clone();
    *operator.server.meanwhile.lock().unwrap() = Some(Box::new(move || {
        let edited = JobObject::decode(&edited.to_string()).unwrap();
        index.apply_job(edited, Source::Watch);
    }));
    operator.reconcile().await;
    assert_eq!(operator.server.count("POST pods"), 2, "it was not accepted");
}

#[tokio::test]
async fn a_reconcile_that_waits_takes_little_memory() {
    // Hundreds wait under load, for a place to write from.
    let operator = Operator::new();
    let key = JobKey::new("ns", "a");
    let waiting = operator.reconciler.reconcile(&key, &operator.term);
    assert!(
        std::mem::size_of_val(&waiting) <= 4096,
        "{}",
        std::mem::size_of_val(&waiting)
    );
}
