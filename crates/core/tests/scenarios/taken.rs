//! Names that a job needs and somebody else has.

use rstest::rstest;
use trainyard_api::JobPhase::{Failed, Pending, Restarting, Running, Succeeded, Suspended};
use trainyard_api::RestartPolicy::{self, Never, OnFailure};
use trainyard_core::view::Conflict;

use crate::common::World;
use crate::common::jobs::{Change, workers};

fn conflict() -> Conflict {
    Conflict {
        kind: "Service",
        name: "mnist".to_owned(),
        owner: "Deployment web".to_owned(),
    }
}

#[test]
fn a_name_that_is_taken_is_reported_and_nothing_is_touched_until_it_is_free() {
    let mut world = World::new(workers(2, Never));
    world.conflicts.push(conflict());
    let plan = world.reconcile();
    assert_eq!(world.condition("Accepted"), "False OwnershipConflict");
    let said = "Service \"mnist\" exists and belongs to Deployment web. Remove it, or create this job under another name; \
                the job goes on by itself when the name is free.";
    assert_eq!(world.message("Accepted"), said);
    assert_eq!((world.log.pods.len(), world.log.services.len()), (0, 0));
    let checked = plan.wake_at().unwrap().duration_since(world.now);
    assert_eq!(checked.as_secs(), 30, "whether the name is free by then");
    assert_eq!((world.phase(), world.log.statuses), (Some(Pending), 1));
    assert_eq!(world.told(), ["OwnershipConflict"]);
    world.conflicts.clear();
    world.settle();
    assert_eq!(
        (world.phase(), world.condition("Accepted")),
        (Some(Running), "True Valid".to_owned())
    );
}

#[test]
fn jobs_whose_names_collide_are_told_so() {
    // Job `a` with role `b-c`, and job `a-b` with role `c`.
    let mut world = World::new(workers(1, Never));
    world.conflicts.push(Conflict {
        kind: "Pod",
        name: "mnist-worker-0".to_owned(),
        owner: "TrainingJob mnist-worker".to_owned(),
    });
    world.reconcile();
    let said = "Pod \"mnist-worker-0\" exists and belongs to TrainingJob mnist-worker, whose names collide with those of \
                this job. Remove it,";
    assert!(
        world.message("Accepted").starts_with(said),
        "{}",
        world.message("Accepted")
    );
}

#[test]
fn a_conflict_does_not_keep_a_job_from_being_suspended() {
    let mut world = World::running(workers(2, Never));
    world.services.clear();
    world.conflicts.push(conflict());
    world.reconcile();
    assert_eq!(world.condition("Accepted"), "False OwnershipConflict");
    world.suspend(true);
    world.settle();
    assert_eq!(
        (world.phase(), world.pods.len()),
        (Some(Suspended), 0),
        "a suspended job holds no pods"
    );
}

#[test]
fn a_conflict_does_not_move_a_finished_job() {
    let mut world = World::running(workers(1, Never));
    world.fail("mnist-worker-0", 1);
    world.reconcile();
    world.conflicts.push(conflict());
    world.settle();
    assert_eq!(
        (world.phase(), world.condition("Accepted")),
        (Some(Failed), "True Valid".to_owned())
    );
}

#[test]
fn pods_are_made_when_the_service_is_ours() {
    let mut world = World::new(workers(2, Never));
    world.crash_after(2);
    assert_eq!((world.services.len(), world.pods.len()), (1, 0));

    let mut world = World::new(workers(2, Never));
    world.taken.push("mnist".to_owned());
    world.settle();
    assert_eq!((world.phase(), world.log.pods.len()), (Some(Pending), 0));
    world.free_names();
    world.settle();
    assert_eq!(world.phase(), Some(Running));
}

#[test]
fn a_replacement_waits_for_a_service_that_was_deleted() {
    let mut world = World::running(workers(2, OnFailure));
    world.services.clear();
    world.vanish("mnist-worker-0");
    let plan = world.plan();
    assert_eq!(
        (world.actions().len(), plan.actions().count()),
        (1, 1),
        "{plan:#?}"
    );
    world.settle();
    assert_eq!((world.phase(), world.log.pods.len()), (Some(Running), 3));
}

