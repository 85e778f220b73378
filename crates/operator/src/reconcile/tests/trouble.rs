//! What the server refuses, what is in the way, and what is no job.

use super::*;

#[tokio::test(start_paused = true)]
async fn children_that_are_refused_are_told_of_once_and_tried_seldom() {
    let operator = Operator::new();
    *operator.server.quota.lock().unwrap() = Some(1);
    operator.apply(&job(3));
    let ReconcileResult {
        next: Requeue::At(again),
        ..
    } = operator.settle().await
    else {
        panic!()
    };
    let tried = operator.server.count("POST pods");
    operator.settle().await;
    assert_eq!(
        operator.server.count("POST pods"),
        tried,
        "not before the pause is over"
    );
    tokio::time::advance(again.saturating_duration_since(Instant::now())).await;
    operator.settle().await;
    assert!(operator.server.count("POST pods") > tried);
    operator.live(Duration::from_mins(1)).await;
    let role = operator.server.status()["roles"][0].clone();
    assert_eq!(role["reason"], "CreateFailed");
    let said = role["message"].as_str().unwrap().to_owned();
    assert!(
        said.starts_with("Pod \"a-w-")
            && said.contains("could not be created: pods")
            && said.contains("exceeded quota"),
        "{said}"
    );
    assert_eq!(
        operator.server.count("PUT status"),
        1,
        "the first tells what is wrong"
    );
    tokio::time::advance(Duration::from_mins(2)).await;
    operator.settle().await;
    assert_eq!(
        operator.server.count("PUT status"),
        1,
        "the same words are not written again"
    );
    *operator.server.quota.lock().unwrap() = None;
    tokio::time::advance(Duration::from_mins(5)).await;
    operator.settle().await;
    assert_eq!(operator.server.status()["roles"][0]["reason"], Value::Null);
    let server = operator.end().await;
    let writes = server.writes.lock().unwrap();
    let reasons: Vec<_> = writes
        .iter()
        .filter_map(|(_, _, body)| body["reason"].as_str())
        .collect();
    assert_eq!(
        reasons.iter().filter(|reason| **reason == "CreateFailed").count(),
        1,
        "{reasons:?}"
    );
    let created = writes
        .iter()
        .filter(|(_, path, body)| path.ends_with("/pods") && body["refused"].is_null());
    assert_eq!(created.count(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_refusal_that_lasts_is_told_again_before_the_event_is_gone() {
    let operator = Operator::new();
    *operator.server.quota.lock().unwrap() = Some(0);
    operator.apply(&job(1));
    for _ in 0..=6 {
        operator.settle().await;
        tokio::time::advance(Duration::from_mins(10)).await;
    }
    let server = operator.end().await;
    assert_eq!(server.count("POST events"), 3, "in an hour");
}

#[tokio::test(start_paused = true)]
async fn a_taken_name_is_waited_for_without_pods_that_wait_too() {
    for (taken, siblings) in [("a", 0), ("a-w-0", 2)] {
        let operator = Operator::new();
        *operator.server.taken.lock().unwrap() = Some(taken.to_owned());
        operator.apply(&job(3));
        let ReconcileResult {
            next: Requeue::At(again),
            ..
        } = operator.settle().await
        else {
            panic!()
        };
        let server = &operator.server;
        assert_eq!(server.count("POST pods"), siblings, "{taken}");
        assert_eq!(server.deletions(), siblings);
        assert_eq!(server.status()["phase"], "Pending");
        *server.taken.lock().unwrap() = Some("nothing".to_owned());
        for index in 1..=siblings {
            operator.pod_is_gone(index);
        }
        tokio::time::advance(again.saturating_duration_since(Instant::now())).await;
        operator.settle().await;
        assert_eq!(operator.server.count("POST pods"), siblings + 3);
        assert_eq!(operator.server.status()["phase"], "Starting");
    }
}

#[tokio::test(start_paused = true)]
async fn a_malformed_job_is_reported_on_itself_once() {
    let operator = Operator::new();
    let mut bad = job(1);
    bad["spec"]["roles"] = json!("many");
    operator.apply(&bad);
    operator.settle().await;
    operator.settle().await;
    let mut echo = bad.clone();
    echo["metadata"]["resourceVersion"] = json!("8");
    operator.apply(&echo);
    operator.settle().await;
    let server = operator.end().await;
    assert_eq!(
        (
            server.count("PATCH status"),
            server.count("POST events"),
            server.total()
        ),
        (1, 1, 2)
    );
    let (_, _, patch) = server.writes.lock().unwrap()[0].clone();
    assert_eq!(patch["metadata"]["resourceVersion"], "7");
    let condition = &patch["status"]["conditions"][0];
    assert_eq!(
        (&condition["type"], &condition["status"]),
        (&json!("Accepted"), &json!("False"))
    );
    assert!(
        condition["message"]
            .as_str()
            .unwrap()
            .starts_with("spec.roles: invalid type")
    );
    // A new process finds it reported.
    let operator = Operator::new();
    bad["status"] = patch["status"].clone();
    operator.apply(&bad);
    operator.settle().await;
    assert_eq!(operator.end().await.total(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_job_that_has_ended_stays_so_though_it_can_not_be_read() {
    for (phase, written) in [
        (json!("Succeeded"), "Succeeded"),
        (Value::Null, "Pending"),
        (json!("Finished"), "Pending"),
    ] {
        let operator = Operator::new();
        let mut bad = job(1);
        bad["spec"]["roles"] = json!("many");
        bad["status"] = json!({"phase": phase});
        operator.apply(&bad);
        operator.settle().await;
        assert_eq!(operator.server.status()["phase"], written);
    }
}

#[tokio::test(start_paused = true)]
async fn a_job_that_can_not_be_read_loses_its_budget() {
    for deleted_at in [Value::Null, json!("2026-01-02T03:04:05Z")] {
        let operator = Operator::new();
        let mut bad = job(1);
        bad["spec"]["roles"] = json!("many");
        bad["metadata"]["deletionTimestamp"] = deleted_at;
        operator.apply(&bad);
        let owners = json!([{"apiVersion": "trainyard.dev/v1alpha1", "kind": "TrainingJob", "name": "a", "uid": "u1",
            "controller": true}]);
        for (name, uid) in [("a-drain", "ours"), ("other", "theirs")] {
            let budget = json!({"metadata": {"name": name, "namespace": "ns", "uid": uid, "resourceVersion": "6",
                "ownerReferences": owners, "labels": {"trainyard.dev/job": "a"}}});
            let budget = serde_json::from_str(&budget.to_string()).unwrap();
            operator.reconciler.index.apply_budget(budget, Source::Watch);
        }
        operator.settle().await;
        operator.settle().await;
        let server = &operator.server;
        assert_eq!((server.deletions(), server.count("DELETE a-drain")), (1, 1));
    }
}
