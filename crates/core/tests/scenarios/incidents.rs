//! Pods that train as one end together, and that is one incident: its first end says what it costs.

use rstest::rstest;
use trainyard_api::JobPhase::{Failed, Running};
use trainyard_api::RestartCause::{Disruption, Failure};
use trainyard_api::RestartPolicy::{self, ExitCode, Never, OnFailure};
use trainyard_api::{
    DependencyState, NodeDownPolicy, PodQuorum, RestartCause, RestartRecord, RoleSpec, TrainingJob,
};
use trainyard_core::view::NodeState;

use crate::common::World;
use crate::common::jobs::{Change, custom, mpi, pytorch, set_image, with_agent};

fn eight() -> TrainingJob {
    pytorch(&[("worker", 8)]).one_by_one()
}

fn pod(index: usize) -> String {
    format!("mnist-worker-{index}")
}

/// All that run fail, because one of them is gone.
fn others_fail(world: &mut World, after: i64) {
    world.tick(after);
    for name in world.names(|row| row.phase == trainyard_core::view::PodPhase::Running && !row.terminating) {
        world.fail(&name, 1);
    }
}

fn history(world: &World) -> Vec<(String, RestartCause, i32)> {
    let record = |record: &RestartRecord| (record.pod.clone(), record.cause, record.consequences);
    world
        .status()
        .restarts
        .unwrap_or_default()
        .history
        .iter()
        .map(record)
        .collect()
}

#[test]
fn what_follows_an_eviction_costs_nothing() {
    for at_once in [true, false] {
        let mut world = World::running(eight().backoff_limit(0));
        for n in 1..=3 {
            world.evict(&pod(3));
            if !at_once {
                world.reconcile();
            }
            others_fail(&mut world, 2);
            world.settle();
            assert_eq!(
                (world.phase(), world.restarts()),
                (Some(Running), (0, n)),
                "{at_once}"
            );
            assert_eq!(history(&world).last(), Some(&(pod(3), Disruption, 7)));
            let cause = world.status().root_cause.unwrap();
            assert_eq!(
                (&*cause.pod, cause.reason.as_deref()),
                (&*pod(3), Some("Evicted"))
            );
            world.tick(60);
        }
        assert_eq!(world.log.pods.len(), 32);
    }
}

#[test]
fn what_follows_a_failure_costs_nothing_more() {
    for pods in [2, 8, 200] {
        let mut world = World::running(pytorch(&[("worker", pods)]).backoff_limit(2));
        for n in 1..=2 {
            world.fail(&pod(1), 7);
            others_fail(&mut world, 1);
            world.settle();
            assert_eq!(
                (world.phase(), world.restarts()),
                (Some(Running), (n, 0)),
                "{pods}"
            );
            assert_eq!(history(&world).last(), Some(&(pod(1), Failure, pods - 1)));
            world.tick(60);
        }
        world.fail(&pod(0), 7);
        others_fail(&mut world, 1);
        world.reconcile();
        assert_eq!(world.condition("Failed"), "True BackoffLimitExceeded");
        assert_eq!(
            world.message("Failed"),
            "mnist-worker-0 on node-0: exit code 7 (Error); 2 failures were forgiven before, and \
             spec.runPolicy.backoffLimit is 2."
        );
        assert_eq!(world.status().root_cause.unwrap().pod, pod(0));
    }
}

#[test]
fn what_ends_long_after_is_an_incident_of_its_own() {
    let mut world = World::running(eight());
    world.fail(&pod(0), 1);
    world.settle_without_waiting();
    world.tick(10);
    world.fail(&pod(1), 1);
    world.settle_without_waiting();
    assert_eq!(world.restarts(), (1, 0), "within the window");
    world.tick(11);
    world.fail(&pod(2), 1);
    world.settle();
    assert_eq!(world.restarts(), (2, 0));
    let expected = [(pod(0), Failure, 1), (pod(2), Failure, 0)];
    assert_eq!(history(&world), expected);
}

