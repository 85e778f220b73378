mod ares;
mod contract;
mod lines;
mod memory;
mod saying;
mod script;

use std::time::Duration;

use axum::body::Body;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use futures::future::BoxFuture;
use http_body_util::BodyExt;
use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair};
use serde_json::{Value, json};
use tokio::time::{Instant, timeout};
use tower::ServiceExt;
use trainyard_eventually::HANG_LIMIT;

use super::keys::{Key, KeyError, read};
use super::*;
use crate::clock::SystemClock;
use crate::index::{Kind, Source};
use crate::slim::{JobObject, SlimPod, Version};

/// A cluster's key.
struct Signer(EcdsaKeyPair);

impl Signer {
    fn new() -> Self {
        let algorithm = &ECDSA_P256_SHA256_FIXED_SIGNING;
        let random = SystemRandom::new();
        let made = EcdsaKeyPair::generate_pkcs8(algorithm, &random).unwrap();
        Self(EcdsaKeyPair::from_pkcs8(algorithm, made.as_ref(), &random).unwrap())
    }

    fn published(&self) -> Vec<Key> {
        let (x, y) = self.0.public_key().as_ref()[1..].split_at(32);
        let encode = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
        let key = json!({"kty": "EC", "crv": "P-256", "kid": "k1", "x": encode(x), "y": encode(y)});
        read(&json!({"keys": [key, {"kty": "OKP", "crv": "Ed25519"}]}).to_string()).unwrap()
    }

    fn token(&self, head: &Value, claims: &Value) -> String {
        let encode = |part: &Value| URL_SAFE_NO_PAD.encode(part.to_string());
        let signed = format!("{}.{}", encode(head), encode(claims));
        let signature = self.0.sign(&SystemRandom::new(), signed.as_bytes()).unwrap();
        format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature))
    }
}

fn head() -> Value {
    json!({"alg": "ES256", "kid": "k1"})
}

/// What the token of a pod says, for so many more seconds.
fn claims(pod: &str, uid: &str, seconds: i64) -> Value {
    let end = Timestamp::now() + SignedDuration::from_secs(seconds);
    json!({
        "aud": ["trainyard"], "exp": end.as_second(), "nbf": end.as_second() - 7200,
        "kubernetes.io": {"namespace": "ns", "pod": {"name": pod, "uid": uid}, "serviceaccount": {"name": "default"}},
    })
}

struct TestKeys(Vec<Key>);

impl Keys for TestKeys {
    fn get(&self, _: Option<&str>) -> BoxFuture<'_, Result<Vec<Key>, KeyError>> {
        Box::pin(async { Ok(self.0.clone()) })
    }
}

/// Two jobs of a launcher that waits for two workers, and an observer of them.
struct World {
    index: Arc<Index>,
    signer: Signer,
    router: Router,
    shutdown: CancellationToken,
    /// Jobs that were to be looked at.
    woken: Arc<Mutex<Vec<String>>>,
}

impl World {
    fn new() -> Self {
        Self::listed(true)
    }

    fn listed(listed: bool) -> Self {
        Self::led(listed, true)
    }

    fn led(listed: bool, leads: bool) -> Self {
        let index = Arc::new(Index::new(&[]));
        for kind in [Kind::Job, Kind::Pod, Kind::Service] {
            index.listing(kind, 0, Version(1));
            if listed {
                index.listed(kind, 0, Version(1), Instant::now());
            }
        }
        let signer = Signer::new();
        let shutdown = CancellationToken::new();
        let observer = Observer::new(
            index.clone(),
            SharedSettings::default(),
            Arc::new(TestKeys(signer.published())),
            Arc::new(SystemClock),
            shutdown.clone(),
        );
        let woken: Arc<Mutex<Vec<String>>> = Arc::default();
        let waking = woken.clone();
        let wake: Wake = Arc::new(move |key| waking.lock().push(key.to_string()));
        let observer = if leads {
            observer.taking_progress(Leadership::always(), wake)
        } else {
            observer
        };
        let world = Self {
            index,
            signer,
            router: observer.router(),
            shutdown,
            woken,
        };
        for job in ["a", "b"] {
            world.job(job, &json!({"phase": "Starting"}), 10);
            world.pod(job, "launcher-0", "Pending", 11);
            world.pod(job, "worker-0", "Pending", 11);
            world.pod(job, "worker-1", "Pending", 11);
        }
        world
    }

