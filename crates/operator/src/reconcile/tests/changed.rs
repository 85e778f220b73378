//! Jobs that change while what was decided for them is carried out.

use super::*;
use crate::reconcile::judge::UNSEEN;

/// A job that has ended and whose time after that is over.
fn expired(version: &str) -> Value {
    let mut job = job(1);
    job["metadata"]["resourceVersion"] = json!(version);
    job["spec"]["runPolicy"] = json!({"ttlSecondsAfterFinished": 60});
    job["status"] =
        json!({"phase": "Succeeded", "observedGeneration": 1, "completionTime": "2020-01-02T03:04:05Z"});
    job
}

/// The same, with time left.
fn kept(version: &str) -> Value {
    let mut job = expired(version);
    (job["metadata"]["generation"], job["status"]["observedGeneration"]) = (json!(2), json!(2));
    job["spec"]["runPolicy"]["ttlSecondsAfterFinished"] = json!(2_000_000_000);
    job
}

#[tokio::test(start_paused = true)]
async fn a_job_that_got_more_time_at_the_last_moment_is_not_deleted() {
    let operator = Operator::new();
    operator.apply(&expired("7"));
    *operator.server.version.lock().unwrap() = Some("8".to_owned());
    let Verdict {
        next: Next::At(again),
        outcome,
        ..
    } = operator.settle().await
    else {
        panic!("the watch will tell")
    };
    assert_eq!((again - Instant::now(), outcome), (UNSEEN, Outcome::Conflict));
    let (_, _, options) = operator.server.writes.lock().unwrap()[0].clone();
    assert_eq!(
        options["preconditions"],
        json!({"uid": "u1", "resourceVersion": "7"})
    );
    assert_eq!(operator.server.total(), 1, "it is not tried again at once");
    operator.apply(&kept("8"));
    operator.settle().await;
    assert_eq!(operator.server.deletions(), 1);
    // It is deleted when its time is over after all.
    operator.apply(&expired("9"));
    *operator.server.version.lock().unwrap() = Some("9".to_owned());
    assert_eq!(operator.settle().await.next, Next::Rest);
    assert_eq!(operator.server.deletions(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_change_that_gave_a_job_no_more_time_delays_its_deletion_by_nothing() {
    let operator = Operator::new();
    operator.apply(&expired("7"));
    *operator.server.version.lock().unwrap() = Some("8".to_owned());
    let index = operator.reconciler.index.clone();
    *operator.server.while_deleting.lock().unwrap() = Some(Box::new(move || {
        let changed = JobObject::decode(&expired("8").to_string()).unwrap();
        index.apply_job(changed, Source::Watch);
    }));
    assert_eq!(operator.reconcile().await.next, Next::Rest);
    assert_eq!(operator.server.deletions(), 2);
}
