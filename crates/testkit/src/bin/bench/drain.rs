//! A node is drained that has a worker of many jobs: how long they do not run, and what that costs;
//! and whether jobs with disruption budgets cost anything at rest.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::api::{Api, ListParams};
use serde_json::{Value, json};
use trainyard_api::{RestartRecord, TrainingJob};
use trainyard_testkit::load::{cordon, create_nodes, remove_nodes};
use trainyard_testkit::namespace;
use trainyard_testkit::program::Operator;

use super::scenarios::{Bench, Size, Testbed};
use super::session::{Session, as_f64, log};

/// An operator that could tell pods to leave. Nobody asks it: no program answers, so that all that
/// is waited for is the operator.
const ARGUMENTS: [&str; 4] = [
    "--observer",
    "--observer-address=127.0.0.1:0",
    "--agent-image=registry.example/trainyard:dev",
    "--namespace=bench-drain",
];
/// The place of its certificates.
const NAMESPACE: &str = "bench-drain";
const TIMEOUT: Duration = Duration::from_mins(2);
/// Pods that have left a cordoned node are told, have left, and run again elsewhere.
const STATUS_WRITES: f64 = 3.0;

/// What became of the jobs of one node.
struct Drained {
    /// The longest time that a job did not run, in seconds.
    longest: i64,
    /// Writes of the operator for statuses, a job.
    statuses: f64,
    /// Writes for pods, a job.
    pods: f64,
    /// Disruptions that were counted.
    disruptions: u64,
}

impl Session {
    pub(super) async fn drain(&mut self) -> Result<()> {
        let (size, count) = (self.sizes.with_budgets, self.sizes.drained);
        let bench = &self.bench;
        namespace::create(&bench.client, NAMESPACE).await?;
        let nodes = ["one", "many"].map(|name| format!("drained-{}-{name}", std::process::id()));
        create_nodes(&bench.client, &nodes).await?;
        let operator = bench.program.start_with(&ARGUMENTS).await?;
        let [one, many] = &nodes;
        let script = bench
            .script()
            .first_on_node("one-0-worker-1", one)
            .first_on_node("many-*-worker-1", many);
        let testbed = bench.testbed(script).await?;
        for (prefix, jobs) in [("one-", 1), ("many-", count), ("other-", size.jobs - count - 1)] {
            let manifests = Size { jobs, ..size }.manifests(prefix);
            let manifests = manifests.into_iter().map(with_drain_timeout).collect();
            let before = testbed.jobs.count("Running");
            bench
                .submit(&testbed, manifests, "Running", before + jobs)
                .await?;
        }
        let budgets = bench
            .rest_with_budgets(&operator, &testbed, self.sizes.steady)
            .await?;
        let alone = bench
            .drain_node(&operator, &testbed, one, "one-", 1, size)
            .await?;
        let together = bench
            .drain_node(&operator, &testbed, many, "many-", count, size)
            .await?;
        operator.stop().await?;
        let namespaces = [testbed.namespace.clone(), NAMESPACE.to_owned()];
        drop(testbed);
        for name in namespaces {
            namespace::remove(&bench.client, &name).await?;
        }
        remove_nodes(&bench.client, &nodes).await?;
        self.report_drains(&budgets, &alone, &together);
        Ok(())
    }

    fn report_drains(&mut self, budgets: &(u64, u64), alone: &Drained, together: &Drained) {
        let (size, count) = (self.sizes.with_budgets, self.sizes.drained);
        let (found, requests) = *budgets;
        let name = format!("at rest, {} jobs with disruption budgets", size.jobs);
        let wanted = as_f64(size.jobs as u64);
        self.count(&name, "budgets", as_f64(found), wanted, "one a job".to_owned());
        let detail = format!("in {} s", self.sizes.steady.as_secs());
        self.count(&name, "requests", as_f64(requests), 0.0, detail);
        let name = format!("a node with a worker of {count} jobs is drained");
        log(&format!(
            "{name}: no job stops for more than {} s, and {} s if it is alone",
            together.longest, alone.longest
        ));
        self.report.raw.push(json!({
            "scenario": name,
            "longestSeconds": together.longest,
            "longestSecondsAlone": alone.longest,
        }));
        let detail = format!("{} s for one job that is alone on its node", alone.longest);
        let limit = alone.longest.saturating_add(1);
        let whole = |seconds: i64| f64::from(i32::try_from(seconds).unwrap_or(i32::MAX));
        let what = "the longest that a job does not run";
        self.figure(
            &name,
            what,
            whole(together.longest),
            "s",
            Some(whole(limit)),
            detail,
        );
        let detail = "one a job".to_owned();
        self.count(
            &name,
            "disruptions",
            as_f64(together.disruptions),
            as_f64(count as u64),
            detail,
        );
        let detail = "each pod is deleted and made anew".to_owned();
        let pods = as_f64(2 * size.pods as u64);
        self.count(&name, "writes of pods, a job", together.pods, pods, detail);
        let detail = "told to leave, left, running again".to_owned();
        self.count(&name, "statuses, a job", together.statuses, STATUS_WRITES, detail);
    }
}

