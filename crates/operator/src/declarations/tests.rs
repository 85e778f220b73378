//! `Framework` objects: what becomes of them in the index and in their status.

use std::convert::Infallible;

use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use kube::client::Body;
use parking_lot::Mutex;
use serde_json::json;
use tokio::sync::mpsc;
use trainyard_api::TrainingJob;

use super::*;
use crate::act::WriteLimiter;
use crate::budget::KIB;
use crate::budget::tests::peak_growth;
use crate::clock::SystemClock;
use crate::events::{Outgoing, Recorder};
use crate::leader::Leadership;
use crate::settings::SharedSettings;
use crate::slim::JobObject;

/// A server that takes every write, and keeps what was written.
#[derive(Clone, Default)]
struct Server(Arc<Mutex<Vec<(String, Value)>>>);

impl Server {
    fn client(&self) -> kube::Client {
        let writes = self.0.clone();
        let service = tower::service_fn(move |request: ::http::Request<Body>| {
            let writes = writes.clone();
            async move {
                let path = request.uri().path().to_owned();
                let body = request
                    .into_body()
                    .collect()
                    .await
                    .map(http_body_util::Collected::to_bytes);
                let body = body.unwrap_or_default();
                writes
                    .lock()
                    .push((path, serde_json::from_slice(&body).unwrap_or_default()));
                Ok::<_, Infallible>(::http::Response::new(Full::new(Bytes::from("{}"))))
            }
        });
        kube::Client::new(service, "default")
    }

    /// What was written since the last time.
    fn written(&self) -> Vec<(String, Value)> {
        std::mem::take(&mut self.0.lock())
    }
}

struct Setting {
    server: Server,
    events: Mutex<mpsc::Receiver<Outgoing>>,
    controller: Arc<Controller<Declarations>>,
    feeder: Feeder,
    woken: Arc<Mutex<Vec<String>>>,
}

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
    let woken = Arc::new(Mutex::new(Vec::new()));
    let wakes = woken.clone();
    let wake: Wake = Arc::new(move |key: JobKey| wakes.lock().push(key.name.to_string()));
    let feeder_parts = (context.index.clone(), context.metrics.clone());
    let controller = controller(context, wake.clone());
    let feeder = Feeder {
        store: controller.reconciler.store.clone(),
        index: feeder_parts.0,
        queue: controller.queue.clone(),
        wake,
        metrics: feeder_parts.1,
        failure_is_logged: AtomicBool::new(false),
    };
    Setting {
        server,
        events: Mutex::new(events),
        controller,
        feeder,
        woken,
    }
}

fn object(version: u64, value: &str, status: &Value) -> String {
    json!({
        "apiVersion": "trainyard.dev/v1alpha1", "kind": "Framework",
        "metadata": {"name": "ring", "uid": "u", "resourceVersion": version.to_string(), "generation": version},
        "spec": {"env": [{"name": "A", "value": value}]},
        "status": status,
    })
    .to_string()
}

fn job(name: &str, framework: &str) -> Value {
    json!({
        "metadata": {"name": name, "namespace": "ns", "uid": name, "resourceVersion": "7", "generation": 1},
        "spec": {"framework": {"name": framework}, "roles": [{"name": "worker", "template": {"spec": {
            "containers": [{"name": "m", "image": "x"}]}}}]},
    })
}

fn errors(setting: &Setting) -> Vec<String> {
    let mut job: TrainingJob = serde_json::from_value(job("a", "ring")).unwrap();
    let frameworks = setting.feeder.index.frameworks_for(&job);
    let errors = trainyard_core::admission::review_with(None, &mut job, &frameworks);
    errors.iter().map(ToString::to_string).collect()
}

/// The type, the reason and the note of the events since the last time.
fn events(setting: &Setting) -> Vec<String> {
    let mut events = setting.events.lock();
    let mut found = Vec::new();
    while let Ok(Outgoing { event, .. }) = events.try_recv() {
        let regarding = event.regarding.unwrap();
        assert_eq!(
            (
                regarding.kind.as_deref(),
                regarding.name.as_deref(),
                regarding.uid.as_deref()
            ),
            (Some("Framework"), Some("ring"), Some("u"))
        );
        assert_eq!(regarding.namespace, None);
        assert_eq!(
            event.metadata.namespace.as_deref(),
            Some("default"),
            "the API server wants it there"
        );
        let words = [event.type_, event.reason, event.note].map(Option::unwrap);
        found.push(words.join(" "));
    }
    found
}

async fn look(setting: &Setting) -> Option<Value> {
    let term = CancellationToken::new();
    setting
        .controller
        .reconciler
        .reconcile(&"ring".to_owned(), &term)
        .await;
    let mut written = setting.server.written();
    assert!(written.len() <= 1);
    let (path, body) = written.pop()?;
    assert_eq!(path, "/apis/trainyard.dev/v1alpha1/frameworks/ring/status");
    Some(body["status"].clone())
}

#[tokio::test]
async fn a_declaration_serves_its_jobs_and_says_so_once() {
    let setting = setting();
    for (name, framework) in [("a", "ring"), ("b", "pytorch")] {
        let job = JobObject::decode(&job(name, framework).to_string()).unwrap();
        setting.feeder.index.apply_job(job, Source::Watch);
    }
    setting
        .feeder
        .object(&object(1, "job.name", &Value::Null), Source::List)
        .unwrap();
    setting.feeder.listed(Version(1), Instant::now());
    assert_eq!(
        *setting.woken.lock(),
        ["a"],
        "the job that names it, and no other"
    );
    assert_eq!(errors(&setting), [""; 0]);
    let status = look(&setting).await.unwrap();
    assert_eq!(status["observedGeneration"], 1);
    assert_eq!(status["conditions"][0]["status"], "True");
    let told = ["Normal Valid Jobs can name it in spec.framework.name."];
    assert_eq!(events(&setting), told);
    setting.woken.lock().clear();
    setting
        .feeder
        .object(&object(1, "job.name", &status), Source::Watch)
        .unwrap();
    assert_eq!(look(&setting).await, None, "what is there is not written again");
    assert!(setting.woken.lock().is_empty(), "a status wakes nobody");
    setting
        .feeder
        .object(&object(2, "job.namespace", &status), Source::Watch)
        .unwrap();
    assert_eq!(look(&setting).await.unwrap()["observedGeneration"], 2);
    assert_eq!(events(&setting), [""; 0], "it is as valid as before");
}

