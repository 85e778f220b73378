use std::collections::VecDeque;
use std::convert::Infallible;

use http::{Method, StatusCode, Uri, header};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{Api, ListParams, PostParams};
use parking_lot::Mutex;
use rstest::rstest;

use super::count::classify;
use super::*;
use crate::foreign::tests::TOY;
use crate::metrics::{Foreign, Kind, Verb};

#[rstest]
#[case::list("GET", "/api/v1/namespaces/a/pods", Verb::List, Kind::Pod)]
#[case::list_all("GET", "/api/v1/pods?labelSelector=watch%3Dtrue", Verb::List, Kind::Pod)]
#[case::get("GET", "/api/v1/namespaces/a/pods/b", Verb::Get, Kind::Pod)]
#[case::watch("GET", "/api/v1/pods?&watch=true&timeoutSeconds=290", Verb::Watch, Kind::Pod)]
#[case::no_watch("GET", "/api/v1/pods?watch=false", Verb::List, Kind::Pod)]
#[case::create(
    "POST",
    "/api/v1/namespaces/a/services?fieldManager=x",
    Verb::Create,
    Kind::Service
)]
#[case::update(
    "PUT",
    "/apis/coordination.k8s.io/v1/namespaces/a/leases/b",
    Verb::Update,
    Kind::Lease
)]
#[case::patch(
    "PATCH",
    "/apis/trainyard.dev/v1alpha1/namespaces/a/trainingjobs/b",
    Verb::Patch,
    Kind::TrainingJob
)]
#[case::status(
    "PATCH",
    "/apis/trainyard.dev/v1alpha1/namespaces/a/trainingjobs/b/status",
    Verb::Patch,
    Kind::TrainingJobStatus
)]
#[case::delete("DELETE", "/api/v1/namespaces/a/pods/b", Verb::Delete, Kind::Pod)]
#[case::delete_all("DELETE", "/api/v1/namespaces/a/pods", Verb::DeleteCollection, Kind::Pod)]
#[case::other_group(
    "GET",
    "/apis/metrics.k8s.io/v1beta1/namespaces/a/pods",
    Verb::List,
    Kind::Other
)]
#[case::other_subresource("POST", "/api/v1/namespaces/a/pods/b/eviction", Verb::Create, Kind::Other)]
#[case::cluster_scoped("GET", "/api/v1/nodes/n", Verb::Get, Kind::Node)]
#[case::namespace("GET", "/api/v1/namespaces/a", Verb::Get, Kind::Other)]
#[case::namespace_status("PUT", "/api/v1/namespaces/a/status", Verb::Update, Kind::Other)]
#[case::a_pod_named_status("GET", "/api/v1/namespaces/a/pods/status", Verb::Get, Kind::Pod)]
#[case::events(
    "POST",
    "/apis/events.k8s.io/v1/namespaces/a/events",
    Verb::Create,
    Kind::Event
)]
#[case::discovery("GET", "/apis", Verb::Get, Kind::Other)]
#[case::version("GET", "/version", Verb::Get, Kind::Other)]
#[case::review(
    "POST",
    "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
    Verb::Create,
    Kind::Other
)]
fn requests_are_classified(#[case] method: &str, #[case] uri: &str, #[case] verb: Verb, #[case] kind: Kind) {
    let method = Method::from_bytes(method.as_bytes()).unwrap();
    let foreign = [Foreign::new(&TOY)];
    let found = classify(&method, &uri.parse::<Uri>().unwrap(), &foreign);
    assert_eq!(found, (verb, kind.into()));
}

