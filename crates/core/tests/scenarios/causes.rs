//! What a failure leaves behind in status.

use jiff::SignedDuration;
use rstest::rstest;
use trainyard_api::JobPhase::{Failed, Running};
use trainyard_api::RestartPolicy::{Always, Never, OnFailure};
use trainyard_api::{CleanPodPolicy, JobPhase, RestartPolicy};

use crate::common::World;
use crate::common::jobs::{Change, mpi, with_agent, workers};

#[test]
fn a_pod_whose_own_deadline_came_failed_and_has_no_exit_code() {
    let mut world = World::running(workers(1, OnFailure).backoff_limit(0));
    world.fail("mnist-worker-0", 1);
    let end = world.pod_mut("mnist-worker-0").end.as_mut().unwrap();
    end.exit_code = None;
    end.container = None;
    end.reason = Some("DeadlineExceeded".to_owned());
    world.settle();
    assert_eq!(world.phase(), Some(Failed));
    let cause = world.status().root_cause.unwrap();
    assert_eq!(
        (cause.exit_code, cause.reason.as_deref()),
        (None, Some("DeadlineExceeded"))
    );
    let message = world.message("Failed");
    assert!(
        message.starts_with("mnist-worker-0 on node-0 failed (DeadlineExceeded); "),
        "{message}"
    );
}

#[test]
fn the_latest_failure_that_was_survived_is_kept_to_the_end() {
    let job = workers(1, OnFailure).run(|run| run.active_deadline_seconds = Some(60));
    for succeeds in [false, true] {
        let mut world = World::running(job.clone());
        world.fail("mnist-worker-0", 3);
        world.settle_without_waiting();
        if succeeds {
            world.succeed_all();
        } else {
            world.tick(120);
        }
        world.settle();
        assert!(world.phase().is_some_and(JobPhase::is_terminal));
        assert_eq!(world.status().root_cause.unwrap().exit_code, Some(3));
    }
}

const LAUNCHER: &str = "mnist-launcher-0";
const WORKER: &str = "mnist-worker-1";

