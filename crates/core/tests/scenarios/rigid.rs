//! Jobs whose pods all start anew when their number changes.

use rstest::rstest;
use trainyard_api::JobPhase::{Failed, Running, Scaling, Starting, Suspended, Suspending};
use trainyard_api::{
    Elastic, Progress, ProgressPolicy, RestartPolicy, RigidPolicy, ScalingStep, TrainingJob, ValidSizes,
};
use trainyard_contract::drain::{DrainReport, DrainState};
use trainyard_core::local_state::LocalState;
use trainyard_core::model::{DrainCause, DrainSummary, ForcedRemoval};
use trainyard_core::observe::observe;

use crate::common::World;
use crate::common::jobs::{Change, job, mpi, with_agent};
use crate::crashes::{Script, at_every_write};

fn with_elastic(job: TrainingJob, replicas: i32) -> TrainingJob {
    job.role("worker", |role| role.replicas = None).spec(|spec| {
        spec.elastic = Some(Elastic {
            replicas,
            ..Elastic::default()
        });
    })
}

fn jax(replicas: i32) -> TrainingJob {
    with_elastic(job("jax", &[("worker", 1)]), replicas)
}

/// Rank 0 is the master, and only the number of workers changes.
fn xgboost(replicas: i32) -> TrainingJob {
    with_elastic(job("xgboost", &[("master", 1), ("worker", 1)]), replicas)
}

fn refusing(replicas: i32) -> TrainingJob {
    jax(replicas).spec(|spec| spec.elastic.as_mut().unwrap().rigid = Some(RigidPolicy::Refuse))
}

/// A job that runs, whose pods have agents.
fn running(job: TrainingJob) -> World {
    let mut world = World::new(job);
    world.settings = with_agent();
    world.reconcile();
    world.run_all();
    world.reconcile();
    assert_eq!(world.phase(), Some(Running));
    world
}

fn scale(world: &mut World, replicas: i32) {
    world.edit(|spec| spec.elastic.as_mut().unwrap().replicas = replicas);
}

/// All have left, are deleted, and start anew.
fn start_anew(world: &mut World) {
    world.kubelets_remove();
    world.reconcile();
    assert_eq!(world.scaling_step(), Some(ScalingStep::Joining));
    world.run_all();
    world.reconcile();
}

#[test]
fn all_pods_are_told_and_start_anew_at_the_new_size() {
    let mut world = running(xgboost(2));
    assert_eq!(world.variable("mnist-worker-0", "WORLD_SIZE"), Some("3"));
    let created = world.log.pods.len();
    scale(&mut world, 4);
    world.reconcile();
    assert_eq!(
        (world.scaling_step(), world.phase()),
        (Some(ScalingStep::Requested), Some(Scaling))
    );
    let roles = world.status().scaling.unwrap().roles;
    let told: Vec<_> = roles
        .iter()
        .map(|role| (&*role.name, role.victims.as_deref()))
        .collect();
    assert_eq!(told, [("master", Some("0")), ("worker", Some("0-1"))]);
    let observed = world.see(observe);
    let mut seen = observed.roles.iter().flat_map(|role| &role.pods);
    assert!(seen.all(|pod| !pod.drain.stays()), "{observed:#?}");
    assert_eq!(world.condition("Running"), "True Scaling", "it trains meanwhile");
    assert!(
        world
            .message("Scaling")
            .contains("xgboost tells every pod at its start how many there are"),
        "{}",
        world.message("Scaling")
    );

    world.report_drain("mnist-master-0", DrainState::Acknowledged);
    world.reconcile_for_a_second();
    assert_eq!(world.scaling_step(), Some(ScalingStep::Acknowledged));
    world.report_drain("mnist-master-0", DrainState::CheckpointDone);
    world.tick(100);
    world.reconcile();
    assert_eq!(
        world.scaling_step(),
        Some(ScalingStep::CheckpointDone),
        "what one says holds for all"
    );
    assert_eq!(world.staying(), "master-0 worker-0 worker-1");

    for pod in ["mnist-worker-0", "mnist-worker-1"] {
        world.fail(pod, 1);
    }
    world.reconcile();
    assert_eq!(world.staying(), "master-0 worker-0 worker-1", "one has not left");
    world.succeed("mnist-master-0");
    world.reconcile();
    assert_eq!(world.scaling_step(), Some(ScalingStep::Restarting));
    assert_eq!((world.staying(), world.phase()), (String::new(), Some(Scaling)));
    assert_eq!(world.condition("Running"), "False Scaling");
    assert_eq!(
        world.log.pods.len(),
        created,
        "none is created as long as one exists"
    );
    start_anew(&mut world);
    assert_eq!((world.phase(), world.scaling_step()), (Some(Running), None));
    assert_eq!(world.staying(), "master-0 worker-0 worker-1 worker-2 worker-3");
    for pod in ["mnist-master-0", "mnist-worker-0", "mnist-worker-3"] {
        assert_eq!(world.variable(pod, "WORLD_SIZE"), Some("5"));
    }
    assert_eq!((world.restarts(), world.status().replicas), ((0, 0), Some(4)));
    assert_eq!(world.condition("Scaling"), "False Scaled");
    let told: Vec<&str> = world
        .log
        .events
        .iter()
        .map(|event| event.reason.as_str())
        .collect();
    let scaling = told.iter().filter(|reason| **reason == "Scaling").count();
    assert_eq!((scaling, told.last()), (5, Some(&"AllRolesRunning")), "{told:?}");
}

