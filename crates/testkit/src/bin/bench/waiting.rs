//! Roles that wait: how soon programs are let go, what many agents cost, and what an outage of the operator does to them.
//!
//! Agents are processes as pods have them, started with what the operator has written into the pods; only the pods
//! themselves are played.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use futures::StreamExt;
use k8s_openapi::api::core::v1::{Container, Pod};
use kube::api::{Api, ListParams, PostParams, Request};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::process::Command;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::pki_types::ServerName;
use trainyard_core::agent::{AUDIENCE, WAIT_CONTAINER};
use trainyard_operator::OBSERVER_PORT;
use trainyard_testkit::load::Script;
use trainyard_testkit::namespace;

use super::jobs::{create_all, jobs_path};
use super::operator::Operator;
use super::scenarios::{Bench, Place, Size};
use super::session::{Session, as_f64, say};
use super::stats::{median, p99, spread};

const LIMIT: Duration = Duration::from_mins(5);
/// Where the observer is, for this process and those that it starts.
const OBSERVER: &str = "127.77.0.1";
const NAMESPACE: &str = "bench-observer";
/// How long the operator is away.
const OUTAGE: Duration = Duration::from_secs(5);
/// How often a connection is tried, and how long after the last try.
const ATTEMPTS: u32 = 10;
const PAUSE: Duration = Duration::from_millis(500);
/// How many connections or tokens are asked for at once.
const AT_ONCE: usize = 32;

impl Session {
    pub(super) async fn waiting(&mut self, agent: &Path) -> Result<()> {
        let size = self.sizes.waiting;
        let waiting = size.jobs * (size.pods - 1);
        let name = format!("{waiting} waiting pods");
        let host = format!("trainyard-observer.{NAMESPACE}.svc");
        resolve(&host)?;
        namespace::create(&self.bench.client, NAMESPACE).await?;
        let operator = start(&self.bench).await?;
        let place = self.bench.place(Script::idle()).await?;
        let waiters = waiters(&self.bench, &place, size).await?;
        let directory = tempfile::tempdir()?;
        let agents = start_agents(agent, &waiters, directory.path()).await?;
        say(&format!("{name} have an agent each"));

        let (first, second) = agents.split_at(size.jobs / 2);
        let mut times = Vec::new();
        for (number, agents) in first.iter().enumerate() {
            let go = place.player.start_pod(&place.namespace, &server(number)).await?;
            for agent in agents {
                times.push(agent.let_go().await?.saturating_duration_since(go).as_secs_f64() * 1e3);
            }
        }
        let detail = format!(
            "{} pods, {} of a job at a time; {}",
            times.len(),
            size.pods - 1,
            spread(&times)
        );
        self.figure(&name, "let go, median", median(&times), "ms", Some(50.0), detail);
        self.figure(
            &name,
            "let go, p99",
            p99(&times),
            "ms",
            Some(250.0),
            String::new(),
        );

        self.crowd(&operator, &waiters, &host).await?;

        let killed = Instant::now();
        operator.kill()?;
        for number in size.jobs / 2..size.jobs {
            place.player.start_pod(&place.namespace, &server(number)).await?;
        }
        tokio::time::sleep(OUTAGE).await;
        let operator = start(&self.bench).await?;
        let outage = killed.elapsed();
        let mut longest = 0.0_f64;
        for agent in second.iter().flatten() {
            let waited = agent.let_go().await?.saturating_duration_since(killed);
            longest = longest.max(waited.as_secs_f64() - outage.as_secs_f64());
        }
        let detail = format!(
            "{} jobs; killed, and another in its place {:.1} s later",
            second.len(),
            outage.as_secs_f64()
        );
        self.figure(
            &name,
            "waited longer than the outage",
            longest,
            "s",
            Some(2.0),
            detail,
        );

        operator.stop().await?;
        let own = place.namespace.clone();
        drop(place);
        namespace::remove(&self.bench.client, &own).await?;
        self.requests(size).await?;
        namespace::remove(&self.bench.client, NAMESPACE).await
    }

