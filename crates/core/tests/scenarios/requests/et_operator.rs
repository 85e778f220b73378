//! Defects of et-operator that requests must not have, on jobs as its users have them. The table in
//! `docs/migrating/et-operator.md` names the test of each.

use serde_json::json;
use trainyard_api::{Dialect, JobPhase, RestartPolicy, RestartScope, ScaleKind};
use trainyard_core::view::PodPhase;

use super::scripts::{desk_of, horovod};
use super::{Desk, failed, succeeded};
use crate::common::World;
use crate::common::jobs::Change;

/// A job with a launcher and so many workers, of which there may be 2 to 12.
fn desk(workers: i32) -> Desk {
    let mut job = horovod(workers);
    job.spec.dialect = Some(Dialect::Et);
    let elastic = job.spec.elastic.as_mut().unwrap();
    (elastic.min_replicas, elastic.max_replicas) = (Some(2), Some(12));
    desk_of(job, &[])
}

/// It deleted all of them.
#[test]
fn names_that_match_nothing_remove_nobody() {
    let mut desk = desk(3);
    desk.scale_in("r", &json!({"podNames": ["mnist-worker-7"]}));
    desk.settle();
    assert_eq!(
        (desk.end("r"), &*desk.workers()),
        (failed("PodsRefused"), "0 1 2")
    );
}

/// It deleted both.
#[test]
fn worker_1_is_not_worker_10() {
    let mut desk = desk(11);
    desk.scale_in("r", &json!({"podNames": ["mnist-worker-1"]}));
    desk.settle();
    assert_eq!(
        (desk.end("r"), &*desk.workers()),
        (succeeded(), "0 2 3 4 5 6 7 8 9 10")
    );
}

/// They stayed as they were for ever.
#[test]
fn requests_end_with_their_job() {
    let mut desk = desk(3);
    desk.scale_out("first", 1);
    desk.world.tick(1);
    desk.scale_out("second", 1);
    desk.work();
    desk.world.succeed("mnist-launcher");
    desk.world.settle();
    desk.settle();
    for name in ["first", "second"] {
        assert_eq!(desk.end(name), failed("JobEnded"), "{name}");
    }
}

/// It began with the newest.
#[test]
fn the_oldest_request_comes_first() {
    let mut desk = desk(3);
    desk.scale_out("oldest", 2);
    desk.world.tick(1);
    desk.scale_in("newest", &json!({"count": 1}));
    desk.requests.reverse();
    desk.settle();
    desk.settle();
    assert_eq!(desk.targets, [5, 4]);
}

/// Nobody looked at them.
#[test]
fn min_and_max_hold() {
    let mut desk = desk(3);
    desk.scale_in("fewer", &json!({"count": 2}));
    desk.scale_out("more", 10);
    desk.settle();
    let message = |name| desk.message(name).to_owned();
    assert!(
        message("fewer").contains("its minReplicas is 2"),
        "{}",
        message("fewer")
    );
    assert!(
        message("more").contains("its maxReplicas is 12"),
        "{}",
        message("more")
    );
    assert_eq!((&*desk.workers(), desk.targets.len()), ("0 1 2", 0));
}

/// It counted as a success.
#[test]
fn a_missing_launcher_is_no_success() {
    let mut desk = desk(3);
    desk.world.vanish("mnist-launcher");
    desk.settle();
    assert_ne!(desk.world.phase(), Some(JobPhase::Succeeded));
}

/// It wrote what belongs together one after the other, and a crash between lost workers.
#[test]
fn a_crash_between_two_writes_loses_no_worker() {
    for writes in 0..10 {
        let mut desk = desk(4);
        let named = json!({"toDelete": {"podNames": ["mnist-worker-1"]}});
        desk.ask(ScaleKind::ScaleIn, "r", named);
        desk.dies_after = Some(writes);
        desk.settle();
        assert_eq!(
            (desk.end("r"), &*desk.workers()),
            (succeeded(), "0 2 3"),
            "{writes}"
        );
        assert_eq!(desk.targets, [3], "{writes}");
    }
}