#[test]
fn pods_that_fail_whenever_they_start_use_up_their_budget() {
    // Each round is one failure, however many pods there are, and whichever is the first.
    let mut world = World::running(pytorch(&[("worker", 3)]).one_by_one().backoff_limit(4));
    for round in 0..20 {
        let mut running = world.names(|row| row.phase == trainyard_core::view::PodPhase::Running);
        running.sort();
        let pods = running.len();
        running.rotate_left(round % pods);
        for name in running {
            world.fail(&name, 1);
            world.reconcile();
        }
        world.settle();
        if world.phase() == Some(Failed) {
            break;
        }
    }
    assert_eq!(world.condition("Failed"), "True BackoffLimitExceeded");
    assert_eq!((world.restarts(), world.log.pods.len()), ((4, 0), 15));
}

#[test]
fn an_incident_is_over_when_all_have_ended_in_it() {
    let mut world = World::running(pytorch(&[("worker", 3)]).one_by_one());
    for index in [0, 1, 2] {
        world.fail(&pod(index), 1);
    }
    world.settle_without_waiting();
    assert_eq!(world.restarts(), (1, 0));
    world.tick(1);
    world.fail(&pod(1), 1);
    world.settle_without_waiting();
    assert_eq!(world.restarts(), (2, 0), "those that run are new");
}

#[test]
fn one_pod_that_fails_whenever_it_starts_uses_up_the_budget() {
    // The others hang, and never end.
    let mut world = World::running(eight().backoff_limit(3));
    for _ in 0..20 {
        if world.phase() == Some(Failed) {
            break;
        }
        world.fail(&pod(5), 1);
        world.settle();
    }
    assert_eq!(world.condition("Failed"), "True BackoffLimitExceeded");
    assert!(world.log.pods.len() <= 8 + 5, "{:?}", world.log.pods);
}

#[test]
fn others_may_end_when_one_that_was_asked_to_go_has_gone() {
    // It writes a checkpoint, which takes its time, and then the others miss it.
    let mut world = World::running(eight().backoff_limit(0));
    world.ask_to_go(&pod(3));
    world.reconcile();
    world.tick(120);
    world.reconcile();
    world.succeed(&pod(3));
    world.kubelets_remove();
    world.reconcile();
    others_fail(&mut world, 5);
    world.settle();
    assert_eq!((world.phase(), world.restarts()), (Some(Running), (0, 1)));
    assert_eq!(history(&world), [(pod(3), Disruption, 7)]);
    assert_eq!(world.log.pods.len(), 16);
}

#[test]
fn others_may_end_while_one_that_was_asked_to_go_is_still_there() {
    let mut world = World::running(eight().backoff_limit(0));
    world.ask_to_go(&pod(3));
    world.reconcile();
    others_fail(&mut world, 120);
    world.settle();
    assert_eq!((world.phase(), world.restarts()), (Some(Running), (0, 1)));
    assert_eq!(history(&world), [(pod(3), Disruption, 7)]);
}

#[test]
fn an_evicted_worker_of_a_launcher_costs_no_failure() {
    let mut world = World::new(mpi("", 4).one_by_one().backoff_limit(0));
    world.settings = with_agent();
    world.settle();
    assert_eq!(world.phase(), Some(Running));
    world.evict("mnist-worker-2");
    world.reconcile();
    world.tick(6);
    world.fail("mnist-launcher-0", 1);
    world.settle();
    assert_eq!((world.phase(), world.restarts()), (Some(Running), (0, 1)));
    assert_eq!(history(&world), [("mnist-worker-2".to_owned(), Disruption, 1)]);
}

/// As docs/compat.md says of the limit of MPIJobs, which counts launchers alone there.
#[rstest]
#[case::with_it(6, 1)]
#[case::long_after_it(11, 2)]
fn a_worker_and_the_launcher_that_fails_because_of_it_cost_one_unit(
    #[case] after: i64,
    #[case] failures: i32,
) {
    let mut world = World::new(mpi("", 4).one_by_one());
    world.settings = with_agent();
    world.settle();
    world.fail("mnist-worker-2", 1);
    world.reconcile();
    world.tick(after);
    world.fail("mnist-launcher-0", 1);
    world.settle();
    assert_eq!((world.phase(), world.restarts()), (Some(Running), (failures, 0)));
}

