//! The cost of the embedded cluster: the API and the operator in this process, and `trainyard run`
//! as a user calls it. Nothing here needs the real API server.

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use kube::Client;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use trainyard_core::view::Settings;
use trainyard_local::api::Api;
use trainyard_local::env::Environment;
use trainyard_operator::clock::SystemClock;
use trainyard_operator::engine::{Config, Engine};
use trainyard_operator::leader::Leadership;
use trainyard_operator::metrics::Metrics;
use trainyard_testkit::load::{Player, Scope, Script};
use trainyard_testkit::namespace;

use super::jobs::{Jobs, bare_pods, create_all, job, jobs_path, pods_path};
use super::scenarios::Size;
use super::session::{Session, as_f64, log};
use super::stats::{median, spread};

const TIMEOUT: Duration = Duration::from_mins(5);
/// The output of the job that prints one line.
const LINE: &str = "worker-0 | hello";
const NAMESPACE: &str = "bench";

/// How often a job that prints one line is run.
const RUNS: usize = 20;

impl Session {
    /// The embedded API in this process, and `trainyard run` in one of its own.
    pub(super) async fn embedded(&mut self) -> Result<()> {
        let name = "embedded API";
        let (count, size) = (self.sizes.creations, self.sizes.in_process);
        let mut each = Vec::new();
        for _ in 0..self.rounds {
            let seconds = creations(count).await?;
            log(&format!("{count} pods created in process: {seconds:.2} s"));
            each.push(seconds * 1e6 / as_f64(count as u64));
        }
        let rate = 1e6 / median(&each);
        let detail = format!("{rate:.0} a second by 32 tasks; {}", spread(&each));
        self.figure(name, "creation of a pod", median(&each), "µs", Some(50.0), detail);
        let mut all = Vec::new();
        for _ in 0..self.rounds {
            let seconds = convergence(size).await?;
            log(&format!(
                "{} x {} in process: {seconds:.2} s",
                size.jobs, size.pods
            ));
            all.push(seconds);
        }
        let measure = format!("{} x {} Running", size.jobs, size.pods);
        self.figure(name, &measure, median(&all), "s", Some(5.0), spread(&all));
        self.report
            .raw
            .push(json!({"scenario": name, "creationMicroseconds": each, "convergenceSeconds": all}));

        let name = "trainyard run";
        let binary = self.bench.program.binary.clone();
        let runs = if self.smoke { 1 } else { RUNS };
        let waits = (0..runs).map(|_| one_line(&binary)).collect::<Result<Vec<_>>>()?;
        let of =
            |value: fn(&RunTimes) -> f64| waits.iter().map(|waited| value(waited) * 1e3).collect::<Vec<_>>();
        let (first, over) = (of(|waited| waited.first_line), of(|waited| waited.over));
        log(&format!(
            "a job of one line: {:.0} ms, over after {:.0} ms",
            median(&first),
            median(&over)
        ));
        self.figure(
            name,
            "one line, seen after",
            median(&first),
            "ms",
            Some(150.0),
            spread(&first),
        );
        self.figure(
            name,
            "one line, over after",
            median(&over),
            "ms",
            Some(400.0),
            spread(&over),
        );
        let trained = quickstart(&binary)?;
        log(&format!("the quickstart: {:.1} s", trained.over));
        self.figure(
            name,
            "quickstart, over after",
            trained.over,
            "s",
            Some(25.0),
            "4 workers".to_owned(),
        );
        self.report
            .raw
            .extend(waits.iter().map(|waited| waited.raw("one line")));
        self.report.raw.push(trained.raw("quickstart"));
        Ok(())
    }
}

/// An API in this process with the definition of TrainingJob.
async fn api() -> Result<(Api, Client)> {
    let api = Api::new(Environment::system());
    let client = api.client(NAMESPACE);
    super::install(&client).await?;
    namespace::create(&client, NAMESPACE).await?;
    Ok((api, client))
}