/// The end of a pod: when it is told, and when it was, in seconds.
type PodEnd = (&'static str, i64, i64);

/// A launcher fails because a worker did, and each of their nodes takes its time to tell.
#[rstest]
#[case::the_worker_is_told_first(Never, Never, 0, &[(WORKER, 0, 0), (LAUNCHER, 1, 1)], WORKER)]
#[case::the_launcher_is_told_first(Never, Never, 0, &[(LAUNCHER, 1, 1), (WORKER, 2, 0)], WORKER)]
#[case::in_one_second(Never, Never, 0, &[(LAUNCHER, 0, 0), (WORKER, 2, 0)], WORKER)]
#[case::the_worker_is_told_too_late(Never, Never, 0, &[(LAUNCHER, 0, 0), (WORKER, 4, 0)], LAUNCHER)]
#[case::the_launcher_was_first(Never, Never, 0, &[(LAUNCHER, 0, 0), (WORKER, 2, 1)], LAUNCHER)]
#[case::the_launcher_alone(Never, Never, 0, &[(LAUNCHER, 0, 0)], LAUNCHER)]
#[case::the_launcher_is_told_late(Never, Never, 0, &[(LAUNCHER, 9, 0)], LAUNCHER)]
#[case::the_worker_is_replaced(Never, Always, 9, &[(WORKER, 0, 0), (LAUNCHER, 4, 4)], WORKER)]
#[case::the_worker_would_be_replaced(Never, Always, 9, &[(LAUNCHER, 0, 0), (WORKER, 1, 0)], WORKER)]
#[case::another_time(Never, Always, 9, &[(WORKER, 0, 0), (LAUNCHER, 30, 30)], LAUNCHER)]
#[case::no_budget(OnFailure, Always, 0, &[(LAUNCHER, 0, 0), (WORKER, 1, 0)], WORKER)]
fn what_made_the_launcher_fail_is_the_cause(
    #[case] launcher: RestartPolicy,
    #[case] worker: RestartPolicy,
    #[case] budget: i32,
    #[case] ends: &[PodEnd],
    #[case] expected: &str,
    // A launcher that does not wait for its workers needs them all the same.
    #[values(false, true)] waits_for_nobody: bool,
) {
    let job = mpi("", 2)
        .role("launcher", |role| {
            role.restart_policy = Some(launcher);
            role.depends_on = waits_for_nobody.then(Vec::new);
        })
        .role("worker", |role| role.restart_policy = Some(worker))
        .run(|run| run.clean_pod_policy = Some(CleanPodPolicy::None))
        .backoff_limit(budget)
        .one_by_one();
    let mut world = World::new(job);
    world.settings = with_agent();
    world.settle();
    assert_eq!(world.phase(), Some(Running));
    let start = world.now;
    let after = |seconds| start.checked_add(SignedDuration::from_secs(seconds)).unwrap();
    for (pod, told, ended) in ends {
        world.now = after(*told);
        // What was waited for up to now.
        world.settle_without_waiting();
        world.fail(pod, 1);
        world.pod_mut(pod).end.as_mut().unwrap().finished_at = Some(after(*ended));
        world.settle_without_waiting();
    }
    world.settle();
    assert_eq!(world.phase(), Some(Failed));
    assert_eq!(world.status().root_cause.unwrap().pod, expected);
}

#[test]
fn a_launcher_whose_workers_seem_to_run_is_waited_for_once_and_without_a_write() {
    let mut world = World::new(mpi("", 2).role("launcher", |role| role.restart_policy = Some(Never)));
    world.settings = with_agent();
    world.settle();
    world.fail(LAUNCHER, 1);
    let writes = world.writes();
    let plan = world.reconcile();
    let left = plan.wake_at().unwrap().duration_since(world.now);
    assert_eq!((world.writes(), left), (writes, SignedDuration::from_secs(3)));
    world.tick(3);
    world.reconcile();
    assert_eq!(world.phase(), Some(Failed));
}

/// Else nobody would know that it had failed, and it would be replaced as one that was lost.
#[test]
fn a_launcher_that_is_deleted_while_its_end_is_held_has_failed() {
    for policy in [Never, OnFailure] {
        let job = mpi("", 2).role("launcher", |role| role.restart_policy = Some(policy));
        let mut world = World::new(job.backoff_limit(0));
        world.settings = with_agent();
        world.settle();
        world.fail(LAUNCHER, 1);
        let plan = world.reconcile();
        assert!(
            plan.wake_at().is_some() && world.phase() == Some(Running),
            "it is held"
        );
        world.vanish(LAUNCHER);
        world.reconcile();
        assert_eq!(world.phase(), Some(Failed), "{policy:?}");
        let cause = world.status().root_cause.unwrap();
        assert_eq!((&*cause.pod, cause.exit_code), (LAUNCHER, Some(1)));
    }
}

/// A time that has come is no time to wake at: the operator would look ten times a second.
#[test]
fn a_deadline_that_comes_while_an_end_is_held_is_not_waited_for() {
    let job = mpi("", 2)
        .role("launcher", |role| role.restart_policy = Some(Never))
        .run(|run| run.active_deadline_seconds = Some(60));
    let mut world = World::new(job);
    world.settings = with_agent();
    world.settle_without_waiting();
    world.tick(58);
    world.fail(LAUNCHER, 1);
    world.reconcile();
    world.tick(2);
    let plan = world.reconcile();
    let left = plan.wake_at().unwrap().duration_since(world.now);
    assert_eq!(left, SignedDuration::from_secs(1));
    world.tick(1);
    world.reconcile();
    assert_eq!(world.condition("Failed"), "True RolesFailed");
}

/// When it is gone, nothing tells that it had failed.
#[test]
fn the_end_of_a_pod_that_is_on_its_way_out_is_not_held() {
    let mut world = World::new(mpi("", 2).backoff_limit(0));
    world.settings = with_agent();
    world.settle();
    world.fail(LAUNCHER, 1);
    world.ask_to_go(LAUNCHER);
    world.reconcile();
    world.kubelets_remove();
    world.settle();
    assert_eq!(world.condition("Failed"), "True BackoffLimitExceeded");
}

/// A node whose clock is ahead would have the job wait for it.
#[test]
fn an_end_in_the_future_is_not_waited_for() {
    let mut world = World::new(mpi("", 2).role("launcher", |role| role.restart_policy = Some(Never)));
    world.settings = with_agent();
    world.settle();
    let now = world.now;
    world.fail(LAUNCHER, 1);
    let end = world.pod_mut(LAUNCHER).end.as_mut().unwrap();
    end.finished_at = Some(now.checked_add(SignedDuration::from_mins(5)).unwrap());
    world.reconcile();
    assert_eq!(world.phase(), Some(Failed));
}

#[test]
fn a_worker_that_was_taken_away_is_why_the_launcher_failed() {
    let mut world = World::new(mpi("", 2).role("launcher", |role| role.restart_policy = Some(Never)));
    world.settings = with_agent();
    world.settle();
    world.evict(WORKER);
    world.fail(LAUNCHER, 1);
    world.settle();
    assert_eq!(world.phase(), Some(Failed));
    assert_eq!(world.status().root_cause.unwrap().pod, WORKER);
}
