//! Requests on a server that is not there.

use std::collections::BTreeMap;
use std::convert::Infallible;

use http::{Method, Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use kube::client::Body;
use parking_lot::Mutex;
use rstest::rstest;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::*;
use crate::act::WriteLimiter;
use crate::budget::KIB;
use crate::budget::tests::peak_growth;
use crate::clock::SystemClock;
use crate::events::{Outgoing, Recorder};
use crate::index::{Index, Source};
use crate::leader::Leadership;
use crate::listwatch::Sink;
use crate::settings::SharedSettings;
use crate::slim::{JobObject, Version};

const REQUESTS: &str = "/apis/trainyard.dev/v1alpha1/namespaces/ns/";
const JOB: &str = "/apis/trainyard.dev/v1alpha1/namespaces/ns/trainingjobs/mnist";

/// A server that has objects, and takes a patch if it names the version of the object.
#[derive(Clone, Default)]
struct Server(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    objects: BTreeMap<String, Value>,
    version: u64,
    /// What was written since the last time.
    writes: Vec<String>,
    /// The next write is carried out, and its answer is lost.
    loses_answer: bool,
}

impl Server {
    fn client(&self) -> kube::Client {
        let server = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let server = server.clone();
            async move {
                let (parts, body) = request.into_parts();
                let body = body.collect().await.unwrap().to_bytes();
                let body: Value = serde_json::from_slice(&body).unwrap_or_default();
                let (code, answer) = server.0.lock().answer(&parts.method, parts.uri.path(), &body);
                let answer = Full::new(Bytes::from(answer.to_string()));
                Ok::<_, Infallible>(Response::builder().status(code).body(answer).unwrap())
            }
        });
        kube::Client::new(service, "default")
    }

    fn written(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().writes)
    }

    fn object(&self, path: &str) -> Value {
        self.0.lock().objects.get(path).cloned().unwrap_or_default()
    }
}

impl State {
    fn answer(&mut self, method: &Method, path: &str, body: &Value) -> (u16, Value) {
        let status = |code: u16, reason: &str| {
            let answer = json!({"kind": "Status", "code": code, "reason": reason, "message": reason});
            (code, answer)
        };
        let whole = path.strip_suffix("/status").unwrap_or(path);
        let short = path.rsplit("/namespaces/ns/").next().unwrap_or_default();
        self.writes.push(format!("{method} {short}"));
        let Some(object) = self.objects.get_mut(whole) else {
            return status(404, "NotFound");
        };
        if *method == Method::DELETE {
            self.objects.remove(whole);
            return (200, json!({}));
        }
        if body["metadata"]["resourceVersion"] != object["metadata"]["resourceVersion"] {
            return status(409, "Conflict");
        }
        json_patch::merge(object, body);
        self.version += 1;
        object["metadata"]["resourceVersion"] = self.version.to_string().into();
        let answer = object.clone();
        if std::mem::take(&mut self.loses_answer) {
            return status(504, "Timeout");
        }
        (200, answer)
    }
}

struct Setting {
    server: Server,
    controller: Arc<Controller<ScaleRequests>>,
    events: mpsc::Receiver<Outgoing>,
    woken: Arc<Mutex<Vec<JobKey>>>,
}

/// An operator that knows of a job with four pods which run.
fn setting() -> Setting {
    let server = Server::default();
    let (recorder, events) = Recorder::unsent();
    let context = Context {
        client: server.client(),
        index: Arc::new(Index::new(&[])),
        leadership: Leadership::always(),
        limiter: WriteLimiter::new(4),
        recorder,
        metrics: Arc::default(),
        clock: Arc::new(SystemClock),
        settings: SharedSettings::default(),
        namespaces: Vec::new(),
    };
    let woken: Arc<Mutex<Vec<JobKey>>> = Arc::default();
    let wakes = woken.clone();
    let controller = controller(context, Arc::new(move |key| wakes.lock().push(key)));
    let setting = Setting {
        server,
        controller,
        events,
        woken,
    };
    setting.put_job(
        &json!({"phase": "Running", "targetReplicas": 4, "replicas": 4, "acceptedRules": {
        "roles": [{"name": "worker", "replicas": 4, "restartPolicy": "OnFailure", "succeededWhen": "AllPods",
            "failedWhen": "AnyPod", "nodeDownPolicy": "Fail"}]}}),
    );
    setting.show_job();
    setting
}