#[tokio::test]
async fn a_broken_declaration_says_what_is_wrong() {
    let setting = setting();
    setting
        .feeder
        .object(&object(1, "job.nme", &Value::Null), Source::Watch)
        .unwrap();
    let status = look(&setting).await.unwrap();
    let condition = &status["conditions"][0];
    assert_eq!(condition["status"], "False");
    assert_eq!(condition["reason"], "Invalid");
    let message = condition["message"].as_str().unwrap();
    assert!(
        message.starts_with("spec.env[0].value: column 1: job has no field \"nme\""),
        "{message}"
    );
    assert!(errors(&setting)[0].contains("can't be used until its declaration is corrected"));
    assert_eq!(events(&setting), [format!("Warning Invalid {message}")]);
    setting
        .feeder
        .object(&object(2, "job.name", &status), Source::Watch)
        .unwrap();
    assert_eq!(look(&setting).await.unwrap()["conditions"][0]["status"], "True");
    assert_eq!(errors(&setting), [""; 0]);
    assert_eq!(events(&setting).len(), 1);
}

#[tokio::test]
async fn a_declaration_that_can_not_be_read_is_broken_and_not_unknown() {
    let setting = setting();
    let json = object(1, "job.name", &Value::Null).replace("\"env\"", "\"envs\"");
    setting.feeder.object(&json, Source::Watch).unwrap();
    let found = errors(&setting);
    assert!(
        found[0].contains("the Framework \"ring\" can't be used until its declaration is corrected: spec: it can't be read: ")
            && found[0].contains("unknown field `envs`"),
        "{found:?}"
    );
    assert_eq!(
        setting.controller.reconciler.keys(),
        ["ring"],
        "also in a new term"
    );
    let status = look(&setting).await.unwrap();
    let condition = &status["conditions"][0];
    assert_eq!(
        (&condition["status"], &condition["reason"]),
        (&json!("False"), &json!("Invalid"))
    );
    let message = condition["message"].as_str().unwrap();
    assert!(
        message.starts_with("spec: it can't be read: unknown field `envs`"),
        "{message}"
    );
    assert_eq!(events(&setting), [format!("Warning Invalid {message}")]);
    let mut told: Value = serde_json::from_str(&json).unwrap();
    told["status"] = status;
    setting.feeder.object(&told.to_string(), Source::Watch).unwrap();
    assert_eq!(look(&setting).await, None, "what is there is not written again");
    setting.feeder.listing(Version(2));
    setting.feeder.listed(Version(2), Instant::now());
    assert!(errors(&setting)[0].contains("there is no framework \"ring\""));
    setting.feeder.object(&json, Source::Watch).unwrap();
    let mended = object(3, "job.name", &told["status"]);
    setting.feeder.object(&mended, Source::Watch).unwrap();
    assert_eq!(errors(&setting), [""; 0]);
    assert_eq!(look(&setting).await.unwrap()["conditions"][0]["status"], "True");
}

#[tokio::test]
async fn a_declaration_that_is_gone_is_forgotten() {
    let setting = setting();
    let json = object(1, "job.name", &Value::Null);
    setting.feeder.object(&json, Source::Watch).unwrap();
    setting.feeder.gone(&json).unwrap();
    assert!(errors(&setting)[0].contains("there is no framework \"ring\""));
    setting.feeder.object(&json, Source::Watch).unwrap();
    assert_eq!(errors(&setting), [""; 0]);
    setting.feeder.listing(Version(2));
    setting.feeder.listed(Version(2), Instant::now());
    assert!(
        errors(&setting)[0].contains("there is no framework \"ring\""),
        "it was not in the list"
    );
    assert_eq!(look(&setting).await, None);
}

#[tokio::test]
async fn jobs_say_that_declarations_can_not_be_read() {
    let setting = setting();
    setting.feeder.refused();
    assert!(errors(&setting)[0].ends_with("the operator may not read them in the whole cluster"));
    tokio::time::timeout(
        Duration::from_secs(1),
        setting.feeder.index.wait_for_declarations(),
    )
    .await
    .unwrap();
}

#[tokio::test]
async fn a_declaration_that_is_too_large_is_not_decoded() {
    let setting = setting();
    let env = format!(r#""env":[{}{{}}],"old":["#, "{},".repeat(300_000));
    let large = object(1, "job.name", &Value::Null).replace(r#""env":["#, &env);
    // What is made once is not of an object.
    setting
        .feeder
        .object(r#"{"metadata":{"name":"small"}}"#, Source::List)
        .unwrap();
    let (growth, seen) = peak_growth(|| setting.feeder.object(&large, Source::List));
    assert_eq!(seen.unwrap(), Version(1));
    assert!(growth <= 64 * KIB, "{} KiB", growth / KIB);
    let said = errors(&setting).join(" ");
    assert!(said.contains("this has 900"), "{said}");
    // One that is smaller takes its place.
    let small = object(2, "job.name", &Value::Null);
    setting.feeder.object(&small, Source::Watch).unwrap();
    assert_eq!(errors(&setting), [""; 0]);
}
