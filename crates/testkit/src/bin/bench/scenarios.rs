//! The scenarios of the benchmark.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use kube::Client;
use serde_json::{Value, json};
use tokio::task::JoinSet;
use trainyard_testkit::load::{Player, Scope, Script};
use trainyard_testkit::namespace;
use trainyard_testkit::program::{Operator, OperatorMetrics, Program};

use super::jobs::{Jobs, bare_pods, create_all, job, jobs_path, pods_path};
use super::machine::{ClusterProcesses, CpuTime};

const TIMEOUT: Duration = Duration::from_mins(5);

#[derive(Clone, Copy, Debug)]
pub struct Size {
    pub jobs: usize,
    /// Pods of each.
    pub pods: usize,
}

impl Size {
    /// Pods of all jobs.
    pub fn total(self) -> usize {
        self.jobs * self.pods
    }

    pub(super) fn manifests(self, prefix: &str) -> Vec<Value> {
        (0..self.jobs)
            .map(|number| job(&format!("{prefix}{number}"), self.pods))
            .collect()
    }
}

/// The cost of a run of jobs.
#[derive(Clone, Debug)]
pub struct Run {
    /// Seconds from the first job's creation until all had reached the phase.
    pub seconds: f64,
    /// Seconds that creating the jobs took of it.
    pub creating: f64,
    /// Processor seconds of the operator since it was started.
    pub cpu: f64,
    /// Processor seconds of the server and the benchmark.
    pub others: CpuTime,
    /// Peak memory of the operator.
    pub peak_mib: f64,
    /// The metrics of the operator when it was idle.
    pub metrics: OperatorMetrics,
}

impl Run {
    pub fn raw(&self, scenario: &str, floor: Floor) -> Value {
        let requests: serde_json::Map<String, Value> = self
            .metrics
            .requests
            .iter()
            .map(|((verb, kind), count)| (format!("{verb} {kind}"), json!(count)))
            .collect();
        let failed: serde_json::Map<String, Value> = self
            .metrics
            .failed
            .iter()
            .map(|((verb, kind, code), count)| (format!("{verb} {kind} {code}"), json!(count)))
            .collect();
        json!({
            "scenario": scenario,
            "floor": floor.raw(),
            "seconds": self.seconds,
            "creatingSeconds": self.creating,
            "cpuSeconds": self.cpu,
            "serverCpuSeconds": self.others.server,
            "benchCpuSeconds": self.others.bench,
            "peakMiB": self.peak_mib,
            "requests": requests,
            "failedRequests": failed,
            "reconciles": self.metrics.reconciles,
        })
    }
}

/// The cost of bare pods.
#[derive(Clone, Copy, Debug)]
pub struct Floor {
    pub seconds: f64,
    /// Processor seconds meanwhile.
    pub others: CpuTime,
}

impl Floor {
    fn raw(self) -> Value {
        json!({"seconds": self.seconds, "serverCpuSeconds": self.others.server, "benchCpuSeconds": self.others.bench})
    }
}

pub struct Bench {
    /// For everything but the operator.
    pub client: Client,
    pub program: Program,
    names: AtomicU32,
    others: ClusterProcesses,
    /// The nodes that pods are bound to.
    pub nodes: Vec<String>,
}

impl Bench {
    /// A bench on a cluster.
    pub fn new(client: Client, program: Program) -> Self {
        Self {
            client,
            program,
            names: AtomicU32::new(0),
            others: ClusterProcesses::find(),
            nodes: Vec::new(),
        }
    }

    pub(super) async fn namespace(&self) -> Result<String> {
        let number = self.names.fetch_add(1, Ordering::Relaxed);
        let name = format!("bench-{}-{number}", std::process::id());
        namespace::create(&self.client, &name).await?;
        Ok(name)
    }

    /// Creates the pods of jobs with parallel clients and sets them Running, without an operator.
    pub async fn floor(&self, size: Size) -> Result<Floor> {
        let namespace = self.namespace().await?;
        let player = Player::start(self.client.clone(), &Scope::namespace(&namespace), self.script());
        let pods = size.total();
        let manifests = bare_pods(&namespace, &size.manifests("j"))?;
        player.listed().await?;
        let before = self.others.spent();
        let begun = Instant::now();
        create_all(&self.client, &pods_path(&namespace), manifests).await?;
        player.until(|counts| counts.started == pods).await?;
        let seconds = begun.elapsed().as_secs_f64();
        let others = self.others.spent() - before;
        drop(player);
        namespace::remove(&self.client, &namespace).await?;
        Ok(Floor { seconds, others })
    }

