//! `bench`: what the operator costs against a real API server, and how fast it is; see
//! bench/README.md.
//!
//! Run by `make bench`, under `testcluster run --no-nodes --`.

mod compat;
mod delay;
mod drain;
mod embedded;
mod group;
mod jobs;
mod machine;
mod planning;
mod report;
mod running;
mod scaling;
mod scenarios;
mod session;
mod shell;
mod stats;
mod waiting;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::Parser;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, ListParams, PostParams, Request};
use kube::{Client, Config};
use tokio::signal::unix::{SignalKind, signal};

use machine::Machine;
use report::Report;
use scenarios::{Bench, Size};
use session::Session;
use trainyard_testkit::load;
use trainyard_testkit::program::Program;

/// That of `trainyard`, since the embedded cluster is measured in this process.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// Measures the operator against a real API server.
#[derive(Parser)]
struct Cli {
    /// Small sizes, and counts only: whether the operator writes more than it should.
    #[arg(long)]
    smoke: bool,
    /// How often each ratio is measured.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Only these scenarios: any of planning, embedded, a, b, c, completion, recovery, group,
    /// drain, steady, restart, compat, mpijobs, scaling, departures, memory, waiting, shell.
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// Only the floor: what bare pods cost, without an operator.
    #[arg(long)]
    floor: bool,
    /// The agent as pods have it. Without it, what it does is not measured.
    #[arg(long, env = "TRAINYARD_AGENT")]
    agent: Option<PathBuf>,
    /// The `trainyard` binary; by default the one beside this program.
    #[arg(long)]
    operator: Option<PathBuf>,
    /// Where the operator's log goes.
    #[arg(long)]
    log: Option<PathBuf>,
    /// Where results go; nowhere with --smoke, unless given.
    #[arg(long)]
    results: Option<PathBuf>,
}

/// How many nodes pods are bound to.
const NODES: usize = 10;

/// The sizes of a run.
pub struct Sizes {
    a: Size,
    b: Size,
    c: Size,
    /// Pods that join a job that trains, and leave it.
    joining: usize,
    /// Pods that fail at once.
    failing: usize,
    /// Pods that fail one after the other.
    singles: usize,
    /// Pods that start anew together.
    together: usize,
    /// Jobs with a disruption budget each.
    with_budgets: Size,
    /// How many of them have a worker on the node that is drained.
    drained: usize,
    steady: Duration,
    /// Pods that are created in the embedded API.
    creations: usize,
    /// Jobs that converge in the embedded API.
    in_process: Size,
    /// Pods between which memory is compared.
    memory: [Size; 2],
    /// Jobs of which all pods but one wait for that one.
    waiting: Size,
    /// How many of these jobs are let go, one after the other. The others wait until the operator
    /// is killed.
    let_go: usize,
    /// Such jobs that wait while the operator is upgraded.
    upgraded: Size,
    /// Such jobs whose requests are counted.
    counted: Size,
    /// Jobs of another operator's kind whose requests are counted, of each kind.
    served: usize,
    /// MPIJobs that are created at once.
    mpi_jobs: Size,
    /// Pods of jobs that are planned, and nothing else.
    planned: [u32; 3],
    /// Agents that ask the observer at once.
    agents: usize,
    /// Remote commands that are started at once.
    commands: u8,
}

const FULL: Sizes = Sizes {
    a: Size { jobs: 200, pods: 4 },
    b: Size { jobs: 1000, pods: 2 },
    c: Size { jobs: 1, pods: 1000 },
    joining: 100,
    failing: 50,
    singles: 20,
    together: 100,
    with_budgets: Size { jobs: 200, pods: 2 },
    drained: 20,
    steady: Duration::from_secs(30),
    creations: 50_000,
    in_process: Size {
        jobs: 10_000,
        pods: 2,
    },
    memory: [Size { jobs: 4, pods: 500 }, Size { jobs: 36, pods: 500 }],
    waiting: Size { jobs: 150, pods: 11 },
    let_go: 50,
    upgraded: Size { jobs: 50, pods: 11 },
    counted: Size { jobs: 20, pods: 11 },
    served: 8,
    mpi_jobs: Size { jobs: 200, pods: 4 },
    planned: [100, 1000, 5000],
    agents: 10_000,
    commands: 64,
};