#[test]
fn exit_codes_of_those_that_follow_say_nothing() {
    let job = || pytorch(&[("worker", 4)]).role("worker", |role| role.restart_policy = Some(ExitCode));
    let mut world = World::running(job());
    world.fail(&pod(2), 137);
    others_fail(&mut world, 1);
    world.settle();
    assert_eq!((world.phase(), world.restarts()), (Some(Running), (1, 0)));
    // The node of the first tells it last.
    let mut world = World::running(job());
    world.fail(&pod(0), 1);
    world.reconcile();
    assert_eq!(world.phase(), Some(Running), "not yet");
    world.evict(&pod(2));
    world.settle();
    assert_eq!((world.phase(), world.restarts()), (Some(Running), (0, 1)));
    let mut world = World::running(job());
    world.fail(&pod(0), 1);
    world.settle();
    assert_eq!(world.condition("Failed"), "True RolesFailed");
}

#[test]
fn pods_that_train_each_for_itself_fail_each_for_itself() {
    let job = custom(&[("worker", 3)]).role("worker", |role| {
        role.restart_policy = Some(trainyard_api::RestartPolicy::OnFailure);
    });
    let mut world = World::running(job);
    for name in world.all() {
        world.fail(&name, 1);
    }
    world.settle();
    assert_eq!(world.restarts(), (3, 0));
}

#[test]
fn pods_that_fail_because_others_are_updated_cost_nothing() {
    let mut world = World::running(pytorch(&[("worker", 3)]).one_by_one().rolls().backoff_limit(0));
    world.edit(|spec| set_image(spec, "worker", "example/train:2"));
    world.reconcile();
    world.kubelets_remove();
    world.reconcile();
    others_fail(&mut world, 1);
    world.settle();
    assert_eq!((world.phase(), world.restarts()), (Some(Running), (0, 0)));
    assert_eq!(history(&world).first(), Some(&(pod(2), RestartCause::Update, 2)));
}

#[test]
fn a_new_template_whose_pods_fail_uses_up_the_budget_also_where_pods_train_as_one() {
    // The others hang, and never end.
    let mut world = World::running(pytorch(&[("worker", 3)]).one_by_one().rolls().backoff_limit(1));
    world.edit(|spec| set_image(spec, "worker", "example/train:2"));
    for _ in 0..20 {
        world.reconcile();
        world.kubelets_remove();
        let plan = world.reconcile();
        let is_there = world.all().contains(&pod(2));
        if is_there && world.phase() != Some(Failed) {
            world.run_on(&pod(2), "node-0");
            world.tick(1);
            world.fail(&pod(2), 1);
        } else if let Some(at) = plan.wake_at() {
            world.now = at;
        }
    }
    assert_eq!(world.condition("Failed"), "True BackoffLimitExceeded");
    assert_eq!(world.status().root_cause.unwrap().pod, pod(2));
}

#[test]
fn an_incident_is_not_open_while_a_replacement_only_waits_for_its_time() {
    let mut world = World::running(eight().backoff_limit(9));
    for _ in 0..4 {
        world.ask_to_go(&pod(3));
        world.settle();
        world.tick(30);
    }
    assert_eq!(world.restarts(), (0, 4));
    world.ask_to_go(&pod(3));
    world.reconcile();
    world.kubelets_remove();
    world.now = world.reconcile().wake_at().unwrap();
    let waits = world.reconcile().wake_at().unwrap().duration_since(world.now);
    assert!(waits.as_secs() >= 40, "it waits for its time");
    world.reconcile();
    world.tick(15);
    world.fail(&pod(5), 1);
    world.reconcile();
    assert_eq!(world.restarts(), (1, 5), "one of its own");
}

