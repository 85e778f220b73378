//! Jobs and bare pods, made by parallel clients, and a watch of jobs.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use kube::Client;
use kube::api::{DeleteParams, PostParams, Request};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinSet};
use trainyard_api::TrainingJob;
use trainyard_core::build;
use trainyard_core::job::Job;
use trainyard_core::model::PodKey;
use trainyard_core::view::Settings;
use trainyard_testkit::load::{Change, Target, follow};

/// How many clients create objects at once.
const CLIENTS: usize = 32;

/// The containers of every pod.
fn pod_spec() -> Value {
    json!({"containers": [{
        "name": "train",
        "image": "registry.example/train:1",
        "command": ["python", "train.py"],
    }]})
}

pub fn job(name: &str, pods: usize) -> Value {
    json!({
        "apiVersion": "trainyard.dev/v1alpha1",
        "kind": "TrainingJob",
        "metadata": {"name": name},
        "spec": {
            "framework": {"name": "pytorch"},
            "runPolicy": {"backoffLimit": 1000},
            "roles": [{"name": "worker", "replicas": pods, "template": {"spec": pod_spec()}}],
        },
    })
}

/// The same job, but a pod of it that fails is replaced alone.
pub fn with_single_restarts(mut job: Value) -> Value {
    job["spec"]["roles"][0]["restartScope"] = "Pod".into();
    job
}

/// The pods of jobs, as the operator makes them but without an owner.
pub fn bare_pods(namespace: &str, jobs: &[Value]) -> Result<Vec<Value>> {
    let settings = Settings::default();
    let mut pods = Vec::new();
    for job in jobs {
        let mut job: TrainingJob = serde_json::from_value(job.clone())?;
        job.metadata.namespace = Some(namespace.to_owned());
        let job = Job::parse(&job).map_err(|errors| anyhow!("an invalid job: {errors:?}"))?;
        for index in 0.. {
            let Some(mut pod) = build::pod(&job, &settings, PodKey { role: 0, index }) else {
                break;
            };
            pod.metadata.owner_references = None;
            pods.push(serde_json::to_value(pod)?);
        }
    }
    Ok(pods)
}

/// The collection of jobs of a namespace.
pub fn jobs_path(namespace: &str) -> String {
    format!("/apis/trainyard.dev/v1alpha1/namespaces/{namespace}/trainingjobs")
}

/// The collection of pods of a namespace.
pub fn pods_path(namespace: &str) -> String {
    format!("/api/v1/namespaces/{namespace}/pods")
}

/// Creates objects with [`CLIENTS`] clients in parallel.
pub async fn create_all(client: &Client, path: &str, objects: Vec<Value>) -> Result<()> {
    let bodies = objects.iter().map(serde_json::to_vec).collect::<Result<_, _>>()?;
    let (client, request) = (client.clone(), Request::new(path.to_owned()));
    in_parallel(bodies, move |body| create(client.clone(), request.clone(), body))
        .await
        .context("create")
}

/// Deletes objects with [`CLIENTS`] clients in parallel.
pub async fn delete_all(client: &Client, path: &str, names: Vec<String>) -> Result<()> {
    let (client, request) = (client.clone(), Request::new(path.to_owned()));
    in_parallel(names, move |name| delete(client.clone(), request.clone(), name))
        .await
        .context("delete")
}

async fn in_parallel<T, F>(items: Vec<T>, send: impl Fn(T) -> F + Clone + Send + 'static) -> Result<()>
where
    T: Send + 'static,
    F: Future<Output = Result<()>> + Send,
{
    let mut shares: Vec<Vec<T>> = (0..CLIENTS).map(|_| Vec::new()).collect();
    for (number, item) in items.into_iter().enumerate() {
        shares[number % CLIENTS].push(item);
    }
    let mut tasks = JoinSet::new();
    for share in shares.into_iter().filter(|share| !share.is_empty()) {
        let send = send.clone();
        tasks.spawn(async move {
            for item in share {
                send(item).await?;
            }
            anyhow::Ok(())
        });
    }
    while let Some(result) = tasks.join_next().await {
        result??;
    }
    Ok(())
}

async fn delete(client: Client, pods: Request, name: String) -> Result<()> {
    let request = pods.delete(&name, &DeleteParams::default())?;
    Ok(client.request_text(request).await.map(drop)?)
}

/// Retries once: the server may close an idle connection just when it is used again.
async fn create(client: Client, request: Request, body: Vec<u8>) -> Result<()> {
    let send = || request.create(&PostParams::default(), body.clone());
    let again = match client.request_text(send()?).await {
        Err(kube::Error::Service(_) | kube::Error::HyperError(_)) => client.request_text(send()?).await,
        answer => answer,
    };
    match again {
        Err(kube::Error::Api(status)) if status.is_already_exists() => Ok(()),
        answer => Ok(answer.map(drop)?),
    }
}

#[derive(Clone, Deserialize)]
struct SlimJob {
    metadata: SlimMeta,
    #[serde(default)]
    status: SlimStatus,
}

#[derive(Clone, Deserialize)]
struct SlimMeta {
    name: String,
}

#[derive(Clone, Default, Deserialize)]
struct SlimStatus {
    #[serde(default)]
    phase: String,
}

/// The phases of jobs, with a count for each phase: counting thousands of jobs at every change
/// would be slow.
#[derive(Default)]
struct Phases {
    of: HashMap<String, String>,
    count: HashMap<String, usize>,
}

impl Phases {
    fn put(&mut self, job: SlimJob) {
        self.remove(&job.metadata.name);
        *self.count.entry(job.status.phase.clone()).or_default() += 1;
        self.of.insert(job.metadata.name, job.status.phase);
    }

    fn remove(&mut self, name: &str) {
        if let Some(count) = self.of.remove(name).and_then(|phase| self.count.get_mut(&phase)) {
            *count -= 1;
        }
    }

    fn jobs_in(&self, phase: &str) -> usize {
        self.count.get(phase).copied().unwrap_or_default()
    }
}

/// Watches the phases of the jobs of a namespace.
pub struct Jobs {
    phases: Arc<watch::Sender<Phases>>,
    task: AbortHandle,
}

impl Drop for Jobs {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Jobs {
    pub fn watch(client: &Client, namespace: &str) -> Self {
        let phases = Arc::new(watch::Sender::new(Phases::default()));
        let target = Target {
            path: jobs_path(namespace),
            labels: String::new(),
        };
        let sender = phases.clone();
        let handle = move |change: Change<SlimJob>| {
            sender.send_modify(|phases| match change {
                Change::Listed(jobs) => {
                    *phases = Phases::default();
                    for job in jobs {
                        phases.put(job);
                    }
                }
                Change::Applied(job) => phases.put(job),
                Change::Deleted(job) => phases.remove(&job.metadata.name),
            });
        };
        let task = tokio::spawn(follow(client.clone(), target, handle)).abort_handle();
        Self { phases, task }
    }

    /// How many jobs are in a phase.
    pub fn count(&self, phase: &str) -> usize {
        self.phases.borrow().jobs_in(phase)
    }

    /// Waits until so many jobs are in a phase.
    pub async fn until(&self, phase: &str, jobs: usize, limit: Duration) -> Result<()> {
        let mut receiver = self.phases.subscribe();
        let reached = receiver.wait_for(|phases| phases.jobs_in(phase) == jobs);
        if tokio::time::timeout(limit, reached).await.is_err() {
            let found = self.phases.borrow().jobs_in(phase);
            bail!("after {} s {found} of {jobs} jobs are {phase}", limit.as_secs());
        }
        Ok(())
    }
}
