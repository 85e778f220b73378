//! The operator is killed, or upgraded, while jobs wait: how much longer they wait.

use std::time::{Duration, Instant};

use anyhow::Result;
use trainyard_testkit::program::Operator;

use super::{Session, Setting, Waiting};

/// How long there is no operator after one was killed.
const DOWNTIME: Duration = Duration::from_secs(5);
const MAX_EXTRA_WAIT_SECONDS: f64 = 2.0;

impl Session {
    /// Kills the operator, starts the pods that jobs wait for, then starts another operator, to
    /// which all agents reconnect at once.
    pub(super) async fn killed(
        &mut self,
        setting: &Setting<'_>,
        operator: Operator,
        waiting: Waiting,
    ) -> Result<()> {
        let left = self.sizes.let_go..waiting.jobs.len();
        let killed = Instant::now();
        operator.kill()?;
        for number in left.clone() {
            waiting.go(number).await?;
        }
        tokio::time::sleep(DOWNTIME).await;
        // It does not lead, because the killed operator has the lease. Agents don't depend on that.
        let operator = setting.start_replica(&self.bench, 0).await?;
        let away = killed.elapsed().as_secs_f64();
        let (mut longest, mut agents) = (0.0_f64, 0);
        for agent in waiting.agents.by_job[left.clone()].iter().flatten() {
            let waited = agent.wait_released().await?.saturating_duration_since(killed);
            longest = longest.max(waited.as_secs_f64() - away);
            agents += 1;
        }
        let detail = format!(
            "{} jobs; killed, and another in its place {away:.1} s later",
            left.len()
        );
        self.figure(
            &format!("killed, {agents} waiting pods"),
            "waited longer than there was no operator",
            longest,
            "s",
            Some(MAX_EXTRA_WAIT_SECONDS),
            detail,
        );
        operator.stop().await?;
        waiting.end(&self.bench).await
    }

    /// Starts a second operator and stops the first when the second is ready, as in a rolling
    /// update. The pods that jobs wait for are started meanwhile.
    pub(super) async fn upgraded(&mut self, setting: &Setting<'_>) -> Result<()> {
        let old = setting.start(&self.bench).await?;
        let waiting = setting.waiting(&self.bench, self.sizes.upgraded).await?;
        let new = setting.start_replica(&self.bench, 1).await?;
        let asked = Instant::now();
        old.terminate()?;
        let ended = async {
            old.wait_exit().await?;
            anyhow::Ok(asked.elapsed().as_secs_f64())
        };
        let all_go = async {
            let mut times = Vec::new();
            for number in 0..waiting.jobs.len() {
                times.push(waiting.go(number).await?);
            }
            anyhow::Ok(times)
        };
        let (ended, times) = tokio::try_join!(ended, all_go)?;
        let (mut longest, mut agents) = (0.0_f64, 0);
        for (go, of_job) in times.iter().zip(&waiting.agents.by_job) {
            for agent in of_job {
                let waited = agent.wait_released().await?.saturating_duration_since(*go);
                longest = longest.max(waited.as_secs_f64());
                agents += 1;
            }
        }
        let detail = format!(
            "{} jobs; another was ready, so that there was always one; the first ended within {ended:.2} s",
            waiting.jobs.len()
        );
        self.figure(
            &format!("upgraded, {agents} waiting pods"),
            "waited longer than there was no operator",
            longest,
            "s",
            Some(MAX_EXTRA_WAIT_SECONDS),
            detail,
        );
        new.stop().await?;
        waiting.end(&self.bench).await
    }
}
