//! When a job is done: rules over roles, and over the pods of a role.

use trainyard_api::JobPhase::{Failed, Running, Succeeded};
use trainyard_api::RestartPolicy::{ExitCode, Never, OnFailure};
use trainyard_api::{CleanPodPolicy, PodQuorum, RolePhase};

use crate::common::World;
use crate::common::jobs::{Change, custom, job, workers};

const ROLES: &[(&str, i32)] = &[("a", 1), ("b", 1), ("c", 1)];

#[test]
fn by_default_all_roles_must_succeed() {
    let mut world = World::running(custom(ROLES));
    world.succeed("mnist-a-0");
    world.succeed("mnist-b-0");
    world.reconcile();
    assert_eq!(world.phase(), Some(Running));
    world.succeed("mnist-c-0");
    world.reconcile();
    assert_eq!(world.phase(), Some(Succeeded));
}

#[test]
fn by_default_any_role_that_fails_fails_the_job() {
    let mut world = World::running(custom(ROLES));
    world.fail("mnist-b-0", 1);
    world.reconcile();
    assert_eq!(world.phase(), Some(Failed));
}

#[test]
fn one_of_several_sets_is_enough_and_all_of_a_set_are_needed() {
    let job = || custom(ROLES).succeeded_when(&[&["a", "b"], &["c"]]);
    let mut world = World::running(job());
    world.succeed("mnist-a-0");
    world.reconcile();
    assert_eq!(world.phase(), Some(Running), "a alone is not a set");
    world.succeed("mnist-b-0");
    world.reconcile();
    assert_eq!(world.phase(), Some(Succeeded));
    assert_eq!(
        world.log.deleted,
        [("mnist-c-0".to_owned(), false)],
        "what still runs is removed"
    );

    let mut world = World::running(job());
    world.succeed("mnist-c-0");
    world.reconcile();
    assert_eq!(world.phase(), Some(Succeeded));
}

#[test]
fn a_role_outside_every_failure_set_may_fail() {
    let mut world = World::running(custom(ROLES).failed_when(&[&["a"]]).succeeded_when(&[&["a"]]));
    world.fail("mnist-b-0", 1);
    world.reconcile();
    assert_eq!(
        (world.phase(), world.role("b").phase),
        (Some(Running), RolePhase::Failed)
    );
    world.succeed("mnist-a-0");
    world.reconcile();
    assert_eq!(world.phase(), Some(Succeeded));
}

#[test]
fn all_roles_of_a_failure_set_must_fail() {
    let mut world = World::running(custom(ROLES).failed_when(&[&["a", "b"]]));
    world.fail("mnist-a-0", 1);
    world.reconcile();
    assert_eq!(world.phase(), Some(Running));
    world.fail("mnist-b-0", 2);
    world.reconcile();
    assert_eq!(world.phase(), Some(Failed));
    assert_eq!(world.status().root_cause.unwrap().pod, "mnist-a-0");
}

#[test]
fn failure_comes_before_success() {
    let mut world = World::running(custom(ROLES).failed_when(&[&["a"]]).succeeded_when(&[&["b"]]));
    world.succeed("mnist-b-0");
    world.fail("mnist-a-0", 1);
    world.reconcile();
    assert_eq!(world.phase(), Some(Failed));
    assert_eq!(world.condition("Succeeded"), "");
}

#[test]
fn when_every_role_has_ended_and_no_rule_holds_the_job_failed() {
    let mut world = World::running(custom(&[("a", 1), ("b", 1)]).failed_when(&[&["a"]]));
    world.succeed("mnist-a-0");
    world.fail("mnist-b-0", 9);
    world.reconcile();
    assert_eq!(world.phase(), Some(Failed));
    assert_eq!(
        world.message("Failed"),
        "b: mnist-b-0 on node-1: exit code 9 (Error)"
    );
}

#[test]
fn a_failed_role_of_a_job_that_goes_on_stays_failed_and_is_not_rebuilt() {
    let mut world = World::running(custom(&[("a", 1), ("b", 2)]).failed_when(&[&["a"]]));
    world.fail("mnist-b-0", 1);
    world.reconcile();
    let said = world.role("b").message;
    assert_eq!(said.as_deref(), Some("mnist-b-0 on node-1: exit code 1 (Error)"));
    world.vanish("mnist-b-0");
    world.tick(10);
    world.reconcile();
    assert_eq!(
        (world.phase(), world.role("b").phase),
        (Some(Running), RolePhase::Failed)
    );
    assert_eq!(world.role("b").message, said, "why it failed is not forgotten");
    assert_eq!(world.role("b").pending, 0, "nothing more will come");
    assert_eq!(world.log.pods.len(), 3);
}

