//! Writes that are denied, or change nothing: they are sent more and more seldom, and the rest of
//! the job goes on.

use http::Method;
use trainyard_core::plan::pace::{STARTING_INTERVAL, STATUS_INTERVAL};

use super::identity::{mpi, with_agent};
use super::server::left_by_a_former_job;
use super::*;

impl Operator {
    /// Reconciles when it is time to, for a while, as the queue would.
    pub(super) async fn live(&self, while_: Duration) {
        let end = Instant::now() + while_;
        for _ in 0..1000 {
            let wait = match self.reconcile().await.next {
                Requeue::Again => continue,
                Requeue::At(at) => at.saturating_duration_since(Instant::now()),
                Requeue::Rest => while_,
                Requeue::Retry(_) | Requeue::Stale => Duration::from_secs(1),
            };
            if Instant::now() + wait >= end {
                return tokio::time::sleep_until(end).await;
            }
            tokio::time::advance(wait).await;
        }
        panic!("it does not come to rest");
    }

    fn fails(&self, index: usize) {
        let mut pod = self.server.pod(index, "Failed");
        pod["status"]["containerStatuses"] =
            json!([{"name": "train", "state": {"terminated": {"exitCode": 1}}}]);
        let pod = serde_json::from_value(pod).unwrap();
        self.reconciler.index.apply_pod(pod, Source::Watch);
    }
}

