//! Runs on the embedded API. The operator and the nodes are played by the test, which says what
//! happens when.

mod drain;
mod keys;
mod progress;

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex};

use futures::channel::mpsc::{UnboundedReceiver, UnboundedSender, unbounded};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::json;
use tokio::task::JoinHandle;
use trainyard_api::names;
use trainyard_core::build::MAIN_CONTAINER;
use trainyard_eventually::{eventually_async, within};
use trainyard_local::api::{Api as Server, LogOptions, LogStream, NodeAccess, PodRef, Start};
use trainyard_local::env::Environment;

use super::*;
use crate::run::view::Item;

const NODE: &str = "stage";

/// Remembers what was shown.
#[derive(Clone, Default)]
struct Recorded(Arc<Mutex<Vec<Item>>>);

impl Show for Recorded {
    fn items(&mut self, items: &[Item]) -> io::Result<()> {
        self.0.lock().unwrap().extend_from_slice(items);
        Ok(())
    }

    fn end(&mut self, _: &Summary) -> io::Result<()> {
        Ok(())
    }
}

impl Recorded {
    fn lines(&self) -> Vec<String> {
        let items = self.0.lock().unwrap();
        let lines = items.iter().filter_map(|item| match item {
            Item::Log { source, line } => Some(format!("{}: {line}", source.label)),
            _ => None,
        });
        lines.collect()
    }

    fn phases(&self) -> Vec<&'static str> {
        let items = self.0.lock().unwrap();
        let phases = items.iter().filter_map(|item| match item {
            Item::Phase { phase, .. } => Some(phase.as_str()),
            _ => None,
        });
        phases.collect()
    }
}

/// Logs, by pod; each is read once.
#[derive(Default)]
struct Logs(Mutex<BTreeMap<String, UnboundedReceiver<io::Result<bytes::Bytes>>>>);

impl NodeAccess for Logs {
    fn logs(&self, pod: PodRef<'_>, _: &str, options: LogOptions) -> Result<LogStream, String> {
        assert!(options.follow);
        let log = self.0.lock().unwrap().remove(pod.name);
        log.map(StreamExt::boxed)
            .ok_or_else(|| "there is no log".to_owned())
    }

    fn exec(&self, _: PodRef<'_>, _: &str, _: Vec<String>, _: bool) -> Option<Start> {
        None
    }
}

/// A cluster on which the test plays everyone but the driver.
struct Stage {
    client: Client,
    logs: Arc<Logs>,
    shown: Recorded,
    interrupt: UnboundedSender<()>,
    key: UnboundedSender<SizeKey>,
    progress: UnboundedSender<(String, String)>,
    run: JoinHandle<Result<Summary, Error>>,
}

fn plan(timeout: Option<Duration>) -> Plan {
    let job = json!({
        "apiVersion": "trainyard.dev/v1alpha1",
        "kind": "TrainingJob",
        "metadata": {"name": "mnist"},
        "spec": {
            "framework": {"name": "custom"},
            "roles": [{"name": "worker", "replicas": 2,
                "template": {"spec": {"containers": [{"name": "main", "image": "x", "command": ["true"]}]}}}],
        },
    });
    let config =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "data"}, "data": {"a": "b"}});
    Plan {
        job: serde_json::from_value(job).unwrap(),
        companions: vec![config],
        notes: vec!["take care".to_owned()],
        timeout,
        has_keys: false,
    }
}

impl Stage {
    /// The driver has been started, and the job is there.
    async fn new(timeout: Option<Duration>) -> Self {
        Self::start(plan(timeout), |client| client).await
    }