#[test]
fn a_role_makes_no_more_pods_from_the_moment_it_ends() {
    let mut world = World::new(custom(&[("a", 1), ("b", 2)]).failed_when(&[&["a"]]));
    world.reconcile();
    world.fail("mnist-b-0", 1);
    world.vanish("mnist-b-1");
    world.reconcile();
    assert_eq!(world.role("b").phase, RolePhase::Failed);
    assert_eq!(world.log.pods.len(), 3, "b-1 is not made again");
}

#[test]
fn a_role_spends_no_budget_from_the_moment_it_ends() {
    let job = custom(&[("a", 1), ("b", 2)])
        .failed_when(&[&["a"]])
        .backoff_limit(0)
        .role("b", |role| role.restart_policy = Some(ExitCode));
    let mut world = World::running(job);
    world.fail("mnist-b-0", 1);
    world.fail("mnist-b-1", 137);
    world.reconcile();
    assert_eq!(
        (world.phase(), world.role("b").phase),
        (Some(Running), RolePhase::Failed)
    );
    assert_eq!((world.restarts(), world.log.deleted.len()), ((0, 0), 0));
}

#[test]
fn the_reason_of_a_role_whose_pods_went_missing_is_not_forgotten() {
    let mut world = World::running(custom(&[("a", 1), ("b", 1)]).failed_when(&[&["a"]]));
    world.vanish("mnist-b-0");
    for _ in 0..3 {
        world.tick(10);
        world.reconcile();
        assert_eq!(world.role("b").phase, RolePhase::Failed);
        assert_eq!(world.role("b").reason.as_deref(), Some("PodMissing"));
    }
    assert_eq!(world.log.pods.len(), 2);
}

#[test]
fn a_role_that_succeeded_with_any_pod_is_neither_rebuilt_nor_counted() {
    let job = custom(&[("a", 1), ("b", 2)]).backoff_limit(0).role("b", |role| {
        role.succeeded_when = Some(PodQuorum::AnyPod);
        role.restart_policy = Some(OnFailure);
    });
    let mut world = World::running(job);
    world.succeed("mnist-b-0");
    world.reconcile();
    assert_eq!(world.role("b").phase, RolePhase::Succeeded);
    world.fail("mnist-b-1", 1);
    world.reconcile();
    assert_eq!(
        (world.phase(), world.restarts()),
        (Some(Running), (0, 0)),
        "the role is done"
    );
    world.vanish("mnist-b-1");
    world.reconcile();
    assert_eq!(world.log.pods.len(), 3);
    world.succeed("mnist-a-0");
    world.reconcile();
    assert_eq!(world.phase(), Some(Succeeded));
}

#[test]
fn the_end_of_a_role_is_written_at_once() {
    // Its pods may be removed by anybody the next moment, and with them the evidence.
    let mut world = World::running(custom(&[("a", 1), ("b", 1)]));
    world.succeed("mnist-a-0");
    world.reconcile();
    assert_eq!(world.role("a").phase, RolePhase::Succeeded);
    world.vanish("mnist-a-0");
    world.reconcile();
    world.succeed("mnist-b-0");
    world.reconcile();
    assert_eq!((world.phase(), world.log.pods.len()), (Some(Succeeded), 2));
}

#[test]
fn any_pod_that_succeeds_is_enough_with_any_pod() {
    let job = workers(3, Never).role("worker", |role| role.succeeded_when = Some(PodQuorum::AnyPod));
    let mut world = World::running(job);
    world.succeed("mnist-worker-1");
    world.settle();
    assert_eq!(world.phase(), Some(Succeeded));
    assert_eq!(world.all(), ["mnist-worker-1".to_owned()].into());
}

#[test]
fn all_pods_must_fail_with_all_pods() {
    let job = workers(3, Never).role("worker", |role| role.failed_when = Some(PodQuorum::AllPods));
    let mut world = World::running(job);
    world.fail("mnist-worker-0", 1);
    world.fail("mnist-worker-1", 1);
    world.reconcile();
    assert_eq!(world.phase(), Some(Running));
    world.fail("mnist-worker-2", 1);
    world.reconcile();
    assert_eq!(world.phase(), Some(Failed));
}

