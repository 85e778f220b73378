//! The memory that the operator is installed with is enough for the worst objects that are accepted
//! and the worst requests of strangers together.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures::StreamExt;
use kube::Client;
use kube::api::ListParams;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use trainyard_eventually::eventually_async;
use trainyard_testkit::load::{Player, Scope, Script};
use trainyard_testkit::namespace;

use super::servers::{Server, Servers};
use super::{client, create, jobs};

/// How many of the worst objects there are. Quotas bound how many a namespace may have.
const OBJECTS: usize = 20;
/// As many connections as the webhooks keep.
const REVIEWERS: usize = 64;
/// The largest review is 7 MiB.
const REVIEW: usize = (7 << 20) - 4096;
/// More than the observer keeps of those who have shown no token, over so many addresses that none
/// has too many.
const STRANGERS: usize = 1750;
const STRANGERS_PER_ADDRESS: usize = 80;
/// So many at once make their handshakes, so that none gives up.
const MAX_HANDSHAKES: usize = 32;
/// When one comes again that was sent away. They are to take memory, and not all of the processor.
const RETURN_DELAY: Duration = Duration::from_secs(5);
/// So many were closed for others when there is no room left.
const EVICTED: usize = 40;

/// A pod that is as valid as any, with so many items in one of its lists.
struct Shape {
    /// The most items that the definition allows in the list. More are shared out among roles.
    max_items: usize,
    pod: fn(usize) -> Value,
}

/// The most roles that a job may have.
const MAX_ROLES: usize = 16;

impl Shape {
    /// A spec of a job with so many items in all. `None` if no job can have so many.
    fn spec(&self, count: usize) -> Option<Value> {
        let roles = count.div_ceil(self.max_items);
        let role = |number: usize| {
            let items = self.max_items.min(count - number * self.max_items);
            json!({"name": format!("r{number}"), "replicas": 1, "template": {"spec": (self.pod)(items)}})
        };
        (roles <= MAX_ROLES).then(|| json!({"framework": {"name": "custom"}, "roles": many(roles, role)}))
    }
}

fn pod(pod: &Value, container: &Value) -> Value {
    let mut template = json!({"containers": [{"name": "main", "image": "registry.example/train:1"}]});
    for (object, more) in [("/containers/0", container), ("", pod)] {
        let object = template.pointer_mut(object).unwrap().as_object_mut().unwrap();
        object.extend(more.as_object().unwrap().clone());
    }
    template
}

fn many(count: usize, item: impl Fn(usize) -> Value) -> Value {
    (0..count).map(item).collect()
}

const SHAPES: [Shape; 5] = [
    Shape {
        max_items: 64,
        pod: |count| {
            let containers = many(
                count,
                |number| json!({"name": format!("c{number}"), "image": "i"}),
            );
            pod(&json!({"containers": containers}), &json!({}))
        },
    },
    Shape {
        max_items: 256,
        pod: |count| {
            let volumes = many(
                count,
                |number| json!({"name": format!("v{number}"), "emptyDir": {}}),
            );
            pod(&json!({"volumes": volumes}), &json!({}))
        },
    },
    Shape {
        max_items: 256,
        pod: |count| {
            let sources = json!({"sources": many(count, |_| json!({"secret": {"name": "s"}}))});
            pod(
                &json!({"volumes": [{"name": "v", "projected": sources}]}),
                &json!({}),
            )
        },
    },
    Shape {
        max_items: 1024,
        pod: |count| {
            let env = many(count, |number| json!({"name": format!("V{number}")}));
            pod(&json!({}), &json!({"env": env}))
        },
    },
    Shape {
        max_items: usize::MAX,
        pod: |count| pod(&json!({}), &json!({"args": ["x".repeat(200 * count)]})),
    },
];
const COUNTS: [usize; 10] = [2450, 1650, 1200, 800, 400, 200, 100, 50, 20, 5];