    /// The same, with a driver that reaches the cluster in some way.
    async fn start(plan: Plan, reach: impl FnOnce(Client) -> Client) -> Self {
        let server = Server::new(Environment::seeded(1));
        let client = server.client("default");
        let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
        let definition = trainyard_api::crd::training_job().unwrap();
        definitions
            .create(&PostParams::default(), &definition)
            .await
            .unwrap();
        let logs = Arc::new(Logs::default());
        server.attach_node(NODE, logs.clone());
        let shown = Recorded::default();
        let ((interrupt, interrupts), (progress, reports)) = (unbounded(), unbounded());
        let (key, keys) = unbounded();
        let run = tokio::spawn({
            let (client, mut shown) = (reach(client.clone()), shown.clone());
            async move {
                let start = Instant::now();
                let driven = drive(client, plan, start, &mut shown, interrupts, keys, reports);
                Box::pin(driven).await
            }
        });
        let stage = Self {
            client,
            logs,
            shown,
            interrupt,
            key,
            progress,
            run,
        };
        stage
            .until("the job is there", async || {
                stage.jobs().get("mnist").await.is_ok()
            })
            .await;
        stage
    }

    fn jobs(&self) -> Api<TrainingJob> {
        Api::default_namespaced(self.client.clone())
    }

    fn pods(&self) -> Api<Pod> {
        Api::default_namespaced(self.client.clone())
    }

    async fn until(&self, what: &str, condition: impl AsyncFn() -> bool) {
        eventually_async(what, async || {
            condition().await.then_some(()).ok_or_else(String::new)
        })
        .await;
    }

    /// The operator says something.
    async fn job(&self, status: Value) {
        let patch = Patch::Merge(json!({"status": status}));
        self.jobs()
            .patch_status("mnist", &PatchParams::default(), &patch)
            .await
            .unwrap();
    }

    /// The operator makes a pod, and a node will have its log.
    async fn pod(&self, index: i32) -> UnboundedSender<io::Result<bytes::Bytes>> {
        let job = self.jobs().get("mnist").await.unwrap();
        let name = names::pod("mnist", "worker", index);
        let pod = json!({
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": name,
                "labels": {
                    names::LABEL_JOB: "mnist", names::LABEL_ROLE: "worker", names::LABEL_INDEX: index.to_string(),
                },
                "annotations": {MAIN_CONTAINER: "main"},
                "ownerReferences": [kube::Resource::controller_owner_ref(&job, &()).unwrap()],
            },
            "spec": {"nodeName": NODE, "restartPolicy": "Never", "containers": [{"name": "main", "image": "x"}]},
        });
        let pod = serde_json::from_value(pod).unwrap();
        self.pods().create(&PostParams::default(), &pod).await.unwrap();
        let (log, lines) = unbounded();
        self.logs.0.lock().unwrap().insert(name, lines);
        log
    }

    /// A node says how a pod is.
    async fn is(&self, index: i32, phase: &str, state: Value) {
        let container = json!({"name": "main", "image": "x", "imageID": "", "ready": false, "restartCount": 0, "state": state});
        let patch = Patch::Merge(json!({"status": {"phase": phase, "containerStatuses": [container]}}));
        let name = names::pod("mnist", "worker", index);
        self.pods()
            .patch_status(&name, &PatchParams::default(), &patch)
            .await
            .unwrap();
    }

    async fn runs(&self, index: i32) -> UnboundedSender<io::Result<bytes::Bytes>> {
        let log = self.pod(index).await;
        self.is(index, "Running", json!({"running": {}})).await;
        log
    }

    async fn ends(&self, index: i32, code: i32) {
        let phase = if code == 0 { "Succeeded" } else { "Failed" };
        self.is(index, phase, json!({"terminated": {"exitCode": code}}))
            .await;
    }

    /// A node has ended a pod that was deleted.
    async fn removes(&self, index: i32) {
        let name = names::pod("mnist", "worker", index);
        let deleted = async || {
            let pod = self.pods().get_opt(&name).await.unwrap();
            pod.is_none_or(|pod| pod.metadata.deletion_timestamp.is_some())
        };
        self.until("the pod is deleted", deleted).await;
        let now = DeleteParams::default().grace_period(0);
        let _ = self.pods().delete(&name, &now).await;
    }

    /// A node writes an event about a pod.
    async fn warns(&self, index: i32, uid: Option<&str>, reason: &str) {
        let name = names::pod("mnist", "worker", index);
        let uid = match uid {
            Some(uid) => uid.to_owned(),
            None => self.pods().get(&name).await.unwrap().uid().unwrap(),
        };
        let event = json!({
            "apiVersion": "v1", "kind": "Event", "metadata": {"generateName": "warning-", "namespace": "default"},
            "involvedObject": {"kind": "Pod", "namespace": "default", "name": name, "uid": uid},
            "type": "Warning", "reason": reason, "message": "there is no volume",
        });
        let events: Api<k8s_openapi::api::core::v1::Event> = Api::default_namespaced(self.client.clone());
        let event = serde_json::from_value(event).unwrap();
        events.create(&PostParams::default(), &event).await.unwrap();
    }

    async fn hears(&self, line: &str) {
        self.until(line, async || {
            self.shown.lines().iter().any(|heard| heard == line)
        })
        .await;
    }

    async fn end(self) -> (Summary, Recorded) {
        let ended = within("it ends", self.run).await;
        (ended.unwrap().unwrap(), self.shown)
    }
}

