//! A job whose pods start anew together, when one of them fails: how soon the first new pod is
//! there, and all of them.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use serde_json::json;
use trainyard_testkit::load::{Player, Scope};
use trainyard_testkit::namespace;

use super::jobs::{bare_pods, create_all, delete_all, pods_path};
use super::scenarios::{Bench, Size};
use super::session::{Session, as_f64, log};
use super::stats::{median, spread};

/// The ratio that is aimed at.
const RATIO: f64 = 1.3;
/// The milliseconds within which the first new pod is to be there.
const FIRST: f64 = 300.0;
/// A status when the failure is counted, and one when all run again.
const STATUS_WRITES: f64 = 2.0;
const TIMEOUT: Duration = Duration::from_mins(1);

/// What became of one job.
struct Restarted {
    /// Milliseconds from the failure until the first new pod was seen.
    first: f64,
    /// Seconds until the last was seen.
    all: f64,
    /// Writes of the operator from the failure until it was idle, but for pods.
    writes: u64,
}

impl Session {
    pub(super) async fn group(&mut self) -> Result<()> {
        let pods = self.sizes.together;
        let name = format!("one of {pods} pods that start anew together");
        let (mut rounds, mut floors) = (Vec::new(), Vec::new());
        for _ in 0..self.rounds {
            floors.push(self.bench.replaced(pods).await?);
            rounds.push(self.bench.restart_group(pods).await?);
        }
        let of = |value: fn(&Restarted) -> f64| rounds.iter().map(value).collect::<Vec<f64>>();
        let (all, first) = (of(|round| round.all), of(|round| round.first));
        let ratios: Vec<f64> = all
            .iter()
            .zip(&floors)
            .map(|(seconds, floor)| seconds / floor)
            .collect();
        let times = format!("{:.2} s against {:.2} s", median(&all), median(&floors));
        log(&format!(
            "{name}: {times}, the first after {:.0} ms",
            median(&first)
        ));
        let raw =
            json!({"scenario": name, "floorSeconds": floors, "seconds": all, "firstMilliseconds": first});
        self.report.raw.push(raw);
        let detail = format!("{times}; {}", spread(&ratios));
        let what = "all new pods seen, x floor";
        self.figure(&name, what, median(&ratios), "x", Some(RATIO), detail);
        let what = "the first new pod, seen after";
        self.figure(&name, what, median(&first), "ms", Some(FIRST), spread(&first));
        let writes = rounds.last().map_or(0, |round| round.writes);
        let detail = "from the failure until all run again".to_owned();
        self.count(
            &name,
            "writes besides those of pods",
            as_f64(writes),
            STATUS_WRITES,
            detail,
        );
        Ok(())
    }
}

impl Bench {
    /// Seconds for parallel clients to delete bare pods and, when they are gone, create them anew.
    async fn replaced(&self, pods: usize) -> Result<f64> {
        let namespace = self.namespace().await?;
        let player = Player::start(self.client.clone(), &Scope::namespace(&namespace), self.script());
        let manifests = bare_pods(&namespace, &Size { jobs: 1, pods }.manifests("j"))?;
        let names = manifests
            .iter()
            .map(|pod| pod["metadata"]["name"].as_str().map(ToOwned::to_owned))
            .collect::<Option<Vec<_>>>()
            .context("a pod without a name")?;
        let path = pods_path(&namespace);
        player.listed().await?;
        create_all(&self.client, &path, manifests.clone()).await?;
        player.until(|counts| counts.started == pods).await?;
        let begun = Instant::now();
        delete_all(&self.client, &path, names).await?;
        player.until(|counts| counts.removed == pods).await?;
        create_all(&self.client, &path, manifests).await?;
        player.until(|counts| counts.seen == 2 * pods).await?;
        let seconds = begun.elapsed().as_secs_f64();
        player.until(|counts| counts.started == 2 * pods).await?;
        drop(player);
        namespace::remove(&self.client, &namespace).await?;
        Ok(seconds)
    }

    /// Fails one pod of a job that runs.
    async fn restart_group(&self, pods: usize) -> Result<Restarted> {
        let (operator, testbed) = self.start_all(&[Size { jobs: 1, pods }]).await?;
        let before = operator.metrics().await?;
        let failed = testbed
            .player
            .fail(&testbed.namespace, "s0-0-worker-1", 1)
            .await?;
        testbed.player.until(|counts| counts.seen > pods).await?;
        let first = failed.elapsed().as_secs_f64() * 1000.0;
        testbed.player.until(|counts| counts.seen == 2 * pods).await?;
        let all = failed.elapsed().as_secs_f64();
        testbed.jobs.until("Running", 1, TIMEOUT).await?;
        let after = operator.wait_until_idle(TIMEOUT).await?;
        let statuses = |metrics: &trainyard_testkit::program::OperatorMetrics| {
            metrics.count(|_, kind| kind.starts_with("TrainingJob"))
        };
        let writes = statuses(&after) - statuses(&before);
        operator.stop().await?;
        let namespace = testbed.namespace.clone();
        drop(testbed);
        namespace::remove(&self.client, &namespace).await?;
        Ok(Restarted { first, all, writes })
    }
}
