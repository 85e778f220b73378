//! Crashes the operator at every write of a scenario, which must always end the same.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use futures::future::{BoxFuture, join_all};
use kube::Client;
use parking_lot::Mutex;
use serde_json::Value;
use tokio::runtime::{Builder, Runtime};
use tokio_util::sync::CancellationToken;
use trainyard_eventually::{Wait, within};

use super::snapshot::differences;
use super::{CrashPoint, Faults, snapshot};
use crate::load::{Player, Scope, Script};
use crate::namespace;

/// The state is final when the operator has not written for this long.
const IDLE_INTERVAL: Duration = Duration::from_millis(300);
/// More writes than any scenario makes.
const MAX_WRITES: u64 = 1000;
/// How many runs there are at once, each in a namespace of its own. They mostly wait.
const AT_ONCE: usize = 4;

/// Starts an operator for one namespace, which talks to the server through the faults.
///
/// The future runs in a runtime of its own, which is dropped when the operator crashes. The
/// operator must not wait for the lease of one that crashed: leave leader election out, or make the
/// lease short.
pub type Start =
    Arc<dyn Fn(String, Faults, CancellationToken) -> BoxFuture<'static, Result<()>> + Send + Sync>;

/// What happens while an operator runs.
pub trait Scenario: Sync {
    /// A short name; the namespaces are called after it.
    fn name(&self) -> &str;

    /// What the pods of a namespace do.
    fn script(&self, _namespace: &str) -> Script {
        Script::run()
    }

    /// Returns true if a difference, by its path, says nothing.
    fn may_differ(&self, _path: &str) -> bool {
        false
    }

    /// Creates and changes jobs, and returns when they have ended. The operator may crash and
    /// restart at any time.
    fn play<'a>(
        &'a self,
        client: &'a Client,
        namespace: &'a str,
        player: &'a Player,
    ) -> BoxFuture<'a, Result<()>>;
}

/// What [`crash_everywhere`] has done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Report {
    /// Writes of the undisturbed run.
    pub writes: u64,
    /// Runs in which the operator crashed.
    pub crashes: u64,
}

/// An operator that runs in a runtime of its own.
pub struct Running {
    runtime: Option<Runtime>,
    shutdown: CancellationToken,
    ended: Arc<Mutex<Option<Result<()>>>>,
    over: CancellationToken,
}

/// Starts an operator in a runtime of its own.
pub fn run_operator(start: &Start, namespace: &str, faults: Faults) -> Result<Running> {
    let runtime = Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    let (shutdown, over) = (CancellationToken::new(), CancellationToken::new());
    let ended = Arc::new(Mutex::new(None));
    let operator = start(namespace.to_owned(), faults, shutdown.clone());
    let (slot, guard) = (ended.clone(), over.clone().drop_guard());
    runtime.spawn(async move {
        let _guard = guard;
        let result = operator.await;
        if let Err(error) = &result {
            // A test that waits for what it should do would not say why nothing happens.
            eprintln!("the operator has ended: {error:#}");
        }
        *slot.lock() = Some(result);
    });
    Ok(Running {
        runtime: Some(runtime),
        shutdown,
        ended,
        over,
    })
}

impl Running {
    /// Waits until the operator has ended by itself.
    pub async fn wait(&self) -> Result<()> {
        self.over.cancelled().await;
        let result = self.ended.lock().take();
        result.unwrap_or_else(|| bail!("the operator has panicked"))
    }

    /// Ends it like `kill -9`.
    pub async fn kill(mut self) -> Result<()> {
        if let Some(runtime) = self.runtime.take() {
            tokio::task::spawn_blocking(move || runtime.shutdown_timeout(Duration::from_secs(10))).await?;
        }
        Ok(())
    }