#[rstest]
fn where_a_pods_name_is_taken_its_siblings_are_not_left_to_wait(
    #[values(Never, OnFailure)] policy: RestartPolicy,
    #[values(143, 1, 0)] code: i32,
) {
    let mut world = World::new(workers(3, policy).backoff_limit(0));
    world.taken.push("mnist-worker-0".to_owned());
    world.reconcile();
    assert_eq!(world.condition("Accepted"), "False OwnershipConflict");
    assert_eq!(world.condition("Running"), "False OwnershipConflict");
    assert_eq!((world.phase(), world.holding().len()), (Some(Pending), 0));
    world.free_names();
    world.settle();
    assert_eq!((world.phase(), world.restarts()), (Some(Running), (0, 0)));

    // They may have been placed on nodes and take their time to go; how they end means nothing,
    // also to an operator that did not send them away.
    for restarted in [false, true] {
        let mut world = World::new(workers(3, policy).backoff_limit(0));
        world.crash_after(2);
        world.taken.push("mnist-worker-0".to_owned());
        world.crash_after(3);
        world.run_all();
        world.reconcile();
        assert!(world.pods.iter().all(|row| row.terminating));
        match code {
            0 => world.succeed("mnist-worker-1"),
            _ => world.fail("mnist-worker-1", code),
        }
        world.reconcile();
        assert_eq!(world.phase(), Some(Pending));
        world.free_names();
        if restarted {
            world.crash_after(0);
        }
        world.settle();
        assert_eq!((world.phase(), world.restarts()), (Some(Running), (0, 0)));
        assert_eq!(world.role("worker").active, 3);
    }
}

#[test]
fn what_ended_before_a_name_was_found_taken_counts() {
    let mut world = World::new(workers(2, Never));
    world.reconcile();
    world.vanish("mnist-worker-0");
    world.taken.push("mnist-worker-0".to_owned());
    world.succeed("mnist-worker-1");
    world.settle();
    assert_eq!((world.phase(), world.all().len()), (Some(Pending), 1));
    assert_eq!(world.role("worker").succeeded, 1);
    world.free_names();
    world.settle();
    world.succeed_all();
    world.settle();
    assert_eq!((world.phase(), world.log.pods.len()), (Some(Succeeded), 3));
}

#[test]
fn a_job_whose_names_are_taken_keeps_its_deadline() {
    for taken in ["mnist", "mnist-worker-0"] {
        let job = workers(3, OnFailure).run(|run| run.active_deadline_seconds = Some(5));
        let mut world = World::new(job);
        world.taken.push(taken.to_owned());
        let plan = world.reconcile();
        world.now = plan.wake_at().unwrap();
        world.settle();
        assert_eq!(world.condition("Failed"), "True DeadlineExceeded", "{taken}");
        assert!(world.holding().is_empty());
    }
}

#[test]
fn a_running_job_one_of_whose_names_was_taken_still_counts_and_ends() {
    let job = workers(2, OnFailure).run(|run| run.active_deadline_seconds = Some(20));
    let mut world = World::running(job);
    world.vanish("mnist-worker-0");
    world.taken.push("mnist-worker-0".to_owned());
    world.settle_without_waiting();
    world.tick(10);
    world.reconcile();
    assert_eq!(
        (world.phase(), world.condition("Accepted")),
        (Some(Restarting), "False OwnershipConflict".to_owned())
    );
    assert_eq!(
        world.status().ready.as_deref(),
        Some("1/2"),
        "its sibling runs on"
    );
    world.vanish("mnist-worker-1");
    world.tick(5);
    let plan = world.reconcile();
    assert_eq!(
        (world.status().ready.as_deref(), world.restarts()),
        (Some("0/2"), (0, 1))
    );
    world.now = plan.wake_at().unwrap();
    world.settle();
    assert_eq!(world.condition("Failed"), "True DeadlineExceeded");
}
