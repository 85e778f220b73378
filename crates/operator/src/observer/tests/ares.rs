//! What programs hear that ask as they asked AresOperator.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::*;
use crate::observer::AresObserver;

/// A world, and how AresOperator's observer would answer in it.
struct Ares {
    world: World,
    router: Router,
}

impl Ares {
    fn new(listed: bool) -> Self {
        // It leads nothing, and needs no keys.
        let world = World::led(listed, false);
        let router = observer(&world).router();
        Self { world, router }
    }

    async fn get(&self, path: &str) -> (u16, Value) {
        let request = axum::http::Request::get(path).body(Body::empty()).unwrap();
        let response = self.router.clone().oneshot(request).await.unwrap();
        let status = response.status().as_u16();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        (status, serde_json::from_slice(&body).unwrap())
    }
}

fn observer(world: &World) -> AresObserver {
    AresObserver::new(
        world.index.clone(),
        SharedSettings::default(),
        Arc::new(SystemClock),
    )
}

#[tokio::test]
async fn it_says_that_it_is_there() {
    for listed in [true, false] {
        assert_eq!(
            Ares::new(listed).get("/cache/ping").await,
            (200, json!("pong")),
            "{listed}"
        );
    }
}

#[tokio::test]
async fn all_addresses_of_a_role_are_told_when_all_of_it_runs_and_none_before() {
    let ares = Ares::new(true);
    let launcher = json!({"phase": "Starting", "running": false});
    let expect = |worker: Value| (200, json!({"launcher": launcher, "worker": worker}));
    let starting = json!({"phase": "Starting", "running": false});
    assert_eq!(ares.get("/cache/keys/ns.a").await, expect(starting.clone()));
    ares.world.pod("a", "worker-1", "Running", 20);
    assert_eq!(ares.get("/cache/keys/ns.a").await, expect(starting.clone()));
    ares.world.pod("a", "worker-0", "Running", 21);
    let running = json!({"phase": "Running", "running": true, "ips": ["10.1.2.2", "10.1.2.3"]});
    assert_eq!(ares.get("/cache/keys/ns.a").await, expect(running));
    assert_eq!(ares.get("/cache/keys/ns.b").await, expect(starting));
    let ended = json!({"phase": "Succeeded", "roles": [
        {"name": "launcher", "phase": "Succeeded"},
        {"name": "worker", "phase": "Stopped"},
    ]});
    ares.world.job("a", &ended, 30);
    let succeeded = json!({"phase": "Succeeded", "running": false});
    assert_eq!(
        ares.get("/cache/keys/ns.a").await,
        (200, json!({"launcher": succeeded, "worker": succeeded}))
    );
}

/// Such a job is never accepted, because its name could be no host's; but it is there.
#[tokio::test]
async fn a_name_may_have_dots_and_a_job_that_was_not_accepted_has_no_roles() {
    let ares = Ares::new(true);
    assert_eq!(ares.get("/cache/keys/ns.a.v2.1").await.0, 404);
    ares.world.job("a.v2.1", &json!({"phase": "Pending"}), 40);
    assert_eq!(ares.get("/cache/keys/ns.a.v2.1").await, (200, json!({})));
    assert_eq!(ares.get("/cache/keys/ns%2Ea.v2.1").await, (200, json!({})));
}

#[tokio::test]
async fn what_is_not_there_is_said_in_a_sentence_that_their_programs_can_read() {
    let ares = Ares::new(true);
    let response = |status: u16, code: &str, message: &str, error: &str| {
        (status, json!({"code": code, "message": message, "error": error}))
    };
    assert_eq!(
        ares.get("/cache/keys/ns.none").await,
        response(
            404,
            "230404",
            "NotFound",
            "there is no job ns/none where this operator looks"
        )
    );
    // The pods of a job are no jobs, nor is what is in another namespace.
    for key in ["ns.a-worker-0", "other.a", "a.ns"] {
        let (status, said) = ares.get(&format!("/cache/keys/{key}")).await;
        assert_eq!((status, &said["code"]), (404, &json!("230404")), "{key}");
    }
    for key in ["ns", "ns.", ".a"] {
        let said = format!("{key:?} is no job: give its namespace, a dot, and its name");
        assert_eq!(
            ares.get(&format!("/cache/keys/{key}")).await,
            response(400, "230400", "InvalidParam", &said)
        );
    }
    for path in ["/", "/cache", "/cache/keys/", "/metrics", "/v1/jobs/ns/a"] {
        let (status, said) = ares.get(path).await;
        assert_eq!(status, 404, "{path}");
        assert!(said["error"].as_str().unwrap().contains("/cache/ping"), "{said}");
    }
}

#[tokio::test]
async fn one_that_knows_nothing_yet_says_so() {
    let ares = Ares::new(false);
    let said = json!({
        "code": "230503",
        "message": "Unavailable",
        "error": "jobs and pods have not been listed yet: ask again",
    });
    assert_eq!(ares.get("/cache/keys/ns.a").await, (503, said));
}

/// Thousands may ask, each twice a minute: nobody keeps a connection meanwhile.
#[tokio::test]
async fn it_is_served_without_tls_and_a_connection_ends_with_its_answer() {
    let world = World::new();
    let listener = crate::http::bind(([127, 0, 0, 1], 0).into()).await.unwrap();
    let address = listener.local_addr().unwrap();
    let server = tokio::spawn(observer(&world).serve(listener, world.shutdown.clone()));
    let ask = async |request: &str| {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut said = String::new();
        let end = timeout(HANG_LIMIT, stream.read_to_string(&mut said));
        end.await.expect("the server ends the connection").unwrap();
        said
    };
    let ping = ask("GET /cache/ping HTTP/1.1\r\nhost: ares-observer.ares\r\n\r\n").await;
    assert!(
        ping.starts_with("HTTP/1.1 200") && ping.ends_with("\r\n\"pong\""),
        "{ping}"
    );
    assert!(ping.contains("content-type: application/json"), "{ping}");
    let keys = ask("GET /cache/keys/ns.none HTTP/1.1\r\nhost: x\r\n\r\n").await;
    assert!(keys.starts_with("HTTP/1.1 404"), "{keys}");
    let old = ask("GET /cache/keys/ns.a HTTP/1.0\r\n\r\n").await;
    assert!(
        old.starts_with("HTTP/1.0 200") && old.contains("\"worker\""),
        "{old}"
    );
    world.shutdown.cancel();
    server.await.unwrap();
}