#[test]
fn what_ended_long_before_an_incident_is_no_part_of_it() {
    let all = |role: &mut trainyard_api::RoleSpec| {
        role.restart_policy = Some(ExitCode);
        role.failed_when = Some(trainyard_api::PodQuorum::AllPods);
    };
    let job = custom(&[("ps", 1), ("worker", 2)])
        .role("worker", all)
        .role("ps", |role| role.restart_policy = Some(ExitCode));
    let mut world = World::new(job.waits("worker", "ps", trainyard_api::DependencyState::Running));
    world.settle();
    world.fail(&pod(1), 1);
    world.tick(10);
    world.settle();
    assert_eq!(world.role("worker").failed, 1);
    world.tick(3600);
    world.ask_to_go("mnist-ps-0");
    world.reconcile();
    world.tick(5);
    world.reconcile();
    world.settle();
    assert_eq!(world.role("worker").failed, 1, "it stands");
    assert_eq!(world.restarts(), (0, 1));
}

#[test]
fn a_long_goodbye_that_nobody_saw_still_takes_the_others_with_it() {
    let mut world = World::running(eight().backoff_limit(0));
    world.ask_to_go(&pod(3));
    world.tick(300);
    world.succeed(&pod(3));
    others_fail(&mut world, 1);
    world.settle();
    assert_eq!((world.phase(), world.restarts()), (Some(Running), (0, 1)));
}

#[test]
fn a_replacement_that_fails_and_is_gone_before_anybody_wrote_of_it_is_counted() {
    let mut world = World::running(pytorch(&[("worker", 1)]));
    world.fail(&pod(0), 1);
    world.reconcile();
    world.kubelets_remove();
    // It is made anew, and the status still waits for it.
    let actions = world.actions();
    assert!(world.crash_after(1) || !actions.is_empty());
    world.run_all();
    world.fail(&pod(0), 1);
    world.vanish(&pod(0));
    world.settle();
    assert_eq!((world.phase(), world.restarts()), (Some(Running), (2, 0)));
}

#[test]
fn an_operator_that_dies_in_an_incident_counts_it_once() {
    for writes in 0..12 {
        let mut world = World::running(eight().backoff_limit(1));
        world.fail(&pod(3), 1);
        world.crash_after(writes);
        others_fail(&mut world, 2);
        world.crash_after(writes);
        world.settle();
        assert_eq!(
            (world.phase(), world.restarts()),
            (Some(Running), (1, 0)),
            "{writes}"
        );
        assert_eq!(world.log.pods.len(), 16);
    }
}

#[test]
fn exit_codes_of_those_that_follow_an_update_say_nothing() {
    let job = pytorch(&[("worker", 3)]).role("worker", |role| role.restart_policy = Some(ExitCode));
    let mut world = World::running(job.rolls().backoff_limit(0));
    world.edit(|spec| set_image(spec, "worker", "example/train:2"));
    world.reconcile();
    world.kubelets_remove();
    world.reconcile();
    others_fail(&mut world, 1);
    world.settle();
    assert_eq!((world.phase(), world.restarts()), (Some(Running), (0, 0)));
}

#[test]
fn an_end_that_has_nothing_to_do_with_an_incident_leaves_it_open() {
    let retried = |role: &mut trainyard_api::RoleSpec| {
        role.restart_policy = Some(trainyard_api::RestartPolicy::OnFailure);
    };
    let job = custom(&[("ps", 1), ("worker", 3), ("eval", 1)])
        .role("ps", retried)
        .role("worker", retried)
        .role("eval", retried)
        .waits("worker", "ps", trainyard_api::DependencyState::Running);
    let mut world = World::new(job);
    world.settle();
    world.evict("mnist-ps-0");
    world.reconcile();
    world.tick(1);
    world.fail("mnist-eval-0", 1);
    world.reconcile();
    world.tick(1);
    for index in [0, 1, 2] {
        world.fail(&pod(index), 1);
    }
    world.settle();
    assert_eq!((world.phase(), world.restarts()), (Some(Running), (1, 1)));
    let expected = [
        ("mnist-ps-0".to_owned(), Disruption, 3),
        ("mnist-eval-0".to_owned(), Failure, 0),
    ];
    assert_eq!(history(&world), expected);
}

