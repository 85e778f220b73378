//! Replacements that wait, the longer the more often their pod was replaced.

use rstest::rstest;
use trainyard_api::RestartPolicy::OnFailure;

use crate::common::World;
use crate::common::jobs::{Change, custom, workers};

/// All pods of the job are taken away, and it runs again; returns how many seconds that took.
fn cycle(world: &mut World) -> i64 {
    for pod in world.all() {
        world.evict(&pod);
    }
    let before = world.now;
    world.reconcile();
    let restarts = world.status().restarts.unwrap_or_default();
    let due = restarts
        .replacing
        .iter()
        .filter_map(|pod| pod.not_before.as_ref());
    let waited = due.map(|due| due.0.duration_since(before).as_secs()).max();
    world.settle();
    waited.unwrap_or_default()
}

fn replacements(world: &World, role: &str) -> Option<String> {
    world.role(role).replacements
}

#[rstest]
fn they_wait_in_jobs_of_any_size(#[values(1, 3, 64, 300)] pods: i32) {
    let mut world = World::running(workers(pods, OnFailure));
    let mut waits = Vec::new();
    for _ in 0..4 {
        let made = world.log.deleted.len();
        for pod in world.all() {
            world.evict(&pod);
        }
        let plan = world.reconcile();
        let at_once = world.log.deleted.len() - made;
        waits.push((
            at_once > 0,
            World::due(&plan).map(|at| at.duration_since(world.now).as_secs()),
        ));
        world.settle();
    }
    let waiting = |seconds| (false, Some(seconds));
    assert_eq!(waits, [(true, None), waiting(10), waiting(20), waiting(40)]);
}

#[test]
fn each_pod_is_counted_for_itself() {
    let job = custom(&[("ps", 2), ("worker", 64)]);
    let on_failure = |role: &mut trainyard_api::RoleSpec| role.restart_policy = Some(OnFailure);
    let mut world = World::running(job.role("ps", on_failure).role("worker", on_failure));
    assert_eq!(replacements(&world, "worker"), None);
    cycle(&mut world);
    world.evict("mnist-worker-63");
    world.settle();
    assert_eq!(replacements(&world, "ps").as_deref(), Some("0-1x1"));
    assert_eq!(replacements(&world, "worker").as_deref(), Some("0-62x1;63x2"));
}

#[test]
fn a_job_that_was_calm_for_ten_minutes_starts_over() {
    let mut world = World::running(workers(64, OnFailure));
    assert_eq!([cycle(&mut world), cycle(&mut world)], [0, 10]);
    let written = world.log.statuses;
    world.tick(601);
    world.reconcile();
    assert_eq!(world.log.statuses, written, "forgetting costs no write");
    world.evict("mnist-worker-3");
    world.settle_without_waiting();
    assert_eq!(replacements(&world, "worker").as_deref(), Some("3x1"));
}

#[test]
fn a_job_that_was_suspended_starts_over() {
    let mut world = World::running(workers(2, OnFailure));
    assert_eq!([cycle(&mut world), cycle(&mut world)], [0, 10]);
    world.suspend(true);
    world.settle();
    assert_eq!(replacements(&world, "worker"), None);
    world.suspend(false);
    world.tick(1);
    world.settle();
    assert_eq!(cycle(&mut world), 0);
    assert_eq!(replacements(&world, "worker").as_deref(), Some("0-1x1"));
}

#[test]
fn what_an_operator_that_wrote_no_counts_replaced_is_in_the_history() {
    let mut world = World::running(workers(2, OnFailure));
    world.evict("mnist-worker-1");
    world.settle();
    world.job.status.as_mut().unwrap().roles[0].replacements = None;
    assert_eq!(cycle(&mut world), 10);
    assert_eq!(replacements(&world, "worker").as_deref(), Some("0x1;1x2"));
}
