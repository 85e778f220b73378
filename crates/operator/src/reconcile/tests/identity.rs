//! The Secrets by which the pods of a job know each other.

use base64::Engine as _;
use http::Method;
use trainyard_core::plan::pace::{CONFLICT_CHECK_INTERVAL, OVERDUE_AFTER};
use trainyard_core::view::Agent;

use super::server::left_by_a_former_job;
use super::*;

pub(super) fn mpi(workers: usize) -> Value {
    let template = json!({"spec": {"containers": [{"name": "main", "image": "i", "command": ["mpirun"]}]}});
    let mut job = job(1);
    // One pod after the other, so that each can be looked at.
    job["spec"] = json!({"framework": {"name": "mpi"}, "roles": [
        {"name": "launcher", "restartScope": "Pod", "template": template},
        {"name": "worker", "restartScope": "Pod", "replicas": workers, "template": template},
    ]});
    job
}

/// An operator that has an agent and can't tell it anything.
pub(super) fn with_agent(server: Server) -> Operator {
    let operator = Operator::before(server);
    operator.settings.set_agent(Some(Agent {
        image: "trainyard".to_owned(),
        image_pull_policy: None,
        may_be_root: false,
        command: vec!["/trainyard-agent".to_owned()],
        observer: None,
    }));
    operator
}

/// The watch says that a pod is in a phase, and ready if it runs.
pub(super) fn pod_is(operator: &Operator, name: &str, phase: &str) {
    let mut pod = operator.server.pod_of(name, phase);
    pod["status"]["conditions"] = json!([{"type": "Ready", "status": "True"}]);
    let pod = serde_json::from_value(pod).unwrap();
    operator.reconciler.index.apply_pod(pod, Source::Watch);
}

pub(super) async fn run(operator: &Operator, workers: usize) {
    operator.settle().await;
    for index in 0..workers {
        pod_is(operator, &format!("a-worker-{index}"), "Running");
    }
    operator.settle().await;
    pod_is(operator, "a-launcher-0", "Running");
    operator.settle().await;
}

#[tokio::test(start_paused = true)]
async fn a_job_costs_one_secret_more_than_any_other() {
    let operator = with_agent(Server::default());
    operator.apply(&mpi(5));
    run(&operator, 5).await;
    let server = &operator.server;
    assert_eq!(server.status()["phase"], "Running");
    let counts = ["POST pods", "POST services", "POST secrets", "PUT status"].map(|what| server.count(what));
    assert_eq!(counts, [6, 1, 1, 1]);
    assert_eq!(
        server.total() - server.count("POST events"),
        counts.iter().sum::<usize>()
    );
    assert_eq!(
        server.reads(),
        1,
        "the launcher is made when the workers are ready"
    );
    let (before, _) = (server.total(), operator.settle().await);
    assert_eq!(server.total(), before, "a job at rest costs nothing");
}

#[tokio::test(start_paused = true)]
async fn the_secret_is_there_before_the_first_pod_and_is_the_jobs_own() {
    let operator = with_agent(Server::default());
    operator.apply(&mpi(2));
    operator.settle().await;
    let writes = operator.server.writes.lock().unwrap();
    let position = |what: &str| {
        writes
            .iter()
            .position(|(_, path, _)| path.ends_with(what))
            .unwrap()
    };
    assert!(position("/secrets") < position("/pods"));
    let secret = &writes[position("/secrets")].2;
    assert_eq!(secret["metadata"]["name"], "a-mpi");
    assert_eq!(secret["metadata"]["ownerReferences"][0]["uid"], "u1");
    assert_eq!(secret["metadata"]["ownerReferences"][0]["controller"], true);
    assert_eq!(secret["metadata"]["labels"]["trainyard.dev/job"], "a");
    assert_eq!(
        (&secret["immutable"], &secret["type"]),
        (&json!(true), &json!("kubernetes.io/tls"))
    );
    let key = secret["data"]["tls.key"].as_str().unwrap();
    let key = base64::engine::general_purpose::STANDARD.decode(key).unwrap();
    assert!(key.starts_with(b"-----BEGIN PRIVATE KEY-----"));
    // It is in this one write and in no other: no event, no status, no pod.
    let line = String::from_utf8(key).unwrap().lines().nth(1).unwrap().to_owned();
    for (_, path, body) in writes.iter().filter(|(_, path, _)| !path.ends_with("/secrets")) {
        assert!(!body.to_string().contains(&line), "{path}");
    }
    assert!(!format!("{:?}", operator.reconciler.index).contains(&line));
}