    fn job(&self, name: &str, status: &Value, version: u64) {
        let template = json!({"spec": {"containers": [{"name": "c", "image": "i", "command": ["x"]}]}});
        let job = json!({
            "metadata": {"name": name, "namespace": "ns", "uid": format!("{name}-uid"), "generation": 1,
                "resourceVersion": version.to_string()},
            "spec": {"framework": {"name": "custom"}, "progress": "Report", "roles": [
                {"name": "launcher", "template": template, "dependsOn": [{"role": "worker", "state": "Running"}]},
                {"name": "worker", "replicas": 2, "template": template},
            ]},
            "status": status,
        });
        self.index
            .apply_job(JobObject::decode(&job.to_string()).unwrap(), Source::Watch);
    }

    /// A pod, whose address goes with its index.
    fn pod(&self, job: &str, pod: &str, phase: &str, version: u64) {
        self.pod_with(job, pod, phase, &json!([]), version);
    }

    fn pod_with(&self, job: &str, pod: &str, phase: &str, conditions: &Value, version: u64) {
        let name = format!("{job}-{pod}");
        let index: u8 = pod.rsplit('-').next().unwrap().parse().unwrap();
        let pod: SlimPod = serde_json::from_str(
            &json!({
                "metadata": {"name": name, "namespace": "ns", "uid": format!("{name}-uid"),
                    "resourceVersion": version.to_string(),
                    "labels": {"app.kubernetes.io/managed-by": "trainyard", "trainyard.dev/job": job},
                    "ownerReferences": [{"apiVersion": "trainyard.dev/v1alpha1", "kind": "TrainingJob", "name": job,
                        "uid": format!("{job}-uid"), "controller": true}]},
                "status": {"phase": phase, "podIP": format!("10.1.2.{}", index + 2), "conditions": conditions},
            })
            .to_string(),
        )
        .unwrap();
        self.index.apply_pod(pod, Source::Watch);
    }

    fn token(&self, pod: &str) -> String {
        self.signer
            .token(&head(), &claims(pod, &format!("{pod}-uid"), 600))
    }