impl Setting {
    fn feeder(&self, kind: ScaleKind) -> Feeder {
        Feeder {
            kind,
            scope: kind as usize,
            store: self.controller.reconciler.store.clone(),
            queue: self.controller.queue.clone(),
            listed: Arc::default(),
            metrics: Arc::default(),
            failure_is_logged: AtomicBool::new(false),
        }
    }

    fn put(&self, path: &str, mut object: Value) {
        let mut state = self.server.0.lock();
        state.version += 1;
        object["metadata"]["resourceVersion"] = state.version.to_string().into();
        state.objects.insert(path.to_owned(), object);
    }

    /// The job gets a status, and its spec stays.
    fn put_job(&self, status: &Value) {
        let mut job = self.server.object(JOB);
        if job.is_null() {
            job = json!({
                "metadata": {"name": "mnist", "namespace": "ns", "uid": "j", "generation": 1},
                "spec": {"framework": {"name": "custom"}, "elastic": {"replicas": 4}, "roles": [
                    {"name": "store", "replicas": 1, "template": {"spec": {"containers": [{"name": "m", "image": "x"}]}}},
                    {"name": "worker", "template": {"spec": {"containers": [{"name": "m", "image": "x"}]}}}]},
            });
        }
        job["status"] = status.clone();
        self.put(JOB, job);
    }

    /// The watch shows the job as it is.
    fn show_job(&self) {
        let job = JobObject::decode(&self.server.object(JOB).to_string()).unwrap();
        let index = &self.controller.reconciler.context.index;
        index.apply_job(job, Source::Watch);
    }

    /// Somebody creates a request, and the watch shows it.
    fn ask(&self, kind: ScaleKind, name: &str, spec: &Value) {
        let object = json!({
            "apiVersion": "trainyard.dev/v1alpha1", "kind": kind.as_str(),
            "metadata": {"name": name, "namespace": "ns", "uid": name, "generation": 1,
                "creationTimestamp": jiff::Timestamp::now().to_string()},
            "spec": spec,
        });
        let path = format!("{REQUESTS}{}/{name}", kind.plural());
        self.put(&path, object);
        self.show(kind, name);
    }

    fn show(&self, kind: ScaleKind, name: &str) {
        let object = self.request(kind, name).to_string();
        self.feeder(kind).object(&object, Source::Watch).unwrap();
    }

    fn request(&self, kind: ScaleKind, name: &str) -> Value {
        self.server.object(&format!("{REQUESTS}{}/{name}", kind.plural()))
    }

    /// Reconciles until there is nothing to do at once. Returns what follows.
    async fn work(&self) -> Requeue {
        for _ in 0..20 {
            let key = JobKey::new("ns", "mnist");
            let term = CancellationToken::new();
            match self.controller.reconcile(&key, &term).await.next {
                Requeue::Again => {}
                next => return next,
            }
        }
        panic!("it never rests");
    }

    /// The reasons of the events since the last time.
    fn told(&mut self) -> Vec<String> {
        let mut told = Vec::new();
        while let Ok(Outgoing { event, .. }) = self.events.try_recv() {
            told.push(event.reason.unwrap());
        }
        told
    }
}

fn out(count: i32) -> Value {
    json!({"jobRef": {"name": "mnist"}, "toAdd": {"count": count}})
}