#[test]
fn who_knows_nothing_is_asked_by_a_signal_after_a_while() {
    let mut world = running(jax(2));
    scale(&mut world, 1);
    let plan = world.reconcile();
    assert!(plan.wake_at().is_some());
    world.tick(9);
    world.reconcile();
    assert_eq!(world.staying(), "worker-0 worker-1");
    world.tick(1);
    world.reconcile();
    assert_eq!(
        (world.staying(), world.scaling_step()),
        (String::new(), Some(ScalingStep::Restarting))
    );
    start_anew(&mut world);
    assert_eq!(
        (world.staying(), world.phase()),
        ("worker-0".to_owned(), Some(Running))
    );
    assert_eq!(world.variable("mnist-worker-0", "JAX_NUM_PROCESSES"), Some("1"));
    assert_eq!(world.restarts(), (0, 0));
}

#[test]
fn who_does_not_leave_in_time_is_deleted() {
    let mut world = running(jax(2).spec(|spec| {
        spec.elastic.as_mut().unwrap().drain_timeout_seconds = Some(60);
    }));
    scale(&mut world, 3);
    world.reconcile();
    world.report_drain("mnist-worker-0", DrainState::Acknowledged);
    let plan = world.reconcile_for_a_second();
    assert_eq!(
        plan.wake_at(),
        world.status().scaling.unwrap().deadline.map(|at| at.0)
    );
    world.tick(58);
    world.reconcile();
    assert_eq!(world.staying(), "worker-0 worker-1");
    world.tick(1);
    world.reconcile();
    assert_eq!(world.scaling_step(), Some(ScalingStep::Restarting));
}

#[rstest]
#[case::in_time(true, 3, None)]
#[case::too_late(false, 60, Some(ForcedRemoval::TimedOut))]
fn what_a_restart_has_cost_is_counted(
    #[case] leaves: bool,
    #[case] seconds: i64,
    #[case] why: Option<ForcedRemoval>,
) {
    let mut world = running(jax(2).spec(|spec| {
        spec.progress = Some(ProgressPolicy::Report);
        spec.elastic.as_mut().unwrap().drain_timeout_seconds = Some(60);
    }));
    let progress = |step| Progress {
        step: Some(step),
        ..Progress::default()
    };
    world.progress = Some(progress(100));
    scale(&mut world, 3);
    world.reconcile();
    let uid = world.pod("mnist-worker-0").uid.to_string();
    let (state, step) = (DrainState::CheckpointDone, Some(118));
    world.local.drains.record(&uid, DrainReport { state, step });
    world.reconcile();
    world.progress = Some(progress(120));
    world.tick(3);
    if leaves {
        world.succeed("mnist-worker-0");
        world.succeed("mnist-worker-1");
    }
    world.reconcile();
    world.tick(57);
    world.reconcile();
    let forced = why.map(|why| (why, 2)).into_iter().collect();
    let expected = DrainSummary {
        cause: DrainCause::Restart,
        seconds: Some(seconds),
        forced,
        steps_lost: Some(2),
    };
    assert_eq!(world.log.drains, [expected]);
    let told: Vec<&str> = world.log.events.iter().map(|event| &*event.message).collect();
    assert!(
        told.contains(&"From 2 to 3 pods: worker 0 have saved their work."),
        "{told:?}"
    );
}

