//! Pods that were asked to go before their programs ended: how those end then says nothing of their
//! work.

use trainyard_api::JobPhase::{Failed, Restarting, Running, Starting, Succeeded};
use trainyard_api::RestartPolicy::{Always, ExitCode, Never, OnFailure};

use crate::common::World;
use crate::common::jobs::{Change, workers};

#[test]
fn a_job_whose_pods_leave_a_drained_node_in_good_order_has_not_succeeded() {
    let mut world = World::running(workers(2, Never));
    world.drain("node-0");
    world.drain("node-1");
    world.tick(5);
    world.succeed_all();
    world.settle();
    assert_eq!(world.phase(), Some(Failed), "their work is not done");
    assert_eq!(world.role("worker").reason.as_deref(), Some("PodDisrupted"));
    assert_eq!(world.role("worker").succeeded_indices, None);
}

#[test]
fn all_pods_that_leave_in_good_order_run_again() {
    for policy in [OnFailure, ExitCode, Always] {
        let mut world = World::running(workers(3, policy).backoff_limit(0));
        world.drain("node-0");
        world.reconcile();
        world.tick(1);
        world.succeed("mnist-worker-0");
        world.reconcile();
        world.succeed("mnist-worker-2");
        world.settle();
        assert_eq!(
            (world.phase(), world.restarts()),
            (Some(Running), (0, 2)),
            "{policy:?}"
        );
        assert_eq!(world.role("worker").succeeded_indices, None);
        assert_eq!(world.log.pods.len(), 5);
    }
}

#[test]
fn a_pod_that_is_deleted_while_its_role_starts_did_not_fail() {
    for code in [0, 1, 143] {
        let mut world = World::new(workers(2, OnFailure).backoff_limit(0));
        world.reconcile();
        world.run_on("mnist-worker-0", "node-0");
        world.reconcile();
        world.ask_to_go("mnist-worker-0");
        if code == 0 {
            world.succeed("mnist-worker-0");
        } else {
            world.fail("mnist-worker-0", code);
        }
        world.reconcile();
        assert_eq!(
            (world.phase(), world.restarts()),
            (Some(Restarting), (0, 1)),
            "{code}"
        );
        world.settle();
        assert_eq!(
            (world.phase(), world.restarts()),
            (Some(Running), (0, 1)),
            "{code}"
        );
    }
}

#[test]
fn a_pod_that_is_deleted_while_its_role_starts_counts_though_nobody_sees_how_it_ends() {
    let mut world = World::new(workers(2, OnFailure));
    world.reconcile();
    world.run_on("mnist-worker-0", "node-0");
    world.reconcile();
    world.ask_to_go("mnist-worker-0");
    world.reconcile();
    world.kubelets_remove();
    world.settle();
    assert_eq!((world.phase(), world.restarts()), (Some(Running), (0, 1)));
}

#[test]
fn a_pod_that_is_deleted_before_it_has_started_is_made_again_and_counts_nowhere() {
    let mut world = World::new(workers(2, OnFailure));
    world.start();
    world.run_on("mnist-worker-0", "node-0");
    world.bind_all();
    world.ask_to_go("mnist-worker-1");
    world.reconcile();
    world.kubelets_remove();
    world.reconcile();
    assert_eq!((world.phase(), world.restarts()), (Some(Starting), (0, 0)));
    assert_eq!(world.log.pods.len(), 3);
}

#[test]
fn what_was_done_before_it_was_asked_to_go_is_done() {
    let mut world = World::running(workers(2, Never));
    world.succeed("mnist-worker-0");
    world.tick(1);
    world.ask_to_go("mnist-worker-0");
    world.succeed("mnist-worker-1");
    world.kubelets_remove();
    world.reconcile();
    assert_eq!(world.phase(), Some(Succeeded));
}

#[test]
fn a_pod_that_failed_and_is_gone_before_the_operator_looked_has_failed() {
    // Nothing else would tell it from one that was lost.
    let mut world = World::running(workers(2, OnFailure));
    world.fail("mnist-worker-0", 3);
    world.vanish("mnist-worker-0");
    world.settle();
    assert_eq!((world.phase(), world.restarts()), (Some(Running), (1, 0)));
    let history = world.status().restarts.unwrap().history;
    assert_eq!((history[0].exit_code, history.len()), (Some(3), 1));
    let mut world = World::running(workers(2, Never));
    world.fail("mnist-worker-0", 3);
    world.vanish("mnist-worker-0");
    world.settle();
    assert_eq!(world.role("worker").reason.as_deref(), Some("PodFailed"));
    assert_eq!(world.status().root_cause.unwrap().exit_code, Some(3));
}

#[test]
fn a_machine_that_was_switched_off_and_on_is_no_failure_of_programs() {
    let mut world = World::running(workers(4, OnFailure).backoff_limit(0));
    world.reboot("node-1");
    world.settle();
    assert_eq!((world.phase(), world.restarts()), (Some(Running), (0, 2)));
    let mut world = World::running(workers(2, Never));
    world.reboot("node-1");
    world.settle();
    assert_eq!(world.role("worker").reason.as_deref(), Some("PodDisrupted"));
}
