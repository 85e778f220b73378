//! What a failure leaves behind in status.

use trainyard_api::JobPhase;
use trainyard_api::JobPhase::Failed;
use trainyard_api::RestartPolicy::OnFailure;

use crate::common::World;
use crate::common::jobs::{Change, workers};

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
