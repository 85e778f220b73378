//! Jobs that grow and shrink while they train.

use rstest::rstest;
use trainyard_api::JobPhase::{Failed, Paused, Running, Scaling, Starting, Succeeded};
use trainyard_api::{
    Elastic, NodeDownPolicy, Refill, RoleSpec, ScalingStep, StartAt, TrainingJob, ValidSizes,
};
use trainyard_contract::drain::DrainState;
use trainyard_core::local_state::LocalState;
use trainyard_core::model::{DrainSummary, ForcedRemoval};
use trainyard_core::view::NodeState;

use crate::common::World;
use crate::common::jobs::{Change, custom, with_agent};
use crate::crashes::{Script, at_every_write};

/// A job of a store and workers, whose number may change.
fn elastic(replicas: i32, change: impl FnOnce(&mut Elastic)) -> TrainingJob {
    let mut job = custom(&[("store", 1), ("worker", 1)]).role("worker", |role| {
        role.replicas = None;
        role.restart_policy = Some(trainyard_api::RestartPolicy::OnFailure);
    });
    let mut elastic = Elastic {
        replicas,
        ..Elastic::default()
    };
    change(&mut elastic);
    job.spec.elastic = Some(elastic);
    job
}

fn scale(world: &mut World, replicas: i32) {
    world.edit(|spec| spec.elastic.as_mut().unwrap().replicas = replicas);
}

/// The pods that exist and are not asked to go.
fn pods(world: &World) -> String {
    let names = world.names(|row| !row.terminating);
    let short = names.iter().filter_map(|name| name.strip_prefix("mnist-worker-"));
    short.collect::<Vec<_>>().join(" ")
}

fn members(world: &World) -> (i32, Option<String>) {
    let rules = world.status().accepted.rules.unwrap();
    let role = &rules.roles[1];
    (role.replicas, role.members.clone())
}

fn victims(world: &World) -> Option<String> {
    world.status().scaling.and_then(|scaling| scaling.victims)
}

/// A job that runs, whose pods have agents.
fn running(job: TrainingJob) -> World {
    let mut world = World::new(job);
    world.settings = with_agent();
    world.reconcile();
    world.run_all();
    world.reconcile();
    world
}

/// Enough time since the last change.
fn wait(world: &mut World) {
    world.tick(3);
}

#[test]
fn a_job_grows_and_its_pods_go_on() {
    let mut world = World::running(elastic(2, |_| {}));
    assert_eq!(world.status().replicas, Some(2));
    assert_eq!(
        world.status().selector.as_deref(),
        Some("trainyard.dev/job=mnist,trainyard.dev/role=worker")
    );
    scale(&mut world, 4);
    world.reconcile();
    assert_eq!(pods(&world), "0 1 2 3");
    assert_eq!(world.phase(), Some(Scaling));
    let scaling = world.status().scaling.unwrap();
    assert_eq!((scaling.from, scaling.to), (2, 4));
    assert_eq!(scaling.joining.as_deref(), Some("2-3"));
    assert_eq!(world.condition("Scaling"), "True Scaling");
    assert_eq!(world.condition("Running"), "True Scaling", "it trains meanwhile");
    world.run_all();
    world.reconcile();
    assert_eq!((world.phase(), world.status().scaling), (Some(Running), None));
    assert_eq!(world.condition("Scaling"), "False Scaled");
    assert_eq!((world.restarts(), world.log.deleted.len()), ((0, 0), 0));
    assert_eq!((members(&world), world.status().replicas), ((4, None), Some(4)));
}

#[test]
fn pods_that_leave_are_told_and_deleted_when_they_have_left() {
    let mut world = running(elastic(4, |_| {}));
    scale(&mut world, 2);
    world.reconcile();
    assert_eq!(victims(&world).as_deref(), Some("2-3"));
    assert_eq!(pods(&world), "0 1 2 3", "nobody is deleted yet");
    assert_eq!((world.phase(), members(&world)), (Some(Scaling), (4, None)));
    let message = world.status().scaling.unwrap().message;
    assert_eq!(message.as_deref(), Some("the last ones: 2-3"));

    // However they end: they were told to.
    world.fail("mnist-worker-3", 1);
    world.reconcile_for_a_second();
    assert_eq!(pods(&world), "0 1 2");
    assert_eq!(world.status().replicas, Some(3));
    world.succeed("mnist-worker-2");
    world.reconcile();
    assert_eq!(pods(&world), "0 1");
    assert_eq!((world.phase(), world.restarts()), (Some(Running), (0, 0)));
    assert_eq!(world.status().scaling, None);
    world.settle();
    assert_eq!((world.phase(), world.pods.len()), (Some(Running), 3));
    assert_eq!(world.role("worker").succeeded, 0);
}