/// Such as servers, which end only when they are asked to.
#[test]
fn who_says_nothing_is_not_waited_for_when_the_others_have_left() {
    let job = with_elastic(job("mxnet", &[("scheduler", 1), ("server", 1), ("worker", 1)]), 2);
    let mut world = running(job);
    scale(&mut world, 3);
    world.reconcile();
    for pod in ["mnist-worker-0", "mnist-worker-1"] {
        world.report_drain(pod, DrainState::CheckpointDone);
    }
    world.tick(30);
    world.reconcile();
    assert_eq!(world.scaling_step(), Some(ScalingStep::CheckpointDone));
    world.succeed("mnist-worker-0");
    world.reconcile();
    assert_eq!(world.scaling_step(), Some(ScalingStep::CheckpointDone));
    world.succeed("mnist-worker-1");
    world.reconcile();
    assert_eq!(world.scaling_step(), Some(ScalingStep::Restarting));
    start_anew(&mut world);
    assert_eq!((world.phase(), world.restarts()), (Some(Running), (0, 0)));
    assert_eq!(world.variable("mnist-scheduler-0", "DMLC_NUM_WORKER"), Some("3"));
    assert_eq!(
        world.role("worker").succeeded,
        0,
        "they have left, and were not done"
    );
}

/// The launcher waits for its workers as at the first start, with a new list of hosts.
#[test]
fn a_launcher_starts_anew_with_its_workers() {
    let mut world = running(with_elastic(mpi("", 1), 2));
    scale(&mut world, 3);
    world.reconcile();
    world.tick(10);
    world.reconcile();
    world.kubelets_remove();
    world.reconcile();
    assert_eq!(world.staying(), "launcher-0 worker-0 worker-1 worker-2");
    assert_eq!(world.phase(), Some(Scaling));
    world.settle();
    assert_eq!((world.phase(), world.restarts()), (Some(Running), (0, 0)));
}

#[test]
fn a_pod_that_was_lost_is_replaced_and_the_size_stays() {
    let mut world = running(jax(3));
    world.fail("mnist-worker-1", 137);
    world.settle();
    assert_eq!((world.phase(), world.scaling_step()), (Some(Running), None));
    assert_eq!(
        (world.restarts().0, world.staying().len()),
        (1, "worker-0 worker-2 worker-1".len())
    );
    assert_eq!(world.variable("mnist-worker-1", "JAX_NUM_PROCESSES"), Some("3"));
}

/// It failed before the change began, and waits for its replacement.
#[test]
fn a_pod_that_waits_for_its_replacement_starts_anew_with_the_others() {
    let mut world = running(jax(2));
    for _ in 0..2 {
        world.fail("mnist-worker-1", 137);
        world.reconcile();
        world.kubelets_remove();
        world.reconcile();
        world.run_all();
        world.reconcile();
    }
    let failures = world.restarts().0;
    scale(&mut world, 3);
    world.reconcile();
    world.tick(10);
    world.reconcile();
    start_anew(&mut world);
    assert_eq!((world.phase(), world.restarts().0), (Some(Running), failures));
}

