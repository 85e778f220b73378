//! Pods whose programs fail, under every restart policy and budget.

use rstest::rstest;
use trainyard_api::JobPhase::{Failed, Restarting, Running, Succeeded};
use trainyard_api::RestartPolicy::{Always, ExitCode, Never, OnFailure};
use trainyard_api::{RestartCause, RestartPolicy, RolePhase};

use crate::common::World;
use crate::common::jobs::{Change, custom, workers};

#[rstest]
#[case::never(Never, 1, false)]
#[case::never_with_a_signal(Never, 137, false)]
#[case::on_failure(OnFailure, 1, true)]
#[case::on_failure_with_a_signal(OnFailure, 143, true)]
#[case::always(Always, 1, true)]
#[case::exit_code_permanent(ExitCode, 1, false)]
#[case::exit_code_last_permanent(ExitCode, 127, false)]
#[case::exit_code_first_retryable(ExitCode, 128, true)]
#[case::exit_code_killed(ExitCode, 137, true)]
#[case::exit_code_last_retryable(ExitCode, 255, true)]
fn a_failed_pod_is_replaced_or_fails_the_job(
    #[case] policy: RestartPolicy,
    #[case] code: i32,
    #[case] replaced: bool,
) {
    let mut world = World::running(workers(2, policy));
    let before = world.pod("mnist-worker-1").uid.clone();
    world.fail("mnist-worker-1", code);
    world.reconcile();
    if replaced {
        assert_eq!(world.phase(), Some(Restarting));
        assert_eq!(world.condition("Running"), "False Restarting");
        world.settle();
        assert_eq!(world.phase(), Some(Running));
        assert_eq!(world.restarts(), (1, 0));
        assert_ne!(world.pod("mnist-worker-1").uid, before);
        assert_eq!(world.log.pods.len(), 3);
        assert_eq!(
            world.told(),
            ["AllRolesRunning", "PodReplaced", "AllRolesRunning"]
        );
    } else {
        assert_eq!(world.phase(), Some(Failed));
        assert_eq!(world.condition("Failed"), "True RolesFailed");
        assert_eq!(world.restarts(), (0, 0));
        assert_eq!(world.role("worker").reason.as_deref(), Some("PodFailed"));
        assert_eq!(world.pod("mnist-worker-1").uid, before, "it is kept for its log");
    }
}

#[test]
fn the_root_cause_says_what_happened() {
    let mut world = World::running(workers(3, Never));
    world.tick(1);
    world.fail("mnist-worker-2", 3);
    world.tick(1);
    world.fail("mnist-worker-0", 1);
    world.reconcile();
    let cause = world.status().root_cause.unwrap();
    assert_eq!(
        (&*cause.role, &*cause.pod),
        ("worker", "mnist-worker-2"),
        "the first that failed"
    );
    assert_eq!(cause.node.as_deref(), Some("node-0"));
    assert_eq!(cause.container.as_deref(), Some("main"));
    assert_eq!(cause.exit_code, Some(3));
    assert_eq!(cause.message.as_deref(), Some("the last line of the log"));
    let said = "worker: mnist-worker-2 on node-0: exit code 3 (Error) (and 1 more pod)";
    assert_eq!(world.message("Failed"), said);
}

#[test]
fn of_several_failures_in_one_second_the_one_told_first_is_the_cause() {
    let mut world = World::running(workers(4, Never));
    world.fail("mnist-worker-3", 3);
    world.fail("mnist-worker-0", 1);
    world.fail("mnist-worker-1", 1);
    world.reconcile();
    let cause = world.status().root_cause.unwrap();
    assert_eq!((cause.pod.as_str(), cause.exit_code), ("mnist-worker-3", Some(3)));
}

#[test]
fn with_a_budget_of_0_the_first_failure_fails_the_job() {
    let mut world = World::running(workers(2, OnFailure).backoff_limit(0));
    world.fail("mnist-worker-0", 1);
    world.reconcile();
    assert_eq!(world.condition("Failed"), "True BackoffLimitExceeded");
    assert_eq!(world.restarts(), (0, 0));
    let said = "mnist-worker-0 on node-0: exit code 1 (Error); 0 failures were forgiven before, \
                and spec.runPolicy.backoffLimit is 0.";
    assert_eq!(world.message("Failed"), said);
    assert_eq!(world.status().root_cause.unwrap().pod, "mnist-worker-0");
    assert_eq!(
        world.role("worker").failed,
        1,
        "the pod that failed is counted as such"
    );
}

#[test]
fn with_a_budget_of_3_the_fourth_failure_fails_the_job() {
    for policy in [OnFailure, Always, ExitCode] {
        let mut world = World::running(workers(2, policy).backoff_limit(3));
        for n in 1..=3 {
            world.fail("mnist-worker-0", 130);
            world.settle();
            assert_eq!(
                (world.phase(), world.restarts()),
                (Some(Running), (n, 0)),
                "{policy:?}"
            );
        }
        world.fail("mnist-worker-1", 130);
        world.reconcile();
        assert_eq!(world.condition("Failed"), "True BackoffLimitExceeded");
        assert_eq!(world.restarts(), (3, 0), "what was not replaced is not counted");
        assert_eq!(world.log.pods.len(), 2 + 3);
    }
}

