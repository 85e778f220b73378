//! Several replicas of the operator, of which one leads.

use std::process::{Child, Command, Stdio};

use kube::{Api, Client};
use trainyard_api::JobPhase;
use trainyard_eventually::eventually_async;
use trainyard_testkit::load::{Player, Scope, Script};
use trainyard_testkit::namespace;

use super::{client, create, manifest, phase, program};

/// An operator as a process of its own, with leader election.
struct Replica(Child);

impl Replica {
    fn start(namespace: &str) -> Self {
        let child = Command::new(program())
            .args([
                "operator",
                "--leader-elect",
                "--namespace",
                namespace,
                "--watch-namespace",
                namespace,
            ])
            .args(["--http-address", "127.0.0.1:0"])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        Self(child.unwrap())
    }

    fn signal(&self, signal: &str) {
        let done = Command::new("kill")
            .args([signal, &self.0.id().to_string()])
            .status()
            .unwrap();
        assert!(done.success());
    }
}

impl Drop for Replica {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

async fn holder(client: &Client, namespace: &str) -> Option<String> {
    let leases: Api<k8s_openapi::api::coordination::v1::Lease> = Api::namespaced(client.clone(), namespace);
    let lease = leases.get_opt("trainyard-operator").await.unwrap()?;
    lease.spec?.holder_identity.filter(|holder| !holder.is_empty())
}

async fn wait_for_holder(client: &Client, namespace: &str, other_than: Option<&str>) -> String {
    eventually_async("another leads", async || {
        let holder = holder(client, namespace).await;
        let others = holder
            .clone()
            .filter(|holder| Some(holder.as_str()) != other_than);
        others.ok_or_else(|| format!("{holder:?}"))
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_killed_between_two_pods_is_succeeded_and_the_pods_are_exactly_right() {
    let client = client().await;
    let name = format!("kill-{}", std::process::id());
    namespace::create(&client, &name).await.unwrap();
    let leader = Replica::start(&name);
    let first = wait_for_holder(&client, &name, None).await;
    let _standby = Replica::start(&name);
    let player = Player::start(client.clone(), &Scope::namespace(&*name), Script::run());
    create(&client, &name, &manifest("j", 200, "", "")).await.unwrap();
    player.until(|counts| counts.seen >= 20).await.unwrap();
    leader.signal("-KILL");
    let seen = player.counts().seen;
    wait_for_holder(&client, &name, Some(&first)).await;
    phase(&client, &name, "j", JobPhase::Running).await.unwrap();
    println!("killed after {seen} of 200 pods");
    assert_eq!(player.counts().seen, 200, "each pod was made once");
    namespace::remove(&client, &name).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_that_was_paused_for_longer_than_its_lease_writes_no_more() {
    let client = client().await;
    let name = format!("pause-{}", std::process::id());
    namespace::create(&client, &name).await.unwrap();
    let leader = Replica::start(&name);
    let first = wait_for_holder(&client, &name, None).await;
    let _standby = Replica::start(&name);
    let player = Player::start(client.clone(), &Scope::namespace(&*name), Script::run());
    create(&client, &name, &manifest("j", 2, "", "")).await.unwrap();
    phase(&client, &name, "j", JobPhase::Running).await.unwrap();
    leader.signal("-STOP");
    let second = wait_for_holder(&client, &name, Some(&first)).await;
    player.fail(&name, "j-worker-0", 137).await.unwrap();
    leader.signal("-CONT");
    player.until(|counts| counts.seen >= 4).await.unwrap();
    let job = phase(&client, &name, "j", JobPhase::Running).await.unwrap();
    assert_eq!(
        job.status.unwrap().restarts.unwrap().failures,
        1,
        "both saw it, one counted it"
    );
    assert_eq!(player.counts().seen, 4, "both pods, and the same again");
    assert_eq!(
        holder(&client, &name).await.as_deref(),
        Some(&*second),
        "who was paused did not take the lease back"
    );
    namespace::remove(&client, &name).await.unwrap();
}