const SMOKE: Sizes = Sizes {
    a: Size { jobs: 6, pods: 4 },
    b: Size { jobs: 12, pods: 2 },
    c: Size { jobs: 1, pods: 30 },
    joining: 4,
    failing: 4,
    singles: 2,
    together: 4,
    with_budgets: Size { jobs: 6, pods: 2 },
    drained: 3,
    steady: Duration::from_secs(3),
    creations: 100,
    in_process: Size { jobs: 12, pods: 2 },
    memory: [Size { jobs: 2, pods: 10 }, Size { jobs: 2, pods: 20 }],
    waiting: Size { jobs: 6, pods: 3 },
    let_go: 2,
    upgraded: Size { jobs: 4, pods: 3 },
    counted: Size { jobs: 4, pods: 3 },
    served: 2,
    mpi_jobs: Size { jobs: 4, pods: 4 },
    planned: [10, 20, 40],
    agents: 16,
    commands: 4,
};

#[tokio::main]
async fn main() -> Result<ExitCode> {
    let cli = Cli::parse();
    let client = Client::try_from(
        Config::infer()
            .await
            .context("no cluster: use `testcluster run --no-nodes --`")?,
    )?;
    let beside = || Ok::<_, std::io::Error>(std::env::current_exe()?.with_file_name("trainyard"));
    let program = Program {
        binary: cli.operator.clone().map_or_else(beside, Ok)?,
        log: cli
            .log
            .clone()
            .unwrap_or_else(|| std::env::temp_dir().join("trainyard-bench-operator.log")),
    };
    let machine = Machine::describe(&client).await?;
    install(&client).await?;
    let mut bench = Bench::new(client, program);
    bench.nodes = load::nodes(&bench.client, NODES).await?;
    if cli.floor {
        for size in [FULL.a, FULL.b, FULL.c] {
            for _ in 0..cli.rounds {
                let floor = bench.floor(size).await?;
                println!(
                    "{} bare pods: {:.2} s; cpu: server {:.2} s, bench {:.2} s",
                    size.total(),
                    floor.seconds,
                    floor.others.server,
                    floor.others.bench
                );
            }
        }
        return Ok(ExitCode::SUCCESS);
    }
    let mut session = Session {
        bench,
        sizes: if cli.smoke { SMOKE } else { FULL },
        rounds: if cli.smoke { 1 } else { cli.rounds },
        smoke: cli.smoke,
        only: cli.only,
        agent: cli.agent,
        report: Report {
            date: jiff::Timestamp::now().strftime("%Y-%m-%d").to_string(),
            machine,
            rounds: if cli.smoke { 1 } else { cli.rounds },
            figures: Vec::new(),
            raw: Vec::new(),
        },
    };
    tokio::select! {
        result = session.all() => result?,
        // The operator is ended with the session.
        name = interrupted()? => bail!("ended by {name}"),
    }
    let report = session.report;
    println!("\n{}", report.table());
    if let Some(directory) = cli
        .results
        .or_else(|| (!cli.smoke).then(|| PathBuf::from("bench/results")))
    {
        report.write(&directory)?;
    }
    let wrong = report.wrong_counts();
    if cli.smoke && !wrong.is_empty() {
        eprintln!("{} counts are not as they should be", wrong.len());
        return Ok(ExitCode::FAILURE);
    }
    Ok(ExitCode::SUCCESS)
}

/// Waits for a signal to end.
fn interrupted() -> Result<impl Future<Output = &'static str>> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => "SIGTERM",
            _ = interrupt.recv() => "SIGINT",
        }
    })
}

/// Installs the definitions, and waits until objects of all kinds can be listed.
async fn install(client: &Client) -> Result<()> {
    for definition in trainyard_api::crd::all()? {
        define(client, &definition).await?;
    }
    for plural in ["frameworks", "trainingjobs", "scaleins", "scaleouts"] {
        await_served(client, &format!("/apis/trainyard.dev/v1alpha1/{plural}")).await?;
    }
    Ok(())
}

/// Creates a definition that may be there.
async fn define(client: &Client, definition: &CustomResourceDefinition) -> Result<()> {
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    match definitions.create(&PostParams::default(), definition).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if status.code == 409 => Ok(()),
        Err(error) => Err(error).context("a definition"),
    }
}

/// Waits until the objects of a path can be listed.
async fn await_served(client: &Client, path: &str) -> Result<()> {
    let begun = Instant::now();
    loop {
        let list = Request::new(path.to_owned()).list(&ListParams::default())?;
        match client.request_text(list).await {
            Ok(_) => return Ok(()),
            Err(error) if begun.elapsed() > Duration::from_secs(30) => return Err(error.into()),
            Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
        }
    }
}