#[tokio::test]
async fn a_request_costs_four_writes_and_then_nothing() {
    let mut setting = setting();
    setting.ask(ScaleKind::ScaleOut, "grow", &out(2));
    assert!(matches!(setting.work().await, Requeue::At(_)), "it has a timeout");
    let expected = [
        "PATCH scaleouts/grow",
        "PATCH scaleouts/grow/status",
        "PATCH trainingjobs/mnist",
    ];
    assert_eq!(setting.server.written(), expected);
    let job = setting.server.object(JOB);
    assert_eq!(job["spec"]["elastic"]["replicas"], 6);
    let annotation = &job["metadata"]["annotations"]["trainyard.dev/scale-request"];
    assert!(annotation.as_str().unwrap().contains("grow"), "{annotation}");
    assert_eq!(setting.woken.lock().len(), 1, "the job is reconciled at once");
    let request = setting.request(ScaleKind::ScaleOut, "grow");
    assert_eq!(request["metadata"]["ownerReferences"][0]["uid"], "j");
    assert_eq!(request["status"]["phase"], "Scaling");
    assert_eq!(
        request["status"]["joining"],
        json!(["mnist-worker-4", "mnist-worker-5"])
    );

    // The watches show it all, and nothing follows.
    setting.show(ScaleKind::ScaleOut, "grow");
    setting.show_job();
    setting.work().await;
    assert_eq!(setting.server.written(), [""; 0]);

    let done = json!({"kind": "ScaleOut", "name": "grow", "uid": "grow"});
    setting
        .put_job(&json!({"phase": "Running", "targetReplicas": 6, "replicas": 6, "lastScaleRequest": done}));
    setting.show_job();
    assert_eq!(setting.work().await, Requeue::Rest);
    assert_eq!(setting.server.written(), ["PATCH scaleouts/grow/status"]);
    let request = setting.request(ScaleKind::ScaleOut, "grow");
    assert_eq!(request["status"]["phase"], "ScaleSucceeded");
    setting.work().await;
    assert_eq!(setting.server.written(), [""; 0]);
    assert_eq!(setting.told(), ["Scaling", "ScaleSucceeded"]);
    let metrics = setting.controller.reconciler.context.metrics.render();
    let line = "trainyard_scale_requests_total{kind=\"ScaleOut\",reason=\"Scaled\"} 1";
    assert!(metrics.contains(line), "{metrics}");
}

#[tokio::test]
async fn a_target_whose_answer_was_lost_is_not_written_again() {
    let setting = setting();
    setting.ask(ScaleKind::ScaleOut, "grow", &out(2));
    let (key, term) = (JobKey::new("ns", "mnist"), CancellationToken::new());
    for _ in 0..2 {
        setting.controller.reconcile(&key, &term).await;
    }
    setting.server.0.lock().loses_answer = true;
    assert!(matches!(setting.work().await, Requeue::Retry(_)));
    // The watch is late. The server refuses what was decided on the old job.
    setting.server.written();
    assert_eq!(setting.work().await, Requeue::Stale);
    assert_eq!(setting.server.written(), ["PATCH trainingjobs/mnist"]);
    setting.show_job();
    setting.work().await;
    assert_eq!(setting.server.written(), [""; 0]);
    assert_eq!(setting.server.object(JOB)["spec"]["elastic"]["replicas"], 6);
}

#[tokio::test]
async fn a_job_that_has_changed_meanwhile_is_decided_on_anew() {
    let setting = setting();
    setting.ask(ScaleKind::ScaleOut, "grow", &out(2));
    let mut job = setting.server.object(JOB);
    job["spec"]["elastic"]["replicas"] = 5.into();
    setting.put(JOB, job);
    assert_eq!(setting.work().await, Requeue::Stale);
    setting.show_job();
    setting.work().await;
    let request = setting.request(ScaleKind::ScaleOut, "grow");
    assert_eq!(request["status"]["phase"], "ScaleFailed");
    assert_eq!(setting.server.object(JOB)["spec"]["elastic"]["replicas"], 5);
}

#[rstest]
#[case::of_another_type(json!({"jobRef": {"name": "mnist"}, "toDelete": {"count": "many"}}))]
#[case::without_victims(json!({"jobRef": {"name": "mnist"}}))]
#[case::without_a_job(json!({"toDelete": {"count": 1}}))]
#[tokio::test]
async fn a_request_that_no_schema_has_checked_ends_and_holds_up_nobody(#[case] spec: Value) {
    let setting = setting();
    setting.ask(ScaleKind::ScaleIn, "bad", &spec);
    setting.ask(ScaleKind::ScaleOut, "good", &out(1));
    setting.work().await;
    let term = CancellationToken::new();
    let nobody = JobKey::new("ns", "");
    setting.controller.reconcile(&nobody, &term).await;
    let bad = setting.request(ScaleKind::ScaleIn, "bad");
    assert_eq!(bad["status"]["phase"], "ScaleFailed", "{bad}");
    let good = setting.request(ScaleKind::ScaleOut, "good");
    assert_eq!(good["status"]["phase"], "Scaling");
}