#[tokio::test(start_paused = true)]
async fn an_operator_that_is_new_asks_for_the_secret_only_if_pods_are_to_be_made() {
    let first = with_agent(Server::default());
    first.apply(&mpi(2));
    run(&first, 2).await;
    let written = first.server.job();
    let second = with_agent(first.server.clone());
    second.apply(&written);
    for service in first.server.created("/services") {
        second
            .reconciler
            .index
            .apply_service(&serde_json::from_value(service).unwrap(), Source::Watch);
    }
    for name in ["a-worker-0", "a-worker-1", "a-launcher-0"] {
        pod_is(&second, name, "Running");
    }
    let before = (second.server.total(), second.server.reads());
    second.settle().await;
    assert_eq!(
        (second.server.total(), second.server.reads()),
        before,
        "nothing to do"
    );

    pod_is(&second, "a-worker-1", "Failed");
    second.server.has_a_secret();
    second.settle().await;
    let gone: SlimMeta = serde_json::from_value(second.server.pod_of("a-worker-1", "")).unwrap();
    second.reconciler.index.delete_child(Kind::Pod, &gone.metadata);
    tokio::time::advance(Duration::from_mins(1)).await;
    second.settle().await;
    assert_eq!(second.server.count("POST pods"), 4, "the replacement");
    assert_eq!(
        (second.server.count("POST secrets"), second.server.reads()),
        (1, before.1 + 1),
        "looked for, and found to be ours"
    );
    assert_eq!(second.server.count("PATCH a-mpi"), 0);
}

/// The pod is gone, and the watch says so.
fn goes(operator: &Operator, name: &str) {
    let gone: SlimMeta = serde_json::from_value(operator.server.pod_of(name, "")).unwrap();
    operator.reconciler.index.delete_child(Kind::Pod, &gone.metadata);
}

/// A pod fails and is replaced, if it can be.
pub(super) async fn fails(operator: &Operator, name: &str) {
    pod_is(operator, name, "Failed");
    operator.settle().await;
    goes(operator, name);
    tokio::time::advance(Duration::from_mins(1)).await;
    operator.settle().await;
}

#[tokio::test(start_paused = true)]
async fn it_is_looked_for_once_for_all_pods_that_are_made_together() {
    let operator = with_agent(Server::default());
    operator.apply(&mpi(3));
    run(&operator, 3).await;
    let server = &operator.server;
    assert_eq!(server.reads(), 1, "for the launcher");
    for name in ["a-worker-0", "a-worker-1"] {
        pod_is(&operator, name, "Failed");
    }
    operator.settle().await;
    for name in ["a-worker-0", "a-worker-1"] {
        goes(&operator, name);
    }
    operator.settle().await;
    assert_eq!(
        (server.count("POST pods"), server.reads()),
        (4 + 2, 2),
        "for both"
    );
    pod_is(&operator, "a-worker-2", "Failed");
    operator.settle().await;
    goes(&operator, "a-worker-2");
    operator.settle().await;
    assert_eq!(
        (server.count("POST pods"), server.reads()),
        (4 + 3, 3),
        "and again"
    );
    assert_eq!(server.count("POST secrets"), 1);
}