fn review(spec: &Value) -> Value {
    let object = json!({"metadata": {"name": "a", "namespace": "b"}, "spec": spec});
    json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": {"uid": "u", "operation": "UPDATE", "name": "a", "namespace": "b",
            "kind": {"group": "trainyard.dev", "version": "v1alpha1", "kind": "TrainingJob"},
            "object": object, "oldObject": object},
    })
}

/// The largest spec of a shape that admission accepts.
async fn worst(servers: &Servers, shape: Shape) -> Value {
    for spec in COUNTS.iter().filter_map(|count| shape.spec(*count)) {
        let mut body = review(&spec);
        // An object that is stored may stay as large as it is.
        body["request"]["operation"] = "CREATE".into();
        body["request"]["oldObject"] = Value::Null;
        let body = body.to_string();
        let (code, answer) = servers.review("/validate", body.as_bytes()).await.unwrap();
        assert_eq!(code, 200, "{answer}");
        let answer: Value = serde_json::from_str(&answer).unwrap();
        if answer["response"]["allowed"] == true {
            println!("accepted: {} bytes", spec.to_string().len());
            return spec;
        }
    }
    panic!("no size of it is accepted: {:?}", shape.spec(1));
}

/// Waits until every job is accepted.
async fn all_accepted(client: &Client, namespace: &str) {
    eventually_async("all jobs are accepted", async || {
        let found = jobs(client, namespace)
            .list(&ListParams::default())
            .await
            .unwrap();
        let conditions = found
            .iter()
            .filter_map(|job| Some(&job.status.as_ref()?.conditions));
        let accepted = conditions.flatten().filter(|condition| {
            assert!(
                condition.type_ != "Accepted" || condition.status == "True",
                "{condition:?}"
            );
            condition.type_ == "Accepted"
        });
        match accepted.count() {
            OBJECTS => Ok(()),
            others => Err(others.to_string()),
        }
    })
    .await;
}

/// A review that is as large as any: it is padded in one place.
fn padded(mut review: Value, path: &str, field: &str) -> Vec<u8> {
    let long = REVIEW - review.to_string().len() - field.len();
    review.pointer_mut(path).unwrap()[field] = "x".repeat(long).into();
    review.to_string().into_bytes()
}

/// Reviews whose answers might be as large as they are.
fn echoed(spec: &Value) -> Vec<Vec<u8>> {
    [("/request", "uid"), ("", "apiVersion")]
        .map(|(path, field)| padded(review(spec), path, field))
        .into()
}

/// Reviews of objects that are as large as they may be, with large parts that nobody reads.
fn decoded(specs: &[Value]) -> Vec<Vec<u8>> {
    let mut large = Vec::new();
    for (number, spec) in specs.iter().enumerate() {
        let mut review = review(spec);
        review["request"]["object"]["status"] = json!({"conditions": vec![json!({}); 12_000]});
        let (path, field) = [
            ("/request", "userInfo"),
            ("/request", "options"),
            ("/request/object/metadata", "managedFields"),
            ("/request/oldObject/spec/framework", "name"),
        ][number % 4];
        large.push(padded(review, path, field));
    }
    large
}

/// Those who ask the observer for something, never say what, and come again when they are sent
/// away.
struct Strangers {
    tasks: JoinSet<()>,
    evicted: Arc<AtomicUsize>,
}

impl Strangers {
    fn come(servers: &Arc<Servers>) -> Self {
        let mut tasks = JoinSet::new();
        let (evicted, handshakes) = (
            Arc::<AtomicUsize>::default(),
            Arc::new(Semaphore::new(MAX_HANDSHAKES)),
        );
        for number in 0..STRANGERS {
            let address = u8::try_from(1 + number / STRANGERS_PER_ADDRESS).unwrap();
            let address = Ipv4Addr::new(127, 250, 1, address);
            let (servers, evicted, handshakes) = (servers.clone(), evicted.clone(), handshakes.clone());
            tasks.spawn(async move {
                loop {
                    if stay(&servers, address, &handshakes).await.is_ok() {
                        evicted.fetch_add(1, Ordering::Relaxed);
                    }
                    tokio::time::sleep(RETURN_DELAY).await;
                }
            });
        }
        Self { tasks, evicted }
    }