#[test]
fn every_step_is_in_the_status() {
    let mut world = running(elastic(4, |_| {}));
    scale(&mut world, 2);
    world.reconcile();
    let step = |world: &World| world.status().scaling.unwrap().step;
    assert_eq!(step(&world), ScalingStep::Requested);
    world.report_drain("mnist-worker-2", DrainState::Acknowledged);
    world.reconcile();
    assert_eq!(step(&world), ScalingStep::Requested, "one of two");
    world.report_drain("mnist-worker-3", DrainState::CheckpointDone);
    world.reconcile_for_a_second();
    assert_eq!(step(&world), ScalingStep::Requested, "they may leave soon");
    world.tick(9);
    world.reconcile();
    assert_eq!(step(&world), ScalingStep::Acknowledged);
    let scaling = world.status().scaling.unwrap();
    assert_eq!(scaling.acknowledged.as_deref(), Some("2-3"));
    assert_eq!(scaling.checkpointed.as_deref(), Some("3"));

    // Another operator knows of it by the status.
    world.local = LocalState::default();
    world.tick(30);
    world.reconcile();
    assert_eq!(pods(&world), "0 1 2 3");
    world.report_drain("mnist-worker-2", DrainState::CheckpointDone);
    world.reconcile_for_a_second();
    assert_eq!(step(&world), ScalingStep::CheckpointDone);
}

fn events(world: &World) -> Vec<&str> {
    world.log.events.iter().map(|event| &*event.message).collect()
}

#[test]
fn users_are_told_of_every_step_and_of_all_who_leave() {
    let mut world = running(elastic(6, |elastic| elastic.drain_timeout_seconds = Some(60)));
    scale(&mut world, 2);
    world.reconcile();
    let before = world.log.events.len();
    for pod in ["mnist-worker-2", "mnist-worker-3", "mnist-worker-4"] {
        world.report_drain(pod, DrainState::Acknowledged);
        world.reconcile();
    }
    assert_eq!(world.log.events.len(), before, "one says nothing");
    world.tick(10);
    world.reconcile();
    for pod in ["mnist-worker-2", "mnist-worker-3"] {
        world.report_drain(pod, DrainState::CheckpointDone);
        world.succeed(pod);
        world.reconcile();
    }
    world.tick(49);
    world.reconcile();
    world.tick(1);
    world.reconcile();
    let told = events(&world);
    assert_eq!(
        told[before..],
        [
            "From 6 to 2 pods: 2-4 know that they are to leave.",
            "From 6 to 2 pods: 5 say nothing, and are asked by SIGTERM.",
            "From 6 to 2 pods: 2-3 have left.",
            "From 6 to 2 pods: 4 have not left in time, and are asked by SIGTERM.",
            "The role worker has 2 pods.",
            "All roles run (3 pods).",
        ]
    );
    let forced: Vec<_> = world.log.drains.iter().flat_map(|drain| &drain.forced).collect();
    assert_eq!(
        forced,
        [(&ForcedRemoval::Silent, &1), (&ForcedRemoval::TimedOut, &1)]
    );
    let seconds: Vec<_> = world
        .log
        .drains
        .iter()
        .filter_map(|drain| drain.seconds)
        .collect();
    assert_eq!(seconds, [60]);
}

#[test]
fn users_are_told_of_checkpoints() {
    let mut world = running(elastic(3, |_| {}));
    scale(&mut world, 2);
    world.reconcile();
    let before = world.log.events.len();
    world.report_drain("mnist-worker-2", DrainState::CheckpointDone);
    world.reconcile();
    world.tick(7);
    world.succeed("mnist-worker-2");
    world.reconcile();
    assert_eq!(
        events(&world)[before..],
        [
            "From 3 to 2 pods: 2 know that they are to leave.",
            "From 3 to 2 pods: 2 have saved their work.",
            "From 3 to 2 pods: 2 have left.",
            "The role worker has 2 pods.",
            "All roles run (3 pods).",
        ]
    );
    let expected = DrainSummary {
        seconds: Some(7),
        ..DrainSummary::default()
    };
    assert_eq!(world.log.drains, [expected], "others train on: no step is lost");
}