#[test]
fn some_that_failed_and_some_that_succeeded_reach_no_rule_of_all_pods_and_fail() {
    let job = workers(2, Never).role("worker", |role| role.failed_when = Some(PodQuorum::AllPods));
    let mut world = World::running(job);
    world.fail("mnist-worker-0", 1);
    world.succeed("mnist-worker-1");
    world.reconcile();
    assert_eq!(world.phase(), Some(Failed));
}

#[test]
fn a_final_state_stays_whatever_happens_to_the_pods() {
    let mut world = World::running(workers(2, OnFailure));
    world.succeed_all();
    world.reconcile();
    let status = world.status();
    world.fail("mnist-worker-0", 1);
    world.vanish("mnist-worker-1");
    world.tick(100);
    world.reconcile();
    assert_eq!(world.status(), status);

    let mut world = World::running(workers(2, Never));
    world.fail("mnist-worker-0", 1);
    world.reconcile();
    let status = world.status();
    world.succeed("mnist-worker-0");
    world.settle();
    assert_eq!(world.status(), status);
}

#[test]
fn no_role_of_a_finished_job_is_said_to_start_or_run() {
    let phases =
        |world: &World| ["a", "b"].map(|name| (world.role(name).phase, world.role(name).reason.unwrap()));
    let said = |name: &str, world: &World| world.role(name).message.unwrap();
    let roles = || {
        custom(&[("a", 1), ("b", 2)])
            .role("b", |role| role.restart_policy = Some(OnFailure))
            .backoff_limit(0)
            .run(|run| run.active_deadline_seconds = Some(60))
    };

    let mut world = World::running(roles());
    world.fail("mnist-b-1", 3);
    world.settle();
    assert_eq!(world.condition("Failed"), "True BackoffLimitExceeded");
    let failed = |reason: &str| (RolePhase::Failed, reason.to_owned());
    let stopped = (RolePhase::Stopped, "Finished".to_owned());
    assert_eq!(phases(&world), [stopped.clone(), failed("BackoffLimitExceeded")]);
    assert_eq!(said("b", &world), "mnist-b-1 on node-0: exit code 3 (Error)");
    assert_eq!(said("a", &world), "The job ended before the role did.");

    let mut world = World::new(roles());
    world.reconcile();
    world.run_on("mnist-a-0", "node-0");
    world.trouble("mnist-b-0", "ImagePullBackOff", "no such image");
    world.tick(60);
    world.settle();
    let late = failed("DeadlineExceeded");
    assert_eq!(phases(&world), [late.clone(), late]);
    assert_eq!(said("a", &world), "The deadline came before the role's end.");
    assert_eq!(said("b", &world), "mnist-b-0: no such image");

    let mut world = World::running(roles().succeeded_when(&[&["a"]]));
    world.succeed("mnist-a-0");
    world.settle();
    assert_eq!(world.phase(), Some(Succeeded));
    assert_eq!(
        (world.role("a").phase, world.role("b").phase),
        (RolePhase::Succeeded, RolePhase::Stopped)
    );

    let keep = roles()
        .succeeded_when(&[&["a"]])
        .run(|run| run.clean_pod_policy = Some(CleanPodPolicy::None));
    let mut world = World::running(keep);
    world.succeed("mnist-a-0");
    world.settle();
    assert_eq!(world.role("b").phase, RolePhase::Running, "its pods run on");
}

/// A worker of Dask that loses its scheduler exits with 0.
#[test]
fn workers_of_dask_are_there_until_its_launcher_has_succeeded() {
    let roles = &[("scheduler", 1), ("worker", 2), ("launcher", 1)];
    let mut world = World::new(job("dask", roles));
    world.settle();
    assert_eq!(world.phase(), Some(Running));
    world.succeed("mnist-worker-0");
    world.succeed("mnist-worker-1");
    world.succeed("mnist-scheduler-0");
    world.settle();
    assert_eq!((world.phase(), world.restarts()), (Some(Running), (0, 0)));
    assert_eq!(world.role("worker").active, 2);
    world.succeed("mnist-launcher-0");
    world.reconcile();
    assert_eq!(world.phase(), Some(Succeeded));
}
