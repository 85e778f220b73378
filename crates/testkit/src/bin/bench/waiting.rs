//! Roles that wait: how soon programs are released, what many agents cost, and how long they wait
//! when the operator is killed or upgraded.

mod away;
mod crowd;
mod requests;

use std::net::Ipv4Addr;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Result;
use trainyard_testkit::load::Script;
use trainyard_testkit::namespace;
use trainyard_testkit::program::Operator;
use trainyard_testkit::waiting::{self, Agents, HostNames, Waiter};

use super::jobs::{create_all, jobs_path};
use super::scenarios::{Bench, Size, Testbed};
use super::session::{Session, log};
use super::stats::{median, p99, spread};

const TIMEOUT: Duration = Duration::from_mins(5);
const NAMESPACE: &str = "bench-observer";

impl Session {
    pub(super) async fn waiting(&mut self, agent: &Path) -> Result<()> {
        let addresses = waiting::addresses();
        let setting = Setting {
            agent,
            names: HostNames::new(&waiting::host(NAMESPACE), &addresses)?,
            addresses,
        };
        namespace::create(&self.bench.client, NAMESPACE).await?;
        let (operator, waiting) = self.let_go(&setting).await?;
        self.crowd(&setting, &operator, &waiting.waiters[self.sizes.let_go..])
            .await?;
        self.killed(&setting, operator, waiting).await?;
        self.upgraded(&setting).await?;
        self.requests(&setting).await?;
        namespace::remove(&self.bench.client, NAMESPACE).await
    }

    /// How soon programs are released, one job after the other, while the others keep waiting.
    async fn let_go(&mut self, setting: &Setting<'_>) -> Result<(Operator, Waiting)> {
        let size = self.sizes.waiting;
        let operator = setting.start(&self.bench).await?;
        let waiting = setting.waiting(&self.bench, size).await?;
        let name = waiting.name();
        let mut times = Vec::new();
        for number in 0..self.sizes.let_go {
            let go = waiting.go(number).await?;
            for agent in &waiting.agents.by_job[number] {
                times.push(
                    agent
                        .wait_released()
                        .await?
                        .saturating_duration_since(go)
                        .as_secs_f64()
                        * 1e3,
                );
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
        Ok((operator, waiting))
    }
}

/// The agent, and how it finds operators.
struct Setting<'a> {
    agent: &'a Path,
    names: HostNames,
    addresses: [Ipv4Addr; 2],
}

impl Setting<'_> {
    async fn start(&self, bench: &Bench) -> Result<Operator> {
        let arguments = waiting::operator_arguments(NAMESPACE, self.addresses[0]);
        bench.program.start_with(&arguments).await
    }

    /// Starts an operator at the first or second address and waits until it is ready, whether or
    /// not it leads.
    async fn start_replica(&self, bench: &Bench, replica: usize) -> Result<Operator> {
        let arguments = waiting::operator_arguments(NAMESPACE, self.addresses[replica]);
        bench.program.start_replica(&arguments).await
    }

    /// Creates jobs whose pods wait, with an agent for each pod.
    async fn waiting(&self, bench: &Bench, size: Size) -> Result<Waiting> {
        let testbed = Arc::new(bench.testbed(Script::idle()).await?);
        let jobs = create(bench, &testbed, size, "w", true).await?;
        self.start_agents(bench, &testbed, &jobs, size).await
    }

    async fn start_agents(
        &self,
        bench: &Bench,
        testbed: &Arc<Testbed>,
        jobs: &[String],
        size: Size,
    ) -> Result<Waiting> {
        let waiters = waiting::waiters(&bench.client, &testbed.namespace, jobs, size.pods).await?;
        let agents = Agents::start(self.agent, &self.names, &waiters).await?;
        let waiting = Waiting {
            testbed: testbed.clone(),
            jobs: jobs.to_vec(),
            waiters,
            agents,
        };
        log(&format!("{} have an agent each", waiting.name()));
        Ok(waiting)
    }
}

/// Creates jobs and waits until their pods exist. Returns the names of the jobs.
async fn create(
    bench: &Bench,
    testbed: &Testbed,
    size: Size,
    prefix: &str,
    waits: bool,
) -> Result<Vec<String>> {
    let jobs: Vec<String> = (0..size.jobs).map(|number| format!("{prefix}{number}")).collect();
    let manifests = jobs.iter().map(|job| waiting::job(job, size.pods, waits));
    let all = testbed.player.counts().seen + size.total();
    create_all(&bench.client, &jobs_path(&testbed.namespace), manifests.collect()).await?;
    testbed.player.until(|counts| counts.seen == all).await?;
    Ok(jobs)
}

/// Jobs that wait.
struct Waiting {
    testbed: Arc<Testbed>,
    jobs: Vec<String>,
    waiters: Vec<Vec<Waiter>>,
    agents: Agents,
}

impl Waiting {
    fn name(&self) -> String {
        format!("{} waiting pods", self.agents.all().count())
    }

    /// Starts the pod that a job waits for. Returns when the server had accepted it.
    async fn go(&self, job: usize) -> Result<Instant> {
        let server = waiting::server(&self.jobs[job]);
        self.testbed
            .player
            .start_pod(&self.testbed.namespace, &server)
            .await
    }

    /// Removes the jobs.
    async fn end(self, bench: &Bench) -> Result<()> {
        let namespace = self.testbed.namespace.clone();
        drop(self);
        namespace::remove(&bench.client, &namespace).await
    }
}