fn say(log: &UnboundedSender<io::Result<bytes::Bytes>>, text: &str) {
    log.unbounded_send(Ok(text.to_owned().into())).unwrap();
}

#[tokio::test]
async fn a_job_is_followed_to_its_end() {
    let stage = Stage::new(None).await;
    let configs: Api<k8s_openapi::api::core::v1::ConfigMap> = Api::default_namespaced(stage.client.clone());
    assert!(
        configs.get("data").await.is_ok(),
        "what the job needs is there before it"
    );
    stage
        .job(json!({"phase": "Starting", "observedGeneration": 1}))
        .await;
    let log = stage.runs(0).await;
    stage.job(json!({"phase": "Running"})).await;
    say(&log, "hello\nwor");
    say(&log, "ld\n");
    stage.hears("worker-0: world").await;
    let report = ("mnist-worker-0".to_owned(), "step=1 total=2".to_owned());
    stage.progress.unbounded_send(report).unwrap();
    stage.ends(0, 0).await;
    stage.job(json!({"phase": "Succeeded"})).await;
    // The log arrives when the job has ended already.
    stage
        .until("the end is seen", async || {
            stage.shown.phases().contains(&"Succeeded")
        })
        .await;
    say(&log, "the last words");
    drop(log);
    let (summary, shown) = stage.end().await;
    assert_eq!((summary.outcome, summary.exit_code), (Outcome::Succeeded, 0));
    assert_eq!(
        shown.lines(),
        ["worker-0: hello", "worker-0: world", "worker-0: the last words"]
    );
    assert_eq!(shown.phases(), ["Starting", "Running", "Succeeded"]);
    assert_eq!(summary.progress.and_then(|progress| progress.total), Some(2));
    assert_eq!(summary.notes, ["take care"]);
}

#[tokio::test]
async fn what_only_events_say_about_a_pod_that_does_not_start_is_told_once() {
    let stage = Stage::new(None).await;
    stage.warns(0, Some("of-an-earlier-job"), "FailedMapVolume").await;
    let _logs = (stage.pod(0).await, stage.pod(1).await);
    // Told by the pod's own status.
    stage.warns(0, None, "BackOff").await;
    stage.warns(0, None, "FailedMount").await;
    stage.warns(1, None, "FailedMount").await;
    stage.warns(1, None, "FailedAttachVolume").await;
    let notes = || {
        let items = stage.shown.0.lock().unwrap();
        let notes = items.iter().filter_map(|item| match item {
            Item::Note(note) => note
                .split_once(" does not start: ")
                .map(|(_, why)| why.to_owned()),
            _ => None,
        });
        notes.collect::<Vec<_>>()
    };
    stage
        .until("the last is told", async || {
            notes().iter().any(|note| note.starts_with("FailedAttach"))
        })
        .await;
    assert_eq!(
        notes(),
        [
            "FailedMount: there is no volume",
            "FailedAttachVolume: there is no volume"
        ]
    );
    stage.job(json!({"phase": "Succeeded"})).await;
}

