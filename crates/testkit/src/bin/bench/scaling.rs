//! What it costs to change the size of a job that trains: how soon pods are there, how soon the
//! launcher's list of hosts knows, how many writes it takes, and whether a step is lost.

mod departure;
mod hosts;
mod training;

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use kube::api::{Patch, PatchParams, PostParams, Request};
use serde_json::{Value, json};
use trainyard_testkit::load::{Player, Scope};
use trainyard_testkit::namespace;
use trainyard_testkit::program::{Operator, OperatorMetrics};

use super::jobs::{bare_pods, create_all, jobs_path, pods_path};
use super::scenarios::{Bench, Size, Testbed};
use super::session::{Session, as_f64, log, per_job, requests_of, requests_since};
use super::stats::{median, spread};

const TIMEOUT: Duration = Duration::from_mins(5);
/// What a change may write besides creating or deleting its pods.
const WRITES: usize = 6;
/// The ratio that is aimed at.
const RATIO: f64 = 1.3;

/// How the size of a job is changed.
#[derive(Clone, Copy, Debug)]
enum Way {
    /// As `kubectl scale` does.
    Target,
    /// By a ScaleOut or a ScaleIn.
    Request,
}

impl Way {
    fn name(self) -> &'static str {
        match self {
            Self::Target => "kubectl scale",
            Self::Request => "ScaleOut and ScaleIn",
        }
    }
}

/// What became of one job that grew and shrank.
struct Resized {
    /// Seconds from the request until the last new pod was seen.
    created: f64,
    grown: OperatorMetrics,
    shrunk: OperatorMetrics,
}

impl Session {
    pub(super) async fn scaling(&mut self) -> Result<()> {
        self.scale_out().await?;
        if let Some(agent) = self.agent.clone().filter(|_| !self.smoke) {
            self.hosts_of_cluster(&agent).await?;
        }
        if !self.smoke {
            self.hosts_embedded().await?;
        }
        self.steps_lost().await
    }

    /// A job of one pod gets many more, and loses them again.
    async fn scale_out(&mut self) -> Result<()> {
        let pods = self.sizes.joining;
        let name = format!("scale by {pods}");
        for way in [Way::Target, Way::Request] {
            let mut ratios = Vec::new();
            let (mut seconds, mut floors) = (Vec::new(), Vec::new());
            let mut last = None;
            for _ in 0..self.rounds {
                let floor = self.bench.created(pods).await?;
                let resized = self.bench.resize(way, pods).await?;
                ratios.push(resized.created / floor);
                seconds.push(resized.created);
                floors.push(floor);
                last = Some(resized);
            }
            log(&format!(
                "{name} by {}: {:.2} s against {:.2} s",
                way.name(),
                median(&seconds),
                median(&floors)
            ));
            self.report.raw.push(json!({
                "scenario": name, "way": way.name(), "floorSeconds": floors, "seconds": seconds,
            }));
            let detail = format!(
                "{:.2} s against {:.2} s; {}",
                median(&seconds),
                median(&floors),
                spread(&ratios)
            );
            let measure = format!("{}, all created, x floor", way.name());
            self.figure(&name, &measure, median(&ratios), "x", Some(RATIO), detail);
            if let Some(resized) = last {
                self.writes(&name, way, "out", pods, &resized.grown);
                self.writes(&name, way, "in", pods, &resized.shrunk);
            }
        }
        Ok(())
    }

    /// Writes besides those of pods that join or leave.
    fn writes(&mut self, name: &str, way: Way, direction: &str, pods: usize, metrics: &OperatorMetrics) {
        let more = metrics.writes().saturating_sub(pods as u64);
        let detail = per_job(&metrics.of_jobs(), 1);
        self.report.raw.push(json!({
            "scenario": name, "way": way.name(), "direction": direction,
            "requests": requests_of(&metrics.requests),
        }));
        let measure = format!("{}, writes besides those of pods, {direction}", way.name());
        self.count(name, &measure, as_f64(more), as_f64(WRITES as u64), detail);
    }
}

impl Bench {
    /// Seconds until so many bare pods are there, created by parallel clients.
    async fn created(&self, pods: usize) -> Result<f64> {
        let namespace = self.namespace().await?;
        let player = Player::start(self.client.clone(), &Scope::namespace(&namespace), self.script());
        let size = Size { jobs: 1, pods };
        let manifests = bare_pods(&namespace, &size.manifests("j"))?;
        player.listed().await?;
        let begun = Instant::now();
        create_all(&self.client, &pods_path(&namespace), manifests).await?;
        player.until(|counts| counts.seen == pods).await?;
        let seconds = begun.elapsed().as_secs_f64();
        player.until(|counts| counts.started == pods).await?;
        drop(player);
        namespace::remove(&self.client, &namespace).await?;
        Ok(seconds)
    }

