//! Electors against a server that keeps a lease, in virtual time.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use http::{Method, Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use k8s_openapi::api::coordination::v1::LeaseSpec;
use kube::client::Body;
use parking_lot::Mutex;
use rstest::rstest;
use tokio::task::JoinHandle;
use tokio::time::sleep;

use super::*;

const SECOND: Duration = Duration::from_secs(1);

#[rstest]
#[case(15, 15, 2)]
#[case(15, 10, 6)]
#[case(15, 10, 0)]
#[case(0, 10, 2)]
fn configurations_that_can_not_work_are_refused(#[case] lease: u64, #[case] renew: u64, #[case] retry: u64) {
    let mut config = LeaderConfig::new("ns", "trainyard", "me");
    assert_eq!(config.check(), Ok(()));
    config.lease_duration = Duration::from_secs(lease);
    config.renew_deadline = Duration::from_secs(renew);
    config.retry_period = Duration::from_secs(retry);
    assert!(config.check().is_err());
}

#[test]
fn identities_differ() {
    let names: BTreeSet<_> = (0..100).map(|_| unique_identity("host")).collect();
    assert_eq!(names.len(), 100);
}

/// The part of an API server that keeps one lease.
#[derive(Default)]
struct Server {
    lease: Mutex<Option<Lease>>,
    versions: AtomicU32,
}

/// How one client reaches the server.
#[derive(Default)]
struct Link {
    /// Nothing gets through.
    cut: AtomicBool,
    /// Requests get through, answers don't.
    deaf: AtomicBool,
}

impl Server {
    fn change(&self, change: impl FnOnce(&mut Lease)) {
        let mut held = self.lease.lock();
        let lease = held.as_mut().unwrap();
        change(lease);
        lease.metadata.resource_version = Some(self.next_version());
    }

    fn spec(&self) -> LeaseSpec {
        self.lease.lock().clone().unwrap().spec.unwrap()
    }

    fn next_version(&self) -> String {
        (self.versions.fetch_add(1, Ordering::SeqCst) + 1).to_string()
    }

    fn answer(&self, method: &Method, sent: Option<Lease>) -> Result<Lease, u16> {
        let mut held = self.lease.lock();
        let version =
            |lease: &Option<Lease>| lease.as_ref().and_then(|l| l.metadata.resource_version.clone());
        match *method {
            Method::GET => return held.clone().ok_or(404),
            Method::POST if held.is_some() => return Err(409),
            Method::PUT if held.is_none() => return Err(404),
            Method::PUT if version(&held) != version(&sent) => return Err(409),
            _ => {}
        }
        let mut lease = sent.ok_or(400_u16)?;
        lease.metadata.resource_version = Some(self.next_version());
        *held = Some(lease.clone());
        Ok(lease)
    }

    fn client(self: &Arc<Self>, link: &Arc<Link>) -> kube::Client {
        let (server, link) = (self.clone(), link.clone());
        let service = tower::service_fn(move |request: Request<Body>| {
            let (server, link) = (server.clone(), link.clone());
            async move {
                let (parts, body) = request.into_parts();
                let body = body.collect().await.unwrap().to_bytes();
                sleep(Duration::from_millis(20)).await;
                if link.cut.load(Ordering::SeqCst) {
                    futures::future::pending::<()>().await;
                }
                let answer = server.answer(&parts.method, serde_json::from_slice(&body).ok());
                sleep(Duration::from_millis(20)).await;
                if link.deaf.load(Ordering::SeqCst) {
                    futures::future::pending::<()>().await;
                }
                let (code, body) = match answer {
                    Ok(lease) => (200, serde_json::to_vec(&lease).unwrap()),
                    Err(code) => {
                        let reason = if code == 404 { "NotFound" } else { "Conflict" };
                        let status = serde_json::json!({
                            "kind": "Status", "status": "Failure", "code": code, "message": "", "reason": reason
                        });
                        (code, serde_json::to_vec(&status).unwrap())
                    }
                };
                Ok::<_, Infallible>(
                    Response::builder()
                        .status(code)
                        .body(Full::new(Bytes::from(body)))
                        .unwrap(),
                )
            }
        });
        kube::Client::new(service, "default")
    }
}

