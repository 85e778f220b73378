//! What jobs whose pods wait cost the API server, against jobs of the same shape whose pods don't.

use std::sync::Arc;

use anyhow::Result;
use futures::future::try_join_all;
use serde_json::json;
use trainyard_testkit::load::Script;
use trainyard_testkit::program::Requests;
use trainyard_testkit::{namespace, waiting};

use super::{LIMIT, Session, Setting, create};
use crate::scenarios::{Place, Size};
use crate::session::{as_f64, per_job, requests_of};

/// Jobs before those that are counted: what is read once for all is not what a job costs.
const BEFORE: usize = 1;

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
        let place = Arc::new(bench.place(Script::idle()).await?);
        let begun = Size { jobs: BEFORE, ..size };
        self.run_all(setting, &place, begun, "before", waits).await?;
        place.jobs.until("Running", BEFORE, LIMIT).await?;
        let before = operator.settled(LIMIT).await?.of_jobs();
        self.run_all(setting, &place, size, "w", waits).await?;
        place.jobs.until("Running", BEFORE + size.jobs, LIMIT).await?;
        let after = operator.settled(LIMIT).await?.of_jobs();
        operator.stop().await?;
        let namespace = place.namespace.clone();
        drop(place);
        namespace::remove(&bench.client, &namespace).await?;
        Ok(more(&after, &before))
    }

    /// Creates jobs and has their pods run, the server first; where they wait, when their agents let them. The same for both, as a
    /// job that takes its time to start writes its status once more.
    async fn run_all(
        &self,
        setting: &Setting<'_>,
        place: &Arc<Place>,
        size: Size,
        prefix: &str,
        waits: bool,
    ) -> Result<()> {
        let jobs = create(&self.bench, place, size, prefix, waits).await?;
        let agents = if waits {
            let waiting = setting.attended(&self.bench, place, &jobs, size).await?;
            Some(waiting.agents)
        } else {
            None
        };
        let runs = jobs.iter().enumerate().map(|(number, job)| {
            let agents = agents.as_ref().map(|agents| &agents.by_job[number]);
            async move {
                let start = |pod: String| async move { place.player.start_pod(&place.namespace, &pod).await };
                start(waiting::server(job)).await?;
                for agent in agents.into_iter().flatten() {
                    agent.let_go().await?;
                }
                try_join_all(waiting::clients(job, size.pods).map(start)).await
            }
        });
        try_join_all(runs).await.map(drop)
    }
}

/// Requests that are in the first and not yet in the second.
fn more(after: &Requests, before: &Requests) -> Requests {
    let since = |(key, count): (&(String, String), &u64)| {
        let since = count.saturating_sub(before.get(key).copied().unwrap_or_default());
        (since > 0).then(|| (key.clone(), since))
    };
    after.iter().filter_map(since).collect()
}
