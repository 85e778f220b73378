//! One kind on a server that is not there.

mod config;
pub(crate) mod requests;

use std::sync::atomic::{AtomicUsize, Ordering};

use http::{Method, Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use kube::client::Body;
use parking_lot::Mutex;
use rstest::rstest;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use trainyard_api::{FieldError, TrainingJob};
use trainyard_core::foreign::ForeignNote;

use super::*;
use crate::act::WriteLimiter;
use crate::clock::SystemClock;
use crate::events::{Outgoing, Recorder};
use crate::index::{Index, Kind, Source};
use crate::leader::Leadership;
use crate::settings::SharedSettings;
use crate::slim::{JobObject, Version};

/// A kind whose objects own a job or a request.
pub(crate) struct Toy {
    child: ChildKind,
    plan: fn(&ForeignView<'_>) -> ForeignPlan,
}

impl ForeignKind for Toy {
    fn flag(&self) -> &'static str {
        "toy"
    }
    fn group(&self) -> &'static str {
        "toys.example"
    }
    fn version(&self) -> &'static str {
        "v1"
    }
    fn kind(&self) -> &'static str {
        "Toy"
    }
    fn plural(&self) -> &'static str {
        "toys"
    }
    fn component(&self) -> &'static str {
        "toy-controller"
    }
    fn definition(&self) -> Value {
        Value::Null
    }
    fn child_kind(&self) -> ChildKind {
        self.child
    }
    fn has_config(&self) -> bool {
        self.child == ChildKind::Job
    }
    fn review(&self, old: Option<&Value>, new: &Value) -> Vec<FieldError> {
        let bad = new["spec"]["bad"] == true && old.is_none();
        bad.then(|| FieldError::new("spec.bad", "is true: remove it"))
            .into_iter()
            .collect()
    }
    fn refuse(&self, view: &ForeignView<'_>, why: &str) -> ForeignPlan {
        let is_told = view
            .object
            .pointer("/status/phase")
            .is_some_and(|phase| *phase == *why);
        ForeignPlan {
            status: (!is_told).then(|| json!({"phase": why})),
            ..ForeignPlan::default()
        }
    }
    fn notes(&self, before: Option<&Value>, after: &Value) -> Vec<ForeignNote> {
        let phase = |status: &Value| status["phase"].as_str().unwrap_or("nothing").to_owned();
        let message = match before {
            _ if self.child != ChildKind::Job => return Vec::new(),
            None => format!("perhaps again: {}", phase(after)),
            Some(before) => format!("{} -> {}", phase(before), phase(after)),
        };
        vec![ForeignNote {
            warning: before.is_none(),
            reason: "ToyChanged".to_owned(),
            message,
        }]
    }
    fn plan(&self, view: &ForeignView<'_>) -> ForeignPlan {
        (self.plan)(view)
    }
}

/// Its objects own a job, and say in their status which phase it is in.
fn plan_job(view: &ForeignView<'_>) -> ForeignPlan {
    let name = view.object["metadata"]["name"].as_str().unwrap().to_owned();
    let (child, phase) = match (view.child, view.obstacle) {
        (Child::Job { job, .. }, _) if view.object["spec"]["changed"] == true => {
            let job = ChildAction::Replace(Box::new(job.clone()));
            (job, Some("there".to_owned()))
        }
        (Child::Job { .. }, _) => (ChildAction::Leave, Some("there".to_owned())),
        (_, obstacle) => {
            let mut job = TrainingJob::default();
            job.metadata.name = Some(name);
            let phase = obstacle.map(|obstacle| match obstacle {
                Obstacle::Refused(words) => words.clone(),
                Obstacle::Taken(name) => format!("{name} is taken"),
            });
            (ChildAction::Create(Box::new(job)), phase)
        }
    };
    let status = phase
        .map(|phase| json!({"phase": phase, "conditions": [{"lastTransitionTime": view.now.to_string()}]}));
    let is = view.object.pointer("/status/phase");
    let news = status.filter(|status| status.get("phase") != is);
    let delete = view.object["spec"]["over"] == true;
    let odd = (view.object["spec"]["odd"] == true).then(|| ForeignNote {
        warning: false,
        reason: "ToyIsOdd".to_owned(),
        message: "odd".to_owned(),
    });
    ForeignPlan {
        child,
        owners: Vec::new(),
        config: config::wanted(view.object),
        notes: odd.into_iter().collect(),
        status_can_wait: view.object["spec"]["patient"] == true,
        status: news,
        delete,
        wake_at: None,
    }
}