struct Replica {
    leadership: Leadership,
    link: Arc<Link>,
    shutdown: CancellationToken,
    task: JoinHandle<()>,
    metrics: Arc<Metrics>,
}

fn start(server: &Arc<Server>, identity: &str) -> Replica {
    let link = Arc::new(Link::default());
    let metrics = Arc::new(Metrics::new());
    let config = LeaderConfig::new("ns", "trainyard", identity);
    let elector = Elector::new(server.client(&link), config)
        .unwrap()
        .with_metrics(metrics.clone());
    let leadership = elector.leadership();
    let shutdown = CancellationToken::new();
    let task = tokio::spawn(elector.run(shutdown.clone()));
    Replica {
        leadership,
        link,
        shutdown,
        task,
        metrics,
    }
}

/// Lets so much virtual time pass, and checks all along that at most one may write. Returns who
/// could, in order.
async fn pass(replicas: &[&Replica], time: Duration) -> Vec<Option<usize>> {
    let mut seen = Vec::new();
    let end = Instant::now() + time;
    while Instant::now() < end {
        sleep(Duration::from_millis(50)).await;
        let leading: Vec<_> = replicas
            .iter()
            .enumerate()
            .filter(|(_, r)| r.leadership.may_write())
            .map(|(i, _)| i)
            .collect();
        assert!(leading.len() <= 1, "two leaders: {leading:?}");
        let leader = leading.first().copied();
        if seen.last() != Some(&leader) {
            seen.push(leader);
        }
    }
    seen
}