/// Every pod is one deletion. What the pods say one after the other costs no write each, nor does
/// it if they leave one after the other.
#[test]
fn a_change_costs_six_writes_and_one_for_each_pod() {
    let mut world = running(elastic(12, |_| {}));
    let leaving: Vec<String> = (2..12).map(|index| format!("mnist-worker-{index}")).collect();
    wait(&mut world);
    let before = world.log.statuses;
    scale(&mut world, 2);
    world.reconcile();
    assert_eq!(victims(&world).as_deref(), Some("2-11"));
    for state in [DrainState::Acknowledged, DrainState::CheckpointDone] {
        for pod in &leaving {
            world.tick(1);
            world.report_drain(pod, state);
            world.reconcile();
        }
    }
    world.tick(1);
    world.reconcile();
    assert_eq!(world.status().scaling.unwrap().step, ScalingStep::CheckpointDone);
    for pod in &leaving {
        world.succeed(pod);
        world.reconcile();
    }
    let (statuses, deleted) = (world.log.statuses - before, world.log.deleted.len());
    assert_eq!((deleted, world.phase()), (10, Some(Running)));
    assert!(statuses <= 6, "{statuses} writes of the status");
}

/// What `kubectl scale` costs: the decision, and its end. Programs end soon after they have saved.
#[test]
fn a_pod_that_leaves_in_order_costs_two_writes_and_its_deletion() {
    let mut world = running(elastic(3, |_| {}));
    wait(&mut world);
    let before = world.writes();
    scale(&mut world, 2);
    world.reconcile();
    for state in [DrainState::Acknowledged, DrainState::CheckpointDone] {
        world.tick(4);
        world.report_drain("mnist-worker-2", state);
        world.reconcile();
    }
    world.succeed("mnist-worker-2");
    world.reconcile();
    assert_eq!((world.phase(), world.status().scaling), (Some(Running), None));
    assert_eq!(world.writes() - before, 2 + 1);
}

#[rstest]
#[case::that_is_gone(NodeState::Gone, NodeDownPolicy::Wait)]
#[case::that_is_gone(NodeState::Gone, NodeDownPolicy::Fail)]
#[case::that_counts_as_lost(NodeState::Down, NodeDownPolicy::Fail)]
fn a_pod_has_left_with_its_node(#[case] state: NodeState, #[case] policy: NodeDownPolicy) {
    let job = elastic(3, |elastic| elastic.drain_timeout_seconds = Some(600));
    let mut world = running(job.role("worker", |role| role.node_down_policy = Some(policy)));
    scale(&mut world, 2);
    world.reconcile();
    world.report_drain("mnist-worker-2", DrainState::Acknowledged);
    world.reconcile();
    world.tick(20);
    world.pod_mut("mnist-worker-2").node = Some("dead".into());
    world.node("dead", state);
    world.reconcile();
    assert_eq!((world.status().replicas, world.status().scaling), (Some(2), None));
    assert_eq!(
        world.log.deleted,
        [("mnist-worker-2".to_owned(), state == NodeState::Gone)]
    );
    assert_eq!((world.phase(), world.restarts()), (Some(Running), (0, 0)));
    assert!(world.log.drains.iter().all(|drain| drain.forced.is_empty()));
}

#[test]
fn a_pod_on_a_node_that_may_come_back_is_waited_for() {
    let mut world = running(elastic(3, |elastic| elastic.drain_timeout_seconds = Some(600)));
    scale(&mut world, 2);
    world.reconcile();
    world.report_drain("mnist-worker-2", DrainState::Acknowledged);
    world.reconcile();
    world.tick(20);
    world.pod_mut("mnist-worker-2").node = Some("dead".into());
    world.node("dead", NodeState::Down);
    let policy = world.job.spec.roles[1].node_down_policy;
    assert!(policy.is_none_or(|policy| policy == NodeDownPolicy::Wait));
    world.reconcile();
    assert_eq!(world.status().replicas, Some(3));
}

