//! What is left behind at the end, and when the job goes itself.

use rstest::rstest;
use trainyard_api::CleanPodPolicy::{self, All, None as Keep, Running as StillRunning};
use trainyard_api::JobPhase::{Failed, Running, Succeeded};
use trainyard_api::RestartPolicy::{Never, OnFailure};
use trainyard_api::{PodQuorum, TrainingJob};
use trainyard_core::plan::Plan;

use crate::common::World;
use crate::common::jobs::{Change, workers};

/// One worker decides the end of the job, so that there is something to clean.
fn job(policy: Option<CleanPodPolicy>) -> TrainingJob {
    workers(3, Never)
        .run(|run| run.clean_pod_policy = policy)
        .role("worker", |role| role.succeeded_when = Some(PodQuorum::AnyPod))
}

#[rstest]
#[case::default_is_running(None, &["mnist-worker-0"], 1)]
#[case::running(Some(StillRunning), &["mnist-worker-0"], 1)]
#[case::all(Some(All), &[], 0)]
#[case::none(Some(Keep), &["mnist-worker-0", "mnist-worker-1", "mnist-worker-2"], 1)]
fn at_the_end_the_policy_says_which_pods_stay(
    #[case] policy: Option<CleanPodPolicy>,
    #[case] stay: &[&str],
    #[case] services: usize,
    #[values(true, false)] success: bool,
) {
    let mut world = World::running(job(policy));
    if success {
        world.succeed("mnist-worker-0");
    } else {
        world.fail("mnist-worker-0", 1);
    }
    world.settle();
    assert_eq!(world.phase(), Some(if success { Succeeded } else { Failed }));
    assert_eq!(world.all(), stay.iter().map(|name| (*name).to_owned()).collect());
    assert_eq!(world.services.len(), services);
    assert_eq!(world.log.pods.len(), 3, "nothing is rebuilt");
    assert!(!world.gone);
    if policy != Some(Keep) {
        let role = world.role("worker");
        assert_eq!(
            (role.active, role.ready, role.pending),
            (0, 0, 0),
            "a finished job holds nothing"
        );
        assert_eq!(world.status().ready.as_deref(), Some("0/3"));
    }
}

#[test]
fn a_pod_whose_sidecar_runs_on_is_removed_with_those_that_run() {
    let mut world = World::running(workers(2, Never));
    world.succeed_all();
    world.pod_mut("mnist-worker-1").lingers = true;
    world.settle();
    assert_eq!(world.phase(), Some(Succeeded));
    assert_eq!(world.all(), ["mnist-worker-0".to_owned()].into());
}

#[test]
fn a_pod_that_has_done_its_work_and_is_removed_with_its_sidecar_is_not_run_again() {
    let mut world = World::running(workers(2, OnFailure).backoff_limit(0));
    world.tick(10);
    world.succeed("mnist-worker-0");
    world.pod_mut("mnist-worker-0").lingers = true;
    world.reconcile();
    world.tick(2);
    world.reconcile();
    // From here on it is seen as a pod that was told to go.
    world.run_on("mnist-worker-0", "node-0");
    world.ask_to_go("mnist-worker-0");
    world.reconcile();
    world.fail("mnist-worker-0", 1);
    world.settle();
    assert_eq!((world.phase(), world.restarts()), (Some(Running), (0, 0)));
    assert_eq!(world.log.pods.len(), 2);
}

#[test]
fn the_end_is_written_before_pods_are_removed() {
    let mut world = World::running(job(Some(All)));
    world.fail("mnist-worker-0", 1);
    assert_eq!(world.actions(), []);
    assert_eq!(world.actions_after_status().len(), 4, "three pods and a Service");
    world.crash_after(0);
    assert_eq!(world.phase(), Some(Running));
    world.crash_after(1);
    assert_eq!((world.phase(), world.all().len()), (Some(Failed), 3));
    world.settle();
    assert_eq!(world.all().len(), 0);
}

#[test]
fn a_child_deleted_after_the_end_is_not_rebuilt() {
    let mut world = World::running(job(None));
    world.succeed("mnist-worker-0");
    world.settle();
    world.vanish("mnist-worker-0");
    world.services.clear();
    assert_eq!(world.plan(), Plan::default());
}

#[test]
fn a_pod_that_appears_after_the_end_is_removed() {
    // A creation that was under way when the job ended.
    let mut world = World::running(job(None));
    let late = world.pod("mnist-worker-1").clone();
    world.succeed("mnist-worker-0");
    world.settle();
    world.pods.push(late);
    world.settle();
    assert!(world.holding().is_empty());
}

#[test]
fn the_ttl_removes_a_finished_job_on_time() {
    for success in [true, false] {
        let mut world = World::running(job(None).run(|run| run.ttl_seconds_after_finished = Some(100)));
        if success {
            world.succeed("mnist-worker-0");
        } else {
            world.fail("mnist-worker-0", 1);
        }
        let plan = world.reconcile();
        assert_eq!(plan.wake_at().unwrap().duration_since(world.now).as_secs(), 100);
        world.tick(99);
        world.reconcile();
        assert!(!world.gone);
        world.tick(1);
        world.reconcile();
        assert!(world.gone);
    }
}

#[test]
fn a_ttl_of_0_removes_it_at_once_but_not_before_its_end_is_written() {
    let mut world = World::running(job(None).run(|run| run.ttl_seconds_after_finished = Some(0)));
    world.succeed("mnist-worker-0");
    world.crash_after(usize::MAX);
    assert_eq!((world.phase(), world.gone), (Some(Succeeded), false));
    world.reconcile();
    assert!(world.gone);
}