#[rstest]
#[case::list("GET", "toys", "list", "Toy.toys.example")]
#[case::watch("GET", "toys?watch=true", "watch", "Toy.toys.example")]
#[case::status("PUT", "namespaces/a/toys/b/status", "update", "Toy.toys.example/status")]
#[case::delete("DELETE", "namespaces/a/toys/b", "delete", "Toy.toys.example")]
#[case::other_subresource("PUT", "namespaces/a/toys/b/scale", "update", "other")]
#[case::other_resource("GET", "dolls", "list", "other")]
#[tokio::test]
async fn requests_about_kinds_of_other_operators_are_told_apart(
    #[case] method: &str,
    #[case] path: &str,
    #[case] verb: &str,
    #[case] kind: &str,
) {
    let metrics = Arc::new(Metrics::new().with_kinds(&[&TOY]));
    let answer = tower::service_fn(|_: Request<()>| async { Ok::<_, BoxError>(Response::new(())) });
    let request = Request::builder()
        .method(method)
        .uri(format!("/apis/toys.example/v1/{path}"))
        .body(())
        .unwrap();
    CountLayer::new(metrics.clone())
        .layer(answer)
        .oneshot(request)
        .await
        .unwrap();
    let line = format!("trainyard_api_requests_total{{verb=\"{verb}\",kind=\"{kind}\",code=\"200\"}} 1\n");
    let text = metrics.render();
    assert!(text.contains(&line), "no {line} in\n{text}");
    assert_eq!(metrics.writes(), u64::from(method != "GET"));
}

/// An API server that answers what it is told, then 200.
#[derive(Clone, Default)]
struct Script(Arc<Mutex<VecDeque<Scripted>>>);

/// A status, and what `Retry-After` says.
type Scripted = (StatusCode, Option<&'static str>);

impl Script {
    fn new(answers: impl IntoIterator<Item = (u16, Option<&'static str>)>) -> Self {
        let answers = answers
            .into_iter()
            .map(|(code, after)| (StatusCode::from_u16(code).unwrap(), after));
        Self(Arc::new(Mutex::new(answers.collect())))
    }

    fn client(&self, metrics: &Arc<Metrics>) -> kube::Client {
        let script = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let (status, after) = script.0.lock().pop_front().unwrap_or((StatusCode::OK, None));
            async move {
                let list = request.uri().path().ends_with('s') && request.method() == Method::GET;
                let body = match (status.is_success(), list) {
                    (true, true) => {
                        r#"{"kind":"NodeList","apiVersion":"v1","metadata":{},"items":[]}"#.to_owned()
                    }
                    (true, false) => r#"{"kind":"Pod","apiVersion":"v1","metadata":{"name":"p"}}"#.to_owned(),
                    _ => format!(
                        r#"{{"kind":"Status","status":"Failure","code":{},"reason":"x","message":"y"}}"#,
                        status.as_u16()
                    ),
                };
                let mut response = Response::builder().status(status);
                if let Some(after) = after {
                    response = response.header(header::RETRY_AFTER, after);
                }
                Ok::<_, Infallible>(
                    response
                        .body(http_body_util::Full::new(Bytes::from(body)))
                        .unwrap(),
                )
            }
        });
        build_on(service, "default", metrics.clone())
    }
}

fn code(error: &kube::Error) -> Option<u16> {
    match error {
        kube::Error::Api(status) => Some(status.code),
        _ => None,
    }
}

#[tokio::test(start_paused = true)]
async fn reads_are_repeated_and_every_try_is_counted() {
    let metrics = Arc::new(Metrics::new());
    let client = Script::new([(503, None), (504, None), (429, Some("1"))]).client(&metrics);
    Api::<Node>::all(client)
        .list(&ListParams::default())
        .await
        .unwrap();
    assert_eq!(metrics.requests(Verb::List, Kind::Node), 4);
    let text = metrics.render();
    for code in [200, 429, 503, 504] {
        let line = format!("trainyard_api_requests_total{{verb=\"list\",kind=\"Node\",code=\"{code}\"}} 1\n");
        assert!(text.contains(&line), "no {line} in {text}");
    }
}