    async fn get(&self, path: &str, token: Option<&str>) -> Response {
        let mut request = axum::http::Request::get(path);
        if let Some(token) = token {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        let request = request.body(Body::empty()).unwrap();
        self.router.clone().oneshot(request).await.unwrap()
    }

    async fn response(&self, path: &str, token: Option<&str>) -> (u16, String) {
        let response = self.get(path, token).await;
        let status = response.status().as_u16();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        (status, String::from_utf8(body.to_vec()).unwrap())
    }
}

/// The next line of a stream, which must come.
async fn line(body: &mut Body) -> Option<String> {
    let frame = timeout(HANG_LIMIT, body.frame()).await.unwrap()?;
    let bytes = frame.unwrap().into_data().unwrap();
    Some(String::from_utf8(bytes.to_vec()).unwrap())
}

const START: &str = "/v1/jobs/ns/a/start?role=launcher";

#[tokio::test]
async fn who_waits_is_told_the_moment_it_may_start() {
    let world = World::new();
    let response = world.get(START, Some(&world.token("a-launcher-0"))).await;
    assert_eq!(response.status(), 200);
    let mut body = response.into_body();
    assert_eq!(
        line(&mut body).await.unwrap(),
        "{\"state\":\"Wait\",\"message\":\"waits for the role worker to run\"}\n"
    );
    world.pod("a", "worker-0", "Running", 20);
    world.pod("b", "worker-0", "Running", 20);
    world.pod("b", "worker-1", "Running", 20);
    world.pod("a", "worker-1", "Running", 21);
    assert_eq!(line(&mut body).await.unwrap(), "{\"state\":\"Go\"}\n");
    assert_eq!(line(&mut body).await, None, "that was all");
}

#[tokio::test]
async fn who_comes_late_is_told_at_once_and_a_role_that_waits_for_nobody_too() {
    let world = World::new();
    let mut body = world
        .get(
            "/v1/jobs/ns/a/start?role=worker",
            Some(&world.token("a-worker-0")),
        )
        .await
        .into_body();
    assert_eq!(line(&mut body).await.unwrap(), "{\"state\":\"Go\"}\n");
    world.pod("a", "worker-0", "Running", 20);
    world.pod("a", "worker-1", "Running", 21);
    drop(body);
    let mut body = world
        .get(START, Some(&world.token("a-launcher-0")))
        .await
        .into_body();
    // Who follows with others may first hear what these heard last.
    let mut said = line(&mut body).await.unwrap();
    if said.contains("Wait") {
        said = line(&mut body).await.unwrap();
    }
    assert_eq!(said, "{\"state\":\"Go\"}\n");
}

#[tokio::test]
async fn who_waits_in_vain_is_told_so_once_that_is_written_down() {
    let world = World::new();
    let mut body = world
        .get(START, Some(&world.token("a-launcher-0")))
        .await
        .into_body();
    assert!(line(&mut body).await.unwrap().contains("Wait"));
    world.pod("a", "worker-0", "Failed", 20);
    let failed = json!({"phase": "Running", "roles": [{"name": "worker", "phase": "Failed"}]});
    world.job("a", &failed, 30);
    assert_eq!(
        line(&mut body).await.unwrap(),
        "{\"state\":\"Never\",\"message\":\"can't start: waits for the role worker, which has ended\"}\n"
    );
    assert_eq!(line(&mut body).await, None);
}

#[tokio::test(start_paused = true)]
async fn signs_of_life_come_while_nothing_happens_and_the_end_with_the_server() {
    let world = World::new();
    let mut body = world
        .get(START, Some(&world.token("a-launcher-0")))
        .await
        .into_body();
    assert!(line(&mut body).await.unwrap().contains("Wait"));
    for _ in 0..3 {
        assert_eq!(line(&mut body).await.unwrap(), "\n");
    }
    world.shutdown.cancel();
    assert_eq!(line(&mut body).await, None);
}

#[tokio::test]
async fn a_job_is_seen_as_a_whole() {
    let world = World::new();
    world.pod("a", "worker-1", "Running", 20);
    let (status, text) = world
        .response("/v1/jobs/ns/a", Some(&world.token("a-worker-0")))
        .await;
    assert_eq!(status, 200);
    let seen: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(seen["phase"], "Starting");
    let worker = &seen["roles"][1];
    assert_eq!((&worker["running"], &worker["replicas"]), (&json!(1), &json!(2)));
    assert_eq!(
        worker["pods"][1],
        json!({"index": 1, "name": "a-worker-1", "host": "a-worker-1.a.ns.svc.cluster.local",
            "address": "10.1.2.3", "running": true, "ready": false})
    );

    let mut body = world
        .get("/v1/jobs/ns/a?watch=true", Some(&world.token("a-worker-0")))
        .await
        .into_body();
    assert!(line(&mut body).await.unwrap().contains("\"running\":1"));
    world.pod("a", "worker-0", "Running", 21);
    assert!(line(&mut body).await.unwrap().contains("\"running\":2"));
}

#[tokio::test]
async fn nobody_but_its_own_pods_is_told_of_a_job() {
    let world = World::new();
    let foreign = world.token("b-launcher-0");
    let said = "pod \"b-launcher-0\" is not one of job ns/a\n".to_owned();
    for path in [START, "/v1/jobs/ns/a", "/v1/jobs/ns/a?watch=true"] {
        assert_eq!(
            world.response(path, Some(&foreign)).await,
            (403, said.clone()),
            "{path}"
        );
        let (status, _) = world.response(path, None).await;
        assert_eq!(status, 401, "{path}");
    }
    // A former pod of the same name.
    let former = world
        .signer
        .token(&head(), &claims("a-launcher-0", "another", 600));
    assert_eq!(world.response(START, Some(&former)).await.0, 403);
    let mut elsewhere = claims("a-launcher-0", "a-launcher-0-uid", 600);
    elsewhere["kubernetes.io"]["namespace"] = json!("other");
    let elsewhere = world.signer.token(&head(), &elsewhere);
    assert_eq!(world.response(START, Some(&elsewhere)).await.0, 403);
    assert_eq!(world.response("/v1/jobs/ns/none", Some(&foreign)).await.0, 403);
}

#[tokio::test]
async fn tokens_that_prove_nothing_are_refused() {
    let world = World::new();
    let good = claims("a-launcher-0", "a-launcher-0-uid", 600);
    let sign = |head: &Value, claims: &Value| world.signer.token(head, claims);
    let with = |field: &str, value: Value| {
        let mut claims = good.clone();
        claims[field] = value;
        sign(&head(), &claims)
    };
    let mut tampered = sign(&head(), &good);
    tampered.replace_range(40..41, if &tampered[40..41] == "A" { "B" } else { "A" });
    let unsigned = {
        let signed = sign(&json!({"alg": "none"}), &good);
        format!("{}.", signed.rsplit_once('.').unwrap().0)
    };
    let cases = [
        ("another cluster's", Signer::new().token(&head(), &good)),
        (
            "expired",
            sign(&head(), &claims("a-launcher-0", "a-launcher-0-uid", -1)),
        ),
        (
            "not begun",
            with("nbf", json!(Timestamp::now().as_second() + 300)),
        ),
        (
            "for the API server",
            with("aud", json!(["https://kubernetes.default.svc"])),
        ),
        ("for nobody", with("aud", json!([]))),
        ("of no pod", with("kubernetes.io", json!({"namespace": "ns"}))),
        (
            "of another algorithm",
            sign(&json!({"alg": "RS256", "kid": "k1"}), &good),
        ),
        (
            "of a shared key",
            sign(&json!({"alg": "HS256", "kid": "k1"}), &good),
        ),
        ("tampered with", tampered),
        ("unsigned", unsigned),
        ("no token", "x".to_owned()),
        ("dots", "..".to_owned()),
        ("very long", "a.".repeat(20_000)),
    ];
    for (what, token) in &cases {
        let (status, said) = world.response(START, Some(token)).await;
        assert_eq!(status, 401, "{what}: {said}");
        assert!(!said.contains(token.as_str()), "{what} is repeated");
    }
    let one = with("aud", json!("trainyard"));
    assert_eq!(
        world.get(START, Some(&one)).await.status(),
        200,
        "an audience may stand alone"
    );
}

#[tokio::test]
async fn an_observer_that_knows_nothing_yet_says_so() {
    let world = World::listed(false);
    let (status, said) = world.response(START, Some(&world.token("a-launcher-0"))).await;
    assert_eq!(
        (status, &*said),
        (503, "jobs and pods have not been listed yet\n")
    );
}

#[tokio::test]
async fn a_pod_of_a_former_attempt_is_told_nothing_and_named_to_nobody() {
    let world = World::new();
    let paths = ["/v1/jobs/ns/a", "/v1/jobs/ns/a/hosts", "/v1/jobs/ns/a/drain"];
    for path in paths {
        let response = world.get(path, Some(&world.token("a-worker-1"))).await;
        assert_eq!(response.status(), 200, "{path}");
    }
    let anew = json!({"phase": "Restarting", "restarts": {
        "attempts": [{"role": "worker", "attempt": 1}],
        "group": {"roles": ["worker"], "pod": "a-worker-0", "since": "2026-01-02T03:04:05Z"},
    }});
    world.job("a", &anew, 30);
    for path in paths {
        let (status, why) = world.response(path, Some(&world.token("a-worker-1"))).await;
        assert_eq!(status, 403, "{path}");
        assert!(why.contains("of a former attempt"), "{why}");
    }
    let (status, seen) = world.response(paths[0], Some(&world.token("a-launcher-0"))).await;
    assert_eq!(status, 200, "its role goes on");
    assert!(!seen.contains("a-worker-1"), "{seen}");
}