#[tokio::test(start_paused = true)]
async fn one_leads_and_keeps_leading() {
    let server = Arc::new(Server::default());
    let mut one = start(&server, "one");
    assert_eq!(one.leadership.leading().await, 1);
    assert!(one.metrics.render().contains("trainyard_leader 1\n"));
    let two = start(&server, "two");
    assert_eq!(pass(&[&one, &two], Duration::from_mins(10)).await, [Some(0)]);
    let spec = server.spec();
    assert_eq!(
        (spec.holder_identity.as_deref(), spec.lease_transitions),
        (Some("one"), Some(0))
    );
    assert_eq!(spec.lease_duration_seconds, Some(15));
    assert_eq!(one.leadership.term(), Some(1));
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_is_cut_off_stops_before_the_next_starts() {
    let server = Arc::new(Server::default());
    let mut one = start(&server, "one");
    one.leadership.leading().await;
    let two = start(&server, "two");
    pass(&[&one, &two], SECOND * 30).await;

    one.link.cut.store(true, Ordering::SeqCst);
    assert_eq!(pass(&[&one, &two], SECOND * 20).await, [Some(0), None, Some(1)]);
    assert_eq!(one.leadership.changed().await, None, "it is told");
    assert!(one.metrics.render().contains("trainyard_leader 0\n"));

    one.link.cut.store(false, Ordering::SeqCst);
    assert_eq!(pass(&[&one, &two], SECOND * 60).await, [Some(1)]);
    assert_eq!(server.spec().lease_transitions, Some(1));
}

#[tokio::test(start_paused = true)]
async fn renewals_whose_answers_are_lost_do_not_count_and_do_no_harm() {
    let server = Arc::new(Server::default());
    let mut one = start(&server, "one");
    one.leadership.leading().await;
    let two = start(&server, "two");
    pass(&[&one, &two], SECOND * 30).await;

    one.link.deaf.store(true, Ordering::SeqCst);
    // It renews for the others, but does not know: it stops, and nobody else starts.
    assert_eq!(pass(&[&one, &two], SECOND * 14).await, [Some(0), None]);
    one.link.deaf.store(false, Ordering::SeqCst);
    let seen = pass(&[&one, &two], SECOND * 30).await;
    assert!(
        seen.ends_with(&[Some(0)]) || seen.ends_with(&[Some(1)]),
        "{seen:?}"
    );
    assert_eq!(
        one.leadership.term().unwrap_or(2),
        2,
        "if it leads again it is in a new term"
    );
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_is_given_back_is_taken_at_once() {
    let server = Arc::new(Server::default());
    let mut one = start(&server, "one");
    one.leadership.leading().await;
    let mut two = start(&server, "two");
    pass(&[&one, &two], SECOND * 30).await;

    one.shutdown.cancel();
    one.task.await.unwrap();
    assert!(!one.leadership.may_write());
    let before = Instant::now();
    two.leadership.leading().await;
    assert!(
        before.elapsed() <= SECOND * 3,
        "virtual time: {:?}",
        before.elapsed()
    );
    assert_eq!(server.spec().lease_transitions, Some(1));
}

#[tokio::test(start_paused = true)]
async fn a_dropped_elector_leads_no_longer() {
    let server = Arc::new(Server::default());
    let mut one = start(&server, "one");
    one.leadership.leading().await;
    one.task.abort();
    assert_eq!(one.leadership.changed().await, None);
    assert!(!one.leadership.may_write());
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_others_annotate_is_kept() {
    let server = Arc::new(Server::default());
    let mut one = start(&server, "one");
    one.leadership.leading().await;
    for _ in 0..20 {
        server.change(|lease| {
            lease
                .metadata
                .annotations
                .get_or_insert_default()
                .insert("note".into(), "x".into());
        });
        assert_eq!(pass(&[&one], SECOND * 3).await, [Some(0)]);
    }
    let annotations = server.lease.lock().clone().unwrap().metadata.annotations;
    assert!(
        annotations.is_some_and(|notes| notes.contains_key("note")),
        "what others wrote stays"
    );
    assert_eq!(one.leadership.term(), Some(1));
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_was_taken_away_is_left_at_once() {
    let server = Arc::new(Server::default());
    let mut one = start(&server, "one");
    one.leadership.leading().await;
    server.change(|lease| lease.spec.as_mut().unwrap().holder_identity = Some("thief".into()));
    let before = Instant::now();
    assert_eq!(one.leadership.changed().await, None);
    assert!(
        before.elapsed() <= SECOND * 3,
        "virtual time: {:?}",
        before.elapsed()
    );
    // The thief never renews.
    assert_eq!(one.leadership.leading().await, 2);
}

#[tokio::test(start_paused = true)]
async fn a_process_that_was_paused_stops_before_it_notices() {
    let mut setter = LeadershipSetter::new();
    let leadership = setter.leadership();
    assert!(!leadership.may_write());
    assert!(setter.renew(Instant::now(), Timestamp::now(), SECOND * 10));
    tokio::time::advance(Duration::from_millis(9_999)).await;
    assert!(leadership.may_write());
    tokio::time::advance(Duration::from_millis(1)).await;
    // Nobody has run in between: the elector has not said anything.
    assert!(setter.end().is_some());
    assert!(!leadership.may_write());
    assert_eq!(leadership.term(), None);
}

#[tokio::test(start_paused = true)]
async fn a_renewal_counts_from_its_beginning() {
    let mut setter = LeadershipSetter::new();
    let begun = Instant::now();
    tokio::time::advance(SECOND * 8).await;
    assert!(setter.renew(begun, Timestamp::now(), SECOND * 10));
    tokio::time::advance(SECOND * 2).await;
    assert!(!setter.leadership().may_write());
    // One that took longer than the deadline is worth nothing.
    let mut late = LeadershipSetter::new();
    assert!(!late.renew(begun, Timestamp::now(), SECOND * 10));
    assert!(!late.leadership().may_write());
}

#[tokio::test(start_paused = true)]
async fn a_machine_that_was_suspended_stops_by_the_wall_clock() {
    let mut setter = LeadershipSetter::new();
    let an_hour_ago = Timestamp::now() - Duration::from_hours(1);
    assert!(setter.renew(Instant::now(), an_hour_ago, SECOND * 10));
    assert!(
        !setter.leadership().may_write(),
        "the monotonic clock stood still, the other did not"
    );
}

#[tokio::test(start_paused = true)]
async fn without_an_election_one_always_leads() {
    let mut leadership = Leadership::always();
    tokio::time::advance(Duration::from_secs(1_000_000)).await;
    assert!(leadership.may_write());
    assert_eq!(leadership.leading().await, 1);
    assert!(tokio::time::timeout(SECOND, leadership.changed()).await.is_err());
}