#[test]
fn what_came_of_a_pod_that_was_lost_while_nobody_looked_costs_nothing() {
    let mut world = World::running(eight().backoff_limit(0));
    world.vanish(&pod(3));
    others_fail(&mut world, 2);
    world.tick(300);
    world.settle();
    assert_eq!((world.phase(), world.restarts()), (Some(Running), (0, 1)));
    assert_eq!(history(&world), [(pod(3), Disruption, 7)]);
}

#[test]
fn what_ended_before_an_incident_is_no_part_of_it() {
    let job = pytorch(&[("worker", 4)]).role("worker", |role| role.restart_policy = Some(ExitCode));
    let mut world = World::running(job.one_by_one());
    let first = world.now;
    world.tick(4);
    world.fail(&pod(2), 137);
    world.reconcile();
    assert_eq!(world.restarts(), (1, 0));
    // The node of the one that ended first tells it last.
    world.tick(1);
    world.fail(&pod(0), 1);
    if let Some(end) = &mut world.pod_mut(&pod(0)).end {
        end.finished_at = Some(first);
    }
    world.settle();
    assert_eq!(world.condition("Failed"), "True RolesFailed");
    assert_eq!(world.status().root_cause.unwrap().pod, pod(0));
}

fn policy(policy: RestartPolicy) -> impl FnOnce(&mut RoleSpec) {
    move |role| role.restart_policy = Some(policy)
}

/// Workers that wait for a server, each for itself but for that.
fn ps_and_workers(servers: i32, workers: i32) -> TrainingJob {
    custom(&[("ps", servers), ("worker", workers)])
        .role("ps", policy(OnFailure))
        .role("worker", policy(OnFailure))
        .waits("worker", "ps", DependencyState::Running)
}

/// The server was evicted an hour ago, and a worker failed because of that.
fn with_an_old_incident(job: TrainingJob, worker: usize) -> World {
    let mut world = World::new(job);
    world.settle();
    world.evict("mnist-ps-0");
    world.reconcile();
    world.tick(1);
    world.fail(&pod(worker), 1);
    world.settle();
    assert_eq!((world.phase(), world.restarts()), (Some(Running), (0, 1)));
    world.tick(3600);
    world
}

#[test]
fn an_incident_that_is_over_does_not_begin_again_when_a_pod_of_it_leaves() {
    let mut world = with_an_old_incident(ps_and_workers(1, 2).backoff_limit(0), 0);
    world.ask_to_go(&pod(0));
    world.reconcile();
    assert_eq!(world.restarts(), (0, 2));
    world.tick(60);
    world.fail(&pod(1), 1);
    world.settle();
    assert_eq!(world.condition("Failed"), "True BackoffLimitExceeded");
    // Nor when it has left.
    let mut world = with_an_old_incident(ps_and_workers(1, 3), 0);
    world.ask_to_go(&pod(0));
    world.settle();
    world.tick(5);
    world.fail(&pod(1), 1);
    world.settle();
    assert_eq!(world.restarts(), (1, 2));
}

#[test]
fn an_incident_that_is_over_does_not_pay_for_a_new_template() {
    let mut world = with_an_old_incident(ps_and_workers(1, 3).rolls().backoff_limit(0), 2);
    world.edit(|spec| set_image(spec, "worker", "example/train:2"));
    world.reconcile();
    world.kubelets_remove();
    world.reconcile();
    world.run_all();
    world.tick(2);
    world.fail(&pod(2), 1);
    world.settle();
    assert_eq!(world.phase(), Some(Failed));
}

