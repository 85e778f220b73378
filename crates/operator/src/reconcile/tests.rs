mod changed;
mod denied;
mod identity;
mod life;
mod rights;
mod server;
mod trouble;

use serde_json::{Value, json};

use self::server::{Server, next_version};
use super::*;
use crate::events::Senders;
use crate::index::{Kind, Source};
use crate::leader::Leadership;
use crate::settings::SharedSettings;
use crate::slim::{JobObject, SlimMeta, Version};

struct Operator {
    server: Server,
    settings: SharedSettings,
    reconciler: Reconciler,
    senders: Senders,
    term: CancellationToken,
}

impl Operator {
    fn new() -> Self {
        Self::before(Server::default())
    }

    /// An operator that has just been started.
    fn before(server: Server) -> Self {
        let index = Arc::new(Index::new(&[]));
        for kind in [Kind::Job, Kind::Pod, Kind::Service] {
            index.listing(kind, 0, Version(5));
            index.listed(kind, 0, Version(5), Instant::now());
        }
        let leadership = Leadership::always();
        let settings = SharedSettings::default();
        let writer = Writer::new(
            server.client(),
            index.clone(),
            leadership.clone(),
            settings.clone(),
        );
        let (recorder, senders) = Recorder::start(&server.client(), writer.limiter(), &leadership, "test");
        let reconciler = Reconciler {
            writer,
            index,
            recorder,
            metrics: Arc::new(Metrics::new()),
            clock: Arc::new(crate::clock::SystemClock),
        };
        Self {
            server,
            settings,
            reconciler,
            senders,
            term: CancellationToken::new(),
        }
    }

    /// An operator with a job of so many pods that all run, and are replaced if they fail.
    async fn running(replicas: usize) -> Self {
        let operator = Self::new();
        operator.apply(&replaced(replicas));
        operator.settle().await;
        for index in 0..replicas {
            operator.pod_is(index, "Running");
        }
        operator.settle().await;
        operator
    }

    fn apply(&self, job: &Value) {
        self.reconciler
            .index
            .apply_job(JobObject::decode(&job.to_string()).unwrap(), Source::Watch);
    }

    /// The watch shows the pod of an index in a phase.
    fn pod_is(&self, index: usize, phase: &str) {
        let pod = serde_json::from_value(self.server.pod(index, phase)).unwrap();
        self.reconciler.index.apply_pod(pod, Source::Watch);
    }

    /// The watch shows the pod of an index as deleted.
    fn pod_is_gone(&self, index: usize) {
        let pod: SlimMeta = serde_json::from_value(self.server.pod(index, "")).unwrap();
        self.reconciler.index.delete_child(Kind::Pod, &pod.metadata);
    }

    async fn reconcile(&self) -> ReconcileResult {
        self.reconciler
            .reconcile(&JobKey::new("ns", "a"), &self.term)
            .await
    }

    /// Reconciles until there is nothing more to do at once.
    async fn settle(&self) -> ReconcileResult {
        for _ in 0..10 {
            let result = self.reconcile().await;
            if result.next != Requeue::Again {
                return result;
            }
        }
        panic!("it does not come to rest");
    }

    /// Shuts down, so that all events have been sent.
    async fn end(self) -> Server {
        drop(self.reconciler);
        self.senders.finish().await;
        self.server
    }
}

fn job(replicas: usize) -> Value {
    json!({
        "metadata": {"name": "a", "namespace": "ns", "uid": "u1", "resourceVersion": "7", "generation": 1},
        "spec": {"framework": {"name": "custom"}, "roles": [{"name": "w", "replicas": replicas,
            "template": {"spec": {"containers": [{"name": "train", "image": "i"}]}}}]},
    })
}

/// A job whose pods are replaced if they fail.
fn replaced(replicas: usize) -> Value {
    let mut job = job(replicas);
    job["spec"]["roles"][0]["restartPolicy"] = json!("OnFailure");
    job
}
