//! Jobs, reconciled through their lives.

use super::*;
use trainyard_core::plan::pace::{OVERDUE_AFTER, STARTING_INTERVAL, STATUS_INTERVAL, SUCCESS_INTERVAL};

#[tokio::test(start_paused = true)]
async fn a_new_job_gets_its_children_and_a_status_and_then_nothing() {
    let operator = Operator::new();
    operator.apply(&job(3));
    operator.settle().await;
    let server = &operator.server;
    assert_eq!((server.count("POST pods"), server.count("POST services")), (3, 1));
    assert_eq!(server.count("PUT status"), 0, "it may run soon");
    tokio::time::advance(STARTING_INTERVAL).await;
    operator.settle().await;
    assert_eq!(server.count("PUT status"), 1, "one status for the start");
    let before = server.count("PUT status") + 4;
    operator.settle().await;
    operator.settle().await;
    assert_eq!(
        server.total() - server.count("POST events"),
        before,
        "a job at rest costs nothing"
    );
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_was_seen_to_succeed_and_is_gone_is_not_made_again() {
    let operator = Operator::running(2).await;
    let statuses = operator.server.count("PUT status");
    operator.pod_is(0, "Succeeded");
    let ReconcileResult {
        next: Requeue::At(due),
        ..
    } = operator.settle().await
    else {
        panic!("the success is to be written");
    };
    assert_eq!(due - Instant::now(), SUCCESS_INTERVAL);
    operator.pod_is_gone(0);
    operator.settle().await;
    assert_eq!(
        operator.server.count("PUT status"),
        statuses,
        "not at once after the last"
    );
    tokio::time::advance(SUCCESS_INTERVAL).await;
    operator.settle().await;
    assert_eq!(operator.server.count("PUT status"), statuses + 1);
    assert_eq!(operator.server.status()["roles"][0]["succeededIndices"], "0");
    assert_eq!(operator.server.count("POST pods"), 2, "it has done its round");
    let Some(Lookup::Job(known)) = operator.reconciler.index.get(&JobKey::new("ns", "a")) else {
        panic!()
    };
    assert!(known.departed.is_empty(), "what is written need not be kept");
}

#[tokio::test(start_paused = true)]
async fn successes_that_follow_each_other_are_written_together() {
    let operator = Operator::running(2).await;
    let statuses = operator.server.count("PUT status");
    tokio::time::advance(STATUS_INTERVAL * 2).await;
    operator.pod_is(0, "Succeeded");
    operator.settle().await;
    assert_eq!(operator.server.count("PUT status"), statuses, "others may follow");
    tokio::time::advance(SUCCESS_INTERVAL / 2).await;
    operator.pod_is(1, "Succeeded");
    operator.settle().await;
    assert_eq!(operator.server.count("PUT status"), statuses + 1);
    assert_eq!(operator.server.status()["phase"], "Succeeded");
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_nobody_can_tell_that_it_may_start_is_annotated_once() {
    let operator = Operator::new();
    operator.apply(&job(1));
    operator.live(STARTING_INTERVAL * 2).await;
    let mut pod = operator.server.pod(0, "Pending");
    pod["status"]["initContainerStatuses"] = json!([{"name": "trainyard-wait", "state": {"running": {}}}]);
    *operator.server.found.lock().unwrap() = Some(pod.clone());
    let pod = serde_json::from_value(pod).unwrap();
    operator.reconciler.index.apply_pod(pod, Source::Watch);
    let ReconcileResult {
        next: Requeue::At(due),
        ..
    } = operator.settle().await
    else {
        panic!("it may be told in time");
    };
    assert_eq!(due - Instant::now(), OVERDUE_AFTER);
    assert_eq!(operator.server.count("PATCH a-w-0"), 0);
    tokio::time::advance(OVERDUE_AFTER).await;
    operator.settle().await;
    tokio::time::advance(OVERDUE_AFTER * 2).await;
    operator.settle().await;
    assert_eq!(operator.server.count("PATCH a-w-0"), 1);
    let writes = operator.server.writes.lock().unwrap();
    let patch = writes.iter().rfind(|(method, ..)| method == http::Method::PATCH);
    let patch = &patch.unwrap().2;
    assert_eq!(
        patch["metadata"],
        json!({"uid": "uid-of-a-w-0", "annotations": {"trainyard.dev/start": "now"}})
    );
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_lost_its_labels_gets_them_back_and_counts_as_nothing() {
    let operator = Operator::running(2).await;
    let statuses = operator.server.count("PUT status");
    // To the watch, which selects by this label, it is gone.
    let mut hidden = operator.server.pod(0, "Running");
    operator.pod_is_gone(0);
    hidden["metadata"]["labels"] = json!({"trainyard.dev/role": "w", "trainyard.dev/index": "0"});
    *operator.server.found.lock().unwrap() = Some(hidden);
    operator.settle().await;
    assert_eq!(
        (
            operator.server.count("PATCH a-w-0"),
            operator.server.count("POST pods")
        ),
        (1, 2)
    );
    // This one its Service has lost.
    let mut lost = operator.server.pod(1, "Running");
    lost["metadata"]["labels"]["trainyard.dev/job"] = Value::Null;
    *operator.server.found.lock().unwrap() = Some(lost.clone());
    let lost = serde_json::from_value(lost).unwrap();
    operator.reconciler.index.apply_pod(lost, Source::Watch);
    operator.settle().await;
    assert_eq!(
        (
            operator.server.count("PATCH a-w-1"),
            operator.server.count("POST pods")
        ),
        (1, 2)
    );
    assert_eq!(operator.server.count("PUT status"), statuses);
    assert_eq!(operator.server.status()["restarts"], Value::Null);
}

#[tokio::test(start_paused = true)]
async fn a_label_that_is_back_before_the_watch_says_so_costs_no_pod() {
    let operator = Operator::new();
    operator.apply(&job(1));
    operator.settle().await;
    operator.pod_is(0, "Running");
    operator.settle().await;
    operator.pod_is_gone(0);
    *operator.server.found.lock().unwrap() = Some(operator.server.pod(0, "Running"));
    operator.settle().await;
    assert_eq!(operator.server.status()["phase"], "Running");
    assert_eq!(operator.server.count("PATCH a-w-0"), 0);
}

#[tokio::test(start_paused = true)]
async fn jobs_of_others_and_jobs_on_their_way_out_are_left_alone() {
    for change in [
        (|job: &mut Value| job["spec"]["managedBy"] = json!("example.com/other")) as fn(&mut Value),
        |job| job["metadata"]["deletionTimestamp"] = json!("2026-01-02T03:04:05Z"),
    ] {
        let operator = Operator::new();
        let mut job = job(3);
        change(&mut job);
        operator.apply(&job);
        let result = operator.settle().await;
        assert_eq!((result.outcome, result.next), (Outcome::Quiet, Requeue::Rest));
        assert_eq!(operator.end().await.total(), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn a_replacement_is_not_made_of_a_spec_that_came_while_its_status_was_written() {
    let operator = Operator::running(2).await;
    operator.pod_is_gone(0);
    let mut edited = replaced(2);
    edited["metadata"]["generation"] = json!(2);
    edited["metadata"]["resourceVersion"] = json!("900000");
    edited["spec"]["roles"][0]["template"]["spec"]["containers"][0]["image"] = json!("other");
    let index = operator.reconciler.index.clone();
    *operator.server.meanwhile.lock().unwrap() = Some(Box::new(move || {
        let edited = JobObject::decode(&edited.to_string()).unwrap();
        index.apply_job(edited, Source::Watch);
    }));
    operator.reconcile().await;
    assert_eq!(operator.server.count("POST pods"), 2, "it was not accepted");
}

#[tokio::test]
async fn a_reconcile_that_waits_takes_little_memory() {
    // Hundreds wait under load, for a place to write from.
    let operator = Operator::new();
    let key = JobKey::new("ns", "a");
    let waiting = operator.reconciler.reconcile(&key, &operator.term);
    assert!(
        std::mem::size_of_val(&waiting) <= 4096,
        "{}",
        std::mem::size_of_val(&waiting)
    );
}