#[test]
fn new_pods_that_fail_count() {
    let mut world = running(jax(2));
    scale(&mut world, 3);
    world.reconcile();
    world.tick(10);
    world.reconcile();
    world.kubelets_remove();
    world.reconcile();
    world.run_all();
    world.fail("mnist-worker-2", 137);
    world.reconcile();
    assert_eq!(world.restarts().0, 1);
    world.settle();
    assert_eq!((world.phase(), world.scaling_step()), (Some(Running), None));
}

#[test]
fn a_job_that_never_ran_starts_anew_too() {
    let mut world = World::new(jax(4));
    world.settings = with_agent();
    world.reconcile();
    assert_eq!(world.phase(), Some(Starting));
    world.bind_all();
    scale(&mut world, 2);
    world.reconcile();
    assert_eq!(
        world.scaling_step(),
        Some(ScalingStep::Restarting),
        "none of them runs"
    );
    world.settle();
    assert_eq!(
        (world.staying(), world.phase()),
        ("worker-0 worker-1".to_owned(), Some(Running))
    );
}

/// Nobody waits for pods that are not wanted any more.
#[test]
fn a_target_that_changes_again_is_not_waited_for() {
    let mut world = running(jax(2));
    scale(&mut world, 8);
    world.reconcile();
    scale(&mut world, 5);
    world.tick(10);
    world.reconcile();
    world.kubelets_remove();
    world.reconcile();
    let scaling = world.status().scaling.unwrap();
    assert_eq!(
        (scaling.from, scaling.to),
        (2, 5),
        "what came meanwhile is one change"
    );
    scale(&mut world, 3);
    world.reconcile();
    assert_eq!(
        world.scaling_step(),
        Some(ScalingStep::Joining),
        "the change is not 2 s old"
    );
    world.run_on("mnist-worker-1", "node-0");
    world.tick(2);
    world.reconcile();
    let scaling = world.status().scaling.unwrap();
    assert_eq!(
        (scaling.from, scaling.to, scaling.step),
        (5, 3, ScalingStep::Requested)
    );
    world.tick(10);
    world.reconcile();
    start_anew(&mut world);
    assert_eq!(world.staying(), "worker-0 worker-1 worker-2");
    assert_eq!((world.phase(), world.restarts()), (Some(Running), (0, 0)));
}

#[test]
fn sizes_that_the_training_cannot_have_are_passed_over() {
    let mut world = running(jax(2).spec(|spec| {
        spec.elastic.as_mut().unwrap().valid_sizes = Some(ValidSizes {
            values: Some(vec![2, 4]),
            step: None,
        });
    }));
    scale(&mut world, 3);
    world.tick(20);
    world.reconcile();
    assert_eq!(
        (world.scaling_step(), world.staying()),
        (None, "worker-0 worker-1".to_owned())
    );
    scale(&mut world, 5);
    world.reconcile();
    assert_eq!(world.status().scaling.unwrap().to, 4);
}

#[test]
fn where_it_is_refused_the_job_goes_on_and_says_why() {
    let mut world = running(refusing(2));
    scale(&mut world, 4);
    world.tick(60);
    world.reconcile();
    assert_eq!((world.scaling_step(), world.phase()), (None, Some(Running)));
    assert_eq!(world.staying(), "worker-0 worker-1");
    assert_eq!(world.condition("Scaling"), "False SizeRefused");
    let message = world.message("Scaling");
    assert!(
        message.starts_with("spec.elastic.replicas is 4, and the job keeps its 2 pods: jax tells every pod"),
        "{message}"
    );
    scale(&mut world, 2);
    world.reconcile();
    assert_eq!(
        world.condition("Scaling"),
        "False Scaled",
        "it is as it should be"
    );
    scale(&mut world, 3);
    world.edit(|spec| spec.suspend = Some(true));
    world.settle();
    assert_eq!(world.phase(), Some(Suspended));
    world.edit(|spec| spec.suspend = Some(false));
    world.settle();
    assert_eq!(
        world.staying(),
        "worker-0 worker-1 worker-2",
        "it starts with what is wanted"
    );
}

