//! Defects of et-operator that requests must not have, on jobs as its users have them. The table in
//! `docs/migrating/et-operator.md` names the test of each.

use serde_json::json;
use trainyard_api::{Dialect, JobPhase, ScaleKind};

use super::scripts::{desk_of, horovod};
use super::{Desk, failed, succeeded};

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