#[test]
fn failures_at_the_same_moment_spend_the_budget_together() {
    let mut world = World::running(workers(4, OnFailure).backoff_limit(2));
    for name in ["mnist-worker-0", "mnist-worker-1", "mnist-worker-2"] {
        world.fail(name, 1);
    }
    world.reconcile();
    assert_eq!(world.condition("Failed"), "True BackoffLimitExceeded");
    assert_eq!(world.log.pods.len(), 4, "none was replaced in vain");
}

#[test]
fn the_budget_is_of_the_job_and_not_of_a_role_or_pod() {
    let job = custom(&[("a", 1), ("b", 1)])
        .role("a", |role| role.restart_policy = Some(OnFailure))
        .role("b", |role| role.restart_policy = Some(OnFailure))
        .backoff_limit(1);
    let mut world = World::running(job);
    world.fail("mnist-a-0", 1);
    world.settle();
    assert_eq!(world.restarts(), (1, 0));
    world.fail("mnist-b-0", 1);
    world.reconcile();
    assert_eq!(world.condition("Failed"), "True BackoffLimitExceeded");
}

#[test]
fn a_raised_budget_saves_the_next_pod() {
    let mut world = World::running(workers(1, OnFailure).backoff_limit(0));
    world.edit(|spec| spec.run_policy.as_mut().unwrap().backoff_limit = Some(1));
    world.fail("mnist-worker-0", 1);
    world.settle();
    assert_eq!((world.phase(), world.restarts()), (Some(Running), (1, 0)));
}

#[test]
fn the_first_replacement_comes_at_once_and_later_ones_wait_twice_as_long_each() {
    let mut world = World::running(workers(1, OnFailure));
    let mut waits = Vec::new();
    for _ in 0..5 {
        world.fail("mnist-worker-0", 1);
        let failed_at = world.now;
        let made = world.log.pods.len();
        for _ in 0..5 {
            let plan = world.reconcile();
            world.kubelets_remove();
            if let Some(at) = World::due(&plan).filter(|_| !world.pods.is_empty()) {
                world.now = at;
            }
        }
        assert_eq!(world.log.pods.len(), made + 1);
        waits.push(world.now.duration_since(failed_at).as_secs());
        world.run_all();
        world.reconcile();
    }
    assert_eq!(waits, [0, 10, 20, 40, 80]);
}

#[test]
fn a_pod_that_never_ran_and_is_replaced_makes_the_job_restart_and_say_why() {
    let mut world = World::new(workers(2, OnFailure));
    world.reconcile();
    world.run_on("mnist-worker-1", "node-1");
    for _ in 0..2 {
        world.fail("mnist-worker-0", 128);
        world.reconcile();
        assert_eq!(
            (world.phase(), world.condition("Running")),
            (Some(Restarting), "False Restarting".to_owned())
        );
        if world.restarts() == (1, 0) {
            world.kubelets_remove();
            world.reconcile();
        }
    }
    let role = world.role("worker");
    assert_eq!(
        (role.phase, role.reason.as_deref()),
        (RolePhase::Starting, Some("Restarting"))
    );
    let said = "mnist-worker-0 on node-0: exit code 128 (Error): to be replaced at 2026-01-01T00:00:10Z";
    assert_eq!(role.message.as_deref(), Some(said));
    assert_eq!(world.log.statuses, 2, "one for each end");
    world.settle();
    assert_eq!(
        (world.phase(), world.role("worker").message),
        (Some(Running), None)
    );
}

#[test]
fn a_pod_that_waits_for_its_turn_keeps_its_log_until_then() {
    let mut world = World::running(workers(1, OnFailure));
    world.fail("mnist-worker-0", 1);
    world.settle();
    world.fail("mnist-worker-0", 2);
    let plan = world.reconcile();
    assert_eq!(plan.wake_at().unwrap().duration_since(world.now).as_secs(), 10);
    assert!(!world.pod("mnist-worker-0").terminating);
    assert_eq!(world.restarts(), (2, 0), "but it is counted at once");
}

#[test]
fn the_user_is_told_when_a_replacement_comes() {
    let mut world = World::running(workers(2, OnFailure));
    let told = |world: &World| world.log.events.last().unwrap().message.clone();
    world.fail("mnist-worker-0", 1);
    world.settle();
    let said = |world: &World| world.log.events[1].message.clone();
    assert_eq!(
        said(&world),
        "mnist-worker-0 on node-0: exit code 1 (Error): replaced. Failures so far: 1 of 6 allowed; disruptions: 0."
    );
    world.fail("mnist-worker-0", 1);
    world.reconcile();
    assert_eq!(
        told(&world),
        "mnist-worker-0 on node-0: exit code 1 (Error): to be replaced at 2026-01-01T00:00:20Z. Failures so far: 2 of 6 \
         allowed; disruptions: 0."
    );
}