#[test]
fn what_has_succeeded_is_not_done_again() {
    let mut world = running(jax(2));
    world.succeed("mnist-worker-1");
    scale(&mut world, 3);
    world.tick(20);
    world.reconcile();
    assert_eq!(
        (world.scaling_step(), world.condition("Scaling")),
        (None, "False SizeRefused".to_owned())
    );
    world.succeed("mnist-worker-0");
    world.settle();
    assert_eq!(world.phase(), Some(trainyard_api::JobPhase::Succeeded));
}

#[rstest]
#[case::told(0)]
#[case::deleted(1)]
#[case::created(2)]
fn a_job_that_is_suspended_meanwhile_starts_afresh(#[case] stage: usize) {
    let mut world = running(jax(2));
    scale(&mut world, 3);
    world.reconcile();
    if stage > 0 {
        world.tick(10);
        world.reconcile();
    }
    if stage > 1 {
        world.kubelets_remove();
        world.reconcile();
    }
    world.edit(|spec| spec.suspend = Some(true));
    world.settle();
    assert_eq!((world.phase(), world.scaling_step()), (Some(Suspended), None));
    world.edit(|spec| spec.suspend = Some(false));
    world.settle();
    assert_eq!(
        (world.phase(), world.staying()),
        (Some(Running), "worker-0 worker-1 worker-2".to_owned())
    );
    assert_eq!(world.restarts(), (0, 0));
}

#[test]
fn a_deadline_holds_meanwhile() {
    let mut world = running(jax(2).run(|run| run.active_deadline_seconds = Some(5)));
    scale(&mut world, 3);
    world.reconcile();
    world.tick(6);
    world.settle();
    assert_eq!(world.phase(), Some(Failed));
}

#[test]
fn an_operator_that_dies_at_any_write_starts_all_anew_once() {
    let script: Script = |world, operator| {
        world.settings = with_agent();
        operator(world);
        world.run_all();
        operator(world);
        scale(world, 3);
        operator(world);
        assert_eq!(
            world.staying(),
            "master-0 worker-0 worker-1",
            "they have not left"
        );
        // An operator that has just been started is told again.
        for _ in 0..2 {
            world.report_drain("mnist-master-0", DrainState::Acknowledged);
            operator(world);
        }
        world.tick(20);
        operator(world);
        assert_eq!(
            world.staying(),
            "master-0 worker-0 worker-1",
            "they have not left"
        );
        world.fail("mnist-master-0", 1);
        world.fail("mnist-worker-1", 1);
        operator(world);
        // Another operator may wait anew for those that said nothing.
        world.tick(20);
        operator(world);
        world.tick(20);
        operator(world);
        world.kubelets_remove();
        operator(world);
        world.run_all();
        operator(world);
        world.run_all();
        operator(world);
    };
    let job = xgboost(2).role("worker", |role| role.restart_policy = Some(RestartPolicy::Never));
    let points = at_every_write(&job, script, |world| {
        assert_eq!(
            (world.phase(), world.staying()),
            (Some(Running), "master-0 worker-0 worker-1 worker-2".to_owned())
        );
        assert_eq!((world.restarts(), world.log.pods.len()), ((0, 0), 7));
        assert_eq!(world.variable("mnist-worker-1", "WORLD_SIZE"), Some("4"));
    });
    assert!(points > 15, "{points}");
}

/// The operator that knew of it by a report is gone, and the status has it.
#[test]
fn what_a_pod_has_said_is_in_the_status() {
    let mut world = running(xgboost(2));
    scale(&mut world, 3);
    world.reconcile();
    world.report_drain("mnist-worker-1", DrainState::Acknowledged);
    world.reconcile_for_a_second();
    let roles = world.status().scaling.unwrap().roles;
    assert_eq!(roles[1].acknowledged.as_deref(), Some("1"));
    world.local = LocalState::default();
    world.tick(60);
    world.reconcile();
    assert_eq!(world.staying(), "master-0 worker-0 worker-1");
}