#[tokio::test(start_paused = true)]
async fn a_job_whose_secret_is_gone_says_so_and_starts_anew_when_it_may() {
    let operator = with_agent(Server::default());
    operator.apply(&mpi(2));
    run(&operator, 2).await;
    let server = &operator.server;
    let reads = server.reads() + 1;
    *server.taken.lock().unwrap() = Some("another".to_owned());
    fails(&operator, "a-worker-1").await;
    let accepted = server.status()["conditions"][0].clone();
    assert_eq!(
        (&accepted["status"], &accepted["reason"]),
        (&json!("False"), &json!("SecretMissing")),
        "{accepted}"
    );
    let said = accepted["message"].as_str().unwrap();
    assert!(said.starts_with("Secret \"a-mpi\" is gone"), "{said}");
    let counts = || ["POST pods", "POST secrets"].map(|what| server.count(what));
    assert_eq!((counts(), server.reads()), ([3, 1], reads));
    let mut totals = Vec::new();
    for _ in 0..3 {
        tokio::time::advance(Duration::from_mins(10)).await;
        operator.settle().await;
        totals.push((server.total(), server.reads()));
    }
    // The first has the counters that changed last.
    assert_eq!(totals[1..], [(totals[0].0, reads); 2], "it costs nothing to wait");

    fails(&operator, "a-launcher-0").await;
    assert_eq!(server.count("DELETE a-worker-0"), 1);
    assert_eq!(counts(), [3, 1], "the worker has not gone yet");
    goes(&operator, "a-worker-0");
    operator.settle().await;
    assert_eq!(counts(), [3 + 2, 2], "workers");
    *server.taken.lock().unwrap() = None;
    for name in ["a-worker-0", "a-worker-1"] {
        pod_is(&operator, name, "Running");
    }
    operator.settle().await;
    pod_is(&operator, "a-launcher-0", "Running");
    operator.settle().await;
    assert_eq!(server.status()["phase"], "Running");
    assert_eq!(server.status()["conditions"][0]["reason"], "Valid");
}

/// The node that a pod was placed on has not begun with it.
fn is_bound(operator: &Operator, name: &str) {
    let mut pod = operator.server.pod_of(name, "Pending");
    pod["spec"]["nodeName"] = json!("n1");
    let pod = serde_json::from_value(pod).unwrap();
    operator.reconciler.index.apply_pod(pod, Source::Watch);
}

#[tokio::test(start_paused = true)]
async fn the_secret_is_looked_for_now_and_then_while_pods_can_not_start() {
    let operator = with_agent(Server::default());
    operator.apply(&mpi(2));
    operator.settle().await;
    let server = &operator.server;
    for name in ["a-worker-0", "a-worker-1"] {
        is_bound(&operator, name);
    }
    operator.live(OVERDUE_AFTER / 2).await;
    assert_eq!(server.reads(), 0, "most start in a moment");
    operator.live(OVERDUE_AFTER).await;
    assert_eq!(server.reads(), 1);
    operator.live(Duration::from_hours(1)).await;
    let reads = server.reads();
    assert!((8..=12).contains(&reads), "{reads}");
    assert_eq!((server.deletions(), server.count("POST pods")), (0, 2));
    // It is gone.
    *server.taken.lock().unwrap() = Some("another".to_owned());
    operator.live(Duration::from_mins(6)).await;
    assert_eq!(server.status()["conditions"][0]["reason"], "SecretMissing");
    assert_eq!(server.deletions(), 2);
    for name in ["a-worker-0", "a-worker-1"] {
        goes(&operator, name);
    }
    operator.live(Duration::from_mins(1)).await;
    assert_eq!((server.count("POST secrets"), server.count("POST pods")), (2, 4));
}