#[test]
fn pods_that_leave_within_a_second_are_one_write() {
    let mut world = running(elastic(5, |_| {}));
    scale(&mut world, 2);
    world.reconcile();
    world.succeed("mnist-worker-4");
    let plan = world.reconcile();
    assert_eq!(World::due(&plan), None, "only the status waits");
    assert_eq!(
        (pods(&world), members(&world)),
        ("0 1 2 3 4".to_owned(), (5, None))
    );
    world.succeed("mnist-worker-3");
    world.reconcile();
    assert_eq!(pods(&world), "0 1 2 3 4");
    let before = world.log.statuses;
    world.tick(1);
    world.reconcile();
    assert_eq!((pods(&world), members(&world)), ("0 1 2".to_owned(), (3, None)));
    assert_eq!(world.log.statuses - before, 1);
    // The last one is waited for by nobody.
    world.succeed("mnist-worker-2");
    world.reconcile();
    assert_eq!((pods(&world), world.phase()), ("0 1".to_owned(), Some(Running)));
    assert_eq!(world.log.statuses - before, 2);
}

#[test]
fn a_program_that_says_nothing_is_asked_by_a_signal() {
    let mut world = running(elastic(4, |_| {}));
    scale(&mut world, 2);
    let plan = world.reconcile();
    world.report_drain("mnist-worker-3", DrainState::Acknowledged);
    world.reconcile();
    assert!(plan.wake_at().is_some());
    world.tick(9);
    world.reconcile();
    assert_eq!(pods(&world), "0 1 2 3");
    world.tick(1);
    world.reconcile();
    assert_eq!(pods(&world), "0 1 3", "the pod is deleted, which sends SIGTERM");
    assert_eq!(world.phase(), Some(Scaling));
}

#[test]
fn pods_without_an_agent_are_asked_by_a_signal_at_once() {
    let mut world = World::running(elastic(3, |_| {}));
    scale(&mut world, 2);
    world.reconcile();
    assert_eq!(pods(&world), "0 1");
}

#[test]
fn who_does_not_leave_in_time_is_deleted() {
    let mut world = running(elastic(3, |elastic| elastic.drain_timeout_seconds = Some(60)));
    scale(&mut world, 2);
    world.reconcile();
    world.report_drain("mnist-worker-2", DrainState::Acknowledged);
    world.reconcile();
    world.tick(10);
    let plan = world.reconcile();
    let deadline = world.status().scaling.unwrap().deadline.unwrap().0;
    assert_eq!(plan.wake_at(), Some(deadline));
    world.tick(49);
    world.reconcile();
    assert_eq!(pods(&world), "0 1 2");
    world.tick(1);
    world.reconcile();
    assert_eq!(pods(&world), "0 1");
    world.settle();
    assert_eq!((world.phase(), world.restarts()), (Some(Running), (0, 0)));
}

#[rstest]
#[case::not_running(|world: &mut World| { world.pod_mut("mnist-worker-1").phase = trainyard_core::view::PodPhase::Pending; }, "1")]
#[case::not_ready(|world: &mut World| world.pod_mut("mnist-worker-1").ready = false, "1")]
#[case::on_a_node_that_is_down(|world: &mut World| {
    world.pod_mut("mnist-worker-1").node = Some("broken".into());
    world.node("broken", trainyard_core::view::NodeState::Down);
}, "1")]
#[case::on_a_cordoned_node(|world: &mut World| {
    world.pod_mut("mnist-worker-1").node = Some("old".into());
    world.cordon("old");
}, "1")]
#[case::all_equal(|_: &mut World| {}, "3")]
fn those_leave_that_are_missed_least(#[case] before: fn(&mut World), #[case] victim: &str) {
    let mut world = World::running(elastic(4, |_| {}));
    before(&mut world);
    scale(&mut world, 3);
    let plan = world.plan();
    let scaling = plan.status().and_then(|status| status.scaling.clone()).unwrap();
    assert_eq!(scaling.victims.as_deref(), Some(victim), "{:?}", scaling.message);
}

#[test]
fn rank_0_stays() {
    let mut job = custom(&[("worker", 1)]).role("worker", |role| role.replicas = None);
    job.spec.elastic = Some(Elastic {
        replicas: 3,
        ..Elastic::default()
    });
    let mut world = running(job);
    world.pod_mut("mnist-worker-0").ready = false;
    scale(&mut world, 1);
    world.reconcile();
    assert_eq!(victims(&world).as_deref(), Some("1-2"));
}