/// Seconds to create pods.
pub async fn creations(pods: usize) -> Result<f64> {
    let (_api, client) = api().await?;
    let jobs: Vec<Value> = (0..pods).map(|number| job(&format!("j{number}"), 1)).collect();
    let pods = bare_pods(NAMESPACE, &jobs)?;
    let begun = Instant::now();
    create_all(&client, &pods_path(NAMESPACE), pods).await?;
    Ok(begun.elapsed().as_secs_f64())
}

/// Seconds from the first creation until all jobs run, with an operator and simulated kubelets in
/// this process.
pub async fn convergence(size: Size) -> Result<f64> {
    let (_api, client) = api().await?;
    let config = Config {
        namespaces: Vec::new(),
        settings: Settings::default(),
        concurrency: 16,
        instance: "bench".to_owned(),
        clock: Arc::new(SystemClock),
    };
    let engine = Engine::new(
        client.clone(),
        config,
        Leadership::always(),
        Arc::new(Metrics::new()),
    );
    let shutdown = CancellationToken::new();
    let operator = tokio::spawn(engine.run(shutdown.clone()));
    let player = Player::start(client.clone(), &Scope::namespace(NAMESPACE), Script::run());
    player.listed().await?;
    let jobs = Jobs::watch(&client, NAMESPACE);
    let manifests = size.manifests("j");
    let begun = Instant::now();
    create_all(&client, &jobs_path(NAMESPACE), manifests).await?;
    jobs.until("Running", size.jobs, TIMEOUT).await?;
    let seconds = begun.elapsed().as_secs_f64();
    shutdown.cancel();
    operator.await?;
    Ok(seconds)
}

#[derive(Clone, Copy, Debug)]
pub struct RunTimes {
    /// Seconds until the job's first line is seen.
    pub first_line: f64,
    /// Seconds until all is over.
    pub over: f64,
}

impl RunTimes {
    pub fn raw(self, scenario: &str) -> Value {
        json!({"scenario": scenario, "firstLineSeconds": self.first_line, "seconds": self.over})
    }
}

/// A job that prints one line.
pub fn one_line(binary: &Path) -> Result<RunTimes> {
    let mut command = Command::new(binary);
    command.args(["run", "--", "echo", "hello"]);
    let (waited, line) = wait_for(command)?;
    ensure!(line == LINE, "the job said {line:?}");
    Ok(waited)
}

/// The quickstart, to its end.
pub fn quickstart(binary: &Path) -> Result<RunTimes> {
    // A copy, so that nothing is written into the source.
    let directory = std::env::temp_dir().join(format!("trainyard-bench-{}", std::process::id()));
    std::fs::create_dir_all(&directory)?;
    for file in ["job.yaml", "train.py"] {
        std::fs::copy(Path::new("examples/quickstart").join(file), directory.join(file))
            .context("the benchmark is run at the root of the repository")?;
    }
    let mut command = Command::new(binary);
    command.args(["run", "-C"]).arg(&directory).arg("job.yaml");
    let waited = wait_for(command);
    std::fs::remove_dir_all(&directory)?;
    Ok(waited?.0)
}

fn wait_for(mut command: Command) -> Result<(RunTimes, String)> {
    let begun = Instant::now();
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .context("trainyard run")?;
    let mut output = BufReader::new(child.stdout.take().context("an output")?);
    let mut line = String::new();
    output.read_line(&mut line)?;
    let first_line = begun.elapsed().as_secs_f64();
    output.read_to_string(&mut String::new())?;
    let end = child.wait_with_output()?;
    let over = begun.elapsed().as_secs_f64();
    ensure!(
        end.status.success(),
        "trainyard run ended with {}: {}",
        end.status,
        String::from_utf8_lossy(&end.stderr)
    );
    Ok((RunTimes { first_line, over }, line.trim_end().to_owned()))
}
