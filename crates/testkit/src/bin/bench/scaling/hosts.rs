//! How soon the list of hosts inside of the launcher knows of another size.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use serde_json::json;
use tokio::process::Child;
use trainyard_contract::directories::mpi;
use trainyard_core::remote_shell::HOSTS_CONTAINER;
use trainyard_testkit::namespace;
use trainyard_testkit::waiting::{self, HostNames};

use super::super::jobs::{create_all, jobs_path};
use super::super::session::{Session, log};
use super::super::stats::{median, spread};
use super::training::Training;
use super::{JOB, TIMEOUT, elastic_job, set_target, until_size};

/// How often the size is changed.
const TIMES: usize = 10;
/// How often the list is looked at.
const LOOK: Duration = Duration::from_millis(1);
/// A change begins this long after the one before, and a little more.
const PAUSE: Duration = Duration::from_millis(2500);
const NAMESPACE: &str = "bench-hosts";

/// Milliseconds until the list had one host fewer, or one more.
#[derive(Default)]
struct Times {
    fewer: Vec<f64>,
    more: Vec<f64>,
}

impl Session {
    /// With a real API server, the operator and an agent in processes of their own, and played
    /// kubelets: on the way from the request to the list there is no kubelet.
    pub(super) async fn hosts_of_cluster(&mut self, agent: &Path) -> Result<()> {
        let bench = &self.bench;
        let address = waiting::addresses()[0];
        let names = HostNames::new(&waiting::host(NAMESPACE), &[address])?;
        namespace::create(&bench.client, NAMESPACE).await?;
        let arguments = waiting::operator_arguments(NAMESPACE, address);
        let operator = bench.program.start_with(&arguments).await?;
        let testbed = bench.testbed(bench.script()).await?;
        let path = jobs_path(&testbed.namespace);
        create_all(&bench.client, &path, vec![elastic_job("horovod", 2)]).await?;
        testbed.jobs.until("Running", 1, TIMEOUT).await?;
        let directory = tempfile::tempdir()?;
        let launcher = format!("{JOB}-launcher-0");
        let told = waiting::agent_of(&bench.client, &testbed.namespace, &launcher, HOSTS_CONTAINER).await?;
        let _agent = start(agent, &names, &told, directory.path())?;
        let list = directory.path().join(mpi::names::USABLE);
        let times = resize(&bench.client, &testbed.namespace, &list).await?;
        operator.stop().await?;
        let namespaces = [testbed.namespace.clone(), NAMESPACE.to_owned()];
        drop(testbed);
        for name in namespaces {
            namespace::remove(&self.bench.client, &name).await?;
        }
        self.report_hosts("list of hosts, a real API server", &times, 1000.0);
        Ok(())
    }

    /// With `trainyard run`: from the request on the socket of the run until the launcher sees it.
    pub(super) async fn hosts_embedded(&mut self) -> Result<()> {
        let list = format!("{}/{}", mpi::DIRECTORY, mpi::names::USABLE);
        let launcher = format!(
            "trap 'exit 0' TERM; while :; do cp {list} seen.new && mv seen.new seen; sleep 0.005; done"
        );
        let mut job = elastic_job("horovod", 2);
        let waits = "trap 'exit 0' TERM; while :; do sleep 0.1; done";
        for (role, script) in [launcher.as_str(), waits].into_iter().enumerate() {
            job["spec"]["roles"][role]["template"]["spec"]["containers"][0]["command"] =
                json!(["sh", "-c", script]);
        }
        let training = Training::start(&self.bench.program.binary, &[("job.yaml", job.to_string())], &[])?;
        let client = training.client().await?;
        let times = resize(&client, "default", &training.file("seen")).await?;
        training.interrupt().await?;
        self.report_hosts("list of hosts, `trainyard run`", &times, 200.0);
        Ok(())
    }

    fn report_hosts(&mut self, name: &str, times: &Times, target: f64) {
        let Times { fewer, more } = times;
        log(&format!(
            "{name}: without a host after {:.0} ms, with one more after {:.0} ms",
            median(fewer),
            median(more)
        ));
        let what = [
            ("without one that leaves, median", fewer, "from the request"),
            (
                "with one that joins, median",
                more,
                "from the request; the pod starts meanwhile",
            ),
        ];
        for (measure, times, detail) in what {
            let detail = format!("{detail}; {}", spread(times));
            self.figure(name, measure, median(times), "ms", Some(target), detail);
        }
        self.report.raw.push(json!({
            "scenario": name, "fewerMilliseconds": times.fewer, "moreMilliseconds": times.more,
        }));
    }
}

/// An agent that keeps the lists of a launcher in a directory.
fn start(program: &Path, names: &HostNames, told: &waiting::Waiter, directory: &Path) -> Result<Child> {
    let token = directory.join("token");
    std::fs::write(&token, &told.token)?;
    let place = directory.to_str().context("a directory that is no text")?;
    let env = told.env.iter().map(|(name, value)| {
        let value = value.replace(mpi::DIRECTORY, place);
        (name, value)
    });
    let child = names
        .command(&std::path::absolute(program)?)
        .arg("hosts")
        .env_clear()
        .envs(env)
        .env("TRAINYARD_TOKEN_FILE", &token)
        .kill_on_drop(true)
        .spawn()?;
    Ok(child)
}

/// Changes the size of the job between one and two workers, and waits each time until the list
/// knows.
async fn resize(client: &kube::Client, namespace: &str, list: &PathBuf) -> Result<Times> {
    until_size(client, namespace, 2).await?;
    until_hosts(list, 2).await?;
    let mut times = Times::default();
    for _ in 0..TIMES {
        for (target, times) in [(1, &mut times.fewer), (2, &mut times.more)] {
            tokio::time::sleep(PAUSE).await;
            let begun = Instant::now();
            set_target(client, namespace, JOB, target).await?;
            until_hosts(list, target).await?;
            times.push(begun.elapsed().as_secs_f64() * 1e3);
            until_size(client, namespace, target).await?;
        }
    }
    Ok(times)
}

/// Waits until the list has so many hosts.
async fn until_hosts(list: &PathBuf, hosts: usize) -> Result<()> {
    let begun = Instant::now();
    loop {
        let found = std::fs::read_to_string(list).unwrap_or_default();
        if found.lines().count() == hosts {
            return Ok(());
        }
        anyhow::ensure!(
            begun.elapsed() < TIMEOUT,
            "{} does not come to {hosts} hosts: {found}",
            list.display()
        );
        tokio::time::sleep(LOOK).await;
    }
}
