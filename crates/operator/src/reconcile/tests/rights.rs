//! The right to start programs through the API server, for jobs that want it.

use http::Method;

use super::identity::{fails, mpi, pod_is, run, with_agent};
use super::*;

fn with_exec(server: Server) -> (Operator, Value) {
    let operator = with_agent(server);
    operator.settings.allow_exec();
    let mut job = mpi(2);
    job["spec"]["framework"]["mpi"] = json!({"attach": "Exec"});
    (operator, job)
}

#[tokio::test(start_paused = true)]
async fn a_job_that_goes_through_the_api_server_costs_three_objects_more_and_no_secret() {
    let (operator, job) = with_exec(Server::default());
    operator.apply(&job);
    run(&operator, 2).await;
    let server = &operator.server;
    assert_eq!(server.status()["phase"], "Running");
    let kinds = ["serviceaccounts", "roles", "rolebindings", "secrets"];
    assert_eq!(
        kinds.map(|kind| server.count(&format!("POST {kind}"))),
        [1, 1, 1, 0]
    );
    let writes = server.writes.lock().unwrap().clone();
    let position = |end: &str| {
        writes
            .iter()
            .position(|(_, path, _)| path.ends_with(end))
            .unwrap()
    };
    let order = ["/serviceaccounts", "/roles", "/rolebindings", "/pods"].map(position);
    assert!(order.is_sorted(), "{order:?}");
    for kind in ["/serviceaccounts", "/roles", "/rolebindings"] {
        let object = &writes[position(kind)].2["metadata"];
        assert_eq!(object["name"], "a-mpi");
        assert_eq!(object["ownerReferences"][0]["uid"], "u1");
        assert_eq!(object["ownerReferences"][0]["controller"], true);
    }
    drop(writes);
    assert_eq!(server.created("/roles")[0]["rules"], Value::Null, "of no pod");
    assert_eq!(granted(server), [json!(["a-worker-0", "a-worker-1"])]);
    assert_eq!(
        server.reads(),
        1 + (kinds.len() - 1),
        "the Role is looked at before it is changed, and all when the launcher is made, after the workers"
    );
    let before = (server.total(), server.reads());
    operator.settle().await;
    assert_eq!(
        (server.total(), server.reads()),
        before,
        "a job at rest costs nothing"
    );
}

/// The names that the Role was made to cover, every time.
fn granted(server: &Server) -> Vec<Value> {
    let writes = server.writes.lock().unwrap();
    let patches = writes
        .iter()
        .filter(|(method, path, _)| *method == Method::PATCH && path.ends_with("/roles/a-mpi"));
    patches
        .map(|(_, _, body)| body["rules"][0]["resourceNames"].clone())
        .collect()
}

/// The pods of a `StatefulSet` a-worker are called as the workers of the job a.
#[tokio::test(start_paused = true)]
async fn a_pod_of_a_statefulset_is_never_covered() {
    let (operator, job) = with_exec(Server::default());
    *operator.server.taken.lock().unwrap() = Some("a-worker-1".to_owned());
    operator.apply(&job);
    operator.settle().await;
    let server = &operator.server;
    assert_eq!(server.status()["conditions"][0]["reason"], "OwnershipConflict");
    assert_eq!(server.created("/roles")[0]["rules"], Value::Null);
    assert!(
        granted(server).iter().all(Value::is_null),
        "of no pod: {:?}",
        granted(server)
    );
}

#[tokio::test(start_paused = true)]
async fn a_job_that_ends_loses_its_right_before_its_status_says_so() {
    let (operator, job) = with_exec(Server::default());
    operator.apply(&job);
    run(&operator, 2).await;
    pod_is(&operator, "a-launcher-0", "Succeeded");
    operator.settle().await;
    let server = &operator.server;
    assert_eq!(server.status()["phase"], "Succeeded");
    assert_eq!(granted(server).last(), Some(&Value::Null));
    let writes = server.writes.lock().unwrap();
    let last = |end: &str| {
        writes
            .iter()
            .rposition(|(_, path, _)| path.ends_with(end))
            .unwrap()
    };
    assert!(last("/roles/a-mpi") < last("/status"));
}

/// A finalizer may keep it for long.
#[tokio::test(start_paused = true)]
async fn a_job_that_is_being_deleted_loses_its_right_and_nothing_else_is_done() {
    let (operator, mut job) = with_exec(Server::default());
    operator.apply(&job);
    run(&operator, 2).await;
    let writes = || operator.server.total() - operator.server.count("POST events");
    let before = writes();
    job["metadata"]["deletionTimestamp"] = json!("2026-01-02T03:04:05Z");
    job["metadata"]["resourceVersion"] = json!("900000");
    job["status"] = operator.server.status();
    operator.apply(&job);
    operator.settle().await;
    operator.settle().await;
    let server = &operator.server;
    assert_eq!(granted(server).last(), Some(&Value::Null));
    assert_eq!(writes(), before + 1);
}