#[test]
fn an_incident_that_is_over_does_not_pay_while_the_node_of_one_of_its_pods_is_down() {
    let job = ps_and_workers(1, 3).role("worker", |role| {
        role.restart_policy = Some(ExitCode);
        role.node_down_policy = Some(NodeDownPolicy::Fail);
    });
    let mut world = with_an_old_incident(job, 0);
    world.run_on(&pod(0), "node-9");
    world.reconcile();
    world.node("node-9", NodeState::Down);
    world.reconcile();
    world.tick(600);
    world.fail(&pod(1), 1);
    world.settle();
    assert_eq!(world.phase(), Some(Failed));
}

#[test]
fn what_a_role_does_that_has_ended_does_not_hold_up_an_update() {
    let job = ps_and_workers(2, 2)
        .role("worker", |role| {
            role.restart_policy = Some(ExitCode);
            role.succeeded_when = Some(PodQuorum::AnyPod);
        })
        .succeeded_when(&[&["ps"]])
        .rolls();
    let mut world = World::new(job);
    world.settle();
    world.succeed(&pod(0));
    world.settle();
    world.evict("mnist-ps-0");
    world.tick(1);
    world.fail(&pod(1), 1);
    world.settle();
    world.tick(3600);
    world.edit(|spec| set_image(spec, "ps", "example/train:2"));
    world.settle();
    assert_eq!(world.image("mnist-ps-1"), "example/train:2");
}

#[test]
fn what_came_of_a_pod_that_is_not_replaced_costs_nothing_more() {
    for evicted in [false, true] {
        let job = ps_and_workers(2, 8).role("ps", |role| {
            role.restart_policy = Some(Never);
            role.failed_when = Some(PodQuorum::AllPods);
        });
        let mut world = World::new(job.backoff_limit(0));
        world.settle();
        if evicted {
            world.evict("mnist-ps-0");
        } else {
            world.fail("mnist-ps-0", 1);
        }
        for index in 0..8 {
            world.tick(1);
            world.fail(&pod(index), 1);
            world.reconcile();
        }
        world.settle();
        assert_eq!(
            (world.phase(), world.restarts()),
            (Some(Running), (0, 0)),
            "{evicted}"
        );
        world.tick(60);
        world.fail(&pod(0), 1);
        world.settle();
        assert_eq!(world.condition("Failed"), "True BackoffLimitExceeded");
    }
}

#[test]
fn what_came_of_what_came_of_an_eviction_costs_nothing() {
    let job = custom(&[("a", 1), ("b", 2), ("c", 2)])
        .role("a", policy(OnFailure))
        .role("b", policy(OnFailure))
        .role("c", policy(OnFailure))
        .waits("b", "a", DependencyState::Running)
        .waits("c", "b", DependencyState::Running);
    let mut world = World::new(job);
    world.settle();
    world.evict("mnist-a-0");
    for role in ["b", "c"] {
        world.reconcile();
        world.tick(1);
        world.fail(&format!("mnist-{role}-0"), 1);
        world.fail(&format!("mnist-{role}-1"), 1);
    }
    world.settle();
    assert_eq!(world.restarts(), (0, 1));
}

#[test]
fn another_operator_whose_clock_is_behind_knows_what_came_of_what() {
    let mut world = World::running(eight().backoff_limit(0));
    world.tick(1000);
    world.evict(&pod(3));
    world.reconcile();
    others_fail(&mut world, 1);
    world.tick(-5);
    world.reconcile();
    assert_eq!(world.restarts(), (0, 1));
    world.settle();
    assert_eq!((world.phase(), world.restarts()), (Some(Running), (0, 1)));
}

#[test]
fn a_failure_that_was_told_as_final_stays_so() {
    let all = |role: &mut RoleSpec| {
        role.restart_policy = Some(ExitCode);
        role.failed_when = Some(PodQuorum::AllPods);
    };
    let mut world = World::new(ps_and_workers(1, 2).role("worker", all));
    world.settle();
    world.fail(&pod(1), 1);
    world.tick(10);
    world.settle();
    assert_eq!(world.role("worker").failed, 1);
    world.tick(3600);
    // Nobody knows when.
    world.vanish("mnist-ps-0");
    world.settle();
    assert_eq!((world.role("worker").failed, world.restarts()), (1, (0, 1)));
}