/// Ranks are places among the pods that there are.
#[test]
fn the_next_pod_has_rank_0_where_index_0_was_lost() {
    let mut job = elastic(4, |elastic| elastic.refill = Some(Refill::Never));
    job.spec.roles.remove(0);
    let mut world = running(job);
    world.fail("mnist-worker-0", 1);
    world.settle();
    assert_eq!(pods(&world), "1 2 3");
    wait(&mut world);
    world.pod_mut("mnist-worker-1").ready = false;
    scale(&mut world, 1);
    world.reconcile();
    assert_eq!(victims(&world).as_deref(), Some("2-3"));
}

#[test]
fn indices_of_pods_that_left_are_used_again() {
    let mut world = running(elastic(4, |_| {}));
    world.pod_mut("mnist-worker-1").ready = false;
    scale(&mut world, 3);
    world.reconcile();
    world.succeed("mnist-worker-1");
    world.reconcile();
    assert_eq!(
        (pods(&world), members(&world)),
        ("0 2 3".to_owned(), (3, Some("0,2-3".to_owned())))
    );
    world.kubelets_remove();
    wait(&mut world);
    scale(&mut world, 5);
    world.reconcile();
    assert_eq!(world.status().scaling.unwrap().joining.as_deref(), Some("1,4"));
    world.settle();
    assert_eq!(
        (pods(&world), members(&world)),
        ("0 2 3 1 4".to_owned(), (5, None))
    );
}

#[test]
fn changes_that_come_fast_are_one_change() {
    let mut world = World::running(elastic(2, |_| {}));
    scale(&mut world, 3);
    world.reconcile();
    world.run_all();
    world.reconcile();
    for replicas in [4, 5, 6] {
        scale(&mut world, replicas);
        let plan = world.reconcile();
        assert!(plan.wake_at().is_some(), "it looks again when it may");
    }
    assert_eq!(pods(&world), "0 1 2", "the last change is not 2 s old");
    wait(&mut world);
    world.reconcile();
    assert_eq!(pods(&world), "0 1 2 3 4 5");
}

#[test]
fn pods_that_do_not_run_yet_leave_without_a_word() {
    let mut world = World::running(elastic(2, |_| {}));
    scale(&mut world, 5);
    world.reconcile();
    world.run_on("mnist-worker-2", "node-0");
    scale(&mut world, 3);
    world.reconcile();
    world.kubelets_remove();
    world.reconcile();
    assert_eq!((pods(&world), world.phase()), ("0 1 2".to_owned(), Some(Running)));
    assert_eq!((world.restarts(), world.status().scaling), ((0, 0), None));
}

#[test]
fn a_job_that_starts_small_grows_once_it_runs() {
    let mut world = World::new(elastic(4, |elastic| {
        elastic.min_replicas = Some(2);
        elastic.start_at = Some(StartAt::Min);
    }));
    world.reconcile();
    assert_eq!((pods(&world), world.phase()), ("0 1".to_owned(), Some(Starting)));
    world.settle();
    assert_eq!(pods(&world), "0 1 2 3");
    assert_eq!((world.phase(), members(&world)), (Some(Running), (4, None)));
}

#[test]
fn sizes_that_the_training_cannot_have_are_passed_over() {
    let mut world = running(elastic(2, |elastic| {
        elastic.valid_sizes = Some(ValidSizes {
            values: Some(vec![2, 4, 8]),
            step: None,
        });
    }));
    scale(&mut world, 7);
    world.settle();
    assert_eq!(world.status().replicas, Some(4));
    scale(&mut world, 3);
    wait(&mut world);
    world.reconcile();
    assert_eq!(victims(&world).as_deref(), Some("2-3"));
}

#[test]
fn a_job_goes_on_with_enough_pods_and_pauses_with_fewer() {
    let mut world = World::running(elastic(3, |elastic| {
        elastic.min_replicas = Some(2);
        elastic.pause_timeout_seconds = Some(600);
    }));
    world.fail("mnist-worker-2", 1);
    world.reconcile();
    assert_eq!((world.phase(), world.restarts()), (Some(Running), (1, 0)));
    world.fail("mnist-worker-1", 1);
    world.reconcile();
    assert_eq!(world.phase(), Some(Paused));
    assert_eq!(world.condition("Running"), "False Paused");
    world.settle();
    assert_eq!((world.phase(), pods(&world).len()), (Some(Running), 5));
}

