//! Jobs that change while what was decided for them is carried out.

use super::*;
use crate::act::IN_FLIGHT;
use crate::reconcile::outcome::WATCH_DELAY;

const PODS: usize = 200;

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
    let ReconcileResult {
        next: Requeue::At(again),
        outcome,
        ..
    } = operator.settle().await
    else {
        panic!("the watch will tell")
    };
    assert_eq!(
        (again - Instant::now(), outcome),
        (WATCH_DELAY, Outcome::Conflict)
    );
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
    assert_eq!(operator.settle().await.next, Requeue::Rest);
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
    assert_eq!(operator.reconcile().await.next, Requeue::Rest);
    assert_eq!(operator.server.deletions(), 2);
}

impl Operator {
    /// The watch tells, while the next pod is created, that the job was suspended.
    fn is_suspended_meanwhile(&self) {
        let index = self.reconciler.index.clone();
        let known = index.job(&JobKey::new("ns", "a")).unwrap();
        let generation = known.metadata.generation.unwrap() + 1;
        let server = self.server.clone();
        *self.server.while_creating.lock().unwrap() = Some(Box::new(move || {
            let suspended = with_status(suspended(PODS, generation), &server);
            let suspended = JobObject::decode(&suspended.to_string()).unwrap();
            index.apply_job(suspended, Source::Watch);
        }));
    }
}

fn suspended(replicas: usize, generation: i64) -> Value {
    let mut job = job(replicas);
    job["metadata"]["generation"] = json!(generation);
    job["metadata"]["resourceVersion"] = next_version();
    job["spec"]["suspend"] = json!(true);
    job
}

#[tokio::test(start_paused = true)]
async fn a_job_that_is_suspended_while_its_pods_are_created_gets_no_more_of_them() {
    let operator = Operator::new();
    operator.apply(&job(PODS));
    operator.is_suspended_meanwhile();
    operator.settle().await;
    let server = &operator.server;
    let created = server.count("POST pods");
    assert!((1..=IN_FLIGHT).contains(&created), "{created}");
    assert_eq!(server.deletions(), created, "those that came too late go");
    assert_eq!(server.status()["phase"], "Suspending");
}

#[tokio::test(start_paused = true)]
async fn the_same_holds_for_what_comes_after_a_status() {
    let operator = Operator::new();
    operator.apply(&job(PODS));
    operator.settle().await;
    operator.apply(&with_status(suspended(PODS, 2), &operator.server));
    operator.settle().await;
    (0..PODS).for_each(|index| operator.pod_is_gone(index));
    let mut resumed = suspended(PODS, 3);
    resumed["spec"]["suspend"] = json!(false);
    operator.apply(&with_status(resumed, &operator.server));
    operator.is_suspended_meanwhile();
    operator.settle().await;
    let server = &operator.server;
    let created = server.count("POST pods") - PODS;
    assert!((1..=IN_FLIGHT).contains(&created), "{created}");
    assert_eq!(server.status()["phase"], "Suspending");
}

/// A job with the status that was last written.
fn with_status(mut job: Value, server: &Server) -> Value {
    job["status"] = server.last_status().unwrap_or_default();
    job
}

#[tokio::test(start_paused = true)]
async fn a_job_that_is_deleted_while_its_pods_are_created_is_left_alone() {
    let operator = Operator::new();
    operator.apply(&job(PODS));
    let index = operator.reconciler.index.clone();
    *operator.server.while_creating.lock().unwrap() = Some(Box::new(move || {
        let gone = serde_json::from_value(job(PODS)["metadata"].clone()).unwrap();
        index.delete_job(&gone);
    }));
    assert_eq!(operator.settle().await.next, Requeue::Rest);
    let server = operator.end().await;
    let created = server.count("POST pods");
    assert!((1..=IN_FLIGHT).contains(&created), "{created}");
    assert_eq!(server.deletions(), 0, "garbage collection sees to them");
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_is_lost_while_pods_are_created_ends_their_creation() {
    let operator = Operator::new();
    operator.apply(&job(PODS));
    let term = operator.term.clone();
    *operator.server.while_creating.lock().unwrap() = Some(Box::new(move || term.cancel()));
    operator.settle().await;
    let server = &operator.server;
    let (created, statuses) = (server.count("POST pods"), server.count("PUT status"));
    assert!((1..=IN_FLIGHT).contains(&created), "{created}");
    operator.reconcile().await;
    assert_eq!(
        (server.count("POST pods"), server.count("PUT status")),
        (created, statuses)
    );
}
