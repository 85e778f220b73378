//! Users who change a job while the operator carries out what it had decided.

use std::sync::Arc;
use std::time::Duration;

use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::json;
use tokio::sync::Notify;
use trainyard_api::JobPhase;
use trainyard_eventually::{eventually_async, within};
use trainyard_testkit::faults::{Call, Faults, Verb, run_operator};
use trainyard_testkit::load::{Player, Scope, Script};
use trainyard_testkit::namespace;
use trainyard_testkit::operator::in_process;

use super::{client, create, jobs, manifest, phase, suspend};

/// More than are under way at once by far.
const PODS: u16 = 1000;
/// So slow a server would take half a minute to create them all, which is time enough to change the
/// job.
const WATCH_DELAY: Duration = Duration::from_secs(2);

fn slow_creations() -> Faults {
    Faults::none().delay(WATCH_DELAY, |call| {
        call.verb == Verb::Create && call.resource == "pods"
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_is_suspended_while_its_pods_are_created_gets_no_more_of_them() {
    let client = client().await;
    let name = format!("half-{}", std::process::id());
    namespace::create(&client, &name).await.unwrap();
    let operator = run_operator(&in_process(), &name, slow_creations()).unwrap();
    let player = Player::start(client.clone(), &Scope::namespace(&*name), Script::run());
    create(&client, &name, &manifest("j", PODS.into(), "", ""))
        .await
        .unwrap();
    player.until(|counts| counts.seen >= 1).await.unwrap();
    suspend(&client, &name, "j", true).await.unwrap();
    phase(&client, &name, "j", JobPhase::Suspended).await.unwrap();
    let counts = player
        .until(|counts| counts.removed >= counts.seen)
        .await
        .unwrap();
    println!("suspended after {} of {PODS} pods", counts.seen);
    assert!(counts.seen < usize::from(PODS), "{counts:?}");
    operator.stop().await.unwrap();
    namespace::remove(&client, &name).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_is_deleted_while_its_pods_are_created_gets_no_more_of_them() {
    let client = client().await;
    let name = format!("gone-{}", std::process::id());
    namespace::create(&client, &name).await.unwrap();
    let faults = slow_creations();
    let operator = run_operator(&in_process(), &name, faults.clone()).unwrap();
    let player = Player::start(client.clone(), &Scope::namespace(&*name), Script::run());
    create(&client, &name, &manifest("j", PODS.into(), "", ""))
        .await
        .unwrap();
    player.until(|counts| counts.seen >= 1).await.unwrap();
    let jobs = jobs(&client, &name);
    jobs.delete("j", &DeleteParams::default()).await.unwrap();
    faults.wait_until_idle(2 * WATCH_DELAY).await;
    let counts = player.counts();
    println!("deleted after {} of {PODS} pods", counts.seen);
    assert!(counts.seen < usize::from(PODS), "{counts:?}");
    operator.stop().await.unwrap();
    namespace::remove(&client, &name).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_gets_more_time_while_it_is_deleted_stays() {
    let client = client().await;
    let name = format!("ttl-{}", std::process::id());
    namespace::create(&client, &name).await.unwrap();
    let deleting = Arc::new(Notify::new());
    let told = deleting.clone();
    let faults = Faults::none().delay(3 * WATCH_DELAY, move |call: &Call| {
        let deletes = call.verb == Verb::Delete && call.resource == "trainingjobs";
        if deletes {
            told.notify_one();
        }
        deletes
    });
    let operator = run_operator(&in_process(), &name, faults.clone()).unwrap();
    let script = Script::run().succeed_after(Duration::ZERO);
    let _player = Player::start(client.clone(), &Scope::namespace(&*name), script);
    let briefly = r#"{"runPolicy": {"ttlSecondsAfterFinished": 1}}"#;
    create(&client, &name, &manifest("j", 1, "", briefly))
        .await
        .unwrap();
    within("its time is over", deleting.notified()).await;
    let set = async |ttl: i64| {
        let patch = Patch::Merge(json!({"spec": {"runPolicy": {"ttlSecondsAfterFinished": ttl}}}));
        let jobs = jobs(&client, &name);
        jobs.patch("j", &PatchParams::default(), &patch).await.unwrap()
    };
    set(1_000_000).await;
    faults.wait_until_idle(4 * WATCH_DELAY).await;
    let left = jobs(&client, &name).get_opt("j").await.unwrap();
    assert!(left.is_some(), "it was deleted by what was decided before");
    // It goes when its time is over after all.
    set(1).await;
    eventually_async("the job is gone", async || {
        let left = jobs(&client, &name).get_opt("j").await.unwrap();
        left.map_or(Ok(()), |left| Err(format!("{:?}", left.metadata)))
    })
    .await;
    operator.stop().await.unwrap();
    namespace::remove(&client, &name).await.unwrap();
}
