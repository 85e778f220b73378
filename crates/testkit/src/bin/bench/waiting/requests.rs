//! Requests to the API server for jobs whose pods wait, compared with jobs whose pods don't.

use std::sync::Arc;

use anyhow::Result;
use futures::future::try_join_all;
use serde_json::json;
use trainyard_testkit::load::Script;
use trainyard_testkit::program::Requests;
use trainyard_testkit::{namespace, waiting};

use super::{Session, Setting, TIMEOUT, create};
use crate::scenarios::{Size, Testbed};
use crate::session::{as_f64, per_job, requests_of, requests_since};

/// Jobs before those that are counted, so that requests that are made once do not count.
const WARM_UP_JOBS: usize = 1;

impl Session {
    /// Requests until all jobs run.
    pub(super) async fn requests(&mut self, setting: &Setting<'_>) -> Result<()> {
        let size = self.sizes.counted;
        let waiting = self.cost(setting, size, true).await?;
        let others = self.cost(setting, size, false).await?;
        let name = format!("{} x {} that wait", size.jobs, size.pods);
        for (name, requests) in [(&*name, &waiting), ("the same that do not wait", &others)] {
            let requests = requests_of(requests);
            self.report
                .raw
                .push(json!({"scenario": name, "requests": requests}));
        }
        let each = |requests: &Requests| as_f64(requests.values().sum()) / as_f64(size.jobs as u64);
        let detail = format!(
            "{}; of those that do not wait: {}",
            per_job(&waiting, size.jobs),
            per_job(&others, size.jobs)
        );
        self.count(&name, "requests per job", each(&waiting), each(&others), detail);
        Ok(())
    }

    /// Requests of jobs, with an operator of their own.
    async fn cost(&self, setting: &Setting<'_>, size: Size, waits: bool) -> Result<Requests> {
        let bench = &self.bench;
        let operator = setting.start(bench).await?;
        let testbed = Arc::new(bench.testbed(Script::idle()).await?);
        let begun = Size {
            jobs: WARM_UP_JOBS,
            ..size
        };
        self.run_all(setting, &testbed, begun, "before", waits).await?;
        testbed.jobs.until("Running", WARM_UP_JOBS, TIMEOUT).await?;
        let before = operator.wait_until_idle(TIMEOUT).await?.of_jobs();
        self.run_all(setting, &testbed, size, "w", waits).await?;
        testbed
            .jobs
            .until("Running", WARM_UP_JOBS + size.jobs, TIMEOUT)
            .await?;
        let after = operator.wait_until_idle(TIMEOUT).await?.of_jobs();
        operator.stop().await?;
        let namespace = testbed.namespace.clone();
        drop(testbed);
        namespace::remove(&bench.client, &namespace).await?;
        Ok(requests_since(&after, &before))
    }

    /// Creates jobs and starts their pods, the server first, the others when their agents release
    /// them. The order is the same if they do not wait, because a slower start costs a status write
    /// more.
    async fn run_all(
        &self,
        setting: &Setting<'_>,
        testbed: &Arc<Testbed>,
        size: Size,
        prefix: &str,
        waits: bool,
    ) -> Result<()> {
        let jobs = create(&self.bench, testbed, size, prefix, waits).await?;
        let agents = if waits {
            let waiting = setting.start_agents(&self.bench, testbed, &jobs, size).await?;
            Some(waiting.agents)
        } else {
            None
        };
        let runs = jobs.iter().enumerate().map(|(number, job)| {
            let agents = agents.as_ref().map(|agents| &agents.by_job[number]);
            async move {
                let start =
                    |pod: String| async move { testbed.player.start_pod(&testbed.namespace, &pod).await };
                start(waiting::server(job)).await?;
                for agent in agents.into_iter().flatten() {
                    agent.wait_released().await?;
                }
                try_join_all(waiting::clients(job, size.pods).map(start)).await
            }
        });
        try_join_all(runs).await.map(drop)
    }
}