#[rstest]
#[case::maybe_done(503, None, 1)]
#[case::maybe_done_too(504, None, 1)]
#[case::long_pause(429, Some("30"), 1)]
#[case::our_fault(400, None, 1)]
#[tokio::test(start_paused = true)]
async fn writes_of_unknown_fate_are_the_callers(
    #[case] answer: u16,
    #[case] after: Option<&'static str>,
    #[case] sent: u64,
) {
    let metrics = Arc::new(Metrics::new());
    let client = Script::new([(answer, after)]).client(&metrics);
    let error = Api::<Pod>::default_namespaced(client)
        .create(&PostParams::default(), &Pod::default())
        .await;
    assert_eq!(code(&error.unwrap_err()), Some(answer));
    assert_eq!(metrics.requests(Verb::Create, Kind::Pod), sent);
}

#[tokio::test(start_paused = true)]
async fn writes_that_were_not_looked_at_are_repeated_within_three_seconds() {
    let metrics = Arc::new(Metrics::new());
    let client = Script::new([(429, Some("1")); 9]).client(&metrics);
    let before = tokio::time::Instant::now();
    let error = Api::<Pod>::default_namespaced(client)
        .create(&PostParams::default(), &Pod::default())
        .await;
    assert_eq!(code(&error.unwrap_err()), Some(429));
    assert_eq!(metrics.requests(Verb::Create, Kind::Pod), 4);
    // Virtual time: this is the sum of the backoffs, not the speed of the machine.
    assert!(
        before.elapsed() <= Duration::from_millis(3100),
        "{:?}",
        before.elapsed()
    );
}

#[tokio::test(start_paused = true)]
async fn a_request_that_is_given_up_is_counted() {
    let metrics = Arc::new(Metrics::new());
    let service = tower::service_fn(|_: Request<Body>| {
        futures::future::pending::<Result<Response<http_body_util::Full<Bytes>>, Infallible>>()
    });
    let client = build_on(service, "default", metrics.clone());
    let api = Api::<Node>::all(client);
    assert!(
        tokio::time::timeout(Duration::from_secs(5), api.get("n"))
            .await
            .is_err()
    );
    assert_eq!(metrics.requests(Verb::Get, Kind::Node), 1);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_never_answers_is_given_up() {
    let silent =
        tower::service_fn(|_: Request<Body>| futures::future::pending::<Result<Response<()>, BoxError>>());
    let mut service = AnswerTimeout { inner: silent };
    let error = service.call(Request::new(Body::empty())).await.unwrap_err();
    assert!(error.is::<NoAnswer>(), "{error}");
}

#[tokio::test]
async fn a_layer_of_the_callers_is_beneath_counting_and_retry() {
    let metrics = Arc::new(Metrics::new());
    let failures = Arc::new(std::sync::atomic::AtomicU32::new(2));
    let layer = tower::layer::layer_fn(move |inner: Transport| {
        let failures = failures.clone();
        tower::service_fn(move |request: Request<Body>| {
            let mut inner = inner.clone();
            let fail = failures.fetch_update(
                std::sync::atomic::Ordering::SeqCst,
                std::sync::atomic::Ordering::SeqCst,
                |left| left.checked_sub(1),
            );
            async move {
                if fail.is_ok() {
                    let body = http_body_util::Empty::new()
                        .map_err(BoxError::from)
                        .boxed_unsync();
                    return Ok(Response::builder().status(503).body(body).unwrap());
                }
                inner.ready().await?.call(request).await
            }
        })
    });
    // Nobody listens there: the third try gets a transport error, which is not repeated.
    let config = kube::Config::new("http://127.0.0.1:9".parse().unwrap());
    let client = build_with_layer(config, metrics.clone(), &layer).unwrap();
    Api::<Node>::all(client).get("n").await.unwrap_err();
    assert_eq!(metrics.requests(Verb::Get, Kind::Node), 3);
    assert!(
        metrics.render().contains("kind=\"Node\",code=\"0\"} 1"),
        "{}",
        metrics.render()
    );
}

#[test]
fn a_proxy_is_refused_with_advice() {
    let mut config = kube::Config::new("https://cluster.example".parse().unwrap());
    config.proxy_url = Some("http://proxy.example:3128".parse().unwrap());
    let error = transport(config).err().unwrap().to_string();
    assert!(
        error.contains("proxy.example:3128") && error.contains("HTTPS_PROXY"),
        "{error}"
    );
}