#[tokio::test]
async fn a_pod_that_ends_before_it_is_seen_is_heard() {
    let stage = Stage::new(None).await;
    let log = stage.pod(0).await;
    say(&log, "quick\n");
    drop(log);
    stage.ends(0, 3).await;
    let cause = json!({"role": "worker", "pod": "mnist-worker-0", "container": "main", "exitCode": 3});
    stage.job(json!({"phase": "Failed", "rootCause": cause})).await;
    let (summary, shown) = stage.end().await;
    assert_eq!(summary.outcome, Outcome::Failed);
    assert_eq!(shown.lines(), ["worker-0: quick"]);
    let cause = summary.root_cause.unwrap();
    assert_eq!(
        (cause.exit_code, cause.last_lines),
        (Some(3), vec!["quick".to_owned()])
    );
}

#[tokio::test]
async fn the_first_interrupt_waits_for_the_pods() {
    let stage = Stage::new(None).await;
    let log = stage.runs(0).await;
    say(&log, "hello\n");
    stage.hears("worker-0: hello").await;
    stage.interrupt.unbounded_send(()).unwrap();
    stage
        .until("the job is gone", async || {
            stage.jobs().get("mnist").await.is_err()
        })
        .await;
    say(&log, "bye\n");
    stage.hears("worker-0: bye").await;
    assert!(!stage.run.is_finished());
    drop(log);
    stage.removes(0).await;
    let (summary, _) = stage.end().await;
    assert_eq!((summary.outcome, summary.exit_code), (Outcome::Interrupted, 130));
}

#[tokio::test]
async fn the_second_interrupt_waits_for_nothing() {
    let stage = Stage::new(None).await;
    let log = stage.runs(0).await;
    say(&log, "hello\n");
    stage.hears("worker-0: hello").await;
    stage.interrupt.unbounded_send(()).unwrap();
    stage.interrupt.unbounded_send(()).unwrap();
    let pods = stage.pods();
    let (summary, _) = stage.end().await;
    assert_eq!(summary.outcome, Outcome::Interrupted);
    assert!(
        pods.get("mnist-worker-0").await.is_ok(),
        "its node has not ended it"
    );
}

#[tokio::test]
async fn a_job_that_takes_too_long_is_stopped() {
    let stage = Stage::new(Some(Duration::from_millis(200))).await;
    drop(stage.runs(0).await);
    stage.removes(0).await;
    let (summary, _) = stage.end().await;
    assert_eq!((summary.outcome, summary.exit_code), (Outcome::TimedOut, 3));
}

#[tokio::test]
async fn a_job_that_is_not_accepted_is_not_waited_for() {
    let stage = Stage::new(None).await;
    let condition = json!({"type": "Accepted", "status": "False", "reason": "OwnershipConflict",
        "message": "somebody has the name", "lastTransitionTime": "2026-01-01T00:00:00Z"});
    stage
        .job(json!({"phase": "Pending", "conditions": [condition]}))
        .await;
    let (summary, _) = stage.end().await;
    assert_eq!((summary.outcome, summary.exit_code), (Outcome::Refused, 2));
    assert_eq!(
        summary.message.as_deref(),
        Some("OwnershipConflict: somebody has the name")
    );
}

#[tokio::test]
async fn a_job_that_somebody_deletes_has_failed() {
    let stage = Stage::new(None).await;
    stage
        .jobs()
        .delete("mnist", &DeleteParams::default())
        .await
        .unwrap();
    let (summary, _) = stage.end().await;
    assert_eq!(summary.outcome, Outcome::Failed);
    assert_eq!(summary.message.as_deref(), Some("somebody deleted the job"));
}

#[tokio::test]
async fn a_name_that_is_taken_is_refused() {
    let stage = Stage::new(None).await;
    let (_, interrupts) = unbounded();
    let nothing = futures::stream::pending();
    let mut shown = Recorded::default();
    let second = drive(
        stage.client.clone(),
        plan(None),
        Instant::now(),
        &mut shown,
        interrupts,
        futures::stream::pending(),
        nothing,
    );
    let error = Box::pin(second).await.unwrap_err();
    assert!(matches!(error, Error::Refused(_)));
    assert!(
        error.to_string().starts_with("the job mnist exists already"),
        "{error}"
    );
    stage.interrupt.unbounded_send(()).unwrap();
    stage.end().await;
}