#[tokio::test]
async fn a_request_that_is_too_large_is_not_decoded_and_says_so() {
    let setting = setting();
    let object = json!({"metadata": {"name": "large", "namespace": "ns", "uid": "large"}, "spec": out(1)});
    setting.put(&format!("{REQUESTS}scaleouts/large"), object);
    // As the watch shows it.
    let object = setting.request(ScaleKind::ScaleOut, "large").to_string();
    let env = format!(r#""spec":{{"env":[{}{{}}],"#, "{},".repeat(300_000));
    let large = object.replace(r#""spec":{"#, &env);
    assert!(large.len() > env.len());
    let feeder = setting.feeder(ScaleKind::ScaleOut);
    // What is made once is not of a request.
    feeder.gone(&object).unwrap();
    feeder
        .object(r#"{"metadata":{"name":"small"}}"#, Source::Watch)
        .unwrap();
    let (growth, seen) = peak_growth(|| feeder.object(&large, Source::Watch));
    seen.unwrap();
    assert!(growth <= 64 * KIB, "{} KiB", growth / KIB);
    setting.work().await;
    let said = setting.request(ScaleKind::ScaleOut, "large")["status"].to_string();
    assert!(
        said.contains("ScaleFailed") && said.contains("this has 900"),
        "{said}"
    );
    assert_eq!(setting.server.object(JOB)["spec"]["elastic"]["replicas"], 4);
    let (growth, gone) = peak_growth(|| feeder.gone(&large));
    gone.unwrap();
    assert!(growth <= 64 * KIB, "{} KiB", growth / KIB);
}

#[tokio::test]
async fn a_request_that_has_ended_is_deleted_after_its_time() {
    let setting = setting();
    let mut spec = out(9_999);
    spec["ttlSecondsAfterFinished"] = 0.into();
    setting.ask(ScaleKind::ScaleOut, "grow", &spec);
    // Times have whole seconds, and may be rounded up.
    while !setting.request(ScaleKind::ScaleOut, "grow").is_null() {
        setting.work().await;
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let expected = [
        "PATCH scaleouts/grow",
        "PATCH scaleouts/grow/status",
        "DELETE scaleouts/grow",
    ];
    assert_eq!(setting.server.written(), expected);
    assert!(
        !setting
            .controller
            .reconciler
            .store
            .has_requests(&JobKey::new("ns", "mnist"))
    );
}

/// A bug of et-operator: jobs of one name in two namespaces had their requests, and lost their
/// workers, together.
#[test]
fn a_request_is_about_the_job_of_its_own_namespace() {
    let store = Store::new(1);
    for namespace in ["ns", "other"] {
        let request = json!({
            "metadata": {"name": "r", "namespace": namespace, "uid": namespace, "resourceVersion": "1"},
            "spec": {"jobRef": {"name": "mnist"}, "toDelete": {"count": 1}},
        });
        let applied = store.apply(ScaleKind::ScaleIn, &request.to_string(), 0, Source::Watch);
        assert_eq!(applied.unwrap().1, Some(JobKey::new(namespace, "mnist")));
    }
    let found = store.of_job(&JobKey::new("ns", "mnist"));
    let uids: Vec<_> = found
        .iter()
        .map(|entry| entry.request.metadata.uid.as_deref())
        .collect();
    assert_eq!(uids, [Some("ns")]);
}

#[tokio::test]
async fn requests_that_a_list_lacks_are_gone() {
    let setting = setting();
    setting.ask(ScaleKind::ScaleOut, "a", &out(1));
    setting.ask(ScaleKind::ScaleIn, "b", &out(1));
    let store = &setting.controller.reconciler.store;
    let key = JobKey::new("ns", "mnist");
    assert_eq!(store.of_job(&key).len(), 2);
    let feeder = setting.feeder(ScaleKind::ScaleOut);
    feeder.listing(Version(100));
    feeder.listed(Version(100), Instant::now());
    assert_eq!(store.of_job(&key).len(), 1, "the other kind is not concerned");
    assert!(!store.is_listed());
    setting.feeder(ScaleKind::ScaleIn).refused();
    assert!(store.is_listed() && !store.has_requests(&key));
}