    /// Has a job of one pod grow by so many pods, and shrink again.
    async fn resize(&self, way: Way, pods: usize) -> Result<Resized> {
        let operator = self.program.start().await?;
        let testbed = self.testbed(self.script()).await?;
        let job = elastic_job("custom", 1);
        create_all(&self.client, &jobs_path(&testbed.namespace), vec![job]).await?;
        testbed.jobs.until("Running", 1, TIMEOUT).await?;
        let before = operator.wait_until_idle(TIMEOUT).await?;
        let begun = Instant::now();
        self.ask(way, &testbed.namespace, 1, 1 + pods).await?;
        testbed.player.until(|counts| counts.seen == 1 + pods).await?;
        let created = begun.elapsed().as_secs_f64();
        let grown = self.settled(&operator, &testbed, 1 + pods).await?;
        self.ask(way, &testbed.namespace, 1 + pods, 1).await?;
        testbed.player.until(|counts| counts.removed == pods).await?;
        let shrunk = self.settled(&operator, &testbed, 1).await?;
        operator.stop().await?;
        let namespace = testbed.namespace.clone();
        drop(testbed);
        namespace::remove(&self.client, &namespace).await?;
        Ok(Resized {
            created,
            shrunk: since(&shrunk, &grown),
            grown: since(&grown, &before),
        })
    }

    /// Asks for another size of the job.
    async fn ask(&self, way: Way, namespace: &str, from: usize, to: usize) -> Result<()> {
        match way {
            Way::Target => set_target(&self.client, namespace, JOB, to).await,
            Way::Request => self.create_request(namespace, from, to).await,
        }
    }

    async fn create_request(&self, namespace: &str, from: usize, to: usize) -> Result<()> {
        let (kind, change) = if to > from {
            ("ScaleOut", json!({"toAdd": {"count": to - from}}))
        } else {
            ("ScaleIn", json!({"toDelete": {"count": from - to}}))
        };
        let mut request = json!({
            "apiVersion": "trainyard.dev/v1alpha1",
            "kind": kind,
            "metadata": {"generateName": "resize-"},
            "spec": {"jobRef": {"name": JOB}},
        });
        merge(&mut request["spec"], change);
        let path = format!(
            "/apis/trainyard.dev/v1alpha1/namespaces/{namespace}/{}s",
            kind.to_lowercase()
        );
        let body = serde_json::to_vec(&request)?;
        let request = Request::new(path).create(&PostParams::default(), body)?;
        self.client.request_text(request).await.context("a request")?;
        Ok(())
    }

    /// Waits until the job has its size and nothing more happens.
    async fn settled(&self, operator: &Operator, testbed: &Testbed, size: usize) -> Result<OperatorMetrics> {
        until_size(&self.client, &testbed.namespace, size).await?;
        operator.wait_until_idle(TIMEOUT).await
    }
}

/// The one job of each namespace.
const JOB: &str = "job";

/// An elastic job of a framework.
fn elastic_job(framework: &str, replicas: usize) -> Value {
    let template = json!({"spec": {"containers": [{
        "name": "train", "image": "registry.example/train:1", "command": ["python", "train.py"],
    }]}});
    let mut roles = vec![json!({"name": "worker", "template": template})];
    if framework != "custom" {
        roles.insert(
            0,
            json!({"name": "launcher", "replicas": 1, "template": template}),
        );
    }
    json!({
        "apiVersion": "trainyard.dev/v1alpha1",
        "kind": "TrainingJob",
        "metadata": {"name": JOB},
        "spec": {
            "framework": {"name": framework},
            "elastic": {"replicas": replicas},
            "roles": roles,
        },
    })
}

fn merge(object: &mut Value, more: Value) {
    if let (Some(object), Value::Object(more)) = (object.as_object_mut(), more) {
        object.extend(more);
    }
}

/// Writes the target of a job, as `kubectl scale` does.
async fn set_target(client: &kube::Client, namespace: &str, job: &str, target: usize) -> Result<()> {
    let patch = Patch::Merge(json!({"spec": {"replicas": target}}));
    let request = Request::new(jobs_path(namespace));
    let request = request.patch_subresource("scale", job, &PatchParams::default(), &patch)?;
    client
        .request_text(request)
        .await
        .context("the scale of the job")?;
    Ok(())
}

/// Waits until the job has a size, and no change of it is under way.
async fn until_size(client: &kube::Client, namespace: &str, size: usize) -> Result<()> {
    let begun = Instant::now();
    loop {
        let get = Request::new(jobs_path(namespace)).get(JOB, &kube::api::GetParams::default())?;
        let job: Value = client.request(get).await?;
        let status = &job["status"];
        if status["replicas"] == size && status["targetReplicas"] == size && status["scaling"].is_null() {
            return Ok(());
        }
        anyhow::ensure!(
            begun.elapsed() < TIMEOUT,
            "the job does not come to {size} pods: {job}"
        );
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// What was done between two looks at an operator.
fn since(after: &OperatorMetrics, before: &OperatorMetrics) -> OperatorMetrics {
    OperatorMetrics {
        requests: requests_since(&after.requests, &before.requests),
        ..OperatorMetrics::default()
    }
}

/// The files of an example, at the root of the repository.
fn example(name: &str) -> Result<String> {
    std::fs::read_to_string(Path::new("examples").join(name))
        .context("the benchmark is run at the root of the repository")
}