#[test]
fn a_job_whose_places_stay_empty_pauses_with_too_few_pods() {
    let mut world = World::running(elastic(3, |elastic| {
        elastic.min_replicas = Some(2);
        elastic.refill = Some(Refill::Never);
    }));
    world.fail("mnist-worker-2", 1);
    world.settle();
    assert_eq!((world.phase(), world.status().replicas), (Some(Running), Some(2)));
    world.fail("mnist-worker-1", 1);
    world.settle();
    assert_eq!((world.phase(), world.status().replicas), (Some(Paused), Some(1)));
    scale(&mut world, 2);
    world.tick(3);
    world.settle();
    assert_eq!((world.phase(), world.status().replicas), (Some(Running), Some(2)));
}

#[test]
fn a_job_that_is_paused_for_too_long_fails() {
    let mut world = World::running(elastic(2, |elastic| {
        elastic.min_replicas = Some(2);
        elastic.pause_timeout_seconds = Some(600);
    }));
    world.fail("mnist-worker-1", 1);
    world.reconcile();
    world.kubelets_remove();
    world.reconcile();
    assert_eq!(world.phase(), Some(Paused));
    world.tick(599);
    world.reconcile();
    assert_eq!(world.phase(), Some(Paused));
    world.tick(1);
    world.reconcile();
    assert_eq!(
        (world.phase(), world.condition("Failed")),
        (Some(Failed), "True PauseTimeoutExceeded".to_owned())
    );
}

#[test]
fn what_is_lost_stays_lost_where_nobody_refills() {
    let mut world = World::running(elastic(3, |elastic| elastic.refill = Some(Refill::Never)));
    world.fail("mnist-worker-1", 1);
    world.settle();
    assert_eq!((pods(&world), world.phase()), ("0 2".to_owned(), Some(Running)));
    assert_eq!(world.restarts(), (1, 0), "it is a failure all the same");
    wait(&mut world);
    scale(&mut world, 4);
    world.settle();
    assert_eq!(world.status().replicas, Some(4));
}

/// Nobody has trained to the end.
#[test]
fn a_job_without_any_pod_is_paused() {
    let mut job = elastic(1, |elastic| elastic.refill = Some(Refill::Never));
    job.spec.roles.remove(0);
    let mut world = World::running(job);
    world.fail("mnist-worker-0", 1);
    world.settle();
    assert_eq!((world.phase(), world.status().replicas), (Some(Paused), Some(0)));
    wait(&mut world);
    scale(&mut world, 2);
    world.settle();
    assert_eq!((world.phase(), pods(&world)), (Some(Running), "0 1".to_owned()));
    world.succeed_all();
    world.settle();
    assert_eq!(world.phase(), Some(Succeeded));
}

/// The role would never end without it.
/// The pod of a lost node may be on its way out for ever, and run as long. Its node is lost before
/// it is asked to go, or after.
#[rstest]
#[case::before(true)]
#[case::after(false)]
fn a_pod_that_nobody_can_remove_gives_up_its_place(#[case] before: bool) {
    let mut world = running(elastic(3, |_| {}));
    world.run_on("mnist-worker-1", "lost");
    world.reconcile();
    let lose = |world: &mut World| world.node("lost", NodeState::Down);
    if before {
        lose(&mut world);
    }
    world.ask_to_go("mnist-worker-1");
    world.reconcile();
    if !before {
        assert_eq!(members(&world), (3, None), "its kubelet removes it");
        lose(&mut world);
    }
    world.settle();
    assert_eq!((pods(&world).as_str(), world.phase()), ("0 2 3", Some(Running)));
    assert_eq!(members(&world), (3, Some("0,2-3".to_owned())));
    assert_eq!(world.restarts(), (0, 1));
    assert!(world.log.deleted.is_empty(), "nobody says that it has ended");

    // The machine is back, and its kubelet ends the pod.
    world.node("lost", NodeState::Up);
    world.settle();
    assert_eq!(pods(&world), "0 2 3");
    assert_eq!((members(&world).0, world.restarts()), (3, (0, 1)));
    scale(&mut world, 4);
    wait(&mut world);
    world.settle();
    assert_eq!(pods(&world), "0 2 3 1", "its name is free again");
}