impl Bench {
    /// How many budgets there are when all is done, and how many requests the operator makes then.
    async fn rest_with_budgets(
        &self,
        operator: &Operator,
        testbed: &Testbed,
        time: Duration,
    ) -> Result<(u64, u64)> {
        let before = operator.wait_until_idle(TIMEOUT).await?;
        let api: Api<PodDisruptionBudget> = Api::namespaced(self.client.clone(), &testbed.namespace);
        let budgets = api.list_metadata(&ListParams::default()).await?.items.len();
        tokio::time::sleep(time).await;
        let after = operator.metrics().await?;
        let requests = after.other_than_watches_and_leases() - before.other_than_watches_and_leases();
        Ok((budgets as u64, requests))
    }

    /// Cordons a node, and waits until jobs that have a worker there run elsewhere.
    async fn drain_node(
        &self,
        operator: &Operator,
        testbed: &Testbed,
        node: &str,
        prefix: &str,
        jobs: usize,
        size: Size,
    ) -> Result<Drained> {
        let before = operator.wait_until_idle(TIMEOUT).await?;
        let running = testbed.jobs.count("Running");
        let started = testbed.player.counts().started;
        cordon(&self.client, node).await?;
        let anew = started + jobs * size.pods;
        testbed.player.until(|counts| counts.started >= anew).await?;
        testbed.jobs.until("Running", running, TIMEOUT).await?;
        let after = operator.wait_until_idle(TIMEOUT).await?;
        let history = self.incidents(testbed, prefix).await?;
        ensure!(
            history.len() == jobs,
            "{} of {jobs} jobs were drained",
            history.len()
        );
        let times = history.iter().map(|record| record.seconds);
        let longest = times
            .collect::<Option<Vec<i64>>>()
            .and_then(|all| all.into_iter().max());
        let per_job = |is_meant: fn(&str) -> bool| {
            let count = |metrics: &trainyard_testkit::program::OperatorMetrics| {
                metrics.count(|verb, kind| is_meant(kind) && !matches!(verb, "get" | "list" | "watch"))
            };
            as_f64(count(&after) - count(&before)) / as_f64(jobs as u64)
        };
        Ok(Drained {
            longest: longest.context("a job that does not run")?,
            statuses: per_job(|kind| kind.starts_with("TrainingJob")),
            pods: per_job(|kind| kind == "Pod"),
            disruptions: history.len() as u64,
        })
    }

    /// The incidents of jobs whose names begin with a prefix.
    async fn incidents(&self, testbed: &Testbed, prefix: &str) -> Result<Vec<RestartRecord>> {
        let api: Api<TrainingJob> = Api::namespaced(self.client.clone(), &testbed.namespace);
        let jobs = api.list(&ListParams::default()).await?.items;
        let is_meant = |job: &TrainingJob| {
            let name = job.metadata.name.as_deref();
            name.is_some_and(|name| name.starts_with(prefix))
        };
        let restarts = jobs
            .into_iter()
            .filter(is_meant)
            .filter_map(|job| job.status?.restarts);
        Ok(restarts.flat_map(|restarts| restarts.history).collect())
    }
}

/// The job leaves nodes that are about to go, and has a budget.
fn with_drain_timeout(mut job: Value) -> Value {
    job["spec"]["runPolicy"]["drainTimeoutSeconds"] = 60.into();
    job
}
