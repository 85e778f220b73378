//! Requests for jobs of other operators' kinds, compared with the same jobs as TrainingJobs.
//!
//! The twin of an object is its own child, as the operator made it, written by a user: the same
//! spec, but for the dialect.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use futures::future::try_join_all;
use kube::api::{ListParams, PostParams, Request};
use serde_json::{Value, json};
use trainyard_core::foreign::ForeignKind;
use trainyard_testkit::load::Script;
use trainyard_testkit::namespace;
use trainyard_testkit::program::{Operator, Requests, events, writes};

use super::jobs::jobs_path;
use super::scenarios::{Size, Testbed};
use super::session::{Session, as_f64, log, per_job, requests_of, requests_since};
use super::{await_served, define};

const TIMEOUT: Duration = Duration::from_mins(5);
/// How long pods run.
const RUN_TIME: Duration = Duration::from_secs(2);

/// An example whose jobs are counted.
struct Example {
    manifest: &'static str,
    /// The pods whose end ends a job.
    deciding_pods: &'static str,
    /// What a job may cost more than its twin.
    target: f64,
}

const EXAMPLES: [Example; 3] = [
    Example {
        manifest: include_str!("../../../../../examples/compat/aresjob.yaml"),
        deciding_pods: "*",
        // The child, that it runs, and how it ended.
        target: 3.0,
    },
    Example {
        manifest: include_str!("../../../../../examples/compat/dl-mxjob.yaml"),
        deciding_pods: "*worker*",
        target: 3.0,
    },
    Example {
        manifest: include_str!("../../../../../examples/compat/kubeflow-mpijob.yaml"),
        deciding_pods: "*launcher*",
        // And the ConfigMap and the event of its creation that its users know.
        target: 5.0,
    },
];

const MPI_JOB: &Example = &EXAMPLES[2];
/// What an MPIJob of four pods may write: its child with the Service, the Secret, four pods and two
/// statuses, the ConfigMap, and two statuses of its own. With mpi-operator it is 16: it writes 10,
/// and Kubernetes 6 for the launcher's Job.
const MPI_JOB_WRITES: f64 = 12.0;
/// That it was created, runs and has succeeded, as there.
const MPI_JOB_EVENTS: f64 = 3.0;

impl Session {
    /// Defines all kinds: the operator would ask again and again for one that is not there.
    pub(super) async fn define_served(&self) -> Result<()> {
        for kind in trainyard_compat::served() {
            define(&self.bench.client, &serde_json::from_value(kind.definition())?).await?;
            let all = format!("/apis/{}/{}", api_version(kind), kind.plural());
            await_served(&self.bench.client, &all).await?;
        }
        Ok(())
    }

    /// Requests from the creation of jobs until their status says that they have succeeded.
    pub(super) async fn compat(&mut self) -> Result<()> {
        for example in EXAMPLES {
            let (kind, manifest) = example.read()?;
            self.compare_with_twin(kind, &manifest, &example).await?;
        }
        Ok(())
    }

    /// What many MPIJobs at once write, from their creation until they have succeeded.
    pub(super) async fn mpi_jobs(&mut self) -> Result<()> {
        let Size { jobs, pods } = self.sizes.mpi_jobs;
        let (kind, mut manifest) = MPI_JOB.read()?;
        manifest["spec"]["mpiReplicaSpecs"]["Worker"]["replicas"] = json!(pods - 1);
        manifest["spec"]["runPolicy"]["cleanPodPolicy"] = "None".into();
        let script = self.bench.script().succeed(MPI_JOB.deciding_pods, RUN_TIME);
        let path = |namespace: &str| path(kind, namespace);
        let (requests, _) = self.requests_to_end(script, &path, &manifest, jobs).await?;
        let name = format!("{jobs} x {pods} MPIJobs");
        let detail = per_job(&requests, jobs);
        log(&format!("{name}: {detail}"));
        let raw = json!({"scenario": name, "requests": requests_of(&requests)});
        self.report.raw.push(raw);
        let each = |count: u64| as_f64(count) / as_f64(jobs as u64);
        let (writes, events) = (each(writes(&requests)), each(events(&requests)));
        self.count(&name, "writes per job", writes, MPI_JOB_WRITES, detail);
        self.count(&name, "events per job", events, MPI_JOB_EVENTS, String::new());
        Ok(())
    }

