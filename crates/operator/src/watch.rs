//! The watches of jobs, pods, Services, nodes and disruption budgets, which feed the index and the
//! queue.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use k8s_openapi::api::core::v1::{Node, Pod, Service};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::Resource;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::Instant;
use trainyard_api::TrainingJob;

use crate::controller::Queue;
use crate::index::{Index, JobKey, Kind, Source};
use crate::listwatch::{Error, Sink, Target, follow};
use crate::metrics::{self, Metrics};
use crate::slim::{JobObject, SlimBudget, SlimMeta, SlimNode, SlimPod, Version, selector};

pub(crate) struct Watches {
    client: kube::Client,
    /// The namespaces to watch; all, if empty.
    namespaces: Vec<String>,
    index: Arc<Index>,
    /// Changes when all lists are to be made again.
    resync: watch::Sender<u64>,
    /// Changes with every list that is complete.
    listed: Arc<watch::Sender<u64>>,
}

impl Watches {
    pub(crate) fn new(client: kube::Client, namespaces: Vec<String>, index: Arc<Index>) -> Self {
        Self {
            client,
            namespaces,
            index,
            resync: watch::Sender::new(0),
            listed: Arc::new(watch::Sender::new(0)),
        }
    }

    /// Starts the watches. They add the keys of changed jobs to the queue.
    pub(crate) fn start(&self, queue: &Arc<Queue<JobKey>>, metrics: &Arc<Metrics>) -> JoinSet<()> {
        let mut tasks = JoinSet::new();
        for (kind, scope, target) in targets(&self.namespaces) {
            let namespace = self.namespaces.get(scope).filter(|_| kind != Kind::Node);
            let feeder = Feeder {
                kind,
                scope,
                index: self.index.clone(),
                queue: queue.clone(),
                metrics: metrics.clone(),
                listed: self.listed.clone(),
                failure_is_logged: AtomicBool::new(false),
                namespace: namespace.cloned(),
            };
            let (client, resync) = (self.client.clone(), self.resync.subscribe());
            tasks.spawn(async move { follow(client, target, &feeder, resync).await });
        }
        tasks
    }

    /// Waits until the index holds everything that anybody had written at `began`: until everything
    /// has been listed by lists that began no earlier. Lists again where it has not been.
    pub(crate) async fn catch_up(&self, began: Instant) {
        // Lists that are under way are waited for before new ones are asked for.
        self.wait(None).await;
        if !self.index.is_listed_since(Some(began)) {
            self.resync.send_modify(|number| *number += 1);
            self.wait(Some(began)).await;
        }
    }

    async fn wait(&self, since: Option<Instant>) {
        let mut listed = self.listed.subscribe();
        while !self.index.is_listed_since(since) {
            // The sender is a field of this: it can't be gone.
            let _ = listed.changed().await;
        }
    }
}

fn targets(namespaces: &[String]) -> Vec<(Kind, usize, Target)> {
    let scopes: Vec<Option<&str>> = match namespaces {
        [] => vec![None],
        some => some.iter().map(|name| Some(name.as_str())).collect(),
    };
    let children = Some(selector());
    let mut targets = Vec::new();
    for (scope, namespace) in scopes.into_iter().enumerate() {
        let target = |kind: Kind, path, labels, metadata_only| {
            let target = Target {
                kind: kind.as_str(),
                path,
                labels,
                metadata_only,
                page: 500,
            };
            (kind, scope, target)
        };
        targets.extend([
            target(Kind::Job, TrainingJob::url_path(&(), namespace), None, false),
            target(Kind::Pod, Pod::url_path(&(), namespace), children.clone(), false),
            target(
                Kind::Service,
                Service::url_path(&(), namespace),
                children.clone(),
                true,
            ),
            // Also those of others, which may select our pods.
            target(
                Kind::Budget,
                PodDisruptionBudget::url_path(&(), namespace),
                None,
                false,
            ),
        ]);
    }
    let nodes = Target {
        kind: Kind::Node.as_str(),
        path: Node::url_path(&(), None),
        labels: None,
        metadata_only: false,
        // A node lists all its images: it is ten times as large as a pod.
        page: 100,
    };
    targets.push((Kind::Node, 0, nodes));
    targets
}

/// Feeds the objects of one watch into the index, and the keys of changed jobs into the queue.
struct Feeder {
    kind: Kind,
    scope: usize,
    index: Arc<Index>,
    queue: Arc<Queue<JobKey>>,
    metrics: Arc<Metrics>,
    listed: Arc<watch::Sender<u64>>,
    failure_is_logged: AtomicBool,
    /// The watched namespace; none for all.
    namespace: Option<String>,
}

