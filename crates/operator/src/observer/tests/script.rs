//! Launchers that are told which script to run, and say how it ended.

use futures::FutureExt;
use trainyard_contract::script::{ScriptEnd, ScriptReport, ScriptRun};
use trainyard_core::local_state::{ScriptOffer, ScriptTask};

use super::*;

const SCRIPT: &str = "/v1/jobs/ns/a/script";

fn task(attempt: i32) -> ScriptTask {
    ScriptTask {
        pod_uid: "a-launcher-0-uid".into(),
        run: ScriptRun {
            request: "u".to_owned(),
            attempt,
            program: "/bin/true".to_owned(),
            args: Vec::new(),
            env: vec![("SECRET".to_owned(), "s3cret".to_owned())],
            timeout_seconds: 60,
        },
    }
}

async fn say(world: &World, pod: &str, attempt: i32) -> u16 {
    let report = ScriptReport {
        request: "u".to_owned(),
        attempt,
        end: ScriptEnd::Exited { code: 0 },
        output: String::new(),
    };
    let request = axum::http::Request::put(SCRIPT)
        .header("authorization", format!("Bearer {}", world.token(pod)))
        .body(Body::from(report.write()))
        .unwrap();
    let response = world.router.clone().oneshot(request).await.unwrap();
    response.status().as_u16()
}

fn is_reported(world: &World) -> bool {
    let local = world.index.local("a-uid").unwrap();
    local
        .script
        .offered()
        .is_some_and(|offered| offered.report.is_some())
}

#[tokio::test]
async fn the_launcher_alone_is_told_what_to_run_and_says_how_it_ended() {
    let world = World::new();
    let key = JobKey::new("ns", "a");
    let follow = async |pod: &str| world.get(SCRIPT, Some(&world.token(pod))).await.into_body();
    let mut launcher = follow("a-launcher-0").await;
    // Nobody has decided yet: a script that runs goes on.
    assert!(line(&mut launcher).now_or_never().is_none());
    world.index.offer_script(&key, None);
    assert_eq!(line(&mut launcher).await.unwrap(), "{\"state\":\"Idle\"}\n");
    world.index.offer_script(&key, Some(task(1)));
    let said = line(&mut launcher).await.unwrap();
    assert!(
        said.contains("\"attempt\":1") && said.contains("s3cret"),
        "{said}"
    );

    let mut worker = follow("a-worker-0").await;
    assert_eq!(line(&mut worker).await.unwrap(), "{\"state\":\"Idle\"}\n");
    let (_, job) = world
        .response("/v1/jobs/ns/a", Some(&world.token("a-worker-0")))
        .await;
    assert!(!job.contains("s3cret"), "{job}");

    let mut changes = world.index.listen();
    assert_eq!(say(&world, "b-launcher-0", 1).await, 403);
    assert_eq!(say(&world, "a-worker-0", 1).await, 200);
    assert_eq!(say(&world, "a-launcher-0", 2).await, 200);
    assert!(!is_reported(&world), "of another pod, and of another attempt");
    assert_eq!(say(&world, "a-launcher-0", 1).await, 200);
    assert!(is_reported(&world));
    assert_eq!(changes.recv().await, Some(key.clone()), "the request goes on");
    world.index.offer_script(&key, Some(task(2)));
    assert!(!is_reported(&world));
    // Another term begins with nothing.
    world.index.forget_former_terms();
    assert_eq!(world.index.local("a-uid").unwrap().script, ScriptOffer::Undecided);
}

#[tokio::test]
async fn a_replica_that_does_not_lead_tells_nothing() {
    let world = World::led(true, false);
    let (status, why) = world.response(SCRIPT, Some(&world.token("a-launcher-0"))).await;
    assert_eq!((status, why.contains("another connection")), (421, true));
    assert_eq!(say(&world, "a-launcher-0", 1).await, 421);
}
