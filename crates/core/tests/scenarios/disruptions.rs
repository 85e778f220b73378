//! Pods that the system, or a person, takes away.

use trainyard_api::JobPhase::{Failed, Restarting, Running, Starting};
use trainyard_api::RestartPolicy::{Always, ExitCode, Never, OnFailure};
use trainyard_api::RolePhase;

use crate::common::World;
use crate::common::jobs::{Change, custom, workers};

#[test]
fn an_eviction_is_no_failure_and_spends_no_budget() {
    for policy in [OnFailure, Always, ExitCode] {
        let mut world = World::running(workers(2, policy).backoff_limit(0));
        for n in 1..=4 {
            world.evict("mnist-worker-0");
            world.settle();
            assert_eq!(
                (world.phase(), world.restarts()),
                (Some(Running), (0, n)),
                "{policy:?}"
            );
        }
    }
}

#[test]
fn an_evicted_pod_of_a_role_that_never_restarts_fails_the_job() {
    let mut world = World::running(workers(2, Never));
    world.evict("mnist-worker-1");
    world.reconcile();
    assert_eq!(world.phase(), Some(Failed));
    assert_eq!(world.role("worker").reason.as_deref(), Some("PodDisrupted"));
    assert_eq!(
        world.message("Failed"),
        "worker: mnist-worker-1 on node-1 was taken away (Evicted)"
    );
    assert_eq!(world.log.pods.len(), 2);
}

#[test]
fn a_pod_that_is_killed_while_it_is_being_removed_did_not_fail() {
    for code in [137, 143] {
        let mut world = World::running(workers(1, OnFailure).backoff_limit(0));
        world.ask_to_go("mnist-worker-0");
        world.fail("mnist-worker-0", code);
        world.settle();
        assert_eq!((world.phase(), world.restarts()), (Some(Running), (0, 1)));
    }
}

#[test]
fn a_pod_that_fails_on_its_own_while_it_is_being_removed_failed() {
    let mut world = World::running(workers(1, OnFailure));
    world.fail("mnist-worker-0", 1);
    world.ask_to_go("mnist-worker-0");
    world.settle();
    assert_eq!(world.restarts(), (1, 0));
}

#[test]
fn running_pods_that_vanish_are_replaced_and_count_as_disruptions() {
    let mut world = World::running(workers(3, OnFailure).backoff_limit(0));
    world.vanish("mnist-worker-0");
    world.vanish("mnist-worker-2");
    world.reconcile();
    assert_eq!(world.phase(), Some(Restarting));
    world.settle();
    assert_eq!((world.phase(), world.restarts()), (Some(Running), (0, 2)));
    assert_eq!(world.log.pods.len(), 5);
    assert_eq!(world.status().restarts.unwrap().history[0].reason, "PodMissing");
}

#[test]
fn running_pods_that_vanish_fail_a_role_that_never_restarts() {
    let mut world = World::running(workers(4, Never));
    world.vanish("mnist-worker-1");
    world.vanish("mnist-worker-3");
    world.reconcile();
    assert_eq!(world.phase(), Some(Failed));
    assert_eq!(world.role("worker").phase, RolePhase::Failed);
    assert_eq!(world.role("worker").reason.as_deref(), Some("PodMissing"));
    assert_eq!(
        world.message("Failed"),
        "worker: 2 of 4 pods that had been running are gone: 1,3"
    );
    assert_eq!(world.log.pods.len(), 4);
}

#[test]
fn a_deleted_pod_is_counted_once_from_its_going_to_its_replacement() {
    let mut world = World::running(workers(2, OnFailure));
    world.ask_to_go("mnist-worker-0");
    world.reconcile();
    assert_eq!((world.phase(), world.restarts()), (Some(Restarting), (0, 1)));
    assert_eq!(world.log.statuses, 2, "one write for one happening");
    let cause = world.status().root_cause.unwrap();
    assert_eq!(
        (&*cause.pod, cause.reason.as_deref()),
        ("mnist-worker-0", Some("PodDisrupted"))
    );
    assert!(world.log.deleted.is_empty(), "it is going already");
    world.tick(60);
    world.reconcile();
    assert_eq!(world.restarts(), (0, 1));
    world.kubelets_remove();
    world.settle();
    assert_eq!((world.phase(), world.restarts()), (Some(Running), (0, 1)));
    assert_eq!(world.log.pods.len(), 3);
}

#[test]
fn a_pod_being_removed_counts_as_terminating_and_as_nothing_else() {
    let mut world = World::running(workers(2, Never));
    world.ask_to_go("mnist-worker-0");
    world.tick(10);
    world.reconcile();
    let role = world.role("worker");
    assert_eq!((role.active, role.pending, role.terminating), (1, 0, 1));
    assert_eq!(world.phase(), Some(Running), "it has not ended yet");
    world.kubelets_remove();
    world.reconcile();
    assert_eq!(world.phase(), Some(Failed));
    assert_eq!(world.role("worker").reason.as_deref(), Some("PodMissing"));
}

#[test]
fn a_role_that_has_not_run_yet_is_completed_whatever_its_policy() {
    let mut world = World::new(workers(2, Never));
    world.start();
    world.run_on("mnist-worker-0", "node-0");
    world.reconcile();
    world.vanish("mnist-worker-0");
    world.reconcile();
    assert_eq!((world.phase(), world.log.pods.len()), (Some(Starting), 3));
}

#[test]
fn disruption_of_one_role_leaves_the_others_alone() {
    let job =
        custom(&[("ps", 1), ("worker", 1)]).role("worker", |role| role.restart_policy = Some(OnFailure));
    let mut world = World::running(job);
    let ps = world.pod("mnist-ps-0").uid.clone();
    world.evict("mnist-worker-0");
    world.settle();
    assert_eq!(world.pod("mnist-ps-0").uid, ps);
    assert_eq!(world.role("ps").phase, RolePhase::Running);
}

#[test]
fn only_pods_that_are_about_to_be_counted_are_looked_for() {
    // Each costs a request, and what is not counted now is looked for again.
    let mut world = World::running(workers(300, OnFailure));
    for name in world.all() {
        world.vanish(&name);
    }
    assert_eq!(world.missing().len(), 256);
    world.settle();
    assert_eq!((world.phase(), world.pods.len()), (Some(Running), 300));
}

#[test]
fn a_pod_that_is_gone_counts_as_one_that_failed() {
    let all = |role: &mut trainyard_api::RoleSpec| role.failed_when = Some(trainyard_api::PodQuorum::AllPods);
    let mut world = World::running(workers(3, Never).role("worker", all));
    world.vanish("mnist-worker-1");
    assert_eq!(world.missing(), ["mnist-worker-1"]);
    world.tick(10);
    world.settle();
    let role = world.role("worker");
    assert_eq!(
        (world.phase(), role.active, role.pending, role.failed),
        (Some(Running), 2, 0, 1)
    );
    assert_eq!(world.log.pods.len(), 3, "it is not replaced");
    world.fail("mnist-worker-0", 1);
    world.tick(10);
    world.settle();
    assert_eq!(world.phase(), Some(Running));
    assert_eq!(world.missing(), [""; 0], "it is not looked for again");
    world.vanish("mnist-worker-2");
    world.settle();
    assert_eq!(
        (world.phase(), world.role("worker").reason.as_deref()),
        (Some(Failed), Some("PodMissing"))
    );
    assert_eq!(world.status().root_cause.unwrap().pod, "mnist-worker-0");
}