    /// Waits until there is no room left for more of them.
    async fn wait_until_full(&self) {
        eventually_async("strangers make room for strangers", async || {
            let evicted = self.evicted.load(Ordering::Relaxed);
            if evicted >= EVICTED {
                Ok(())
            } else {
                Err(evicted.to_string())
            }
        })
        .await;
    }
}

/// Stays until the connection is closed.
async fn stay(servers: &Servers, address: Ipv4Addr, handshakes: &Semaphore) -> std::io::Result<()> {
    let permit = handshakes.acquire().await.unwrap();
    let mut stream = servers.connect(Server::Observer, address).await?;
    let head = format!("GET / HTTP/1.1\r\nx: {}", "x".repeat(7000));
    stream.write_all(head.as_bytes()).await?;
    stream.flush().await?;
    drop(permit);
    // A record that says that it has 16 KiB, and has not.
    let (tcp, _) = stream.get_mut();
    tcp.write_all(&[0x17, 3, 3, 0x40, 0]).await?;
    tcp.write_all(&[0; 16_000]).await?;
    let mut answer = [0; 64];
    while tcp.read(&mut answer).await? > 0 {}
    Ok(())
}

/// Sends large reviews on all connections, so many at once, and reads no answer before there are
/// all of them. Returns how many there are.
async fn storm(servers: &Servers, bodies: &[Vec<u8>], parallel: usize) -> usize {
    let paths = ["/validate", "/mutate"];
    let requests = (0..REVIEWERS).map(|number| {
        let (path, body) = (paths[number % 2], &bodies[number / 2 % bodies.len()]);
        // One address has a share of what all have.
        let from = Ipv4Addr::new(127, 250, 2, u8::try_from(1 + number % 8).unwrap());
        servers.send_review(path, body, from)
    });
    let answers = futures::stream::iter(requests).buffer_unordered(parallel);
    let answers: Vec<_> = answers.collect().await;
    answers.iter().flatten().count()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_worst_objects_and_strangers_fit_into_the_memory_that_is_installed() {
    trainyard_operator::allow_many_connections();
    let client = client().await;
    let name = format!("limit-{}", std::process::id());
    namespace::create(&client, &name).await.unwrap();
    let servers = Servers::start(&client, &name, &[]).await;
    let worst: Vec<Value> = futures::stream::iter(SHAPES)
        .then(|shape| worst(&servers, shape))
        .collect()
        .await;
    let _player = Player::start(client.clone(), &Scope::namespace(&*name), Script::run());
    for number in 0..OBJECTS {
        let spec = &worst[number % worst.len()];
        let job = json!({"apiVersion": "trainyard.dev/v1alpha1", "kind": "TrainingJob",
            "metadata": {"name": format!("worst-{number}")}, "spec": spec});
        create(&client, &name, &job.to_string()).await.unwrap();
    }
    all_accepted(&client, &name).await;
    servers.check_memory();
    servers.stop().await;
    // One that lists all of them while strangers come.
    let servers = Arc::new(Servers::start(&client, &name, &[]).await);
    let mut strangers = Strangers::come(&servers);
    strangers.wait_until_full().await;
    // Of what waits for others to be read, most is given up: so answers come one after another.
    for (bodies, parallel) in [(echoed(&worst[0]), 8), (decoded(&worst), REVIEWERS)] {
        let answered = storm(&servers, &bodies, parallel).await;
        println!("{answered} of {REVIEWERS} reviews were answered");
        assert!(answered > 0, "nobody is answered");
        servers.check_memory();
    }
    all_accepted(&client, &name).await;
    strangers.tasks.shutdown().await;
    Arc::into_inner(servers).unwrap().stop().await;
    namespace::remove(&client, &name).await.unwrap();
}