impl Feeder {
    fn enqueue(&self, key: Option<JobKey>) {
        if let Some(key) = key {
            self.queue.add(key);
        }
    }

    /// Logs the first failure as a warning, and those that follow it for debugging.
    fn log_failure(&self, error: &Error) {
        let kind = self.kind.as_str();
        let first = !self.failure_is_logged.swap(true, Ordering::Relaxed);
        match (self.kind, error.code()) {
            (Kind::Node, Some(403)) if first => {
                tracing::warn!(
                    "nodes may not be watched: pods of nodes that are down are not noticed ({error})"
                );
            }
            (Kind::Budget, Some(403 | 404)) if first => {
                tracing::warn!(
                    "disruption budgets may not be watched: jobs get none, and `kubectl drain` does not wait for their \
                     checkpoints ({error})"
                );
            }
            (Kind::Job, Some(404)) if first => {
                tracing::error!(
                    "the cluster does not know TrainingJob: apply the output of `trainyard install`"
                );
            }
            (_, Some(403 | 404)) if first && self.namespace.is_some() => {
                let namespace = self.namespace.as_deref().unwrap_or_default();
                tracing::warn!(
                    namespace,
                    kind,
                    %error,
                    "a namespace may not be watched, and its jobs are left alone: give the operator its Role there, or \
                     take the namespace from --watch-namespace"
                );
            }
            _ if first => tracing::warn!(kind, %error, "a watch was interrupted and is tried again"),
            _ => tracing::debug!(kind, %error, "a watch was interrupted and is tried again"),
        }
    }
}

impl Sink for Feeder {
    fn listing(&self, version: Version) {
        self.index.listing(self.kind, self.scope, version);
    }

    fn object(&self, json: &str, source: Source) -> Result<Version, serde_json::Error> {
        Ok(match self.kind {
            Kind::Job => {
                let job = JobObject::decode(json)?;
                let version = job.version();
                self.enqueue(self.index.apply_job(job, source));
                version
            }
            Kind::Pod => {
                let pod: SlimPod = serde_json::from_str(json)?;
                let version = pod.metadata.resource_version;
                self.enqueue(self.index.apply_pod(pod, source));
                version
            }
            Kind::Service => {
                let service: SlimMeta = serde_json::from_str(json)?;
                self.enqueue(self.index.apply_service(&service, source));
                service.metadata.resource_version
            }
            Kind::Node => {
                let node: SlimNode = serde_json::from_str(json)?;
                self.queue.extend(self.index.apply_node(&node, source));
                node.metadata.resource_version
            }
            Kind::Budget => {
                let budget: SlimBudget = serde_json::from_str(json)?;
                let version = budget.metadata.resource_version;
                self.queue.extend(self.index.apply_budget(budget, source));
                version
            }
        })
    }

    fn gone(&self, json: &str) -> Result<Version, serde_json::Error> {
        if self.kind == Kind::Job {
            let job = JobObject::decode(json)?;
            self.enqueue(self.index.delete_job(job.metadata()));
            return Ok(job.version());
        }
        let SlimMeta { metadata } = serde_json::from_str(json)?;
        match self.kind {
            Kind::Node => {
                let version = metadata.resource_version;
                self.queue.extend(self.index.delete_node(&metadata.name, version));
            }
            Kind::Budget => self.queue.extend(self.index.delete_budget(&metadata)),
            kind => self.enqueue(self.index.delete_child(kind, &metadata)),
        }
        Ok(metadata.resource_version)
    }

    fn listed(&self, version: Version, began: Instant) {
        let keys = self.index.listed(self.kind, self.scope, version, began);
        self.queue.extend(keys);
        self.listed.send_modify(|number| *number += 1);
        if self.failure_is_logged.swap(false, Ordering::Relaxed) {
            tracing::info!(kind = self.kind.as_str(), "the watch is back");
        }
    }

    fn refused(&self) {
        self.queue.extend(self.index.refused(self.kind, self.scope));
        self.listed.send_modify(|number| *number += 1);
    }

    fn bookmark(&self, version: Version) {
        self.index.bookmark(self.kind, self.scope, version);
    }

    fn interrupted(&self, error: Option<&Error>) {
        self.metrics.watch_restarted(match self.kind {
            Kind::Job => metrics::Kind::TrainingJob,
            Kind::Pod => metrics::Kind::Pod,
            Kind::Service => metrics::Kind::Service,
            Kind::Node => metrics::Kind::Node,
            Kind::Budget => metrics::Kind::PodDisruptionBudget,
        });
        if let Some(error) = error {
            self.log_failure(error);
        }
    }
}