pub(crate) static TOY: Toy = Toy {
    child: ChildKind::Job,
    plan: plan_job,
};
static VERSION: AtomicUsize = AtomicUsize::new(100);

/// A server that takes every write but those that it is told to refuse.
#[derive(Clone, Default)]
struct Server {
    writes: Arc<Mutex<Vec<(Method, String, Value)>>>,
    refuses: Arc<Mutex<Option<(Method, u16)>>>,
    /// Whether it forgets what a status says, as a definition without fields has it.
    forgets: bool,
    /// The ConfigMap that it has.
    config: Arc<Mutex<Option<Value>>>,
}

impl Server {
    fn client(&self) -> kube::Client {
        let server = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let server = server.clone();
            async move {
                let (parts, body) = request.into_parts();
                let body = body.collect().await.unwrap().to_bytes();
                let mut body: Value = serde_json::from_slice(&body).unwrap_or_default();
                let path = parts.uri.path().to_owned();
                server
                    .writes
                    .lock()
                    .push((parts.method.clone(), path, body.clone()));
                let refused = server.refuses.lock().filter_method(&parts.method);
                if let Some(code) = refused {
                    body =
                        json!({"kind": "Status", "code": code, "reason": "Forbidden", "message": "not here"});
                    let body = Full::new(Bytes::from(body.to_string()));
                    return Ok::<_, std::convert::Infallible>(
                        Response::builder().status(code).body(body).unwrap(),
                    );
                }
                if parts.uri.path().contains("/configmaps") {
                    return Ok(server.configure(&parts.method, body));
                }
                if server.forgets && body.is_object() {
                    body["status"] = json!({});
                }
                if body.is_object() {
                    let version = VERSION.fetch_add(1, Ordering::Relaxed);
                    body["metadata"]["resourceVersion"] = version.to_string().into();
                }
                Ok(Response::new(Full::new(Bytes::from(body.to_string()))))
            }
        });
        kube::Client::new(service, "default")
    }

    /// What was written since the last time.
    fn written(&self) -> Vec<(Method, String)> {
        let mut writes = self.writes.lock();
        writes.drain(..).map(|(method, path, _)| (method, path)).collect()
    }
}

trait FilterMethod {
    fn filter_method(&self, method: &Method) -> Option<u16>;
}

impl FilterMethod for Option<(Method, u16)> {
    fn filter_method(&self, method: &Method) -> Option<u16> {
        self.as_ref()
            .filter(|(refused, _)| refused == method)
            .map(|(_, code)| *code)
    }
}

fn controller(server: &Server) -> Arc<Controller<ForeignReconciler>> {
    controller_with_events(server).0
}

fn controller_with_events(server: &Server) -> (Arc<Controller<ForeignReconciler>>, mpsc::Receiver<Outgoing>) {
    controller_of(&TOY, server)
}

fn controller_of(
    kind: &'static dyn ForeignKind,
    server: &Server,
) -> (Arc<Controller<ForeignReconciler>>, mpsc::Receiver<Outgoing>) {
    let (recorder, events) = Recorder::unsent();
    let index = Arc::new(Index::new(&[]));
    for kind in [Kind::Job, Kind::Pod, Kind::Service] {
        index.listing(kind, 0, Version(5));
        index.listed(kind, 0, Version(5), Instant::now());
    }
    let context = Context {
        client: server.client(),
        index,
        leadership: Leadership::always(),
        limiter: WriteLimiter::new(4),
        recorder,
        metrics: Arc::default(),
        clock: Arc::new(SystemClock),
        settings: SharedSettings::default(),
        namespaces: Vec::new(),
    };
    (
        super::controller(kind, context, Arc::new(Requests::new(2))),
        events,
    )
}