/// Its pods go on. Nobody sees any more which of them are left: pods of others may get their names.
#[tokio::test(start_paused = true)]
async fn a_job_that_can_not_be_read_any_more_loses_its_right() {
    for deleted_at in [Value::Null, json!("2026-01-02T03:04:05Z")] {
        let (operator, mut job) = with_exec(Server::default());
        operator.apply(&job);
        run(&operator, 2).await;
        let good = job.clone();
        job["metadata"]["resourceVersion"] = json!("900000");
        job["metadata"]["deletionTimestamp"] = deleted_at.clone();
        job["status"] = operator.server.status();
        job["spec"]["roles"] = json!("many");
        operator.apply(&job);
        operator.settle().await;
        let (server, reads) = (&operator.server, operator.server.reads());
        assert_eq!(granted(server).last(), Some(&Value::Null), "{deleted_at}");
        operator.settle().await;
        assert_eq!(server.reads(), reads, "it is known to be done");
        if deleted_at.is_null() {
            let mut again = good;
            again["metadata"]["resourceVersion"] = json!("950000");
            again["status"] = job["status"].clone();
            operator.apply(&again);
            operator.settle().await;
            let both = json!(["a-worker-0", "a-worker-1"]);
            assert_eq!(granted(server).last(), Some(&both), "it can be read again");
        }
    }
}

/// Another operator has created its right and its pods, and died before it wrote a status.
#[tokio::test(start_paused = true)]
async fn a_job_without_a_status_that_does_not_go_on_loses_its_right() {
    let deleted = |job: &mut Value| job["metadata"]["deletionTimestamp"] = json!("2026-01-02T03:04:05Z");
    let suspended = |job: &mut Value| job["spec"]["suspend"] = json!(true);
    let malformed = |job: &mut Value| job["spec"]["roles"] = json!("many");
    for stop in [deleted, suspended, malformed] {
        let (operator, mut job) = with_exec(Server::default());
        operator.server.has_a_secret();
        stop(&mut job);
        operator.apply(&job);
        operator.settle().await;
        assert_eq!(granted(&operator.server), [Value::Null], "{job}");
    }
}

/// An operator that may not change rights has given none, and does not ask for them.
#[tokio::test(start_paused = true)]
async fn nobody_asks_for_the_right_of_a_bad_job_where_there_are_none() {
    let operator = with_agent(Server::default());
    let mut bad = mpi(2);
    bad["spec"]["roles"] = json!("many");
    operator.apply(&bad);
    operator.settle().await;
    assert_eq!(operator.server.reads(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_right_that_is_there_is_made_what_it_should_be() {
    let (operator, job) = with_exec(Server::default());
    operator.server.has_a_secret();
    operator.apply(&job);
    operator.settle().await;
    assert_eq!(
        operator.server.count("PATCH a-mpi"),
        3,
        "its binding; and the Role, which covered whatever it did: no pod, and those that were made"
    );
    assert_eq!(
        granted(&operator.server),
        [Value::Null, json!(["a-worker-0", "a-worker-1"])]
    );
    assert_eq!(operator.server.count("POST pods"), 2, "workers");
}

#[tokio::test(start_paused = true)]
async fn a_right_is_looked_for_before_each_launcher_and_given_again_if_it_is_gone() {
    let (operator, job) = with_exec(Server::default());
    operator.apply(&job);
    run(&operator, 2).await;
    let server = &operator.server;
    let kinds = ["serviceaccounts", "roles", "rolebindings"];
    let given = || kinds.map(|kind| server.count(&format!("POST {kind}")));
    assert_eq!(
        (given(), server.reads()),
        ([1; 3], 1 + 3),
        "the launcher is made when the workers are ready"
    );
    fails(&operator, "a-worker-0").await;
    assert_eq!(given(), [1; 3], "workers do not have it");
    let both = json!(["a-worker-0", "a-worker-1"]);
    assert_eq!(granted(server), [both.clone(), json!(["a-worker-1"]), both]);
    pod_is(&operator, "a-worker-0", "Running");
    // There is nothing of the name any more.
    *server.taken.lock().unwrap() = Some("another".to_owned());
    fails(&operator, "a-launcher-0").await;
    assert_eq!((given(), server.count("POST pods")), ([2; 3], 3 + 1 + 1));
}

#[tokio::test(start_paused = true)]
async fn an_account_of_somebody_else_is_told_and_never_touched() {
    let (operator, job) = with_exec(Server::default());
    *operator.server.taken.lock().unwrap() = Some("a-mpi".to_owned());
    operator.apply(&job);
    operator.settle().await;
    let accepted = operator.server.status()["conditions"][0].clone();
    assert_eq!(accepted["reason"], "OwnershipConflict");
    let said = accepted["message"].as_str().unwrap();
    assert!(
        said.starts_with("ServiceAccount \"a-mpi\" exists and belongs to nobody"),
        "{said}"
    );
    let server = &operator.server;
    assert_eq!(
        ["POST roles", "POST pods", "PATCH a-mpi"].map(|what| server.count(what)),
        [0, 0, 0]
    );
}
