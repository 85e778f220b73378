//! Nodes that go down, come back, or are gone for good.

use rstest::rstest;
use trainyard_api::JobPhase::{Failed, Restarting, Running};
use trainyard_api::NodeDownPolicy::{Fail, Wait};
use trainyard_api::RestartPolicy::{Never, OnFailure};
use trainyard_api::{NodeDownPolicy, RestartPolicy, TrainingJob};
use trainyard_core::plan::Plan;
use trainyard_core::view::NodeState::{Down, Gone, Up};

use crate::common::World;
use crate::common::jobs::{Change, workers};

fn job(policy: RestartPolicy, node_down: NodeDownPolicy) -> TrainingJob {
    workers(2, policy).role("worker", |role| role.node_down_policy = Some(node_down))
}

#[test]
fn wait_leaves_pods_on_a_node_that_is_down_as_they_were_and_says_so() {
    for policy in [Never, OnFailure] {
        let mut world = World::running(job(policy, Wait));
        world.node("node-1", Down);
        world.tick(10);
        world.reconcile();
        assert_eq!((world.phase(), world.restarts()), (Some(Running), (0, 0)));
        assert_eq!(world.role("worker").reason.as_deref(), Some("PossibleNodeDown"));
        let said = "mnist-worker-1 is on node-1, which is down";
        assert_eq!(world.role("worker").message.as_deref(), Some(said));
        world.node("node-1", Up);
        world.tick(10);
        world.reconcile();
        assert_eq!(world.role("worker").reason, None);
        assert_eq!(world.plan(), Plan::default());
    }
}

#[test]
fn wait_is_the_default() {
    let mut world = World::running(workers(2, Never));
    world.node("node-1", Down);
    world.settle();
    assert_eq!(world.phase(), Some(Running));
}

#[test]
fn fail_fails_a_role_that_never_restarts() {
    let mut world = World::running(job(Never, Fail));
    world.node("node-1", Down);
    world.reconcile();
    assert_eq!(world.phase(), Some(Failed));
    assert_eq!(world.role("worker").reason.as_deref(), Some("PossibleNodeDown"));
    assert_eq!(
        world.message("Failed"),
        "worker: mnist-worker-1: its node node-1 is down"
    );
    assert_eq!(world.status().root_cause.unwrap().node.as_deref(), Some("node-1"));
}

#[test]
fn fail_replaces_the_pod_where_the_policy_allows_as_a_disruption() {
    let mut world = World::running(job(OnFailure, Fail).backoff_limit(0));
    world.node("node-1", Down);
    world.reconcile();
    assert_eq!((world.phase(), world.restarts()), (Some(Restarting), (0, 1)));
    assert_eq!(
        world.log.deleted,
        [("mnist-worker-1".to_owned(), false)],
        "it may still run there: no force"
    );
    // Nobody removes it while the node is down, and we do not make a second one of the same name.
    world.kubelets_remove();
    world.tick(600);
    world.reconcile();
    assert_eq!(world.log.pods.len(), 2);
    // Now the node is known to be gone: what ran there has ended.
    world.node("node-1", Gone);
    world.reconcile();
    assert_eq!(
        world.log.deleted.last(),
        Some(&("mnist-worker-1".to_owned(), true))
    );
    world.settle();
    assert_eq!(
        (world.phase(), world.restarts()),
        (Some(Running), (0, 1)),
        "counted once"
    );
    assert_eq!(world.log.pods.len(), 3);
}

#[test]
fn a_node_that_comes_back_finishes_the_removal() {
    let mut world = World::running(job(OnFailure, Fail));
    world.node("node-1", Down);
    world.reconcile();
    world.node("node-1", Up);
    world.settle();
    assert_eq!((world.phase(), world.restarts()), (Some(Running), (0, 1)));
}

#[test]
fn a_pod_that_is_going_on_a_node_that_is_gone_is_removed_by_force() {
    let mut world = World::running(job(OnFailure, Wait));
    world.ask_to_go("mnist-worker-1");
    world.node("node-1", Gone);
    world.reconcile();
    assert_eq!(world.log.deleted, [("mnist-worker-1".to_owned(), true)]);
    world.settle();
    assert_eq!(world.phase(), Some(Running));
}

#[test]
fn pods_left_on_a_node_that_is_gone_do_not_keep_a_finished_job_from_being_cleaned() {
    let mut world = World::running(workers(3, Never));
    world.node("node-1", Gone);
    world.fail("mnist-worker-0", 1);
    world.settle();
    assert_eq!(world.phase(), Some(Failed));
    assert!(world.holding().is_empty());
    assert!(world.log.deleted.contains(&("mnist-worker-1".to_owned(), true)));
    assert!(world.log.deleted.contains(&("mnist-worker-2".to_owned(), false)));
}

#[test]
fn a_pod_beyond_the_job_on_a_node_that_is_gone_is_removed_by_force() {
    let mut world = World::running(workers(2, OnFailure));
    let mut extra = world.pod("mnist-worker-1").clone();
    extra.name = "mnist-worker-7".into();
    extra.uid = "uid-extra".into();
    extra.terminating = true;
    world.pods.push(extra);
    world.node("node-1", Gone);
    world.reconcile();
    assert!(
        world.log.deleted.contains(&("mnist-worker-7".to_owned(), true)),
        "{:?}",
        world.log.deleted
    );
}

/// What may become of a pod on a lost node between the count and its replacement.
type Meanwhile = fn(&mut World);

const NOTHING: Meanwhile = |_| ();
/// The cluster's garbage collector marks the pod as failed before it deletes it.
const COLLECTED: Meanwhile = |world| world.evict("mnist-worker-1");
const KILLED: Meanwhile = |world| world.fail("mnist-worker-1", 137);
const FAILED: Meanwhile = |world| world.fail("mnist-worker-1", 1);
const SUCCEEDED: Meanwhile = |world| world.succeed("mnist-worker-1");
const VANISHED: Meanwhile = |world| world.vanish("mnist-worker-1");
const BACK: Meanwhile = |world| world.node("node-1", Up);

#[rstest]
fn a_pod_on_a_lost_node_counts_once_whatever_becomes_of_it(
    #[values(NOTHING, COLLECTED, KILLED, FAILED, SUCCEEDED, VANISHED, BACK)] meanwhile: Meanwhile,
    #[values(0, 1, 2, 3)] writes: usize,
) {
    let mut world = World::running(job(OnFailure, Fail).backoff_limit(0));
    world.node("node-1", Down);
    // The operator dies at any of its writes, and the pod may change before the next one looks.
    world.crash_after(writes);
    if writes > 0 {
        meanwhile(&mut world);
    }
    world.reconcile();
    world.node("node-1", Gone);
    world.settle();
    assert_eq!((world.phase(), world.restarts()), (Some(Running), (0, 1)));
    assert_eq!(world.log.pods.len(), 3);
}

#[test]
fn a_replacement_that_is_sent_to_the_lost_node_is_a_pod_of_its_own() {
    let mut world = World::running(job(OnFailure, Fail).backoff_limit(0));
    world.node("node-1", Gone);
    world.reconcile();
    assert_eq!((world.restarts(), world.log.pods.len()), ((0, 1), 3));
    world.run_on("mnist-worker-1", "node-1");
    world.settle_without_waiting();
    assert_eq!(world.restarts(), (0, 2), "it was lost, too");
    world.node("node-1", Up);
    world.settle();
    assert_eq!((world.phase(), world.restarts()), (Some(Running), (0, 2)));
}