/// What was told since the last time.
fn told(events: &mut mpsc::Receiver<Outgoing>) -> Vec<String> {
    let mut told = Vec::new();
    while let Ok(Outgoing { event, is_core }) = events.try_recv() {
        assert!(is_core);
        told.push(event.note.unwrap());
    }
    told
}

/// How reconciles have ended, as the metrics say.
fn outcomes(controller: &Controller<ForeignReconciler>) -> Vec<String> {
    let text = controller.reconciler.context.metrics.render();
    let begin = "trainyard_reconciles_total{kind=\"Toy.toys.example\",outcome=";
    let mut lines: Vec<String> = text
        .lines()
        .filter_map(|line| line.strip_prefix(begin))
        .map(|line| line.replace(['"', '}'], ""))
        .collect();
    lines.sort();
    lines
}

fn key() -> JobKey {
    JobKey::new("ns", "a")
}

fn show(controller: &Controller<ForeignReconciler>, version: u64, more: &Value) {
    let mut object = json!({
        "apiVersion": "toys.example/v1", "kind": "Toy",
        "metadata": {"name": "a", "namespace": "ns", "uid": "u", "resourceVersion": version.to_string()},
    });
    for (name, value) in more.as_object().unwrap() {
        object[name] = value.clone();
    }
    controller
        .reconciler
        .store
        .apply(&object.to_string(), 0, Source::Watch)
        .unwrap();
}

fn show_child(controller: &Controller<ForeignReconciler>) {
    let job = json!({
        "metadata": {"name": "a", "namespace": "ns", "uid": "c", "resourceVersion": "50"},
        "spec": {"framework": {"name": "custom"}, "roles": []},
    });
    let job = JobObject::decode(&job.to_string()).unwrap();
    controller.reconciler.context.index.apply_job(job, Source::Watch);
}

async fn look(controller: &Controller<ForeignReconciler>) -> Requeue {
    controller.reconcile(&key(), &CancellationToken::new()).await.next
}

const JOBS: &str = "/apis/trainyard.dev/v1alpha1/namespaces/ns/trainingjobs";
const STATUS: &str = "/apis/toys.example/v1/namespaces/ns/toys/a/status";

#[tokio::test]
async fn an_object_costs_one_creation_and_one_status_and_then_nothing() {
    let server = Server::default();
    let (controller, mut events) = controller_with_events(&server);
    assert!(matches!(look(&controller).await, Requeue::Rest), "there is none");
    show(&controller, 10, &json!({}));
    assert!(
        matches!(look(&controller).await, Requeue::At(_)),
        "it is looked whether the child comes"
    );
    look(&controller).await;
    assert_eq!(server.written(), [(Method::POST, JOBS.to_owned())], "once");
    show_child(&controller);
    assert!(matches!(look(&controller).await, Requeue::Rest));
    assert_eq!(server.written(), [(Method::PUT, STATUS.to_owned())]);
    assert_eq!(told(&mut events), ["nothing -> there"]);
    for _ in 0..3 {
        assert!(matches!(look(&controller).await, Requeue::Rest));
    }
    assert_eq!(server.written(), []);
    assert_eq!(told(&mut events), [""; 0]);
    assert_eq!(outcomes(&controller), ["acted 2", "quiet 4", "waiting 1"]);
}

#[tokio::test]
async fn users_are_told_on_the_object_once_its_status_says_so() {
    let server = Server::default();
    *server.refuses.lock() = Some((Method::PUT, 409));
    let (controller, mut events) = controller_with_events(&server);
    show(&controller, 10, &json!({"status": {"phase": "before"}}));
    show_child(&controller);
    assert!(matches!(look(&controller).await, Requeue::Retry(_)));
    assert_eq!(told(&mut events), [""; 0], "it was not written");
    assert_eq!(outcomes(&controller), ["conflict 1"]);
    *server.refuses.lock() = None;
    look(&controller).await;
    let event = events.try_recv().unwrap().event;
    assert_eq!(event.reporting_controller.as_deref(), Some("toy-controller"));
    assert_eq!(event.note.as_deref(), Some("before -> there"));
    assert_eq!(event.reason.as_deref(), Some("ToyChanged"));
    assert_eq!(event.type_.as_deref(), Some("Normal"));
    let regarding = serde_json::to_value(event.regarding.unwrap()).unwrap();
    assert_eq!(
        regarding,
        json!({
            "apiVersion": "toys.example/v1", "kind": "Toy", "namespace": "ns", "name": "a", "uid": "u",
            "resourceVersion": "10",
        })
    );
    // There is no such thing as a status.
    *server.refuses.lock() = Some((Method::PUT, 404));
    show(&controller, 10_000, &json!({}));
    look(&controller).await;
    assert_eq!(told(&mut events), [""; 0]);
}

