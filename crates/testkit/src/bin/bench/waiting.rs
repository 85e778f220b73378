//! Roles that wait: how soon programs are let go, what many agents cost, and what becomes of them when the operator is killed
//! or upgraded.

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
use trainyard_testkit::waiting::{self, Agents, Names, Waiter};

use super::jobs::{create_all, jobs_path};
use super::scenarios::{Bench, Place, Size};
use super::session::{Session, say};
use super::stats::{median, p99, spread};

const LIMIT: Duration = Duration::from_mins(5);
/// Where the operators are.
const NAMESPACE: &str = "bench-observer";

impl Session {
    pub(super) async fn waiting(&mut self, agent: &Path) -> Result<()> {
        let addresses = waiting::addresses();
        let setting = Setting {
            agent,
            names: Names::new(&waiting::host(NAMESPACE), &addresses)?,
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

    /// How soon programs are let go while all others wait, one job after the other. The jobs after them wait on.
    async fn let_go(&mut self, setting: &Setting<'_>) -> Result<(Operator, Waiting)> {
        let size = self.sizes.waiting;
        let operator = setting.start(&self.bench).await?;
        let waiting = setting.waiting(&self.bench, size).await?;
        let name = waiting.name();
        let mut times = Vec::new();
        for number in 0..self.sizes.let_go {
            let go = waiting.go(number).await?;
            for agent in &waiting.agents.by_job[number] {
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
        Ok((operator, waiting))
    }
}

/// The agent, and how it finds operators.
struct Setting<'a> {
    agent: &'a Path,
    names: Names,
    addresses: [Ipv4Addr; 2],
}

impl Setting<'_> {
    /// An operator that leads.
    async fn start(&self, bench: &Bench) -> Result<Operator> {
        let arguments = waiting::operator_arguments(NAMESPACE, self.addresses[0]);
        bench.program.start_with(&arguments).await
    }

    /// An operator that is ready, in the first or the second place, whoever leads.
    async fn start_beside(&self, bench: &Bench, place: usize) -> Result<Operator> {
        let arguments = waiting::operator_arguments(NAMESPACE, self.addresses[place]);
        bench.program.start_beside(&arguments).await
    }

    /// Creates jobs that wait, and starts an agent in each pod that does.
    async fn waiting(&self, bench: &Bench, size: Size) -> Result<Waiting> {
        let place = Arc::new(bench.place(Script::idle()).await?);
        let jobs = create(bench, &place, size, "w", true).await?;
        self.attended(bench, &place, &jobs, size).await
    }

    /// Starts an agent in each pod of jobs that waits.
    async fn attended(
        &self,
        bench: &Bench,
        place: &Arc<Place>,
        jobs: &[String],
        size: Size,
    ) -> Result<Waiting> {
        let waiters = waiting::waiters(&bench.client, &place.namespace, jobs, size.pods).await?;
        let agents = Agents::start(self.agent, &self.names, &waiters).await?;
        let waiting = Waiting {
            place: place.clone(),
            jobs: jobs.to_vec(),
            waiters,
            agents,
        };
        say(&format!("{} have an agent each", waiting.name()));
        Ok(waiting)
    }
}

/// Creates jobs and waits until their pods are there. Their names.
async fn create(bench: &Bench, place: &Place, size: Size, prefix: &str, waits: bool) -> Result<Vec<String>> {
    let jobs: Vec<String> = (0..size.jobs).map(|number| format!("{prefix}{number}")).collect();
    let manifests = jobs.iter().map(|job| waiting::job(job, size.pods, waits));
    let all = place.player.counts().seen + size.total();
    create_all(&bench.client, &jobs_path(&place.namespace), manifests.collect()).await?;
    place.player.until(|counts| counts.seen == all).await?;
    Ok(jobs)
}

/// Jobs that wait.
struct Waiting {
    place: Arc<Place>,
    jobs: Vec<String>,
    waiters: Vec<Vec<Waiter>>,
    agents: Agents,
}

impl Waiting {
    fn name(&self) -> String {
        format!("{} waiting pods", self.agents.all().count())
    }

    /// Has what a job waits for come. When the server had taken it.
    async fn go(&self, job: usize) -> Result<Instant> {
        let server = waiting::server(&self.jobs[job]);
        self.place.player.start_pod(&self.place.namespace, &server).await
    }

    /// Removes the jobs.
    async fn end(self, bench: &Bench) -> Result<()> {
        let namespace = self.place.namespace.clone();
        drop(self);
        namespace::remove(&bench.client, &namespace).await
    }
}