    async fn compare_with_twin(
        &mut self,
        kind: &dyn ForeignKind,
        manifest: &Value,
        example: &Example,
    ) -> Result<()> {
        let script = || self.bench.script().succeed(example.deciding_pods, RUN_TIME);
        let jobs = self.sizes.served;
        let path = |namespace: &str| path(kind, namespace);
        let (theirs, child) = self.requests_to_end(script(), &path, manifest, jobs).await?;
        let twin = json!({
            "apiVersion": child["apiVersion"],
            "kind": child["kind"],
            "metadata": {},
            "spec": without_dialect(&child["spec"]),
        });
        let (ours, _) = self.requests_to_end(script(), &jobs_path, &twin, jobs).await?;
        let name = format!("{} x {} of {}", jobs, kind.kind(), api_version(kind));
        log(&format!("{name}: {}", per_job(&theirs, jobs)));
        log(&format!("its twin: {}", per_job(&ours, jobs)));
        let raw = json!({"scenario": name, "requests": requests_of(&theirs), "twin": requests_of(&ours)});
        self.report.raw.push(raw);
        // A Service for each role is what users of some kinds ask for, and no cost of serving them.
        let each = |requests: &Requests| {
            let counted = requests.iter().filter(|((_, kind), _)| kind != "Service");
            as_f64(counted.map(|(_, count)| count).sum()) / as_f64(jobs as u64)
        };
        let more = each(&theirs) - each(&ours);
        let detail = format!("{}; its twin: {}", per_job(&theirs, jobs), per_job(&ours, jobs));
        self.count(
            &name,
            "requests more than its twin, but for Services",
            more,
            example.target,
            detail,
        );
        Ok(())
    }

    /// Requests of jobs from their creation to their end, with an operator of their own, and the
    /// TrainingJob of the first.
    async fn requests_to_end(
        &self,
        script: Script,
        path: &dyn Fn(&str) -> String,
        manifest: &Value,
        jobs: usize,
    ) -> Result<(Requests, Value)> {
        let bench = &self.bench;
        let operator = bench
            .program
            .start_with(&["--compat=all", "--agent-image=registry.example/trainyard:dev"])
            .await?;
        let testbed = bench.testbed(script).await?;
        let path = path(&testbed.namespace);
        // Requests that are made once do not count.
        self.run_to_end(&operator, &testbed, &path, manifest, 0..1)
            .await?;
        let before = operator.metrics().await?.of_jobs();
        self.run_to_end(&operator, &testbed, &path, manifest, 1..1 + jobs)
            .await?;
        let after = operator.metrics().await?.of_jobs();
        let child =
            Request::new(jobs_path(&testbed.namespace)).get(&name(0), &kube::api::GetParams::default())?;
        let child: Value = bench.client.request(child).await?;
        operator.stop().await?;
        let namespace = testbed.namespace.clone();
        drop(testbed);
        namespace::remove(&bench.client, &namespace).await?;
        Ok((requests_since(&after, &before), child))
    }

    /// Creates jobs of these numbers, and waits until they have succeeded and the operator is idle.
    async fn run_to_end(
        &self,
        operator: &Operator,
        testbed: &Testbed,
        path: &str,
        manifest: &Value,
        numbers: std::ops::Range<usize>,
    ) -> Result<()> {
        let client = &self.bench.client;
        let all = numbers.end;
        try_join_all(numbers.map(|number| async move {
            let mut object = manifest.clone();
            object["metadata"]["name"] = name(number).into();
            let body = serde_json::to_vec(&object)?;
            let request = Request::new(path.to_owned()).create(&PostParams::default(), body)?;
            client.request_text(request).await.context("create")
        }))
        .await?;
        testbed.jobs.until("Succeeded", all, TIMEOUT).await?;
        operator.wait_until_idle(TIMEOUT).await?;
        let list = Request::new(path.to_owned()).list(&ListParams::default())?;
        let list: Value = client.request(list).await?;
        let objects = list["items"].as_array().context("no list")?;
        let succeeded = objects.iter().filter(|object| has_succeeded(object)).count();
        ensure!(
            succeeded == all,
            "{succeeded} of {all} say that they have succeeded"
        );
        Ok(())
    }
}

impl Example {
    /// Its kind, and its job. What follows that is for programs, which nobody runs here.
    fn read(&self) -> Result<(&'static dyn ForeignKind, Value)> {
        let documents: Vec<Value> = serde_saphyr::from_multiple(self.manifest)?;
        let manifest = documents.into_iter().next().context("an example is empty")?;
        let mut served = trainyard_compat::served().into_iter();
        let kind = served
            .find(|kind| manifest["apiVersion"] == api_version(*kind) && manifest["kind"] == kind.kind())
            .with_context(|| format!("{} is not served", manifest["kind"]))?;
        Ok((kind, manifest))
    }
}

fn path(kind: &dyn ForeignKind, namespace: &str) -> String {
    format!(
        "/apis/{}/namespaces/{namespace}/{}",
        api_version(kind),
        kind.plural()
    )
}

fn api_version(kind: &dyn ForeignKind) -> String {
    format!("{}/{}", kind.group(), kind.version())
}

fn name(number: usize) -> String {
    format!("j{number}")
}

fn without_dialect(spec: &Value) -> Value {
    let mut spec = spec.clone();
    if let Some(members) = spec.as_object_mut() {
        members.remove("dialect");
    }
    spec
}

fn has_succeeded(object: &Value) -> bool {
    let conditions = object["status"]["conditions"].as_array();
    let mut conditions = conditions.into_iter().flatten();
    conditions.any(|condition| condition["type"] == "Succeeded" && condition["status"] == "True")
}
