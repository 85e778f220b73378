//! Pods that say how far they are, and those that follow the hosts of their job.

use super::*;

const PROGRESS: &str = "/v1/jobs/ns/a/progress";

async fn say(world: &World, pod: &str, body: &str) -> (u16, String) {
    let request = axum::http::Request::put(PROGRESS)
        .header("authorization", format!("Bearer {}", world.token(pod)))
        .body(Body::from(body.to_owned()))
        .unwrap();
    let response = world.router.clone().oneshot(request).await.unwrap();
    let status = response.status().as_u16();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    (status, String::from_utf8_lossy(&body).into_owned())
}

async fn step(world: &World) -> Value {
    let (_, body) = world
        .response("/v1/jobs/ns/a", Some(&world.token("a-worker-0")))
        .await;
    serde_json::from_str::<Value>(&body).unwrap()["progress"]["step"].clone()
}

#[tokio::test(start_paused = true)]
async fn the_first_pod_that_says_something_speaks_for_the_job() {
    let world = World::new();
    assert_eq!(say(&world, "a-worker-1", r#"{"step": 1}"#).await.0, 200);
    assert_eq!(step(&world).await, 1);
    assert_eq!(say(&world, "a-worker-0", r#"{"step": 2}"#).await.0, 200);
    assert_eq!(
        say(&world, "a-worker-1", r#"{"step": 3}"#).await.0,
        200,
        "and nobody hears it"
    );
    assert_eq!(step(&world).await, 2);
    assert_eq!(*world.woken.lock(), ["ns/a", "ns/a"]);
    let (status, why) = say(&world, "a-worker-0", r#"{"step": 4}"#).await;
    assert_eq!((status, why.contains("wait a second")), (429, true));
    tokio::time::advance(Duration::from_secs(1)).await;
    assert_eq!(say(&world, "a-worker-0", r#"{"step": 2}"#).await.0, 200);
    assert_eq!(world.woken.lock().len(), 2, "that is no news");
}

#[tokio::test]
async fn others_and_nonsense_are_refused() {
    let world = World::new();
    assert_eq!(say(&world, "b-worker-0", r#"{"step": 1}"#).await.0, 403);
    assert_eq!(say(&world, "a-worker-0", "step=1").await.0, 400);
    assert_eq!(say(&world, "a-worker-0", &" ".repeat(9000)).await.0, 413);
    assert_eq!(world.woken.lock().len(), 0);
    let other = World::led(true, false);
    let (status, why) = say(&other, "a-worker-0", r#"{"step": 1}"#).await;
    assert_eq!((status, why.contains("another connection")), (421, true));
}

/// Only what a pod of the job says is a checkpoint of it.
#[tokio::test]
async fn a_checkpoint_that_a_pod_of_another_job_reports_is_refused() {
    let world = World::new();
    let report = async |pod: &str| {
        let request = axum::http::Request::put("/v1/jobs/ns/a/drain")
            .header("authorization", format!("Bearer {}", world.token(pod)))
            .body(Body::from(r#"{"state": "CheckpointDone", "step": 7}"#))
            .unwrap();
        world
            .router
            .clone()
            .oneshot(request)
            .await
            .unwrap()
            .status()
            .as_u16()
    };
    assert_eq!(report("b-worker-0").await, 403);
    assert_eq!(report("a-worker-0").await, 200);
}

#[tokio::test]
async fn hosts_are_told_by_number() {
    let world = World::new();
    let response = world
        .get("/v1/jobs/ns/a/hosts", Some(&world.token("a-launcher-0")))
        .await;
    let mut body = response.into_body();
    let said: Value = serde_json::from_str(&line(&mut body).await.unwrap()).unwrap();
    let worker = json!({"name": "worker", "replicas": 2, "ready": ""});
    assert_eq!(said["roles"][1], worker);
    let stranger = world
        .response("/v1/jobs/ns/a/hosts", Some(&world.token("b-launcher-0")))
        .await;
    assert_eq!(stranger.0, 403);
}