#[tokio::test(start_paused = true)]
async fn labels_that_are_refused_are_written_seldom() {
    let operator = Operator::running(1).await;
    let mut pod = operator.server.pod(0, "Running");
    pod["metadata"]["labels"]["trainyard.dev/index"] = json!("7");
    let pod = serde_json::from_value(pod).unwrap();
    operator.reconciler.index.apply_pod(pod, Source::Watch);
    *operator.server.denied.lock().unwrap() = Some(Method::PATCH);
    operator.live(Duration::from_mins(10)).await;
    let tries = operator.server.count("PATCH a-w-0");
    assert!((2..=12).contains(&tries), "{tries}");
    assert_eq!(operator.server.status()["phase"], "Running");
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_a_finalizer_holds_is_forced_out_seldom() {
    let operator = Operator::running(1).await;
    let index = &operator.reconciler.index;
    let mut pod = operator.server.pod(0, "Running");
    pod["spec"]["nodeName"] = json!("n1");
    pod["metadata"]["finalizers"] = json!(["example.com/held"]);
    let version = pod["metadata"]["resourceVersion"].clone();
    index.apply_pod(serde_json::from_value(pod).unwrap(), Source::Watch);
    // No node is there.
    index.listing(Kind::Node, 0, Version(900_000));
    index.listed(Kind::Node, 0, Version(900_000), Instant::now());
    let mut job = replaced(1);
    job["spec"]["suspend"] = json!(true);
    job["metadata"]["generation"] = json!(2);
    job["metadata"]["resourceVersion"] = version;
    job["status"] = operator.server.status();
    operator.apply(&job);
    operator.settle().await;
    assert_eq!(operator.server.deletions(), 1);
    operator.live(Duration::from_mins(10)).await;
    let tries = operator.server.deletions();
    assert!((2..=12).contains(&tries), "{tries}");
}

#[tokio::test(start_paused = true)]
async fn a_denied_deletion_keeps_nothing_else_from_being_counted() {
    let operator = Operator::running(3).await;
    *operator.server.denied.lock().unwrap() = Some(Method::DELETE);
    operator.fails(0);
    operator.live(Duration::from_mins(1)).await;
    assert_eq!(operator.server.status()["restarts"]["failures"], 1);
    operator.fails(1);
    operator.live(Duration::from_mins(1)).await;
    assert_eq!(operator.server.status()["restarts"]["failures"], 2);
    assert_eq!(
        operator.server.count("POST pods"),
        3,
        "none was replaced while it is there"
    );
    *operator.server.denied.lock().unwrap() = None;
    operator.live(Duration::from_mins(5)).await;
    let denied = operator.server.deletions();
    assert!(denied < 40, "{denied}");
    assert_eq!(operator.server.status()["restarts"]["failures"], 2);
}

#[tokio::test(start_paused = true)]
async fn a_job_says_that_it_waits_for_a_pod_of_a_former_one() {
    let operator = Operator::new();
    let left: SlimMeta = serde_json::from_value(left_by_a_former_job("a-w-1")).unwrap();
    let pod = serde_json::from_value(left_by_a_former_job("a-w-1")).unwrap();
    operator.reconciler.index.apply_pod(pod, Source::Watch);
    *operator.server.former.lock().unwrap() = Some("a-w-1".to_owned());
    operator.apply(&job(3));
    operator.live(Duration::from_mins(1)).await;
    let status = operator.server.status();
    assert!(status["startTime"].is_string(), "{status}");
    assert_eq!(status["roles"][0]["reason"], "CreateFailed");
    assert_eq!(
        status["roles"][0]["message"],
        "Pod \"a-w-1\" could not be created: an object of its name, left by a former job, is still being removed"
    );
    assert_eq!(
        operator.server.count("PUT status"),
        1,
        "the first tells this, too"
    );
    let tries = operator.server.count("POST pods");
    assert!(tries < 20, "{tries}");
    // It goes, and the job does not wait out its pause.
    *operator.server.former.lock().unwrap() = None;
    operator.reconciler.index.delete_child(Kind::Pod, &left.metadata);
    operator.settle().await;
    assert_eq!(operator.server.count("POST pods"), tries + 1);
    tokio::time::advance(STATUS_INTERVAL).await;
    operator.settle().await;
    assert_eq!(operator.server.status()["roles"][0]["reason"], Value::Null);
    let server = operator.end().await;
    let writes = server.writes.lock().unwrap();
    let told = writes
        .iter()
        .filter(|(_, _, body)| body["reason"] == "CreateFailed");
    assert_eq!(told.count(), 1, "one event");
}

/// Before every try the Secret is found, which says nothing about pods.
#[tokio::test(start_paused = true)]
async fn pods_that_are_refused_are_tried_seldom_though_their_secret_is_not() {
    let operator = with_agent(Server::default());
    *operator.server.quota.lock().unwrap() = Some(0);
    operator.apply(&mpi(2));
    operator.live(Duration::from_mins(10)).await;
    let tries = operator.server.count("POST secrets");
    assert!((2..=12).contains(&tries), "{tries}");
    let role = operator.server.status()["roles"][1].clone();
    assert_eq!(role["reason"], "CreateFailed", "{role}");
    *operator.server.quota.lock().unwrap() = None;
    operator.live(Duration::from_mins(5)).await;
    let role = operator.server.status()["roles"][1].clone();
    assert_eq!(
        (&role["reason"], &role["pending"]),
        (&Value::Null, &json!(2)),
        "{role}"
    );
    let server = operator.end().await;
    let writes = server.writes.lock().unwrap();
    let told = writes
        .iter()
        .filter(|(_, _, body)| body["reason"] == "CreateFailed");
    assert_eq!(told.count(), 1, "one event");
}

#[tokio::test(start_paused = true)]
async fn a_deadline_comes_for_a_job_that_waits_for_a_former_one() {
    struct Later;
    impl crate::clock::Clock for Later {
        fn now(&self) -> Timestamp {
            Timestamp::now() + Duration::from_mins(2)
        }
    }
    let mut operator = Operator::new();
    *operator.server.former.lock().unwrap() = Some("a-w-0".to_owned());
    let mut job = job(1);
    job["spec"]["runPolicy"] = json!({"activeDeadlineSeconds": 60});
    operator.apply(&job);
    operator.live(STARTING_INTERVAL * 2).await;
    assert_eq!(operator.server.status()["phase"], "Starting");
    operator.reconciler.clock = Arc::new(Later);
    operator.settle().await;
    assert_eq!(operator.server.status()["phase"], "Failed");
}

#[tokio::test(start_paused = true)]
async fn a_job_is_not_forgotten_by_a_leader_that_may_not_write_for_a_while() {
    let operator = Operator::new();
    operator.apply(&job(1));
    operator.term.cancel();
    let result = operator.reconcile().await;
    assert!(matches!(result.next, Requeue::At(_)), "{result:?}");
    assert_eq!(operator.end().await.total(), 0);
}