/// It can't save anything any more.
#[test]
fn a_pod_that_is_to_leave_has_left_when_its_node_is_lost() {
    let fails = |role: &mut RoleSpec| role.node_down_policy = Some(NodeDownPolicy::Fail);
    let mut world = running(elastic(3, |_| {}).role("worker", fails));
    world.run_on("mnist-worker-2", "lost");
    world.reconcile();
    scale(&mut world, 2);
    wait(&mut world);
    world.reconcile();
    assert_eq!(victims(&world).as_deref(), Some("2"));
    world.report_drain("mnist-worker-2", DrainState::Acknowledged);
    world.reconcile();
    world.node("lost", NodeState::Down);
    world.reconcile_for_a_second();
    assert_eq!((victims(&world), members(&world).0), (None, 2));
    assert_eq!(world.restarts(), (0, 0));
}

#[test]
fn the_place_of_the_pod_that_decides_does_not_stay_empty() {
    let job = elastic(3, |elastic| elastic.refill = Some(Refill::Never));
    let first = Some(trainyard_api::PodQuorum::FirstPod);
    let mut world = World::running(job.role("worker", |role| role.succeeded_when = first));
    world.fail("mnist-worker-0", 1);
    world.fail("mnist-worker-1", 1);
    world.settle();
    assert_eq!((pods(&world), world.phase()), ("2 0".to_owned(), Some(Running)));
    wait(&mut world);
    scale(&mut world, 1);
    world.settle();
    world.run_all();
    wait(&mut world);
    world.settle();
    assert_eq!(pods(&world), "0", "nor does it leave, though it is the youngest");
}

#[test]
fn a_job_that_succeeds_while_pods_leave_has_succeeded() {
    let mut world = running(elastic(3, |_| {}));
    scale(&mut world, 2);
    world.reconcile();
    world.succeed_all();
    world.settle();
    assert_eq!((world.phase(), world.status().scaling), (Some(Succeeded), None));
}

#[test]
fn a_suspended_job_starts_afresh_at_its_target() {
    let mut world = running(elastic(4, |_| {}));
    scale(&mut world, 2);
    world.reconcile();
    world.edit(|spec| spec.suspend = Some(true));
    world.settle();
    assert_eq!((world.status().scaling, world.status().replicas), (None, Some(0)));
    world.edit(|spec| spec.suspend = Some(false));
    world.settle();
    assert_eq!((pods(&world), world.phase()), ("0 1".to_owned(), Some(Running)));
}

#[test]
fn an_operator_that_dies_at_any_write_scales_out() {
    let script: Script = |world, operator| {
        operator(world);
        world.run_all();
        operator(world);
        scale(world, 4);
        operator(world);
        world.run_all();
        operator(world);
    };
    at_every_write(&elastic(2, |_| {}), script, |world| {
        assert_eq!(
            (world.phase(), pods(world)),
            (Some(Running), "0 1 2 3".to_owned())
        );
        assert_eq!((world.restarts(), world.log.pods.len()), ((0, 0), 5));
    });
}

#[test]
fn an_operator_that_dies_at_any_write_deletes_nobody_who_has_not_left() {
    let script: Script = |world, operator| {
        world.settings = with_agent();
        operator(world);
        world.run_all();
        operator(world);
        scale(world, 2);
        operator(world);
        assert_eq!(pods(world), "0 1 2 3", "they have not left");
        // An operator that has just been started is told again.
        for pod in ["mnist-worker-2", "mnist-worker-3"] {
            world.report_drain(pod, DrainState::Acknowledged);
            operator(world);
            world.report_drain(pod, DrainState::Acknowledged);
        }
        operator(world);
        world.tick(20);
        operator(world);
        assert_eq!(pods(world), "0 1 2 3", "they have not left");
        world.fail("mnist-worker-2", 1);
        // One that has just been started waits for others anew.
        for _ in 0..3 {
            operator(world);
            world.report_drain("mnist-worker-3", DrainState::Acknowledged);
            world.tick(1);
        }
        assert_eq!(pods(world), "0 1 3");
        world.tick(300);
        operator(world);
        world.kubelets_remove();
        operator(world);
    };
    at_every_write(&elastic(4, |_| {}), script, |world| {
        assert_eq!((world.phase(), pods(world)), (Some(Running), "0 1".to_owned()));
        assert_eq!((world.restarts(), world.log.pods.len()), ((0, 0), 5));
    });
}