/// Otherwise every start of an operator would tell again what has been told.
#[tokio::test]
async fn of_a_status_that_is_not_kept_only_what_this_process_saw_is_told() {
    let server = Server {
        forgets: true,
        ..Server::default()
    };
    let (found, mut events) = controller_with_events(&server);
    show(&found, 10, &json!({}));
    show_child(&found);
    look(&found).await;
    assert_eq!(told(&mut events), ["perhaps again: there"]);

    let (made, mut events) = controller_with_events(&server);
    show(&made, 10, &json!({}));
    look(&made).await;
    show_child(&made);
    look(&made).await;
    assert_eq!(told(&mut events), ["nothing -> there"]);
    // The child is gone and may not be made anew: what is told follows on what was told before.
    *server.refuses.lock() = Some((Method::POST, 403));
    made.reconciler
        .context
        .index
        .delete_job(&serde_json::from_value(json!({"name": "a", "namespace": "ns", "uid": "c"})).unwrap());
    made.reconciler
        .store
        .remember(&key(), "u", |local| local.created = None);
    look(&made).await;
    assert_eq!(told(&mut events), ["there -> not here"]);
}

#[tokio::test(start_paused = true)]
async fn a_status_that_can_wait_is_written_with_what_comes_next_or_after_a_while() {
    let server = Server::default();
    let controller = controller(&server);
    show_child(&controller);
    show(&controller, 10, &json!({"spec": {"patient": true}}));
    let begun = Instant::now();
    let due = begun + STATUS_DELAY;
    let is_due = |next: Requeue| matches!(next, Requeue::At(at) if at == due);
    assert!(is_due(look(&controller).await));
    tokio::time::advance(STATUS_DELAY / 2).await;
    assert!(is_due(look(&controller).await), "it waits no longer than that");
    assert_eq!(server.written(), []);
    tokio::time::advance(STATUS_DELAY / 2).await;
    assert!(matches!(look(&controller).await, Requeue::Rest));
    assert_eq!(server.written(), [(Method::PUT, STATUS.to_owned())]);

    // The next one has its own time, and is written at once when it can't wait any more.
    show(
        &controller,
        10_000,
        &json!({"spec": {"patient": true}, "status": {"phase": "odd"}}),
    );
    assert!(matches!(look(&controller).await, Requeue::At(_)));
    assert_eq!(server.written(), []);
    show(&controller, 10_001, &json!({"status": {"phase": "odd"}}));
    assert!(matches!(look(&controller).await, Requeue::Rest));
    assert_eq!(server.written(), [(Method::PUT, STATUS.to_owned())]);
}

#[tokio::test]
async fn a_watch_that_begins_anew_is_counted_by_its_kind() {
    let controller = controller(&Server::default());
    let feeder = Feeder {
        kind: &TOY,
        scope: 0,
        store: controller.reconciler.store.clone(),
        queue: controller.queue.clone(),
        listed: controller.reconciler.listed.clone(),
        metrics: controller.reconciler.context.metrics.clone(),
        failure_is_logged: AtomicBool::new(false),
    };
    crate::listwatch::Sink::interrupted(&feeder, None);
    let text = controller.reconciler.context.metrics.render();
    let line = "trainyard_watch_restarts_total{kind=\"Toy.toys.example\"} 1\n";
    assert!(text.contains(line), "{text}");
}