    /// What jobs whose pods wait cost, where they need not wait long.
    async fn requests(&mut self, size: Size) -> Result<()> {
        let operator = start(&self.bench).await?;
        let place = self.bench.place(Script::run()).await?;
        let jobs = (0..size.jobs).map(|number| job(number, size.pods)).collect();
        create_all(&self.bench.client, &jobs_path(&place.namespace), jobs).await?;
        place.jobs.until("Running", size.jobs, LIMIT).await?;
        let told = operator.settled(LIMIT).await?;
        self.count(
            &format!("{} x {} that wait", size.jobs, size.pods),
            "writes per job",
            as_f64(told.writes()) / as_f64(size.jobs as u64),
            as_f64(size.pods as u64 + 3),
            "as many as of jobs that do not wait".to_owned(),
        );
        operator.stop().await?;
        let namespace = place.namespace.clone();
        drop(place);
        namespace::remove(&self.bench.client, &namespace).await
    }

    /// So many connections that each wait, without the processes behind them.
    async fn crowd(&mut self, operator: &Operator, waiters: &[Vec<Waiter>], host: &str) -> Result<()> {
        let patient: Vec<&Waiter> = waiters.iter().skip(waiters.len() / 2).flatten().collect();
        let first = patient.first().context("nobody waits")?;
        let authority = first.env.get("TRAINYARD_AUTHORITY").context("no authority")?;
        let tls = TlsConnector::from(trainyard_agent::observer::authorities(authority)?);
        let more = self.sizes.agents.saturating_sub(patient.len());
        let alone = operator.current_memory()?;
        let begun = Instant::now();
        let connections: Vec<Result<TlsStream<TcpStream>>> = futures::stream::iter(0..more)
            .map(|number| insist(&tls, host, patient[number % patient.len()]))
            .buffer_unordered(AT_ONCE)
            .collect()
            .await;
        let connections: Vec<_> = connections.into_iter().collect::<Result<_>>()?;
        let seconds = begun.elapsed().as_secs_f64();
        let name = format!("{} agents", connections.len() + patient.len());
        let memory = operator.current_memory()?;
        let detail = format!(
            "{alone:.1} MiB with {}; the others came within {seconds:.1} s; peak {:.1} MiB",
            patient.len(),
            operator.peak_memory()?
        );
        self.figure(
            &name,
            "memory of the operator",
            memory,
            "MiB",
            Some(100.0),
            detail,
        );
        Ok(())
    }
}

/// A pod that waits.
struct Waiter {
    name: String,
    env: BTreeMap<String, String>,
    token: String,
}

/// An agent in a process of its own, which says when it has ended well.
struct Agent {
    ended: tokio::sync::watch::Receiver<Option<Instant>>,
    task: JoinHandle<Result<()>>,
}