/// A job whose launcher may fail so often.
fn restarted(limit: i32) -> World {
    let mut job = horovod(3).backoff_limit(limit).role("launcher", |role| {
        role.restart_policy = Some(RestartPolicy::OnFailure);
        role.restart_scope = Some(RestartScope::Job);
    });
    job.spec.dialect = Some(Dialect::Et);
    desk_of(job, &[]).world
}

/// The launcher fails once more, which is more often than it may.
fn assert_next_failure_is_too_many(world: &mut World) {
    world.fail("mnist-launcher", 1);
    world.settle();
    assert_eq!(
        (world.phase(), world.condition("Failed")),
        (Some(JobPhase::Failed), "True BackoffLimitExceeded".to_owned())
    );
}

/// There, launchers alone spend `backoffLimit`.
#[test]
fn workers_that_fail_end_no_job() {
    let mut world = restarted(1);
    for lost in 0..7 {
        let name = world.names(|row| row.phase == PodPhase::Running && row.name.contains("worker"));
        world.fail(name.last().unwrap(), 1);
        world.settle();
        world.tick(60);
        assert_eq!(world.phase(), Some(JobPhase::Running), "{lost}");
    }
    assert_eq!(world.restarts(), (0, 7));
}

/// Nothing ends that, so it must not be dear.
#[test]
fn workers_that_crash_at_once_are_replaced_more_and_more_seldom() {
    let mut world = restarted(1);
    let begun = world.log.pods.len();
    for _ in 0..300 {
        for name in world.names(|row| row.phase == PodPhase::Running && row.name.contains("worker")) {
            world.fail(&name, 1);
        }
        world.settle_without_waiting();
        world.tick(2);
    }
    let created = world.log.pods.len() - begun;
    assert!((10..=30).contains(&created), "{created} in ten minutes");
    assert_ne!(world.phase(), Some(JobPhase::Failed));
}

/// All pods are made anew with the launcher, at the size that the job has come to.
#[test]
fn a_launcher_that_fails_starts_all_pods_anew() {
    let mut world = restarted(1);
    let uids = |world: &World| -> Vec<String> {
        let mut rows: Vec<_> = world.pods.iter().map(|row| (&row.name, &row.uid)).collect();
        rows.sort();
        rows.into_iter().map(|(_, uid)| uid.to_string()).collect()
    };
    let before = uids(&world);
    world.fail("mnist-launcher", 1);
    world.reconcile();
    assert_eq!(world.phase(), Some(JobPhase::Restarting));
    world.settle();
    assert_eq!(
        (world.phase(), world.restarts()),
        (Some(JobPhase::Running), (1, 0))
    );
    let after = uids(&world);
    assert_eq!(after.len(), before.len());
    assert!(
        after.iter().all(|uid| !before.contains(uid)),
        "{before:?} {after:?}"
    );
    world.tick(60);
    assert_next_failure_is_too_many(&mut world);
}

/// It has failed because of the worker, and counts all the same.
#[test]
fn a_launcher_that_fails_with_a_worker_spends_the_limit() {
    let mut world = restarted(0);
    world.fail("mnist-worker-2", 1);
    world.reconcile();
    assert_eq!(world.restarts(), (0, 1));
    world.tick(2);
    assert_next_failure_is_too_many(&mut world);
}

#[test]
fn a_size_that_changes_while_all_start_anew_is_reached() {
    let mut world = restarted(3);
    world.edit(|spec| spec.elastic.as_mut().unwrap().replicas = 2);
    world.reconcile();
    assert_eq!(world.phase(), Some(JobPhase::Scaling));
    world.fail("mnist-launcher", 1);
    world.settle();
    assert_eq!(
        (world.phase(), world.restarts()),
        (Some(JobPhase::Running), (1, 0))
    );
    assert_eq!((world.status().replicas, world.status().scaling), (Some(2), None));
    assert_eq!(world.pods.len(), 3);
}