#[tokio::test(start_paused = true)]
async fn a_secret_that_the_user_names_is_not_asked_for_made_or_changed() {
    let operator = with_agent(Server::default());
    let mut job = mpi(2);
    job["spec"]["framework"]["mpi"] = json!({"attach": "Ssh", "sshAuthSecretName": "keys"});
    operator.apply(&job);
    run(&operator, 2).await;
    fails(&operator, "a-worker-1").await;
    let server = &operator.server;
    assert_eq!(server.count("POST pods"), 3 + 1);
    assert_eq!(server.status()["conditions"][0]["reason"], "Valid");
    let writes = server.writes.lock().unwrap();
    let of_secrets = writes.iter().filter(|(_, path, _)| path.contains("/secrets"));
    assert_eq!((of_secrets.count(), server.reads()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_secret_of_somebody_else_is_told_and_never_touched() {
    let operator = with_agent(Server::default());
    *operator.server.taken.lock().unwrap() = Some("a-mpi".to_owned());
    operator.apply(&mpi(2));
    operator.settle().await;
    let accepted = operator.server.status()["conditions"][0].clone();
    assert_eq!(
        (&accepted["type"], &accepted["reason"]),
        (&json!("Accepted"), &json!("OwnershipConflict"))
    );
    let said = accepted["message"].as_str().unwrap();
    assert!(
        said.starts_with("Secret \"a-mpi\" exists and belongs to nobody"),
        "{said}"
    );
    assert_eq!(operator.server.count("POST pods"), 0);
    *operator.server.taken.lock().unwrap() = Some("another".to_owned());
    tokio::time::advance(CONFLICT_CHECK_INTERVAL).await;
    operator.settle().await;
    assert_eq!(
        (
            operator.server.count("POST pods"),
            operator.server.count("POST secrets")
        ),
        (2, 1)
    );
    assert_eq!(operator.server.deletions(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_secret_that_a_former_job_left_is_waited_for() {
    let operator = with_agent(Server::default());
    *operator.server.former.lock().unwrap() = Some("a-mpi".to_owned());
    operator.apply(&mpi(2));
    operator.settle().await;
    assert_eq!(operator.server.count("POST pods"), 0);
    *operator.server.former.lock().unwrap() = None;
    tokio::time::advance(Duration::from_secs(10)).await;
    operator.settle().await;
    assert_eq!(operator.server.count("POST pods"), 2, "workers");
}

#[tokio::test(start_paused = true)]
async fn a_secret_that_is_refused_keeps_the_pods_away() {
    let operator = with_agent(Server::default());
    *operator.server.denied.lock().unwrap() = Some(Method::POST);
    operator.apply(&mpi(2));
    operator.settle().await;
    assert_eq!(operator.server.count("POST pods"), 0);
    *operator.server.denied.lock().unwrap() = None;
    tokio::time::advance(Duration::from_mins(5)).await;
    operator.settle().await;
    assert_eq!(operator.server.count("POST pods"), 2);
}

#[tokio::test(start_paused = true)]
async fn a_resumed_job_finds_its_secret_again() {
    let operator = with_agent(Server::default());
    operator.apply(&mpi(1));
    run(&operator, 1).await;
    for suspend in [true, false] {
        let mut job = operator.server.job();
        job["spec"]["suspend"] = json!(suspend);
        job["metadata"]["generation"] = json!(if suspend { 2 } else { 3 });
        operator.apply(&job);
        operator.server.has_a_secret();
        operator.settle().await;
        for name in ["a-worker-0", "a-launcher-0"] {
            if suspend {
                goes(&operator, name);
            }
        }
        operator.settle().await;
    }
    run(&operator, 1).await;
    assert_eq!(operator.server.status()["phase"], "Running");
    assert_eq!(
        (operator.server.count("POST secrets"), operator.server.reads()),
        (2, 3),
        "refused, and found to be ours; and looked for before each launcher"
    );
    assert_eq!(operator.server.count("DELETE a-mpi"), 0);
}

#[tokio::test(start_paused = true)]
async fn without_an_agent_nothing_is_made() {
    let operator = Operator::new();
    operator.apply(&mpi(1));
    operator.settle().await;
    assert_eq!(operator.server.status()["conditions"][0]["reason"], "Unsupported");
    let server = operator.end().await;
    assert_eq!(
        (
            server.count("PUT status"),
            server.count("POST events"),
            server.total()
        ),
        (1, 1, 2)
    );
}

#[tokio::test(start_paused = true)]
async fn with_ssh_the_secret_is_a_key() {
    let operator = with_agent(Server::default());
    let mut job = mpi(2);
    job["spec"]["framework"]["mpi"] = json!({"attach": "Ssh"});
    operator.apply(&job);
    run(&operator, 2).await;
    let secrets = operator.server.created("/secrets");
    assert_eq!(secrets.len(), 1);
    assert_eq!(
        (&secrets[0]["metadata"]["name"], &secrets[0]["type"]),
        (&json!("a-ssh"), &json!("kubernetes.io/ssh-auth"))
    );
    let keys: Vec<_> = secrets[0]["data"].as_object().unwrap().keys().collect();
    assert_eq!(keys, ["ssh-privatekey", "ssh-publickey"]);
}

/// The user changes how processes are started.
fn with_ssh(operator: &Operator, generation: i64, suspend: bool) {
    let mut job = operator.server.job();
    job["spec"]["suspend"] = json!(suspend);
    job["spec"]["framework"]["mpi"] = json!({"attach": "Ssh"});
    job["metadata"]["generation"] = json!(generation);
    operator.apply(&job);
}

#[tokio::test(start_paused = true)]
async fn a_secret_that_is_not_needed_any_more_is_in_nobodys_way() {
    let operator = with_agent(Server::default());
    *operator.server.taken.lock().unwrap() = Some("a-mpi".to_owned());
    operator.apply(&mpi(2));
    operator.settle().await;
    assert_eq!(
        operator.server.status()["conditions"][0]["reason"],
        "OwnershipConflict"
    );
    for (generation, suspend) in [(2, true), (3, false)] {
        with_ssh(&operator, generation, suspend);
        operator.settle().await;
    }
    assert_eq!(
        operator.server.created("/secrets")[0]["metadata"]["name"],
        "a-ssh"
    );
    assert_eq!(
        operator.server.count("POST pods"),
        2,
        "{}",
        operator.server.status()
    );
}

#[tokio::test(start_paused = true)]
async fn a_secret_of_another_kind_is_not_taken_for_the_one_that_is_needed() {
    let operator = with_agent(Server::default());
    *operator.server.taken.lock().unwrap() = Some("a".to_owned());
    operator.apply(&mpi(2));
    operator.settle().await;
    with_ssh(&operator, 2, false);
    operator.settle().await;
    *operator.server.taken.lock().unwrap() = Some("another".to_owned());
    tokio::time::advance(CONFLICT_CHECK_INTERVAL).await;
    operator.settle().await;
    let secrets = operator.server.created("/secrets");
    let names: Vec<_> = secrets.iter().map(|secret| &secret["metadata"]["name"]).collect();
    assert_eq!(names, ["a-mpi", "a-ssh"]);
    assert_eq!(operator.server.count("POST pods"), 2);
}

#[tokio::test(start_paused = true)]
async fn a_secret_that_is_being_deleted_does_not_count() {
    let operator = with_agent(Server::default());
    let mut leaving = left_by_a_former_job("a-mpi");
    leaving["metadata"]["ownerReferences"][0]["uid"] = json!("u1");
    *operator.server.found.lock().unwrap() = Some(leaving);
    operator.server.has_a_secret();
    operator.apply(&mpi(2));
    operator.settle().await;
    assert_eq!(operator.server.count("POST pods"), 0);
    *operator.server.found.lock().unwrap() = None;
    tokio::time::advance(Duration::from_secs(10)).await;
    operator.settle().await;
    assert_eq!(operator.server.count("POST pods"), 2, "one that stays does");
}