impl Agent {
    async fn let_go(&self) -> Result<Instant> {
        let mut ended = self.ended.clone();
        let ended = tokio::time::timeout(LIMIT, ended.wait_for(Option::is_some)).await;
        let ended = ended.context("an agent was not let go")?;
        let ended = *ended.context("an agent has not ended well")?;
        ended.context("an agent has not ended")
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn server(job: usize) -> String {
    format!("w{job}-server-0")
}

/// A job of which all pods but one wait for that one.
fn job(number: usize, pods: usize) -> Value {
    let template = json!({"spec": {"containers": [{"name": "main", "image": "registry.example/train:1"}]}});
    json!({
        "apiVersion": "trainyard.dev/v1alpha1",
        "kind": "TrainingJob",
        "metadata": {"name": format!("w{number}")},
        "spec": {"framework": {"name": "custom"}, "roles": [
            {"name": "server", "replicas": 1, "template": template},
            {"name": "client", "replicas": pods - 1, "template": template, "dependsOn": [{"role": "server", "state": "Running"}]},
        ]},
    })
}

async fn start(bench: &Bench) -> Result<Operator> {
    let address = format!("{OBSERVER}:{OBSERVER_PORT}");
    let arguments = [
        "--observer",
        "--observer-address",
        &address,
        "--agent-image",
        "registry.example/trainyard:dev",
        "--namespace",
        NAMESPACE,
    ];
    bench.program.start_with(&arguments).await
}

/// Creates the jobs; those who wait, by job.
async fn waiters(bench: &Bench, place: &Place, size: Size) -> Result<Vec<Vec<Waiter>>> {
    let jobs = (0..size.jobs).map(|number| job(number, size.pods)).collect();
    create_all(&bench.client, &jobs_path(&place.namespace), jobs).await?;
    place
        .player
        .until(LIMIT, |counts| counts.seen == size.total())
        .await?;
    let pods: Api<Pod> = Api::namespaced(bench.client.clone(), &place.namespace);
    let pods = pods.list(&ListParams::default()).await?.items;
    let mut by_name: BTreeMap<String, Pod> = BTreeMap::new();
    for pod in pods {
        by_name.insert(pod.metadata.name.clone().unwrap_or_default(), pod);
    }
    let by_name = &by_name;
    let names =
        (0..size.jobs).flat_map(|job| (0..size.pods - 1).map(move |index| format!("w{job}-client-{index}")));
    let waiters: Vec<Result<Waiter>> = futures::stream::iter(names)
        .map(|name| async move {
            let pod = by_name.get(&name).with_context(|| format!("no pod {name}"))?;
            let token = token(&bench.client, pod).await?;
            Ok(Waiter {
                env: environment(pod)?,
                name,
                token,
            })
        })
        .buffered(AT_ONCE)
        .collect()
        .await;
    let mut by_job: Vec<Vec<Waiter>> = (0..size.jobs).map(|_| Vec::new()).collect();
    for (number, waiter) in waiters.into_iter().enumerate() {
        by_job[number / (size.pods - 1)].push(waiter?);
    }
    Ok(by_job)
}

/// What the operator tells the agent of a pod.
fn environment(pod: &Pod) -> Result<BTreeMap<String, String>> {
    let containers = pod.spec.as_ref().and_then(|spec| spec.init_containers.as_ref());
    let is_agent = |container: &&Container| container.name == WAIT_CONTAINER;
    let agent = containers.and_then(|containers| containers.iter().find(is_agent));
    let variables = agent
        .and_then(|agent| agent.env.clone())
        .context("a pod without an agent")?;
    Ok(variables
        .into_iter()
        .map(|variable| (variable.name, variable.value.unwrap_or_default()))
        .collect())
}

#[derive(Deserialize)]
struct TokenAnswer {
    status: TokenStatus,
}

#[derive(Deserialize)]
struct TokenStatus {
    token: String,
}

/// What a kubelet would put into the pod.
async fn token(client: &kube::Client, pod: &Pod) -> Result<String> {
    let meta = &pod.metadata;
    let accounts = format!(
        "/api/v1/namespaces/{}/serviceaccounts",
        meta.namespace.as_deref().unwrap_or_default()
    );
    let body = json!({
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "spec": {
            "audiences": [AUDIENCE],
            "expirationSeconds": 3600,
            "boundObjectRef": {"apiVersion": "v1", "kind": "Pod", "name": meta.name, "uid": meta.uid},
        },
    });
    let request = Request::new(accounts).create_subresource(
        "token",
        "default",
        &PostParams::default(),
        serde_json::to_vec(&body)?,
    )?;
    Ok(client.request::<TokenAnswer>(request).await?.status.token)
}

/// Starts an agent for each that waits, and returns when all of them have been told to wait.
async fn start_agents(program: &Path, waiters: &[Vec<Waiter>], directory: &Path) -> Result<Vec<Vec<Agent>>> {
    let (told, mut waits) = mpsc::unbounded_channel();
    let mut agents = Vec::new();
    for job in waiters {
        let mut of_job = Vec::new();
        for waiter in job {
            let token = directory.join(&waiter.name);
            fs::write(&token, &waiter.token)?;
            let child = Command::new(program)
                .arg("wait")
                .env_clear()
                .envs(&waiter.env)
                .env("TRAINYARD_TOKEN_FILE", &token)
                .env("TRAINYARD_ANNOTATIONS_FILE", directory.join("none"))
                .env("TRAINYARD_TERMINATION_LOG", "/dev/null")
                .stdin(Stdio::null())
                .stdout(Stdio::piped())
                .stderr(Stdio::null())
                .kill_on_drop(true)
                .spawn()?;
            of_job.push(follow(child, told.clone()));
        }
        agents.push(of_job);
    }
    drop(told);
    let all = agents.iter().map(Vec::len).sum::<usize>();
    for number in 0..all {
        let next = tokio::time::timeout(LIMIT, waits.recv()).await;
        let Ok(Some(())) = next else {
            bail!("{number} of {all} agents wait; see the operator's log");
        };
    }
    Ok(agents)
}

fn follow(mut child: tokio::process::Child, told: mpsc::UnboundedSender<()>) -> Agent {
    let (end, ended) = tokio::sync::watch::channel(None);
    let task = tokio::spawn(async move {
        let out = child.stdout.take().context("no output")?;
        let mut lines = BufReader::new(out).lines();
        lines.next_line().await?.context("an agent that says nothing")?;
        told.send(())?;
        drop(told);
        let status = child.wait().await?;
        let now = Instant::now();
        ensure!(status.success(), "an agent has ended with {status}");
        end.send_replace(Some(now));
        Ok(())
    });
    Agent { ended, task }
}

/// Asks until it is answered: an agent, too, comes again where a crowd pushes it out.
async fn insist(tls: &TlsConnector, host: &str, waiter: &Waiter) -> Result<TlsStream<TcpStream>> {
    let mut attempts = 0;
    loop {
        attempts += 1;
        match listen(tls, host, waiter).await {
            Err(_) if attempts < ATTEMPTS => tokio::time::sleep(PAUSE).await,
            answered => return answered,
        }
    }
}

/// Asks as an agent does, and returns when the first line has come.
async fn listen(tls: &TlsConnector, host: &str, waiter: &Waiter) -> Result<TlsStream<TcpStream>> {
    let stream = TcpStream::connect((OBSERVER, OBSERVER_PORT)).await?;
    let mut stream = tls
        .connect(ServerName::try_from(host.to_owned())?, stream)
        .await?;
    let of = |variable: &str| waiter.env.get(variable).cloned().unwrap_or_default();
    let request = format!(
        "GET /v1/jobs/{}/{}/start?role={} HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {}\r\n\
         Connection: Upgrade\r\nUpgrade: trainyard-lines\r\n\r\n",
        of("TRAINYARD_NAMESPACE"),
        of("TRAINYARD_JOB"),
        of("TRAINYARD_ROLE"),
        waiter.token,
    );
    stream.write_all(request.as_bytes()).await?;
    let mut answer = Vec::new();
    // The head of the answer, and a line after it.
    while !String::from_utf8_lossy(&answer)
        .split_once("\r\n\r\n")
        .is_some_and(|(_, body)| body.contains("waits"))
    {
        ensure!(
            stream.read_buf(&mut answer).await? > 0,
            "refused: {}",
            String::from_utf8_lossy(&answer)
        );
    }
    Ok(stream)
}

/// Has a name lead to the observer, for this process and those that it starts.
fn resolve(host: &str) -> Result<()> {
    let namespace = |process: &str| fs::read_link(format!("/proc/{process}/ns/mnt"));
    let parent = std::os::unix::process::parent_id().to_string();
    ensure!(
        namespace("self")? != namespace(&parent)?,
        "it needs a mount namespace of its own, as hack/bench gives it one"
    );
    let mut file = tempfile::NamedTempFile::new()?;
    writeln!(file, "127.0.0.1 localhost\n{OBSERVER} {host}")?;
    let status = std::process::Command::new("mount")
        .arg("--bind")
        .args([file.path(), Path::new("/etc/hosts")])
        .status()?;
    ensure!(status.success(), "mount: {status}");
    Ok(())
}
