//! Jobs that their users, or a queue, hold back.

use rstest::rstest;
use trainyard_api::JobPhase::{Failed, Running, Starting, Succeeded, Suspended, Suspending};
use trainyard_api::RestartPolicy::{Never, OnFailure};
use trainyard_api::{CleanPodPolicy, RolePhase};
use trainyard_core::plan::Plan;

use crate::common::World;
use crate::common::jobs::{Change, role, set_image, workers};
use crate::refused::{EMPTY, Edit, NO_FRAMEWORK};

#[test]
fn a_job_created_suspended_runs_nothing() {
    let mut world = World::new(workers(2, Never).suspended());
    let plan = world.reconcile();
    assert_eq!(world.phase(), Some(Suspended));
    assert_eq!(world.condition("Suspended"), "True Suspended");
    assert_eq!(world.condition("Accepted"), "True Valid");
    assert_eq!(world.status().start_time, None);
    assert_eq!(world.status().ready.as_deref(), Some("0/2"));
    assert_eq!((world.log.pods.len(), world.log.services.len()), (0, 0));
    assert_eq!((world.log.statuses, plan), (1, Plan::default()));
    assert_eq!(world.told(), ["Suspended"]);
}

#[test]
fn resuming_starts_it() {
    let mut world = World::new(workers(2, Never).suspended());
    world.reconcile();
    world.tick(100);
    world.suspend(false);
    world.reconcile();
    assert_eq!(world.phase(), Some(Starting));
    assert_eq!(world.condition("Suspended"), "False Resumed");
    assert_eq!(world.status().start_time.unwrap().0, world.now);
    world.run_all();
    world.reconcile();
    assert_eq!(world.phase(), Some(Running));
    assert_eq!(world.told(), ["Suspended", "Resumed", "AllRolesRunning"]);
}

#[test]
fn suspending_removes_all_pods_whatever_the_policy_and_keeps_the_services() {
    for policy in [CleanPodPolicy::None, CleanPodPolicy::Running, CleanPodPolicy::All] {
        let mut world = World::running(workers(3, OnFailure).run(|run| run.clean_pod_policy = Some(policy)));
        world.succeed("mnist-worker-0");
        world.reconcile();
        world.suspend(true);
        world.settle();
        assert_eq!(world.phase(), Some(Suspended), "{policy:?}");
        assert_eq!(world.condition("Running"), "False Suspended");
        assert!(world.pods.is_empty(), "{policy:?}");
        assert_eq!(world.services.len(), 1);
        assert!(!world.gone);
        assert_eq!(world.restarts(), (0, 0), "nothing was lost");
    }
}

#[test]
fn a_resumed_job_starts_afresh() {
    let mut world = World::running(workers(2, Never));
    world.succeed("mnist-worker-0");
    world.tick(10);
    world.reconcile();
    world.suspend(true);
    world.settle();
    assert_eq!(world.role("worker").phase, RolePhase::Pending);
    world.tick(50);
    world.suspend(false);
    world.settle();
    assert_eq!(
        (world.phase(), world.log.pods.len()),
        (Some(Running), 4),
        "also what had succeeded runs again"
    );
    assert_eq!(world.restarts(), (0, 0));
    world.succeed_all();
    world.reconcile();
    assert_eq!(world.phase(), Some(Succeeded));
}

#[test]
fn what_succeeded_and_went_with_the_suspension_runs_again() {
    // The last pods go and the user resumes the job before the operator has looked.
    let mut world = World::running(workers(2, Never));
    world.succeed("mnist-worker-0");
    world.suspend(true);
    world.reconcile();
    world.kubelets_remove();
    world.suspend(false);
    assert_eq!(world.departed.len(), 1);
    world.settle();
    assert_eq!((world.phase(), world.log.pods.len()), (Some(Running), 4));
}

#[test]
fn a_job_resumed_before_its_pods_are_gone_waits_for_that() {
    // What the pods of the former run still do must not count for the new one.
    type Happening = fn(&mut World);
    let happenings: [(&str, Happening); 4] = [
        ("still run", |_| ()),
        ("are killed", |world| world.fail("mnist-worker-0", 143)),
        ("fail on SIGTERM", |world| world.fail("mnist-worker-0", 1)),
        ("end well", World::succeed_all),
    ];
    for (what, happening) in happenings {
        for policy in [Never, OnFailure] {
            let mut world = World::running(workers(2, policy));
            world.suspend(true);
            world.reconcile();
            world.tick(1);
            world.suspend(false);
            world.reconcile();
            happening(&mut world);
            world.reconcile();
            assert_eq!(world.phase(), Some(Suspending), "{what}");
            world.tick(30);
            world.settle();
            assert_eq!(
                (world.phase(), world.restarts()),
                (Some(Running), (0, 0)),
                "pods {what}, {policy:?}"
            );
            assert_eq!(world.log.pods.len(), 4);
            let started = world.status().start_time.unwrap().0;
            assert!(
                world.now.duration_since(started).as_secs() < 30,
                "the clock starts with the pods"
            );
        }
    }
}