    pub(super) fn script(&self) -> Script {
        Script::run().on_nodes(self.nodes.clone())
    }

    pub(super) async fn testbed(&self, script: Script) -> Result<Testbed> {
        let namespace = self.namespace().await?;
        let player = Player::start(self.client.clone(), &Scope::namespace(&namespace), script);
        let jobs = Jobs::watch(&self.client, &namespace);
        player.listed().await?;
        Ok(Testbed {
            namespace,
            player,
            jobs,
        })
    }

    /// Jobs, from their creation until all are Running or, if their pods end, Succeeded.
    pub async fn run(&self, size: Size, ending: Option<Duration>) -> Result<Run> {
        let operator = self.program.start().await?;
        let script = ending.map_or_else(|| self.script(), |after| self.script().succeed_after(after));
        let testbed = self.testbed(script).await?;
        let phase = if ending.is_some() { "Succeeded" } else { "Running" };
        let before = self.others.spent();
        let (creating, seconds) = self
            .submit(&testbed, size.manifests("j"), phase, size.jobs)
            .await?;
        let others = self.others.spent() - before;
        let metrics = operator.wait_until_idle(TIMEOUT).await?;
        let run = Run {
            seconds,
            creating,
            cpu: operator.cpu()?,
            others,
            peak_mib: operator.peak_memory()?,
            metrics,
        };
        operator.stop().await?;
        let namespace = testbed.namespace.clone();
        drop(testbed);
        namespace::remove(&self.client, &namespace).await?;
        Ok(run)
    }

    /// Creates jobs and waits until so many are in a phase. Returns the seconds for the creations,
    /// and for all of it.
    pub async fn submit(
        &self,
        testbed: &Testbed,
        manifests: Vec<Value>,
        phase: &str,
        until: usize,
    ) -> Result<(f64, f64)> {
        let begun = Instant::now();
        create_all(&self.client, &jobs_path(&testbed.namespace), manifests).await?;
        let creating = begun.elapsed().as_secs_f64();
        testbed.jobs.until(phase, until, TIMEOUT).await?;
        Ok((creating, begun.elapsed().as_secs_f64()))
    }

    /// Starts jobs of several sizes in one namespace; returns when all are Running and the operator
    /// is idle.
    pub async fn start_all(&self, sizes: &[Size]) -> Result<(Operator, Testbed)> {
        self.start_each(sizes, |job| job).await
    }

    /// The same, with something changed in each job.
    pub async fn start_each(
        &self,
        sizes: &[Size],
        change: impl Fn(Value) -> Value,
    ) -> Result<(Operator, Testbed)> {
        let operator = self.program.start().await?;
        let testbed = self.testbed(self.script()).await?;
        let mut jobs = 0;
        for (number, size) in sizes.iter().enumerate() {
            jobs += size.jobs;
            let manifests = size.manifests(&format!("s{number}-"));
            let manifests = manifests.into_iter().map(&change).collect();
            self.submit(&testbed, manifests, "Running", jobs).await?;
        }
        operator.wait_until_idle(TIMEOUT).await?;
        Ok((operator, testbed))
    }

    /// Fails pods in parallel. Returns the milliseconds until the replacement of each was seen.
    pub async fn recover(&self, testbed: &Arc<Testbed>, pods: &[String]) -> Result<Vec<f64>> {
        let mut tasks = JoinSet::new();
        for pod in pods {
            let (testbed, pod) = (testbed.clone(), pod.clone());
            tasks.spawn(async move { testbed.recover(&pod).await });
        }
        let mut times = Vec::new();
        while let Some(time) = tasks.join_next().await {
            times.push(time??);
        }
        Ok(times)
    }
}

/// A namespace whose pods are simulated and whose jobs are watched.
pub struct Testbed {
    pub namespace: String,
    pub player: Player,
    pub jobs: Jobs,
}

impl Testbed {
    async fn recover(&self, pod: &str) -> Result<f64> {
        let before = self.player.pod(&self.namespace, pod).context("no such pod")?;
        let failed = self.player.fail(&self.namespace, pod, 1).await?;
        let replaced = || {
            let now = self.player.pod(&self.namespace, pod)?;
            (now.uid != before.uid).then_some(now.seen)
        };
        self.player.until(|_| replaced().is_some()).await?;
        let seen = replaced().context("no replacement")?;
        Ok(seen.saturating_duration_since(failed).as_secs_f64() * 1000.0)
    }
}