#[tokio::test]
async fn a_status_that_the_server_forgets_is_not_written_over_and_over() {
    let server = Server {
        forgets: true,
        ..Server::default()
    };
    let controller = controller(&server);
    show(&controller, 10, &json!({}));
    show_child(&controller);
    look(&controller).await;
    assert_eq!(server.written().len(), 1);
    look(&controller).await;
    look(&controller).await;
    assert_eq!(server.written(), []);
    // Somebody else has changed it: it is told again.
    show(&controller, 10_000, &json!({"status": {"phase": "odd"}}));
    look(&controller).await;
    assert_eq!(server.written().len(), 1);
}

#[tokio::test]
async fn what_the_server_refuses_is_told_and_tried_again() {
    let server = Server::default();
    *server.refuses.lock() = Some((Method::POST, 403));
    let controller = controller(&server);
    show(&controller, 10, &json!({}));
    assert!(matches!(look(&controller).await, Requeue::Retry(None)));
    let told = server.writes.lock().last().unwrap().2["status"]["phase"].clone();
    assert_eq!(told, "not here");
    server.written();
    assert!(matches!(look(&controller).await, Requeue::Retry(None)));
    assert_eq!(
        server.written(),
        [(Method::POST, JOBS.to_owned())],
        "what was told is not told again"
    );
    *server.refuses.lock() = None;
    assert!(matches!(look(&controller).await, Requeue::At(_)));
    show_child(&controller);
    look(&controller).await;
    assert_eq!(server.written().len(), 2);
}

#[tokio::test]
async fn an_object_that_is_too_large_is_told_so_and_gets_no_child() {
    let server = Server::default();
    let controller = controller(&server);
    let large = json!({"list": vec![0; 6000]});
    show(&controller, 10, &json!({"spec": large}));
    look(&controller).await;
    let told = server.writes.lock().last().unwrap().2["status"]["phase"].clone();
    assert_eq!(server.written(), [(Method::PUT, STATUS.to_owned())]);
    assert!(told.as_str().unwrap().starts_with("spec: this has 600"), "{told}");
    // Once, however often it is looked at, and until it is smaller.
    show(
        &controller,
        20_000,
        &json!({"spec": large, "status": {"phase": told}}),
    );
    look(&controller).await;
    assert_eq!(server.written(), []);
    show(
        &controller,
        30_000,
        &json!({"spec": {}, "status": {"phase": told}}),
    );
    look(&controller).await;
    assert_eq!(server.written()[0], (Method::POST, JOBS.to_owned()));
}

#[tokio::test]
async fn what_is_to_be_told_of_a_child_is_told_once_it_was_written() {
    let server = Server::default();
    *server.refuses.lock() = Some((Method::POST, 500));
    let (controller, mut events) = controller_with_events(&server);
    show(&controller, 10, &json!({"spec": {"odd": true}}));
    look(&controller).await;
    assert_eq!(told(&mut events), [""; 0], "there is no child");
    *server.refuses.lock() = None;
    look(&controller).await;
    assert_eq!(told(&mut events), ["odd"]);
    look(&controller).await;
    assert_eq!(told(&mut events), [""; 0], "it is on its way");
    show_child(&controller);
    look(&controller).await;
    assert_eq!(told(&mut events), ["nothing -> there"], "it was not written");
    *server.refuses.lock() = Some((Method::PUT, 500));
    show(
        &controller,
        10_000,
        &json!({"spec": {"odd": true, "changed": true}, "status": {"phase": "there"}}),
    );
    look(&controller).await;
    assert_eq!(told(&mut events), [""; 0], "it was not replaced");
    *server.refuses.lock() = None;
    look(&controller).await;
    assert_eq!(told(&mut events), ["odd"]);
}

#[tokio::test]
async fn an_object_is_deleted_as_it_was_seen_and_once() {
    let server = Server::default();
    let controller = controller(&server);
    show(
        &controller,
        10,
        &json!({"spec": {"over": true}, "status": {"phase": "there"}}),
    );
    show_child(&controller);
    look(&controller).await;
    let (method, _, options) = server.writes.lock().last().unwrap().clone();
    assert_eq!(method, Method::DELETE);
    assert_eq!(
        options["preconditions"],
        json!({"uid": "u", "resourceVersion": "10"})
    );
    server.written();
    look(&controller).await;
    assert_eq!(server.written(), []);
}