#[test]
fn pods_that_a_dead_operator_left_are_removed_before_the_job_starts_again() {
    let mut world = World::running(workers(2, Never));
    world.suspend(true);
    world.crash_after(1);
    assert_eq!(
        (world.phase(), world.log.deleted.len()),
        (Some(Suspending), 0),
        "died after the status"
    );
    world.edit(|spec| set_image(spec, "worker", "example/train:2"));
    world.suspend(false);
    world.settle();
    assert_eq!(world.phase(), Some(Running));
    assert_eq!(world.image("mnist-worker-0"), "example/train:2");
}

#[test]
fn changes_made_while_suspended_reach_the_pods() {
    let mut world = World::running(workers(2, Never));
    assert_eq!(world.image("mnist-worker-1"), "example/train:1");
    world.suspend(true);
    world.settle();
    world.edit(|spec| set_image(spec, "worker", "example/train:2"));
    world.settle();
    assert_eq!(world.condition("Accepted"), "True Valid");
    world.suspend(false);
    world.settle();
    assert_eq!(world.phase(), Some(Running));
    assert_eq!(world.image("mnist-worker-1"), "example/train:2");
}

#[test]
fn suspending_and_changing_at_once_is_possible_and_so_is_resuming_and_changing() {
    let mut world = World::running(workers(2, Never));
    world.edit(|spec| {
        spec.suspend = Some(true);
        set_image(spec, "worker", "example/train:2");
    });
    world.settle();
    assert_eq!(
        (world.phase(), world.condition("Accepted")),
        (Some(Suspended), "True Valid".to_owned())
    );
    world.edit(|spec| {
        spec.suspend = Some(false);
        set_image(spec, "worker", "example/train:3");
    });
    world.settle();
    assert_eq!(world.phase(), Some(Running));
    assert_eq!(world.image("mnist-worker-1"), "example/train:3");
}

#[test]
fn a_role_made_smaller_while_suspended_has_fewer_pods_after() {
    let mut world = World::running(workers(4, Never));
    world.suspend(true);
    world.settle();
    world.edit(|spec| role(spec, "worker").replicas = Some(2));
    world.suspend(false);
    world.settle();
    assert_eq!(world.phase(), Some(Running));
    assert_eq!(
        world.all(),
        ["mnist-worker-0".to_owned(), "mnist-worker-1".to_owned()].into()
    );
    assert_eq!(world.status().ready.as_deref(), Some("2/2"));
}

#[test]
fn pods_beyond_the_size_of_their_role_are_removed() {
    let mut world = World::running(workers(2, Never));
    let mut extra = world.pod("mnist-worker-1").clone();
    extra.name = "mnist-worker-2".into();
    extra.uid = "uid-extra".into();
    world.pods.push(extra);
    world.settle();
    assert_eq!((world.phase(), world.pods.len()), (Some(Running), 2));
    assert_eq!(world.log.deleted, [("mnist-worker-2".to_owned(), false)]);
}

#[test]
fn the_deadline_does_not_run_while_suspended_and_starts_anew_on_resumption() {
    let mut world = World::new(
        workers(1, Never)
            .suspended()
            .run(|run| run.active_deadline_seconds = Some(100)),
    );
    assert_eq!(world.reconcile().wake_at(), None);
    world.tick(1000);
    world.suspend(false);
    world.settle_without_waiting();
    assert_eq!(world.phase(), Some(Running), "1000 s of waiting did not count");
    world.tick(90);
    world.suspend(true);
    world.settle_without_waiting();
    assert_eq!(world.reconcile().wake_at(), None);
    world.tick(1000);
    world.suspend(false);
    let resumed = world.now;
    world.settle_without_waiting();
    assert_eq!(
        world
            .reconcile()
            .wake_at()
            .unwrap()
            .duration_since(resumed)
            .as_secs(),
        100
    );
    world.tick(99);
    world.reconcile();
    assert_eq!(world.phase(), Some(Running));
    world.tick(1);
    world.reconcile();
    assert_eq!(
        (world.phase(), world.condition("Failed")),
        (Some(Failed), "True DeadlineExceeded".to_owned())
    );
}

#[test]
fn a_finished_job_can_not_be_suspended() {
    let mut world = World::running(workers(1, Never));
    world.succeed_all();
    world.reconcile();
    world.suspend(true);
    world.settle();
    assert_eq!(world.phase(), Some(Succeeded));
    assert_eq!(world.pods.len(), 1);
}