/// A pod that is taken away and still runs may save its work together with the others.
#[test]
fn a_job_that_is_only_disrupted_has_time_for_a_checkpoint() {
    let mut world = running(jax(3));
    let created = world.log.pods.len();
    world.ask_to_go("mnist-worker-1");
    world.reconcile();
    assert_eq!(
        (world.scaling_step(), world.restarts()),
        (Some(ScalingStep::Requested), (0, 1))
    );
    assert_eq!(
        world.staying(),
        "worker-0 worker-2",
        "nobody else is asked by a signal"
    );
    world.report_drain("mnist-worker-0", DrainState::Acknowledged);
    world.reconcile();
    world.tick(100);
    let uid = world.pod("mnist-worker-0").uid.to_string();
    let saved = DrainReport {
        state: DrainState::CheckpointDone,
        step: Some(70),
    };
    world.local.drains.record(&uid, saved);
    world.reconcile();
    assert_eq!(world.scaling_step(), Some(ScalingStep::CheckpointDone));
    assert_eq!(
        world.status().checkpoint.map(|checkpoint| checkpoint.step),
        Some(70)
    );
    for pod in ["mnist-worker-0", "mnist-worker-1", "mnist-worker-2"] {
        world.succeed(pod);
    }
    world.reconcile();
    start_anew(&mut world);
    assert_eq!((world.phase(), world.restarts()), (Some(Running), (0, 1)));
    assert_eq!(world.log.pods.len(), created + 3);
    assert_eq!(world.pod("mnist-worker-0").attempt, 1);
    assert_eq!(world.status().restarts.unwrap().history.len(), 1);
}

/// Nobody can save anything together with a pod that has ended.
#[test]
fn a_pod_that_has_ended_is_not_waited_for() {
    let mut world = running(jax(3));
    world.evict("mnist-worker-1");
    world.reconcile();
    assert_eq!((world.scaling_step(), world.restarts()), (None, (0, 1)));
    assert_eq!(world.staying(), "");
}

#[test]
fn a_job_that_is_suspended_has_time_for_a_checkpoint() {
    let mut world = running(jax(2));
    world.suspend(true);
    world.reconcile();
    assert_eq!(
        (world.phase(), world.scaling_step()),
        (Some(Suspending), Some(ScalingStep::Requested))
    );
    assert_eq!(world.staying(), "worker-0 worker-1");
    let observed = world.see(observe);
    let mut seen = observed.roles.iter().flat_map(|role| &role.pods);
    assert!(seen.all(|pod| !pod.drain.stays()), "{observed:#?}");
    world.report_drain("mnist-worker-0", DrainState::Acknowledged);
    world.reconcile();
    world.tick(100);
    world.reconcile();
    assert_eq!(world.staying(), "worker-0 worker-1", "it has all of its time");
    world.report_drain("mnist-worker-0", DrainState::CheckpointDone);
    world.reconcile();
    world.succeed("mnist-worker-0");
    world.reconcile();
    assert_eq!(
        (world.staying(), world.scaling_step()),
        (String::new(), None),
        "the other said nothing"
    );
    world.kubelets_remove();
    world.reconcile();
    assert_eq!((world.phase(), world.restarts()), (Some(Suspended), (0, 0)));
    world.suspend(false);
    world.reconcile();
    world.run_all();
    world.reconcile();
    assert_eq!(world.phase(), Some(Running));
}

#[rstest]
#[case::nobody_says_anything(10, false)]
#[case::nobody_is_ready_in_time(300, true)]
fn a_job_is_suspended_in_the_end(#[case] seconds: i64, #[case] says_so: bool) {
    let mut world = running(jax(2));
    world.suspend(true);
    world.reconcile();
    if says_so {
        world.report_drain("mnist-worker-0", DrainState::Acknowledged);
        world.reconcile();
    }
    world.tick(seconds - 1);
    world.reconcile();
    assert_eq!(world.staying(), "worker-0 worker-1");
    world.tick(1);
    world.reconcile();
    assert_eq!(world.staying(), "");
}