#[test]
fn a_ttl_given_after_the_end_counts_from_the_end() {
    let mut world = World::running(job(None));
    world.succeed("mnist-worker-0");
    world.settle();
    world.tick(50);
    world.edit(|spec| spec.run_policy.get_or_insert_default().ttl_seconds_after_finished = Some(60));
    let plan = world.reconcile();
    assert!(plan.wake_at().unwrap().duration_since(world.now).as_secs() <= 10);
    assert_eq!(world.status().observed_generation, Some(2));
    world.tick(10);
    world.reconcile();
    assert!(world.gone);
}

#[test]
fn the_ttl_after_failure_removes_pods_and_services_and_keeps_the_job() {
    let mut world = World::running(job(Some(Keep)).run(|run| run.ttl_seconds_after_failed = Some(60)));
    world.fail("mnist-worker-0", 1);
    let plan = world.reconcile();
    assert_eq!(plan.wake_at().unwrap().duration_since(world.now).as_secs(), 60);
    assert_eq!(world.all().len(), 3);
    world.tick(60);
    let plan = world.reconcile();
    assert_eq!(plan.wake_at(), None, "nothing more to come");
    world.kubelets_remove();
    assert_eq!(
        (world.all().len(), world.services.len(), world.gone),
        (0, 0, false)
    );
    assert_eq!(world.phase(), Some(Failed));
}

#[test]
fn the_ttl_after_failure_does_not_concern_a_success() {
    let mut world = World::running(job(Some(Keep)).run(|run| run.ttl_seconds_after_failed = Some(60)));
    world.succeed("mnist-worker-0");
    assert_eq!(world.reconcile().wake_at(), None);
    world.tick(100);
    world.settle();
    assert_eq!(world.all().len(), 3);
}

#[test]
fn the_earlier_of_both_ttls_comes_first() {
    let mut world = World::running(job(Some(Keep)).run(|run| {
        run.ttl_seconds_after_failed = Some(10);
        run.ttl_seconds_after_finished = Some(30);
    }));
    world.fail("mnist-worker-0", 1);
    let after = |world: &mut World| {
        world
            .reconcile()
            .wake_at()
            .map(|at| at.duration_since(world.now).as_secs())
    };
    assert_eq!(after(&mut world), Some(10));
    world.tick(10);
    assert_eq!(after(&mut world), Some(20));
    assert!(world.pods.iter().all(|row| row.terminating));
    world.tick(20);
    world.reconcile();
    assert!(world.gone);
}

#[test]
fn a_finished_job_without_a_time_of_its_end_still_goes() {
    // Somebody edited the status.
    let mut world = World::running(job(None).run(|run| run.ttl_seconds_after_finished = Some(100)));
    world.succeed("mnist-worker-0");
    world.settle_without_waiting();
    world.job.status.as_mut().unwrap().completion_time = None;
    world.reconcile();
    world.tick(101);
    world.reconcile();
    assert!(world.gone);
}

#[test]
fn a_job_that_takes_too_long_fails_on_time() {
    let mut world = World::running(workers(2, OnFailure).run(|run| run.active_deadline_seconds = Some(60)));
    world.tick(59);
    let plan = world.reconcile();
    assert_eq!(world.phase(), Some(Running));
    world.now = plan.wake_at().unwrap();
    world.reconcile();
    assert_eq!(world.condition("Failed"), "True DeadlineExceeded");
    let said = "The job has not ended within 60 seconds (spec.runPolicy.activeDeadlineSeconds).";
    assert_eq!(world.message("Failed"), said);
    world.settle();
    assert!(world.holding().is_empty());
}

#[test]
fn a_deadline_holds_also_for_a_job_that_never_ran() {
    let mut world = World::new(workers(2, Never).run(|run| run.active_deadline_seconds = Some(60)));
    // The first time for the counters of its pods.
    for _ in 0..2 {
        world.now = world.reconcile().wake_at().unwrap();
    }
    world.reconcile();
    assert_eq!(world.condition("Failed"), "True DeadlineExceeded");
}

#[test]
fn a_job_that_is_done_at_its_deadline_is_done() {
    let mut world = World::running(workers(1, Never).run(|run| run.active_deadline_seconds = Some(60)));
    world.tick(60);
    world.succeed_all();
    world.reconcile();
    assert_eq!(world.phase(), Some(Succeeded));
}

#[test]
fn a_deadline_may_be_extended_while_the_job_runs() {
    let mut world = World::running(workers(1, Never).run(|run| run.active_deadline_seconds = Some(60)));
    world.edit(|spec| spec.run_policy.as_mut().unwrap().active_deadline_seconds = Some(120));
    world.tick(100);
    let plan = world.reconcile();
    assert_eq!(world.phase(), Some(Running));
    assert_eq!(plan.wake_at().unwrap().duration_since(world.now).as_secs(), 20);
}

#[test]
fn a_pod_that_failed_while_it_was_being_removed_counts_as_that_and_as_nothing_else() {
    let job = workers(2, OnFailure)
        .backoff_limit(0)
        .run(|run| run.clean_pod_policy = Some(CleanPodPolicy::None));
    let mut world = World::running(job);
    world.fail("mnist-worker-0", 1);
    world.ask_to_go("mnist-worker-0");
    world.reconcile();
    assert_eq!(world.condition("Failed"), "True BackoffLimitExceeded");
    let role = world.role("worker");
    assert_eq!(
        (role.active, role.failed, role.pending, role.terminating),
        (1, 0, 0, 1)
    );
}