#[test]
fn a_container_that_is_not_the_main_one_is_named() {
    let mut world = World::running(workers(1, Never));
    world.fail("mnist-worker-0", 5);
    let end = world.pod_mut("mnist-worker-0").end.as_mut().unwrap();
    end.container = Some("fetch".to_owned());
    world.reconcile();
    assert_eq!(
        world.message("Failed"),
        "worker: mnist-worker-0 on node-0: container fetch: exit code 5 (Error)"
    );
}

#[test]
fn one_pod_is_one_pod() {
    let mut world = World::running(workers(1, OnFailure).backoff_limit(1));
    assert_eq!(world.log.events[0].message, "All roles run (1 pod).");
    for _ in 0..2 {
        world.fail("mnist-worker-0", 1);
        world.settle();
    }
    assert_eq!(
        world.message("Failed"),
        "mnist-worker-0 on node-0: exit code 1 (Error); 1 failure was forgiven before, and spec.runPolicy.backoffLimit is 1."
    );
}

#[test]
fn the_history_says_what_was_replaced_and_is_bounded() {
    let mut world = World::running(workers(1, OnFailure).backoff_limit(100));
    for code in 1..=25 {
        world.fail("mnist-worker-0", code);
        world.settle();
    }
    let restarts = world.status().restarts.unwrap();
    assert_eq!((restarts.failures, restarts.history.len()), (25, 20));
    let last = restarts.history.last().unwrap();
    assert_eq!(
        (&*last.pod, last.cause, last.exit_code),
        ("mnist-worker-0", RestartCause::Failure, Some(25))
    );
    assert_eq!(last.reason, "Error");
    assert!(restarts.replacing.is_empty(), "nothing is awaited any more");
}

#[test]
fn hundreds_of_failures_at_once_are_all_replaced_and_each_counted_once() {
    let mut world = World::running(workers(600, OnFailure).backoff_limit(600));
    for name in world.names(|_| true) {
        world.fail(&name, 1);
    }
    world.settle();
    assert_eq!((world.phase(), world.restarts()), (Some(Running), (600, 0)));
    assert_eq!(world.log.pods.len(), 1200);
}

#[test]
fn always_runs_a_pod_again_that_ended_well_and_spends_nothing() {
    let mut world = World::running(workers(1, Always).backoff_limit(0));
    world.succeed("mnist-worker-0");
    world.settle();
    assert_eq!((world.phase(), world.restarts()), (Some(Running), (0, 0)));
    assert_eq!(world.log.pods.len(), 2);
    assert_eq!(
        world.role("worker").phase,
        RolePhase::Running,
        "it never succeeds"
    );
}

#[test]
fn an_end_that_was_expected_is_the_cause_of_nothing() {
    let mut world = World::running(workers(2, Always));
    world.succeed("mnist-worker-0");
    world.reconcile();
    let status = world.status();
    let record = status.restarts.unwrap().history.pop().unwrap();
    assert_eq!(
        (record.cause, &*record.reason, record.exit_code),
        (RestartCause::Completion, "Completed", Some(0))
    );
    assert_eq!(status.root_cause, None);
    let told = world.log.events.last().unwrap();
    assert_eq!((told.reason.as_str(), told.warning), ("PodReplaced", false));
    assert!(
        told.message.starts_with("mnist-worker-0 on node-0 ended well: "),
        "{}",
        told.message
    );
    world.settle();

    // Where another fails at the same moment, that is what there is to tell.
    world.succeed("mnist-worker-0");
    world.fail("mnist-worker-1", 3);
    world.reconcile();
    assert_eq!(world.status().root_cause.unwrap().pod, "mnist-worker-1");
    let told = world.log.events.last().unwrap();
    assert!(
        told.warning
            && told
                .message
                .starts_with("mnist-worker-1 on node-1: exit code 3 (Error): "),
        "{}",
        told.message
    );
}

#[test]
fn a_job_may_still_succeed_after_failures_it_survived() {
    let mut world = World::running(workers(2, OnFailure));
    world.fail("mnist-worker-0", 1);
    world.settle();
    world.succeed_all();
    world.reconcile();
    assert_eq!(world.phase(), Some(Succeeded));
    assert_eq!(world.restarts(), (1, 0));
}

#[test]
fn siblings_of_a_replaced_pod_run_on() {
    let mut world = World::running(
        custom(&[("ps", 1), ("worker", 2)]).role("worker", |role| role.restart_policy = Some(OnFailure)),
    );
    let uids = |world: &World| ["mnist-ps-0", "mnist-worker-0"].map(|name| world.pod(name).uid.clone());
    let before = uids(&world);
    world.fail("mnist-worker-1", 1);
    world.settle();
    assert_eq!(uids(&world), before);
    assert_eq!(world.log.deleted, [("mnist-worker-1".to_owned(), false)]);
}