#[test]
fn the_budget_that_was_spent_stays_spent() {
    let mut world = World::running(workers(1, OnFailure).backoff_limit(1));
    world.fail("mnist-worker-0", 1);
    world.settle();
    world.suspend(true);
    world.settle();
    world.suspend(false);
    world.settle();
    assert_eq!(world.restarts(), (1, 0));
    world.fail("mnist-worker-0", 1);
    world.reconcile();
    assert_eq!(world.condition("Failed"), "True BackoffLimitExceeded");
}

#[test]
fn suspending_while_a_replacement_is_awaited_forgets_it() {
    let mut world = World::running(workers(1, OnFailure));
    world.fail("mnist-worker-0", 1);
    world.reconcile();
    world.suspend(true);
    world.settle();
    assert!(world.status().restarts.unwrap().replacing.is_empty());
    assert!(world.pods.is_empty());
    assert_eq!(world.log.pods.len(), 1);
}

#[rstest]
fn a_job_whose_spec_is_not_valid_is_suspended_all_the_same(
    #[values(EMPTY, NO_FRAMEWORK)] edit: Edit,
    #[values(false, true)] at_once: bool,
    #[values(false, true)] dies: bool,
) {
    let mut world = World::running(workers(2, OnFailure));
    world.edit(edit);
    if !at_once {
        world.settle();
    }
    world.suspend(true);
    if dies {
        world.crash_after(1);
        assert_eq!(world.pods.len(), 2, "died after the status");
    }
    world.settle();
    assert_eq!((world.phase(), world.pods.len()), (Some(Suspended), 0));
    assert_eq!(world.restarts(), (0, 0), "nothing was lost");
    assert_eq!(world.condition("Suspended"), "True Suspended");
    assert_eq!(world.condition("Accepted"), "False Invalid", "it is still wrong");
    assert_eq!(world.status().ready.as_deref(), Some("0/2"));
    assert_eq!(world.told().contains(&"Suspended".to_owned()), !dies);

    // Resumed without having been mended, it waits.
    world.suspend(false);
    world.settle();
    assert_eq!((world.phase(), world.log.pods.len()), (Some(Suspended), 2));
    let said = "The job starts again when its spec is accepted.";
    assert_eq!(world.message("Suspended"), said);
    world.edit(|spec| *spec = workers(2, OnFailure).spec);
    world.settle();
    assert_eq!((world.phase(), world.log.pods.len()), (Some(Running), 4));
    assert_eq!(world.condition("Accepted"), "True Valid");
}

#[test]
fn a_job_that_never_was_accepted_is_suspended_too() {
    let mut world = World::new(workers(2, Never).suspended().spec(EMPTY));
    let plan = world.reconcile();
    assert_eq!((world.phase(), plan.wake_at()), (Some(Suspended), None));
    assert_eq!(world.condition("Accepted"), "False Invalid");
    assert_eq!(world.told(), ["Suspended", "Invalid"]);

    // An operator died between making the pods and writing the first status.
    let mut world = World::new(workers(2, Never));
    world.crash_after(1);
    world.crash_after(2);
    world.edit(EMPTY);
    world.suspend(true);
    world.settle();
    assert_eq!((world.phase(), world.pods.len()), (Some(Suspended), 0));
}

#[test]
fn pods_of_the_last_run_go_though_the_job_was_resumed_with_a_spec_that_is_not_valid() {
    let mut world = World::running(workers(2, Never));
    world.suspend(true);
    world.crash_after(1);
    world.edit(EMPTY);
    world.suspend(false);
    world.settle();
    assert_eq!((world.phase(), world.pods.len()), (Some(Suspended), 0));
    assert_eq!(world.condition("Accepted"), "False Invalid");
}

#[test]
fn a_job_is_suspended_when_its_pods_are_gone() {
    let mut world = World::running(workers(3, Never));
    world.suspend(true);
    world.reconcile();
    world.tick(10);
    world.reconcile();
    let pods = |world: &World| {
        let role = world.role("worker");
        (role.active, role.ready, role.pending, role.terminating)
    };
    assert_eq!((world.phase(), pods(&world)), (Some(Suspending), (0, 0, 0, 3)));
    assert_eq!(world.condition("Suspended"), "False Suspending");
    assert_eq!(world.condition("Running"), "False Suspended");
    world.kubelets_remove();
    world.reconcile();
    assert_eq!((world.phase(), pods(&world)), (Some(Suspended), (0, 0, 0, 0)));
    assert_eq!(world.condition("Suspended"), "True Suspended");
    assert_eq!(world.status().ready.as_deref(), Some("0/3"));
    assert_eq!(
        world
            .told()
            .iter()
            .filter(|reason| *reason == "Suspended")
            .count(),
        1
    );
}

#[test]
fn pods_that_are_still_to_be_told_count_as_what_they_are() {
    let mut world = World::running(workers(2, Never));
    world.suspend(true);
    world.crash_after(1);
    let role = world.role("worker");
    assert_eq!((world.phase(), role.active, role.ready), (Some(Suspending), 2, 2));
    assert_eq!(world.condition("Suspended"), "False Suspending");
}