    /// Asks it to end, and waits until it has.
    pub async fn stop(self) -> Result<()> {
        self.shutdown.cancel();
        let result = within("the operator ends when told to", self.wait()).await;
        self.kill().await?;
        result
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// Runs a scenario once without a crash, then with a crash before and after every write, and
/// compares the final states.
pub async fn crash_everywhere(client: &Client, start: &Start, scenario: &dyn Scenario) -> Result<Report> {
    let harness = Harness {
        client,
        start,
        scenario,
    };
    let faults = Faults::none();
    let (expected, _) = harness.once("calm", &faults, None).await?;
    let mut report = Report {
        writes: faults.traffic().borrow().writes,
        crashes: 0,
    };
    for when in [CrashPoint::Before, CrashPoint::After] {
        for first in (1..).step_by(AT_ONCE) {
            if first > MAX_WRITES {
                bail!("{} makes more than {MAX_WRITES} writes", scenario.name());
            }
            let last = first + AT_ONCE as u64;
            let runs = (first..last).map(|n| harness.crash(n, when, &expected));
            let has_crashed = join_all(runs).await.into_iter().collect::<Result<Vec<bool>>>()?;
            let crashes = has_crashed.iter().filter(|crashed| **crashed).count();
            report.crashes += crashes as u64;
            if crashes < has_crashed.len() {
                break;
            }
        }
    }
    Ok(report)
}

struct Harness<'a> {
    client: &'a Client,
    start: &'a Start,
    scenario: &'a dyn Scenario,
}

type Snapshot = BTreeMap<String, Value>;

impl Harness<'_> {
    /// Runs once with a crash at the n-th write. Returns whether there were so many.
    async fn crash(&self, n: u64, when: CrashPoint, expected: &Snapshot) -> Result<bool> {
        let tag = format!("{when:?}-{n}").to_lowercase();
        let faults = Faults::crash_at(n, when);
        let once = self.once(&tag, &faults, Some(expected)).await;
        let (_, crashed) =
            once.with_context(|| format!("{}: crash {when:?} write {n}", self.scenario.name()))?;
        Ok(crashed)
    }

    /// Runs once. Returns the final state, and whether the operator crashed.
    async fn once(
        &self,
        tag: &str,
        faults: &Faults,
        expected: Option<&Snapshot>,
    ) -> Result<(Snapshot, bool)> {
        let name = format!("{}-{tag}-{}", self.scenario.name(), std::process::id());
        namespace::create(self.client, &name).await?;
        let result = self.once_in(&name, faults, expected).await;
        namespace::remove(self.client, &name).await?;
        result
    }

    async fn once_in(
        &self,
        namespace: &str,
        faults: &Faults,
        expected: Option<&Snapshot>,
    ) -> Result<(Snapshot, bool)> {
        let calm = Faults::none();
        let first = run_operator(self.start, namespace, faults.clone())?;
        // It runs to the end, to remove pods whose deletion was interrupted by a crash.
        let nodes = Player::start(
            self.client.clone(),
            &Scope::namespace(namespace),
            self.scenario.script(namespace),
        );
        let played = async {
            self.scenario.play(self.client, namespace, &nodes).await?;
            self.settled(namespace, faults, &calm, expected).await
        };
        tokio::pin!(played);
        let until_crash = tokio::select! {
            end = &mut played => Some(end?),
            () = faults.crashed().cancelled() => None,
            result = first.wait() => {
                result?;
                bail!("the operator has ended by itself")
            }
        };
        if let Some(end) = until_crash {
            first.stop().await?;
            return Ok((end, faults.crashed().is_cancelled()));
        }
        first.kill().await?;
        let second = run_operator(self.start, namespace, calm.clone())?;
        let end = tokio::select! {
            end = &mut played => end?,
            result = second.wait() => {
                result?;
                bail!("the second operator has ended by itself")
            }
        };
        second.stop().await?;
        Ok((end, true))
    }

    /// Waits until the state is final and as expected.
    async fn settled(
        &self,
        namespace: &str,
        faults: &Faults,
        calm: &Faults,
        expected: Option<&Snapshot>,
    ) -> Result<Snapshot> {
        let mut wait = Wait::new("the end is that of the undisturbed run");
        loop {
            let current = if faults.crashed().is_cancelled() {
                calm
            } else {
                faults
            };
            current.wait_until_idle(IDLE_INTERVAL).await;
            let found = snapshot(self.client, namespace).await?;
            let mut wrong = expected
                .map(|expected| differences(expected, &found))
                .unwrap_or_default();
            wrong.retain(|line| !self.scenario.may_differ(line));
            if wrong.is_empty() {
                return Ok(found);
            }
            if !wait.has_patience(wrong.join("\n  ")) {
                bail!("{wait}");
            }
        }
    }
}