/// What an object has come to is told before it is deleted, also where the server does not keep it.
#[rstest]
#[tokio::test]
async fn an_object_whose_time_is_over_is_told_of_and_then_deleted(#[values(false, true)] forgets: bool) {
    let server = Server {
        forgets,
        ..Server::default()
    };
    let controller = controller(&server);
    show(&controller, 10, &json!({"spec": {"over": true}}));
    show_child(&controller);
    assert!(matches!(look(&controller).await, Requeue::At(_)));
    assert_eq!(server.written(), [(Method::PUT, STATUS.to_owned())]);
    look(&controller).await;
    let (method, _, options) = server.writes.lock().last().unwrap().clone();
    assert_eq!(method, Method::DELETE);
    let version =
        controller.reconciler.store.get(&key()).unwrap().object["metadata"]["resourceVersion"].clone();
    assert_eq!(
        options["preconditions"]["resourceVersion"], version,
        "as it is now"
    );
    assert_ne!(version, "10");
    server.written();
    look(&controller).await;
    assert_eq!(server.written(), []);
}

#[tokio::test]
async fn nothing_is_written_without_the_lead() {
    let server = Server::default();
    let controller = controller(&server);
    show(&controller, 10, &json!({}));
    let term = CancellationToken::new();
    term.cancel();
    let next = controller.reconcile(&key(), &term).await.next;
    assert!(
        matches!(next, Requeue::At(_)),
        "the term may go on, and the object is not to be forgotten"
    );
    show_child(&controller);
    assert!(matches!(
        controller.reconcile(&key(), &term).await.next,
        Requeue::At(_)
    ));
    assert_eq!(server.written(), []);
}

/// A key that was out when a term ended would otherwise never be looked at again.
#[tokio::test]
async fn what_was_under_way_when_a_term_ended_is_looked_at_in_the_next() {
    let server = Server::default();
    let controller = controller(&server);
    controller.reconciler.store.listed(0, Version(5));
    show(&controller, 10, &json!({}));
    for _ in 0..2 {
        let store = &controller.reconciler.store;
        store.remember(&key(), "u", |local| local.created = None);
        let written = async {
            while server.writes.lock().is_empty() {
                tokio::task::yield_now().await;
            }
        };
        let shutdown = CancellationToken::new();
        controller.lead(Instant::now(), written, &shutdown).await;
        assert_eq!(server.written(), [(Method::POST, JOBS.to_owned())]);
    }
}

#[tokio::test]
async fn who_else_writes_a_status_is_seen() {
    let controller = controller(&Server::default());
    let managed = |manager: &str, subresource: &str| {
        json!({"metadata": {
            "name": "a", "namespace": "ns", "uid": "u", "resourceVersion": VERSION.fetch_add(1, Ordering::Relaxed).to_string(),
            "managedFields": [{"manager": manager, "subresource": subresource, "operation": "Update"}],
        }})
    };
    let writer = |manager: &str, subresource: &str| {
        show(&controller, 0, &managed(manager, subresource));
        let entry = controller.reconciler.store.get(&key()).unwrap();
        assert!(entry.object["metadata"].get("managedFields").is_none());
        entry.other_writer
    };
    assert_eq!(writer("trainyard", "status"), None);
    assert_eq!(writer("kubectl", ""), None);
    assert_eq!(writer("mpi-operator", "status").as_deref(), Some("mpi-operator"));
}

#[tokio::test]
async fn lists_forget_what_is_gone_and_refusals_leave_everything_alone() {
    let controller = controller(&Server::default());
    let store = &controller.reconciler.store;
    assert!(!store.is_listed());
    store.listing(0, Version(20));
    show(&controller, 10, &json!({}));
    store.listed(0, Version(20));
    assert!(store.is_listed() && store.contains(&key()));
    store.listing(0, Version(30));
    store.listed(0, Version(30));
    assert!(!store.contains(&key()));
    show(&controller, 40, &json!({}));
    show(&controller, 39, &json!({"spec": {"late": true}}));
    assert!(store.get(&key()).unwrap().object.get("spec").is_none());
    store.refused(0);
    assert!(!store.contains(&key()) && store.is_listed());
}
