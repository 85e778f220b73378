use std::convert::Infallible;
use std::sync::atomic::{AtomicU64, Ordering};

use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Empty, Full};
use hyper::body::Bytes;
use tower::{BoxError, Layer, Service, ServiceExt};

use super::*;

/// A server that counts what reaches it.
#[derive(Clone, Default)]
struct Server {
    reached: Arc<AtomicU64>,
}

impl Service<Request<Empty<Bytes>>> for Server {
    type Response = Response<Full<Bytes>>;
    type Error = Infallible;
    type Future = std::future::Ready<Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut std::task::Context<'_>) -> std::task::Poll<Result<(), Infallible>> {
        std::task::Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<Empty<Bytes>>) -> Self::Future {
        self.reached.fetch_add(1, Ordering::Relaxed);
        std::future::ready(Ok(Response::new(Full::new(Bytes::from_static(b"fine")))))
    }
}

impl Server {
    fn reached(&self) -> u64 {
        self.reached.load(Ordering::Relaxed)
    }
}

fn request(method: &str, path: &str) -> Request<Empty<Bytes>> {
    Request::builder()
        .method(method)
        .uri(path)
        .body(Empty::new())
        .unwrap()
}

async fn send(service: &Faulty<Server>, method: &str, path: &str) -> Result<Response<FaultyBody>, BoxError> {
    service.clone().oneshot(request(method, path)).await
}

const PODS: &str = "/api/v1/namespaces/a/pods";

#[tokio::test]
async fn the_nth_write_is_not_sent_and_nothing_after_it() {
    let server = Server::default();
    let faults = Faults::crash_at(2, CrashPoint::Before);
    let service = faults.layer(server.clone());
    send(&service, "GET", PODS).await.unwrap();
    send(&service, "POST", "/api/v1/namespaces/a/events")
        .await
        .unwrap();
    send(&service, "POST", PODS).await.unwrap();
    assert!(!faults.crashed().is_cancelled());
    let second = tokio::spawn(service.clone().oneshot(request("POST", PODS)));
    faults.crashed().cancelled().await;
    let third = tokio::spawn(service.clone().oneshot(request("GET", PODS)));
    tokio::task::yield_now().await;
    assert_eq!(server.reached(), 3);
    assert!(!second.is_finished() && !third.is_finished());
}

#[tokio::test]
async fn the_nth_write_is_carried_out_and_its_answer_does_not_come() {
    let server = Server::default();
    let faults = Faults::crash_at(1, CrashPoint::After);
    let service = faults.layer(server.clone());
    let first = tokio::spawn(service.clone().oneshot(request("POST", PODS)));
    faults.crashed().cancelled().await;
    assert_eq!(server.reached(), 1);
    assert!(!first.is_finished());
    assert_eq!(faults.traffic().borrow().writes, 1);
}

#[tokio::test]
async fn answers_are_lost_after_the_server_has_acted() {
    let server = Server::default();
    let service = Faults::none()
        .lose_answers(1, |call| call.verb == Verb::Create)
        .layer(server.clone());
    assert!(send(&service, "POST", PODS).await.is_err());
    assert_eq!(server.reached(), 1);
    assert!(send(&service, "POST", PODS).await.is_ok());
}

#[tokio::test]
async fn conflicts_and_limits_are_answers_of_the_server() {
    let server = Server::default();
    let service = Faults::none()
        .conflicts(2, |call| call.resource == "trainingjobs/status")
        .too_many(1, 1, |call| call.verb == Verb::Delete)
        .layer(server.clone());
    let status = "/apis/trainyard.dev/v1alpha1/namespaces/a/trainingjobs/j/status";
    for expected in [StatusCode::CONFLICT, StatusCode::CONFLICT, StatusCode::OK] {
        assert_eq!(send(&service, "PUT", status).await.unwrap().status(), expected);
    }
    let answer = send(&service, "DELETE", "/api/v1/namespaces/a/pods/p")
        .await
        .unwrap();
    assert_eq!(answer.status(), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(answer.headers()["retry-after"], "1");
    assert_eq!(server.reached(), 1);
}

#[tokio::test]
async fn a_watch_is_told_that_its_version_is_gone() {
    let service = Faults::none().gone("pods", 1).layer(Server::default());
    let answer = send(&service, "GET", "/api/v1/pods?watch=true").await.unwrap();
    let body = answer.into_body().collect().await.unwrap().to_bytes();
    let event: serde_json::Value = serde_json::from_slice(&body).unwrap();
    assert_eq!(event["type"], "ERROR");
    assert_eq!(event["object"]["code"], 410);
    assert!(send(&service, "GET", "/api/v1/pods?watch=true").await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn connections_are_refused_for_a_time_and_answers_lag() {
    let server = Server::default();
    let faults = Faults::none().slow(Duration::from_secs(3), |call| call.verb == Verb::Watch);
    let service = faults.layer(server.clone());
    faults.refuse(true);
    assert!(send(&service, "GET", PODS).await.is_err());
    assert_eq!(server.reached(), 0);
    faults.refuse(false);
    let begun = tokio::time::Instant::now();
    let answer = send(&service, "GET", "/api/v1/pods?watch=true").await.unwrap();
    assert_eq!(begun.elapsed(), Duration::ZERO);
    assert_eq!(answer.into_body().collect().await.unwrap().to_bytes(), "fine");
    assert_eq!(begun.elapsed(), Duration::from_secs(3));
}

#[tokio::test(start_paused = true)]
async fn quiet_is_when_no_write_has_passed_for_a_while() {
    let faults = Faults::none();
    let service = faults.layer(Server::default());
    let begun = tokio::time::Instant::now();
    let writer = async {
        for _ in 0..3 {
            tokio::time::sleep(Duration::from_secs(1)).await;
            send(&service, "POST", PODS).await.unwrap();
        }
    };
    tokio::join!(writer, faults.wait_until_idle(Duration::from_secs(2)));
    assert_eq!(begun.elapsed(), Duration::from_secs(5));
}
