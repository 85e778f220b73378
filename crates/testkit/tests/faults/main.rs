//! The operator under faults: a real API server, played nodes, and an operator that crashes, is
//! starved and is lied to.
//!
//! Needs an API server only: `hack/suite apiserver`.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests are tests, which clippy.toml lets unwrap"
)]

mod changes;
mod drains;
mod hostile;
mod limit;
mod malformed;
mod replicas;
mod requests;
mod rights;
mod servers;
mod waiting;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, bail};
use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::{Value, json};
use trainyard_api::{JobPhase, TrainingJob};
use trainyard_eventually::{LOOK_INTERVAL, Wait, within};
use trainyard_testkit::cluster::Cluster;
use trainyard_testkit::faults::{Call, Faults, Scenario, Verb, crash_everywhere, run_operator, snapshot};
use trainyard_testkit::load::{Player, Scope, Script};
use trainyard_testkit::operator::{in_process, install_crds};
use trainyard_testkit::{lab, namespace};

async fn client() -> Client {
    let cluster = Cluster::from_env()
        .unwrap_or_else(|| panic!("this suite needs a test cluster: use `make test-apiserver`"));
    tokio::task::spawn_blocking(move || install_crds(&cluster))
        .await
        .unwrap();
    Client::try_default().await.unwrap()
}

/// The program that is tested as a process of its own.
fn program() -> PathBuf {
    let binary = std::env::var("TRAINYARD_BIN");
    PathBuf::from(binary.unwrap_or_else(|_| panic!("TRAINYARD_BIN is not set: use `make test-apiserver`")))
}

fn jobs(client: &Client, namespace: &str) -> Api<TrainingJob> {
    Api::namespaced(client.clone(), namespace)
}

async fn create(client: &Client, namespace: &str, manifest: &str) -> Result<()> {
    let job: TrainingJob = serde_json::from_str(manifest)?;
    jobs(client, namespace)
        .create(&PostParams::default(), &job)
        .await?;
    Ok(())
}

/// Waits until a job is in a phase.
async fn phase(client: &Client, namespace: &str, name: &str, wanted: JobPhase) -> Result<TrainingJob> {
    let api = jobs(client, namespace);
    let mut wait = Wait::new(format!("{name} becomes {wanted:?}"));
    loop {
        let seen = match api.get(name).await {
            Ok(job) if job.status.as_ref().and_then(|status| status.phase) == Some(wanted) => return Ok(job),
            Ok(job) => format!("{:#?}", job.status),
            Err(error) => error.to_string(),
        };
        if !wait.has_patience(seen) {
            bail!("{wait}");
        }
        tokio::time::sleep(LOOK_INTERVAL).await;
    }
}

fn manifest(name: &str, replicas: u32, more_role: &str, more: &str) -> String {
    let role = lab::Role {
        name: "worker",
        replicas,
        script: "true",
        more: more_role,
    };
    lab::job(name, "pytorch", &[role], more)
}

/// Starts, loses a pod, starts anew with all pods, ends.
struct FailAndRecover;

impl Scenario for FailAndRecover {
    fn name(&self) -> &'static str {
        "recover"
    }

    fn script(&self, _: &str) -> Script {
        Script::run()
            .fail("j-worker-1", 137)
            .succeed_after(Duration::from_millis(700))
    }

    fn play<'a>(
        &'a self,
        client: &'a Client,
        namespace: &'a str,
        _: &'a Player,
    ) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            create(client, namespace, &manifest("j", 3, "", "")).await?;
            let job = phase(client, namespace, "j", JobPhase::Succeeded).await?;
            let restarts = job.status.and_then(|status| status.restarts).unwrap_or_default();
            assert_eq!(
                restarts.failures, 1,
                "one failure is counted once, whenever the operator crashed"
            );
            Ok(())
        })
    }
}

/// Runs, is suspended, is resumed, ends for good with everything cleaned up.
struct SuspendResumeFail;

impl Scenario for SuspendResumeFail {
    fn name(&self) -> &'static str {
        "nap"
    }

    fn play<'a>(
        &'a self,
        client: &'a Client,
        namespace: &'a str,
        player: &'a Player,
    ) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let never = r#"{"restartPolicy": "Never"}"#;
            let all = r#"{"runPolicy": {"cleanPodPolicy": "All"}}"#;
            create(client, namespace, &manifest("j", 2, never, all)).await?;
            phase(client, namespace, "j", JobPhase::Running).await?;
            suspend(client, namespace, "j", true).await?;
            phase(client, namespace, "j", JobPhase::Suspended).await?;
            player.until(|counts| counts.removed >= 2).await?;
            suspend(client, namespace, "j", false).await?;
            phase(client, namespace, "j", JobPhase::Running).await?;
            player.fail(namespace, "j-worker-0", 1).await?;
            phase(client, namespace, "j", JobPhase::Failed).await?;
            Ok(())
        })
    }
}

async fn suspend(client: &Client, namespace: &str, name: &str, suspend: bool) -> Result<()> {
    let patch = Patch::Merge(json!({"spec": {"suspend": suspend}}));
    jobs(client, namespace)
        .patch(name, &PatchParams::default(), &patch)
        .await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_crash_at_any_write_of_a_recovery_changes_nothing_in_the_end() {
    let client = client().await;
    let report = crash_everywhere(&client, &in_process(), &FailAndRecover)
        .await
        .unwrap();
    println!("{report:?}");
    // Three pods, a Service, the deletion of all pods, their replacements, and two statuses; how
    // many more statuses there are depends on what happens to be seen together.
    assert!(report.writes >= 10, "{report:?}");
    assert!(report.crashes >= 16, "before and after each: {report:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_crash_at_any_write_of_suspending_and_failing_changes_nothing_in_the_end() {
    let client = client().await;
    let report = crash_everywhere(&client, &in_process(), &SuspendResumeFail)
        .await
        .unwrap();
    println!("{report:?}");
    assert!(report.writes >= 10, "{report:?}");
}

/// Plays a scenario with faults that pass, and compares the end with that of an undisturbed run.
async fn same_end_despite(tag: &str, faults: Faults) {
    let client = client().await;
    let mut ends: Vec<std::collections::BTreeMap<String, Value>> = Vec::new();
    for (run, faults) in [("calm", Faults::none()), (tag, faults)] {
        let name = format!("despite-{tag}-{run}-{}", std::process::id());
        namespace::create(&client, &name).await.unwrap();
        let operator = run_operator(&in_process(), &name, faults.clone()).unwrap();
        let script = FailAndRecover.script(&name);
        let player = Player::start(client.clone(), &Scope::namespace(&name), script);
        FailAndRecover.play(&client, &name, &player).await.unwrap();
        faults.wait_until_idle(Duration::from_millis(500)).await;
        ends.push(snapshot(&client, &name).await.unwrap());
        operator.stop().await.unwrap();
        namespace::remove(&client, &name).await.unwrap();
    }
    assert_eq!(ends[0], ends[1]);
}

#[tokio::test(flavor = "multi_thread")]
async fn lost_answers_duplicate_nothing() {
    let faults = Faults::none()
        .lose_answers(3, |call| call.verb == Verb::Create)
        .lose_answers(2, |call| call.verb == Verb::Update)
        .lose_answers(1, |call| call.verb == Verb::Delete);
    same_end_despite("lost", faults).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_storm_of_conflicts_passes() {
    same_end_despite(
        "conflicts",
        Faults::none().conflicts(20, |call| call.verb == Verb::Update),
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_turns_requests_away_is_waited_for() {
    let faults = Faults::none()
        .too_many(1, 6, Call::is_write)
        .answer(503, 4, |call| call.verb == Verb::Create);
    same_end_despite("busy", faults).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn watches_whose_version_is_gone_are_begun_anew() {
    let faults = Faults::none()
        .gone("pods", 3)
        .gone("trainingjobs", 3)
        .gone("services", 2);
    same_end_despite("gone", faults).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watch_that_lags_behind_makes_nothing_twice() {
    let faults = Faults::none().slow(Duration::from_millis(400), |call| {
        call.verb == Verb::Watch && call.resource == "pods"
    });
    same_end_despite("stale", faults).await;
}

/// How many times an operator must have tried in vain for an outage to be one.
const MAX_ATTEMPTS: usize = 6;

#[tokio::test(flavor = "multi_thread")]
async fn an_outage_loses_and_duplicates_nothing() {
    let client = client().await;
    let name = format!("outage-{}", std::process::id());
    namespace::create(&client, &name).await.unwrap();
    let faults = Faults::none();
    let operator = run_operator(&in_process(), &name, faults.clone()).unwrap();
    let player = Player::start(client.clone(), &Scope::namespace(&*name), Script::run());
    create(&client, &name, &manifest("before", 3, "", ""))
        .await
        .unwrap();
    phase(&client, &name, "before", JobPhase::Running).await.unwrap();
    // The operator alone loses the server. Its watches stay, so that it has something to write all
    // the time.
    faults.refuse(true);
    player.fail(&name, "before-worker-2", 137).await.unwrap();
    create(&client, &name, &manifest("during", 2, "", ""))
        .await
        .unwrap();
    let of_before = |call: &Call| call.name.as_deref() == Some("before");
    within(
        "the failure is to be counted",
        faults.wait_until_refused(MAX_ATTEMPTS, of_before),
    )
    .await;
    let of_during = |call: &Call| call.name.as_deref() == Some("during");
    within(
        "the new job is to begin",
        faults.wait_until_refused(MAX_ATTEMPTS, of_during),
    )
    .await;
    // The server is asked, because the player learns of it a moment later.
    let pods: Api<Pod> = Api::namespaced(client.clone(), &name);
    let pods = pods.list_metadata(&ListParams::default()).await.unwrap();
    let pods: Vec<_> = pods
        .items
        .into_iter()
        .filter_map(|pod| pod.metadata.name)
        .collect();
    let before = ["before-worker-0", "before-worker-1", "before-worker-2"];
    assert_eq!(pods, before, "nothing was written while the server was away");
    faults.refuse(false);
    phase(&client, &name, "during", JobPhase::Running).await.unwrap();
    player.until(|counts| counts.started >= 8).await.unwrap();
    let job = phase(&client, &name, "before", JobPhase::Running).await.unwrap();
    assert_eq!(job.status.unwrap().restarts.unwrap().failures, 1);
    assert_eq!(
        player.counts().seen,
        8,
        "three pods, the same again, two pods of the second job"
    );
    operator.stop().await.unwrap();
    namespace::remove(&client, &name).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_converged_job_costs_nothing_also_for_a_new_operator() {
    let client = client().await;
    let name = format!("quiet-{}", std::process::id());
    namespace::create(&client, &name).await.unwrap();
    let faults = Faults::none();
    let operator = run_operator(&in_process(), &name, faults.clone()).unwrap();
    let _player = Player::start(client.clone(), &Scope::namespace(&*name), Script::run());
    for i in 0..5 {
        create(&client, &name, &manifest(&format!("j{i}"), 2, "", ""))
            .await
            .unwrap();
    }
    for i in 0..5 {
        phase(&client, &name, &format!("j{i}"), JobPhase::Running)
            .await
            .unwrap();
    }
    faults.wait_until_idle(Duration::from_secs(2)).await;
    let writes = faults.traffic().borrow().writes;
    // Two pods, a Service and two statuses each.
    assert!(writes <= 5 * (2 + 3), "{writes} writes");
    operator.stop().await.unwrap();

    let again = Faults::none();
    let operator = run_operator(&in_process(), &name, again.clone()).unwrap();
    // A job made now is done only after all that was there has been looked at.
    create(&client, &name, &manifest("last", 1, "", ""))
        .await
        .unwrap();
    phase(&client, &name, "last", JobPhase::Running).await.unwrap();
    again.wait_until_idle(Duration::from_secs(2)).await;
    let writes = again.traffic().borrow().writes;
    assert!(
        writes <= 4,
        "a new operator writes only for the new job: {writes} writes"
    );
    operator.stop().await.unwrap();
    namespace::remove(&client, &name).await.unwrap();
}
